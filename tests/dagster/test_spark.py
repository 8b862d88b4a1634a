"""Spark frames through the IO manager: what the matrix does with Arrow, once for each path."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ducklake_dagster import DuckLakeResource
from tests.support.oracle import LakeAddress, attached

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", timezone="Europe/Berlin", end_date="2026-04-01")
REGIONS = dg.StaticPartitionsDefinition(["eu", "o'us"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


class Session(dg.ConfigurableResource):
    """Anything with ``spark_session`` will do."""

    # pydantic warns about the way in which Dagster reads a model without fields.
    name: str = "session"

    @property
    def spark_session(self) -> SparkSession:
        return SparkSession.active()


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], columns: str = "id INT, day DATE, region STRING") -> DataFrame:
    return spark.createDataFrame(rows, columns)


def day(number: int) -> date:
    return date(2026, 3, number)


def stored(resource: DuckLakeResource, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in resource.connect().table(name).scan().to_arrow().to_pylist())


@pytest.mark.parametrize("given", [True, False], ids=["session resource", "running session"])
def test_partitions_are_replaced_and_read_as_lazy_frames(
    spark: SparkSession, run: Run, lake_resource: DuckLakeResource, given: bool, sqlite_address: LakeAddress
) -> None:
    rows = [(1, day(27), "eu"), (2, day(28), "eu"), (3, day(28), "o'us"), (4, day(29), "eu")]

    def asset(**how: Any) -> dg.AssetsDefinition:
        @dg.asset(name="numbers", partitions_def=BOTH, metadata={"partition_expr": {"day": "day", "region": "region"}, **how})
        def build() -> DataFrame:
            return frame(spark, rows)

        return build

    numbers = asset(out_of_slice="filter")
    seen: list[Any] = []

    @dg.asset(partitions_def=DAYS)
    def reader(numbers: DataFrame) -> None:
        seen.append(sorted(row.id for row in numbers.select("id").collect()))

    io = {"spark": Session()} if given else {}
    run([numbers], io=io, tags={RANGE_START: "2026-03-27|eu", RANGE_END: "2026-03-28|o'us"})
    assert stored(lake_resource, "numbers") == rows[:3]
    rows[2] = (30, day(28), "o'us")
    run([numbers], io=io, partition_key="2026-03-28|o'us")
    newest = lake_resource.connect().snapshot().id
    assert not run([asset()], io=io, partition_key="2026-03-28|o'us", raise_on_error=False).success, "three rows are outside"
    assert (stored(lake_resource, "numbers"), lake_resource.connect().snapshot().id) == (rows[:3], newest)
    run([numbers, reader], io={**io, "default_frame": "spark"}, selection=[reader], partition_key="2026-03-28")
    assert seen == [[2, 30]]
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT sum(id) FROM lake.numbers") == 33
    if given:
        return
    # Backslashes do not escape quotes in strings, such as those of the region and of the error.
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    try:
        rows[2] = (31, day(28), "o'us")
        run([numbers], io=io, partition_key="2026-03-28|o'us")
        failed = run([asset(write_mode="append")], io=io, partition_key="2026-03-28|o'us", raise_on_error=False)
        assert "outside the partitions of this run" in str(failed.all_events)
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
    assert stored(lake_resource, "numbers") == [*rows[:2], rows[2]]


def test_frames_of_both_kinds_meet(spark: SparkSession, run: Run, lake_resource: DuckLakeResource) -> None:
    @dg.asset
    def small() -> pa.Table:
        return pa.table({"id": [1, 2, 3]})

    @dg.asset
    def large(small: DataFrame) -> DataFrame:
        return small.withColumn("double", F.col("id") * 2)

    @dg.asset
    def again(large: pa.Table) -> pa.Table:
        return large.select(["double"])

    run([small, large, again])
    assert stored(lake_resource, "again") == [(2,), (4,), (6,)]


@pytest.mark.slow
def test_merges_and_replaced_columns_of_spark_frames(
    spark: SparkSession, run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress
) -> None:
    frames = [
        spark.createDataFrame([(1, day(27), "a", "I"), (2, day(27), "b", "I")], "id INT, day DATE, v STRING, op STRING"),
        spark.createDataFrame([(3, day(28), "c", "I")], "id INT, day DATE, v STRING, op STRING"),
        spark.createDataFrame([(2, day(27), "B", "U"), (9, day(27), "x", "D")], "id INT, day DATE, v STRING, op STRING"),
    ]
    settings = {"write_mode": "merge", "merge_keys": "id", "delete_when": "s.op = 'D'", "when_not_matched_by_source": "delete"}

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "CAST(day AS DATE)", "sort_by": "id", **settings})
    def merged() -> DataFrame:
        return frames.pop(0)

    for key in ("2026-03-27", "2026-03-28", "2026-03-27"):
        run([merged], partition_key=key)
    assert stored(lake_resource, "merged") == [(2, day(27), "B"), (3, day(28), "c")]

    replacing = [spark.createDataFrame([(1, "a")], "id INT, v STRING"), spark.createDataFrame([("x", 1.5)], "id STRING, w DOUBLE")]

    @dg.asset(metadata={"schema_evolution": "replace"})
    def replaced() -> DataFrame:
        return replacing.pop(0)

    for _ in range(2):
        run([replaced])
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT id, w FROM lake.replaced") == [("x", 1.5)]
        assert duck.rows("SELECT id, v FROM lake.merged ORDER BY id") == [(2, "B"), (3, "c")]


@pytest.mark.slow
def test_spark_frames_are_audited_before_they_are_committed(spark: SparkSession, run: Run, lake_resource: DuckLakeResource) -> None:
    """Executors audit the staged rows of the run's partitions, with conditions that Arrow does not evaluate."""
    frames = [
        spark.createDataFrame([(1, day(27), "ab")], "id INT, day DATE, s STRING"),
        spark.createDataFrame([(2, day(28), "AB"), (3, day(28), "xyz"), (4, day(28), None)], "id INT, day DATE, s STRING"),
        spark.createDataFrame([(5, day(28), "cd")], "id INT, day DATE, s STRING"),
    ]
    audits = {"short": "s RLIKE '^[a-z]{2}$'", "positive": "id > 0"}

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "audits": audits})
    def audited() -> DataFrame:
        return frames.pop(0)

    run([audited], partition_key="2026-03-27")
    # A row of another day, written by another client, does not fail this run.
    lake_resource.connect().table("audited").append(pa.table({"id": pa.array([-9], pa.int32()), "day": [day(29)], "s": ["long"]}))
    with pytest.raises(dg.Failure, match=r"short: 3 rows failed.* Nothing was committed"):
        run([audited], partition_key="2026-03-28")
    assert [row[0] for row in stored(lake_resource, "audited")] == [-9, 1]
    run([audited], partition_key="2026-03-28")
    assert [row[0] for row in stored(lake_resource, "audited")] == [-9, 1, 5]
