"""Session settings that tests of Spark share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ducklake_core.engines.spark.scan_schema import TYPES_CONF


@pytest.fixture
def nearest_types(spark: SparkSession) -> Iterator[None]:
    """Times as times, which the oracle compares with its own."""
    spark.conf.set(TYPES_CONF, "nearest")
    yield
    spark.conf.unset(TYPES_CONF)
