"""The live rows of data files written anew, without the deleted ones: the work unit of a rewrite, for this process and for executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.engines.arrow.conform import field_id
from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.flush import SYSTEM_FIELDS, relaxed
from ducklake_core.engines.arrow.read import ChosenRows, read_chosen
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import SNAPSHOT_ID_FIELD_ID, DataFile, WrittenFile
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask, ScanProjection
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_input import open_parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Write the live rows of some files anew. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        files: Sources with everything that hides rows of them.
        shape: All columns of the table, without virtual ones.
        state: Where and how to write; its partition spec and sort order are those of the files to make.
    """

    files: tuple[DataFile, ...]
    shape: ScanProjection
    state: WriteState


def rewrite_files(task: RewriteTask, *, threads: bool = True) -> tuple[WrittenFile, ...]:
    """Write what is visible of the sources, each row with its row id, and with its snapshot where a source stores those.

    The files are in place but not committed; none when no row is left. On any failure they are deleted.

    Args:
        task: What to rewrite.
        threads: Whether to decode columns in parallel; executors have one core for a task.

    Raises:
        NotFoundError: A source, or a delete file of one, is gone.
        CorruptFileError: A source is not what the catalog says it is.
        SchemaError: A value does not fit its column.
        StorageError: A file cannot be written.
    """
    task.state.check_version()
    try:
        return _rewrite(task, threads=threads)
    except UnsupportedFeatureError:
        if not task.state.sort:
            raise
        # Arrow cannot sort by these types: the rows of each source stay in their order.
        return _rewrite(replace(task, state=replace(task.state, sort=())), threads=threads)


def _rewrite(task: RewriteTask, *, threads: bool) -> tuple[WrittenFile, ...]:
    storage, state = task.state.storage, task.state
    system = SYSTEM_FIELDS if any(_stores_snapshots(file, storage) for file in task.files) else SYSTEM_FIELDS[:1]
    columns = relaxed(state.schema)
    shape = replace(task.shape, virtual=("rowid", "snapshot_id")[: len(system)])
    names = [*columns.names, *(field.name for field in system)]
    with DatasetWriter(replace(state, schema=Schema(columns=(*columns.columns, *system)))) as writer:
        written = expected = 0
        for file in task.files:
            deleted = deleted_positions(storage, file, shape.snapshot_id)
            expected += file.record_count - len(deleted)
            for batch in _rows(file, shape, deleted, storage, threads=threads):
                writer.write(pa.RecordBatch.from_arrays(batch.columns, names=names))
                written += batch.num_rows
        if written != expected:
            raise CorruptFileError(
                f"{len(task.files)} files of {state.table} have {written} rows that are not deleted, but the catalog says {expected}; "
                "the files are left as they are",
                table=state.table,
            )
        return tuple(writer.close())


def _rows(file: DataFile, shape: ScanProjection, deleted: np.ndarray, storage: Storage, *, threads: bool) -> Iterator[pa.RecordBatch]:
    try:
        yield from read_chosen(FileTask(file=file), shape, ChosenRows(positions=deleted, wanted=False), storage, threads=threads)
    except (pa.ArrowException, OSError) as error:
        where = printable(file.path)
        raise CorruptFileError(f"{where} of {shape.table} cannot be read: {error}", path=where, table=shape.table) from error


def _stores_snapshots(file: DataFile, storage: Storage) -> bool:
    if file.row_counts:
        return True
    with open_parquet(storage, file.path, file.encryption_key) as source:
        try:
            schema = pq.read_schema(source)
        except (pa.ArrowInvalid, OSError) as error:
            where = printable(file.path)
            raise CorruptFileError(f"{where} is not a readable Parquet file: {error}", path=where) from error
    return any(field_id(field) == SNAPSHOT_ID_FIELD_ID for field in schema)
