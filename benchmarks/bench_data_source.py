"""``format("ducklake")`` against the ways that know the session: ``DuckLake.write`` and ``scan().to_spark``; same frame, same files.

Run with ``python -m benchmarks.bench_data_source``.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bench_read import consume
from benchmarks.bench_write import frame
from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from ducklake_core.engines.spark.write import BYTES, UNLIMITED
from ducklake_core.spark_source import register
from tests.support.oracle import sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))


def writing(session: SparkSession, lake: DuckLake, url: str) -> Result:
    """All rows appended to new tables, commit included."""
    df, numbers = frame(session, ROWS), itertools.count()

    def source(**settings: str) -> None:
        name = f"t{next(numbers)}"
        lake.create_table(name, df)
        before = {key: str(session.conf.get(key)) for key in settings}
        for key, value in settings.items():
            session.conf.set(key, value)
        df.write.format("ducklake").mode("append").option("catalogUrl", url).save(name)
        for key, value in before.items():
            session.conf.set(key, value)
        assert lake.table(name).info().file_count == 2

    contenders = {
        'format("ducklake")': source,
        "the same, batches not weighed": lambda: source(**{BYTES: UNLIMITED}),
        "DuckLake.write": lambda: lake.write(f"t{next(numbers)}", df),
    }
    return compare(f"write {ROWS:,} rows", contenders, baseline="DuckLake.write", promised_ratio=2.5, rounds=ROUNDS)


def reading(session: SparkSession, lake: DuckLake, url: str) -> Result:
    """Every column of every row."""
    lake.write("read", frame(session, ROWS))
    contenders = {
        'format("ducklake")': lambda: consume(session.read.format("ducklake").option("catalogUrl", url).load("read")),
        "scan().to_spark": lambda: consume(lake.table("read").scan().to_spark(session)),
    }
    return compare(f"read {ROWS:,} rows", contenders, baseline="scan().to_spark", promised_ratio=3.0, rounds=ROUNDS)


def run() -> list[Result]:
    """Both, alternating."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    register(session)
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        lake = new_lake(address)
        return [writing(session, lake, address.url), reading(session, lake, address.url)]


if __name__ == "__main__":
    report(*run())
