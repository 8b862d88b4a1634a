"""The data source in Spark itself: classic sessions, streams that are started again, Connect."""

from __future__ import annotations

import glob
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ducklake_core.spark_source import register
from tests.support.connect import run_client
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import PostgresServer

CONNECT = """
import json, sys
from pyspark.sql import SparkSession
from ducklake_core.spark_source import register
session = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
register(session)
session.range(3).write.format("ducklake").mode("append").option("catalogUrl", sys.argv[1]).save("t")
found = session.read.format("ducklake").option("catalogUrl", sys.argv[1]).load("t").collect()
print("ANSWERS " + json.dumps({"module": type(session).__module__, "rows": sorted(row[0] for row in found)}))
"""


def test_batches_there_and_back(postgres: PostgresServer, spark: SparkSession, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    lake = lake_of_files(address)
    lake.create_table(
        "t", pa.schema([("k", pa.int64()), ("odd, `name`", pa.string()), ("at", pa.timestamp("us", "UTC"))]), partition_by=["k"]
    )
    register(spark)
    secret = "s3cret-of-the-store"
    options = {"catalogUrl": f"{address.url}&application_name=hidden-from-plans", "storage.s3.secret": secret}
    frame = spark.range(0, 100, 1, 1).select(
        (sf.col("id") % 3).alias("k"), sf.concat(sf.lit("r"), "id").alias("odd, `name`"), sf.timestamp_seconds(-sf.col("id")).alias("at")
    )
    frame.write.format("ducklake").mode("append").options(**options).save("t")
    lines = spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.active().sharedState().statusStore().executionsList()  # type: ignore[union-attr]
    plans = [lines.apply(index).physicalPlanDescription() for index in range(lines.size())]
    assert "AppendData" in plans[-1]
    read = spark.read.format("ducklake").options(**options).load("t")
    assert read.where("k = 1").count() == 33
    shown = [*plans, read._jdf.queryExecution().toString()]
    assert not [text for text in shown if "hidden-from-plans" in text or secret in text]
    with attached(address) as duck:
        expected = duck.rows('SELECT k, "odd, `name`", epoch_us("at") FROM t ORDER BY 2')
    found = read.select("k", "`odd, ``name```", sf.unix_micros("at")).collect()
    assert sorted((tuple(row) for row in found), key=lambda row: row[1]) == expected
    # A task fails after another has written its file: nothing is committed, and no file stays.
    before, files = lake.snapshot().id, sorted(Path(address.data_path).rglob("*.parquet"))
    failing = frame.withColumn("k", sf.when(sf.col("k") >= 0, sf.raise_error("broken row")).otherwise(1))
    with pytest.raises(PySparkException, match="broken row"):
        frame.unionAll(failing).write.format("ducklake").mode("append").options(**options).save("t")
    assert lake.snapshot().id == before
    assert sorted(Path(address.data_path).rglob("*.parquet")) == files
    # The error has the library's message, without the address.
    with pytest.raises(PySparkException, match="'more' is new") as rejected:
        frame.withColumn("more", sf.lit(1)).write.format("ducklake").mode("append").options(**options).save("t")
    assert "hidden-from-plans" not in str(rejected.value)


@pytest.mark.slow
def test_a_stream_from_table_to_table_is_started_again(sqlite_address: LakeAddress, spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_of_files(sqlite_address)
    lake.write("source", pa.table({"a": [1, 2], "b": ["x", None]}))
    lake.create_table("sink", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    register(spark)
    checkpoint = tmp_path / "checkpoint"

    def run() -> Any:
        stream = spark.readStream.format("ducklake").option("catalogUrl", sqlite_address.url).load("source")
        to = stream.writeStream.format("ducklake").option("catalogUrl", sqlite_address.url).option("checkpointLocation", str(checkpoint))
        query = to.trigger(availableNow=True).start("sink")
        query.awaitTermination()
        return query

    run()
    lake.write("source", pa.table({"a": [3], "b": ["z"]}))
    run()
    committed = lake.snapshot()
    assert json.loads(committed.extra_info or "")["commit_id"].startswith("spark-stream/")
    # Killed between the commit of the last micro-batch and Spark's own note of it.
    last = max((int(Path(name).name), Path(name)) for name in glob.glob(f"{checkpoint}/commits/[0-9]*"))[1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    files = sorted(Path(sqlite_address.data_path).rglob("*.parquet"))
    run()
    assert lake.table("sink").snapshots()[-1].id == committed.id
    assert sorted(Path(sqlite_address.data_path).rglob("*.parquet")) == files
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT * FROM sink ORDER BY a") == [(1, "x"), (2, None), (3, "z")]
    # A snapshot that the stream has not read yet is expired: the stream stops, and names it.
    for value in (4, 5):
        lake.write("source", pa.table({"a": [value], "b": ["w"]}))
    lake.expire_snapshots(versions=[lake.snapshot().id - 1], min_age="0 days")
    with pytest.raises(StreamingQueryException, match=r"the stream of source cannot continue from snapshot 6 to 7: .* it has expired"):
        run()


@pytest.mark.slow
def test_connect(sqlite_address: LakeAddress, connect: str) -> None:
    lake = lake_of_files(sqlite_address)
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    answers = run_client(CONNECT, sqlite_address.url, connect)
    assert answers["module"].startswith("pyspark.sql.connect")
    assert answers["rows"] == [0, 1, 2]
    assert lake.table("t").scan().count() == 3


@pytest.mark.slow
def test_a_stream_over_deletes_updates_and_changed_columns(sqlite_address: LakeAddress, spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}))
    register(spark)
    seen: list[dict[str, Any]] = []

    def run(feed: str) -> list[dict[str, Any]]:
        seen.clear()
        stream = spark.readStream.format("ducklake").option("catalogUrl", sqlite_address.url).option("feed", feed).load("t")
        sink = stream.writeStream.foreachBatch(lambda batch, _: seen.extend(row.asDict() for row in batch.collect()))
        sink.option("checkpointLocation", str(tmp_path / feed)).trigger(availableNow=True).start().awaitTermination()
        return sorted(seen, key=repr)

    def changes(since: int) -> list[dict[str, Any]]:
        return sorted(lake.table("t").changes(since).to_arrow().to_pylist(), key=repr)

    assert run("changes") == changes(0)
    assert [row["k"] for row in run("insertions")] == [1, 2, 3]
    since = lake.snapshot().id + 1
    lake.table("t").delete("k = 1")
    lake.table("t").update({"v": "'new'"}, where="k = 2")
    lake.write("t", pa.table({"k": [3, 4], "v": ["up", "d"]}), mode="upsert", on=["k"])
    wanted = changes(since)
    assert run("changes") == wanted
    assert [(row["k"], row["v"]) for row in run("insertions")] == [
        (row["k"], row["v"]) for row in wanted if row["change_type"] in ("insert", "update_postimage")
    ]
    # New columns are read after a restart, deleted ones are left out.
    since = lake.snapshot().id + 1
    lake.table("t").add_column("w", "int64")
    lake.table("t").drop_column("v")
    lake.write("t", pa.table({"k": [5], "w": [50]}))
    assert run("changes") == changes(since)
    assert [(row["k"], row["w"]) for row in run("insertions")] == [(5, 50)]
    lake.drop_table("t")
    lake.write("t", pa.table({"k": [6], "w": [60]}))
    with pytest.raises(StreamingQueryException, match="the stream of t cannot continue"):
        run("changes")
