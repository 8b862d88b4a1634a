"""Everyday calls on a lake of 10,000 tables, 500,000 snapshots and 1,000,000 files that DuckDB made (``large_lake`` has the sizes).

Run with ``python -m benchmarks.bench_large``; ``BENCH_INDEXES=1`` makes the indexes that ``lake.create_indexes()`` makes,
``BENCH_BACKENDS`` lists the databases, by commas.
Promised: 50 ms on PostgreSQL, 100 ms on SQLite, whatever the number of others.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import server_time, servers
from benchmarks.large_lake import FILES, SNAPSHOTS, TABLES, make_large_lake
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.postgres import start_server

ROUNDS = 5
INDEXES = os.environ.get("BENCH_INDEXES") == "1"
BACKENDS = os.environ.get("BENCH_BACKENDS", "sqlite,postgresql").split(",")
_ROW = pa.table({"a": [1], "b": ["x"]})


def calls(lake: DuckLake, url: str) -> Mapping[str, Callable[[], object]]:
    """Return the usual calls on a small table of the lake, by name."""
    newest = lake.snapshot().id
    when = lake.snapshot(newest // 2).time
    return {
        "lake.table": lambda: lake.table("t"),
        "lake.table of a new process": lambda: DuckLake.connect(str(lake.database.address.url.render_as_string(hide_password=False))).table(
            "t"
        ),
        "append of one row": lambda: lake.table("t").append(_ROW),
        "plan": lambda: lake.table("other7").scan(where="a = 5").plan(),
        "count": lambda: lake.table("other7").scan().count(),
        "table_info": lambda: lake.table_info("other7"),
        "table.snapshots": lambda: lake.table("other7").snapshots(),
        "last_row_change": lambda: lake.table("other7").last_row_change(),
        "changes of the last commit": lambda: lake.table("t").changes(newest).plan(),
        "table at a time": lambda: lake.table("other7", at=when),
        "row_changes": lambda: lake.table("other7").row_changes(limit=3),
        "changed_tables of ten commits": lambda: lake.changed_tables(newest - 10),
        "statistics": lambda: lake.statistics({"other7": ["a"]}),
        "scoped_options": lake.scoped_options,
        "lake.sql": lambda: lake.sql("SELECT count(*) FROM other7").to_arrow(),
        "list(lake)": lambda: list(lake),
        "find_commit": lambda: lake.find_commit("no-such-commit"),
        "list_files": lambda: lake.table("other7").list_files(),
        "lake.tables": lake.tables,
        "lake.tables(limit=100)": lambda: lake.tables(limit=100),
        "lake.snapshots(last=20)": lambda: lake.snapshots(last=20),
    }


def measure(backend: str, address: LakeAddress) -> None:
    """Median milliseconds of each call, on the clock and of the processor, and what a server took for it, on average."""
    seconds = make_large_lake(address)
    print(f"{backend}: {TABLES:,} tables, {SNAPSHOTS:,} snapshots, {FILES:,} files made in {seconds:.0f} s", flush=True)
    lake = DuckLake.connect(address.url)
    if INDEXES:
        lake.create_indexes()
    for name, call in calls(lake, address.url).items():
        times: list[tuple[float, float]] = []
        served = server_time() - time.process_time()
        for number in range(ROUNDS + 1):
            started, worked = time.perf_counter(), time.process_time()
            call()
            if number:
                times.append((time.perf_counter() - started, time.process_time() - worked))
        served = (server_time() - time.process_time() - served) * 1000 / (ROUNDS + 1)
        wall, processor = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        tell(backend, name, ms=wall, processor_ms=processor, server_ms=served)
    lake.close()
    with attached(address) as duck:
        for name, query in (("count", "SELECT count(*) FROM other7"), ("table_info", "FROM ducklake_table_info('lake')")):
            started = time.perf_counter()
            duck.rows(query)
            tell(backend, f"DuckDB, {name}", ms=(time.perf_counter() - started) * 1000)


def tell(backend: str, call: str, **milliseconds: float) -> None:
    """A line for machines."""
    found = {name: round(value, 1) for name, value in milliseconds.items()}
    print(json.dumps({"benchmark": "large lake", "backend": backend, "call": call, **found}), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for kind in BACKENDS:
            folder = Path(place) / kind
            folder.mkdir()
            if kind == "sqlite":
                measure(kind, sqlite_lake(folder))
            elif kind == "postgresql":
                server = start_server()
                servers.append(server.handle.get_pid())
                measure(kind, server.lake(folder))
                server.stop()
            else:
                raise SystemExit(f"BENCH_BACKENDS: {kind!r} is neither sqlite nor postgresql")
