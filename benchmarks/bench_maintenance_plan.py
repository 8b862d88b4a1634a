"""Planning every maintenance operation for a lake of many tables, each with ten files, on SQLite.

Run with ``python -m benchmarks.bench_maintenance_plan``; ``BENCH_TABLES`` is the number of tables. No file is opened, so that the
rows of the catalog are enough.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import compare, report
from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from tests.support.oracle import sqlite_lake

TABLES = int(os.environ.get("BENCH_TABLES", "1000"))
FILES = 10
_PER_TRANSACTION = 250
_ROWS = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})


def build(folder: Path) -> DuckLake:
    """A lake whose tables have one file on disk each, and the rows of ten in the catalog."""
    address = sqlite_lake(folder)
    lake = new_lake(address)
    for first in range(0, TABLES, _PER_TRANSACTION):
        with lake.transaction() as tx:
            for number in range(first, min(first + _PER_TRANSACTION, TABLES)):
                tx.write(f"t{number}", _ROWS, inline=False)
    with lake.database.write() as connection:
        columns = [column.name for column in lake.database.tables["data_file"].c]
        for number in range(1, FILES):
            values = ", ".join(
                {
                    "data_file_id": f"data_file_id + {number * TABLES}",
                    "path": f"'copy{number}-' || path",
                    "row_id_start": f"row_id_start + {number * 2}",
                }.get(name, name)
                for name in columns
            )
            source = f"ducklake_data_file WHERE data_file_id < {TABLES}"
            connection.exec_driver_sql(f"INSERT INTO ducklake_data_file ({', '.join(columns)}) SELECT {values} FROM {source}")
    return lake


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        lake = build(Path(place))
        assert lake.merge_adjacent_files(dry_run=True).files_merged == TABLES * FILES
        contenders = {
            "merge_adjacent_files": lambda: lake.merge_adjacent_files(dry_run=True),
            "rewrite_data_files": lambda: lake.rewrite_data_files(dry_run=True),
            "flush_inlined_data": lambda: lake.flush_inlined_data(dry_run=True),
            "checkpoint (all operations)": lambda: lake.checkpoint(dry_run=True),
            "lake.tables()": lake.tables,
        }
        title = f"plans for {TABLES} tables of {FILES} files"
        report(compare(title, contenders, baseline="lake.tables()", promised_ratio=20, rounds=3))
        lake.close()
