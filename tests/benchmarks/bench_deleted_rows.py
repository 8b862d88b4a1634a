"""Deleting 0.1 % of 5 million rows on Spark's executors, and reading a table after an upsert and a delete.

Run with ``python -m tests.benchmarks.bench_deleted_rows``. The delete is beside Spark's own rewrite of the same rows as Parquet, the
read beside ``spark.read.parquet`` of a table of the same rows to which nothing was done. Iceberg's jar comes with no Python package.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.benchmarks.bench_merge import source
from tests.benchmarks.bench_read import consume
from tests.benchmarks.bench_write import frame
from tests.benchmarks.harness import Result, compare, report
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


def measured(session: SparkSession, folder: str) -> list[Result]:
    """The delete, and then the read of what a delete and an upsert of 10,000 rows have left."""
    address, plain = sqlite_lake(Path(folder)), [f"{folder}/plain-0"]
    frame(session, ROWS).write.parquet(plain[0])
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t AS FROM '{plain[0]}/*.parquet'", "CREATE TABLE u AS FROM t")
    lake, values, numbers = DuckLake.connect(address.url), itertools.count(), itertools.count()

    def delete() -> None:
        assert lake.table("t").delete(f"category = {next(values)}", spark=session).rows_deleted == ROWS // 1000

    def rewrite() -> None:
        number = next(numbers)
        plain.append(f"{folder}/plain-{number + 1}")
        session.read.parquet(plain[-2]).where(f"category <> {number}").write.parquet(plain[-1])
        shutil.rmtree(plain[-2])

    title = f"delete 0.1 % of {ROWS:,} rows on Spark"
    deleted = compare(
        title, {"table.delete": delete, "Spark's rewrite": rewrite}, baseline="Spark's rewrite", promised_ratio=0.5, rounds=ROUNDS
    )
    lake.table("u").upsert(source(session, 0, spread=True), on=["id"])
    lake.table("u").delete("category = 7", spark=session)
    changed = lake.table("u")
    files = [task.file.path for task in lake.table("u", at=2).scan().plan().plan.tasks]
    read = compare(
        f"read {ROWS:,} rows after an upsert of 10,000 and a delete of 0.1 %",
        {
            "changed table": lambda: consume(changed.to_spark(session)),
            "spark.read.parquet": lambda: consume(session.read.parquet(*files)),
        },
        baseline="spark.read.parquet",
        promised_ratio=1.3,
        rounds=ROUNDS,
    )
    return [deleted, read]


def run() -> list[Result]:
    """Both in one session."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    with tempfile.TemporaryDirectory() as folder:
        results = measured(session, folder)
    session.stop()
    return results


if __name__ == "__main__":
    report(*run())
