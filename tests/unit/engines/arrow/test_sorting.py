"""Rows sorted on the local disk along a curve, and the files that it touches by their bounds."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from ducklake_core.engines.arrow.sorting import hilbert_index
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.maintenance.clustering import expected_gain, touched_files

COLUMN = Field(id=1, name="a", type=INT64)


@pytest.mark.parametrize(("columns", "bits"), [(2, 1), (2, 4), (3, 3), (4, 2)])
def test_the_curve_goes_through_every_point_step_by_step(columns: int, bits: int) -> None:
    grid = [axis.ravel() for axis in np.meshgrid(*[np.arange(2**bits, dtype=np.uint64)] * columns, indexing="ij")]
    index = hilbert_index(grid, bits)
    assert sorted(index.tolist()) == list(range(2 ** (bits * columns)))
    path = list(zip(*(axis[np.argsort(index)].astype(int).tolist() for axis in grid), strict=True))
    assert all(sum(abs(a - b) for a, b in zip(one, two, strict=True)) == 1 for one, two in pairwise(path))


def statistics(low: int | None, high: int | None, count: int | None = 1) -> dict[int, ColumnStatistics]:
    bounds = {"min_value": None if low is None else str(low), "max_value": None if high is None else str(high)}
    return {1: ColumnStatistics(column_id=1, column_size_bytes=0, value_count=count, null_count=0, **bounds)}


def test_touched_files_are_those_whose_bounds_overlap() -> None:
    chance = random.Random(1)
    for _ in range(200):
        bounds = [sorted((chance.randint(0, 9), chance.randint(0, 9))) for _ in range(chance.randint(1, 9))]
        touched = [
            sum(other < high and end > low for other, end in bounds) if low < high else 1 + sum(other < low < end for other, end in bounds)
            for low, high in bounds
        ]
        assert touched_files([COLUMN], [statistics(low, high) for low, high in bounds]) == pytest.approx(sum(touched) / len(bounds))


def test_files_without_bounds_are_touched_by_everything_and_those_without_values_by_nothing() -> None:
    assert touched_files([COLUMN], []) == 0
    assert touched_files([COLUMN], [statistics(None, None), {}]) == 2
    assert touched_files([COLUMN], [statistics(0, 1), statistics(5, 6), statistics(None, None, 0)]) == 1
    gain = expected_gain([COLUMN], [statistics(0, 9)] * 6, 3)
    assert (gain.touched, gain.touched_after, gain.is_worth_it) == (6, 1, True)
    assert not expected_gain([COLUMN], [statistics(n, n + 1) for n in range(6)], 3).is_worth_it
