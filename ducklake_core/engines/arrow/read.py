"""Reading data files with Arrow: the work unit of a scan, for this process and for executors.

Follows the reading rules of the specification: columns by field id, what an old file lacks is filled in, and positions
are physical positions in the file, whatever else hides rows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.engines.arrow.columns import Absent, InFile, InPath, Source, find_columns
from ducklake_core.engines.arrow.conform import conform, constant, field_id
from ducklake_core.engines.arrow.row_groups import row_group_runs
from ducklake_core.errors import CorruptFileError, NotFoundError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, DataFile
from ducklake_core.format.files.name_mapping import plain_text
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.planning.inlined_columns import InlinedColumn, inlined_column
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.planning.virtual import VIRTUAL_SCHEMA, needed_virtual
from ducklake_core.storage.delete_files import deleted_positions
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_input import open_parquet
from ducklake_core.storage.second_look import read_twice

BATCH_ROWS = 65_536
_THREADED_BYTES = 1 << 20
"""Files from this size on are decoded by several threads: handing out the columns of smaller ones takes longer than decoding them."""

# As in DuckDB, the physical table of an inlined row stands for the file, and its row id for the position in it.
_STANDS_FOR: dict[str, InlinedColumn] = {
    "rowid": "rowid",
    "file_row_number": "rowid",
    "snapshot_id": "snapshot_id",
    "filename": "inlined_table",
    "file_index": "file_index",
}


def read_plan(plan: ScanPlan, storage: Storage) -> Iterator[pa.RecordBatch]:
    """All rows of a plan, file by file and then the inlined ones; memory is bounded by batches, not by files.

    Raises:
        NotFoundError: A file of the plan is gone (expired and cleaned up since it was planned).
        CorruptFileError: A file is not what the catalog says it is.
        UnsupportedFeatureError: The predicate or a file needs something that only Spark can do, or nobody.
    """
    shape = plan.shape
    for task in plan.tasks:
        yield from read_task(task, shape, storage)
    if plan.inlined is not None:
        yield from read_inlined(plan.inlined, shape)


def read_task(task: FileTask, shape: ScanProjection, storage: Storage, *, threads: bool = True) -> Iterator[pa.RecordBatch]:
    """The visible rows of one data file that satisfy the predicate, with the schema ``shape.arrow_schema()``.

    Args:
        task: The file and what hides rows of it.
        shape: What to return.
        storage: How to open files.
        threads: Whether to decode columns in parallel; executors have one core for a task.

    Raises:
        NotFoundError: The file, or a delete file, is gone.
        CorruptFileError: The file is not what the catalog says it is.
        SchemaError: It holds values that cannot be cast to the table's types.
        UnsupportedFeatureError: It is encrypted in a foreign form, or the predicate needs a SQL engine.
    """
    with _naming_table(shape):
        deleted = deleted_positions(storage, task.file, shape.snapshot_id)
    yield from read_chosen(task, shape, ChosenRows(positions=deleted, wanted=False), storage, threads=threads)


def read_chosen(
    task: FileTask, shape: ScanProjection, chosen: ChosenRows, storage: Storage, *, threads: bool = True
) -> Iterator[pa.RecordBatch]:
    """Rows of one data file by their positions, whatever its delete files say; else like :func:`read_task`."""
    with ExitStack() as stack:
        reader = read_twice(lambda: _open_file(stack, task, shape, storage))
        yield from reader.batches(chosen, storage, threads)


def _open_file(stack: ExitStack, task: FileTask, shape: ScanProjection, storage: Storage) -> _FileReader:
    with _naming_table(shape):
        source = stack.enter_context(open_parquet(storage, task.file.path, task.file.encryption_key))
    with storage.reporting("read the footer of", task.file.path):
        return _open(source, task, shape)


@contextmanager
def _naming_table(shape: ScanProjection) -> Iterator[None]:
    """A missing file is told with the table, and why it may be missing."""
    try:
        yield
    except NotFoundError as error:
        message = (
            f"{error.message}, which table {shape.table} names at snapshot {shape.snapshot_id}: the snapshot was expired, or its files "
            "merged, and cleaned up since the scan was planned, or somebody else removed the file"
        )
        raise NotFoundError(message, **{**error.details, "table": shape.table}) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRows:
    """Which rows of a file are read.

    Attributes:
        positions: Positions in the file, ascending and distinct.
        wanted: Whether these are the rows to read, or those to leave out.
    """

    positions: np.ndarray
    wanted: bool

    def mask(self, start: int, count: int) -> np.ndarray | None:
        """Whether each of ``count`` rows from position ``start`` on is read; None when all of them are."""
        first, last = np.searchsorted(self.positions, [start, start + count])
        if last - first == (count if self.wanted else 0):
            return None
        mask = np.full(count, not self.wanted)
        mask[self.positions[first:last] - start] = self.wanted
        return mask


def read_inlined(inlined: pa.Table, shape: ScanProjection) -> Iterator[pa.RecordBatch]:
    """The inlined rows of a plan that satisfy the predicate, in the shape of the rows of files."""
    own = inlined.columns[: len(shape.read_schema)]
    fields = [*own, *(inlined_column(inlined, shape.read_schema, _STANDS_FOR[name]) for name in shape.read_virtual)]
    names = [*shape.read_schema.names, *shape.read_virtual]
    for batch in pa.table(fields, names=_unique(names)).to_batches(max_chunksize=BATCH_ROWS):
        kept = _keep_matching(batch, shape)
        if kept.num_rows:
            yield _output(kept, shape)


def _unique(names: list[str]) -> list[str]:
    """Places as names, because a table may have a column called like a virtual one."""
    return [f"{index}" for index, _ in enumerate(names)]


def _keep_matching(batch: pa.RecordBatch, shape: ScanProjection) -> pa.RecordBatch:
    if shape.predicate is None:
        return batch
    from ducklake_core.engines.arrow.evaluate import evaluate

    width, made = len(shape.read_schema), shape.read_virtual
    needed = needed_virtual(shape.predicate)
    # Only what the predicate means: a virtual column may also be there next to a table's column of the same name.
    arrays = [*batch.columns[:width], *(batch.column(width + made.index(name)) for name in needed)]
    schema = [*_read_schema(shape), *to_arrow_schema(VIRTUAL_SCHEMA.select(needed))]
    # A predicate without columns is a constant, and Arrow knows no number of rows without a column.
    known = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(schema)) if arrays else batch
    return batch.filter(evaluate(shape.predicate, known, filtering=True))


def _read_schema(shape: ScanProjection) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(shape.read_schema)])


def _output(batch: pa.RecordBatch, shape: ScanProjection) -> pa.RecordBatch:
    place = {column.id: index for index, column in enumerate(shape.read_schema)}
    arrays = [batch.column(place[column.id]) for column in shape.schema]
    arrays += batch.columns[len(shape.read_schema) :][: len(shape.virtual)]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.arrow_schema())


def _decoded(decode: Callable[[], Iterator[pa.RecordBatch]], file: DataFile, storage: Storage) -> Iterator[pa.RecordBatch]:
    """The batches of a file; where it cannot be decoded it is read once more from there on."""
    batches, count, looked_twice = decode(), 0, False
    while True:
        try:
            batch = _next(batches, file, storage)
        except CorruptFileError:
            if looked_twice:
                raise
            # Batches are cut alike each time.
            batches, looked_twice = islice(decode(), count, None), True
            continue
        if batch is None:
            return
        yield batch
        count += 1


def _next(batches: Iterator[pa.RecordBatch], file: DataFile, storage: Storage) -> pa.RecordBatch | None:
    """The next batch; only what decoding raises is the file's fault, not what is done with a batch."""
    with storage.reporting("read", file.path):
        try:
            return next(batches, None)
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                # The store's own failure; the decoder's, such as a page header that is none, have no number.
                raise
            where = printable(file.path)
            raise CorruptFileError(f"{where} cannot be decoded: {error}", path=where) from error


@dataclass(frozen=True, slots=True)
class _FileReader:
    """An open file, with the source of every wanted column."""

    parquet: pq.ParquetFile
    task: FileTask
    shape: ScanProjection
    schema: pa.Schema
    sources: tuple[Source, ...]
    row_id_place: int | None
    snapshot_id_place: int | None

    def batches(self, chosen: ChosenRows, storage: Storage, threads: bool) -> Iterator[pa.RecordBatch]:
        places = [source.place if isinstance(source, InFile) else None for source in self.sources]
        wanted = sorted({place for place in (*places, self.row_id_place, self.snapshot_id_place) if place is not None})
        names = self.schema.names
        # With two columns of one name in the file, only reading all of them keeps the places right.
        distinct = len(set(names)) == len(names) and not any("." in name for name in names)
        predicate = None if self.task.all_rows_match else self.shape.predicate
        order = {place: index for index, place in enumerate(wanted)} if distinct else {place: place for place in wanted}
        columns = [names[place] for place in wanted] if distinct else None
        only = chosen.positions if chosen.wanted else None
        threads = threads and self.task.file.file_size_bytes >= _THREADED_BYTES
        for start, groups in row_group_runs(
            self.parquet.metadata, self.schema, self.shape.read_schema, places, predicate, rows=self.task.rows, only=only
        ):
            position = start
            decode = self._decoder(groups, columns, storage, threads)
            for batch in _decoded(decode, self.task.file, storage):
                kept = self._visible(batch, position, chosen, order)
                position += batch.num_rows
                if kept is not None and kept.num_rows:
                    yield _output(kept, self.shape)

    def _decoder(
        self, groups: list[int], columns: list[str] | None, storage: Storage, threads: bool
    ) -> Callable[[], Iterator[pa.RecordBatch]]:
        """Gives the batches of some row groups: of the open file the first time, of the file opened anew after that."""
        fresh = [self.parquet]

        def decode() -> Iterator[pa.RecordBatch]:
            if fresh:
                yield from fresh.pop().iter_batches(BATCH_ROWS, row_groups=groups, columns=columns, use_threads=threads)
                return
            with open_parquet(storage, self.task.file.path, self.task.file.encryption_key) as source:
                yield from _parquet(source).iter_batches(BATCH_ROWS, row_groups=groups, columns=columns, use_threads=threads)

        return decode

    def _visible(self, batch: pa.RecordBatch, start: int, chosen: ChosenRows, order: dict[int, int]) -> pa.RecordBatch | None:
        positions = np.arange(start, start + batch.num_rows, dtype=np.int64)
        mask = self._mask(batch, positions, chosen.mask(start, batch.num_rows), order)
        if mask is not None:
            batch, positions = batch.filter(pa.array(mask)), positions[mask]
        if not len(positions):
            return None
        arrays = [
            self._column(column, source, batch, order, len(positions))
            for column, source in zip(self.shape.read_schema, self.sources, strict=True)
        ]
        arrays += [self._virtual(name, batch, positions, order) for name in self.shape.read_virtual]
        made = pa.RecordBatch.from_arrays(arrays, names=_unique([*self.shape.read_schema.names, *self.shape.read_virtual]))
        return made if self.task.all_rows_match else _keep_matching(made, self.shape)

    def _column(self, column: Field, source: Source, batch: pa.RecordBatch, order: dict[int, int], length: int) -> pa.Array[Any]:
        with self._naming(column):
            match source:
                case InFile(place=place, field=held):
                    return conform(batch.column(order[place]), held, column)
                case InPath(text=text):
                    value = None if text is None else plain_text(text, column.type)
                    return constant_array(value, column, length)
                case Absent():
                    return constant(column, length)
                case _:
                    assert_never(source)

    @contextmanager
    def _naming(self, column: Field) -> Iterator[None]:
        """Whatever does not fit the column is told with the file and the table."""
        where = printable(self.task.file.path)
        details = {"path": where, "table": self.shape.table, "column": column.name}
        try:
            yield
        except (SchemaError, UnsupportedFeatureError) as error:
            raise type(error)(f"{where} of table {self.shape.table}: {error.message}", **details) from error
        except CorruptFileError as error:
            raise CorruptFileError(f"{where} of table {self.shape.table}: column {column.name!r}: {error.message}", **details) from error
        except pa.ArrowException as error:
            raise SchemaError(f"{where} of table {self.shape.table}: column {column.name!r}: {error}", **details) from error

    def _mask(self, batch: pa.RecordBatch, positions: np.ndarray, mask: np.ndarray | None, order: dict[int, int]) -> np.ndarray | None:
        if self.task.snapshot_filter is not None:
            if self.snapshot_id_place is not None:
                snapshots = batch.column(order[self.snapshot_id_place]).to_numpy(zero_copy_only=False)
            else:
                snapshots = _counted_snapshots(self.task.file, positions)
            visible = snapshots <= self.task.snapshot_filter
            mask = visible if mask is None else mask & visible
        return mask

    def _virtual(self, name: str, batch: pa.RecordBatch, positions: np.ndarray, order: dict[int, int]) -> pa.Array[Any]:
        file = self.task.file
        match name:
            case "rowid" if self.row_id_place is not None:
                return batch.column(order[self.row_id_place]).cast(pa.int64())
            case "rowid":
                return pa.array(positions + (file.row_id_start or 0))
            case "snapshot_id" if self.snapshot_id_place is not None:
                return batch.column(order[self.snapshot_id_place]).cast(pa.int64())
            case "snapshot_id" if file.row_counts:
                return pa.array(_counted_snapshots(file, positions))
            case "snapshot_id":
                return pa.repeat(pa.scalar(file.begin_snapshot, pa.int64()), len(positions))
            case "filename":
                return pa.repeat(pa.scalar(file.path, pa.string()), len(positions))
            case "file_index":
                return pa.repeat(pa.scalar(self.task.index, pa.uint64()), len(positions))
            case _:
                return pa.array(positions)


def _counted_snapshots(file: DataFile, positions: np.ndarray) -> np.ndarray:
    """The snapshots of rows at some positions of a file whose rows the catalog counts by snapshot."""
    snapshots, ends = np.array(file.row_counts, dtype=np.int64).T
    found: np.ndarray = snapshots[np.minimum(np.searchsorted(ends, positions, side="right"), len(snapshots) - 1)]
    return found


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)


def _open(source: pa.NativeFile, task: FileTask, shape: ScanProjection) -> _FileReader:
    where = printable(task.file.path)
    try:
        parquet = _parquet(source)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"{where} of table {shape.table} is not a readable Parquet file: {error}", path=where) from error
    schema = parquet.schema_arrow
    ids = [field_id(field) for field in schema]
    by_id = {number: place for place, number in enumerate(ids) if number is not None}
    row_id_place = by_id.get(ROW_ID_FIELD_ID)
    if "rowid" in shape.read_virtual and row_id_place is None and task.file.row_id_start is None:
        raise CorruptFileError(f"{where} of table {shape.table} has no row ids, neither in the file nor in the catalog", path=where)
    snapshot_id_place = by_id.get(SNAPSHOT_ID_FIELD_ID)
    if task.snapshot_filter is not None and snapshot_id_place is None and not task.file.row_counts:
        raise CorruptFileError(
            f"{where} of table {shape.table} holds rows of several snapshots, but not the snapshot id of each", path=where
        )
    return _FileReader(
        parquet=parquet,
        task=task,
        shape=shape,
        schema=schema,
        sources=find_columns(schema, task.file, shape),
        row_id_place=row_id_place if "rowid" in shape.read_virtual else None,
        snapshot_id_place=snapshot_id_place if task.snapshot_filter is not None or "snapshot_id" in shape.read_virtual else None,
    )


def count_rows(plan: ScanPlan, storage: Storage, most: int | None = None) -> int:
    """Number of rows of a plan; for files that match as a whole, the catalog and the delete files answer.

    With ``most``, no more files are asked once there are so many.
    """
    total = 0
    for task in plan.tasks:
        if most is not None and total >= most:
            break
        if task.snapshot_filter is None and (plan.predicate is None or task.all_rows_match):
            total += _visible_count(task.file, plan.snapshot_id, storage)
        else:
            total += sum(batch.num_rows for batch in read_task(task, plan.shape, storage))
    if plan.inlined is not None:
        total += sum(batch.num_rows for batch in read_inlined(plan.inlined, plan.shape))
    return total if most is None else min(total, most)


def _visible_count(file: DataFile, snapshot_id: int, storage: Storage) -> int:
    deleted = deleted_positions(storage, file, snapshot_id)
    return file.record_count - int(np.searchsorted(deleted, file.record_count))
