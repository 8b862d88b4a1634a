"""Read data files with Arrow: the work unit of a scan, for this process and for executors.

Follows the reading rules of the specification: columns are found by field id, columns that an old file lacks are filled with their
initial default, and positions are physical positions in the file, deleted rows included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import groupby
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.engines.arrow.decoding import BATCH_ROWS, OpenFile
from ducklake_core.engines.arrow.file_reader import ChosenRows, FileReader, readers_of
from ducklake_core.engines.arrow.work import in_order
from ducklake_core.errors import CorruptFileError, NotFoundError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.paths import printable, protocol_of
from ducklake_core.format.types.schema import to_arrow_schema
from ducklake_core.planning.plan import VIRTUAL_SCHEMA, FileTask, InlinedColumn, ScanPlan, ScanProjection, inlined_column, needed_virtual
from ducklake_core.storage.delete_files import deleted_positions, process_memory
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_files import open_parquet, read_twice

Opened: TypeAlias = Callable[[FileReader], None]

_SMALL_ROWS = 1 << 18
_SMALL_BYTES = 8 * 1024 * 1024
"""Files of no more rows and bytes are read as a whole, several at a time."""
_TINY_ROWS = 2048
_TINY_BYTES = 32 * 1024
"""Files of no more rows and bytes take as long with two threads as with one, and up to 1.4 times the processor time."""

# As in DuckDB, an inlined row has the name of its physical table as its file, and its row id as its position.
_STANDS_FOR: dict[str, InlinedColumn] = {
    "rowid": "rowid",
    "file_row_number": "rowid",
    "snapshot_id": "snapshot_id",
    "filename": "inlined_table",
    "file_index": "file_index",
}


def read_plan(plan: ScanPlan, storage: Storage, *, ahead: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a plan, file by file and then the inlined ones; memory is bounded by batches and small files.

    Args:
        plan: What to read.
        storage: How to open files.
        ahead: Whether threads read files before their rows are requested (the default); pass False where few rows may be enough.

    Raises:
        NotFoundError: A file of the plan is missing (expired and cleaned up since it was planned).
        CorruptFileError: A file does not match its record in the catalog.
        UnsupportedFeatureError: The predicate or a file needs a feature that only Spark has, or that is not supported at all.
    """
    yield from read_tasks(plan.tasks, plan.shape, storage, ahead=ahead)
    if plan.inlined is not None:
        yield from read_inlined(plan.inlined, plan.shape)


def read_tasks(
    tasks: Iterable[FileTask], shape: ScanProjection, storage: Storage, *, ahead: bool = True, opened: Opened | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of data files, file by file, as :func:`read_task` does; threads read small files ahead if ``ahead``.

    Args:
        tasks: The files.
        shape: What to return.
        storage: How to open them.
        ahead: Whether threads may read.
        opened: Called with each file once it is open, on the reading thread; an exception from it ends the reading.
    """
    # Runs of small files share a pool of threads, file by file. A large file uses threads itself, and several of them at once would not
    # fit in memory. groupby() keeps the order of the files, which is the order of the rows.
    for is_small, group in groupby(tasks, key=_is_small):
        if ahead and is_small:
            some = list(group)
            pieces = (partial(_whole_files, part, shape, storage, opened) for part in _parts(some))
            yield from in_order(pieces, _readers(some))
        else:
            for task in group:
                yield from read_task(task, shape, storage, threads=ahead, opened=opened)


def _is_small(task: FileTask) -> bool:
    return task.file.record_count <= _SMALL_ROWS and task.file.file_size_bytes <= _SMALL_BYTES


def _readers(tasks: Sequence[FileTask]) -> int:
    """Return how many threads read small files: one if all are tiny local files, because Python runs one thread at a time."""
    return 1 if all(map(_is_tiny, tasks)) else max(readers_of(task.file.path) for task in tasks)


def _is_tiny(task: FileTask) -> bool:
    return task.file.record_count <= _TINY_ROWS and task.file.file_size_bytes <= _TINY_BYTES and protocol_of(task.file.path) == "file"


def _is_waited_for(task: FileTask) -> bool:
    """Return whether fetching bytes waits for something other than this thread: a remote store, or decryption of a large file."""
    return protocol_of(task.file.path) != "file" or (task.file.encryption_key is not None and not _is_small(task))


def _parts(tasks: Sequence[FileTask]) -> Iterator[list[FileTask]]:
    """Yield groups of small files for threads: several local files, since each handover costs time, or one remote file, which is slow.

    The first one comes alone: its rows may be enough.
    """
    part: list[FileTask] = []
    rows = size = 0
    is_first = True
    for task in tasks:
        rows, size = rows + task.file.record_count, size + task.file.file_size_bytes
        if part and (is_first or rows > BATCH_ROWS or size > _SMALL_BYTES or protocol_of(task.file.path) != "file"):
            yield part
            part, rows, size = [], task.file.record_count, task.file.file_size_bytes
            is_first = False
        part.append(task)
    if part:
        yield part


def _whole_files(tasks: Sequence[FileTask], shape: ScanProjection, storage: Storage, opened: Opened | None) -> list[pa.RecordBatch]:
    return [batch for task in tasks for batch in read_task(task, shape, storage, threads=False, opened=opened)]


def read_task(
    task: FileTask, shape: ScanProjection, storage: Storage, *, threads: bool = True, opened: Opened | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of one data file that satisfy the predicate, with the schema ``shape.arrow_schema()``.

    Args:
        task: The file and what hides rows of it.
        shape: What to return.
        storage: How to open files.
        threads: Whether several threads may read; executors have one core for a task.
        opened: Called with the file once it is open; an exception from it ends the reading.

    Raises:
        NotFoundError: The file, or a delete file, is missing.
        CorruptFileError: The file does not match its record in the catalog.
        SchemaError: It holds values that cannot be cast to the table's types.
        UnsupportedFeatureError: It is encrypted in a foreign form, or the predicate needs a SQL engine.
    """
    with naming_table(shape):
        deleted = deleted_positions(storage, task.file, shape.snapshot_id, read=process_memory.read)
    yield from read_chosen(task, shape, ChosenRows(positions=deleted, wanted=False), storage, threads=threads, opened=opened)


def read_chosen(
    task: FileTask,
    shape: ScanProjection,
    chosen: ChosenRows,
    storage: Storage,
    *,
    threads: bool = True,
    opened: Opened | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of one data file by their positions, without regard to its delete files; else like :func:`read_task`."""
    try:
        with ExitStack() as stack:
            reader = read_twice(lambda: _open_file(stack, task, shape, storage))
            if opened is not None:
                opened(reader)
            yield from reader.batches(chosen, threads)
    except UnicodeDecodeError as error:
        where = printable(task.file.path)
        raise CorruptFileError(f"{where} of table {shape.table} has names that are not UTF-8: {error}", path=where) from error


def _open_file(stack: ExitStack, task: FileTask, shape: ScanProjection, storage: Storage) -> FileReader:
    with naming_table(shape):
        source = stack.enter_context(open_parquet(storage, task.file.path, task.file.encryption_key))
    with storage.reporting("read the footer of", task.file.path):
        try:
            opened = OpenFile(source, printable(task.file.path), shape.table, pre_buffer=_is_waited_for(task))
        except (pa.ArrowInvalid, OSError) as error:
            where = printable(task.file.path)
            raise CorruptFileError(f"{where} of table {shape.table} is not a readable Parquet file: {error}", path=where) from error
        return FileReader(opened, task, shape, storage)


@contextmanager
def naming_table(shape: ScanProjection) -> Iterator[None]:
    """Add the table, and the possible reasons, to the error of a missing file."""
    try:
        yield
    except NotFoundError as error:
        message = (
            f"{error.message}. Table {shape.table} has this file at snapshot {shape.snapshot_id}. Maintenance may have cleaned it up after "
            "the scan was planned, because the snapshot expired or its files were merged: plan the scan again. Otherwise the file was "
            "deleted outside of DuckLake: restore it from a backup"
        )
        raise NotFoundError(message, **{**error.details, "table": shape.table}) from error


def read_inlined(inlined: pa.Table, shape: ScanProjection) -> Iterator[pa.RecordBatch]:
    """Yield the inlined rows of a plan that satisfy the predicate, in the shape of the rows of files."""
    own = inlined.columns[: len(shape.read_schema)]
    fields = [*own, *(inlined_column(inlined, shape.read_schema, _STANDS_FOR[name]) for name in shape.read_virtual)]
    names = [*shape.read_schema.names, *shape.read_virtual]
    for batch in pa.table(fields, names=_unique(names)).to_batches(max_chunksize=BATCH_ROWS):
        kept = _keep_matching(batch, shape)
        if kept.num_rows:
            yield _output(kept, shape)


def _unique(names: list[str]) -> list[str]:
    """Return positions as names, because a table may have a column with the name of a virtual one."""
    return [f"{index}" for index, _ in enumerate(names)]


def _keep_matching(batch: pa.RecordBatch, shape: ScanProjection) -> pa.RecordBatch:
    if shape.predicate is None:
        return batch
    from ducklake_core.engines.arrow.evaluate import evaluate

    width, made = len(shape.read_schema), shape.read_virtual
    needed = needed_virtual(shape.predicate)
    # Only the virtual columns that the predicate reads: another one may have the name of a table's column, and evaluate() finds by name.
    arrays = [*batch.columns[:width], *(batch.column(width + made.index(name)) for name in needed)]
    schema = [*_read_schema(shape), *to_arrow_schema(VIRTUAL_SCHEMA.select(needed))]
    # A predicate without columns is a constant, and an Arrow batch without columns has no row count.
    known = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(schema)) if arrays else batch
    return batch.filter(evaluate(shape.predicate, known))


def _read_schema(shape: ScanProjection) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(shape.read_schema)])


def _output(batch: pa.RecordBatch, shape: ScanProjection) -> pa.RecordBatch:
    place = {column.id: index for index, column in enumerate(shape.read_schema)}
    arrays = [batch.column(place[column.id]) for column in shape.schema]
    arrays += batch.columns[len(shape.read_schema) :][: len(shape.virtual)]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.arrow_schema())


def count_rows(plan: ScanPlan, storage: Storage, most: int | None = None) -> int:
    """Return the number of rows of a plan; for files that match as a whole, the catalog and the delete files have the answer.

    With ``most``, counting stops at that number, and the remaining files are not opened.

    Args:
        plan: What to count.
        storage: How to open files.
        most: Number of rows at which counting stops; None (the default) to count all.
    """
    total, shape = 0, plan.shape
    for task in plan.tasks:
        if most is not None and total >= most:
            break
        if task.snapshot_filter is None and (plan.predicate is None or task.all_rows_match):
            total += _visible_count(task.file, plan.snapshot_id, storage)
        else:
            total += sum(batch.num_rows for batch in read_task(task, shape, storage))
    if plan.inlined is not None:
        total += sum(batch.num_rows for batch in read_inlined(plan.inlined, shape))
    return total if most is None else min(total, most)


def _visible_count(file: DataFile, snapshot_id: int, storage: Storage) -> int:
    deleted = deleted_positions(storage, file, snapshot_id, read=process_memory.read)
    # Positions beyond the end of the file hide nothing; a faulty delete file may contain them.
    return file.record_count - int(np.searchsorted(deleted, file.record_count))
