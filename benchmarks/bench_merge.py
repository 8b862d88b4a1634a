"""Merging 10,000 rows, half of them new, into 5 million rows of 8 columns with Spark: ``table.merge``, commit included, against Spark's
own join and rewrite of the same files, and DuckDB's MERGE INTO on a lake of its own.

Run with ``python -m benchmarks.bench_merge``. Keys that match are spread over the whole table, or lie next to each other.
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

from benchmarks.bench_write import COLUMNS, frame
from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SOURCE = 10_000


def source(session: SparkSession, number: int, *, spread: bool) -> DataFrame:
    """Make rows for a merge: even rows match, odd rows are new."""
    step = ROWS // SOURCE if spread else 1
    key = f"case when id % 2 = 0 then id * {step} + {number} else {ROWS} + {number} * {SOURCE} + id end as id"
    return session.range(SOURCE).selectExpr(key).selectExpr(*COLUMNS).withColumn("name", sf.lit(f"merged-{number}"))


def merging(session: SparkSession, *, spread: bool) -> Result:
    """One kind of keys."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("core", "duckdb")]
        for place in places:
            place.mkdir()
        (our_address, address) = (sqlite_lake(place) for place in places)
        lake = new_lake(our_address)
        lake.write("t", frame(session, ROWS))
        plain = [f"{folder}/plain-0"]
        frame(session, ROWS).write.parquet(plain[0])
        numbers = itertools.count()
        with attached(address) as duck:
            duck.run(f"CREATE TABLE t AS FROM '{plain[0]}/*.parquet'")

            def core() -> None:
                data = source(session, next(numbers), spread=spread)
                done = lake.table("t").merge(data, on=["id"]).when_matched_update("all").when_not_matched_insert("all").execute()
                assert (done.rows_updated, done.rows_added) == (SOURCE // 2, SOURCE // 2)

            def rewrite() -> None:
                number = next(numbers)
                left = session.read.parquet(plain[-1])
                right = source(session, number, spread=spread)
                names = [sf.coalesce(right[name], left[name]).alias(name) for name in left.columns]
                plain.append(f"{folder}/plain-{number}")
                left.join(right, left["id"] == right["id"], "full").select(*names).write.parquet(plain[-1])
                shutil.rmtree(plain[-2])

            def duckdb() -> None:
                data = source(session, next(numbers), spread=spread).toArrow()
                duck.connection.register("s", data)
                duck.run("MERGE INTO t USING s USING (id) WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT")
                duck.connection.unregister("s")

            contenders = {"table.merge on Spark": core, "join and rewrite with Spark": rewrite, "DuckDB's MERGE INTO": duckdb}
            return compare(
                f"{SOURCE:,} rows, {'spread' if spread else 'next to each other'}, into {ROWS:,}",
                contenders,
                baseline="join and rewrite with Spark",
                promised_ratio=0.5,
                rounds=ROUNDS,
            )


def run() -> list[Result]:
    """Both kinds."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    return [merging(session, spread=spread) for spread in (True, False)]


if __name__ == "__main__":
    report(*run())
