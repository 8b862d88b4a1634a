"""A one-row append on PostgreSQL, one writer: ours against DuckDB's ducklake on the same server.

Run with ``python -m tests.benchmarks.bench_commit``. Both write into lakes of their own, once with the default, by which the row is
kept in the catalog, and once into Parquet files.
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
        ours, our_files, inlined, files = (server.lake(Path(folder) / name) for name in ("ours", "our_files", "inlined", "files"))
        row = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
        lake, file_lake = (DuckLake.create(place.url, data_path=place.data_path) for place in (ours, our_files))
        file_lake.set_option("data_inlining_row_limit", 0)
        table, file_table = (created.create_table("t", row.schema) for created in (lake, file_lake))
        with attached(inlined) as duck_inlined, attached(files, "DATA_INLINING_ROW_LIMIT 0") as duck_files:
            for duck in (duck_inlined, duck_files):
                duck.run("CREATE TABLE t (a INT, b VARCHAR)")

            def append_ours() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    table.append(row)

            def append_our_files() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    file_table.append(row)

            def append_inlined() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    duck_inlined.run("INSERT INTO t VALUES (1, 'x')")

            def append_files() -> None:
                for _ in range(COMMITS_PER_ROUND):
                    duck_files.run("INSERT INTO t VALUES (1, 'x')")

            return compare(
                f"one-row append on PostgreSQL, {COMMITS_PER_ROUND} commits",
                {
                    "ducklake_core, inlined": append_ours,
                    "ducklake_core, Parquet file": append_our_files,
                    "DuckDB, inlined": append_inlined,
                    "DuckDB, Parquet file": append_files,
                },
                baseline="DuckDB, inlined",
                promised_ratio=0.5,
            )


if __name__ == "__main__":
    report(run())
