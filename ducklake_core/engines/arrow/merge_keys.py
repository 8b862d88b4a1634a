"""The keys of a merge's source, by which readers of the table leave out rows that cannot match before anybody joins them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.comparable import hashable, unified
from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.read import read_chosen, read_inlined, read_plan, read_task
from ducklake_core.engines.arrow.source_index import distinct_values, key_domain
from ducklake_core.format.expressions import pruning
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.storage.filesystems import Storage

SOUGHT = 250_000
"""Readers of the table know the keys of so many rows of the source at most; a larger source is joined with all rows in its range."""

_POSITION = ("file_row_number",)
_WHOLE_BYTES = 4 << 20
"""Files up to this size are read in one go; of larger ones first the keys, then the parts with rows that may match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKeys:
    """Where the keys are; small enough to travel with every task.

    Attributes:
        parts: Column of the target and column of the source of each part of the key.
        plan: A scan of the source's files; None when ``rows`` has them.
        rows: The source's key columns, distinct values in no particular rows.
    """

    parts: tuple[tuple[Field, Field], ...]
    plan: ScanPlan | None = None
    rows: tuple[pa.Array[Any], ...] = ()

    def load(self, storage: Storage) -> KeyFilter:
        """Read the keys.

        Raises:
            StorageError: A file of the source cannot be read.
        """
        if self.plan is None:
            return KeyFilter(self.parts, self.rows)
        names = [column.name for _, column in self.parts]
        table = pa.Table.from_batches(read_plan(self.plan, storage), self.plan.shape.arrow_schema())
        return KeyFilter(self.parts, [table.column(name).combine_chunks() for name in names])


class KeyFilter:
    """Tells which rows may match: those each part of whose key occurs in the source, as SQL compares. NULL never does.

    Args:
        parts: Column of the target and column of the source of each part of the key.
        values: What the source has in each of these columns.
    """

    def __init__(self, parts: Sequence[tuple[Field, Field]], values: Sequence[Any]) -> None:
        self._parts = [
            (target, column, key_domain(target, column), distinct_values(known))
            for (target, column), known in zip(parts, values, strict=True)
        ]

    def rows(self, task: FileTask, shape: ScanProjection, storage: Storage, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of a file that may match; else as :func:`ducklake_core.engines.arrow.read.read_task`."""
        if task.file.file_size_bytes <= _WHOLE_BYTES:
            yield from self._of(read_task(task, shape, storage, threads=threads), shape)
            return
        keys = self._shape(shape)
        found = [
            np.asarray(keys.virtual_column(batch, *_POSITION)) for batch in self._of(read_task(task, keys, storage, threads=threads), keys)
        ]
        if found:
            chosen = ChosenRows(positions=np.concatenate(found), wanted=True)
            yield from read_chosen(task, shape, chosen, storage, threads=threads)

    def inlined(self, rows: pa.Table, shape: ScanProjection) -> Iterator[pa.RecordBatch]:
        """Likewise of inlined rows."""
        return self._of(read_inlined(rows, shape), shape)

    def _shape(self, shape: ScanProjection) -> ScanProjection:
        """Key columns and positions, and what the predicate needs."""
        ids = {target.id for target, *_ in self._parts}
        read = ids | (pruning.columns(shape.predicate) if shape.predicate is not None else frozenset())
        return replace(
            shape,
            schema=Schema(columns=tuple(column for column in shape.schema if column.id in ids)),
            read_schema=Schema(columns=tuple(column for column in shape.read_schema if column.id in read)),
            virtual=_POSITION,
        )

    def _of(self, batches: Iterator[pa.RecordBatch], shape: ScanProjection) -> Iterator[pa.RecordBatch]:
        place = {column.id: index for index, column in enumerate(shape.schema)}
        for batch in batches:
            mask = np.ones(batch.num_rows, dtype=bool)
            for target, column, domain, known in self._parts:
                ours, theirs = unified(batch.column(place[target.id]), target.type, known, column.type, domain)
                mask &= np.asarray(pc.is_in(hashable(ours), value_set=hashable(theirs)))
            kept = batch if mask.all() else batch.filter(pa.array(mask))
            if kept.num_rows:
                yield kept
