"""The same write in the environments that users have, each in a process of its own: one JVM, several, Spark Connect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark import run_program

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["local[2]", "local-cluster[2,1,1024]"])
def test_writes_in(environment: str, tmp_path: Path) -> None:
    _write(environment, tmp_path)


@pytest.mark.slow
def test_writes_through_connect(connect: str, tmp_path: Path) -> None:
    _write(connect, tmp_path)


def _write(environment: str, tmp_path: Path) -> None:
    run_program("tests.spark.write_environment", environment, str(tmp_path), prints="WRITTEN AND CHECKED")
