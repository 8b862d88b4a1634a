"""Reading what has deletes with Spark: 1,000 data files with a delete file each, against the same files before the delete.

Run with ``python -m benchmarks.bench_deletes``. ``BENCH_FILE_ROWS`` rows in a file, 60 of them deleted: the first ones, or with
``BENCH_SPREAD=1`` some all over the file, with ``BENCH_SPREAD=2`` others in each file. Planning is included.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_read import consume
from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

FILES = 1000
FILE_ROWS = int(os.environ.get("BENCH_FILE_ROWS", "1000"))
DELETED = 60
STEP = FILE_ROWS // DELETED
SPREAD = os.environ.get("BENCH_SPREAD", "")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
# Computed from the place in the file, so that every file loses as many rows.
CONDITION = {
    "1": f"i % {FILE_ROWS} % {STEP} = 7 AND i % {FILE_ROWS} < {STEP * DELETED}",
    "2": f"i % {FILE_ROWS} % {STEP} = i // {FILE_ROWS} % {STEP} AND i % {FILE_ROWS} < {STEP * DELETED}",
}.get(SPREAD, f"i % {FILE_ROWS} < {DELETED}")


def run() -> list[Result]:
    """Counted, and read in full; each alternating its contenders."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.run("CREATE TABLE t (i BIGINT, part INTEGER, v VARCHAR, x DOUBLE, d DATE)", "ALTER TABLE t SET PARTITIONED BY (part)")
            duck.run(
                f"INSERT INTO t SELECT i, i // {FILE_ROWS}, 'value ' || i, i / 7, DATE '2020-01-01' + (i % 1000)::INTEGER "
                f"FROM range({FILES * FILE_ROWS}) r(i)"
            )
            duck.run(f"DELETE FROM t WHERE {CONDITION}")
        lake = DuckLake.connect(address.url)
        before, after = [snapshot.id for snapshot in lake.snapshots()][-2:]
        files = [task.file for task in lake.table("t").scan().plan().plan.tasks]
        assert len(files) == FILES
        assert all(len(file.delete_files) == 1 for file in files)

        def count(version: int, rows: int) -> None:
            assert lake.table("t", at=version).to_spark(session).count() == FILES * rows

        counted = compare(
            f"count {FILES:,} files of {FILE_ROWS:,} rows, {DELETED} deleted in each",
            {"with deletes": lambda: count(after, FILE_ROWS - DELETED), "before the delete": lambda: count(before, FILE_ROWS)},
            baseline="before the delete",
            promised_ratio=1.3,
            rounds=ROUNDS,
        )
        read = compare(
            f"read {FILES:,} files of {FILE_ROWS:,} rows, {DELETED} deleted in each",
            {
                "with deletes": lambda: consume(lake.table("t", at=after).to_spark(session)),
                "before the delete": lambda: consume(lake.table("t", at=before).to_spark(session)),
                "spark.read.parquet": lambda: consume(session.read.parquet(*(file.path for file in files))),
            },
            baseline="before the delete",
            promised_ratio=1.3,
            rounds=ROUNDS,
        )
    session.stop()
    return [counted, read]


if __name__ == "__main__":
    report(*run())
