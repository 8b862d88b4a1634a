"""Flush inlined rows, merge files and rewrite files with deletes: work units for this process and for executors.

The three differ in what a row of the new file carries, because earlier snapshots read different files::

    work      sources stay readable by earlier snapshots    stored with each row
    flush     no, the rows leave the catalog                row id, snapshot id; a delete file for rows that have ended
    merge     no, the new file replaces them                snapshot id; row id unless the ids run on from file to file; a delete
                                                            file for deleted rows that a snapshot still shows
    rewrite   yes, until they expire                        row id

A merged or flushed file shows each snapshot the rows that it had (``partial_max``); a rewritten one begins at the rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ducklake_core.commit.actions import CumulativeDeletes, FlushedFile, GatheredDeletes
from ducklake_core.engines.arrow.file_reader import ChosenRows, FileReader
from ducklake_core.engines.arrow.positions import first_deletes, gather_deletes, write_deletes
from ducklake_core.engines.arrow.read import read_chosen, read_tasks
from ducklake_core.engines.arrow.sorting import sampled_curve, sorted_along, sorted_by
from ducklake_core.engines.arrow.work import Stopped, until_stopped
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import DatasetWriter, PartitionValues, partition_codes
from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files.data_files import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD_ID,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD_ID,
    DataFile,
    DeleteHistory,
    WrittenFile,
    deleted_count,
)
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.format.values.arrow_cast import cast_to, is_exact
from ducklake_core.planning.plan import ColumnLifetime, FileTask, ScanProjection
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_writer import FileWriter
from ducklake_core.storage.spill import FLUSHED_ROWS, HeldBatches, PartitionBuffer

_END = "_ducklake_internal_end_snapshot"
_SLICE_ROWS = 65_536
_POSITION_BITS = 40
"""Bits of the position of a row, below those of the number of its file."""

_ROW_ID = Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64)
_SNAPSHOT_ID = Field(id=SNAPSHOT_ID_FIELD_ID, name=SNAPSHOT_ID_COLUMN, type=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedRows:
    """A file of flushed rows that is in place but not committed.

    Attributes:
        file: The file.
        row_id_start: First row id, None when the row ids are not consecutive in the order of the rows. DuckDB 1.5.5 merges files whose
            ``row_id_start`` follow each other without their embedded row ids.
        begin_snapshot: Snapshot of its oldest row; ``partial_max`` is that of its newest.
        ended: Positions of the rows that have ended, ascending, and the snapshots that ended them.
    """

    file: WrittenFile
    row_id_start: int | None
    begin_snapshot: int
    partial_max: int
    ended: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTask:
    """Write inlined rows, and inlined deletes, to files. The task travels to executors and contains nothing of the catalog.

    Attributes:
        state: Location and form of the files; its schema, partition spec and sort order are those of the rows.
        rows: Batches of :func:`ducklake_core.catalog.inlined.rows.stored_batches`, all with the same columns; None for none. A table
            if the task travels.
        histories: Deletes of data files, to be gathered in one file for each.
        data_path: The lake's, to which paths of the catalog are relative.
    """

    state: WriteState
    rows: pa.Table | HeldBatches | None = None
    histories: tuple[DeleteHistory, ...] = ()
    data_path: str = ""

    def __str__(self) -> str:
        rows = 0 if self.rows is None else self.rows.num_rows
        return f"{rows} inlined rows and deletes of {len(self.histories)} files of {self.state.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedFiles:
    """The outcome of a :class:`FlushTask`: files that are in place but not committed."""

    files: tuple[FlushedFile, ...]
    gathered: tuple[GatheredDeletes, ...]

    def made(self) -> list[tuple[str, int]]:
        """Return all files relative to the table's directory, data files first, then delete files, each with its size in bytes."""
        deletes = [*(file.deletes for file in self.files if file.deletes is not None), *(one.file for one in self.gathered)]
        files = [(file.output.path, file.output.file_size_bytes) for file in self.files]
        return files + [(file.path, file.file_size_bytes) for file in deletes]


def flush_files(task: FlushTask, *, threads: bool = True, stopped: Stopped | None = None) -> FlushedFiles:  # noqa: ARG001 - as all work
    """Write the rows to files, with a delete file for those that have ended and for each history; memory does not grow with the rows.

    Args:
        task: The rows and deletes to flush.
        threads: Unused; part of the form of all work units.
        stopped: Called before every batch of rows; True raises ``KeyboardInterrupt``. None (the default) means that nothing stops the task.

    Raises:
        SchemaError: A value does not fit its column.
        CorruptFileError: A delete file does not match its record in the catalog.
        StorageError: A file cannot be written. In every case of failure the files of this call are deleted.
    """
    state = task.state
    state.check_version()
    made: list[str] = []
    try:
        flushed = [] if task.rows is None else flush_rows(until_stopped(task.rows.to_batches(), stopped), state)
        made += [one.file.path for one in flushed]
        files = tuple(_with_deletes(one, state, made) for one in flushed)
        gathered = []
        for history in task.histories:
            if stopped is not None and stopped():
                raise KeyboardInterrupt
            gathered.append(gather_deletes(history, task.data_path, state))
            made.append(gathered[-1].file.path)
        return FlushedFiles(files=files, gathered=tuple(gathered))
    except BaseException:
        state.storage.discard([state.directory + path for path in made])
        raise


def _with_deletes(rows: FlushedRows, state: WriteState, made: list[str]) -> FlushedFile:
    positions, snapshots = rows.ended
    deletes = write_deletes(positions, snapshots, state.directory + rows.file.path, state) if len(positions) else None
    if deletes is not None:
        made.append(deletes.path)
    return FlushedFile(
        output=rows.file,
        row_id_start=rows.row_id_start,
        begin_snapshot=rows.begin_snapshot,
        partial_max=rows.partial_max,
        partition_id=state.partition_spec.id if state.partition_spec is not None else None,
        deletes=deletes,
    )


def flush_rows(rows: Iterable[pa.RecordBatch], state: WriteState) -> list[FlushedRows]:
    """Write all rows to files, split by partition, in the sort order of the state, else in that of row ids and snapshots.

    Args:
        rows: Batches of :func:`ducklake_core.catalog.inlined.rows.stored_batches`.
        state: Location and form of the files; its schema is the one of the rows.

    Raises:
        SchemaError: A value does not fit its column.
        UnsupportedFeatureError: DuckDB is not installed, or cannot evaluate the sort order.
        StorageError: A file cannot be written, or the local disk has no space for rows to sort or split. In every case of failure the
            files of this call are deleted.
    """
    columns = _relaxed(state.schema)
    writer = _Writer(replace(state, schema=Schema(columns=(*columns.columns, _ROW_ID, _SNAPSHOT_ID))), columns)
    buffer = PartitionBuffer(FLUSHED_ROWS, encrypted=state.encrypted)
    try:
        for values, part in _partitions((_physical(batch, columns) for batch in rows), columns, state, buffer):
            writer.write(values, sorted_by(part, state.sort, columns, state) if state.sort else part)
    except BaseException:
        writer.abort()
        raise
    finally:
        buffer.close()
    return writer.flushed


def _relaxed(schema: Schema) -> Schema:
    """Return the columns without NOT NULL: stored rows are copied as they are, and their writer was responsible for the constraint."""
    return Schema(columns=tuple(replace(column, nullable=True) for column in schema))


def _physical(rows: pa.RecordBatch, columns: Schema) -> pa.RecordBatch:
    """Return rows in the columns' physical form, then row id, snapshot and end."""
    width = len(columns)
    own = pa.RecordBatch.from_arrays(rows.columns[:width], schema=pa.schema(list(rows.schema)[:width]))
    system = [pa.field(ROW_ID_COLUMN, pa.int64()), pa.field(SNAPSHOT_ID_COLUMN, pa.int64()), pa.field(_END, pa.int64())]
    schema = pa.schema([*to_arrow_schema(columns, physical=True), *system])
    return pa.RecordBatch.from_arrays([*cast_to(own, columns).columns, *rows.columns[width:]], schema=schema)


def _partitions(
    rows: Iterable[pa.RecordBatch], columns: Schema, state: WriteState, buffer: PartitionBuffer
) -> Iterator[tuple[PartitionValues, Iterable[pa.RecordBatch]]]:
    """Yield the rows of one partition after the other, each in the order in which they came."""
    if state.partition_spec is None:
        yield (), rows
        return
    numbers: dict[PartitionValues, int] = {}
    for batch in rows:
        codes, partitions = partition_codes(state.partition_spec, columns, batch)
        buffer.add(batch, np.array([numbers.setdefault(values, len(numbers)) for values in partitions], np.int64)[codes])
    found = list(numbers)
    for number, pieces in buffer.partitions():
        yield found[number], pieces


@dataclass(slots=True)
class _Described:
    """The facts about the rows of one file that the catalog needs, collected while they are written."""

    rows: int = 0
    first_row_id: int = 0
    is_consecutive: bool = True
    begins: list[int] = field(default_factory=list)
    ended: list[np.ndarray] = field(default_factory=list)
    ends: list[np.ndarray] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        row_ids, begins, ends = rows.columns[-3:]
        begun = begins.to_numpy()
        ids = row_ids.to_numpy()
        if not self.rows:
            self.first_row_id = int(ids[0])
        expected = self.first_row_id + self.rows
        self.is_consecutive = self.is_consecutive and bool((ids == np.arange(expected, expected + len(ids))).all())
        self.begins += (int(begun.min()), int(begun.max()))
        if ends.null_count < len(ends):
            self.ended.append(np.flatnonzero(ends.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64) + self.rows)
            self.ends.append(ends.drop_null().to_numpy())
        self.rows += rows.num_rows

    def deletes(self) -> tuple[np.ndarray, np.ndarray]:
        nothing = [np.array([], np.int64)]
        return np.concatenate(self.ended or nothing), np.concatenate(self.ends or nothing)

    def of(self, file: WrittenFile) -> FlushedRows:
        return FlushedRows(
            file=file,
            row_id_start=self.first_row_id if self.is_consecutive else None,
            begin_snapshot=min(self.begins),
            partial_max=max(self.begins),
            ended=self.deletes(),
        )


class _Writer:
    """Files of at most the target size, one partition after the other."""

    def __init__(self, state: WriteState, columns: Schema) -> None:
        self._state = state
        self._columns = columns
        self._schema = to_arrow_schema(state.schema, physical=True)
        self._open: FileWriter | None = None
        self._described = _Described()
        self.flushed: list[FlushedRows] = []

    def write(self, values: PartitionValues, rows: Iterable[pa.RecordBatch]) -> None:
        """Write all rows of a partition."""
        for batch in rows:
            for start in range(0, batch.num_rows, _SLICE_ROWS):
                piece = batch.slice(start, _SLICE_ROWS)
                if self._open is not None and self._open.estimated_size >= self._state.options.target_file_size:
                    self._close()
                writer = self._open = self._open or self._new_file(values)
                writer.write(pa.RecordBatch.from_arrays(piece.columns[:-1], schema=self._schema))
                self._described.add(piece)
        self._close()

    def _new_file(self, values: PartitionValues) -> FileWriter:
        state = self._state
        return FileWriter(
            state.storage,
            state.directory,
            state.file_path(values),
            state.schema,
            state.options,
            partition_values=values,
            encrypted=state.encrypted,
        )

    def _close(self) -> None:
        if self._open is None:
            return
        file, self._open = self._open.close(), None
        self.flushed.append(self._described.of(file))
        self._described = _Described()
        verify_written_file(file, self._columns, self._state.partition_spec)

    def abort(self) -> None:
        if self._open is not None:
            self._open.abort()
        self._state.storage.discard([self._state.directory + one.file.path for one in self.flushed])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """Merge several files into one. The task travels to executors and contains nothing of the catalog.

    Attributes:
        files: Sources in the order of their rows.
        state: Location and form of the file; its schema and partition spec are those that all sources were written with. Its sort order
            is that of the new file.
        partition_values: String form of each partition key's value, shared by all sources.
        consecutive: Whether row ids run on from file to file in the catalog; if so they are not stored with the rows,
            unless a source stores them or the rows are sorted.
        snapshot_id: The snapshot that the merge was planned at.
        cluster_by: Columns to arrange the rows by, instead of the sort order; empty for the sort order.
        histories: Deletes of the sources that have any.
        oldest_snapshot: Id of the oldest snapshot; rows that were deleted before it are left out.
    """

    files: tuple[DataFile, ...]
    state: WriteState
    partition_values: tuple[str | None, ...] = ()
    consecutive: bool
    snapshot_id: int
    cluster_by: tuple[str, ...] = ()
    histories: tuple[DeleteHistory, ...] = ()
    oldest_snapshot: int = 0

    def __str__(self) -> str:
        where = f" of partition {self.partition_values}" if self.partition_values else ""
        return f"{len(self.files)} files{where} of {self.state.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """The outcome of a :class:`MergeTask`: files that are in place but not committed.

    Attributes:
        file: The rows.
        deletes: Delete file of the rows that were deleted; None when none was.
    """

    file: WrittenFile
    deletes: CumulativeDeletes | None = None

    def made(self) -> list[tuple[str, int]]:
        """Return both files relative to the table's directory, each with its size in bytes."""
        return [(one.path, one.file_size_bytes) for one in (self.file, self.deletes) if one is not None]


def merge_files(task: MergeTask, *, threads: bool = True, stopped: Stopped | None = None) -> MergedRows:
    """Write all rows of the sources into one file, each with the snapshot that it was committed in.

    Row ids are kept: stored with the rows, or implied by ``row_ids_embedded`` being False and the first source's first id.
    Rows follow the columns to cluster by, or the state's sort order; memory does not grow with them. Deleted rows that a snapshot still
    shows are hidden by a delete file, and the others are left out.

    Args:
        task: The files to merge.
        threads: Whether to decode columns in parallel; True by default, False on executors, which have one core for a task.
        stopped: Called before every batch of rows; True raises ``KeyboardInterrupt``. None (the default) means that nothing stops the task.

    Raises:
        NotFoundError: A source is missing.
        CorruptFileError: A source does not match its record in the catalog.
        UnsupportedFeatureError: A source has a feature that this library cannot read or write.
        StorageError: The file cannot be written, or the local disk has no space for rows to sort.
    """
    task.state.check_version()
    if task.consecutive and not (task.state.sort or task.cluster_by or task.histories):
        # Whether the sources store row ids is only known once they are open, and opening each one first would double the requests. So
        # the cheapest form is tried first, and abandoned at the first file that contradicts it:
        #
        #   1. read snapshot ids only          no file stores row ids; the catalog's ids run on
        #   2. read row ids too, store none    files store ids, but these run on too
        #   3. store row ids                   any other order
        for virtual in (("snapshot_id",), ("rowid", "snapshot_id")):
            with suppress(_OtherRowIdsError):
                return _merge(task, (_SNAPSHOT_ID,), virtual, threads, stopped)
    return _merge(task, (_ROW_ID, _SNAPSHOT_ID), ("rowid", "snapshot_id"), threads, stopped)


class _OtherRowIdsError(Exception):
    """Rows may have other ids than the catalog implies for their order in the sources."""


def _merge(task: MergeTask, system: tuple[Field, ...], virtual: tuple[str, ...], threads: bool, stopped: Stopped | None) -> MergedRows:
    """Make the file.

    Args:
        system: Columns to store after the table's; without row ids, the catalog must imply the same ids.
        virtual: Virtual columns to read with each row; without row ids, no source may store any.

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
    ends = _Ends.of(task) if task.histories else None
    described = _Described()
    try:
        rows = until_stopped(_rows(task, columns, system, virtual, ends, threads=threads), stopped)
        for batch in _in_order(rows, task, columns, lambda chosen: _rows(task, chosen, (), (), None, threads=threads)):
            if ends is None:
                writer.write(batch)
            else:
                described.add(batch)
                writer.write(pa.RecordBatch.from_arrays(batch.columns[:-1], names=batch.schema.names[:-1]))
    except (pa.ArrowException, OSError) as error:
        writer.abort()
        raise CorruptFileError(f"a file of {state.table} cannot be read: {error}", table=state.table) from error
    except BaseException:
        writer.abort()
        raise
    written = writer.close()
    try:
        _verify(written, task, columns, ends.dropped if ends is not None else 0)
        positions, snapshots = described.deletes()
        deletes = write_deletes(positions, snapshots, state.directory + path, state) if len(positions) else None
    except BaseException:
        state.storage.discard([state.directory + path])
        raise
    return MergedRows(file=written, deletes=deletes)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The deleted rows of the sources of a merge.

    Attributes:
        keys: Number of the source and position of each, as one number; ascending.
        snapshots: The snapshot that deleted each.
        oldest: Rows that were deleted before this snapshot are left out.
    """

    keys: np.ndarray
    snapshots: np.ndarray
    oldest: int

    @classmethod
    def of(cls, task: MergeTask) -> _Ends:
        """Read the delete files.

        Raises:
            CorruptFileError: A delete file does not match its record in the catalog.
        """
        histories = {history.file.id: history for history in task.histories}
        keys, snapshots = [], []
        for index, file in enumerate(task.files):
            if file.id in histories:
                positions, deleted_at = first_deletes(histories[file.id], task.state.storage)
                keys.append(positions + (index << _POSITION_BITS))
                snapshots.append(deleted_at)
        return cls(np.concatenate(keys), np.concatenate(snapshots), task.oldest_snapshot)

    @property
    def dropped(self) -> int:
        """Return the number of rows that are left out."""
        return int((self.snapshots < self.oldest).sum())

    def added_to(self, rows: list[pa.Array[Any]], indexes: np.ndarray, positions: np.ndarray) -> list[pa.Array[Any]]:
        """Return the rows that are not left out, with a column of the snapshots that deleted them."""
        wanted = (indexes << _POSITION_BITS) + positions
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1) if len(self.keys) else np.zeros(0, np.int64)
        is_live = self.keys[places] != wanted
        ended_at = self.snapshots[places]
        arrays = [*rows, pa.array(ended_at, pa.int64(), mask=is_live)]
        kept = is_live | (ended_at >= self.oldest)
        return arrays if kept.all() else [array.filter(pa.array(kept)) for array in arrays]


def _in_order(
    rows: Iterator[pa.RecordBatch], task: MergeTask | RewriteTask, columns: Schema, read: Callable[[Schema], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows as they go to files: clustered, sorted, or in the order of the sources.

    Args:
        rows: All rows, in the order of the sources.
        task: The work that names the order.
        columns: Columns of the table.
        read: Reads some columns of the rows another time, to sample them.
    """
    state = task.state
    if len(task.cluster_by) > 1:
        chosen = Schema(columns=tuple(columns.column(name) for name in task.cluster_by))
        curve = sampled_curve(read(chosen), chosen, sum(file.record_count - deleted_count(file) for file in task.files))
        yield from sorted_along(rows, curve, encrypted=state.encrypted)
        return
    orders = tuple(SortOrder(expression=name, column=name, columns=(name,)) for name in task.cluster_by) or state.sort
    yield from sorted_by(rows, orders, columns, state) if orders else rows


def _rows(
    task: MergeTask, columns: Schema, system: tuple[Field, ...], virtual: tuple[str, ...], ends: _Ends | None, *, threads: bool
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
    first_snapshots = _first_snapshots(task.files) if "snapshot_id" in virtual else None
    places = (*(("file_index",) if first_snapshots is not None or ends is not None else ()), *(("file_row_number",) if ends else ()))
    shape = replace(shape, virtual=(*virtual, *places))
    if ends is not None:
        arrow_schema = arrow_schema.append(pa.field(_END, pa.int64()))
    # Deleted rows are read too: snapshots before their deletion show them.
    sources = [replace(file, delete_files=(), inlined_deletes=()) for file in task.files] if task.histories else task.files
    tasks = (FileTask(file=file, index=index) for index, file in enumerate(sources))
    for batch in read_tasks(tasks, shape, task.state.storage, ahead=threads, opened=opened):
        arrays = batch.columns[: len(batch.columns) - len(places)]
        found = {name: array.to_numpy() for name, array in zip(places, batch.columns[len(arrays) :], strict=True)}
        if first_snapshots is not None:
            arrays[-1] = pa.array(np.maximum(arrays[-1].to_numpy(), first_snapshots[found["file_index"]]))
        if system == (_SNAPSHOT_ID,) and opened is None:
            row_id = _row_id_after(arrays[width], row_id)
        if ends is not None:
            arrays = ends.added_to(arrays, found["file_index"], found["file_row_number"])
            if not len(arrays[-1]):
                continue
        own, extra = arrays[:width], arrays[len(arrays) - len(arrow_schema) + width :]
        if is_cast:
            own = cast_to(pa.RecordBatch.from_arrays(own, schema=own_schema), columns).columns
        yield pa.RecordBatch.from_arrays([*own, *extra], schema=arrow_schema)


def _first_snapshots(files: tuple[DataFile, ...]) -> np.ndarray | None:
    """Return for each file the earliest snapshot that its rows may belong to; None where no file can store an earlier one.

    A rewritten file may store the snapshots that its rows had before. At those snapshots the sources of the rewrite show the rows, so
    that a merged file must not show them a second time.
    """
    first_snapshots = [file.begin_snapshot if file.partial_max is None and file.row_id_start is None else 0 for file in files]
    return np.array(first_snapshots, np.int64) if any(first_snapshots) else None


def _check_row_ids(reader: FileReader) -> None:
    """Check that the rows of a file have consecutive row ids, as the catalog implies.

    Raises:
        _OtherRowIdsError: The file stores row ids, has another number of rows than the catalog counts, or has deleted rows.
    """
    file = reader.file
    if reader.stores_row_ids or reader.record_count != file.record_count or file.delete_files or file.inlined_deletes:
        raise _OtherRowIdsError


def _row_id_after(row_ids: pa.Array, first: int | None) -> int:
    """Return the row id that follows some that run on from a first one.

    Raises:
        _OtherRowIdsError: They are not consecutive.
    """
    found = row_ids.to_numpy(zero_copy_only=False)
    if first is None or not np.array_equal(found, np.arange(first, first + len(found))):
        raise _OtherRowIdsError
    return first + len(found)


def _verify(written: WrittenFile, task: MergeTask, columns: Schema, dropped: int) -> None:
    expected = sum(file.record_count for file in task.files) - dropped
    if written.record_count != expected:
        raise CorruptFileError(
            f"merging {len(task.files)} files of {task.state.table} returned {written.record_count:,} rows, but the catalog has "
            f"{expected:,}. The files were not changed. Run lake.check() to find the damage",
            table=task.state.table,
        )
    verify_written_file(written, columns, task.state.partition_spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Rewrite the live rows of some files. The task travels to executors and contains nothing of the catalog.

    Attributes:
        files: Sources with everything that hides rows of them.
        shape: All columns of the table, without virtual ones.
        state: Location and form of the new files, with their partition spec and sort order.
        data_path: The lake's, to which paths of the catalog are relative.
        histories: Deletes of sources with several delete files or inlined deletes, to gather in one file for each.
        cluster_by: Columns to arrange the rows by, instead of the sort order; empty for the sort order.
    """

    files: tuple[DataFile, ...]
    shape: ScanProjection
    state: WriteState
    data_path: str = ""
    histories: tuple[DeleteHistory, ...] = ()
    cluster_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.files)} files of {self.state.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFiles:
    """The outcome of a :class:`RewriteTask`: files that are in place but not committed.

    Attributes:
        outputs: Files of the live rows.
        gathered: Delete files of sources that have inlined deletes, or that had several delete files.
    """

    outputs: tuple[WrittenFile, ...]
    gathered: tuple[GatheredDeletes, ...] = ()


def rewrite_files(task: RewriteTask, *, threads: bool = True, stopped: Stopped | None = None) -> RewrittenFiles:
    """Write the visible rows of the sources, each row with its row id.

    No snapshots are stored with the rows: earlier snapshots read the sources, and all rows belong to the snapshot of the rewrite, as in
    DuckDB. Rows are in the order that the task names, and memory does not grow with them. If no row is left there is no file.

    Args:
        task: The files to rewrite.
        threads: Whether to decode columns in parallel; True by default, False on executors, which have one core for a task.
        stopped: Called before every batch of rows; True raises ``KeyboardInterrupt``. None (the default) means that nothing stops the task.

    Raises:
        NotFoundError: A source, or a delete file of one, is missing.
        CorruptFileError: A source does not match its record in the catalog.
        SchemaError: A value does not fit its column.
        UnsupportedFeatureError: DuckDB is not installed, or cannot evaluate the sort order.
        StorageError: A file cannot be written, or the local disk has no space for rows to sort.
    """
    task.state.check_version()
    gathered: list[GatheredDeletes] = []
    try:
        gathered.extend(gather_deletes(history, task.data_path, task.state) for history in task.histories)
        return RewrittenFiles(outputs=_rewrite(task, threads, stopped), gathered=tuple(gathered))
    except BaseException:
        task.state.storage.discard([task.state.directory + one.file.path for one in gathered])
        raise


def _rewrite(task: RewriteTask, threads: bool, stopped: Stopped | None) -> tuple[WrittenFile, ...]:
    state = task.state
    columns = _relaxed(state.schema)
    shape = replace(task.shape, virtual=("rowid",))
    names = [*columns.names, _ROW_ID.name]
    live = _LiveRows(task.files, state.storage, threads, stopped)

    def read(chosen: Schema) -> Iterator[pa.RecordBatch]:
        return live.read(replace(shape, schema=chosen, read_schema=chosen, virtual=()))

    with DatasetWriter(replace(state, schema=Schema(columns=(*columns.columns, _ROW_ID)), sort=())) as writer:
        rows = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in live.read(shape))
        written = 0
        for batch in _in_order(rows, task, columns, read):
            writer.write(batch)
            written += batch.num_rows
        # Counted before the files are closed: a wrong count in the catalog or a faulty delete file must not lose rows for good.
        if written != live.expected:
            raise CorruptFileError(
                f"{len(task.files)} files of {state.table} have {written:,} rows that are not deleted, but the catalog has "
                f"{live.expected:,}. The files were not changed. Run lake.check() to find the damage",
                table=state.table,
            )
        return tuple(writer.close())


class _LiveRows:
    """The rows of files that are not deleted."""

    def __init__(self, files: tuple[DataFile, ...], storage: Storage, threads: bool, stopped: Stopped | None) -> None:
        self._files = files
        self._storage = storage
        self._threads = threads
        self._stopped = stopped
        self.expected = 0

    def read(self, shape: ScanProjection) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file by file, in the columns of the shape; set ``expected`` to the number of rows that must come."""
        self.expected = 0
        for file in self._files:
            deleted = deleted_positions(self._storage, file, shape.snapshot_id)
            self.expected += file.record_count - len(deleted)
            yield from until_stopped(self._of(file, shape, ChosenRows(positions=deleted, wanted=False)), self._stopped)

    def _of(self, file: DataFile, shape: ScanProjection, chosen: ChosenRows) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_chosen(FileTask(file=file), shape, chosen, self._storage, threads=self._threads)
        except (pa.ArrowException, OSError) as error:
            where = printable(file.path)
            raise CorruptFileError(f"{where} of {shape.table} cannot be read: {error}", path=where, table=shape.table) from error
