"""A one-row append on PostgreSQL, one writer: ours against DuckDB's ducklake on the same server.

Run with ``python -m tests.benchmarks.bench_commit``. Both write into their own lake; DuckDB once with its default
(the row is inlined into the catalog) and once with a Parquet file like ours.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from ducklake_core import DuckLake
from tests.benchmarks.harness import Result, compare, report
from tests.support.oracle import attached
from tests.support.postgres import start_server

COMMITS_PER_ROUND = 50


def run() -> Result:
    """Measure ``COMMITS_PER_ROUND`` commits a round."""
    server = start_server()
    with tempfile.TemporaryDirectory() as folder:
        ours, inlined, files = (server.lake(Path(folder) / name) for name in ("ours", "inlined", "files"))
        lake = DuckLake.create(ours.url, data_path=ours.data_path)
        row = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
        lake.create_table("t", row.schema)
        table = lake.table("t")
        with attached(inlined) as duck_inlined, attached(files, "DATA_INLINING_ROW_LIMIT 0") as duck_files:
            for duck in (duck_inlined, duck_files):
                duck.run("CREATE TABLE t (a INT, b VARCHAR)")

            def append_ours() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    table.append(row)

            def append_inlined() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    duck_inlined.run("INSERT INTO t VALUES (1, 'x')")

            def append_files() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    duck_files.run("INSERT INTO t VALUES (1, 'x')")

            return compare(
                f"one-row append on PostgreSQL, {COMMITS_PER_ROUND} commits",
                {"ducklake_core, Parquet file": append_ours, "DuckDB, inlined": append_inlined, "DuckDB, Parquet file": append_files},
                baseline="DuckDB, inlined",
                promised_ratio=1.0,
            )


if __name__ == "__main__":
    report(run())
