"""Keys of an upsert are found in a batch whatever integers they are, and however far apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core.engines.arrow import positions as module
from ducklake_core.engines.arrow.positions import key_set
from ducklake_core.format.types.data_types import DATE, INT8, INT16, INT32, INT64, UINT32, UINT64, VARCHAR, DataType, Field
from ducklake_core.format.types.schema import Schema

RANDOM = np.random.default_rng(11)
EDGES: dict[DataType, tuple[int, int]] = {
    INT8: (-(2**7), 2**7 - 1),
    INT16: (-(2**15), 2**15 - 1),
    INT32: (-(2**31), 2**31 - 1),
    INT64: (-(2**63), 2**63 - 1),
    UINT32: (0, 2**32 - 1),
    UINT64: (0, 2**64 - 1),
}
ARROW = {INT8: pa.int8(), INT16: pa.int16(), INT32: pa.int32(), INT64: pa.int64(), UINT32: pa.uint32(), UINT64: pa.uint64()}


def _check(values: pa.Array[Any], source: pa.Array[Any], data_type: DataType) -> None:
    found = key_set(pa.table({"a": source}), ["a"], Schema(columns=(Field(id=1, name="a", type=data_type),)))
    wanted = set(source.to_pylist())
    expected = [value is not None and value in wanted for value in values.to_pylist()]
    assert found.contains(pa.record_batch({"a": values})).to_pylist() == expected


@pytest.mark.parametrize("most", [0, 100, 1 << 22])
@pytest.mark.parametrize("data_type", EDGES, ids=str)
def test_integers(data_type: DataType, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PLACES", most)
    (low, high), arrow = EDGES[data_type], ARROW[data_type]
    near = [int(value) for value in RANDOM.integers(0, 120, 60)]
    values = [*near, None, low, high, *near[:5], low + 1]
    for source in ([3, 50, 119, 7], [low, high], [low + 1, 5, high - 1], [121], []):
        for part in (values, near, [None, None], [low], []):
            _check(pa.array(part, arrow), pa.array(source, arrow), data_type)
        _check(pa.array(values, arrow).slice(7, 55), pa.array(source, arrow), data_type)


def test_other_types() -> None:
    strings = pa.array(["b", None, "a", "c"])
    _check(strings, pa.array(["c", "b"]), VARCHAR)
    _check(pa.array([3, None, 1], pa.date32()), pa.array([1, 2], pa.date32()), DATE)
