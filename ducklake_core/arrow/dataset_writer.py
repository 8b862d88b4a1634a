"""Rows of any order into the files of a table: cast, checked against the slice's promise, split by partition, rolled by size."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
import pyarrow as pa

from ducklake_core.arrow.fitting import check_promise, fitted
from ducklake_core.arrow.sorting import sorted_rows
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.format.files import WrittenFile
from ducklake_core.format.statistics import verify_written_file
from ducklake_core.format.transforms import partition_arrays
from ducklake_core.storage.file_statistics import user_columns
from ducklake_core.storage.parquet_writer import FileWriter

PartitionValues = tuple[str | None, ...]

MAX_OPEN_FILES = 100
"""Files of different partitions that one writer keeps open; the least recently used is closed beyond that."""

GATHERED_BYTES = 256 * 1024 * 1024
"""Arrow bytes that wait in all open files together before the fullest is made to write a row group."""

SORTED_BYTES = 256 * 1024 * 1024
"""Arrow bytes of rows that are sorted at once, in tables with a sort order; each such run makes files of its own."""

_GATHERED_ROWS = 65_536
_GATHERED_INPUT_BYTES = 32 * 1024 * 1024
"""Rows are cast, checked and split by so many at once, as each step has a cost of its own for a batch; wide rows sooner."""


class DatasetWriter:
    """Writes rows of one write in this process; several may run at the same time in other processes.

    Args:
        state: The write.
    """

    def __init__(self, state: WriteState) -> None:
        state.check_version()
        self._state = state
        self._open: OrderedDict[PartitionValues, FileWriter] = OrderedDict()
        self._written: list[WrittenFile] = []
        self._incoming: list[pa.RecordBatch] = []
        self._incoming_rows = 0
        self._incoming_bytes = 0
        # Files roll between the steps, so a step holds no more than a small file does. Rows to be sorted make files of one step.
        self._step_bytes = SORTED_BYTES if state.sort else min(_GATHERED_INPUT_BYTES, state.options.target_file_size)
        self._step_rows = sys.maxsize if state.sort else _GATHERED_ROWS
        self._encoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parquet-encoder")

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns are found by name, and cast to the table's types.

        Rows are gathered first, so that an error may come with a later call, or with ``close``.

        Raises:
            SchemaError: The rows do not fit the table.
            UsageError: A row does not satisfy the promise.
            StorageError: A file cannot be written.
        """
        if not batch.num_rows:
            return
        if not batch.num_columns:
            raise self._state.without_columns()
        if self._incoming and self._incoming[0].schema != batch.schema:
            self._take_incoming()
        # However large a batch is, it must not become one step: files would grow beyond the target.
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
        self._encoder.shutdown()
        return self._written

    def abort(self) -> None:
        """Delete every file of this writer."""
        for writer in self._open.values():
            writer.abort()
        self._open.clear()
        self._encoder.shutdown(cancel_futures=True)
        self._state.storage.delete([self._state.directory + file.path for file in self._written])
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
            if self._state.sort:
                self._write_sorted(batch)
                continue
            fitting = fitted(batch, self._state)
            if self._state.promise is not None:
                check_promise(fitting, self._state, self._state.promise)
            self._split(fitting)

    def _write_sorted(self, batch: pa.RecordBatch) -> None:
        """Rows in their order, as files of their own: another step begins with smaller values again."""
        rows = sorted_rows(batch, self._state.sort, self._state.schema, self._state.table)
        for start in range(0, rows.num_rows, _GATHERED_ROWS):
            fitting = fitted(rows.slice(start, _GATHERED_ROWS), self._state)
            if self._state.promise is not None:
                check_promise(fitting, self._state, self._state.promise)
            self._split(fitting)
        self._close_files()

    def _split(self, batch: pa.RecordBatch) -> None:
        if self._state.partition_spec is None:
            self._write_file((), batch)
            return
        keys = partition_arrays(self._state.partition_spec, self._state.schema, batch)
        for values, part in _parts(batch, keys):
            self._write_file(values, part)

    def _write_file(self, values: PartitionValues, batch: pa.RecordBatch) -> None:
        writer = self._open.get(values)
        if writer is not None and writer.estimated_size >= self._state.options.target_file_size:
            self._close_file(values)
            writer = None
        if writer is None:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close_file(next(iter(self._open)))
            writer = self._new_file(values)
        self._open[values] = writer
        self._open.move_to_end(values)
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
        file = self._open.pop(values).close()
        # Listed before it is verified, so that abort() finds it.
        self._written.append(file)
        verify_written_file(file, user_columns(self._state.schema), self._state.partition_spec)


def _parts(batch: pa.RecordBatch, keys: list[pa.Array]) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Rows by partition values, in their order within each partition."""
    codes = np.zeros(batch.num_rows, np.int64)
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        _, codes = np.unique(codes * len(encoded.dictionary) + np.asarray(encoded.indices), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = np.append(starts[1:], batch.num_rows)
    rows = batch if len(starts) == 1 else batch.take(pa.array(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield tuple(key[int(order[start])].as_py() for key in keys), rows.slice(start, end - start)
