"""Writes of Spark DataFrames: the session writes the files, DuckDB reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop).selectExpr("id AS k", "date_add(DATE '2013-01-01', int(id % 40)) AS day", "concat('v', id) AS s")


def test_every_mode(spark: SparkSession, small: DuckLake, sqlite_address: LakeAddress) -> None:
    first = small.write("t", frame(spark, 0, 400), partition_by=["month(day)"])
    assert (first.rows_added, first.created_table) == (400, True)
    with attached(sqlite_address) as duck:
        slice_of_day = "day = DATE '2013-01-03'"
        done = small.table("t").overwrite(frame(spark, 1000, 1040).where(slice_of_day), where=slice_of_day)
        assert (done.rows_added, done.rows_deleted) == (1, 10)
        keys = frame(spark, 0, 5).selectExpr("k", "day", "'new' AS s").union(frame(spark, 5000, 5001))
        done = small.table("t").upsert(keys, on=["k"])
        # Key 2 went with the slice, so four of the five are replaced.
        assert (done.rows_added, done.rows_deleted) == (6, 4)
        assert duck.rows("SELECT count(*), count(DISTINCT k), sum((s = 'new')::INT) FROM t") == [(393, 393, 5)]
        wider = frame(spark, 9000, 9002).selectExpr("*", "array(k, k + 1) AS more")
        assert small.write("t", wider, schema_evolution="additive").schema_changes
        assert duck.rows("SELECT more FROM t WHERE k = 9001") == [([9001, 9002],)]
        done = small.table("t").overwrite(wider.where("false"))
        assert done.rows_deleted == 395
        assert duck.value("SELECT count(*) FROM t") == 0


def test_rejected_writes_leave_no_files(spark: SparkSession, small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", frame(spark, 0, 10))
    before = set(Path(sqlite_address.data_path).rglob("*.parquet"))
    with pytest.raises(UsageError, match="condition of the overwrite"):
        small.table("t").overwrite(frame(spark, 0, 10), where="k = 3")
    with pytest.raises(UsageError, match="more than once"):
        small.table("t").upsert(frame(spark, 0, 3).union(frame(spark, 0, 3)), on=["k"])
    with pytest.raises(SchemaError, match="additive"):
        small.table("t").append(frame(spark, 0, 3).selectExpr("*", "1 AS extra"))
    assert set(Path(sqlite_address.data_path).rglob("*.parquet")) == before
    assert small.snapshot().id == 1
