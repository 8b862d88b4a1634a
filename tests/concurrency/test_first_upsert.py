"""An upsert that creates its table holds its keys to the same rules as a later one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.support.oracle import LakeAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPEATED = [(1, "a"), (2, "b"), (1, "c")]
WITHOUT_KEY = [(1, "a"), (None, "b")]
GOOD = [(1, "a"), (2, "b")]


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)


def check(lake: DuckLake, frame: Any) -> None:
    with pytest.raises(UsageError, match="more than once"):
        lake.write("t", frame(REPEATED), mode="upsert", on=["k"])
    with pytest.raises(UsageError, match="NULL"):
        lake.write("t", frame(WITHOUT_KEY), mode="upsert", on=["k"])
    assert not lake.has_table("t")
    assert not list(Path(lake.info.data_path).rglob("*.parquet"))
    assert lake.write("t", frame(GOOD), mode="upsert", on=["k"]).rows_added == 2
    assert lake.write("t", frame([(2, "z")]), mode="upsert", on=["k"]).rows_deleted == 1


def test_with_arrow(lake: DuckLake) -> None:
    check(lake, lambda rows: pa.table({"k": pa.array([k for k, _ in rows], pa.int32()), "v": [v for _, v in rows]}))


@pytest.mark.slow
def test_with_spark(lake: DuckLake, spark: SparkSession) -> None:
    check(lake, lambda rows: spark.createDataFrame(rows, "k int, v string"))
