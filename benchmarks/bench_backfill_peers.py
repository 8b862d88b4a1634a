"""Measure the same two backfills with the IO managers of several libraries, each with its local default.

Run with ``python -m benchmarks.bench_backfill_peers NAME [RUNS] [DAYS]``: ``NAME`` as in `compare_io_managers`, in an environment with that
library; 365 runs and 3,650 days by default. A run of all days replaces them by a range of partitions; then processes, eight at a time,
execute a run for each day. Each process executes many runs, so that imports do not count. A run that fails is not repeated.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pyarrow as pa

from benchmarks.compare_io_managers import LIBRARIES, Trial

START = date(2016, 1, 1)
ROWS = 100
PROCESSES = 8


def keys(count: int) -> list[str]:
    """Return so many days."""
    return [(START + timedelta(days=day)).isoformat() for day in range(count)]


def rows(days: list[str]) -> pa.Table:
    """Return a hundred rows for each day."""
    values = [date.fromisoformat(day) for day in days for _ in range(ROWS)]
    return pa.table({"day": pa.array(values, pa.date32()), "n": pa.array(range(len(values)), pa.int64())})


def materialize(name: str, home: Path, table: str, count: int, days: list[str]) -> str | None:
    """Execute one run of one day, or of the days from the first to the last; return the error, if it fails."""
    definition = dg.DailyPartitionsDefinition(START.isoformat(), end_date=(START + timedelta(days=count)).isoformat())
    metadata = {"partition_by": ["month(day)"]} if name == "ducklake" else None
    trial = Trial(library=LIBRARIES[name](home), table=table, definition=definition, expression="day", metadata=metadata)
    try:
        trial.run(rows(days), *days[:: max(len(days) - 1, 1)])
    except Exception as error:  # noqa: BLE001 - each library raises its own
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        return type(cause).__name__
    return None


def iceberg_state(home: Path, table: str) -> tuple[int, int]:
    """Return the numbers of snapshots and files of a table of PyIceberg."""
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog
    loaded = catalog("test", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}").load_table(f"main.{table}")
    return len(loaded.snapshots()), loaded.inspect.files().num_rows


def delta_state(home: Path, table: str) -> tuple[int, int]:
    """Return the numbers of versions and files of a table of delta-rs."""
    loaded = import_module("deltalake").DeltaTable(str(home / "main" / table))
    return loaded.version() + 1, len(loaded.file_uris())


def ducklake_state(home: Path, table: str) -> tuple[int, int]:
    """Return the numbers of snapshots that changed a table, and of its files."""
    from ducklake_core import DuckLake

    with DuckLake.open(f"sqlite:///{home}/lake.sqlite") as lake:
        loaded = lake.table(table)
        return len(loaded.snapshots()), len(loaded.list_files())


STATES: dict[str, Callable[[Path, str], tuple[int, int]]] = {
    "ducklake": ducklake_state,
    "iceberg": iceberg_state,
    "delta": delta_state,
}


def measure(name: str, home: Path, table: str, work: Callable[[], list[str | None]], expected: int) -> dict[str, Any]:
    """Return the cost of a backfill, and what it left."""
    began, before = time.monotonic(), _processor_time()
    errors = [error for error in work() if error]
    wall, spent = time.monotonic() - began, _processor_time() - before
    figures = {
        "benchmark": "backfill_peers",
        "library": name,
        "backfill": table,
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(spent, 1),
        "failed_runs": {error: errors.count(error) for error in set(errors)},
    }
    if table == "single" and errors:
        return figures  # No table was made.
    found = LIBRARIES[name](home).read(table)
    snapshots, files = STATES[name](home, table)
    return {
        **figures,
        "snapshots": snapshots,
        "files": files,
        "days_lost": expected - len(set(found["day"].to_pylist())),
        "rows": found.num_rows,
    }


def _processor_time() -> float:
    """Return processor seconds of this process and of its workers."""
    top = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (top, *top.children(recursive=True)))


def main() -> None:
    """Print the figures of both backfills."""
    name = sys.argv[1]
    runs, days = (int(text) for text in [*sys.argv[2:4], *("365", "3650")[len(sys.argv[2:4]) :]])
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        print(json.dumps(measure(name, home, "single", lambda: [materialize(name, home, "single", days, keys(days))], days)))
        first, *others = keys(runs)

        def many() -> list[str | None]:
            # The first run alone, because it makes the table.
            started = [materialize(name, home, "many", runs, [first])]
            with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
                waiting = [pool.submit(materialize, name, home, "many", runs, [day]) for day in others]
                return [*started, *(work.result() for work in waiting)]

        print(json.dumps(measure(name, home, "many", many, runs)))


if __name__ == "__main__":
    main()
