"""Write Arrow rows into the data files of a table: split by partition, roll files by size, report statistics."""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ducklake_core import errors
from ducklake_core.engines.arrow.sorting import sorted_rows
from ducklake_core.engines.arrow.write_state import WriteState, check_row_constraint, fitted, with_computed_defaults
from ducklake_core.errors import SchemaError, StorageError
from ducklake_core.format.files.data_files import ColumnStatistics, EncryptionKey, WrittenFile
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.files.statistics import verify_written_file
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.schema import Schema
from ducklake_core.storage.file_statistics import user_columns
from ducklake_core.storage.parquet_writer import FileWriter
from ducklake_core.storage.spill import PARTITIONED_ROWS, Numbers, PartitionBuffer

MAX_OPEN_FILES = 100
"""Files of different partitions that one writer keeps open; rows of further partitions are gathered."""
IDLE_STEPS = 16
"""A file without rows for this many steps is released for another partition when the maximum of files is open."""
GATHERED_BYTES = 256 * 1024 * 1024
"""Arrow bytes that wait in all open files together before the fullest is made to write a row group."""
SORTED_BYTES = 256 * 1024 * 1024
"""Arrow bytes of rows that are sorted at once, in tables with a sort order; each such run makes files of its own."""
_GATHERED_ROWS = 65_536
_GATHERED_INPUT_BYTES = 32 * 1024 * 1024
"""Rows are cast, checked and split in steps of this size, because every step has a fixed cost; wide rows fill a step by bytes."""
_LARGE = 8
"""A file of at least an eighth of the target size may be closed although more rows of its partition may come."""

_MARK = "ducklake-error:"
_CARRIED = re.compile(_MARK + r'(\{"code".*?\})(?=\s*(?:$|\n))', re.MULTILINE)
_MESSAGE_CHARACTERS = 1500

PartitionValues = tuple[str | None, ...]
ON_ROWS: ContextVar[Callable[[int], None] | None] = ContextVar("ducklake_on_rows", default=None)
"""Function that is called with the number of rows of each step of writers that are created in its context (``DuckLake.progress``)."""


class DatasetWriter:
    """Writes rows of one write in this process; several may run at the same time in other processes.

    The path of a row::

        write()      gathered until a step is full (_GATHERED_ROWS, or SORTED_BYTES where the table is sorted)
          fitted     cast to the table's types, constraints checked
          _split     rows of partitions with an open file go to it; up to MAX_OPEN_FILES are open
          _gather    all others wait in the spilling buffer, and get a file at close()
        FileWriter   rolls at the target size; encodes on one background thread

    Args:
        state: The write.
        first_row: Number of the first row, so that errors name rows; None (the default) where the caller does not know their order.
    """

    def __init__(self, state: WriteState, *, first_row: int | None = None) -> None:
        state.check_version()
        self._state = state
        self._next_row = first_row
        self._open: OrderedDict[PartitionValues, FileWriter] = OrderedDict()
        self._last_used: dict[PartitionValues, int] = {}  # step in which an open file got rows
        self._steps = 0
        self._buffer = PartitionBuffer(PARTITIONED_ROWS, encrypted=state.encrypted)
        self._numbers: dict[PartitionValues, int] = {}  # of partitions with rows in the buffer
        self._written: list[WrittenFile] = []
        self._closing: list[str] = []  # full paths of files that left _open; an interrupt may keep them out of _written
        self._incoming: list[pa.RecordBatch] = []
        self._incoming_rows = 0
        self._incoming_bytes = 0
        # Files roll only between steps, so that a step must not exceed the target size. Sorted rows make files of exactly one step.
        self._sorts_input = bool(state.sort) and state.partition_spec is None
        self._step_bytes = SORTED_BYTES if self._sorts_input else min(_GATHERED_INPUT_BYTES, state.options.target_file_size)
        self._step_rows = sys.maxsize if self._sorts_input else _GATHERED_ROWS
        self._encoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parquet-encoder")
        self._on_rows = ON_ROWS.get()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns are found by name, and cast to the table's types.

        Rows are gathered first, so that an error may come with a later call, or with ``close``.

        Raises:
            SchemaError: The rows do not fit the table.
            UsageError: A row does not satisfy the row_constraint.
            StorageError: A file cannot be written.
        """
        if not batch.num_rows:
            return
        if not batch.num_columns:
            raise self._state.without_columns()
        if self._state.defaults:
            batch = with_computed_defaults(batch, self._state)
        if self._incoming and self._incoming[0].schema != batch.schema:
            self._take_incoming()
        # A large batch must not become one step, because files would grow beyond the target size.
        bytes_per_row = batch.nbytes / batch.num_rows
        most = max(1, min(self._step_rows, int(self._step_bytes / max(bytes_per_row, 1))))
        for start in range(0, batch.num_rows, most):
            piece = batch.slice(start, most) if batch.num_rows > most else batch
            self._incoming.append(piece)
            self._incoming_rows += piece.num_rows
            self._incoming_bytes += int(piece.num_rows * bytes_per_row)
            if self._incoming_rows >= self._step_rows or self._incoming_bytes >= self._step_bytes:
                self._take_incoming()

    def close(self) -> list[WrittenFile]:
        """Finish all files; they are in place, and verified, but not committed.

        Raises:
            StorageError: A file cannot be written.
        """
        self._take_incoming()
        self._close_files()
        self._write_buffered()
        self._encoder.shutdown()
        return self._written

    def abort(self) -> None:
        """Delete every file of this writer."""
        for writer in self._open.values():
            writer.abort()
        self._open.clear()
        self._buffer.close()
        self._encoder.shutdown(cancel_futures=True)
        self._state.storage.discard(self._closing)
        self._closing.clear()
        self._written.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            self.abort()

    def _take_incoming(self) -> None:
        batches, self._incoming, self._incoming_rows, self._incoming_bytes = self._incoming, [], 0, 0
        if not batches:
            return
        for batch in batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches():
            if self._sorts_input:
                self._write_sorted(batch)
            else:
                self._split(self._checked(fitted(batch, self._state, first_row=self._next_row)))
            if self._next_row is not None:
                self._next_row += batch.num_rows
        if self._on_rows is not None:
            self._on_rows(sum(batch.num_rows for batch in batches))

    def _write_sorted(self, batch: pa.RecordBatch) -> None:
        """Write rows in their sort order to files of their own, because another step begins with smaller values again."""
        with self._naming_rows(batch):
            rows = sorted_rows(batch, self._state.sort, self._state.schema, self._state.table)
        for start in range(0, rows.num_rows, _GATHERED_ROWS):
            with self._naming_rows(batch):
                fitting = fitted(rows.slice(start, _GATHERED_ROWS), self._state, first_row=None)
            self._split(self._checked(fitting))
        self._close_files()

    @contextmanager
    def _naming_rows(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Make errors about sorted rows name the first row in the order in which the rows came."""
        try:
            yield
        except SchemaError:
            fitted(batch, self._state, first_row=self._next_row)
            raise

    def _checked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._state.row_constraint is not None:
            check_row_constraint(rows, self._state, self._state.row_constraint)
        return rows

    def _split(self, batch: pa.RecordBatch) -> None:
        if self._state.partition_spec is None:
            self._write_file((), batch)
            return
        self._steps += 1
        self._make_room()
        codes, partitions = partition_codes(self._state.partition_spec, self._state.schema, batch)
        is_open = np.array([self._has_file(values) for values in partitions], dtype=bool)
        for values, part in _parts(batch, codes, partitions, is_open):
            self._write_file(values, part)
        if is_open.all():
            return
        numbers = np.array([-1 if to_file else self._number(values) for values, to_file in zip(partitions, is_open, strict=True)])
        waiting = np.flatnonzero(~is_open[codes])
        self._gather(batch if len(waiting) == batch.num_rows else batch.take(pa.array(waiting)), numbers[codes[waiting]])

    def _has_file(self, values: PartitionValues) -> bool:
        """Return whether rows of a partition go to its file at once; open a file while fewer than the maximum are open."""
        if values not in self._open:
            # In a sorted table, all rows of a partition have to be together before any of them is written.
            if self._state.sort or values in self._numbers or len(self._open) >= MAX_OPEN_FILES:
                return False
            self._open[values] = self._new_file(values)
        self._last_used[values] = self._steps
        return True

    def _make_room(self) -> None:
        """Release files of partitions that seem to get no more rows when all are open, as with rows in the order of partitions."""
        if len(self._open) < MAX_OPEN_FILES:
            return
        for values in [values for values in self._open if self._steps - self._last_used[values] > IDLE_STEPS]:
            writer = self._open[values]
            if not writer.has_begun:
                # Nothing is written yet, so that the rows can wait in the buffer and share a file with later ones.
                del self._open[values]
                for rows in writer.take_back():
                    self._gather(rows, np.full(rows.num_rows, self._number(values), np.int64))
            elif writer.estimated_size * _LARGE >= self._state.options.target_file_size:
                self._close_file(values)

    def _number(self, values: PartitionValues) -> int:
        return self._numbers.setdefault(values, len(self._numbers))

    def _gather(self, rows: pa.RecordBatch, numbers: Numbers) -> None:
        try:
            self._buffer.add(rows, numbers)
        except StorageError:
            # The local disk is full. Small files are better than a failed write.
            self._write_buffered()

    def _write_buffered(self) -> None:
        """Give every partition in the buffer its file."""
        if not self._buffer:
            return
        partitions, self._numbers = list(self._numbers), {}
        for number, pieces in self._buffer.partitions():
            values = partitions[number]
            for rows in self._in_order(pieces):
                for piece in _pieces(rows, self._step_bytes):
                    self._write_file(values, piece)
                if self._state.sort:
                    self._close_file(values)
            if values in self._open:
                self._close_file(values)

    def _in_order(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of one partition in the order of its files; sort them in runs of limited size if the table has a sort order."""
        if not self._state.sort:
            yield from pieces
            return
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for piece in (piece for rows in pieces for piece in _pieces(rows, SORTED_BYTES)):
            if waiting and waiting_bytes + piece.nbytes > SORTED_BYTES:
                yield self._sorted(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(piece)
            waiting_bytes += piece.nbytes
        yield self._sorted(waiting)

    def _sorted(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        return sorted_rows(pa.concat_batches(batches), self._state.sort, self._state.schema, self._state.table)

    def _write_file(self, values: PartitionValues, batch: pa.RecordBatch) -> None:
        writer = self._open.get(values)
        if writer is not None and writer.estimated_size >= self._state.options.target_file_size:
            self._close_file(values)
            writer = None
        if writer is None:
            writer = self._open[values] = self._new_file(values)
            self._last_used[values] = self._steps
        writer.write(batch)
        if len(self._open) > 1 and sum(w.gathered_bytes for w in self._open.values()) > GATHERED_BYTES:
            max(self._open.values(), key=lambda w: w.gathered_bytes).flush()

    def _new_file(self, values: PartitionValues) -> FileWriter:
        state = self._state
        return FileWriter(
            state.storage,
            state.directory,
            state.file_path(values),
            state.schema,
            state.options,
            partition_values=values,
            encoder=self._encoder,
            encrypted=state.encrypted,
        )

    def _close_files(self) -> None:
        while self._open:
            self._close_file(next(iter(self._open)))

    def _close_file(self, values: PartitionValues) -> None:
        # An interrupt may come between any two lines: the path is listed before the file leaves _open, so that abort() always finds it.
        self._closing.append(self._state.directory + self._open[values].path)
        file = self._open.pop(values).close()
        self._last_used.pop(values, None)
        self._written.append(file)
        verify_written_file(file, user_columns(self._state.schema), self._state.partition_spec)


def _parts(
    batch: pa.RecordBatch, codes: Numbers, partitions: list[PartitionValues], wanted: npt.NDArray[np.bool_]
) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yield rows of some partitions, in their order within each partition."""
    if not wanted.any():
        return
    if len(partitions) == 1:
        yield partitions[0], batch
        return
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(partitions)))
    for partition in np.flatnonzero(wanted).tolist():
        start = int(ends[partition - 1]) if partition else 0
        # Each part is a copy, as a slice of few rows would keep all the others in memory for as long as it waits.
        yield partitions[partition], batch.take(pa.array(order[start : int(ends[partition])]))


def _pieces(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield rows cut so that files can roll between them."""
    count = max(1, int(rows.num_rows * most_bytes / max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def file_to_json(file: WrittenFile) -> str:
    """Return one file as JSON; :func:`file_from_json` gives it back."""
    return json.dumps(asdict(file), separators=(",", ":"))


def file_from_json(text: str) -> WrittenFile:
    """Return the file that :func:`file_to_json` was given.

    >>> file = WrittenFile(path="a.parquet", record_count=1, file_size_bytes=9, footer_size=5, statistics=(), partition_values=("1", None))
    >>> file_from_json(file_to_json(file)) == file
    True
    """
    fields = json.loads(text)
    fields["statistics"] = tuple(ColumnStatistics(**column) for column in fields["statistics"])
    fields["partition_values"] = tuple(fields["partition_values"])
    if fields["encryption_key"] is not None:
        fields["encryption_key"] = EncryptionKey(**fields["encryption_key"])
    return WrittenFile(**fields)


def error_to_text(error: errors.DuckLakeError) -> str:
    """Return an error as one line that survives inside another program's error text."""
    return _MARK + json.dumps({"code": error.code, "message": error.message[:_MESSAGE_CHARACTERS]})


@contextmanager
def serialize_errors() -> Iterator[None]:
    """Convert errors of this library, on executors, to errors whose text the driver can convert back."""
    try:
        yield
    except errors.DuckLakeError as error:
        raise RuntimeError(error_to_text(error)) from error


@contextmanager
def reraise_remote_errors() -> Iterator[None]:
    """Convert errors that :func:`serialize_errors` sent back to the originals, on the driver."""
    try:
        yield
    except errors.DuckLakeError:
        raise
    except Exception as error:
        known = error_from_text(str(error))
        if known is None:
            raise
        raise known from error


def error_from_text(text: str) -> errors.DuckLakeError | None:
    """Return the error that :func:`error_to_text` put into a string, None when there is none.

    >>> carried = error_to_text(errors.SchemaError("column 'a' is NOT NULL"))
    >>> str(error_from_text(f"Job aborted: RuntimeError: {carried}"))
    "column 'a' is NOT NULL [schema]"
    """
    found = _CARRIED.search(text)
    if found is None:
        return None
    carried = json.loads(found[1])
    kinds = {kind.code: kind for kind in _tree(errors.DuckLakeError)}
    return kinds.get(carried["code"], errors.DuckLakeError)(carried["message"])


def _tree(kind: type[errors.DuckLakeError]) -> list[type[errors.DuckLakeError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


def write_table(data: pa.Table | pa.RecordBatchReader, state: WriteState) -> tuple[WrittenFile, ...]:
    """Write all rows; the files are in place but not committed.

    Args:
        data: A table, or a reader that is consumed batch by batch.
        state: The write.

    Returns:
        The files; none when there are no rows.

    Raises:
        SchemaError: The rows do not fit the table.
        UsageError: A row does not satisfy the row_constraint.
        StorageError: A file cannot be written. In every case of failure the files of this write are deleted.
    """
    reader = data.to_reader() if isinstance(data, pa.Table) else data
    with DatasetWriter(state, first_row=0) as writer:
        for batch in reader:
            writer.write(batch)
        return tuple(writer.close())


def partition_codes(spec: PartitionSpec, schema: Schema, batch: pa.RecordBatch) -> tuple[Numbers, list[PartitionValues]]:
    """Return for each row the index of its partition, and the values of these partitions.

    Args:
        spec: The partition keys.
        schema: The table's columns.
        batch: Rows in the table's columns.
    """
    codes = np.zeros(batch.num_rows, np.int64)
    firsts = np.zeros(1, np.int64)
    keys = partition_arrays(spec, schema, batch)
    # The keys are combined one by one to a number per row. unique() makes the numbers dense after each key, so that the product with the
    # next dictionary stays small. NULL is a value of its own.
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        _, firsts, codes = np.unique(codes * len(encoded.dictionary) + np.asarray(encoded.indices), return_index=True, return_inverse=True)
    return codes, list(zip(*(key.take(pa.array(firsts)).to_pylist() for key in keys), strict=True))
