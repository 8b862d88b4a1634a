"""Reading an encrypted lake against the same rows in a plain one, in process.

Run with ``python -m tests.benchmarks.bench_encrypted``. A full read, and one column of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.bench_read import COLUMNS
from tests.benchmarks.harness import Result, compare, report
from tests.support.oracle import attached, sqlite_lake
from tests.support.scans import OpenLake, open_lake

ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))


def made(folder: Path, options: str) -> OpenLake:
    """A lake with one table of DuckDB's."""
    folder.mkdir()
    address = sqlite_lake(folder)
    with attached(address, f"DATA_INLINING_ROW_LIMIT 0{options}") as duck:
        duck.run(f"CREATE TABLE t AS SELECT {COLUMNS} FROM range({ROWS}) r(i)")
    return open_lake(address)


def read(lake: OpenLake, columns: Sequence[str] | None) -> int:
    """Decode every batch and keep nothing."""
    return sum(batch.num_rows for batch in lake.scan("t", columns=columns).to_batches())


def run() -> list[Result]:
    """Both benchmarks, each alternating its contenders."""
    with tempfile.TemporaryDirectory() as folder:
        plain, encrypted = made(Path(folder) / "plain", ""), made(Path(folder) / "encrypted", ", ENCRYPTED")
        return [
            compare(
                f"read {name} of {ROWS:,} rows",
                {"encrypted": lambda columns=columns: read(encrypted, columns), "plain": lambda columns=columns: read(plain, columns)},
                baseline="plain",
                promised_ratio=3.0,
            )
            for name, columns in (("8 columns", None), ("one column", ["amount"]))
        ]


if __name__ == "__main__":
    report(*run())
