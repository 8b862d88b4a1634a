"""Spark on a lake of version 1.1: what its tasks write and delete is what a second implementation reads."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.support.ducklakepy_lake import faults, rows_of, second_implementation, sorted_rows
from tests.support.oracle import LakeAddress


@pytest.mark.slow
def test_spark_writes_and_deletes(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, version="1.1")
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    frame = spark.range(200).selectExpr("id AS a", "date_add(DATE'1969-12-01', CAST(id AS INT)) AS d", "concat('s', id) AS s")
    lake.write("t", frame, partition_by=["epoch_month(d)"])
    for where in ("a % 10 = 3", "a = 11"):
        lake.table("t").delete(where, spark=spark)
    wanted = [a for a in range(200) if a % 10 != 3 and a != 11]
    assert sorted(row.a for row in lake.table("t").scan().to_spark(spark).collect()) == wanted
    ours = sorted_rows(lake.table("t").scan().to_arrow())
    assert [row[0] for row in sorted(ours)] == wanted
    with second_implementation(sqlite_address) as catalog:
        assert rows_of(catalog, "main.t") == ours
    assert lake.table("t").scan(where="d = DATE '1970-01-01'").to_spark(spark).count() == 1
    assert faults(lake) == []
