"""Columns of Spark frames that have no type, as all is NULL: those of the table fit them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


def test_nulls_in_arrays_and_structs_fit_every_type(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    struct = pa.struct([("Y", pa.list_(pa.decimal128(5, 2))), ("x", pa.date32())])
    types = {"k": pa.int64(), "a": pa.string(), "l": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.bool_()), "s": struct}
    lake.create_table("t", pa.schema(list(types.items())))
    frame = spark.sql("SELECT 1L k, null a, array() l, map('q', null) m, named_struct('x', null, 'y', array(null)) s")
    lake.write("t", frame, mode="append")
    lake.table("t").merge(frame, on=["k"]).when_matched_update().execute()
    lake.table("t").merge(frame.selectExpr("2L k", "a", "l", "m", "s"), on=["k"]).when_not_matched_insert().execute()
    with attached(sqlite_address) as duck:
        row = (None, [], {"q": None}, {"Y": [None], "x": None})
        assert duck.rows("FROM t ORDER BY k") == [(1, *row), (2, *row)]
