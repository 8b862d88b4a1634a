"""Read a change feed with Arrow: the work units, for this process and for executors, and the pairing of updates in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, assert_never, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.read import read_chosen, read_inlined
from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown
from ducklake_core.planning.plan import (
    CHANGE_TYPE,
    DELETE,
    FEED_ROW_ID,
    FEED_SNAPSHOT_ID,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    ChangePlan,
    ChangeTask,
    DeletedRows,
    FeedShape,
    FileTask,
    InlinedChanges,
    InsertedRows,
    covered,
    feed_arrow_schema,
)
from ducklake_core.storage.delete_files import read_deletes_of
from ducklake_core.storage.filesystems import Storage

_NOTHING = np.empty(0, dtype=np.int64)
# Indexes of the columns that every feed begins with; a table may have columns of the same names.
_SNAPSHOT_ID, _ROW_ID, _CHANGE_TYPE = range(3)
FEED_COLUMNS = (FEED_SNAPSHOT_ID.name, FEED_ROW_ID.name, CHANGE_TYPE.name)

Source: TypeAlias = ChangeTask | InlinedChanges


def read_changes(plan: ChangePlan, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a feed, in the order of its sources; memory is bounded by batches.

    A feed of both kinds also holds the row ids (8 bytes each) of rows that were deleted by a snapshot that added rows too, and
    once more of those that were updated.

    Raises:
        NotFoundError: A file of the plan is missing (expired and cleaned up since it was planned).
        CorruptFileError: A file does not match its record in the catalog.
        UnsupportedFeatureError: The predicate or a file needs a feature that only Spark has, or that is not supported at all.
    """
    for batch in _paired(plan, storage) if plan.updates else _unpaired(plan, storage):
        kept = _matching(batch, plan.predicate)
        if kept.num_rows:
            yield _returned(kept, plan)


def read_change_task(task: ChangeTask, shape: FeedShape, storage: Storage, *, threads: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one data file, with the schema ``shape.arrow_schema()``; an update counts as a delete and an insert.

    Args:
        task: The file, and which rows of it.
        shape: What to return.
        storage: How to open files.
        threads: Whether to decode columns in parallel; executors have one core for a task.
    """
    match task:
        case InsertedRows():
            yield from _inserted(task, shape, storage, threads)
        case DeletedRows():
            yield from _deleted(task, shape, storage, threads)
        case _:
            assert_never(task)


def read_inlined_changes(changes: InlinedChanges, shape: FeedShape) -> Iterator[pa.RecordBatch]:
    """Yield the changes that the catalog itself holds, in the form of those of a file."""
    read = replace(shape.read, virtual=("rowid", "snapshot_id"))
    # read_inlined() expects the column, but a feed returns no file names.
    rows = changes.rows.append_column("inlined_table", pa.nulls(changes.rows.num_rows, pa.string()))
    for batch in read_inlined(rows, read):
        row_ids, snapshots = (read.virtual_column(batch, name) for name in read.virtual)
        yield from _feed_batch(batch, row_ids, snapshots.to_numpy(), shape, DELETE if changes.deleted else INSERT)


def _inserted(task: InsertedRows, shape: FeedShape, storage: Storage, threads: bool) -> Iterator[pa.RecordBatch]:
    # A feed contains rows that a later snapshot deleted: the deletes of the file do not count.
    file = replace(task.file, delete_files=(), inlined_deletes=())
    several = file.partial_max is not None and file.partial_max != file.begin_snapshot
    one = FileTask(file=file, snapshot_filter=shape.end if several else None, rows=task.rows)
    read = replace(shape.read, virtual=("rowid", "snapshot_id"))
    for batch in read_chosen(one, read, ChosenRows(positions=_NOTHING, wanted=False), storage, threads=threads):
        row_ids, snapshots = (read.virtual_column(batch, name) for name in read.virtual)
        yield from _feed_batch(batch, row_ids, snapshots.to_numpy(), shape, INSERT)


def _deleted(task: DeletedRows, shape: FeedShape, storage: Storage, threads: bool) -> Iterator[pa.RecordBatch]:
    positions, snapshots = _first_deletes(task, storage)
    reported = shape.in_range(snapshots)
    if task.ended is None:
        chosen = ChosenRows(positions=positions[reported], wanted=True)
    else:
        # The file ended in the range: every row that no earlier delete hid was deleted then.
        chosen = ChosenRows(positions=positions[~reported], wanted=False)
    positions, snapshots = positions[reported], snapshots[reported]
    if chosen.wanted and not len(positions):
        return
    one = FileTask(file=task.file, rows=task.rows)
    read = replace(shape.read, virtual=("rowid", "file_row_number"))
    for batch in read_chosen(one, read, chosen, storage, threads=threads):
        row_ids, places = (read.virtual_column(batch, name) for name in read.virtual)
        yield from _feed_batch(batch, row_ids, _lookup(places.to_numpy(), positions, snapshots, task.ended), shape, DELETE)


def _first_deletes(task: DeletedRows, storage: Storage) -> tuple[np.ndarray, np.ndarray]:
    """Return deleted positions, ascending, each with the first snapshot that deleted it: later delete files repeat earlier ones."""
    found = [read_deletes_of(storage, one, task.file) for one in task.file.delete_files]
    positions = [one.positions for one in found]
    snapshots = [
        one.snapshots if one.snapshots is not None else np.full(len(one.positions), file.begin_snapshot, dtype=np.int64)
        for one, file in zip(found, task.file.delete_files, strict=True)
    ]
    if task.inlined:
        inlined = np.array(task.inlined, dtype=np.int64)
        positions.append(inlined[:, 0])
        snapshots.append(inlined[:, 1])
    if not positions:
        return _NOTHING, _NOTHING
    every, when = np.concatenate(positions), np.concatenate(snapshots)
    order = np.lexsort((when, every))
    every, when = every[order], when[order]
    first = np.ones(len(every), dtype=bool)
    first[1:] = every[1:] != every[:-1]
    return every[first], when[first]


def _lookup(wanted: np.ndarray, positions: np.ndarray, snapshots: np.ndarray, otherwise: int | None) -> np.ndarray:
    if otherwise is None:
        return snapshots[np.searchsorted(positions, wanted)]
    if not len(positions):
        return np.full(len(wanted), otherwise, dtype=np.int64)
    place = np.minimum(np.searchsorted(positions, wanted), len(positions) - 1)
    return np.where(positions[place] == wanted, snapshots[place], otherwise)


def _feed_batch(
    batch: pa.RecordBatch, row_ids: pa.Array[Any], snapshots: np.ndarray, shape: FeedShape, change: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range: feed columns first, then the table's."""
    mask = shape.in_range(snapshots)
    arrays = [pa.array(snapshots), row_ids]
    if CHANGE_TYPE in shape.schema.columns:
        arrays.append(pa.repeat(pa.scalar(change), len(snapshots)))
    whole = pa.RecordBatch.from_arrays([*arrays, *batch.columns[: len(shape.read.schema)]], schema=shape.arrow_schema())
    kept = whole if mask.all() else whole.filter(pa.array(mask))
    if kept.num_rows:
        yield kept


def _read(source: Source, shape: FeedShape, storage: Storage) -> Iterator[pa.RecordBatch]:
    if isinstance(source, InlinedChanges):
        return read_inlined_changes(source, shape)
    return read_change_task(source, shape, storage)


def _unpaired(plan: ChangePlan, storage: Storage) -> Iterator[pa.RecordBatch]:
    for source in (*plan.tasks, *plan.inlined):
        yield from _read(source, plan.shape, storage)


class _Keys:
    """Rows known by the snapshot that changed them and their row id."""

    def __init__(self) -> None:
        self._parts: dict[int, list[np.ndarray]] = {}
        self._row_ids: dict[int, np.ndarray] = {}

    def add(self, batch: pa.RecordBatch, mask: np.ndarray) -> None:
        """Remember the rows of a batch where the mask is set."""
        for snapshot, rows in _by_snapshot(batch):
            self._parts.setdefault(snapshot, []).append(_row_ids(batch)[rows & mask])

    def settle(self) -> None:
        """Sort the remembered row ids; no more rows may be added afterwards."""
        self._row_ids = {snapshot: np.unique(np.concatenate(parts)) for snapshot, parts in self._parts.items()}
        self._parts = {}

    def hold(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return for each row of a batch whether it was remembered."""
        mask = np.zeros(batch.num_rows, dtype=bool)
        for snapshot, rows in _by_snapshot(batch):
            if snapshot in self._row_ids:
                mask[rows] = np.isin(_row_ids(batch)[rows], self._row_ids[snapshot])
        return mask


def _snapshots(batch: pa.RecordBatch) -> np.ndarray:
    return cast("np.ndarray", batch.column(_SNAPSHOT_ID).to_numpy())


def _row_ids(batch: pa.RecordBatch) -> np.ndarray:
    return cast("np.ndarray", batch.column(_ROW_ID).to_numpy())


def _by_snapshot(batch: pa.RecordBatch) -> Iterator[tuple[int, np.ndarray]]:
    snapshots = _snapshots(batch)
    for snapshot in np.unique(snapshots).tolist():
        yield snapshot, snapshots == snapshot


def _paired(plan: ChangePlan, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a feed with updates: a row that a snapshot deletes and adds under one row id is an update, as in DuckDB."""
    # Both sides of a pair can be in different files, and neither side fits in memory. So the row ids are read first:
    #
    #   1. deleted rows, without columns   -> deleted: row ids by snapshot
    #   2. inserted rows                   -> postimage if the id is among deleted; remember it in updated
    #   3. deleted rows, with columns      -> preimage if the id is among updated
    #
    # Deleted rows are read twice, but only those of files that may hold updates in step 1.
    deleted, updated = _Keys(), _Keys()
    for batch in _possible_preimages(plan, storage):
        deleted.add(batch, covered(plan.updates, _snapshots(batch)))
    deleted.settle()
    for source in _sources(plan, deleted=False):
        for batch in _read(source, plan.shape, storage):
            matched = deleted.hold(batch)
            updated.add(batch, matched)
            yield _labelled(batch, matched, POSTIMAGE)
    updated.settle()
    for source in _sources(plan, deleted=True):
        for batch in _read(source, plan.shape, storage):
            yield _labelled(batch, updated.hold(batch), PREIMAGE)


def _sources(plan: ChangePlan, *, deleted: bool) -> Iterator[Source]:
    yield from (task for task in plan.tasks if isinstance(task, DeletedRows) is deleted)
    yield from (rows for rows in plan.inlined if rows.deleted is deleted)


def _possible_preimages(plan: ChangePlan, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Yield deleted rows without any column of the table."""
    read = replace(plan.shape.read, schema=Schema(columns=()), read_schema=Schema(columns=()))
    shape = replace(plan.shape, read=read, schema=Schema(columns=plan.shape.schema.columns[: _CHANGE_TYPE + 1]))
    for source in _sources(plan, deleted=True):
        if isinstance(source, InlinedChanges):
            yield from read_inlined_changes(replace(source, rows=source.rows.select(["rowid", "snapshot_id"])), shape)
        elif source.may_update:
            yield from read_change_task(source, shape, storage)


def _labelled(batch: pa.RecordBatch, updated: np.ndarray, change: str) -> pa.RecordBatch:
    if not updated.any():
        return batch
    labels = pc.if_else(pa.array(updated), change, batch.column(_CHANGE_TYPE))
    return batch.set_column(_CHANGE_TYPE, batch.schema.field(_CHANGE_TYPE), labels)


def _matching(batch: pa.RecordBatch, predicate: Predicate | None) -> pa.RecordBatch:
    if predicate is None:
        return batch
    from ducklake_core.engines.arrow.evaluate import evaluate

    return batch.filter(evaluate(predicate, batch))


def _returned(batch: pa.RecordBatch, plan: ChangePlan) -> pa.RecordBatch:
    place = {column.id: index for index, column in enumerate(plan.shape.schema)}
    return pa.RecordBatch.from_arrays([batch.column(place[c.id]) for c in plan.schema], schema=feed_arrow_schema(plan.schema))


def newest_changes(changes: pa.Table, on: Sequence[str], removed: str) -> pa.Table:
    """Return the newest change of each key, without the columns of the feed.

    Args:
        changes: Changes with ``snapshot_id`` and ``change_type``, as a feed returns them.
        on: Names of the key columns.
        removed: Name of the boolean column to add: whether the key has no row any more.

    Raises:
        UsageError: A key is NULL, or one snapshot has several rows with a key.
    """
    for name in on:
        if changes.column(name).null_count:
            raise UsageError(f"column {name!r} of the changes has NULLs, but it is part of the key. Choose other key columns", column=name)
    is_removed = pc.is_in(changes.column("change_type"), value_set=pa.array([DELETE, PREIMAGE]))
    # Of one snapshot, the row that it deleted comes before the one that it added.
    order = pc.add(pc.multiply(changes.column("snapshot_id"), 2), pc.if_else(is_removed, 0, 1))
    keys = changes.select(list(on)).append_column("\0order", order).append_column("\0removed", is_removed)
    added = keys.filter(pc.invert(is_removed)).group_by([*on, "\0order"]).aggregate([([], "count_all")])
    repeated = added.filter(pc.greater(added.column("count_all"), 1))
    if repeated.num_rows:
        key = ", ".join(f"{name} = {shown(repeated.column(name)[0].as_py())}" for name in on)
        raise UsageError(f"one snapshot of the changes has several rows with {key}. Choose key columns that are unique", columns=tuple(on))
    ascending = pc.sort_indices(keys, [("\0order", "ascending")])
    numbered = keys.select(list(on)).take(ascending).append_column("\0row", ascending)
    last = numbered.group_by(list(on), use_threads=False).aggregate([("\0row", "last")]).column("\0row_last")
    rows = changes.drop_columns([name for name in FEED_COLUMNS if name in changes.column_names]).append_column(removed, is_removed)
    newest: pa.Table = rows.take(last)
    return newest
