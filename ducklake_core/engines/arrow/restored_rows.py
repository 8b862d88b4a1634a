"""Rows as they were at an earlier snapshot: what came since goes, what went since is written again with its row ids.

Files that an earlier snapshot had are never named again: their entries in the catalog say when they ended, and cleanup may be about
to delete them. Rows are told apart by where they are, so that whatever compaction or flushing did in between does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ducklake_core.engines.arrow.changed_rows import ROW_ID_FIELD, ChangedRows, with_row_ids
from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.positions import DeleteTarget, FileDeletion, collect, delete_in_file, physical_rows, write_position_deletes
from ducklake_core.engines.arrow.read import read_chosen, read_inlined, read_task
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.inlined_columns import InlinedColumn, inlined_column
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """One data file as it is now and as it was then; None where it is not of the table."""

    now: FileTask | None
    then: FileTask | None


def restore_rows(now: ScanPlan, then: ScanPlan, target: DeleteTarget, state: WriteState, storage: Storage) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot.

    One file is looked at after the other, so that memory is bounded by the positions of one.

    Args:
        now: A scan of all columns and rows at the transaction's base snapshot.
        then: The same at the snapshot to go back to; its columns are the same.
        target: Where to write delete files.
        state: How to write data files.
        storage: How to reach files.
    """
    with DatasetWriter(with_row_ids(state)) as writer:
        found = [restore_file(pair, now.shape, then.shape, target, writer, storage) for pair in changed_files(now, then)]
        inlined = restore_inlined(writer, now, then)
        written = writer.close()
    return ChangedRows(deletions=collect(found, physical_rows(inlined)), inserted=tuple(written))


_VERSION: tuple[InlinedColumn, ...] = ("inlined_table", "rowid", "snapshot_id")


def changed_files(now: ScanPlan, then: ScanPlan) -> list[FilePair]:
    """The files of which other rows may be visible now than then."""
    earlier = {task.file.id: task for task in then.tasks}
    pairs = [FilePair(now=task, then=earlier.pop(task.file.id, None)) for task in now.tasks]
    pairs += [FilePair(now=None, then=task) for task in earlier.values()]
    return [pair for pair in pairs if pair.now is None or pair.then is None or not _same_rows(pair.now, pair.then)]


def restore_file(
    pair: FilePair, now: ScanProjection, then: ScanProjection, target: DeleteTarget, writer: DatasetWriter, storage: Storage
) -> FileDeletion | None:
    """The work unit: hide the rows that one file has gained since, and write those that it has lost."""
    if pair.then is None:
        assert pair.now is not None
        return delete_in_file(pair.now, _of_positions(now), target, storage)
    theirs = _visible(pair.then, then, storage)
    if pair.now is None:
        _write_back(writer, pair.then, then, theirs, storage)
        return None
    ours = _visible(pair.now, now, storage)
    gone = np.setdiff1d(ours, theirs, assume_unique=True)
    _write_back(writer, pair.then, then, np.setdiff1d(theirs, ours, assume_unique=True), storage)
    return write_position_deletes(pair.now.file, gone, now, target, storage) if len(gone) else None


def _same_rows(one: FileTask, two: FileTask) -> bool:
    """Whether the catalog alone says that the same rows of a file are visible."""

    def hidden(task: FileTask) -> tuple[object, ...]:
        return (task.file.inlined_deletes, task.snapshot_filter)

    return not one.file.delete_files and not two.file.delete_files and hidden(one) == hidden(two)


def _of_positions(shape: ScanProjection) -> ScanProjection:
    return replace(shape, schema=Schema(columns=()), virtual=("file_row_number",))


def _visible(task: FileTask, shape: ScanProjection, storage: Storage) -> np.ndarray:
    shape = _of_positions(shape)
    parts = [shape.virtual_column(batch, "file_row_number").to_numpy(zero_copy_only=False) for batch in read_task(task, shape, storage)]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _write_back(writer: DatasetWriter, task: FileTask, then: ScanProjection, positions: np.ndarray, storage: Storage) -> None:
    if len(positions):
        chosen = ChosenRows(positions=positions, wanted=True)
        for batch in read_chosen(task, replace(then, virtual=("rowid",)), chosen, storage):
            writer.write(_with_row_ids(batch))


def _with_row_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, names=[*batch.schema.names[:-1], ROW_ID_FIELD.name])


def restore_inlined(writer: DatasetWriter, now: ScanPlan, then: ScanPlan) -> dict[str, list[int]]:
    """Write inlined rows back that are not visible now; those that were not visible then go."""
    ours, theirs = _inlined_keys(now), _inlined_keys(then)
    both = set(ours) & set(theirs)
    if then.inlined is not None:
        back = then.inlined.filter(pa.array([key not in both for key in theirs], pa.bool_()))
        for batch in _inlined_batches(back, then):
            writer.write(_with_row_ids(batch))
    gone: dict[str, list[int]] = {}
    for key in ours:
        if key not in both:
            gone.setdefault(key[0], []).append(key[1])
    return gone


def _inlined_batches(rows: pa.Table, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    return read_inlined(rows, replace(plan.shape, virtual=("rowid",))) if rows.num_rows else iter(())


def _inlined_keys(plan: ScanPlan) -> list[tuple[str, int, int]]:
    """The identity of each inlined version of a row: its table, its row id and the snapshot that made it."""
    if plan.inlined is None:
        return []
    columns = (inlined_column(plan.inlined, plan.read_schema, name).to_pylist() for name in _VERSION)
    keys: list[Any] = list(zip(*columns, strict=True))
    return keys
