"""A column whose name is the path of another: its row groups are not judged by the other's statistics."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


def test_a_dotted_name_next_to_a_struct(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    struct = pa.array([{"b": number + 1000} for number in range(10)], pa.struct([("b", pa.int64())]))
    lake.write("t", pa.table({"a.b": pa.array(range(10), pa.int64()), "a": struct}))
    scan = lake.table("t").scan(where='"a.b" = 5')
    assert scan.to_arrow().column("a.b").to_pylist() == [5]
