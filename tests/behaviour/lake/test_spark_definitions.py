"""Definitions and few rows with Spark DataFrames: what holds for Arrow data holds for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = (
    "id AS k", "CAST(id AS string) AS s", "CAST(CAST(id AS string) AS binary) AS b", "id > 1 AS o", "CAST(NULL AS int) AS nothing",
    "timestamp_seconds(id * 100000000 - 300000000) AS z", "CAST(timestamp_seconds(-id) AS timestamp_ntz) AS n",
    "date_add(DATE '1969-12-31', CAST(id AS int)) AS d", "CAST(id AS decimal(20,3)) AS m", "array(id, NULL) AS l", "map('a''b', id) AS p",
    "named_struct('x', id, 'y', \"it's\") AS t", "CAST('NaN' AS double) AS f", "make_ym_interval(1, 2) AS i",
)  # fmt: skip


@pytest.mark.slow
def test_few_rows_are_inlined_on_request(spark: SparkSession, small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.set_option("data_inlining_row_limit", 4)
    few = spark.range(0, 4, 1, 2).selectExpr(*EVERYTHING)
    written = small.write("files", few)
    assert (written.files_added > 0, written.rows_inlined) == (True, 0)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        done = small.write("rows", few, inline=True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert (done.files_added, done.rows_inlined, done.rows_added) == (0, 4, 4)
    with attached(sqlite_address) as duck:
        assert duck.rows("FROM rows ORDER BY k")[1:] != []
        assert sorted(map(repr, duck.rows("FROM rows"))) == sorted(map(repr, duck.rows("FROM files")))
    table = small.table("rows")
    assert table.append(spark.range(0, 5).selectExpr(*EVERYTHING), inline=True).rows_inlined == 0
    with pytest.raises(UsageError, match="does not satisfy the condition of the overwrite"):
        table.overwrite(few, where="k = 2", inline=True)
    done = table.overwrite(few.where("k = 2"), where="k = 2", inline=True)
    assert (done.rows_inlined, done.rows_deleted) == (1, 2)
    with pytest.raises(UnsupportedFeatureError, match="upsert from a Spark DataFrame"):
        table.upsert(few, on=["k"], inline=True)
    assert small.write("arrow", pa.table({"a": [1]}), inline=False).files_added == 1
    assert table.append(few.where("false"), inline=True).committed is False


def test_not_null_and_defaults(spark: SparkSession, small: DuckLake, sqlite_address: LakeAddress) -> None:
    made = small.create_table_as("t", spark.range(0, 1000, 1, 2).selectExpr("id AS k", "nullif(concat('v', id), 'v500') AS s"))
    assert made.snapshot_id == 1
    assert (made.created_table, made.rows_added, small.snapshot().id) == (True, 1000, 1)
    table = small.table("t")
    table.add_column("d", "int32", default=7)
    table.set_default("d", 9)
    with pytest.raises(SchemaError, match=r"'s' of main\.t has NULL in it"):
        table.set_not_null("s", spark=spark)
    assert table.set_not_null("k", spark=spark) is not None
    files = set(Path(sqlite_address.data_path).rglob("*.parquet"))
    with pytest.raises(SchemaError, match=r"'k'.*NULL"):
        table.append(spark.range(0, 500, 1, 2).selectExpr("nullif(id, 499) AS k", "'x' AS s"))
    assert set(Path(sqlite_address.data_path).rglob("*.parquet")) == files
    table.append(spark.range(5000, 5002).selectExpr("id AS k"), missing_columns="null")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT d, count(*), count(s), min(k) FROM t GROUP BY d ORDER BY d") == [(7, 1000, 999, 0), (9, 2, 0, 5000)]
