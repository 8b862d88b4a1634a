"""Streams of rows in the order in which they go to files, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.clustering import CURVE_COLUMN, HilbertCurve
from ducklake_core.engines.arrow.external_sort import ExternalSort, Places
from ducklake_core.engines.arrow.sorting import sorted_places
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.schema import Schema


def sorted_by(rows: Iterable[pa.RecordBatch], orders: Sequence[SortOrder], columns: Schema, state: WriteState) -> Iterator[pa.RecordBatch]:
    """The rows in a sort order; equal ones keep theirs.

    Raises:
        UnsupportedFeatureError: Arrow cannot sort by one of the columns.
        StorageError: The local disk has no room for them.
    """
    yield from _sorted(rows, lambda batch: sorted_places(batch, orders, columns, state.table), encrypted=state.encrypted)


def sorted_along(rows: Iterable[pa.RecordBatch], curve: HilbertCurve, *, encrypted: bool) -> Iterator[pa.RecordBatch]:
    """The rows as a curve meets them.

    Raises:
        StorageError: The local disk has no room for them.
    """
    numbered = (curve.numbered(batch) for batch in rows)
    for batch in _sorted(numbered, lambda batch: pc.sort_indices(batch.column(CURVE_COLUMN)), encrypted=encrypted):
        yield pa.RecordBatch.from_arrays(batch.columns[:-1], names=batch.schema.names[:-1])


def _sorted(rows: Iterable[pa.RecordBatch], places: Places, *, encrypted: bool) -> Iterator[pa.RecordBatch]:
    sort = ExternalSort(places, encrypted=encrypted)
    try:
        for batch in rows:
            sort.add(batch)
        yield from sort.rows()
    finally:
        sort.close()
