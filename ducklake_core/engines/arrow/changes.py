"""Update, merge and restore rows in process: write changed rows to new files and delete files for the old ones.

Files are immutable, so that a changed row is deleted in its file and written to a new one under the same row id::

    old file    | rows ... |  -> position into a delete file      (or into the catalog, or the file ends)
    new file    | columns of the table | row id |                 updated rows keep their ids; inserted ones get ids at commit
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.merge import SOUGHT, KeyFilter, RowChange, SourceIndex, When, chunks, flat_columns, nullable_schema
from ducklake_core.engines.arrow.positions import (
    DeleteTarget,
    Deletions,
    FileDeletion,
    collect,
    delete_in_file,
    physical_rows,
    write_position_deletes,
)
from ducklake_core.engines.arrow.read import read_chosen, read_inlined, read_task
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import DatasetWriter
from ducklake_core.errors import CatalogCorruptError, CommitConflictError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.files.data_files import ROW_ID_COLUMN, ROW_ID_FIELD_ID, WrittenFile
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.format.values.arrow_cast import null_array
from ducklake_core.planning.plan import FileTask, InlinedColumn, ScanPlan, ScanProjection, inlined_column
from ducklake_core.storage.filesystems import Storage

ROW_ID_FIELD = Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64)
_POSITION = "file_row_number"

_VERSION: tuple[InlinedColumn, ...] = ("inlined_table", "rowid", "snapshot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """The outcome of an update or a merge, ready to be committed.

    Attributes:
        deletions: Deleted rows, and the old versions of changed rows.
        updated: Files of changed rows, with their row ids.
        inserted: Files of new rows.
        inlinable_updates: Changed rows with their row ids, if they were few enough to keep; ``inlinable_inserts`` are new rows.
    """

    deletions: Deletions = field(default_factory=Deletions)
    updated: tuple[WrittenFile, ...] = ()
    inserted: tuple[WrittenFile, ...] = ()
    inlinable_updates: pa.Table | None = None
    inlinable_inserts: pa.Table | None = None


class ChangeWriter:
    """Writes the rows that a change makes; several may run at once in other processes.

    Args:
        change: The change.
        state: How files of the table are written.
        keep: Up to this many changed rows, and this many new ones, are kept in memory instead of written; 0 by default.
    """

    def __init__(self, change: RowChange, state: WriteState, keep: int = 0) -> None:
        self.change = change
        self._state = state
        self._keep = keep
        self._kept: dict[str, list[pa.RecordBatch]] = {"update": [], "insert": []}
        self._updates: DatasetWriter | None = None
        self._inserts: DatasetWriter | None = None

    def apply(self, when: When, rows: pa.RecordBatch, row_ids: Any = None) -> np.ndarray:
        """Carry out the change for rows of one kind.

        Args:
            when: The kind.
            rows: The rows in flat form.
            row_ids: Their row ids, for rows of the target.

        Returns:
            Indexes of the rows that were updated or deleted, ascending.
        """
        deleted: list[np.ndarray] = []
        for clause, places, chosen in self.change.chosen(when, rows):
            if clause.action != "insert":
                deleted.append(places)
            if clause.action == "delete":
                continue
            names, arrays = self.change.new_rows(clause, chosen)
            rows = pa.RecordBatch.from_arrays(arrays, names=names)
            if clause.action == "update":
                self._add_updated(rows, row_ids.take(pa.array(places)))
            else:
                self._add("insert", rows)
        return np.sort(np.concatenate(deleted)) if deleted else np.empty(0, np.int64)

    def _add_updated(self, rows: pa.RecordBatch, row_ids: Any) -> None:
        """Add changed rows; rows without a committed row id (below 0) are added as new rows."""
        is_new = row_ids.to_numpy(zero_copy_only=False) < 0
        if is_new.any():
            self._add("insert", rows.filter(pa.array(is_new)))
            rows, row_ids = (part.filter(pa.array(~is_new)) for part in (rows, row_ids))
        if rows.num_rows:
            self._add("update", pa.RecordBatch.from_arrays([*rows.columns, row_ids], names=[*rows.schema.names, ROW_ID_COLUMN]))

    def _add(self, action: str, batch: pa.RecordBatch) -> None:
        # Rows are held until they are too many to inline. Then all of them go to the writer, and so do all later rows.
        kept = [*self._kept[action], batch]
        is_open = (self._updates if action == "update" else self._inserts) is not None
        if not is_open and sum(part.num_rows for part in kept) <= self._keep and batch.schema == kept[0].schema:
            self._kept[action] = kept
            return
        self._kept[action] = []
        for part in kept:
            self._writer(action).write(part)

    def kept(self, action: str) -> pa.Table | None:
        """Return the rows that were kept, None when they were written or there are none."""
        return pa.Table.from_batches(self._kept[action]) if self._kept[action] else None

    def _writer(self, action: str) -> DatasetWriter:
        if action == "update":
            if self._updates is None:
                self._updates = DatasetWriter(with_row_ids(self._state))
            return self._updates
        if self._inserts is None:
            self._inserts = DatasetWriter(self._state)
        return self._inserts

    def close(self) -> tuple[list[WrittenFile], list[WrittenFile]]:
        """Finish the files of changed and of new rows."""
        updated = self._updates.close() if self._updates is not None else []
        inserted = self._inserts.close() if self._inserts is not None else []
        return updated, inserted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for writer in (self._updates, self._inserts):
                if writer is not None:
                    writer.abort()


@dataclass(slots=True)
class _Matching:
    """The source of a merge in this process, and which of its rows have found a row of the target."""

    change: RowChange
    rows: pa.RecordBatch
    index: SourceIndex = field(init=False)
    found: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        flat = flat_columns(self.change.source, "s")
        self.index = SourceIndex(self.rows, [(self.change.target.columns[t], flat[s]) for t, s in self.change.keys])
        self.found = np.zeros(self.rows.num_rows, dtype=bool)

    def sought(self) -> KeyFilter | None:
        """Return the filter by which readers skip rows that match nothing; None when all rows matter, or the source is large."""
        if self.change.about("not matched by source") or self.rows.num_rows > SOUGHT:
            return None
        parts = [
            (self.change.target.columns[target_key], self.change.source.columns[source_key]) for target_key, source_key in self.change.keys
        ]
        return KeyFilter(parts, [self.rows.column(source_key) for _, source_key in self.change.keys])

    def pairs(self, target: pa.RecordBatch, table: str) -> tuple[np.ndarray, pa.RecordBatch]:
        """Return the indexes of the matched rows of the target, and each joined with its row of the source."""
        target_rows, source_rows = self.index.pairs(target, [f"t{place}" for place, _ in self.change.keys])
        both = joined(target.take(pa.array(target_rows)), self.rows.take(pa.array(source_rows)))
        if self.change.residual is not None:
            from ducklake_core.engines.arrow.evaluate import holds_for

            holds = holds_for(self.change.residual, both)
            mask = np.asarray(holds).astype(bool)
            target_rows, source_rows, both = target_rows[mask], source_rows[mask], both.filter(holds)
        # A source row counts as matched only if the residual holds. The pairs are sorted by target, so that a second match of a target
        # row is its neighbour; SQL forbids it, because the result would depend on the order.
        self.found[source_rows] = True
        if len(target_rows) and np.any(target_rows[1:] == target_rows[:-1]):
            raise matched_twice(table)
        return target_rows, both


def matched_twice(table: str) -> UsageError:
    """Return the error for a row of the target that several rows of the source match."""
    return UsageError(
        f"more than one row of the source matches the same row of {table}, so the result would depend on their order. Nothing was changed. "
        "Keep one row of the source for each key, for example by grouping by the key",
        table=table,
    )


def change_rows(
    plan: ScanPlan,
    change: RowChange,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    *,
    source: pa.Table | None = None,
    keep: int = 0,
) -> ChangedRows:
    """Carry out a change in this process.

    Args:
        plan: A scan of all columns of the table; its predicate selects the rows that may change.
        change: The change.
        target: Where to write delete files.
        state: How to write data files; it has the same write id.
        storage: How to reach files.
        source: The rows of a merge's source, in memory, with its columns in order.
        keep: Up to this many changed rows, and this many new ones, are returned instead of written; 0 by default.

    Raises:
        UsageError: A row of the target that several rows of the source match.
        SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
    """
    # The order matters: "not matched" rows are known only after every file and every inlined row was matched.
    matching = None if source is None else _Matching(change, flat_source(change, source))
    shape = replace(_narrow(plan.shape, change), virtual=("rowid", "file_row_number"))
    found: list[FileDeletion | None] = []
    with ChangeWriter(change, state, keep) as writer:
        sought = None if matching is None else matching.sought()
        for task in plan.tasks:
            batches = read_task(task, shape, storage) if sought is None else sought.rows(task, shape, storage, threads=True)
            positions = [rows for batch in chunks(batches) for rows in _positions(writer, matching, batch, shape)]
            found.append(hide(task, positions, plan.shape, target, storage))
        inlined: dict[str, list[int]] = {}
        if plan.inlined is not None and plan.inlined.num_rows:
            shape = _shape(plan, "rowid", "filename")
            for batch in read_inlined(plan.inlined, shape):
                row_ids, names = (shape.virtual_column(batch, name) for name in shape.virtual)
                for places in _change(writer, matching, batch, shape):
                    for place in places.tolist():
                        inlined.setdefault(names[place].as_py(), []).append(row_ids[place].as_py())
        if matching is not None and change.about("not matched"):
            missing = matching.rows.filter(pa.array(~matching.found))
            writer.apply("not matched", joined(nulls(flat_columns(change.target, "t"), missing.num_rows), missing))
        updated, inserted = writer.close()
    deletions = collect(found, physical_rows(inlined))
    return ChangedRows(
        deletions=deletions,
        updated=tuple(updated),
        inserted=tuple(inserted),
        inlinable_updates=writer.kept("update"),
        inlinable_inserts=writer.kept("insert"),
    )


def write_updated(rows: pa.Table, state: WriteState) -> tuple[WrittenFile, ...]:
    """Return files of changed rows with their row ids."""
    with DatasetWriter(with_row_ids(state)) as writer:
        for batch in rows.to_batches():
            writer.write(batch)
        return tuple(writer.close())


def with_row_ids(state: WriteState) -> WriteState:
    """Return the write state for files whose rows already have row ids."""
    return replace(state, schema=Schema(columns=(*state.schema.columns, ROW_ID_FIELD)))


def change_in_files(
    tasks: Sequence[FileTask], plan_shape: ScanProjection, change: RowChange, target: DeleteTarget, state: WriteState, *, threads: bool
) -> tuple[list[FileDeletion], list[WrittenFile]]:
    """Change the rows of some data files in one process; this is the work unit of an update.

    Args:
        tasks: The data files.
        plan_shape: The projection of all columns of the table, with the predicate of the update.
        change: The change.
        target: Where to write delete files.
        state: How to write data files; it has the same write id.
        threads: Whether to decode columns in parallel; False on executors, which have one core for a task.

    Returns:
        What hides the old rows, and the files of the new ones.
    """
    shape = replace(plan_shape, virtual=("rowid", "file_row_number"))
    found: list[FileDeletion] = []
    with ChangeWriter(change, state) as writer:
        for task in tasks:
            batches = read_task(task, shape, state.storage, threads=threads)
            positions = [rows for batch in batches for rows in _positions(writer, None, batch, shape)]
            hidden = hide(task, positions, plan_shape, target, state.storage)
            if hidden is not None:
                found.append(hidden)
        updated, _ = writer.close()
    return found, updated


def hide(
    task: FileTask, positions: Sequence[np.ndarray], shape: ScanProjection, target: DeleteTarget, storage: Storage
) -> FileDeletion | None:
    """Hide the positions of a file that are deleted; return None when there are none.

    Args:
        task: The file with everything that hides rows of it.
        positions: Arrays of positions to delete, in any order, distinct over all of them.
        shape: Names table and base snapshot.
        target: Where to write delete files.
        storage: How to reach files.
    """
    every = np.sort(np.concatenate(positions)) if positions else np.empty(0, np.int64)
    return write_position_deletes(task.file, every, shape, target, storage) if len(every) else None


def _positions(writer: ChangeWriter, matching: _Matching | None, batch: pa.RecordBatch, shape: ScanProjection) -> Iterator[np.ndarray]:
    """Change the rows of one batch of a file; yield the positions in the file of those to delete."""
    positions = shape.virtual_column(batch, "file_row_number")
    for deleted in _change(writer, matching, batch, shape):
        yield positions.to_numpy(zero_copy_only=False)[deleted]


def _change(writer: ChangeWriter, matching: _Matching | None, batch: pa.RecordBatch, shape: ScanProjection) -> Iterator[np.ndarray]:
    """Change the rows of one batch; yield the indexes in the batch of those to delete."""
    change = writer.change
    flat = nullable_schema(Schema(columns=flat_columns(change.target, "t")))
    read = {column.id: values for column, values in zip(shape.schema, batch.columns, strict=False)}
    # Columns that the change does not need are not read.
    pairs = zip(change.target, flat, strict=True)
    columns = [read[column.id] if column.id in read else null_array(batch.num_rows, own.type) for column, own in pairs]
    rows = pa.RecordBatch.from_arrays(columns, schema=flat)
    row_ids = shape.virtual_column(batch, "rowid")
    if matching is None:
        deleted = writer.apply("matched", rows, row_ids)
    else:
        matched, both = matching.pairs(rows, shape.table)
        deleted = matched[writer.apply("matched", both, row_ids.take(pa.array(matched)))]
        if change.about("not matched by source"):
            rest = np.setdiff1d(np.arange(rows.num_rows), matched, assume_unique=True)
            left = rows.take(pa.array(rest))
            alone = joined(left, nulls(flat_columns(change.source, "s"), len(rest)))
            deleted = np.concatenate([deleted, rest[writer.apply("not matched by source", alone, row_ids.take(pa.array(rest)))]])
    if len(deleted):
        yield deleted


def flat_source(change: RowChange, source: pa.Table) -> pa.RecordBatch:
    """Return the rows of a source as one batch, under their flat names."""
    flat = Schema(columns=flat_columns(change.source, "s"))
    from ducklake_core.format.values.arrow_cast import cast_to, null_array

    table = source.rename_columns(list(flat.names)).combine_chunks()
    batches = table.to_batches()
    held = batches[0] if batches else pa.RecordBatch.from_arrays([null_array(0, field.type) for field in table.schema], schema=table.schema)

    return cast_to(held, flat, physical=False)


def _shape(plan: ScanPlan, *virtual: str) -> ScanProjection:
    return replace(plan.shape, virtual=virtual)


def _narrow(shape: ScanProjection, change: RowChange) -> ScanProjection:
    """Return the projection of the columns that a change needs, and of those of its condition."""
    ids = {change.target.columns[place].id for place in change.read_places}
    needed = ids | (pruning.columns(shape.predicate) if shape.predicate is not None else frozenset())
    return replace(
        shape,
        schema=Schema(columns=tuple(column for column in shape.schema if column.id in ids)),
        read_schema=Schema(columns=tuple(column for column in shape.read_schema if any(node.id in needed for node in column.walk()))),
    )


def joined(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of two batches side by side."""
    return pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=pa.schema([*left.schema, *right.schema]))


def nulls(columns: tuple[Field, ...], length: int) -> pa.RecordBatch:
    """Return rows of a side that has none."""
    schema = to_arrow_schema(Schema(columns=columns))
    return pa.RecordBatch.from_arrays([pa.nulls(length, column.type) for column in schema], schema=schema)


class _NamedRows:
    """The rows of the source by the rows of the table that they are for."""

    def __init__(self, change: RowChange, source: pa.RecordBatch, table: str) -> None:
        ids = source.column(0)
        is_new = np.asarray(ids.is_null())
        self.change = change
        self.table = table
        self.new = source.filter(pa.array(is_new))
        self.rows = source.filter(pa.array(~is_new))
        known = pc.fill_null(ids, 0).to_numpy(zero_copy_only=False)[~is_new]
        self._order = np.argsort(known, kind="stable")
        self._ids = known[self._order]
        self._found = np.zeros(len(known), dtype=bool)
        if np.any(self._ids[1:] == self._ids[:-1]):
            raise matched_twice(table)

    @property
    def reads_columns(self) -> bool:
        """Return whether the table's columns of a changed row have to be read."""
        return any(clause.action == "update" for clause in self.change.clauses)

    def find(self, row_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes of row ids that are named, and of the source's rows that name them; each is returned once over all calls.

        Raises:
            CatalogCorruptError: Two rows of the table have one id.
        """
        if not len(self._ids):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        places = np.minimum(np.searchsorted(self._ids, row_ids), len(self._ids) - 1)
        found = np.flatnonzero(self._ids[places] == row_ids)
        sources = self._order[places[found]]
        before = int(np.count_nonzero(self._found))
        self._found[sources] = True
        if int(np.count_nonzero(self._found)) - before != len(sources):
            raise CatalogCorruptError(
                f"table {self.table} has several rows with the same row id, so the row to change is ambiguous. Run lake.check() to find "
                "the damage"
            )
        return found, sources

    def check_found(self) -> None:
        """Reject the change if rows are missing that existed when the source was computed.

        Raises:
            CommitConflictError: Some of them do not exist any more.
        """
        missing = len(self._found) - int(np.count_nonzero(self._found))
        if missing:
            raise CommitConflictError(
                f"{missing:,} rows of {self.table} do not exist any more, because another writer changed them. Compute the change again "
                "and retry"
            )


def change_rows_by_id(
    plan: ScanPlan, change: RowChange, target: DeleteTarget, state: WriteState, storage: Storage, *, source: pa.Table, keep: int = 0
) -> ChangedRows:
    """Carry out a change of rows that are named by their ids; the arguments are those of :func:`change_rows`.

    Raises:
        UsageError: The source names a row of the table twice.
        SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
        CommitConflictError: A row that the source names does not exist.
    """
    named = _NamedRows(change, flat_source(change, source), plan.shape.table)
    found: list[FileDeletion | None] = []
    with ChangeWriter(change, state, keep) as writer:
        for task in plan.tasks if named.rows.num_rows else ():
            positions = _change_file(writer, named, task, plan.shape, storage)
            found.append(hide(task, positions, plan.shape, target, storage))
        inlined: dict[str, list[int]] = {}
        if plan.inlined is not None and plan.inlined.num_rows and named.rows.num_rows:
            shape = replace(plan.shape, virtual=("rowid", "filename"))
            for batch in read_inlined(plan.inlined, shape):
                row_ids, names = (shape.virtual_column(batch, name) for name in shape.virtual)
                found_rows, sources = named.find(row_ids.to_numpy(zero_copy_only=False))
                for place in found_rows[
                    _apply(writer, named, batch.take(pa.array(found_rows)), sources, row_ids.take(pa.array(found_rows)))
                ].tolist():
                    inlined.setdefault(names[place].as_py(), []).append(row_ids[place].as_py())
        named.check_found()
        if named.new.num_rows:
            writer.apply("not matched", joined(nulls(flat_columns(change.target, "t"), named.new.num_rows), named.new))
        updated, inserted = writer.close()
    return ChangedRows(
        deletions=collect(found, physical_rows(inlined)),
        updated=tuple(updated),
        inserted=tuple(inserted),
        inlinable_updates=writer.kept("update"),
        inlinable_inserts=writer.kept("insert"),
    )


def _apply(writer: ChangeWriter, named: _NamedRows, columns: pa.RecordBatch, sources: np.ndarray, row_ids: Any) -> np.ndarray:
    """Change rows whose first columns are the table's; return the indexes of those to delete."""
    flat = Schema(columns=flat_columns(named.change.target, "t"))
    rows = pa.RecordBatch.from_arrays(columns.columns[: len(flat)], schema=nullable_schema(flat))
    return writer.apply("matched", joined(rows, named.rows.take(pa.array(sources))), row_ids)


def _change_file(writer: ChangeWriter, named: _NamedRows, task: FileTask, shape: ScanProjection, storage: Storage) -> list[np.ndarray]:
    """Change the rows of one file; return the positions of those to delete."""
    # Two passes: the row ids of the whole file first, then the columns of the named rows alone, which are usually few.
    parts = list(_named_in_file(named, task, shape, storage))
    if not parts:
        return []
    positions, sources, row_ids = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(positions, kind="stable")
    positions, sources, row_ids = positions[order], sources[order], row_ids[order]
    if not named.reads_columns:
        nothing = nulls(flat_columns(named.change.target, "t"), len(positions))
        return [positions[_apply(writer, named, nothing, sources, pa.array(row_ids))]]
    whole = replace(shape, virtual=(_POSITION,))
    deleted: list[np.ndarray] = []
    for batch in read_chosen(task, whole, ChosenRows(positions=positions, wanted=True), storage):
        read = whole.virtual_column(batch, _POSITION).to_numpy(zero_copy_only=False)
        places = np.searchsorted(positions, read)
        deleted.append(read[_apply(writer, named, batch, sources[places], pa.array(row_ids[places]))])
    return deleted


def _named_in_file(
    named: _NamedRows, task: FileTask, shape: ScanProjection, storage: Storage
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield positions of named rows, indexes of the source's rows that name them, and their ids."""
    ids = replace(shape, schema=Schema(columns=()), virtual=("rowid", _POSITION))
    for batch in read_task(task, ids, storage):
        row_ids, positions = (ids.virtual_column(batch, name).to_numpy(zero_copy_only=False) for name in ids.virtual)
        found_rows, sources = named.find(row_ids)
        if len(found_rows):
            yield positions[found_rows], sources, row_ids[found_rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """One data file as it is now and as it was at the earlier snapshot; None where it does not belong to the table."""

    now: FileTask | None
    then: FileTask | None


def restore_rows(now: ScanPlan, then: ScanPlan, target: DeleteTarget, state: WriteState, storage: Storage) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot.

    Restored rows get new files and keep their row ids; the files of the earlier snapshot do not become live again. For each file::

        now         visible positions {1, 2, 5}
        then        visible positions {1, 3}
        delete      now - then = {2, 5}
        write back  then - now = {3}, read at the earlier snapshot

    Files are compared one after the other, so that memory is bounded by the positions of one.

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


def changed_files(now: ScanPlan, then: ScanPlan) -> list[FilePair]:
    """Return the files in which different rows may be visible now than at the earlier snapshot."""
    earlier = {task.file.id: task for task in then.tasks}
    pairs = [FilePair(now=task, then=earlier.pop(task.file.id, None)) for task in now.tasks]
    pairs += [FilePair(now=None, then=task) for task in earlier.values()]
    return [pair for pair in pairs if pair.now is None or pair.then is None or not _same_rows(pair.now, pair.then)]


def restore_file(
    pair: FilePair, now: ScanProjection, then: ScanProjection, target: DeleteTarget, writer: DatasetWriter, storage: Storage
) -> FileDeletion | None:
    """Hide the rows that one file has gained since, and write those that it has lost; this is the work unit of a restore.

    Args:
        pair: The file as it is now, and as it was.
        now: The projection at the base snapshot.
        then: The projection of all columns at the earlier snapshot.
        target: Where to write delete files.
        writer: Writes rows back, with their row ids.
        storage: How to reach files.
    """
    if pair.then is None:
        assert pair.now is not None
        return delete_in_file(pair.now, _of_positions(now), target, storage)
    earlier = _visible(pair.then, then, storage)
    if pair.now is None:
        _write_back(writer, pair.then, then, earlier, storage)
        return None
    visible = _visible(pair.now, now, storage)
    hidden = np.setdiff1d(visible, earlier, assume_unique=True)
    _write_back(writer, pair.then, then, np.setdiff1d(earlier, visible, assume_unique=True), storage)
    return write_position_deletes(pair.now.file, hidden, now, target, storage) if len(hidden) else None


def _same_rows(one: FileTask, two: FileTask) -> bool:
    """Return whether the catalog alone proves that the same rows of a file are visible."""

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
    """Write back inlined rows that are not visible now; return those to delete, which were not visible then, by physical table."""
    keys, earlier_keys = _inlined_keys(now), _inlined_keys(then)
    both = set(keys) & set(earlier_keys)
    if then.inlined is not None:
        back = then.inlined.filter(pa.array([key not in both for key in earlier_keys], pa.bool_()))
        for batch in _inlined_batches(back, then):
            writer.write(_with_row_ids(batch))
    deleted: dict[str, list[int]] = {}
    for key in keys:
        if key not in both:
            deleted.setdefault(key[0], []).append(key[1])
    return deleted


def _inlined_batches(rows: pa.Table, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    return read_inlined(rows, replace(plan.shape, virtual=("rowid",))) if rows.num_rows else iter(())


def _inlined_keys(plan: ScanPlan) -> list[tuple[str, int, int]]:
    """Return the identity of each inlined version of a row: its table, its row id and the snapshot that made it."""
    if plan.inlined is None:
        return []
    columns = (inlined_column(plan.inlined, plan.read_schema, name).to_pylist() for name in _VERSION)
    keys: list[Any] = list(zip(*columns, strict=True))
    return keys
