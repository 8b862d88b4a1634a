"""Columns without a type of their own: all NULL in this frame, whatever the table's type is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


def test_a_column_of_nulls_fits_every_column(sqlite_address: LakeAddress, oracle: Callable[..., Any]) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    types = {"s": pa.string(), "d": pa.date32(), "n": pa.decimal128(10, 2), "l": pa.list_(pa.int32()), "r": pa.struct([("x", pa.string())])}
    lake.create_table("t", pa.schema([("id", pa.int32()), *types.items()]))
    nulls = {name: pa.nulls(2) for name in types}
    lake.table("t").append(pa.table({"id": pa.array([1, 2], pa.int32()), **nulls}))

    assert lake.table("t").scan(columns=list(types)).to_arrow().to_pylist() == [dict.fromkeys(types)] * 2
    with oracle(sqlite_address) as duck:
        assert duck.rows("SELECT * FROM t ORDER BY id") == [(1, *[None] * 5), (2, *[None] * 5)]
