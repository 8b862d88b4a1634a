"""Adding files that exist, against DuckDB's ``ducklake_add_data_files`` on the same files.

Run with ``python -m benchmarks.bench_add``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from tests.support.oracle import attached, sqlite_lake

FILES = int(os.environ.get("BENCH_FILES", "1000"))
ROWS = pa.table({f"c{number}": list(range(100)) for number in range(8)})


def run() -> list[Result]:
    """One benchmark; every round adds all files to a table of its own."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = folder / "files to add"
        files.mkdir()
        pq.write_table(ROWS, files / "0.parquet")
        for number in range(1, FILES):
            shutil.copy(files / "0.parquet", files / f"{number}.parquet")
        (folder / "duckdb").mkdir()
        (folder / "core").mkdir()
        duckdb, core = sqlite_lake(folder / "duckdb"), sqlite_lake(folder / "core")
        lake = new_lake(core)
        made = 0
        with attached(duckdb, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.connection.register("rows", ROWS)

            def prepare() -> None:
                nonlocal made
                made += 1
                lake.create_table(f"t{made}", ROWS.schema)
                duck.run(f"CREATE TABLE t{made} AS FROM rows LIMIT 0")

            result = compare(
                f"add {FILES:,} files of 8 columns",
                {
                    "core": lambda: lake.add_data_files(f"t{made}", files, allow_duplicates=True),
                    "reference": lambda: duck.run(f"CALL ducklake_add_data_files('lake', 't{made}', '{files}/*.parquet')"),
                },
                baseline="reference",
                promised_ratio=1.0,
                rounds=3,
                before_each=prepare,
            )
            duck.connection.unregister("rows")
        return [result]


if __name__ == "__main__":
    report(*run())
