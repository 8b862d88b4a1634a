"""Filters that users put on a scan's frame: Spark pushes them into its Parquet reader, which must not lose rows by them."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.scans import open_lake


def check(duck: Oracle, address: LakeAddress, spark: SparkSession, wanted: dict[str, list[str]]) -> None:
    """Every condition keeps the oracle's rows, whether it comes with the scan or afterwards; one Spark job for all of them."""
    lake = open_lake(address)
    frames = []
    for table, conditions in wanted.items():
        assert all(task.native for task in lake.scan(table).plan().plan.tasks)
        later = lake.scan(table).to_spark(spark)
        for number, condition in enumerate(conditions):
            for way, frame in (("scan", lake.scan(table, where=condition).to_spark(spark)), ("later", later.filter(condition))):
                frames.append(frame.selectExpr(f"'{table}' as name", f"{number} as number", f"'{way}' as way"))
    counted = reduce(lambda left, right: left.unionAll(right), frames).groupBy("name", "number", "way").count().collect()
    rows = {(row["name"], row["number"], row["way"]): row["count"] for row in counted}
    for table, conditions in wanted.items():
        # DuckDB, too, leaves row groups out by bounds without NaN; of rows that it has read, it does not.
        duck.run(f"CREATE OR REPLACE TEMP TABLE held AS SELECT * FROM {table}")
        for number, condition in enumerate(conditions):
            expected = duck.value(f"SELECT count(*) FROM held WHERE {condition}")
            assert [rows.get((table, number, way), 0) for way in ("scan", "later")] == [expected] * 2, (table, condition)


SWAPPED = ("a TO c", "b TO a", "c TO b")


@pytest.mark.slow
def test_columns_that_files_know_by_other_names(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE TABLE swapped (a INTEGER, b INTEGER)",
            "INSERT INTO swapped SELECT i, 1000 + i FROM range(20) r(i)",
            *(f"ALTER TABLE swapped RENAME {change}" for change in SWAPPED),
            "INSERT INTO swapped VALUES (7, 8)",
            "CREATE TABLE nested (s STRUCT(a INTEGER, b INTEGER))",
            "INSERT INTO nested SELECT {'a': i, 'b': 1000 + i} FROM range(20) r(i)",
            *(f"ALTER TABLE nested RENAME s.{change}" for change in SWAPPED),
            "CREATE TABLE replaced (a INTEGER, b VARCHAR)",
            "INSERT INTO replaced SELECT i, 'b' || i FROM range(20) r(i)",
            "ALTER TABLE replaced DROP a",
            "ALTER TABLE replaced ADD a INTEGER",
            "INSERT INTO replaced VALUES ('q', 5)",
            "CREATE TABLE letters (a INTEGER, b VARCHAR)",
            "INSERT INTO letters SELECT i, 'b' || i FROM range(20) r(i)",
            'ALTER TABLE letters RENAME a TO "B2"',
            'ALTER TABLE letters RENAME b TO "A"',
            # Files that are written again keep the names of their time.
            "CREATE TABLE again (a INTEGER, b INTEGER)",
            "INSERT INTO again SELECT i, 1000 + i FROM range(20) r(i)",
            "INSERT INTO again SELECT i, 1000 + i FROM range(20, 40) r(i)",
            "CALL ducklake_merge_adjacent_files('lake', 'again')",
            "DELETE FROM again WHERE a < 5",
            *(f"ALTER TABLE again RENAME {change}" for change in SWAPPED),
            "CALL ducklake_rewrite_data_files('lake', 'again', delete_threshold => 0)",
        )
        wanted = {
            "swapped": ["a > 500", "b < 500", "a < 500", "a = 7", "b = 8"],
            "nested": ["s.a > 500", "s.b < 5", "s.b IN (3, 4)"],
            "replaced": ["a IS NULL", "a IS NOT NULL", "a > 1", "b = 'q'"],
            "letters": ["A = 'b3'", "A IS NOT NULL", "b2 = 3"],
            "again": ["a > 500", "b < 500", "b = 3", "b = 17"],
        }
    with attached(sqlite_address) as duck:
        check(duck, sqlite_address, spark, wanted)


def test_nan_and_zeros_in_bounds_and_dictionaries(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    nan = float("nan")
    frame = pa.table({"x": [1.0, nan], "y": pa.array([nan, None], pa.float32()), "s": [{"z": 0.5}, {"z": nan}], "n": [1, 2]})
    lake.create_table("t", frame.schema).append(frame)
    lake.table("t").append(pa.table({"x": [1.0, 2.0], "y": pa.array([0.5, None], pa.float32()), "s": [{"z": 0.5}] * 2, "n": [3, 4]}))
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE zeros (x DOUBLE, y FLOAT)", "INSERT INTO zeros SELECT -0.0, -0.0 FROM range(20)")
        duck.run("INSERT INTO zeros SELECT if(i % 2 = 0, 0.0, 1.5), 0.0 FROM range(20) r(i)")
        nan = ["x > 5", "y >= 2", "s.z > 1", "x = 'nan'", "x < 2 AND n < 9"]
        check(duck, sqlite_address, spark, {"t": nan, "zeros": ["x = 0.0", "x = -0.0", "y IN (-0.0, 3)", "x <= -0.0"]})
