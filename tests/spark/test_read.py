"""Scans as Spark DataFrames: the same rows as DuckDB's, on the native and on the Arrow path, with any session settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ducklake_core.engines.spark.native_read import LISTING_CONF
from ducklake_core.engines.spark.read import read_plan
from ducklake_core.errors import NotFoundError
from tests.behaviour.scan.test_read_oracle import ALL_TYPES, EXTREMES, FIRST, INLINED, NULLS, SCENARIOS
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread
from tests.support.scans import STORAGE, OpenLake, assert_same_rows, open_lake

IN_MICROSECONDS = [row.replace("59.999999999'", "59.999999'").replace("00.000000001'", "00.000001'") for row in (FIRST, EXTREMES)]


def rows_of(frame: DataFrame) -> pa.Table:
    return frame.toArrow()


def check_spark(duck: Oracle, lake: OpenLake, spark: SparkSession, version: int) -> None:
    source = f"t AT (VERSION => {version})"
    found = rows_of(lake.scan("t", version).to_spark(spark))
    assert_same_rows(duck, found, f"SELECT * FROM {source}")
    first = found.column_names[0]
    virtual = rows_of(lake.scan("t", version, columns=["rowid", "snapshot_id", first]).to_spark(spark))
    assert_same_rows(duck, virtual, f'SELECT rowid, snapshot_id, "{first}" FROM {source}')


@pytest.mark.parametrize("name", spread(["deletes", "evolution", "merge", "rewrite after evolution", "one transaction"], 1))
def test_files_at_every_other_snapshot(sqlite_address: LakeAddress, spark: SparkSession, name: str) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*SCENARIOS[name])
    with attached(sqlite_address) as duck:
        lake = open_lake(sqlite_address)
        born = duck.value("SELECT min(begin_snapshot) FROM __ducklake_metadata_lake.ducklake_table WHERE table_name = 't'")
        versions = [version for version in lake.snapshots() if version >= born][::-2]
        assert versions
        for version in versions:
            check_spark(duck, lake, spark, version)


@pytest.mark.slow
def test_inlined_rows_at_every_third_snapshot(lake_address: LakeAddress, spark: SparkSession) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run(*INLINED["small inserts"])
    with attached(lake_address) as duck:
        lake = open_lake(lake_address)
        for version in lake.snapshots()[:1:-3]:
            check_spark(duck, lake, spark, version)


@pytest.mark.usefixtures("nearest_types")
@pytest.mark.parametrize("limit", [0, 10])
def test_every_type(sqlite_address: LakeAddress, spark: SparkSession, limit: int) -> None:
    with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {limit}") as duck:
        duck.run(f"CREATE TABLE t ({ALL_TYPES})", f"INSERT INTO t VALUES {', '.join(IN_MICROSECONDS)}, {NULLS}")
    with attached(sqlite_address) as duck:
        found = rows_of(open_lake(sqlite_address).scan("t").to_spark(spark))
        assert_same_rows(duck, found, "SELECT * FROM t")


@pytest.mark.usefixtures("nearest_types")
def test_nanoseconds_raise_and_are_not_cut(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT TIMESTAMP_NS '2020-01-01 00:00:00.000000001' AS moment")
    frame = open_lake(sqlite_address).scan("t").to_spark(spark)
    with pytest.raises(PySparkException, match="moment"):
        frame.collect()


NATIVE_TYPES = """b BOOLEAN, i8 INT1, i16 SMALLINT, i32 INTEGER, i64 BIGINT, f FLOAT, d DOUBLE, n9 DECIMAL(9,2), n18 DECIMAL(18,2),
    n38 DECIMAL(38,5), day DATE, ts TIMESTAMP, tss TIMESTAMP_S, tz TIMESTAMPTZ, v VARCHAR, j JSON, bl BLOB, l INTEGER[],
    m MAP(VARCHAR, INTEGER), s STRUCT(x INTEGER, y VARCHAR[]), deep STRUCT(k MAP(VARCHAR, STRUCT(q INTEGER)[]))[]"""


@pytest.fixture
def native_lake(sqlite_address: LakeAddress) -> LakeAddress:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t ({NATIVE_TYPES})")
        duck.run("""INSERT INTO t VALUES (true, 1, 2, 3, 4, 1.5, 2.5, 1.25, 1.25, 1.25, '1500-02-28', '0044-03-15 (BC) 01:02:03.5',
            '1969-12-31 23:59:59', '2020-07-01 00:00:00+02', 'x', '{"a": 1}', '\\xAA'::BLOB, [1, NULL], MAP {'k': 1},
            {'x': 1, 'y': ['q', NULL]}, [{'k': MAP {'a': [{'q': 1}, NULL]}}, NULL])""")
        duck.run(f"INSERT INTO t VALUES ({', '.join(['NULL'] * 21)})", "ALTER TABLE t RENAME COLUMN v TO renamed")
        duck.run("ALTER TABLE t ADD COLUMN later INTEGER")
    return sqlite_address


def test_native_files_are_read_natively(native_lake: LakeAddress, spark: SparkSession) -> None:
    lake = open_lake(native_lake)
    plan = lake.scan("t").plan().plan
    assert [task.native_obstacle for task in plan.tasks] == [None, None]
    with attached(native_lake) as duck:
        assert_same_rows(duck, rows_of(lake.scan("t").to_spark(spark)), "SELECT * FROM t")


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_session_time_zone_changes_no_instant(native_lake: LakeAddress, spark: SparkSession, zone: str) -> None:
    lake = open_lake(native_lake)
    queries = ("unix_micros(tz)", "cast(ts as string)", "cast(day as string)")
    everything = {}
    for session_zone in ("UTC", zone):
        spark.conf.set("spark.sql.session.timeZone", session_zone)
        try:
            both = [lake.scan("t").to_spark(spark), lake.scan("t", columns=["tz", "ts", "day", "rowid"]).to_spark(spark)]
            everything[session_zone] = [sorted(map(str, frame.selectExpr(*queries).collect())) for frame in both]
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert everything[zone] == everything["UTC"]
    assert everything["UTC"][0] == everything["UTC"][1]


@pytest.fixture
def mixed_lake(lake_address: LakeAddress) -> LakeAddress:
    """Native files, files with deletes, and inlined rows in one table."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, g VARCHAR, x DOUBLE)",
            "INSERT INTO t SELECT i, 'g' || i % 5, i / 3 FROM range(200) r(i)",
            "INSERT INTO t SELECT i, 'g' || i % 5, 'nan' FROM range(200, 400) r(i)",
            "INSERT INTO t SELECT i, NULL, NULL FROM range(400, 600) r(i)",
            "DELETE FROM t WHERE a % 3 = 0 AND a < 200",
            "INSERT INTO t VALUES (1000, 'g1', 1), (1001, NULL, 'nan')",
            "DELETE FROM t WHERE a IN (450, 451)",
        )
    return lake_address


CONDITIONS = [
    "a < 10", "a >= 150 AND g = 'g1'", "g IS NULL", "x > 60", "NOT (x > 60)", "g IN ('g1', 'g2') OR a > 990", "a % 7 = 0",
    "upper(g) = 'G1' AND a BETWEEN 100 AND 300", "g LIKE 'g%' AND x <> 'nan'", "a >= 400",
]  # fmt: skip


@pytest.mark.parametrize("condition", spread(CONDITIONS, 2))
def test_predicates_keep_the_rows_that_duckdb_keeps(mixed_lake: LakeAddress, spark: SparkSession, condition: str) -> None:
    scan = open_lake(mixed_lake).scan("t", where=condition)
    narrow = open_lake(mixed_lake).scan("t", where=condition, columns=["rowid", "a"])
    with attached(mixed_lake) as duck:
        assert_same_rows(duck, rows_of(scan.to_spark(spark)), f"SELECT * FROM t WHERE {condition}")
        assert_same_rows(duck, rows_of(narrow.to_spark(spark)), f"SELECT rowid, a FROM t WHERE {condition}")
        assert_same_rows(duck, scan.to_arrow(), f"SELECT * FROM t WHERE {condition}")


def test_table_without_rows_has_its_columns(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INTEGER, s STRUCT(x VARCHAR))")
    frame = open_lake(sqlite_address).scan("t").to_spark(spark)
    assert frame.columns == ["a", "s"]
    assert frame.count() == 0


def test_many_small_files_are_listed_by_the_driver(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (a BIGINT, p INTEGER)", "ALTER TABLE t SET PARTITIONED BY (p)")
        duck.run("INSERT INTO t SELECT i, i % 80 FROM range(800) r(i)")
        lake = open_lake(sqlite_address)
        planned = lake.scan("t").plan()
        assert "Spark:    80 files" in str(planned)
        before = spark.conf.get(LISTING_CONF)
        assert_same_rows(duck, rows_of(lake.scan("t").to_spark(spark)), "SELECT * FROM t")
        assert spark.conf.get(LISTING_CONF) == before


def test_lost_file_is_an_error_on_both_ways(native_lake: LakeAddress, spark: SparkSession, tmp_path: Path) -> None:
    lake = open_lake(native_lake)
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(NotFoundError, match="does not exist"):
        lake.scan("t").to_spark(spark)
    plan = lake.scan("t").plan().plan
    plan = replace(plan, tasks=tuple(replace(task, native_obstacle="with Arrow") for task in plan.tasks))
    with pytest.raises(PySparkException, match="there is no file"):
        read_plan(plan, STORAGE, spark).collect()
