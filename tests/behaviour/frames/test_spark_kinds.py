"""Frames of Spark: integers wider than the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from tests.support.oracle import LakeAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", {"id": "int32"})
    return lake


def test_longs_that_fit_are_accepted_and_others_rejected(lake: DuckLake, spark: SparkSession) -> None:
    lake.table("t").append(spark.range(3))
    with pytest.raises(SchemaError, match=r"column 'id'.*2147483648"):
        lake.table("t").append(spark.range(2**31 - 2, 2**31 + 2))
    assert sorted(lake.table("t").scan().to_arrow().column("id").to_pylist()) == [0, 1, 2]
