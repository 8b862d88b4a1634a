"""The same write in the environments that users have, each in a process of its own: one JVM, several, Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["local[2]", "local-cluster[2,1,1024]"])
def test_writes_in(environment: str, tmp_path: Path) -> None:
    _write(environment, tmp_path)


@pytest.mark.slow
def test_writes_through_connect(connect: str, tmp_path: Path) -> None:
    _write(connect, tmp_path)


def _write(environment: str, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.write_environment", environment, str(tmp_path)],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert "WRITTEN AND CHECKED" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]
