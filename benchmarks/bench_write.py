"""Writing 5 million rows of 8 mixed columns with Spark: ``DuckLake.write``, commit included,
against Spark's own Parquet writer; same frame, same session.

Run with ``python -m benchmarks.bench_write``. Both compute the same frame, so its cost is in both numbers. With
``BENCH_BINARY=1`` the column of codes is binary: such frames keep Spark's limit on the bytes of a batch.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from tests.support.oracle import sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
BINARY = os.environ.get("BENCH_BINARY", "") == "1"
COLUMNS = (
    "id",
    "cast(id % 1000 as int) as category",
    "xxhash64(id) / 9e18 as measure",
    "concat('name-', cast(id % 5000 as string)) as name",
    "substring(sha1(cast(id as string)), 1, 16) as code",
    "timestamp_micros(1600000000000000 + id * 1000000) as moment",
    "date_add(date'2013-01-01', cast(id % 365 as int)) as day",
    "cast(id % 100000 as decimal(12,2)) as amount",
)


def frame(session: SparkSession, rows: int = ROWS) -> DataFrame:
    """The rows, computed again by every action."""
    return session.range(0, rows, 1, 2).selectExpr(*COLUMNS)


def binary_frame(session: SparkSession) -> DataFrame:
    """The same rows, with codes as binary."""
    return frame(session).withColumn("code", sf.col("code").cast("binary"))


def run() -> Result:
    """Alternate the two writers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    df = binary_frame(session) if BINARY else frame(session)
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        lake = new_lake(sqlite_lake(Path(folder)))

        def core() -> None:
            written = lake.write(f"t{next(numbers)}", df)
            assert written.rows_added == ROWS
            shutil.rmtree(f"{folder}/files")

        def sparks() -> None:
            directory = f"{folder}/spark-{next(numbers)}"
            df.write.parquet(directory)
            shutil.rmtree(Path(directory))

        result = compare(
            f"{ROWS:,} rows x {len(COLUMNS)} columns{', one of them binary' if BINARY else ''}, 2 cores",
            {"DuckLake.write": core, "df.write.parquet": sparks},
            baseline="df.write.parquet",
            promised_ratio=1.2,
            rounds=ROUNDS,
            warm_up=2,
        )
    session.stop()
    return result


if __name__ == "__main__":
    report(run())
