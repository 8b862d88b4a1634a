"""Spark is told how many rows Python workers are going to return, so that it does not send a large table to every executor."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ducklake_core.spark.numbers import numbers


@pytest.mark.parametrize(("count", "rows"), [(0, 0), (3, 10), (3, 100_001), (8, 50_000_000), (2, 10**12)])
def test_one_number_in_each_partition(spark: SparkSession, count: int, rows: int) -> None:
    frame = numbers(spark, count, rows)
    assert frame.rdd.glom().map(lambda part: [row[0] for row in part]).collect() == ([[n] for n in range(count)] or [[]])
    result = frame.mapInArrow(lambda batches: batches, "id bigint, text string")
    expected = int(str(result._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    if rows > 100_000:
        assert expected > min(rows, count << 24) * 20
