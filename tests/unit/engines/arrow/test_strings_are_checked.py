"""Texts that are no UTF-8, and offsets that are none, are refused whatever way they are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError


def _text(ends: list[int], held: bytes, *, wide: bool = False) -> pa.Array[Any]:
    offsets = np.array(ends, np.int64 if wide else np.int32)
    kind = pa.large_string() if wide else pa.string()
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(held)])


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.write("t", pa.table({"a": pa.array(["first"])}))
    return lake


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("ends", "held"),
    [
        ([0, 1, 3], b"a\xff\xfe"),
        # One letter of two bytes, half in each text.
        ([0, 1, 2], "é".encode()),
        # Texts that end before they begin.
        ([0, 3, 1, 4], b"abcd"),
    ],
    ids=["no text", "half letters", "offsets that fall"],
)
def test_refused(lake: DuckLake, ends: list[int], held: bytes, wide: bool) -> None:
    with pytest.raises(SchemaError, match="not text"):
        lake.table("t").append(pa.table({"a": _text(ends, held, wide=wide)}))
    assert lake.table("t").scan().count() == 1


@pytest.mark.parametrize("wide", [False, True])
def test_taken(lake: DuckLake, wide: bool) -> None:
    """Seven bits and eight, parts of arrays whose other rows are no text, and none at all."""
    wanted = pa.large_string() if wide else pa.string()
    spoiled = _text([0, 2, 5, 6], b"\xff\xfeabcd", wide=wide)
    for array in (spoiled.slice(1), pa.array(["é", None, "", "plain"], wanted), pa.array([], wanted), pa.nulls(3, wanted)):
        lake.table("t").append(pa.table({"a": array}))
    assert sorted(lake.table("t").scan().to_arrow()["a"].to_pylist(), key=str) == sorted(
        ["first", "abc", "d", "é", None, "", "plain", None, None, None], key=str
    )
