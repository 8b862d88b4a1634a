"""Carrying out a row change: new files with the rows as they become, and which of the old rows go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ducklake_core.arrow.dataset_writer import DatasetWriter
from ducklake_core.arrow.merge_keys import SOUGHT, KeyFilter
from ducklake_core.arrow.positions import (
    DeleteTarget,
    Deletions,
    FileDeletion,
    collect,
    hide_positions,
    physical_rows,
)
from ducklake_core.arrow.read import read_inlined, read_task
from ducklake_core.arrow.row_change import RowChange, When, flat_columns, nullable_schema
from ducklake_core.arrow.source_index import SourceIndex
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.errors import UsageError
from ducklake_core.format.arrow_types import to_arrow_schema
from ducklake_core.format.files import ROW_ID_COLUMN, ROW_ID_FIELD_ID, WrittenFile
from ducklake_core.format.schema import Schema
from ducklake_core.format.types import INT64, Field
from ducklake_core.scan.plan import FileTask, ReadShape, ScanPlan
from ducklake_core.storage.filesystems import Storage

ROW_ID_FIELD = Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64)
_CHUNK_ROWS = 524_288
"""Rows of the target that are matched at once: the source's keys are looked at for each chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """What has to be committed.

    Attributes:
        deletions: Old rows that go, those that come back changed included.
        updated: Files of changed rows, with their row ids.
        inserted: Files of new rows.
        few_updated: Changed rows that were so few that they are kept, with their row ids; ``few_inserted`` are new ones.
    """

    deletions: Deletions = field(default_factory=Deletions)
    updated: tuple[WrittenFile, ...] = ()
    inserted: tuple[WrittenFile, ...] = ()
    few_updated: pa.Table | None = None
    few_inserted: pa.Table | None = None


class ChangeWriter:
    """Writes the rows that a change makes; several may run at once in other processes.

    Args:
        change: The change.
        state: How files of the table are written.
        keep: Up to so many changed rows, and so many new ones, are kept instead of written.
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
            Places of the rows that were updated or deleted, ascending.
        """
        gone: list[np.ndarray] = []
        for clause, places, chosen in self.change.chosen(when, rows):
            if clause.action != "insert":
                gone.append(places)
            if clause.action == "delete":
                continue
            names, arrays = self.change.new_rows(clause, chosen)
            rows = pa.RecordBatch.from_arrays(arrays, names=names)
            if clause.action == "update":
                self._add_updated(rows, row_ids.take(pa.array(places)))
            else:
                self._add("insert", rows)
        return np.sort(np.concatenate(gone)) if gone else np.empty(0, np.int64)

    def _add_updated(self, rows: pa.RecordBatch, row_ids: Any) -> None:
        """Rows that are not committed have no row id yet: as they become, they are simply new."""
        is_new = row_ids.to_numpy(zero_copy_only=False) < 0
        if is_new.any():
            self._add("insert", rows.filter(pa.array(is_new)))
            rows, row_ids = (part.filter(pa.array(~is_new)) for part in (rows, row_ids))
        if rows.num_rows:
            self._add("update", pa.RecordBatch.from_arrays([*rows.columns, row_ids], names=[*rows.schema.names, ROW_ID_COLUMN]))

    def _add(self, action: str, batch: pa.RecordBatch) -> None:
        kept = [*self._kept[action], batch]
        is_open = (self._updates if action == "update" else self._inserts) is not None
        if not is_open and sum(part.num_rows for part in kept) <= self._keep and batch.schema == kept[0].schema:
            self._kept[action] = kept
            return
        self._kept[action] = []
        for part in kept:
            self._writer(action).write(part)

    def kept(self, action: str) -> pa.Table | None:
        """The rows that were kept, None when they were written or there are none."""
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
        """By which readers leave out rows that match nothing; None when all rows matter, or the source is large."""
        if self.change.about("not matched by source") or self.rows.num_rows > SOUGHT:
            return None
        parts = [(self.change.target.columns[ours], self.change.source.columns[theirs]) for ours, theirs in self.change.keys]
        return KeyFilter(parts, [self.rows.column(theirs) for _, theirs in self.change.keys])

    def pairs(self, target: pa.RecordBatch, table: str) -> tuple[np.ndarray, pa.RecordBatch]:
        """Places of the matched rows of the target, and each joined with its row of the source."""
        ours, theirs = self.index.pairs(target, [f"t{place}" for place, _ in self.change.keys])
        joined = _joined(target.take(pa.array(ours)), self.rows.take(pa.array(theirs)))
        if self.change.residual is not None:
            from ducklake_core.arrow.scalars import holds_for

            holds = holds_for(self.change.residual, joined)
            mask = np.asarray(holds).astype(bool)
            ours, theirs, joined = ours[mask], theirs[mask], joined.filter(holds)
        self.found[theirs] = True
        if len(ours) and np.any(ours[1:] == ours[:-1]):
            raise matched_twice(table)
        return ours, joined


def matched_twice(table: str) -> UsageError:
    """The error for a row of the target that several rows of the source match."""
    return UsageError(
        f"a row of {table} is matched by more than one row of the source, so it is not clear what becomes of it; "
        "nothing was changed. Leave one row of the source for each, for example by grouping it by the key",
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
        plan: A scan of all columns of the table; its predicate says which rows the change is about.
        change: The change.
        target: Where to write delete files.
        state: How to write data files; it has the same write id.
        storage: How to reach files.
        source: The rows of a merge's source, in memory, with its columns in order.
        keep: Up to so many changed rows, and so many new ones, are given back instead of written.

    Raises:
        UsageError: A row of the target that several rows of the source match.
        SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
    """
    matching = None if source is None else _Matching(change, _flat_source(change, source))
    shape = _shape(plan, "rowid", "file_row_number")
    found: list[FileDeletion | None] = []
    with ChangeWriter(change, state, keep) as writer:
        sought = None if matching is None else matching.sought()
        for task in plan.tasks:
            batches = read_task(task, shape, storage) if sought is None else sought.rows(task, shape, storage, threads=True)
            positions = [rows for batch in _chunks(batches) for rows in _change(writer, matching, batch, plan.table)]
            found.append(hide(task, positions, plan.shape, target, storage))
        inlined: dict[str, list[int]] = {}
        if plan.inlined is not None and plan.inlined.num_rows:
            for batch in read_inlined(plan.inlined, _shape(plan, "rowid", "filename")):
                names = batch.columns[-1]
                row_ids = batch.columns[-2]
                for places in _change(writer, matching, batch, plan.table, places_only=True):
                    for place in places.tolist():
                        inlined.setdefault(names[place].as_py(), []).append(row_ids[place].as_py())
        if matching is not None and change.about("not matched"):
            missing = matching.rows.filter(pa.array(~matching.found))
            writer.apply("not matched", _joined(_nulls(flat_columns(change.target, "t"), missing.num_rows), missing))
        updated, inserted = writer.close()
    deletions = collect(found, physical_rows(inlined))
    return ChangedRows(
        deletions=deletions,
        updated=tuple(updated),
        inserted=tuple(inserted),
        few_updated=writer.kept("update"),
        few_inserted=writer.kept("insert"),
    )


def write_updated(rows: pa.Table, state: WriteState) -> tuple[WrittenFile, ...]:
    """Files of changed rows with their row ids."""
    with DatasetWriter(with_row_ids(state)) as writer:
        for batch in rows.to_batches():
            writer.write(batch)
        return tuple(writer.close())


def with_row_ids(state: WriteState) -> WriteState:
    """How files of rows are written that have row ids already."""
    return replace(state, schema=Schema(columns=(*state.schema.columns, ROW_ID_FIELD)))


def change_in_files(
    tasks: Sequence[FileTask], plan_shape: ReadShape, change: RowChange, target: DeleteTarget, state: WriteState, *, threads: bool
) -> tuple[list[FileDeletion], list[WrittenFile]]:
    """The work unit of an update: change the rows of some data files, in one process.

    Returns:
        What hides the old rows, and the files of the new ones.
    """
    shape = replace(plan_shape, virtual=("rowid", "file_row_number"))
    found: list[FileDeletion] = []
    with ChangeWriter(change, state) as writer:
        for task in tasks:
            batches = read_task(task, shape, state.storage, threads=threads)
            positions = [rows for batch in batches for rows in _change(writer, None, batch, shape.table)]
            hidden = hide(task, positions, plan_shape, target, state.storage)
            if hidden is not None:
                found.append(hidden)
        updated, _ = writer.close()
    return found, updated


def hide(task: FileTask, positions: Sequence[np.ndarray], shape: ReadShape, target: DeleteTarget, storage: Storage) -> FileDeletion | None:
    """Hide the positions of a file that go, None when there are none."""
    every = np.sort(np.concatenate(positions)) if positions else np.empty(0, np.int64)
    return hide_positions(task.file, every, shape, target, storage) if len(every) else None


def _change(
    writer: ChangeWriter, matching: _Matching | None, batch: pa.RecordBatch, table: str, *, places_only: bool = False
) -> Iterator[np.ndarray]:
    """Change the rows of one batch; positions (or places in the batch) of those that go."""
    change = writer.change
    width = len(change.target)
    rows = pa.RecordBatch.from_arrays(batch.columns[:width], schema=nullable_schema(Schema(columns=flat_columns(change.target, "t"))))
    row_ids, positions = batch.columns[width], batch.columns[width + 1]
    if matching is None:
        gone = writer.apply("matched", rows, row_ids)
    else:
        ours, joined = matching.pairs(rows, table)
        gone = ours[writer.apply("matched", joined, row_ids.take(pa.array(ours)))]
        if change.about("not matched by source"):
            rest = np.setdiff1d(np.arange(rows.num_rows), ours, assume_unique=True)
            left = rows.take(pa.array(rest))
            alone = _joined(left, _nulls(flat_columns(change.source, "s"), len(rest)))
            gone = np.concatenate([gone, rest[writer.apply("not matched by source", alone, row_ids.take(pa.array(rest)))]])
    if len(gone):
        yield gone if places_only else positions.to_numpy(zero_copy_only=False)[gone]


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(part.num_rows for part in gathered) >= _CHUNK_ROWS:
            yield _together(gathered)
            gathered = []
    if gathered:
        yield _together(gathered)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _flat_source(change: RowChange, source: pa.Table) -> pa.RecordBatch:
    flat = Schema(columns=flat_columns(change.source, "s"))
    table = source.rename_columns(list(flat.names)).combine_chunks()
    batches = table.to_batches()
    held = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    from ducklake_core.format.arrow_cast import cast_to

    return cast_to(held, flat, physical=False)


def _shape(plan: ScanPlan, *virtual: str) -> ReadShape:
    return replace(plan.shape, virtual=virtual)


def _joined(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=pa.schema([*left.schema, *right.schema]))


def _nulls(columns: tuple[Field, ...], length: int) -> pa.RecordBatch:
    schema = to_arrow_schema(Schema(columns=columns))
    return pa.RecordBatch.from_arrays([pa.nulls(length, column.type) for column in schema], schema=schema)
