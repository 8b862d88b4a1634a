"""Spark gets the size of the rows from Python workers, so that it does not broadcast a large table."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ducklake_core.engines.spark.tasks import task_id_frame


@pytest.mark.parametrize(("count", "size"), [(0, 0), (3, 10_000_000)])
def test_one_number_in_each_partition(spark: SparkSession, count: int, size: int) -> None:
    frame = task_id_frame(spark, count, size)
    result = frame.mapInArrow(lambda batches: (batch for batch in batches if batch.num_rows), "id bigint")
    assert [row.id for row in result.collect()] == list(range(count))
    assert frame.rdd.getNumPartitions() == count
    expected = int(str(result._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    assert expected <= max(4 * size, 8 * count, 1)
    if size > 1 << 20:
        assert expected >= size
