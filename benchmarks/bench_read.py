"""Reading with Spark: a scan against ``spark.read.parquet`` of the very same files, planning included.

Run with ``python -m benchmarks.bench_read``. A full read, a predicate that keeps one file of a hundred, and, as
information, the Arrow way over the same full read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake
from tests.support.scans import STORAGE

ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
FILES = 100
COLUMNS = """i AS id, (i % 1000)::INTEGER AS category, i / 7 AS measure, 'name-' || i % 5000 AS name, md5(i::VARCHAR) AS code,
    TIMESTAMPTZ '2013-01-01 00:00:00+00' + to_seconds(i) AS moment, DATE '2013-01-01' + (i % 365)::INTEGER AS day,
    (i % 100000)::DECIMAL(12,2) AS amount"""


def consume(frame: DataFrame) -> None:
    """Compute every column of every row and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def run() -> list[Result]:
    """Both benchmarks, each alternating its contenders."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from ducklake_core.engines.spark.read import read_plan
    from tests.support.spark import local_session

    session = local_session()
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.run(f"CREATE TABLE big AS SELECT {COLUMNS} FROM range({ROWS}) r(i)")
            duck.run(f"CREATE TABLE many AS SELECT {COLUMNS}, 0 AS part FROM range(0) r(i)", "ALTER TABLE many SET PARTITIONED BY (part)")
            duck.run(f"INSERT INTO many SELECT {COLUMNS}, i % {FILES} FROM range({ROWS}) r(i)")
        lake = DuckLake.connect(address.url)
        files = [task.file.path for task in lake.table("big").scan().plan().plan.tasks]
        one = [task.file.path for task in lake.table("many").scan(where="part = 42").plan().plan.tasks]
        assert len(one) == 1

        def arrow_way() -> None:
            plan = lake.table("big").scan().plan().plan
            tasks = tuple(replace(task, native_obstacle="with Arrow") for task in plan.tasks)
            consume(read_plan(replace(plan, tasks=tasks), STORAGE, session))

        full = compare(
            f"full read of {ROWS:,} rows, {len(files)} files",
            {
                "scan": lambda: consume(lake.table("big").scan().to_spark(session)),
                "spark.read.parquet": lambda: consume(session.read.parquet(*files)),
                "scan, Arrow way": arrow_way,
            },
            baseline="spark.read.parquet",
            promised_ratio=1.1,
        )
        pruned = compare(
            f"one file of {FILES}, by predicate",
            {
                "scan": lambda: consume(lake.table("many").scan(where="part = 42").to_spark(session)),
                "spark.read.parquet": lambda: consume(session.read.parquet(*one)),
            },
            baseline="spark.read.parquet",
            promised_ratio=1.3,
        )
    session.stop()
    return [full, pruned]


if __name__ == "__main__":
    report(*run())
