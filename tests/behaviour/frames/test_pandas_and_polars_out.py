"""Values that pandas and Polars have no exact type for: integers next to NULL inside other types, and intervals."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError

BIG = 2**60 + 1
DAYS = [timedelta(seconds=1), None, timedelta(days=-2)]


@pytest.mark.parametrize("dtype_backend", ["numpy", "numpy_nullable"])
def test_integers_in_structs_lists_and_maps_stay_exact_next_to_null(
    lake: DuckLake, dtype_backend: Literal["numpy", "numpy_nullable"]
) -> None:
    nested = {
        "s": pa.array([{"k": BIG}, None], pa.struct({"k": pa.int64()})),
        "l": pa.array([[BIG, None], None], pa.list_(pa.int64())),
        "m": pa.array([[("a", BIG), ("b", None)], None], pa.map_(pa.string(), pa.int64())),
        "n": pa.array([[{"k": BIG}, None], None], pa.list_(pa.struct({"k": pa.int64()}))),
    }
    lake.write("t", pa.table(nested))
    row = lake.table("t").to_pandas(dtype_backend=dtype_backend).iloc[0]
    assert (row["s"], list(row["l"]), row["m"], list(row["n"])) == ({"k": BIG}, [BIG, None], [("a", BIG), ("b", None)], [{"k": BIG}, None])


def test_small_integers_next_to_null_are_floats_as_pandas_has_them(lake: DuckLake) -> None:
    frame = pa.table({"n": pa.array([1, None], pa.int16()), "u": pa.array([2, None], pa.uint64()), "whole": [1, 2]})
    lake.write("t", frame)
    pd.testing.assert_frame_equal(lake.table("t").to_pandas(), frame.to_pandas())


def test_durations_of_pandas_come_back(lake: DuckLake) -> None:
    frame = pd.DataFrame({"d": pd.to_timedelta(DAYS).as_unit("us")})
    lake.write("t", frame)
    table = lake.table("t")
    pd.testing.assert_frame_equal(table.to_pandas(), frame)
    assert table.to_pandas(dtype_backend="pyarrow")["d"].sum() == timedelta(seconds=1, days=-2)


def test_durations_of_polars_come_back(lake: DuckLake) -> None:
    frame = pl.DataFrame({"d": DAYS, "n": [1, 2, 3]})
    lake.write("t", frame)
    table = lake.table("t")
    assert table.to_polars().equals(frame)
    assert table.to_polars_lazy().filter(pl.col("d") < timedelta(0)).select("n").collect().to_dicts() == [{"n": 3}]


def test_intervals_of_months_are_no_durations(lake: DuckLake) -> None:
    lake.sql("CREATE TABLE t AS SELECT INTERVAL '1 month 2 days' AS i, [INTERVAL '1 day'] AS l")
    months = lake.table("t").scan(columns=["i"])
    for frame in (months.to_pandas(), months.to_pandas(dtype_backend="pyarrow")):
        assert frame["i"].tolist() == [pd.DateOffset(months=1, days=2, nanoseconds=0)]
        assert "months=1" in str(frame)
    for read in (months.to_polars, months.to_polars_lazy().collect):
        with pytest.raises(UnsupportedFeatureError, match=r"column 'i' has intervals of months .*Use to_arrow\(\)"):
            read()
    with pytest.raises(UnsupportedFeatureError, match=r"column 'l' has intervals inside lists, structs or maps"):
        lake.table("t").scan(columns=["l"]).to_polars()
