"""A one-row append on PostgreSQL, one writer: ducklake_core and DuckDB's ducklake on the same server, each in a lake that DuckDB made.

Run with ``python -m benchmarks.bench_commit``. ducklake_core is called as in the README, ``lake.table("t").append(row)``. Opening
the table, and appending to one that is kept open, are measured apart. Rows are kept in the catalog, the default, or go into Parquet files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Result, compare, report, servers
from ducklake_core import DuckLake
from tests.support.oracle import attached
from tests.support.postgres import start_server

COMMITS_PER_ROUND = 50


def run() -> Result:
    """Measure ``COMMITS_PER_ROUND`` commits a round."""
    server = start_server()
    servers.append(server.handle.get_pid())
    with tempfile.TemporaryDirectory() as folder:
        core, core_files, inlined, files = (server.lake(Path(folder) / name) for name in ("core", "core_files", "inlined", "files"))
        row = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
        for place in (core, core_files):
            with attached(place) as duck:
                duck.run("CREATE TABLE t (a INT, b VARCHAR)")
        lake, file_lake = DuckLake.connect(core.url), DuckLake.connect(core_files.url)
        file_lake.set_option("data_inlining_row_limit", 0)
        kept = lake.table("t")
        with attached(inlined) as duck_inlined, attached(files, "DATA_INLINING_ROW_LIMIT 0") as duck_files:
            for duck in (duck_inlined, duck_files):
                duck.run("CREATE TABLE t (a INT, b VARCHAR)")

            def append_core() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    lake.table("t").append(row)

            def append_kept() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    kept.append(row)

            def open_table() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    lake.table("t")

            def append_our_files() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    file_lake.table("t").append(row)

            def append_inlined() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    duck_inlined.run("INSERT INTO t VALUES (1, 'x')")

            def append_files() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    duck_files.run("INSERT INTO t VALUES (1, 'x')")

            return compare(
                f"one-row append on PostgreSQL, {COMMITS_PER_ROUND} commits",
                {
                    "ducklake_core, inlined": append_core,
                    "ducklake_core, inlined, table kept open": append_kept,
                    "ducklake_core, lake.table alone": open_table,
                    "ducklake_core, Parquet file": append_our_files,
                    "DuckDB, inlined": append_inlined,
                    "DuckDB, Parquet file": append_files,
                },
                baseline="DuckDB, inlined",
                promised_ratio=0.4,
            )


if __name__ == "__main__":
    report(run())
