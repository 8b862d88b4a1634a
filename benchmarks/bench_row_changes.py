"""An upsert of 10,000 rows, half of them new, into 2,000,000, a delete of 0.1 % of them, and an upsert of ten rows of one day into a
table of 500 days and files, in process, compared with DuckDB.

Run with ``python -m benchmarks.bench_row_changes``. Each side has a table of its own in one lake that DuckDB made. Processor
seconds of all threads, the least of several rounds, are printed before the table of seconds on the clock.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import bench_selective
from benchmarks.bench_selective import ROWS, processor_time
from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

CHANGED = int(os.environ.get("BENCH_CHANGED", "10000"))
DAYS = int(os.environ.get("BENCH_DAYS", "500"))
ROUNDS = 3


def run() -> list[Result]:
    """Both changes on fresh keys in each round."""
    rows, rounds, values = bench_selective.made_rows(), itertools.count(1), itertools.count(1)

    def source() -> pa.Table:
        number = next(rounds)
        old = np.random.default_rng(number).choice(ROWS, CHANGED // 2, replace=False)
        new = np.arange(CHANGED // 2) + ROWS + number * CHANGED
        return rows.slice(0, CHANGED).set_column(0, "id", pa.array(np.concatenate([old, new])))

    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.connection.register("made", rows)
            duck.run("CREATE TABLE core AS FROM made", "CREATE TABLE duckdb AS FROM made")
            lake = DuckLake.connect(address.url)

            def upsert() -> None:
                lake.table("core").upsert(source(), on=["id"])

            def merge() -> None:
                duck.connection.register("source", source())
                duck.run("MERGE INTO duckdb t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

            def delete() -> None:
                lake.table("core").delete(f"k = {next(values)}")

            def delete_duckdb() -> None:
                duck.run(f"DELETE FROM duckdb WHERE k = {next(values)}")

            days = pa.schema({"day": pa.int32(), "id": pa.int64(), "value": pa.float64()})
            for name in ("core_days", "duckdb_days"):
                lake.create_table(name, days)
                with lake.transaction() as tx:
                    for day in range(DAYS):
                        tx.append(name, _day(day, range(1000)).cast(days), inline=False)
            counts = itertools.count(1)

            def ten_rows() -> pa.Table:
                first = next(counts)
                return _day(DAYS // 2, range(first, first + 10))

            def upsert_day() -> None:
                lake.table("core_days").upsert(ten_rows(), on=["day", "id"])

            def merge_day() -> None:
                duck.connection.register("source", ten_rows())
                duck.run(
                    "MERGE INTO duckdb_days t USING source s ON t.day = s.day AND t.id = s.id "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )

            results = []
            for name, core, duckdb in (
                (f"upsert of {CHANGED:,} rows into {ROWS:,}", upsert, merge),
                (f"delete of 0.1 % of {ROWS:,}", delete, delete_duckdb),
                (f"upsert of 10 rows of one day into {DAYS} files", upsert_day, merge_day),
            ):
                print(f"{name}: processor time {processor_time(core, 4):.4f} s, DuckDB {processor_time(duckdb, 4):.4f} s", flush=True)
                results.append(
                    compare(name, {"ducklake_core": core, "DuckDB": duckdb}, baseline="DuckDB", promised_ratio=1.3, rounds=ROUNDS)
                )
            return results


def _day(day: int, ids: range) -> pa.Table:
    numbers = np.array(ids, dtype=np.int64)
    return pa.table({"day": np.full(len(numbers), day, dtype=np.int32), "id": numbers, "value": numbers.astype(np.float64)})


if __name__ == "__main__":
    report(*run())
