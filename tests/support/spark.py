"""The Spark session that tests share, and programs with sessions of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def local_session(memory: str = "1g") -> SparkSession:
    """A classic session on two local cores, quiet, in UTC."""
    # Workers have to find the packages of this interpreter, not those of the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[2]")
        .appName("ducklake-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", memory)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def run_program(module: str, *arguments: str, prints: str) -> None:
    """Run a module in a process that nothing of this one's Spark reaches; at its end it prints that all checks passed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert prints in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]
