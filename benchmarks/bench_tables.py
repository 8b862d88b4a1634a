"""A one-row append to one table of a lake of many, against the same in a lake of one table, on SQLite and PostgreSQL.

Run with ``python -m benchmarks.bench_tables``; ``BENCH_TABLES`` is the number of tables. Each of them holds a row in the catalog, so
that the database has a table for each of them too. DuckDB appends to its own lake of as many tables, attached all the time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.postgres import start_server

TABLES = int(os.environ.get("BENCH_TABLES", "4000"))
APPENDS_PER_ROUND = 20
_PER_TRANSACTION = 500
_ROW = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})


def build(address: LakeAddress, tables: int) -> DuckLake:
    """A lake of so many tables besides ``t`` and ``f``, whose rows go to the catalog and to files."""
    lake = new_lake(address)
    lake.write("t", _ROW)
    lake.create_table("f", _ROW.schema)
    lake.set_option("data_inlining_row_limit", 0, table="f")
    for first in range(0, tables, _PER_TRANSACTION):
        with lake.transaction() as tx:
            for number in range(first, min(first + _PER_TRANSACTION, tables)):
                tx.create_table(f"other{number}", _ROW.schema)
                tx.append(f"other{number}", _ROW)
    return lake


def appending(lake: DuckLake, name: str) -> Callable[[], None]:
    table = lake.table(name)

    def run() -> None:
        for _ in range(APPENDS_PER_ROUND):
            table.append(_ROW)

    return run


def measure(backend: str, new_place: Callable[[Path], LakeAddress]) -> list[Result]:
    """Appends that the catalog keeps, and those into files."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        few, many = (new_place(Path(folder) / name) for name in ("few", "many"))
        lakes = [build(few, 0)]
        started = time.perf_counter()
        lakes.append(build(many, TABLES))
        print(f"{backend}: {TABLES} tables made in {time.perf_counter() - started:.1f} s", flush=True)
        found = []
        for name, kind in (("t", "row kept in the catalog"), ("f", "into a Parquet file")):
            contenders = {f"lake of {TABLES} tables": appending(lakes[1], name), "lake of one table": appending(lakes[0], name)}
            title = f"{APPENDS_PER_ROUND} one-row appends on {backend}, {kind}"
            found.append(compare(title, contenders, baseline="lake of one table", promised_ratio=2.0))
        for lake in lakes:
            stack.callback(lake.close)
        duck = stack.enter_context(attached(many))

        def append_duck() -> None:
            for _ in range(APPENDS_PER_ROUND):
                duck.run("INSERT INTO t VALUES (1, 'x')")

        contenders = {"ducklake_core": appending(lakes[1], "t"), "DuckDB": append_duck}
        title = f"the same compared with DuckDB, {TABLES} tables on {backend}"
        found.append(compare(title, contenders, baseline="DuckDB", promised_ratio=0.5, rounds=3))
        return found


def _sqlite(folder: Path) -> LakeAddress:
    folder.mkdir()
    return sqlite_lake(folder)


if __name__ == "__main__":
    report(*measure("SQLite", _sqlite), *measure("PostgreSQL", start_server().lake))
