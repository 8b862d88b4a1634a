"""DuckDB with its default retries, next to eight processes of ducklake_core that append without a pause to the same table on PostgreSQL.

Run with ``python -m benchmarks.bench_fairness``; ``BENCH_SECONDS`` is the duration in seconds (default 60). Every writer
appends one row after another. The result is how many of DuckDB's inserts fail, and how many commits it gets compared with one writer of
this library.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import start_server

WRITERS = 8
SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))


def append_core(address: LakeAddress, ready: Any, done: Any) -> None:
    """One writer with this library."""
    table = DuckLake.connect(address.url).table("t")
    row = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})

    def append() -> None:
        table.append(row)

    _write("ducklake_core", append, DuckLakeError, ready, done)


def append_duckdb(address: LakeAddress, ready: Any, done: Any) -> None:
    """One writer with DuckDB, as it comes."""
    with attached(address) as duck:
        duck.rows("SELECT count(*) FROM t")
        _write("DuckDB", lambda: duck.run("INSERT INTO t VALUES (1, 'x')"), duckdb.Error, ready, done)


def _write(name: str, append: Callable[[], None], error: type[Exception], ready: Any, done: Any) -> None:
    committed = failed = 0
    ready.wait()
    until = time.time() + SECONDS
    while time.time() < until:
        try:
            append()
            committed += 1
        except error:
            failed += 1
    done.put((name, committed, failed))


def run() -> None:
    """Measure once, and print what everybody achieved."""
    server = start_server()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        address = server.lake(Path(folder))
        lake = new_lake(address)
        lake.create_table("t", pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.string())]))
        ready, done = context.Barrier(WRITERS + 1), context.Queue()
        writers = [*[append_core] * WRITERS, append_duckdb]
        processes = [context.Process(target=writer, args=(address, ready, done)) for writer in writers]
        for process in processes:
            process.start()
        found = [done.get(timeout=SECONDS + 240) for _ in processes]
        for process in processes:
            process.join()
        rows = lake.table("t").info().row_count
        assert rows == sum(committed for _, committed, _ in found), (rows, found)
        lake.close()
    for name, committed, failed in sorted(found):
        sys.stdout.write(f"{name}: {committed / SECONDS:.1f} commits/s, {failed} of {committed + failed} failed\n")
    print(json.dumps({"benchmark": "fairness", "seconds": SECONDS, "found": found}))


if __name__ == "__main__":
    run()
