"""Row groups of an open Parquet file as Arrow batches: damage is looked at twice, and several threads may read one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_input import open_parquet

BATCH_ROWS = 65_536


class OpenFile:
    """An open Parquet file for one thread, whose checksums are verified.

    Args:
        source: The file.
        metadata: Its footer, when that was read before.
        pre_buffer: Whether other threads fetch all columns of a row group at once: not worth it where a file answers at once.
    """

    def __init__(self, source: pa.NativeFile, metadata: pq.FileMetaData | None = None, *, pre_buffer: bool = True) -> None:
        self.pre_buffer = pre_buffer
        self._parquet = pq.ParquetFile(
            source, metadata=metadata, coerce_int96_timestamp_unit="us", page_checksum_verification=True, pre_buffer=pre_buffer
        )

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer."""
        return self._parquet.metadata

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self._parquet.schema_arrow

    def batches(self, groups: list[int], columns: list[str] | None, rows: int, threads: bool) -> Iterator[pa.RecordBatch]:
        """Yield the batches of some row groups.

        Args:
            groups: Numbers of the row groups.
            columns: Names of the columns; None for all.
            rows: Number of rows of a batch; the last of a row group may have fewer.
            threads: Whether to decode columns in parallel.
        """
        yield from self._parquet.iter_batches(rows, row_groups=groups, columns=columns, use_threads=threads)


class Handles:
    """A file that is open several times, as each thread needs it for itself."""

    def __init__(self, first: OpenFile, file: DataFile, storage: Storage) -> None:
        self._first = first
        self._idle = [first]
        self._file = file
        self._storage = storage
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def one(self) -> Iterator[OpenFile]:
        """The file for one thread, until the block ends."""
        try:
            opened = self._idle.pop()
        except IndexError:
            source = self._stack.enter_context(open_parquet(self._storage, self._file.path, self._file.encryption_key))
            opened = OpenFile(source, self._first.metadata, pre_buffer=self._first.pre_buffer)
        try:
            yield opened
        finally:
            self._idle.append(opened)


def decoded(
    opened: OpenFile,
    groups: list[int],
    columns: list[str] | None,
    file: DataFile,
    storage: Storage,
    *,
    threads: bool,
    until: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of some row groups; where they cannot be decoded, the file is opened and read once more from there on.

    Args:
        opened: The open file.
        groups: Numbers of the row groups.
        columns: Names of the columns; None for all.
        file: Which file it is.
        storage: How to open it anew.
        threads: Whether to decode columns in parallel.
        until: How many rows are wanted, if not all. Batches are cut so that one ends there: whoever stops then has no more decoded.

    Raises:
        CorruptFileError: It cannot be decoded, twice.
        StorageError: The store does not answer.
    """
    fresh = [opened]
    batch_rows = BATCH_ROWS if until is None else _even(until)

    def decode() -> Iterator[pa.RecordBatch]:
        if fresh:
            yield from fresh.pop().batches(groups, columns, batch_rows, threads)
            return
        with open_parquet(storage, file.path, file.encryption_key) as source:
            yield from OpenFile(source).batches(groups, columns, batch_rows, threads)

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


def _even(rows: int) -> int:
    """Rows of each of the fewest batches of one size that some rows fit in.

    >>> _even(1), _even(BATCH_ROWS), _even(BATCH_ROWS + 1)
    (1, 65536, 32769)
    """
    return -(-rows // -(-rows // BATCH_ROWS))


def _next(batches: Iterator[pa.RecordBatch], file: DataFile, storage: Storage) -> pa.RecordBatch | None:
    """The next batch; only what decoding raises is the file's fault, not what is done with a batch."""
    try:
        return next(batches, None)
    except Exception as error:
        # Only now, as it takes some time, and there may be thousands of small files.
        with storage.reporting("read", file.path):
            if not isinstance(error, pa.ArrowInvalid | OSError) or (isinstance(error, OSError) and error.errno is not None):
                # The store's own failure; the decoder's, such as a page header that is none, have no number.
                raise
            where = printable(file.path)
            raise CorruptFileError(f"{where} cannot be decoded: {error}", path=where) from error
