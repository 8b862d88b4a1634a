"""Deleted positions as one array: the same answers as sets of positions give, whatever the files."""

from __future__ import annotations

import numpy as np
import pytest

from ducklake_core.engines.spark import native_read
from ducklake_core.engines.spark.native_read import deleted_bits_of

ROWS = 5000


def files(count: int, changed: int, deletes: int) -> tuple[list[str], list[np.ndarray]]:
    made = np.random.default_rng(count * 1000 + changed)
    names = [f"ducklake-{made.integers(1 << 60):015x}.parquet" for _ in range(count)]
    some = [np.unique(made.integers(0, ROWS, deletes)) if number < changed else np.empty(0, dtype=np.int64) for number in range(count)]
    return names, some


@pytest.mark.parametrize(
    ("count", "changed", "deletes"), [(1, 1, 1), (1, 1, 900), (3, 1, 50), (9, 1, 50), (7, 7, 30), (60, 40, 20), (200, 200, 1)]
)
def test_every_position_of_every_file(count: int, changed: int, deletes: int) -> None:
    names, positions = files(count, changed, deletes)
    found = deleted_bits_of(names, positions, count * ROWS)
    assert found is not None
    for index in {0, changed - 1, min(changed, count - 1), count - 1}:
        deleted = set(positions[index].tolist())
        probes = {*deleted, *(np.concatenate(positions)[:200] + 1).tolist(), 0, ROWS - 1, ROWS * 100}
        assert {probe for probe in probes if found.is_deleted(names[index], probe)} == deleted


def test_a_name_that_is_not_known_is_noticed_where_rows_are_deleted() -> None:
    found = deleted_bits_of(["a", "b"], [np.array([3]), np.array([90])], 1000)
    assert found is not None
    assert not found.is_deleted("elsewhere", 4)
    for position in (3, 90):
        with pytest.raises(KeyError):
            found.is_deleted("elsewhere", position)


def test_a_join_where_the_array_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    names, positions = files(50, 50, 400)
    assert deleted_bits_of(names, positions, 50 * ROWS) is None
    assert deleted_bits_of(names, [np.empty(0, dtype=np.int64)] * 50, 50 * ROWS) is None
    far = [np.array([1 << 32])]
    assert deleted_bits_of(names[:1], far, 1 << 33) is not None
    assert deleted_bits_of(names[:1], far, 1 << 38) is None
    assert deleted_bits_of(names[:1], [np.array([1, 1 << 32])], 1 << 33) is None
    monkeypatch.setattr(native_read, "MAX_NAMES", 3)
    assert deleted_bits_of(names[:4], files(4, 4, 2)[1], 4 * ROWS) is None
