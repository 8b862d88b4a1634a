"""Spark on lakes of version 1.1, compared with the library's own reads and a second implementation."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ducklake_core import DuckLake
from ducklake_core.spark_source import register
from tests.support.ducklakepy_lake import faults, new_lake, rows_of, second_implementation, sorted_rows
from tests.support.oracle import LakeAddress


def _rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def _by_source(spark: SparkSession, address: LakeAddress, name: str) -> DataFrame:
    register(spark)
    return spark.read.format("ducklake").option("catalogUrl", address.url).load(name)


@pytest.mark.slow
def test_spark_writes_and_deletes(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    frame = spark.range(200).selectExpr("id AS a", "date_add(DATE'1969-12-01', CAST(id AS INT)) AS d", "concat('s', id) AS s")
    lake.write("t", frame, partition_by=["epoch_month(d)"])
    for where in ("a % 10 = 3", "a = 11"):
        lake.table("t").delete(where, spark=spark)
    wanted = [a for a in range(200) if a % 10 != 3 and a != 11]
    assert sorted(row.a for row in lake.table("t").scan().to_spark(spark).collect()) == wanted
    by_library = sorted_rows(lake.table("t").scan().to_arrow())
    assert [row[0] for row in sorted(by_library)] == wanted
    with second_implementation(sqlite_address) as catalog:
        assert rows_of(catalog, "main.t") == by_library
    assert lake.table("t").scan(where="d = DATE '1970-01-01'").to_spark(spark).count() == 1
    assert faults(lake) == []


@pytest.mark.slow
def test_deletion_vectors_of_several_snapshots(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    """Read by Spark's reader, by tasks of Arrow (with ids of rows) and by the data source, at every snapshot."""
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"row_id": pa.array(range(3000), pa.int64())}))
    for where in ("row_id < 700", "row_id = 2000", "row_id % 2 = 1 and row_id > 2500"):
        lake.table("t").delete(where)
    assert len([path for path in Path(sqlite_address.data_path).rglob("*.puffin") if path.read_bytes()[:4] == b"PFA1"]) >= 1
    for snapshot in lake.snapshots()[-4:]:
        table = lake.table("t", at=snapshot.id)
        wanted = sorted(table.scan().to_arrow()["row_id"].to_pylist())
        assert sorted(row[0] for row in table.to_spark(spark).collect()) == wanted
        with_ids = table.scan(columns=["row_id", "rowid"]).to_spark(spark)
        assert sorted(map(tuple, with_ids.collect())) == [(number, number) for number in wanted]
    assert len(wanted) == 3000 - 700 - 1 - 250
    assert sorted(row[0] for row in _by_source(spark, sqlite_address, "t").collect()) == wanted
    assert lake.table("t").scan(where="row_id BETWEEN 1990 AND 2010").to_spark(spark).count() == 20


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1000])
def test_row_changes(spark: SparkSession, sqlite_address: LakeAddress, limit: int) -> None:
    """Merges, upserts and updates, in files and among rows that the catalog keeps."""
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", limit)
    lake.set_option("write_deletion_vectors", True)
    lake.write("a.b.t", pa.table({"row_id": pa.array(range(100), pa.int64()), "end_snapshot": ["old"] * 100}))
    source = spark.range(90, 110).withColumnRenamed("id", "row_id").withColumn("end_snapshot", sf.lit("merged"))
    lake.table("a.b.t").merge(source, on=["row_id"]).when_matched_update().when_not_matched_insert().execute()
    lake.write(
        "a.b.t",
        spark.range(5).withColumnRenamed("id", "row_id").withColumn("end_snapshot", sf.lit("upserted")),
        mode="upsert",
        on=["row_id"],
    )
    lake.table("a.b.t").update({"end_snapshot": "upper(end_snapshot)"}, where="row_id < 3", spark=spark)
    lake.table("a.b.t").delete("row_id = 50", spark=spark)
    strings = {**dict.fromkeys(range(100), "old"), **dict.fromkeys(range(90, 110), "merged"), **dict.fromkeys(range(5), "upserted")}
    strings |= dict.fromkeys(range(3), "UPSERTED")
    wanted = sorted(((number, text) for number, text in strings.items() if number != 50), key=repr)
    assert sorted_rows(lake.table("a.b.t").scan().to_arrow()) == wanted
    assert _rows(lake.table("a.b.t").to_spark(spark)) == wanted
    assert _rows(_by_source(spark, sqlite_address, "a.b.t")) == wanted
    with second_implementation(sqlite_address) as catalog:
        assert rows_of(catalog, "a.b.t") == wanted
    assert faults(lake) == []


@pytest.mark.slow
def test_changes_as_a_stream(spark: SparkSession, sqlite_address: LakeAddress, tmp_path: Path) -> None:
    """Inlined rows, deletes as vectors and files by another writer, each in its micro-batch."""
    lake = new_lake(sqlite_address)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"begin_snapshot": pa.array(range(3), pa.int64())}))
    lake.create_table("sink", pa.schema([("begin_snapshot", pa.int64())]))
    register(spark)

    def run() -> list[int]:
        stream = spark.readStream.format("ducklake").option("catalogUrl", sqlite_address.url).load("t")
        to = stream.writeStream.format("ducklake").option("catalogUrl", sqlite_address.url)
        to.option("checkpointLocation", str(tmp_path / "notes")).trigger(availableNow=True).start("sink").awaitTermination()
        return sorted(DuckLake.connect(sqlite_address.url).table("sink").scan().to_arrow()["begin_snapshot"].to_pylist())

    assert run() == [0, 1, 2]
    lake.table("t").delete("begin_snapshot = 1")
    with second_implementation(sqlite_address) as catalog:
        catalog.load_table("main.t").append(pa.table({"begin_snapshot": pa.array(range(100, 150), pa.int64())}))
    assert run() == [0, 1, 2, *range(100, 150)]
    lake.flush_inlined_data()
    lake.table("t").delete("begin_snapshot > 140")
    assert run() == [0, 1, 2, *range(100, 150)]
    feed = lake.table("t").changes(0, lake.snapshot().id)
    assert sorted(map(tuple, feed.to_spark(spark).select("change_type", "begin_snapshot").collect())) == sorted(
        map(tuple, (row.values() for row in feed.to_arrow().select(["change_type", "begin_snapshot"]).to_pylist()))
    )


@pytest.mark.slow
def test_views(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("x.y.t", pa.table({"row_id": pa.array(range(50), pa.int64()), "n": pa.nulls(50, pa.int32())}))
    for where in ("row_id < 10", "row_id = 20"):
        lake.table("x.y.t").delete(where)
    lake.create_view("x.y.v", "SELECT row_id FROM t WHERE row_id > 15")
    assert lake.register(spark, schema="x.y") == {"t": None, "v": None}
    assert spark.sql("SELECT count(*) AS c, min(v.row_id) AS s FROM v JOIN t ON v.row_id = t.row_id").collect()[0] == (33, 16)
    for name in ("t", "v"):
        spark.catalog.dropTempView(name)


@pytest.mark.slow
def test_types_and_keys(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    """Columns of type null and variant, keys that count since 1970."""
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", {"a": "int64", "n": "null", "v": "variant", "at": "timestamptz"}, partition_by=["epoch_hour(at)"])
    moments = "timestamp_seconds(-3600 * id - 1)"
    frame = spark.range(5).selectExpr(
        "id AS a", "CAST(NULL AS INT) AS n", "parse_json(concat('{\"x\":', id, '}')) AS v", f"{moments} AS at"
    )
    lake.write("t", frame)
    with lake.database.read() as connection:
        values = [row.partition_value for row in connection.execute(lake.database.tables["file_partition_value"].select())]
    assert sorted(map(int, values)) == [-5, -4, -3, -2, -1]
    table = lake.table("t")
    zone = "TIMESTAMPTZ '1969-12-31 22:00:00+00'"
    found = table.scan(where=f"at >= {zone}").to_spark(spark)
    assert sorted(row.a for row in found.collect()) == [0, 1]
    assert sum(file.pruned_by is None for file in table.scan(where=f"at >= {zone}").explain().files) <= 3
    assert sorted(tuple(row) for row in table.to_spark(spark).selectExpr("a", "n", "variant_get(v, '$.x', 'int')").collect()) == [
        (number, None, number) for number in range(5)
    ]
    assert table.scan(columns=["at"]).to_arrow()["at"].to_pylist()[0].tzinfo is not None
    assert dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC) in table.scan(columns=["at"]).to_arrow()["at"].to_pylist()
    with second_implementation(sqlite_address) as catalog:
        assert catalog.load_table("main.t").to_arrow().num_rows == 5
    assert faults(lake) == []


@pytest.mark.slow
def test_variants_and_nulls_that_the_catalog_keeps(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 100)
    lake.create_table("t", {"row_id": "int64", "n": "null", "v": "variant"})
    rows = spark.range(3).selectExpr("id AS row_id", "CAST(NULL AS INT) AS n", "parse_json(concat('[', id, ']')) AS v")
    lake.write("t", rows)
    lake.write("t", lake.table("t").scan().to_arrow())
    for frame in (lake.table("t").to_spark(spark), _by_source(spark, sqlite_address, "t")):
        found = frame.selectExpr("row_id", "n", "variant_get(v, '$[0]', 'int')").collect()
        assert sorted(map(tuple, found)) == sorted([(number, None, number) for number in range(3)] * 2)
