"""tests/support/supported-operations.md is true on Spark, classic and Connect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.connect import run_tests
from tests.support.verdicts import LAYOUTS, PAGE, TITLES, new_lakes, on_spark, section, sections


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_operation(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    is_remote = "SPARK_REMOTE" in os.environ
    session = SparkSession.builder.getOrCreate() if is_remote else request.getfixturevalue("spark")
    title = TITLES["connect" if is_remote else "spark"]
    assert section(title, on_spark(new_lakes(tmp_path), session), list(LAYOUTS)) == sections(PAGE.read_text())[title]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_operation_on_connect(connect: str) -> None:
    run_tests(__file__, "test_every_operation and not connect", connect)
