"""A column whose name is the path of another: its row groups are not judged by the other's statistics."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core import DuckLake


def test_a_dotted_name_next_to_a_struct(small: DuckLake) -> None:
    struct = pa.array([{"b": number + 1000} for number in range(10)], pa.struct([("b", pa.int64())]))
    small.write("t", pa.table({"a.b": pa.array(range(10), pa.int64()), "a": struct}))
    scan = small.table("t").scan(where='"a.b" = 5')
    assert scan.to_arrow().column("a.b").to_pylist() == [5]
