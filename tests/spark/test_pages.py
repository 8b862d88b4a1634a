"""The code of pages that need a Spark session runs as it stands."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.page_setups import Setup, lake_with_flights
from tests.support.pages import DOCS, run_python


def setup_of(page: str, spark: SparkSession) -> Setup:
    if page.startswith("tutorials/"):
        return Setup()
    if page in ("types.md", "object-stores.md"):
        return Setup({"spark": spark})
    lake = lake_with_flights(12)
    names = {"lake": lake, "table": lake.table("flights"), "spark": spark, "datetime": dt.datetime, "UTC": dt.UTC}
    return Setup(names, {})


@pytest.mark.slow_on("types.md", "object-stores.md", "virtual-columns.md", "change-feed.md")
@pytest.mark.parametrize(
    "page", ["tutorials/spark-job.md", "tutorials/streaming.md", "change-feed.md", "virtual-columns.md", "types.md", "object-stores.md"]
)
def test_examples_run(page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = {key: spark.conf.get(key, None) for key in ("spark.ducklake.read.types", "spark.ducklake.read.native.schemes")}
    setup = setup_of(page, spark)
    try:
        run_python(DOCS / page, setup.names, setup.replaced)
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
