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
from tests.behaviour.object_stores.secrets import assert_secretless, chain
from tests.behaviour.object_stores.work import found, numbered, table_of
from tests.support.object_stores import ObjectStore, Options
from tests.support.oracle import LakeAddress


def found_in(lake: DuckLake, table: str) -> int:
    return lake.table(table).scan().to_arrow().num_rows


def as_spark_options(address: LakeAddress, options: Options) -> dict[str, str]:
    """Options of a store as the data source takes them."""

    def flat(name: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            return {name: str(value)}
        return {key: text for inner in value for key, text in flat(f"{name}.{inner}", value[inner]).items()}

    # A name that Spark does not mask is rejected.
    masked = any("connection_string" in of_protocol for of_protocol in options.values())
    return {"catalogUrl": address.url, **flat("storage.secret" if masked else "storage", {**options})}


@pytest.mark.slow
@pytest.mark.parametrize("store", ["s3", "azure"], indirect=True)
def test_in_spark(
    sqlite_address: LakeAddress, store: ObjectStore, spark: SparkSession, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The data source too: reads, writes and streams."""
    address = store.lake(sqlite_address, "secrets_in_spark")
    lake = store.create(address)
    register(spark)
    frame = spark.createDataFrame(table_of(numbered(0, 100)))
    lake.write("t", frame)
    assert store.wrong is not None
    wrong = DuckLake.connect(address.url, storage_options=store.wrong)
    reported: list[Any] = []
    right_options, wrong_options = (as_spark_options(address, options) for options in (store.options, store.wrong))

    source = spark.read.format("ducklake").options(**right_options).load("t")
    assert source.count() == 100
    frame.write.format("ducklake").options(**right_options).mode("append").save("made")
    assert found_in(lake, "made") == 100
    stream = spark.readStream.format("ducklake").options(**right_options).load("t")
    to = stream.writeStream.format("ducklake").options(**right_options).option("checkpointLocation", str(tmp_path))
    query = to.trigger(availableNow=True).start("made")
    query.awaitTermination()
    assert found_in(lake, "made") == 200
    reported += [query.recentProgress, query.status]
    scan = lake.table("t").scan().to_spark(spark)
    reported += [one._jdf.queryExecution().toString() for one in (source, scan)]
    plans = spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.active().sharedState().statusStore()  # type: ignore[union-attr]
    reported += [plans.executionsList().apply(n).toString() for n in range(plans.executionsList().size())]
    reported += [plans.executionsList().apply(n).physicalPlanDescription() for n in range(plans.executionsList().size())]
    reported += [spark.sparkContext.getConf().getAll(), sorted(spark.conf.getAll.items())]
    for fails in (
        lambda: wrong.table("t").scan().to_spark(spark).collect(),
        lambda: wrong.write("t", frame),
        lambda: wrong.table("t").update({"v": "'x'"}, spark=spark),
        lambda: wrong.table("t").merge(frame, on=["k"]).when_matched_delete().execute(),
        lambda: spark.read.format("ducklake").options(**wrong_options).load("t").collect(),
        lambda: frame.write.format("ducklake").options(**wrong_options).mode("append").save("t"),
    ):
        with pytest.raises((DuckLakeError, PySparkException)) as caught:
            fails()  # type: ignore[no-untyped-call]
        reported += chain(caught.value)
    written = capfd.readouterr()
    assert_secretless(store, *reported, written.out, written.err)
    assert len(found(lake)) == 100
