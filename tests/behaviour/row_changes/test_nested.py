"""Nested columns of a merge's source, whose types have ids and spellings of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = (
    'CREATE TABLE t (k INTEGER, l INTEGER[], s STRUCT(a INTEGER, "b c" VARCHAR), m MAP(VARCHAR, STRUCT(x INTEGER[])))',
    "INSERT INTO t VALUES (1, [1], {'a': 1, 'b c': 'x'}, MAP {'q': {'x': [1]}})",
)
SOURCE = pa.table(
    {
        "k": pa.array([1, 2], pa.int32()),
        "l": pa.array([[7, None], None], pa.list_(pa.field("l", pa.int32()))),
        # Fields are found by name, in whatever order and case.
        "s": pa.array([{"B c": "y", "A": 3}, None], pa.struct([("B c", pa.string()), ("A", pa.int32())])),
        "m": pa.array([[("z", {"x": [5]})], None], pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.int32()))]))),
    }
)


def check(address: LakeAddress, source: Any) -> None:
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*TABLE)
        table = DuckLake.connect(address.url).table("t")
        table.merge(source, on=["k"]).when_matched_update("all").when_not_matched_insert("all").execute()
        assert duck.rows("FROM t ORDER BY k") == [
            (1, [7, None], {"a": 3, "b c": "y"}, {"z": {"x": [5]}}),
            (2, None, None, None),
        ]


def test_with_arrow(sqlite_address: LakeAddress) -> None:
    check(sqlite_address, SOURCE)
    wide = pa.table({"k": pa.array([1], pa.int32()), "l": pa.array([[1]], pa.list_(pa.int64()))})
    with pytest.raises(UnsupportedFeatureError, match=r"a cast from list<int64> to list<int32>"):
        DuckLake.connect(sqlite_address.url).table("t").merge(wide, on=["k"]).when_matched_update({"l": "s.l"}).execute()


@pytest.mark.slow
def test_with_spark(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    check(sqlite_address, spark.createDataFrame(SOURCE))
