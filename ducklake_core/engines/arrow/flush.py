"""Inlined rows into Parquet files, every version of a row with its row id and snapshot (specification: Data Inlining).

Which rows of a file have ended is known while it is written: nobody has to look for them by their values afterwards, as DuckDB does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ducklake_core.commit.moved_rows import FlushedFile, GatheredDeletes
from ducklake_core.engines.arrow.delete_history import gather_deletes, write_deletes
from ducklake_core.engines.arrow.ordering import sorted_by
from ducklake_core.engines.arrow.partition_buffer import PartitionBuffer, PartitionValues, partition_codes
from ducklake_core.engines.arrow.sorting import is_sortable
from ducklake_core.engines.arrow.work import Stopped, until_stopped
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import StorageError
from ducklake_core.format.files.data_files import ROW_ID_COLUMN, ROW_ID_FIELD_ID, SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD_ID, WrittenFile
from ducklake_core.format.files.delete_history import DeleteHistory
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.storage.held_batches import HeldBatches
from ducklake_core.storage.parquet_writer import FileWriter

SYSTEM_FIELDS = (
    Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64),
    Field(id=SNAPSHOT_ID_FIELD_ID, name=SNAPSHOT_ID_COLUMN, type=INT64),
)
_END = "_ducklake_internal_end_snapshot"
_SLICE_ROWS = 65_536

GATHERED_BYTES = 128 * 1024 * 1024
"""Arrow bytes of rows of several partitions that wait in memory; beyond that they go to the local disk."""


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
    """Write inlined rows, and inlined deletes, to files. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        state: Where and how; its schema, partition spec and sort order are those of the rows.
        rows: As :func:`ducklake_core.catalog.inlined.batches.stored_batches` gives them, all with the same columns; None for none. A table
            where the task travels.
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
    """What became of a :class:`FlushTask`: files that are in place but not committed."""

    files: tuple[FlushedFile, ...]
    gathered: tuple[GatheredDeletes, ...]

    def made(self) -> list[tuple[str, int]]:
        """All of them: data files, then delete files, relative to the table's directory, each with its bytes."""
        deletes = [*(file.deletes for file in self.files if file.deletes is not None), *(one.file for one in self.gathered)]
        files = [(file.output.path, file.output.file_size_bytes) for file in self.files]
        return files + [(file.path, file.file_size_bytes) for file in deletes]


def flush_files(task: FlushTask, *, threads: bool = True, stopped: Stopped | None = None) -> FlushedFiles:  # noqa: ARG001 - as all work
    """Write the rows to files, and for those that have ended, and for each history, a delete file; in memory that does not grow with rows.

    Raises:
        SchemaError: A value does not fit its column.
        CorruptFileError: A delete file is not what the catalog says it is.
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

    Where Arrow cannot sort by the keys, rows are in the order of row ids: a sort order is no promise to readers.

    Args:
        rows: As :func:`ducklake_core.catalog.inlined.batches.stored_batches` gives them.
        state: Where and how; its schema is the one of the rows.

    Raises:
        SchemaError: A value does not fit its column.
        StorageError: A file cannot be written, or the local disk has no room for rows that are to be sorted or split. In every case of
            failure the files of this call are deleted.
    """
    columns = relaxed(state.schema)
    writer = _Writer(replace(state, schema=Schema(columns=(*columns.columns, *SYSTEM_FIELDS))), columns)
    orders = state.sort if all(order.column is not None and is_sortable(columns.column(order.column)) for order in state.sort) else ()
    buffer = PartitionBuffer(encrypted=state.encrypted)
    try:
        for values, part in _partitions((_physical(batch, columns) for batch in rows), columns, state, buffer):
            writer.write(values, sorted_by(part, orders, columns, state) if orders else part)
    except BaseException:
        writer.abort()
        raise
    finally:
        buffer.close()
    return writer.flushed


def relaxed(schema: Schema) -> Schema:
    """The columns without NOT NULL: what is stored is copied as it is, and that was the business of whoever wrote it."""
    return Schema(columns=tuple(replace(column, nullable=True) for column in schema))


def _physical(rows: pa.RecordBatch, columns: Schema) -> pa.RecordBatch:
    """Rows in the columns' physical form, then row id, snapshot and end."""
    width = len(columns)
    own = pa.RecordBatch.from_arrays(rows.columns[:width], schema=pa.schema(list(rows.schema)[:width]))
    system = [pa.field(ROW_ID_COLUMN, pa.int64()), pa.field(SNAPSHOT_ID_COLUMN, pa.int64()), pa.field(_END, pa.int64())]
    schema = pa.schema([*to_arrow_schema(columns, physical=True), *system])
    return pa.RecordBatch.from_arrays([*cast_to(own, columns).columns, *rows.columns[width:]], schema=schema)


def _partitions(
    rows: Iterable[pa.RecordBatch], columns: Schema, state: WriteState, buffer: PartitionBuffer
) -> Iterator[tuple[PartitionValues, Iterable[pa.RecordBatch]]]:
    """The rows of one partition after the other, each in the order in which they came."""
    if state.partition_spec is None:
        yield (), rows
        return
    numbers: dict[PartitionValues, int] = {}
    for batch in rows:
        codes, partitions = partition_codes(state.partition_spec, columns, batch)
        buffer.add(batch, np.array([numbers.setdefault(values, len(numbers)) for values in partitions], np.int64)[codes])
        if buffer.bytes >= GATHERED_BYTES and not buffer.spill():
            raise StorageError(
                f"rows of {state.table} cannot be split by partition: the local disk took {buffer.spilled_bytes} bytes of them and no "
                "more; name a directory with more room by TMPDIR"
            )
    found = list(numbers)
    for number, pieces in buffer.partitions():
        yield found[number], pieces


@dataclass(slots=True)
class _Described:
    """What is known of the rows of a file while they come."""

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

    def of(self, file: WrittenFile) -> FlushedRows:
        nothing = [np.array([], np.int64)]
        return FlushedRows(
            file=file,
            row_id_start=self.first_row_id if self.is_consecutive else None,
            begin_snapshot=min(self.begins),
            partial_max=max(self.begins),
            ended=(np.concatenate(self.ended or nothing), np.concatenate(self.ends or nothing)),
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
