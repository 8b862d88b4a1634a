"""Reading what has deletes with Spark: 1,000 data files with a delete file each, against the same files before the delete.

Run with ``python -m tests.benchmarks.bench_deletes``. ``BENCH_FILE_ROWS`` rows in a file, 60 of them deleted: the first ones, or with
``BENCH_SPREAD=1`` some all over the file. Planning is included; the Arrow way is there for information.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.bench_read import consume
from tests.benchmarks.harness import Result, compare, report
from tests.support.oracle import attached, sqlite_lake
from tests.support.scans import STORAGE, open_lake

FILES = 1000
FILE_ROWS = int(os.environ.get("BENCH_FILE_ROWS", "1000"))
DELETED = 60
STEP = FILE_ROWS // DELETED
SPREAD = os.environ.get("BENCH_SPREAD", "") == "1"
# Computed from the place in the file, so that every file loses as many rows.
CONDITION = f"i % {FILE_ROWS} % {STEP} = 7 AND i % {FILE_ROWS} < {STEP * DELETED}" if SPREAD else f"i % {FILE_ROWS} < {DELETED}"


def run() -> list[Result]:
    """Counted, and read in full; each alternating its contenders."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from ducklake_core.engines.spark.read import read_plan
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
        lake = open_lake(address)
        before, after = lake.snapshots()[-2:]
        files = [task.file for task in lake.scan("t").plan().plan.tasks]
        assert len(files) == FILES
        assert all(len(file.delete_files) == 1 for file in files)

        def arrow_way() -> None:
            plan = lake.scan("t", after).plan().plan
            tasks = tuple(replace(task, native=False) for task in plan.tasks)
            assert read_plan(replace(plan, tasks=tasks), STORAGE, session).count() == FILES * (FILE_ROWS - DELETED)

        def count(version: int, rows: int) -> None:
            assert lake.scan("t", version).to_spark(session).count() == FILES * rows

        counted = compare(
            f"count {FILES:,} files of {FILE_ROWS:,} rows, {DELETED} deleted in each",
            {
                "with deletes": lambda: count(after, FILE_ROWS - DELETED),
                "before the delete": lambda: count(before, FILE_ROWS),
                "with deletes, Arrow way": arrow_way,
            },
            baseline="before the delete",
            promised_ratio=2.0,
        )
        read = compare(
            f"read {FILES:,} files of {FILE_ROWS:,} rows, {DELETED} deleted in each",
            {
                "with deletes": lambda: consume(lake.scan("t", after).to_spark(session)),
                "before the delete": lambda: consume(lake.scan("t", before).to_spark(session)),
            },
            baseline="before the delete",
            promised_ratio=2.0,
        )
    session.stop()
    return [counted, read]


if __name__ == "__main__":
    report(*run())
