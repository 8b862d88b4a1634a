"""Rows along a Hilbert curve through several columns, so that ranges of any of them lie in few files.

Values do not matter to the curve, only how many rows are below them: each column is cut into ranges that hold about as many rows
each, as a sample says, and the curve goes through the numbers of these ranges (J. Skilling, Programming the Hilbert curve, 2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.sorting import comparable_values
from ducklake_core.format.types.schema import Schema

SAMPLED_ROWS = 100_000
"""So many rows, about, say where the ranges of a column begin."""

CURVE_COLUMN = "_ducklake_internal_curve"
_MOST_BITS = 10
_WORD_BITS = 64

Codes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class HilbertCurve:
    """A curve through some columns.

    Attributes:
        schema: The columns, by name.
        bounds: For each the values at which its ranges begin, ascending, without NULL.
        bits: Each column has fewer than 2 to the power of this many bounds.
    """

    schema: Schema
    bounds: tuple[pa.Array, ...]
    bits: int

    def numbered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their place on the curve in a column behind the others, :data:`CURVE_COLUMN`."""
        codes = [
            _codes(comparable_values(rows.column(column.name), column), bounds)
            for column, bounds in zip(self.schema, self.bounds, strict=True)
        ]
        return rows.append_column(CURVE_COLUMN, pa.array(hilbert_index(codes, self.bits)))


def sampled_curve(batches: Iterable[pa.RecordBatch], schema: Schema, rows: int) -> HilbertCurve:
    """The curve that suits some rows.

    Args:
        batches: The rows; of one in so many is kept what it has in the columns.
        schema: The columns, two at least.
        rows: How many rows there are, about.
    """
    bits = min(_MOST_BITS, _WORD_BITS // len(schema))
    # The same rows every time, and no pattern of the data that a fixed step could fall in with.
    chance, random = min(1.0, SAMPLED_ROWS / max(1, rows)), np.random.default_rng(0)
    kept: list[list[pa.Array]] = [[] for _ in schema]
    for batch in batches:
        chosen = pa.array(np.flatnonzero(random.random(batch.num_rows) < chance))
        for values, column in zip(kept, schema, strict=True):
            values.append(comparable_values(batch.column(column.name).take(chosen), column))
    return HilbertCurve(schema=schema, bounds=tuple(_bounds(values, 2**bits) for values in kept), bits=bits)


def _bounds(parts: Sequence[pa.Array], ranges: int) -> pa.Array:
    # No part at all where every row is deleted.
    values = pa.concat_arrays(parts).drop_null() if parts else pa.nulls(0)
    if not len(values):
        return values
    ascending = values.take(pc.sort_indices(values))
    places = np.unique(np.arange(1, ranges) * len(ascending) // ranges)
    # The same value may begin several ranges of about as many rows; then they are one. It stays sorted.
    return pc.unique(ascending.take(pa.array(places)))


def _codes(values: pa.Array, bounds: pa.Array) -> Codes:
    """For each value how many bounds are not above it; NULL comes last, as NaN does among numbers."""
    both = pa.concat_arrays([bounds, values])
    # Stable: of equal ones the bound comes first.
    places = pc.sort_indices(both).to_numpy()
    is_bound = places < len(bounds)
    passed = np.cumsum(is_bound, dtype=np.uint64)
    codes = np.empty(len(values), np.uint64)
    codes[places[~is_bound].astype(np.int64) - len(bounds)] = passed[~is_bound]
    return codes


def hilbert_index(codes: Sequence[Codes], bits: int) -> Codes:
    """Where points lie on a Hilbert curve that goes through all of space.

    >>> square = [np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)]
    >>> hilbert_index(square, 1).tolist()
    [0, 1, 2, 3]

    Args:
        codes: One array for each dimension, of numbers below 2 to the power of ``bits``.
        bits: Times the number of dimensions at most 64.
    """
    axes = [axis.astype(np.uint64) for axis in codes]
    one, none = np.uint64(1), np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        high, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for number in range(len(axes)):
            is_set = (axes[number] & high) != none
            exchanged = np.where(is_set, none, (axes[0] ^ axes[number]) & below)
            axes[0] = np.where(is_set, axes[0] ^ below, axes[0] ^ exchanged)
            if number:
                axes[number] = axes[number] ^ exchanged
    for number in range(1, len(axes)):
        axes[number] = axes[number] ^ axes[number - 1]
    turned = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        turned = np.where((axes[-1] & np.uint64(1 << bit)) != none, turned ^ np.uint64((1 << bit) - 1), turned)
    index = np.zeros_like(axes[0])
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            index = (index << one) | (((axis ^ turned) >> np.uint64(bit)) & one)
    return index
