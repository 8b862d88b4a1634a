"""Rows as they were at an earlier snapshot: what came since goes, what went since is written again with its row ids.

Files that an earlier snapshot had are never named again: their entries in the catalog say when they ended, and cleanup may be about
to delete them. Rows are told apart by where they are, so that whatever compaction or flushing did in between does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ducklake_core.arrow.changed_rows import ROW_ID_FIELD, ChangedRows, with_row_ids
from ducklake_core.arrow.dataset_writer import DatasetWriter
from ducklake_core.arrow.positions import DeleteTarget, FileDeletion, collect, delete_in_file, hide_positions, physical_rows, position_shape
from ducklake_core.arrow.read import ChosenRows, read_chosen, read_inlined, read_task
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.scan.plan import FileTask, ReadShape, ScanPlan
from ducklake_core.storage.filesystems import Storage


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
    earlier = {task.file.id: task for task in then.tasks}
    found: list[FileDeletion | None] = []
    with DatasetWriter(with_row_ids(state)) as writer:
        for task in now.tasks:
            before = earlier.pop(task.file.id, None)
            if before is None:
                found.append(delete_in_file(task, position_shape(now), target, storage))
            elif not _same_rows(task, before):
                ours, theirs = (_visible(one, plan, storage) for one, plan in ((task, now), (before, then)))
                gone = np.setdiff1d(ours, theirs, assume_unique=True)
                found.append(hide_positions(task.file, gone, now.shape, target, storage) if len(gone) else None)
                _write_back(writer, before, then, np.setdiff1d(theirs, ours, assume_unique=True), storage)
        for before in earlier.values():
            _write_back(writer, before, then, _visible(before, then, storage), storage)
        inlined = _restore_inlined(writer, now, then)
        written = writer.close()
    return ChangedRows(deletions=collect(found, physical_rows(inlined)), inserted=tuple(written))


def _same_rows(one: FileTask, two: FileTask) -> bool:
    """Whether the catalog alone says that the same rows of a file are visible."""

    def hidden(task: FileTask) -> tuple[object, ...]:
        return (task.file.inlined_deletes, task.snapshot_filter)

    return not one.file.delete_files and not two.file.delete_files and hidden(one) == hidden(two)


def _visible(task: FileTask, plan: ScanPlan, storage: Storage) -> np.ndarray:
    parts = [batch.columns[0].to_numpy(zero_copy_only=False) for batch in read_task(task, position_shape(plan), storage)]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _write_back(writer: DatasetWriter, task: FileTask, then: ScanPlan, positions: np.ndarray, storage: Storage) -> None:
    if len(positions):
        chosen = ChosenRows(positions=positions, wanted=True)
        for batch in read_chosen(task, _shape(then), chosen, storage):
            writer.write(_with_row_ids(batch))


def _shape(plan: ScanPlan) -> ReadShape:
    return replace(plan.shape, virtual=("rowid",))


def _with_row_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, names=[*batch.schema.names[:-1], ROW_ID_FIELD.name])


def _restore_inlined(writer: DatasetWriter, now: ScanPlan, then: ScanPlan) -> dict[str, list[int]]:
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
    return read_inlined(rows, _shape(plan)) if rows.num_rows else iter(())


def _inlined_keys(plan: ScanPlan) -> list[tuple[str, int, int]]:
    """What tells an inlined version of a row from all others: its table, its row id and the snapshot that made it."""
    if plan.inlined is None:
        return []
    width = len(plan.read_schema)
    row_ids, snapshots, tables = (plan.inlined.column(width + place).to_pylist() for place in range(3))
    keys: list[Any] = list(zip(tables, row_ids, snapshots, strict=True))
    return keys
