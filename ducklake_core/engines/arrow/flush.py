"""Inlined rows into Parquet files, every version of a row with its row id and snapshot (specification: Data Inlining).

Which rows of a file have ended is known while it is written: nobody has to look for them by their values afterwards, as DuckDB does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ducklake_core.commit.moved_rows import FlushedFile, GatheredDeletes
from ducklake_core.engines.arrow.delete_history import gather_deletes, write_deletes
from ducklake_core.engines.arrow.sorting import sorted_rows
from ducklake_core.engines.arrow.work import Stopped
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.files.data_files import ROW_ID_COLUMN, ROW_ID_FIELD_ID, SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD_ID, WrittenFile
from ducklake_core.format.files.delete_history import DeleteHistory
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.storage.parquet_writer import FileWriter

SYSTEM_FIELDS = (
    Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64),
    Field(id=SNAPSHOT_ID_FIELD_ID, name=SNAPSHOT_ID_COLUMN, type=INT64),
)
_END = "_ducklake_internal_end_snapshot"
_SLICE_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedRows:
    """A file of flushed rows that is in place but not committed.

    Attributes:
        file: The file.
        row_id_start: Smallest row id in it.
        begin_snapshot: Snapshot of its oldest row; ``partial_max`` is that of its newest.
        ended: Positions of the rows that have ended, ascending, and the snapshots that ended them.
    """

    file: WrittenFile
    row_id_start: int
    begin_snapshot: int
    partial_max: int
    ended: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushTask:
    """Write inlined rows, and inlined deletes, to files. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        state: Where and how; its schema, partition spec and sort order are those of the rows.
        rows: As :func:`ducklake_core.catalog.inlined.rows.stored_rows` gives them, all with the same columns; None for none.
        histories: Deletes of data files, to be gathered in one file for each.
        data_path: The lake's, to which paths of the catalog are relative.
    """

    state: WriteState
    rows: pa.Table | None = None
    histories: tuple[DeleteHistory, ...] = ()
    data_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedFiles:
    """What became of a :class:`FlushTask`: files that are in place but not committed."""

    files: tuple[FlushedFile, ...]
    gathered: tuple[GatheredDeletes, ...]

    def paths(self) -> list[str]:
        """All of them, relative to the table's directory."""
        deletes = (file.deletes.path for file in self.files if file.deletes is not None)
        return [*(file.output.path for file in self.files), *deletes, *(one.file.path for one in self.gathered)]


def flush_files(task: FlushTask, *, threads: bool = True, stopped: Stopped | None = None) -> FlushedFiles:  # noqa: ARG001 - as all work
    """Write the rows to files, and for those that have ended, and for each history, a delete file.

    Raises:
        SchemaError: A value does not fit its column.
        CorruptFileError: A delete file is not what the catalog says it is.
        StorageError: A file cannot be written. In every case of failure the files of this call are deleted.
    """
    state = task.state
    state.check_version()
    made: list[str] = []
    try:
        flushed = [] if task.rows is None else flush_rows(task.rows, state)
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
        state.storage.delete([state.directory + path for path in made])
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


def flush_rows(rows: pa.Table, state: WriteState) -> list[FlushedRows]:
    """Write all rows to files, split by partition, in the sort order of the state, else in that of row ids and snapshots.

    Where Arrow cannot sort by the keys, rows are in the order of row ids: a sort order is no promise to readers.

    Args:
        rows: As :func:`ducklake_core.catalog.inlined.rows.stored_rows` gives them.
        state: Where and how; its schema is the one of the rows.

    Raises:
        SchemaError: A value does not fit its column.
        StorageError: A file cannot be written. In every case of failure the files of this call are deleted.
    """
    columns = relaxed(state.schema)
    writer = _Writer(replace(state, schema=Schema(columns=(*columns.columns, *SYSTEM_FIELDS))), columns)
    try:
        for values, part in _partitions(_in_row_order(rows, columns), columns, state):
            writer.write(values, _sorted(part, columns, state))
    except BaseException:
        writer.abort()
        raise
    return writer.flushed


def relaxed(schema: Schema) -> Schema:
    """The columns without NOT NULL: what is stored is copied as it is, and that was the business of whoever wrote it."""
    return Schema(columns=tuple(replace(column, nullable=True) for column in schema))


def _in_row_order(rows: pa.Table, columns: Schema) -> pa.RecordBatch:
    """The rows in the columns' physical form, then row id, snapshot and end."""
    width = len(columns)
    arrays = [column.combine_chunks() for column in rows.columns]
    arrays = [array.chunk(0) if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    own = pa.RecordBatch.from_arrays(arrays[:width], schema=pa.schema(list(rows.schema)[:width]))
    system = [pa.field(ROW_ID_COLUMN, pa.int64()), pa.field(SNAPSHOT_ID_COLUMN, pa.int64()), pa.field(_END, pa.int64())]
    schema = pa.schema([*to_arrow_schema(columns, physical=True), *system])
    batch = pa.RecordBatch.from_arrays([*cast_to(own, columns).columns, *arrays[width:]], schema=schema)
    order = np.lexsort((arrays[width + 1].to_numpy(), arrays[width].to_numpy()))
    return batch.take(pa.array(order))


def _partitions(rows: pa.RecordBatch, columns: Schema, state: WriteState) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    if state.partition_spec is None:
        yield (), rows
        return
    keys = [key.to_pylist() for key in partition_arrays(state.partition_spec, columns, rows)]
    places: dict[tuple[str | None, ...], list[int]] = {}
    for place, values in enumerate(zip(*keys, strict=True)):
        places.setdefault(values, []).append(place)
    for values, chosen in places.items():
        yield values, rows if len(places) == 1 else rows.take(pa.array(chosen))


def _sorted(rows: pa.RecordBatch, columns: Schema, state: WriteState) -> pa.RecordBatch:
    if not state.sort:
        return rows
    try:
        return sorted_rows(rows, state.sort, columns, state.table)
    except UnsupportedFeatureError:
        return rows


class _Writer:
    """Files of at most the target size, one partition after the other."""

    def __init__(self, state: WriteState, columns: Schema) -> None:
        self._state = state
        self._columns = columns
        self._open: FileWriter | None = None
        self.flushed: list[FlushedRows] = []

    def write(self, values: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        state, start = self._state, 0
        while start < rows.num_rows:
            first = start
            self._open = writer = FileWriter(
                state.storage,
                state.directory,
                state.file_path(values),
                state.schema,
                state.options,
                partition_values=values,
                encrypted=state.encrypted,
            )
            while start < rows.num_rows and (start == first or writer.estimated_size < state.options.target_file_size):
                piece = rows.slice(start, _SLICE_ROWS)
                writer.write(pa.RecordBatch.from_arrays(piece.columns[:-1], schema=to_arrow_schema(state.schema, physical=True)))
                start += piece.num_rows
            file, self._open = writer.close(), None
            self.flushed.append(self._described(file, rows.slice(first, start - first)))
            verify_written_file(file, self._columns, state.partition_spec)

    @staticmethod
    def _described(file: WrittenFile, rows: pa.RecordBatch) -> FlushedRows:
        row_ids, begins, ends = rows.columns[-3:]
        is_ended = ends.is_valid().to_numpy(zero_copy_only=False)
        begun = begins.to_numpy()
        return FlushedRows(
            file=file,
            row_id_start=int(row_ids.to_numpy().min()),
            begin_snapshot=int(begun.min()),
            partial_max=int(begun.max()),
            ended=(np.flatnonzero(is_ended).astype(np.int64), ends.drop_null().to_numpy()),
        )

    def abort(self) -> None:
        if self._open is not None:
            self._open.abort()
        self._state.storage.delete([self._state.directory + one.file.path for one in self.flushed])
