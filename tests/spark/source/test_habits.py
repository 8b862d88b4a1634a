"""Expectations of Spark programs on a sink: supported, or rejected with an alternative."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    StreamingQueryException,
    UnsupportedOperationException,
)
from pyspark.sql import DataFrame, SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UsageError
from ducklake_core.spark_source import register
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress

MODE = "spark.sql.sources.partitionOverwriteMode"


def rows(lake: DuckLake) -> list[Any]:
    return sorted((tuple(row.values()) for row in lake.table("t").scan().to_arrow().to_pylist()), key=repr)


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"k": [1, 1, 2], "v": ["a", "b", "c"]}), partition_by=["k"])
    return lake


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    register(spark)
    return spark.createDataFrame([(1, "new")], "k bigint, v string")


@pytest.fixture
def dynamic(spark: SparkSession) -> Any:
    spark.conf.set(MODE, "dynamic")
    yield
    spark.conf.unset(MODE)


@pytest.mark.slow
@pytest.mark.usefixtures("dynamic")
def test_sessions_of_dynamic_overwrites_lose_no_partition(lake: DuckLake, frame: DataFrame, sqlite_address: LakeAddress) -> None:
    table, before = lake.table("t"), lake.snapshot().id
    with pytest.raises(UsageError, match=rf"session sets {MODE} to dynamic.*partitions='in_data'"):
        table.overwrite(frame)
    with pytest.raises(UsageError, match=MODE), lake.transaction() as tx:
        tx.overwrite("t", frame)
    lake.write("new", frame, mode="overwrite", partition_by=["k"])
    before += 1
    write = frame.write.format("ducklake").option("catalogUrl", sqlite_address.url).mode("overwrite")
    with pytest.raises(AnalysisException, match="Set the option to 'static'"):
        write.save("t")
    assert lake.snapshot().id == before
    write.option("partitionOverwriteMode", "dynamic").save("t")
    assert rows(lake) == [(1, "new"), (2, "c")]
    table.overwrite(frame, partitions="in_data")
    table.overwrite(frame, where="k = 1")
    assert rows(lake) == [(1, "new"), (2, "c")]
    # A table without partitions is replaced as a whole, by Spark's own sources too.
    table.reset_partitioned_by()
    table.overwrite(frame)
    assert rows(lake) == [(1, "new")]


@pytest.mark.parametrize("mode", ["error", "errorifexists", "ignore"])
@pytest.mark.slow
def test_save_modes_of_which_spark_passes_on_none_are_rejected(
    lake: DuckLake, frame: DataFrame, sqlite_address: LakeAddress, mode: str
) -> None:
    with pytest.raises(AnalysisException, match=r"Append.*Overwrite"):
        frame.write.format("ducklake").option("catalogUrl", sqlite_address.url).mode(mode).save("t")
    assert lake.snapshot().id == 1


@pytest.mark.slow
def test_layouts_set_by_a_writer(lake: DuckLake, frame: DataFrame, sqlite_address: LakeAddress) -> None:
    """Spark compares partitionBy with a partitioning that no source in Python can state; lake.write knows it."""
    write = frame.write.format("ducklake").option("catalogUrl", sqlite_address.url).mode("append")
    with pytest.raises(IllegalArgumentException, match="partitioning or clustering columns do not match"):
        write.partitionBy("k").save("t")
    for option in ("maxRecordsPerFile", "compression", "replaceWhere", "mergeSchema", "overwriteSchema"):
        with pytest.raises(AnalysisException, match=f"has no option '{option.lower()}' for write"):
            frame.write.format("ducklake").option("catalogUrl", sqlite_address.url).option(option, "1").mode("append").save("t")
    assert lake.snapshot().id == 1
    lake.write("t", frame, partition_by=["K"])
    with pytest.raises(UsageError, match="is partitioned by k, not by v"):
        lake.write("t", frame, partition_by=["v"])


@pytest.mark.slow
def test_views_of_spark_read_and_append(lake: DuckLake, frame: DataFrame, sqlite_address: LakeAddress) -> None:
    spark = frame.sparkSession
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW ducklake_t USING ducklake OPTIONS (catalogUrl '{sqlite_address.url}', path 't')")
    frame.write.insertInto("ducklake_t")
    spark.sql("INSERT INTO ducklake_t VALUES (5, 'sql')")
    assert rows(lake) == [(1, "a"), (1, "b"), (1, "new"), (2, "c"), (5, "sql")]
    frame.writeTo("ducklake_t").append()
    assert len(rows(lake)) == 6
    with pytest.raises(AnalysisException, match="does not support dynamic overwrite"):
        frame.writeTo("ducklake_t").overwritePartitions()
    replace = "INSERT INTO ducklake_t REPLACE WHERE k = 1 VALUES (1, 'x')"
    for statement in ("UPDATE ducklake_t SET k = 1", "DELETE FROM ducklake_t WHERE k = 1", replace):
        with pytest.raises((AnalysisException, UnsupportedOperationException), match="does not support"):
            spark.sql(statement)
    assert spark.table("ducklake_t").count() == 3, "a view stays at the snapshot from which its columns were taken"
    spark.catalog.dropTempView("ducklake_t")


@pytest.mark.slow
def test_tables_of_spark_are_rejected_with_what_to_use(lake: DuckLake, frame: DataFrame, sqlite_address: LakeAddress) -> None:
    spark = frame.sparkSession
    with pytest.raises(AnalysisException, match="write CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE ducklake_named USING ducklake OPTIONS (catalogUrl '{sqlite_address.url}', `table` 't')")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        frame.writeTo("ducklake.t").append()
    with pytest.raises(AnalysisException, match=r"CREATE TABLE \.\.\. USING ducklake is not supported"):
        spark.sql(f"CREATE TABLE ducklake_named USING ducklake TBLPROPERTIES (catalogUrl='{sqlite_address.url}', path='t')")
    with pytest.raises(AnalysisException, match="saveAsTable, writeTo and toTable name tables of Spark's catalog"):
        frame.write.format("ducklake").option("catalogUrl", sqlite_address.url).mode("append").saveAsTable("t")
    # Spark makes such a table without asking the data source, and does not tell it about the options of the table.
    spark.sql("CREATE TABLE ducklake_named (k bigint, v string) USING ducklake")
    try:
        with pytest.raises(AnalysisException, match=r"use save\('schema\.table'\) or lake\.write"):
            frame.write.insertInto("ducklake_named")
        with pytest.raises(AnalysisException, match="write CREATE TEMPORARY VIEW"):
            spark.table("ducklake_named").collect()
    finally:
        spark.sql("DROP TABLE ducklake_named")
    with pytest.raises(AnalysisException, match="does not support bucketBy"):
        frame.write.format("ducklake").option("catalogUrl", sqlite_address.url).bucketBy(2, "k").mode("append").save("t")
    assert lake.snapshot().id == 1


@pytest.mark.slow
def test_errors_reach_the_user_as_themselves(lake: DuckLake, frame: DataFrame, sqlite_address: LakeAddress, tmp_path: Path) -> None:
    rate = frame.sparkSession.readStream.format("rate").load()
    lake.create_table("s", {"timestamp": "timestamptz", "value": "int64", "x": "int32"})
    narrow = lake.create_table("n", {"k": "int32", "v": "varchar"})

    def batch(data: DataFrame, table: str) -> None:
        data.write.format("ducklake").option("catalogUrl", sqlite_address.url).mode("append").save(table)

    def stream(table: str) -> None:
        sink = rate.writeStream.format("ducklake").option("catalogUrl", sqlite_address.url)
        sink.option("checkpointLocation", str(tmp_path / table)).trigger(once=True).start(table).awaitTermination()

    failures: list[tuple[Callable[[], None], type[Exception], str]] = [
        (lambda: batch(frame.select("k"), "t"), PySparkException, "errors.SchemaError: The data lacks column 'v' of main.t"),
        (lambda: batch(frame.selectExpr("k + 3000000000 AS k", "v"), "n"), PySparkException, "errors.SchemaError: cannot write to main.n"),
        (lambda: stream("missing"), StreamingQueryException, "errors.NotFoundError: there is no table main.missing"),
        (lambda: stream("s"), StreamingQueryException, "errors.SchemaError: The data lacks column 'x' of main.s"),
        (lambda: stream("t"), StreamingQueryException, "errors.SchemaError: the data does not fit main.t"),
    ]
    for fail, error, message in failures:
        with pytest.raises(error) as caught:
            fail()
        text = str(caught.value)
        assert message in text
        assert "PicklingError" not in text
        assert "serialize object" not in text
        assert text.count('File "') == 1
    assert narrow.scan().count() == 0


@pytest.mark.slow
def test_the_rule_of_missing_columns_holds_in_every_entrance(lake: DuckLake, frame: DataFrame) -> None:
    for way in (
        lambda: lake.write("t", frame.select("k")),
        lambda: lake.table("t").overwrite(frame.select("k"), partitions="in_data"),
        lambda: lake.table("t").upsert(frame.select("k"), on="k"),
        lambda: lake.table("t").merge(frame.select("k"), on="k").when_not_matched_insert().execute(),
    ):
        with pytest.raises(SchemaError, match=r"lacks column 'v' of main\.t"):
            way()
    lake.sql("INSERT INTO t (k) SELECT 9", spark=frame.sparkSession)
    assert [row for row in rows(lake) if row[0] == 9] == [(9, None)]
