"""Frames that were read from a lake go back into columns of the same types; merges on Spark leave other columns as they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from ducklake_core import DuckLake
from ducklake_core.engines.spark import write
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.schema import to_arrow_schema
from tests.support.oracle import LakeAddress, attached

COLUMNS = {
    "k": "int64",
    "huge": "int128",
    "uhuge": "uint128",
    "clock": "time",
    "zoned": "timetz",
    "nanos": "timestamp_ns",
    "nested": "struct(h int128, n timestamp_ns[])",
}
DAY = 86_400_000_000


def made(address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.create_table("t", COLUMNS)
    columns = to_arrow_schema(lake.table("t").schema)
    clock = pa.array([0, DAY, 36_000_500_000, None], pa.int64()).view(pa.time64("us"))
    nanos = pa.array([1_700_000_000_123_456_789, -1, None, 2**62], pa.int64()).view(pa.timestamp("ns"))
    huge = pa.array([Decimal(2**127 - 1), Decimal(-(2**127)), Decimal(0), None], pa.decimal256(39, 0))
    uhuge = pa.array([Decimal(2**128 - 1), None, Decimal(5), Decimal(0)], pa.decimal256(39, 0))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), nanos, type=columns.field("nested").type.field("n").type)
    nested = pa.StructArray.from_arrays([huge, lists], fields=list(columns.field("nested").type))
    lake.table("t").append(pa.table([pa.array(range(4), pa.int64()), huge, uhuge, clock, clock, nanos, nested], schema=columns))
    return lake


def held(lake: DuckLake, table: str = "t", *columns: str) -> pa.Table:
    return lake.table(table).scan(columns=list(columns) or None).to_arrow().sort_by("k")


def test_frames_are_written_back(lake_address: LakeAddress, spark: Any) -> None:
    lake = made(lake_address)
    lake.create_table("copy", lake.table("t").schema.to_arrow(), partition_by=["year(nanos)"])
    lake.table("copy").append(lake.table("t").scan().to_spark(spark))
    assert held(lake, "copy").equals(held(lake))
    lake.write("copy", lake.table("t").scan(where="k > 1").to_spark(spark), mode="upsert", on=["k"])
    assert held(lake, "copy").equals(held(lake))
    with attached(lake_address) as duck:
        assert duck.rows("SELECT count(*) FROM (FROM t EXCEPT FROM copy)") == [(0,)]
    for column, value in (("huge", "'12x'"), ("huge", f"'{2**127}'"), ("uhuge", "'-1'"), ("clock", "'25:00:00'"), ("zoned", "'noon'")):
        with pytest.raises(SchemaError, match=column):
            lake.table("copy").append(spark.sql(f"SELECT 9L AS k, {value} AS {column}"), missing_columns="null")
    assert held(lake, "copy").num_rows == 4


def test_strings_and_longs_of_arrow(sqlite_address: LakeAddress) -> None:
    lake = made(sqlite_address)
    table = lake.table("t")
    strings = pa.table({"k": [7], "huge": ["-12"], "uhuge": ["34"], "clock": ["24:00:00"], "zoned": ["01:00:00+01"], "nanos": [5]})
    table.append(strings, missing_columns="null")
    found = held(lake).slice(4)
    assert (found.column("huge").to_pylist(), found.column("uhuge").to_pylist()) == ([Decimal(-12)], [Decimal(34)])
    assert found.column("clock").cast(pa.int64()).to_pylist() == [DAY]
    assert found.column("zoned").cast(pa.int64()).to_pylist() == [0]
    assert found.column("nanos").cast(pa.int64()).to_pylist() == [5]
    with pytest.raises(SchemaError, match="clock"):
        table.append(pa.table({"k": [8], "clock": ["24:00:01"]}), missing_columns="null")


@pytest.mark.slow
def test_merges_leave_other_columns_alone(lake_address: LakeAddress, spark: Any) -> None:
    lake = made(lake_address)
    before = held(lake)
    source = spark.sql("SELECT 1L AS k, 'a' AS word UNION ALL SELECT 3L, 'b'")
    lake.table("t").merge(source, on=["k"]).when_matched_update({"uhuge": "7"}).execute()
    found = held(lake)
    assert found.column("uhuge").to_pylist() == [Decimal(2**128 - 1), Decimal(7), Decimal(5), Decimal(7)]
    assert found.drop_columns(["uhuge"]).equals(before.drop_columns(["uhuge"]))
    # An expression that Spark evaluates, on another column than those with nanoseconds.
    lake.table("t").update({"uhuge": "length(repeat('x', CAST(k AS INTEGER)))"}, spark=spark)
    assert held(lake).drop_columns(["uhuge"]).equals(before.drop_columns(["uhuge"]))


@pytest.mark.usefixtures("local_writes")
def test_this_process_writes_local_rows(sqlite_address: LakeAddress, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        "pandas": spark.createDataFrame(pa.table({"k": [1, 2], "s": ["a", None]}).to_pandas()),
        "values": spark.sql("SELECT k, upper(s) AS s FROM VALUES (3L, 'b'), (4L, 'c') v(k, s) WHERE k > 0"),
        "range": spark.range(5, 8).selectExpr("id AS k").coalesce(1),
        "names": spark.range(8, 9).selectExpr("id AS K").union(spark.sql("SELECT 9L")),
    }
    written = {name: rows for name, frame in few.items() if (rows := write.local_rows(frame)) is not None}
    assert {name: rows.num_rows for name, rows in written.items()} == {"pandas": 2, "values": 2, "range": 3, "names": 2}
    doubled = sf.udf(lambda n: n * 2, "long")
    for frame in (
        spark.range(write._LOCAL_ROWS + 1),
        spark.range(2).selectExpr("explode(sequence(1, 1000000)) AS k"),
        spark.range(2).select(doubled("id").alias("k")),
        spark.createDataFrame([(1,)], "k long"),
        # Few rows may compute strings that this process has no memory for.
        spark.range(5, 8).selectExpr("id AS k", "repeat('n', 1000000 * id) AS s").coalesce(1),
        spark.range(8, 9).selectExpr("id AS K", "'x' AS S").union(spark.sql("SELECT 9L, 'y'")),
        spark.range(2).selectExpr("to_binary(hex(id), 'hex') AS k"),
        spark.sql("SELECT array(struct(NULL AS n)) AS k"),
        spark.range(2).crossJoin(spark.range(3).toDF("other")),
    ):
        assert write.local_rows(frame) is None

    def on_executors(*_: object) -> None:
        raise AssertionError("executors are not needed")

    monkeypatch.setattr(write, "_partition_writer", on_executors)
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.create_table("p", {"k": "int64", "s": "varchar"}, partition_by=["bucket(2, k)"])
        for frame in few.values():
            lake.table("p").append(frame, missing_columns="null")
        assert held(lake, "p")["s"].to_pylist() == ["a", None, "B", "C", *[None] * 5]
        with pytest.raises(SchemaError, match="k"):
            lake.table("p").append(spark.sql("SELECT k FROM VALUES ('no number') v(k)"), missing_columns="null")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), max(k) FROM p") == [(9, 9)]
