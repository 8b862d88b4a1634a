"""Few of two million rows in one file, and all of them, in process, compared with DuckDB, on a lake that DuckDB made.

Run with ``python -m benchmarks.bench_selective``. The same rows are in a file that we wrote and in one that DuckDB wrote; each call
opens the table, as the README shows it. Processor seconds are printed next to elapsed seconds, which other work on the machine changes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
CONDITIONS = {
    "1,000 rows side by side": f"id >= {ROWS // 2} AND id < {ROWS // 2 + 1000}",
    "one row by an unsorted text": "note = 'note 500 text'",
    "1,000 rows spread over all": "k = 7 AND v < 0.5",
    "all rows": "true",
}


def made_rows() -> pa.Table:
    """Numbers, strings and times, some with few distinct values."""
    random = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "k": random.integers(0, 1000, ROWS),
            "v": random.random(ROWS),
            "few": random.integers(0, 20_000, ROWS) / 100,
            "name": pa.array([f"name{n % 5000}" for n in range(ROWS)]),
            "note": pa.array([f"note {n * 7919 % ROWS} text" for n in range(ROWS)]),
            "day": pa.array(random.integers(0, 10**9, ROWS) * 1_000_000, pa.timestamp("us")),
            "flag": random.integers(0, 2, ROWS).astype(bool),
        }
    )


def processor_time(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of all threads of this process that one call takes; the least of several."""
    found = []
    for _ in range(rounds):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return min(found)


def run() -> list[Result]:
    """Every condition on both files, and writing them."""
    results: list[Result] = []
    rows = made_rows()
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.connection.register("made", rows)
            duck.run("CREATE TABLE core AS FROM made LIMIT 0", "CREATE TABLE duckdb AS FROM made")
            lake = DuckLake.connect(address.url)
            lake.table("core").append(rows)
            for name, where in CONDITIONS.items():
                for table, writer in (("core", "file of ducklake_core"), ("duckdb", "file of DuckDB")):
                    # The default arguments hold this turn's names.
                    def read(table: str = table, where: str = where) -> object:
                        return lake.table(table).scan(where=where).to_arrow()

                    def query(table: str = table, where: str = where) -> object:
                        return duck.arrow(f"SELECT * FROM {table} WHERE {where}")

                    print(
                        f"{name}, {writer}: processor time {processor_time(read):.4f} s, DuckDB {processor_time(query):.4f} s", flush=True
                    )
                    title = f"{name} of {ROWS:,}, {writer}"
                    results.append(
                        compare(title, {"ducklake_core": read, "DuckDB": query}, baseline="DuckDB", promised_ratio=2.0, rounds=ROUNDS)
                    )

            def write() -> object:
                return lake.table("core").append(rows)

            def insert() -> object:
                return duck.run("INSERT INTO duckdb FROM made")

            print(f"write: processor time {processor_time(write, 3):.4f} s, DuckDB {processor_time(insert, 3):.4f} s", flush=True)
            results.append(
                compare(f"write {ROWS:,} rows", {"ducklake_core": write, "DuckDB": insert}, baseline="DuckDB", promised_ratio=1.0, rounds=3)
            )
    return results


if __name__ == "__main__":
    report(*run())
