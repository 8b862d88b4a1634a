"""Work in this process: results in order, and strings that are checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.work import in_order
from ducklake_core.errors import SchemaError


def piece(number: int, begun: list[int], seconds: float = 0) -> Callable[[], list[int]]:
    def work() -> list[int]:
        begun.append(number)
        time.sleep(seconds)
        if number == 5:
            raise ValueError(f"piece {number}")
        return [number, number]

    return work


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_results_come_in_the_order_of_the_pieces(workers: int) -> None:
    begun: list[int] = []
    found = list(in_order((piece(number, begun, seconds=0.01 * (3 - number)) for number in range(4)), workers))
    assert found == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(begun) == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_in_the_order_of_the_pieces(workers: int) -> None:
    found: list[int] = []
    with pytest.raises(ValueError, match="piece 5"):
        found.extend(in_order((piece(number, []) for number in range(9)), workers))
    assert list(in_order((piece(number, []) for number in range(5)), workers)) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_no_more_pieces_are_begun_than_fit() -> None:
    begun: list[int] = []
    results = in_order((piece(number, begun) for number in range(100) if number != 5), 2)
    assert begun == []
    assert next(results) == 0
    assert begun == [0]
    assert [next(results) for _ in range(2)] == [0, 1]
    time.sleep(0.05)
    assert len(begun) <= 4
    results.close()
    assert len(begun) <= 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ducklake-reader")]


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
        # One letter of two bytes, half in each string.
        ([0, 1, 2], "é".encode()),
        # Strings that end before they begin.
        ([0, 3, 1, 4], b"abcd"),
    ],
    ids=["no text", "half letters", "offsets that fall"],
)
def test_invalid_strings_raise(lake: DuckLake, ends: list[int], held: bytes, wide: bool) -> None:
    with pytest.raises(SchemaError, match="not strings"):
        lake.table("t").append(pa.table({"a": _text(ends, held, wide=wide)}))
    assert lake.table("t").scan().count() == 1


@pytest.mark.parametrize("wide", [False, True])
def test_valid_strings_are_accepted(lake: DuckLake, wide: bool) -> None:
    """ASCII and UTF-8, slices of arrays with invalid other rows, and empty arrays."""
    wanted = pa.large_string() if wide else pa.string()
    spoiled = _text([0, 2, 5, 6], b"\xff\xfeabcd", wide=wide)
    for array in (spoiled.slice(1), pa.array(["é", None, "", "plain"], wanted), pa.array([], wanted), pa.nulls(3, wanted)):
        lake.table("t").append(pa.table({"a": array}))
    assert sorted(lake.table("t").scan().to_arrow()["a"].to_pylist(), key=str) == sorted(
        ["first", "abc", "d", "é", None, "", "plain", None, None, None], key=str
    )
