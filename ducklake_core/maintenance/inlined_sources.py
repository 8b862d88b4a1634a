"""The rows of a table that are in the catalog, read to be moved: one physical table after another, in parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ducklake_core.catalog.changed_files import Definition, definitions
from ducklake_core.catalog.inlined.batches import stored_batches
from ducklake_core.catalog.inlined.rows import ROW_ID
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.state import InlinedTable, TableState
from ducklake_core.format.types.schema import Schema
from ducklake_core.storage.held_batches import HeldBatches

TASK_ROWS = 65_536
"""Most rows that one executor makes files of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedSource:
    """A physical table of inlined rows, with the columns and keys that its rows follow."""

    inlined: InlinedTable
    schema: Schema
    spec: PartitionSpec | None


def inlined_sources(reader: CatalogReader, table: TableState) -> list[InlinedSource]:
    """The physical tables that are registered for a table, in the order of their schema versions."""
    if not table.inlined_tables:
        return []
    defined: Definition = definitions(reader, [table.id])[table.id]
    return [
        InlinedSource(
            inlined=inlined,
            schema=defined.versions.schema_at(inlined.schema_version),
            spec=defined.spec_at(defined.versions.snapshot_of(inlined.schema_version)),
        )
        for inlined in table.inlined_tables
    ]


def hold_rows(
    reader: CatalogReader,
    table: TableState,
    source: InlinedSource,
    *,
    row_count: int,
    encrypted: bool,
    may_be_in_order: bool,
    any_ended: bool,
) -> HeldBatches:
    """All rows of a physical table, by row id and snapshot; whoever gets them closes them.

    Args:
        row_count: About how many rows there are.
        encrypted: Whether what goes to the local disk is encrypted.
        may_be_in_order: Whether the database likely finds them in order, as files do where no row was updated: sorting them takes half as
            long as reading them. Where they are not, they are read once more.
        any_ended: Whether any row may have ended.
    """
    if may_be_in_order:
        held = _held(reader, table, source, row_count, encrypted=encrypted, ordered=False, any_ended=any_ended)
        if held is not None:
            return held
    held = _held(reader, table, source, row_count, encrypted=encrypted, ordered=True, any_ended=any_ended)
    assert held is not None
    return held


def _held(
    reader: CatalogReader, table: TableState, source: InlinedSource, row_count: int, *, encrypted: bool, ordered: bool, any_ended: bool
) -> HeldBatches | None:
    """The rows, None as soon as they are found not to be in order."""
    held = HeldBatches(encrypted=encrypted)
    last = -1
    try:
        batches = stored_batches(reader, table, source.inlined, source.schema, row_count=row_count, ordered=ordered, any_ended=any_ended)
        with closing(batches) as parts:
            for part in parts:
                row_ids = part[ROW_ID].to_numpy()
                if not ordered and (row_ids[0] <= last or bool((np.diff(row_ids) <= 0).any())):
                    held.close()
                    return None
                last = row_ids[-1]
                for batch in part.to_batches():
                    held.add(batch)
    except BaseException:
        held.close()
        raise
    return held


def task_parts(rows: HeldBatches) -> Iterator[pa.Table]:
    """The rows in parts for executors."""
    part: list[pa.RecordBatch] = []
    for piece in _pieces(rows):
        if part and sum(one.num_rows for one in part) + piece.num_rows > TASK_ROWS:
            yield pa.Table.from_batches(part)
            part = []
        part.append(piece)
    if part:
        yield pa.Table.from_batches(part)


def _pieces(rows: HeldBatches) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches():
        for start in range(0, batch.num_rows, TASK_ROWS):
            # Taken, not cut: what is pickled of a slice is all of the batch.
            places = pa.array(range(start, min(start + TASK_ROWS, batch.num_rows)), pa.int64())
            yield batch if batch.num_rows <= TASK_ROWS else batch.take(places)
