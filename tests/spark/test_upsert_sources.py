"""Sources of upserts that return other rows each time, or have keys of another type than the table's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


def test_a_source_that_changes_replaces_exactly_the_rows_that_it_gave(
    sqlite_address: LakeAddress, spark: SparkSession, tmp_path: Path
) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"k": pa.array(range(10), pa.int64()), "v": ["old"] * 10}))
    runs = tmp_path / "runs"
    runs.mkdir()
    folder = str(runs)

    def other_key_each_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            number = len(list(Path(folder).iterdir()))
            (Path(folder) / str(number)).touch()
            yield pa.RecordBatch.from_pydict({"k": pa.array([number], pa.int64()), "v": ["new"]})

    lake.write("t", spark.range(0, 1, 1, 1).mapInArrow(other_key_each_time, "k long, v string"), mode="upsert", on=["k"])
    rows = lake.table("t").scan().to_arrow().sort_by("k").to_pylist()
    assert [row["k"] for row in rows] == list(range(10))
    assert sum(row["v"] == "new" for row in rows) == 1


def test_keys_are_compared_as_they_are_stored(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    lake.write("t", pa.table({"k": pa.array([at], pa.timestamp("us", "UTC")), "v": ["old"]}))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = spark.sql("SELECT TIMESTAMP_NTZ'2024-01-01 12:00:00' AS k, 'new' AS v")
        lake.write("t", frame, mode="upsert", on=["k"])
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"k": at, "v": "new"}]


def test_an_append_after_an_upsert_replaces_nothing(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"k": pa.array([1, 2], pa.int64())}))
    with lake.transaction() as tx:
        tx.upsert("t", spark.sql("SELECT 2L AS k"), on=["k"])
        tx.append("t", pa.table({"k": pa.array([1], pa.int64())}))
    assert sorted(lake.table("t").scan().to_arrow().column("k").to_pylist()) == [1, 1, 2]
