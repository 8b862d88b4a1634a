"""Reading and writing an encrypted lake against the same rows in a plain one, in process.

Run with ``python -m benchmarks.bench_encrypted``. A full read, one column of it, and an append of all rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

from benchmarks.bench_read import COLUMNS
from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))


def made(folder: Path, options: str) -> DuckLake:
    """A lake with one table of DuckDB's."""
    folder.mkdir()
    address = sqlite_lake(folder)
    with attached(address, f"DATA_INLINING_ROW_LIMIT 0{options}") as duck:
        duck.run(f"CREATE TABLE t AS SELECT {COLUMNS} FROM range({ROWS}) r(i)")
    return DuckLake.connect(address.url)


def read(lake: DuckLake, columns: Sequence[str] | None) -> int:
    """Decode every batch and keep nothing."""
    return sum(batch.num_rows for batch in lake.table("t").scan(columns=columns).to_batches())


def writing(folder: Path) -> Result:
    """All rows appended, again and again, to a table of each kind of lake."""
    rows = duckdb.connect().execute(f"SELECT {COLUMNS} FROM range({ROWS}) r(i)").to_arrow_table()
    lakes = {}
    for name, options in (("encrypted", "ENCRYPTED"), ("plain", "")):
        (folder / f"written {name}").mkdir()
        lakes[name] = new_lake(sqlite_lake(folder / f"written {name}"), options)
    contenders = {name: lambda lake=lake: lake.write("t", rows) for name, lake in lakes.items()}
    return compare(f"append {ROWS:,} rows", contenders, baseline="plain", promised_ratio=2.0)


def run() -> list[Result]:
    """All benchmarks, each alternating its contenders."""
    with tempfile.TemporaryDirectory() as folder:
        plain, encrypted = made(Path(folder) / "plain", ""), made(Path(folder) / "encrypted", ", ENCRYPTED")
        reading = [
            compare(
                f"read {name} of {ROWS:,} rows",
                {"encrypted": lambda columns=columns: read(encrypted, columns), "plain": lambda columns=columns: read(plain, columns)},
                baseline="plain",
                promised_ratio=3.0,
            )
            for name, columns in (("8 columns", None), ("one column", ["amount"]))
        ]
        return [*reading, writing(Path(folder))]


if __name__ == "__main__":
    report(*run())
