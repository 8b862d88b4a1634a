"""Everyday calls beside ducklakepy, a DuckLake in Python by others, in process on lakes in SQLite that DuckDB made.

Run with ``python -m tests.benchmarks.bench_peers``; needs ducklakepy. Processor seconds of all threads count, the least of several rounds;
a cold process is one that imports, opens the lake and reads, measured with all of that.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ducklake_core import DuckLake
from tests.benchmarks.bench_selective import processor_time
from tests.support.oracle import LakeAddress, attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))
FILES = int(os.environ.get("BENCH_FILES", "10000"))


def theirs(address: LakeAddress) -> Any:
    """The lake as ducklakepy opens it."""
    from ducklakepy import DuckLakeCatalog

    return DuckLakeCatalog("lake", url=address.url, data_path=address.data_path)


def make(address: LakeAddress) -> None:
    """A table of changed rows, and one of many files that are all the same file."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            f"CREATE TABLE t AS SELECT n AS a, n % 1000 AS k, random() AS v, 'text ' || n AS b FROM range({ROWS}) r(n)",
            "DELETE FROM t WHERE k = 7",
            "UPDATE t SET v = 0 WHERE k = 8",
            "CREATE TABLE many AS SELECT n AS a, 'x' AS b FROM range(10) r(n)",
        )
        file = duck.value("SELECT max(data_file_id) FROM __ducklake_metadata_lake.ducklake_data_file")
    numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {FILES - 1}) SELECT n FROM s) s"
    columns = {
        "data_file": "1000 + s.n, o.table_id, o.begin_snapshot, NULL, NULL, o.path, o.path_is_relative, o.file_format, o.record_count, "
        "o.file_size_bytes, o.footer_size, s.n * 10, NULL, NULL, NULL, NULL",
        "file_column_stats": "1000 + s.n, o.table_id, o.column_id, o.column_size_bytes, o.value_count, o.null_count, o.min_value, "
        "o.max_value, o.contains_nan, o.extra_stats",
    }
    engine = sa.create_engine(address.url)
    with engine.begin() as connection:
        for name, copied in columns.items():
            source = f"ducklake_{name} o, {numbers} WHERE o.data_file_id = {file}"
            connection.exec_driver_sql(f"INSERT INTO ducklake_{name} SELECT {copied} FROM {source}")
        connection.exec_driver_sql(f"UPDATE ducklake_snapshot SET next_file_id = {1000 + FILES}")
    engine.dispose()


def contenders(address: LakeAddress) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Each call as both would write it: ours, theirs."""
    lake, catalog = DuckLake.connect(address.url), theirs(address)
    return {
        "open a table, warm": (lambda: lake.table("t"), lambda: catalog.load_table("main.t")),
        "count after deletes": (lambda: lake.table("t").scan().count(), lambda: catalog.load_table("main.t").scan().count()),
        f"read {ROWS:,} changed rows": (lambda: lake.table("t").scan().to_arrow(), lambda: catalog.load_table("main.t").to_arrow()),
        f"plan {FILES:,} files, all kept": (
            lambda: lake.table("many").scan().plan(),
            lambda: list(catalog.load_table("main.many").scan().plan_files()),
        ),
    }


def cold(url: str, data_path: str, side: str) -> None:
    """In a process of its own: import, open and read; prints rows and the process's processor seconds."""
    address = LakeAddress(url, "", data_path, "sqlite")
    rows = (DuckLake.connect(url).table("t").to_arrow() if side == "ours" else theirs(address).load_table("main.t").to_arrow()).num_rows
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([rows, used.ru_utime + used.ru_stime]))


def _in_a_cold_process(address: LakeAddress, side: str) -> tuple[int, float]:
    command = [sys.executable, "-m", __spec__.name, address.url, address.data_path, side]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    return found[0][0], min(seconds for _, seconds in found)


def run() -> None:
    """A line for each call."""
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        make(address)
        for name, (our_call, their_call) in contenders(address).items():
            our_call(), their_call()
            _tell(name, processor_time(our_call, 5), processor_time(their_call, 5))
        (our_rows, ours), (their_rows, others) = (_in_a_cold_process(address, side) for side in ("ours", "theirs"))
        assert our_rows == their_rows, (our_rows, their_rows)
        _tell(f"a cold process reads {ROWS:,} changed rows", ours, others)


def _tell(name: str, ours: float, others: float) -> None:
    found = {"benchmark": "peers", "call": name, "ours": round(ours, 4), "ducklakepy": round(others, 4), "ratio": round(ours / others, 2)}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        cold(*sys.argv[1:])
    else:
        run()
