"""Several data files into one: the work unit of compaction, for this process and for executors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ducklake_core.engines.arrow.clustering import sampled_curve
from ducklake_core.engines.arrow.file_reader import FileReader
from ducklake_core.engines.arrow.ordering import sorted_along, sorted_by
from ducklake_core.engines.arrow.read import read_tasks
from ducklake_core.engines.arrow.work import Stopped, until_stopped
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files.data_files import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD_ID,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD_ID,
    DataFile,
    WrittenFile,
)
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to, is_exact
from ducklake_core.planning.plan import ColumnLifetime, FileTask, ScanProjection
from ducklake_core.storage.parquet_writer import FileWriter

_ROW_ID = Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64)
_SNAPSHOT_ID = Field(id=SNAPSHOT_ID_FIELD_ID, name=SNAPSHOT_ID_COLUMN, type=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """Make one file out of several. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        files: Sources in the order of their rows; none has deletes.
        state: Where and how to write; its schema is the one that all sources were written with, its partition spec theirs. Its
            sort order is that of the file to make.
        partition_values: Text of each partition key's value, shared by all sources.
        consecutive: Whether row ids run on from file to file in the catalog; if so they are not stored with the rows,
            unless a source stores them or the rows are sorted.
        snapshot_id: The snapshot that the merge was planned at.
        cluster_by: Columns to arrange the rows by, in place of the sort order; none for that order.
    """

    files: tuple[DataFile, ...]
    state: WriteState
    partition_values: tuple[str | None, ...] = ()
    consecutive: bool
    snapshot_id: int
    cluster_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" of partition {self.partition_values}" if self.partition_values else ""
        return f"{len(self.files)} files{where} of {self.state.table}"


def merge_files(task: MergeTask, *, threads: bool = True, stopped: Stopped | None = None) -> WrittenFile:
    """Write all rows of the sources into one file, each with the snapshot that it was committed in.

    Row ids are kept: stored with the rows, or implied by ``row_ids_embedded`` being False and the first source's first id.
    Where the task has columns to cluster by, or the state a sort order, the rows follow it, in memory that does not grow with them.

    Raises:
        NotFoundError: A source is gone.
        CorruptFileError: A source is not what the catalog says it is.
        UnsupportedFeatureError: A source has something that this library cannot read or write.
        StorageError: The file cannot be written, or the local disk has no room for rows that are sorted.
    """
    task.state.check_version()
    if task.consecutive and not (task.state.sort or task.cluster_by):
        # Found out while the rows are read: asking each file first would take as long as opening it a second time.
        for virtual in (("snapshot_id",), ("rowid", "snapshot_id")):
            with suppress(_OtherRowIdsError):
                return _merge(task, (_SNAPSHOT_ID,), virtual, threads, stopped)
    return _merge(task, (_ROW_ID, _SNAPSHOT_ID), ("rowid", "snapshot_id"), threads, stopped)


class _OtherRowIdsError(Exception):
    """Rows may have other ids than the catalog would give them in the order in which they stand in the sources."""


def _merge(task: MergeTask, system: tuple[Field, ...], virtual: tuple[str, ...], threads: bool, stopped: Stopped | None) -> WrittenFile:
    """Make the file.

    Args:
        system: What is stored with each row beside the table's columns; without row ids, those of the catalog must be the same.
        virtual: What is read with each row. Without row ids, no source may have any of its own.

    Raises:
        _OtherRowIdsError: Row ids would not be the same.
    """
    state = task.state
    columns = _relaxed(state.schema)
    path = state.file_path(task.partition_values)
    writer = FileWriter(
        state.storage,
        state.directory,
        path,
        Schema(columns=(*columns.columns, *system)),
        state.options,
        partition_values=task.partition_values,
        encrypted=state.encrypted,
    )
    try:
        rows = until_stopped(_rows(task, columns, system, virtual, threads=threads), stopped)
        for batch in _ordered(rows, task, columns, threads=threads):
            writer.write(batch)
    except (pa.ArrowException, OSError) as error:
        writer.abort()
        raise CorruptFileError(f"a file of {state.table} cannot be read: {error}", table=state.table) from error
    except BaseException:
        writer.abort()
        raise
    written = writer.close()
    try:
        _verify(written, task, columns)
    except BaseException:
        state.storage.discard([state.directory + path])
        raise
    return written


def _ordered(rows: Iterator[pa.RecordBatch], task: MergeTask, columns: Schema, *, threads: bool) -> Iterator[pa.RecordBatch]:
    """The rows as they go to the file: clustered, sorted, or in the order of the sources."""
    state = task.state
    if len(task.cluster_by) > 1:
        chosen = Schema(columns=tuple(columns.column(name) for name in task.cluster_by))
        curve = sampled_curve(_rows(task, chosen, (), (), threads=threads), chosen, sum(file.record_count for file in task.files))
        yield from sorted_along(rows, curve, encrypted=state.encrypted)
        return
    orders = tuple(SortOrder(expression=name, column=name, columns=(name,)) for name in task.cluster_by) or state.sort
    yield from sorted_by(rows, orders, columns, state) if orders else rows


def _relaxed(schema: Schema) -> Schema:
    # What is stored is copied as it is: NOT NULL was the business of whoever wrote it.
    return Schema(columns=tuple(replace(column, nullable=True) for column in schema))


def _rows(
    task: MergeTask, columns: Schema, system: tuple[Field, ...], virtual: tuple[str, ...], *, threads: bool
) -> Iterator[pa.RecordBatch]:
    shape = ScanProjection(
        table=task.state.table,
        snapshot_id=task.snapshot_id,
        schema=columns,
        read_schema=columns,
        virtual=virtual,
        column_lifetimes=tuple(ColumnLifetime(column_id=column.id) for column in columns),
    )
    arrow_schema = to_arrow_schema(Schema(columns=(*columns.columns, *system)), physical=True)
    width, row_id = len(columns), task.files[0].row_id_start
    own_schema = pa.schema(list(shape.arrow_schema())[:width])
    is_cast = not is_exact(own_schema, columns)
    opened = _check_row_ids if virtual == ("snapshot_id",) else None
    dated = _dated_anew(task.files) if "snapshot_id" in virtual else None
    if dated is not None:
        shape = replace(shape, virtual=(*virtual, "file_index"))
    tasks = (FileTask(file=file, index=index) for index, file in enumerate(task.files))
    for batch in read_tasks(tasks, shape, task.state.storage, ahead=threads, opened=opened):
        arrays = batch.columns
        if dated is not None:
            *arrays, snapshots, indexes = arrays
            arrays.append(pa.array(np.maximum(snapshots.to_numpy(), dated[indexes.to_numpy()])))
        if system == (_SNAPSHOT_ID,) and opened is None:
            row_id = _row_id_after(arrays[width], row_id)
        own, beside = arrays[:width], arrays[len(arrays) - len(system) :]
        if is_cast:
            own = cast_to(pa.RecordBatch.from_arrays(own, schema=own_schema), columns).columns
        yield pa.RecordBatch.from_arrays([*own, *beside], schema=arrow_schema)


def _dated_anew(files: tuple[DataFile, ...]) -> np.ndarray | None:
    """For each file the earliest snapshot that its rows may be of; None where none can store an earlier one.

    What a rewrite made may store the snapshots that its rows were of before, at which the files that it was made of show them.
    """
    dated = [file.begin_snapshot if file.partial_max is None and file.row_id_start is None else 0 for file in files]
    return np.array(dated, np.int64) if any(dated) else None


def _check_row_ids(reader: FileReader) -> None:
    """Look whether the rows of a file have the row ids that the catalog gives them, one after the other.

    Raises:
        _OtherRowIdsError: The file stores them, has not as many rows as the catalog says, or some of them are deleted.
    """
    file = reader.file
    if reader.stores_row_ids or reader.record_count != file.record_count or file.delete_files or file.inlined_deletes:
        raise _OtherRowIdsError


def _row_id_after(row_ids: pa.Array, first: int | None) -> int:
    """The row id that follows some that run on from a first one.

    Raises:
        _OtherRowIdsError: They do not.
    """
    found = row_ids.to_numpy(zero_copy_only=False)
    if first is None or not np.array_equal(found, np.arange(first, first + len(found))):
        raise _OtherRowIdsError
    return first + len(found)


def _verify(written: WrittenFile, task: MergeTask, columns: Schema) -> None:
    expected = sum(file.record_count for file in task.files)
    if written.record_count != expected:
        raise CorruptFileError(
            f"merging {len(task.files)} files of {task.state.table} gave {written.record_count} rows, but the catalog says {expected}; "
            "the files are left as they are",
            table=task.state.table,
        )
    verify_written_file(written, columns, task.state.partition_spec)
