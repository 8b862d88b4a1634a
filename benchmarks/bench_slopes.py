"""Growth of everyday calls with the files, tables and snapshots of a lake, those that they ask for and all others.

Run with ``python -m benchmarks.bench_slopes``; ``BENCH_BACKENDS`` lists the databases, by commas, and ``BENCH_LARGEST`` limits the
sizes. Each lake is made by DuckDB, enlarged by rows of its catalog in one dimension, and has the indexes of ``lake.create_indexes()``. The
figures are milliseconds of processor time, of client and server; the slope is what each further file, table or snapshot costs.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from benchmarks.harness import server_time, servers
from benchmarks.large_lake import make_large_lake
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.support.postgres import start_server

BACKENDS = os.environ.get("BENCH_BACKENDS", "sqlite,postgresql").split(",")
LARGEST = int(os.environ.get("BENCH_LARGEST", "1000000"))
MIN_ROUNDS, MAX_ROUNDS, ENOUGH_SECONDS = 3, 20, 0.5
FEW = {"tables": 2, "snapshots": 100, "files": 100}
SIZES = {"files": (100, 1_000, 10_000, 100_000, 1_000_000), "tables": (10, 100, 1_000, 10_000), "snapshots": (100, 1_000, 10_000, 100_000)}
ALL_UNTIL = 100_000
"""Most objects for the calls that return one for each."""
LARGE = "other1"
"""The table that has all files but one, in lakes of many files."""
_ROW = pa.table({"a": [1], "b": ["x"]})
_FIRST_COMMIT = "UPDATE ducklake_data_file SET begin_snapshot = 2 WHERE data_file_id >= 1000"
"""No file is as new as the commits that calls about changes ask for."""
_BOUNDS = """UPDATE ducklake_file_column_stats SET min_value = CAST(data_file_id * 1000 AS VARCHAR),
max_value = CAST(data_file_id * 1000 + 999 AS VARCHAR) WHERE column_id = 1 AND data_file_id >= 1000"""


def flat_calls(lake: DuckLake) -> Mapping[str, Callable[[], object]]:
    """Return calls that ask for a small table, or for a page, by name."""
    newest = lake.snapshot().id
    when = lake.snapshot(newest // 2).time
    return {
        "lake.table": lambda: lake.table("t"),
        "table at a snapshot": lambda: lake.table("t", at=newest),
        "table at a time": lambda: lake.table("t", at=when),
        "append of one row": lambda: lake.table("t").append(_ROW),
        "read": lambda: lake.table("t").scan().to_arrow(),
        "plan": lambda: lake.table("t").scan(where="a = 5").plan(),
        "count": lambda: lake.table("t").scan().count(),
        "table_info": lambda: lake.table_info("t"),
        "table.snapshots": lambda: lake.table("t").snapshots(),
        "last_row_change": lambda: lake.table("t").last_row_change(),
        "changes of the last commit": lambda: lake.table("t").changes(lake.snapshot().id).plan(),
        "changed_tables of ten commits": lambda: lake.changed_tables(newest - 10),
        "lake.snapshots(last=20)": lambda: lake.snapshots(last=20),
        "lake.tables(limit=20)": lambda: lake.tables(limit=20),
        "lake.sql": lambda: lake.sql("SELECT count(*) FROM t").to_arrow(),
    }


def larger_calls(lake: DuckLake, dimension: str, size: int) -> Mapping[str, Callable[[], object]]:
    """Return calls that ask for what the lake has many of, by name."""
    if dimension == "tables":
        return {"list(lake)": lambda: list(lake), "lake.tables()": lake.tables}
    if dimension == "snapshots":
        return {"lake.snapshots()": lake.snapshots}
    every: dict[str, Callable[[], object]] = {"lake.tables()": lake.tables}
    if size > FEW["files"]:
        middle = (1000 + size // 2) * 1000
        every["plan one file of the large table"] = lambda: _planned(lake, f"a >= {middle} AND a < {middle + 1000}", 1)
        every["count of the large table"] = lambda: lake.table(LARGE).scan().count()
        every["table_info of the large table"] = lambda: lake.table_info(LARGE)
        every["append to the large table"] = lambda: lake.table(LARGE).append(_ROW)
        if size <= ALL_UNTIL:
            every["plan all files of the large table"] = lambda: lake.table(LARGE).scan().plan()
    return every


def _planned(lake: DuckLake, where: str, count: int) -> None:
    assert len(lake.table(LARGE).scan(where=where).plan().plan.tasks) == count


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median of the client and the mean of the server, whose clock ticks only every 10 ms, after one call that warms up."""
    call()
    times: list[float] = []
    served = server_time() - time.process_time()
    while len(times) < MIN_ROUNDS or (len(times) < MAX_ROUNDS and sum(times) < ENOUGH_SECONDS):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    served = server_time() - time.process_time() - served
    return (statistics.median(times) + served / len(times)) * 1000


def measure(backend: str, dimension: str, new_place: Callable[[], LakeAddress]) -> None:
    """Print a table of one dimension, and a line for machines for each call."""
    found: dict[str, dict[int, float]] = {}
    sizes = [size for size in SIZES[dimension] if size <= LARGEST]
    for size in sizes:
        address = new_place()
        make_large_lake(address, **{**FEW, dimension: size})
        engine = sa.create_engine(address.url)
        with engine.begin() as connection:
            connection.execute(sa.text(_BOUNDS))
            connection.execute(sa.text(_FIRST_COMMIT))
        engine.dispose()
        with DuckLake.connect(address.url) as lake:
            lake.create_indexes()
            if backend == "postgresql":
                with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.exec_driver_sql("VACUUM ANALYZE")
                engine.dispose()
            for name, call in {**flat_calls(lake), **larger_calls(lake, dimension, size)}.items():
                found.setdefault(name, {})[size] = milliseconds(call)
    table = Table(f"{backend}: {dimension}", *(f"{size:,}" for size in sizes), f"microseconds for each of the {dimension}")
    for name, times in found.items():
        first, last = min(times), max(times)
        slope = (times[last] - times[first]) * 1000 / (last - first) if last > first else 0
        table.add_row(name, *(f"{times[size]:.1f}" if size in times else "" for size in sizes), f"{slope:.3f}")
        line = {"benchmark": "slopes", "backend": backend, "call": f"{name} by {dimension}", "microseconds_each": round(slope, 4)}
        print(json.dumps({**line, **{f"ms_{size}": round(times[size], 1) for size in times}}), flush=True)
    Console(width=160).print(table)


def run(backend: str, dimension: str, folder: Path) -> None:
    """Measure one dimension on lakes of their own in a folder."""
    if backend == "sqlite":
        numbers = itertools.count()

        def new_place() -> LakeAddress:
            place = folder / str(next(numbers))
            place.mkdir()
            return sqlite_lake(place)

        measure(backend, dimension, new_place)
        return
    server = start_server()
    servers[:] = [server.handle.get_pid()]
    measure(backend, dimension, lambda: server.lake(folder))
    server.stop()
    servers.clear()


if __name__ == "__main__":
    if set(BACKENDS) - {"sqlite", "postgresql"}:
        raise SystemExit(f"BENCH_BACKENDS: {BACKENDS} names something else than sqlite and postgresql")
    for kind in BACKENDS:
        for of in SIZES:
            with tempfile.TemporaryDirectory() as name:
                run(kind, of, Path(name))
