"""Whatever a session's settings are: the same rows are read and written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.spark.session import held_settings, users_setting
from ducklake_core.spark_source import register
from tests.support.oracle import sqlite_lake
from tests.support.parameters import spread

SETTINGS = {
    "spark.sql.sources.useV1SourceList": "",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.recordLevelFilter.enabled": "true",
    "spark.sql.parquet.aggregatePushdown": "true",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "EXCEPTION",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.files.maxPartitionBytes": "1000",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownPredicates",
}


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def rows(count: int) -> pa.Table:
    moments = pa.array([number * 1_000_003 - 10**15 for number in range(count)], pa.int64())
    return pa.table(
        {
            "i": pa.array(range(count), pa.int64()),
            "name": pa.array([None if number % 7 == 0 else f"n{number % 5}" for number in range(count)]),
            "at": moments.view(pa.timestamp("us", "UTC")),
            "wall": moments.view(pa.timestamp("us")),
            "l": pa.array([[number, None] for number in range(count)], pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    """Plain files, files with deletes, and rows in the catalog."""
    address = sqlite_lake(tmp_path_factory.mktemp("settings"))
    made = DuckLake.create(address.url, data_path=address.data_path)
    made.write("t", rows(100))
    made.table("t").append(rows(50))
    made.table("t").delete("i % 10 = 3 AND i > 50")
    made.table("t").append(rows(3))
    made.create_table("copy", made.table("t").schema.to_arrow())
    return made


@pytest.mark.parametrize(("name", "value"), spread(SETTINGS.items(), 1), ids=list(SETTINGS))
def test_the_same_rows(lake: DuckLake, spark: Any, name: str, value: str) -> None:
    """One action for each: its union has files that are read as they are, files with deletes, and rows of the catalog."""
    table = lake.table("t")
    with setting(spark, name, value):
        frame = table.scan().to_spark(spark).filter("i >= 0")
        found = frame.selectExpr("i", "name", "l", "unix_micros(timestamp(at)) AS at", "CAST(wall AS STRING) AS wall").collect()
    expected = table.scan().to_arrow()
    moments = expected.column("at").cast(pa.int64()).to_pylist()
    wanted = [(row["i"], row["name"], row["l"], at) for row, at in zip(expected.to_pylist(), moments, strict=True)]
    assert sorted(((row.i, row.name_, row.l, row.at) for row in map(_Row, found)), key=str) == sorted(wanted, key=str)


class _Row:
    """A row of Spark, whose own attributes hide columns such as ``name``."""

    def __init__(self, row: Any) -> None:
        self.i, self.name_, self.l, self.at = row["i"], row["name"], row["l"], row["at"]


def test_places_of_rows_by_the_second_interface(lake: DuckLake, spark: Any) -> None:
    scan = lake.table("t").scan(columns=["i", "rowid"], where="name = 'n3'")
    with setting(spark, "spark.sql.sources.useV1SourceList", ""):
        found = [(row["i"], row["rowid"]) for row in scan.to_spark(spark).collect()]
    assert sorted(found) == sorted((row["i"], row["rowid"]) for row in scan.to_arrow().to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SETTINGS if "arrow" in name or "Zone" in name or "case" in name or "ansi" in name])
def test_the_same_rows_are_written(lake: DuckLake, spark: Any, name: str) -> None:
    table = lake.table("t")
    with setting(spark, name, SETTINGS[name]):
        lake.table("copy").overwrite(table.scan().to_spark(spark))
    assert lake.table("copy").scan().to_arrow().sort_by("i").equals(table.scan().to_arrow().sort_by("i"))


@pytest.mark.parametrize("chosen", [None, "500"])
def test_settings_are_as_the_user_left_them(lake: DuckLake, spark: Any, chosen: str | None) -> None:
    """Unset settings stay unset: an explicit default would no longer follow the session's other settings."""
    frame = spark.createDataFrame([("a", 1)] * 40, "name STRING, p INT").repartition(2)
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    names = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.sources.parallelPartitionDiscovery.threshold")
    for name in names:
        spark.conf.unset(name) if chosen is None else spark.conf.set(name, chosen)
    before = dict(spark.conf.getAll)
    try:
        lake.write("left", frame, mode="overwrite")
        with held_settings(spark, {names[1]: "1000"}):
            assert lake.table("left").to_spark(spark).count() == 40
        assert dict(spark.conf.getAll) == before
    finally:
        for name in names:
            spark.conf.unset(name)


def test_settings_held_by_several_end_with_the_last(spark: Any) -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    first, second = held_settings(spark, {name: "100"}), held_settings(spark, {name: "200"})
    with setting(spark, name, "7"):
        first.__enter__()
        second.__enter__()
        assert (spark.conf.get(name), users_setting(spark, name)) == ("200", "7")
        first.__exit__(None, None, None)
        assert spark.conf.get(name) == "200"
        second.__exit__(None, None, None)
        assert spark.conf.get(name) == "7"


def test_reading_in_a_session_leaves_the_active_one_alone(spark: Any, tmp_path: Any) -> None:
    lake = DuckLake.create(sqlite_lake(tmp_path).url, data_path=str(tmp_path / "files"))
    lake.write("t", pa.table({"a": [1, 2, 3]}))
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"a": list(range(4, 100))}))
    lake.table("t").delete("a IN (2, 50)")
    other = spark.newSession()
    spark.createDataFrame([(1,)], "a int")
    assert lake.table("t").to_spark(other).count() == 97
    assert type(spark).getActiveSession() is spark


def test_registering_makes_a_session_the_active_one(spark: Any) -> None:
    register(spark)
    other = spark.newSession()
    other.createDataFrame([(1,)], "a int")
    assert type(spark).getActiveSession() is other
    register(spark)
    assert type(spark).getActiveSession() is spark
