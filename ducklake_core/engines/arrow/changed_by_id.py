"""Updates, deletes and inserts that a source names row by row: an engine has found the rows and computed what becomes of them.

source    | rowid | columns |       NULL for a new row
of a file | rowid | file_row_number |     read first; then the columns of the rows that the source names, where they are updated
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.changed_rows import ChangedRows, ChangeWriter, flat_source, hide, joined, matched_twice, nulls
from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.positions import DeleteTarget, FileDeletion, collect, physical_rows
from ducklake_core.engines.arrow.read import read_chosen, read_inlined, read_task
from ducklake_core.engines.arrow.row_change import RowChange, flat_columns, nullable_schema
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CatalogCorruptError, CommitConflictError
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.storage.filesystems import Storage

_POSITION = "file_row_number"


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
        """Whether a row that stays has to be known."""
        return any(clause.action == "update" for clause in self.change.clauses)

    def find(self, row_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of the row ids that are named, and of the rows of the source that name them; each once over all calls.

        Raises:
            CatalogCorruptError: Two rows of the table have one id.
        """
        if not len(self._ids):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        places = np.minimum(np.searchsorted(self._ids, row_ids), len(self._ids) - 1)
        ours = np.flatnonzero(self._ids[places] == row_ids)
        theirs = self._order[places[ours]]
        before = int(np.count_nonzero(self._found))
        self._found[theirs] = True
        if int(np.count_nonzero(self._found)) - before != len(theirs):
            raise CatalogCorruptError(f"table {self.table} has several rows with one row id, so it is not clear which to change")
        return ours, theirs

    def check_found(self) -> None:
        """Refuse to leave out rows that were there when the source was computed.

        Raises:
            CommitConflictError: Some are not there any more.
        """
        missing = len(self._found) - int(np.count_nonzero(self._found))
        if missing:
            raise CommitConflictError(f"{missing} rows of {self.table} that were to be changed are gone: another writer has changed them")


def change_rows_by_id(
    plan: ScanPlan, change: RowChange, target: DeleteTarget, state: WriteState, storage: Storage, *, source: pa.Table, keep: int = 0
) -> ChangedRows:
    """Carry out a change of rows that are named by their ids; arguments as of :func:`~.changed_rows.change_rows`.

    Raises:
        UsageError: The source names a row of the table twice.
        SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
        CommitConflictError: A row that the source names is not there.
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
                ours, theirs = named.find(row_ids.to_numpy(zero_copy_only=False))
                for place in ours[_apply(writer, named, batch.take(pa.array(ours)), theirs, row_ids.take(pa.array(ours)))].tolist():
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


def _apply(writer: ChangeWriter, named: _NamedRows, columns: pa.RecordBatch, theirs: np.ndarray, row_ids: Any) -> np.ndarray:
    """Change rows of which the table's columns come first; places of those that go."""
    flat = Schema(columns=flat_columns(named.change.target, "t"))
    rows = pa.RecordBatch.from_arrays(columns.columns[: len(flat)], schema=nullable_schema(flat))
    return writer.apply("matched", joined(rows, named.rows.take(pa.array(theirs))), row_ids)


def _change_file(writer: ChangeWriter, named: _NamedRows, task: FileTask, shape: ScanProjection, storage: Storage) -> list[np.ndarray]:
    """Change the rows of one file; positions of those that go."""
    parts = list(_named_in_file(named, task, shape, storage))
    if not parts:
        return []
    positions, theirs, row_ids = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(positions, kind="stable")
    positions, theirs, row_ids = positions[order], theirs[order], row_ids[order]
    if not named.reads_columns:
        nothing = nulls(flat_columns(named.change.target, "t"), len(positions))
        return [positions[_apply(writer, named, nothing, theirs, pa.array(row_ids))]]
    whole = replace(shape, virtual=(_POSITION,))
    gone: list[np.ndarray] = []
    for batch in read_chosen(task, whole, ChosenRows(positions=positions, wanted=True), storage):
        read = whole.virtual_column(batch, _POSITION).to_numpy(zero_copy_only=False)
        places = np.searchsorted(positions, read)
        gone.append(read[_apply(writer, named, batch, theirs[places], pa.array(row_ids[places]))])
    return gone


def _named_in_file(
    named: _NamedRows, task: FileTask, shape: ScanProjection, storage: Storage
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Positions of named rows, places of the source's rows that name them, and their ids."""
    ids = replace(shape, schema=Schema(columns=()), virtual=("rowid", _POSITION))
    for batch in read_task(task, ids, storage):
        row_ids, positions = (ids.virtual_column(batch, name).to_numpy(zero_copy_only=False) for name in ids.virtual)
        ours, theirs = named.find(row_ids)
        if len(ours):
            yield positions[ours], theirs, row_ids[ours]
