"""Schemas inside schemas (lakes of version 1.1) on Spark: named by paths in every way to read and write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ducklake_core.spark_source import register
from tests.support.ducklakepy_lake import faults, new_lake, rows_of, second_implementation, sorted_rows
from tests.support.oracle import LakeAddress


@pytest.mark.slow
def test_every_way_to_read_and_write(spark: SparkSession, sqlite_address: LakeAddress, tmp_path: Path) -> None:
    lake = new_lake(sqlite_address)
    for path in ("x", "x.y", "x.y.z", '"x.y"'):
        lake.create_schema(path)
    lake.set_option("data_inlining_row_limit", 0)
    register(spark)
    options = {"catalogUrl": sqlite_address.url}
    # Tables of one name in four schemas, two of them with the same path if dots were ignored.
    for number, path in enumerate(("x.t", "x.y.t", "x.y.z.t", '"x.y".t')):
        spark.range(number + 1).withColumn("s", sf.lit(path)).write.format("ducklake").mode("append").options(**options).save(path)
        lake.write(path, spark.range(100, 102).withColumn("s", sf.lit("more")))
    lake.write("x.y.t", spark.sql("SELECT 100L AS id, 'changed' AS s UNION ALL SELECT 7L, 'new'"), mode="upsert", on=["id"])
    lake.table("x.y.t").delete("id = 101", spark=spark)
    lake.table("x.y.t").merge(spark.range(2).withColumn("s", sf.lit("merged")), on=["id"]).when_matched_update().execute()
    wanted = [(0, "merged"), (1, "merged"), (7, "new"), (100, "changed")]
    read = spark.read.format("ducklake").options(**options)
    assert sorted(map(tuple, read.load("x.y.t").collect())) == wanted
    named = spark.read.format("ducklake").options(**options).option("table", "X.y.T")
    assert sorted(map(tuple, named.load().collect())) == wanted
    assert sorted(map(tuple, lake.table("x.y.t").to_spark(spark).collect())) == wanted
    assert sorted(sorted_rows(lake.table("x.y.t").scan().to_arrow())) == wanted
    assert [read.load(path).count() for path in ("x.t", "x.y.z.t", '"x.y".t')] == [3, 5, 6]
    assert lake.table("x.y.z.t").scan(where="s = 'more'").to_spark(spark).count() == 2
    spark.range(5).withColumn("s", sf.lit("all")).write.format("ducklake").mode("overwrite").options(**options).save("x.y.z.t")
    assert sorted(row.s for row in read.load("x.y.z.t").collect()) == ["all"] * 5
    with pytest.raises(PySparkException, match=r"x\.nowhere"):
        spark.range(1).write.format("ducklake").mode("append").options(**options).save("x.nowhere.t")
    with second_implementation(sqlite_address) as catalog:
        assert sorted(rows_of(catalog, "x.y.t")) == wanted
        assert len(rows_of(catalog, '"x.y".t')) == 6
    assert faults(lake) == []

    stream = spark.readStream.format("ducklake").options(**options).load("x.y.t")
    writer = stream.writeStream.format("ducklake").options(**options).option("checkpointLocation", str(tmp_path / "notes"))
    lake.create_table("x.y.copy", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    writer.trigger(availableNow=True).start("x.y.copy").awaitTermination()
    assert {row.id for row in read.load("x.y.copy").collect()} >= {0, 1, 7, 100}


def test_views_of_a_session_and_queries(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    for number, path in enumerate(("x.t", "x.y.t", "x.y.u", '"x.y".t')):
        lake.write(path, pa.table({"a": pa.array(range(number + 1), pa.int64())}))
    lake.create_view("x.y.v", "SELECT t.a, u.a AS b FROM t JOIN u ON t.a = u.a")
    assert lake.register(spark, schema="x.y") == {"t": None, "u": None, "v": None}
    assert [spark.table(name).count() for name in ("t", "u", "v")] == [2, 3, 2]
    assert lake.register(spark, schema='"x.y"') == {"t": None}
    assert spark.table("t").count() == 4
    assert lake.register(spark, schema="x", tables=["T"]) == {"t": None}
    assert spark.table("t").count() == 1
    assert lake.sql("SELECT max(a) AS m FROM x.y.u", spark=spark).to_spark().collect()[0].m == 2
    joined = lake.sql('SELECT count(*) AS n FROM x.y.u JOIN "x.y".t USING (a)', spark=spark)
    assert joined.to_spark().collect()[0].n == 3
    for name in ("t", "u", "v"):
        spark.catalog.dropTempView(name)
