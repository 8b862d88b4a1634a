"""Credentials of a store show nowhere in Spark: not in plans, configuration, errors or output (Dagster: tests/dagster)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from ducklake_core.spark_source import register
from tests.stores.secrets import WRONG, assert_secretless, chain
from tests.stores.test_lakes_on_s3 import new_lake
from tests.stores.work import found, numbered, table_of
from tests.support.oracle import LakeAddress
from tests.support.s3 import KEY, SECRET, S3Server, s3_lake


def found_in(lake: DuckLake, table: str) -> int:
    return lake.table(table).scan().to_arrow().num_rows


@pytest.mark.slow
def test_in_spark(
    sqlite_address: LakeAddress, s3: S3Server, spark: SparkSession, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The data source too: reads, writes and streams on S3."""
    address = s3_lake(sqlite_address, "secrets_in_spark")
    lake = new_lake(address, s3)
    register(spark)
    frame = spark.createDataFrame(table_of(numbered(0, 100)))
    lake.write("t", frame)
    wrong = DuckLake.connect(address.url, storage_options=s3.options(WRONG))
    told: list[Any] = []

    def options(secret: str) -> dict[str, str]:
        return {
            "catalogUrl": address.url,
            "storage.s3.key": KEY,
            "storage.s3.secret": secret,
            "storage.s3.endpoint_url": s3.endpoint,
            "storage.s3.client_kwargs.region_name": "us-east-1",
            "storage.s3.config_kwargs.response_checksum_validation": "when_required",
        }

    source = spark.read.format("ducklake").options(**options(SECRET)).load("t")
    assert source.count() == 100
    frame.write.format("ducklake").options(**options(SECRET)).mode("append").save("made")
    assert found_in(lake, "made") == 100
    stream = spark.readStream.format("ducklake").options(**options(SECRET)).load("t")
    to = stream.writeStream.format("ducklake").options(**options(SECRET)).option("checkpointLocation", str(tmp_path))
    query = to.trigger(availableNow=True).start("made")
    query.awaitTermination()
    assert found_in(lake, "made") == 200
    told += [query.recentProgress, query.status]
    scan = lake.table("t").scan().to_spark(spark)
    told += [one._jdf.queryExecution().toString() for one in (source, scan)]
    store = spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.active().sharedState().statusStore()  # type: ignore[union-attr]
    told += [store.executionsList().apply(n).toString() for n in range(store.executionsList().size())]
    told += [store.executionsList().apply(n).physicalPlanDescription() for n in range(store.executionsList().size())]
    told += [spark.sparkContext.getConf().getAll(), sorted(spark.conf.getAll.items())]
    for fails in (
        lambda: wrong.table("t").scan().to_spark(spark).collect(),
        lambda: wrong.write("t", frame),
        lambda: wrong.table("t").update({"v": "'x'"}, spark=spark),
        lambda: wrong.table("t").merge(frame, on=["k"]).when_matched_delete().execute(),
        lambda: spark.read.format("ducklake").options(**options(WRONG)).load("t").collect(),
        lambda: frame.write.format("ducklake").options(**options(WRONG)).mode("append").save("t"),
    ):
        with pytest.raises((DuckLakeError, PySparkException)) as caught:
            fails()  # type: ignore[no-untyped-call]
        told += chain(caught.value)
    written = capfd.readouterr()
    assert_secretless(*told, written.out, written.err)
    assert len(found(lake)) == 100
