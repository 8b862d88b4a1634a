"""Tables, and rows of files that others wrote."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached

A = pa.table({"a": pa.array([1, 2, None], pa.int32()), "b": ["x", None, "z"]})
NESTED = pa.table(
    {
        "A": pa.array([1, 2], pa.int32()),
        "s": pa.array(
            [{"X": 1, "y": {"z": "q"}}, {"X": 2, "y": None}], pa.struct([("X", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
        ),
        "l": pa.array([[{"p": 1}], [None, {"p": 3}]], pa.list_(pa.struct([("p", pa.int32())]))),
        "m": pa.array([[("k", {"v": 1})], []], pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
        "ll": pa.array([[[1]], [[2, 3], None]], pa.list_(pa.list_(pa.int32()))),
    }
)
NESTED_COLUMNS = (
    "a INTEGER, s STRUCT(x INTEGER, y STRUCT(z VARCHAR)), l STRUCT(p INTEGER)[], m MAP(VARCHAR, STRUCT(v INTEGER)), ll INTEGER[][]"
)
AB = "CREATE TABLE t (a INTEGER, b VARCHAR)"
ABG = "CREATE TABLE t (a INTEGER, b VARCHAR, g INTEGER)"


def prepared(address: LakeAddress, *statements: str) -> DuckLake:
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*statements)
    return DuckLake.connect(address.url)
