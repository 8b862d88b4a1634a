"""Measure backfills of ``dagster dev`` on PostgreSQL and S3: one run of many days, and a run for each day, eight at a time.

Run with ``python -m benchmarks.bench_backfill [RUNS] [DAYS]``; 40 runs and 3,650 days by default. One step fails and is retried, and one
worker is killed after its commit, so that Dagster repeats its run. Runs write in a pool of four steps. Processor time is that of the
code server, the daemon, the web server and all runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.support.dagster_dev import DagsterServer, dagster_on_postgres
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.postgres import PostgresServer, start_server
from tests.support.s3 import KEY, SECRET, S3Server, s3_server

START = date(2016, 1, 1)
ROWS = 100


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The cost of one backfill; ``runs`` includes the run that was repeated."""

    what: str
    runs: int
    wall_seconds: float
    cpu_seconds: float
    statements: int
    snapshots: int
    files: int


def processor_time(root: int) -> float:
    """Return processor seconds of a process and all that it started; of those that have ended, their parents know the sum."""
    top = psutil.Process(root)
    return sum(sum(process.cpu_times()[:4]) for process in (top, *top.children(recursive=True)))


def measured(what: str, home: Path, dagster: DagsterServer, duck: Oracle, work: Callable[[], int]) -> Figure:
    """Return the differences that a backfill makes."""
    counter = home / "statements"

    def counts() -> tuple[int, int]:
        return int(str(duck.value("SELECT count(*) FROM lake.snapshots()"))), counter.stat().st_size if counter.exists() else 0

    snapshots, statements = counts() if counter.exists() else (0, 0)
    cpu, began = processor_time(dagster.running.process.pid), time.monotonic()
    runs = work()
    wall, spent = time.monotonic() - began, processor_time(dagster.running.process.pid) - cpu
    after, executed = counts()
    files = int(str(duck.value(f"SELECT count(*) FROM ducklake_list_files('lake', '{what}')")))
    return Figure(
        what=what,
        runs=runs,
        wall_seconds=round(wall, 1),
        cpu_seconds=round(spent, 1),
        statements=executed - statements,
        snapshots=after - snapshots,
        files=files,
    )


def keys(count: int) -> list[str]:
    """Return so many days."""
    return [(START + timedelta(days=day)).isoformat() for day in range(count)]


def figures(home: Path, dagster: DagsterServer, duck: Oracle, runs: int, days: int) -> list[Figure]:
    """Run both backfills, and compare the rows with those of an undisturbed one."""
    found = [measured("single", home, dagster, duck, lambda: len(dagster.backfill("single", keys(days))))]
    (home / "fail").touch()

    def many() -> int:
        (home / "kill").touch()
        return len(dagster.backfill("many", keys(runs)))

    found.append(measured("many", home, dagster, duck, many))
    assert not (home / "fail").exists(), "a step failed and was retried"
    assert not (home / "kill").exists(), "a worker was killed"
    for table, count in (("single", days), ("many", runs)):
        rows = duck.rows(f"SELECT count(*), count(DISTINCT day) FROM lake.{table}")
        assert rows == [(count * ROWS, count)], f"{table} has {rows}"
    return found


def main() -> None:
    """Start the servers and print the figures."""
    runs, days = (int(text) for text in [*sys.argv[1:3], *("40", "3650")[len(sys.argv[1:3]) :]])
    postgres = start_server()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-backfill-") as folder, s3_server(_made(Path(folder) / "s3")) as s3:
            found = _deployed(Path(folder), postgres, s3, runs, days)
    finally:
        postgres.stop()
    table = Table("backfill", *(name for name in asdict(found[0]) if name != "what"))
    for one in found:
        table.add_row(*(f"{value:,}" if isinstance(value, (int, float)) else value for value in asdict(one).values()))
    Console().print(table)
    for one in found:
        print(json.dumps({"benchmark": "backfill", **asdict(one)}))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _deployed(home: Path, postgres: PostgresServer, s3: S3Server, runs: int, days: int) -> list[Figure]:
    address: LakeAddress = replace(postgres.lake(home), data_path="s3://lake/backfill/")
    environment = {
        "BENCH_HOME": str(home),
        "BENCH_DAYS": str(days),
        "BENCH_RUNS": str(runs),
        "BENCH_CATALOG": address.url,
        "BENCH_KEY": KEY,
        "BENCH_SECRET": SECRET,
        "BENCH_ENDPOINT": s3.endpoint,
    }
    module = "benchmarks.backfill_project"
    with (
        attached(address, before=s3.know) as duck,
        dagster_on_postgres(module, home, environment, postgres, pool_limit=4, max_retries=2, secrets=(SECRET,)) as server,
    ):
        return figures(home, server, duck, runs, days)


if __name__ == "__main__":
    main()
