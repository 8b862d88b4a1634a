"""The same jobs on tables of this library and of Apache Iceberg, each with Spark, and on plain Parquet files.

Run with ``python -m benchmarks.bench_iceberg``. The first run installs Iceberg with its version of Spark into an environment of its own
(``.ci/iceberg.py``). Each contender runs in processes of its own, in turn, because the versions of Spark differ; the first of
``BENCH_ROUNDS`` rounds of each process does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks import table_jobs as jobs
from benchmarks.harness import Result, report

ROOT = Path(__file__).resolve().parents[1]
ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PROCESSES = 2
"""Processes of each contender."""

PROMISED = {
    jobs.WRITE: 0.8,
    jobs.READ: 1.0,
    jobs.SELECT: 1.0,
    jobs.UPSERT: 0.4,
    jobs.DELETE: 0.4,
    jobs.READ_CHANGED: 1.0,
    jobs.APPEND: 1.0,
    jobs.APPEND_LOCAL: 0.5,
    jobs.MERGE: 1.0,
}
"""Ratio to Iceberg."""
OF_PARQUET = {jobs.WRITE: 1.2, jobs.READ: 1.0}
"""Ratio to plain Parquet files."""


def measured(contender: str, python: str, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each job and contender in a new process, whose rows come from files next to its folder."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    arguments = (contender, str(folder), str(ROWS), str(ROUNDS))
    done = subprocess.run(
        [python, "-m", "benchmarks.table_jobs", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def run() -> list[Result]:
    """Return a result of each job with Iceberg as the baseline, and of those that need no table with Parquet files."""
    installed = subprocess.run([sys.executable, str(ROOT / ".ci" / "iceberg.py")], stdout=subprocess.PIPE, text=True, check=True)
    pythons = {"ducklake": sys.executable, "iceberg": installed.stdout.strip()}
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as parent:
        for contender, python in list(pythons.items()) * PROCESSES:
            with tempfile.TemporaryDirectory(dir=parent) as folder:
                for job, by_name in measured(contender, python, Path(folder)).items():
                    for name, values in by_name.items():
                        seconds[job, name] += values[1:]
    return [
        Result(
            f"{job}, {ROWS:,} rows on Spark",
            baseline,
            {name: tuple(seconds[job, name]) for name in (jobs.CORE, baseline)},
            promised_ratio=ratio,
        )
        for baseline, promised in ((jobs.ICEBERG, PROMISED), (jobs.PARQUET, OF_PARQUET))
        for job, ratio in promised.items()
    ]


if __name__ == "__main__":
    report(*run())
