"""One Parquet data file: large row groups, field ids, and statistics taken from the writer's own footer."""

from __future__ import annotations

import sys
from collections.abc import Collection
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core.errors import DuckLakeError, StorageError
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, EncryptionKey, WrittenFile
from ducklake_core.format.options import Options
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOATS,
    GEOMETRY,
    INT128,
    INTEGERS,
    JSON,
    NULL,
    TIMESTAMPS,
    UINT128,
    VARCHAR,
    VARIANT,
    DataType,
    Field,
)
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.storage.file_statistics import StatisticsCollector, parquet_paths
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_files import ONE_PAGE, encrypting_sink, footer_size
from ducklake_core.storage.uploads import discard

if TYPE_CHECKING:
    from ducklake_core.storage.annotations import AnnotatingSink
    from ducklake_core.storage.encryption.encrypting import EncryptingSink
    from ducklake_core.storage.variant_columns import VariantColumns

ROW_GROUP_ROWS = 122_880
"""Rows of a row group unless the option is set, as in DuckDB: readers leave out and share out row groups."""

ROW_GROUP_BYTES = 128 * 1024 * 1024
"""Bytes of a row group as Arrow data, unless the option is set; bounds the memory of a writer."""

_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_DELTAS = frozenset({*INTEGERS, *TIMESTAMPS, DATE} - {INT128, UINT128})
_SAMPLE_ROWS = 16_384
_DISTINCT = 0.9
"""Part of a sample whose values are distinct, above which no row group has fewer distinct values than half of its rows."""
_GUESSED_RATIO = 0.5


class FileWriter:
    """Writes one file at its final path. Readers do not see it before a commit names it.

    Batches are gathered into large row groups, which one background thread encodes while the next is gathered.

    Args:
        storage: Where to write.
        directory: Full path of the table's directory, with a trailing slash.
        path: Path of the file below ``directory``.
        schema: Columns with ids. System columns (row id, snapshot id) may follow the user's columns; they get no statistics.
        options: Compression, row group sizes, page version; the lake's defaults when not given.
        partition_values: Strings of the partition keys that all rows share, for the report.
        encoder: Where row groups are encoded, for writers that share it; a thread of its own when not given.
        encrypted: Whether the file gets a key of its own, which is made here and reported with the file.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        path: str,
        schema: Schema,
        options: Options | None = None,
        *,
        partition_values: tuple[str | None, ...] = (),
        encoder: Executor | None = None,
        encrypted: bool = False,
    ) -> None:
        self.path = path
        self.rows = 0
        self._key = EncryptionKey.random() if encrypted else None
        self._encrypting: EncryptingSink | None = None
        self._annotating: AnnotatingSink | None = None
        self._variants: VariantColumns | None = None
        self._full_path = directory + path
        self._storage = storage
        self._schema = schema
        self._arrow_schema = to_arrow_schema(schema, physical=True)
        self._options = options or Options()
        self._options.check_compression()
        self._row_group_rows = self._options.parquet_row_group_size or ROW_GROUP_ROWS
        self._row_group_bytes = self._options.parquet_row_group_size_bytes or ROW_GROUP_BYTES
        self._partition_values = partition_values
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._received_bytes = 0
        self._progress = (0, 0)  # bytes in the file, and the Arrow bytes that they came from
        self._statistics = StatisticsCollector(schema)
        self._footers: list[pq.FileMetaData] = []
        self._may_exist = False
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._own_encoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parquet-encoder") if encoder is None else None
        self._encoder = encoder or self._own_encoder
        self._encoding: Future[None] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; the batch has exactly the physical columns of the schema (see ``format.arrow_cast.cast_to``).

        Raises:
            StorageError: The file cannot be written.
        """
        size = batch.nbytes
        bytes_per_row = size / max(batch.num_rows, 1)
        start = 0
        while start < batch.num_rows:
            # Rows of a batch are taken to be equally wide: the exact size of a slice costs more than a row group that is a bit off.
            fitting = int((self._row_group_bytes - self._gathered_bytes) / bytes_per_row) if bytes_per_row else sys.maxsize
            piece = batch.slice(start, max(1, min(self._row_group_rows - self._gathered_rows, fitting)))
            start += piece.num_rows
            self._gathered.append(piece)
            self._gathered_rows += piece.num_rows
            self._gathered_bytes += int(piece.num_rows * bytes_per_row)
            if self._gathered_rows >= self._row_group_rows or self._gathered_bytes + bytes_per_row > self._row_group_bytes:
                self.flush()
        self._received_bytes += size
        self.rows += batch.num_rows

    @property
    def gathered_bytes(self) -> int:
        """Bytes of Arrow data that wait for their row group to be full."""
        return self._gathered_bytes

    @property
    def has_begun(self) -> bool:
        """Return whether there is something of the file already."""
        return self._writer is not None

    def take_back(self) -> list[pa.RecordBatch]:
        """Return all rows of a file that has not begun, and discard the file."""
        assert self._writer is None
        rows, self._gathered, self._gathered_rows, self._gathered_bytes = self._gathered, [], 0, 0
        self._shut_down()
        return rows

    @property
    def estimated_size(self) -> int:
        """Bytes of the file so far, with a guess for rows that are not encoded yet."""
        written, encoded = self._progress
        # The target size of files is of encoded bytes, which are known only after a row group; before, Parquet is taken for half of Arrow.
        ratio = written / encoded if encoded else _GUESSED_RATIO
        return int(written + (self._received_bytes - encoded) * ratio)

    def close(self) -> WrittenFile:
        """Finish the file.

        Raises:
            StorageError: The file cannot be written. The unfinished file was deleted.
        """
        try:
            # The last row group is encoded here: nothing is left to gather meanwhile, and a small file needs no thread.
            self._encode_gathered()
            return self._finish()
        except BaseException:
            self.abort()
            raise
        finally:
            self._shut_down()

    def abort(self) -> None:
        """Discard and delete the file. Ignores errors of the store, because the caller already reports an error."""
        with suppress(DuckLakeError, OSError, pa.ArrowException, CancelledError):
            self._wait()
        self._shut_down()
        # First, so that the end of the writer, which wants to write a footer, does not make an object of it.
        if self._sink is not None:
            discard(self._sink)
        # RuntimeError: pyarrow reads from a writer that failed the footer that it never wrote.
        with suppress(DuckLakeError, OSError, pa.ArrowException, RuntimeError):
            if self._writer is not None and self._writer.is_open:
                self._writer.close()
        with suppress(OSError, pa.ArrowException):
            if self._sink is not None and not self._sink.closed:
                self._sink.close()
        if self._may_exist:
            self._storage.discard([self._full_path])

    def _shut_down(self) -> None:
        if self._own_encoder is not None:
            self._own_encoder.shutdown()

    def flush(self) -> None:
        """Hand the rows gathered so far to the encoder, as a row group of their own."""
        if not self._gathered:
            return
        row_group, arrow_bytes = self._take()
        assert self._encoder is not None
        self._encoding = self._encoder.submit(self._encode, row_group, arrow_bytes)

    def _encode_gathered(self) -> None:
        if self._gathered:
            self._encode(*self._take())
        else:
            self._wait()

    def _take(self) -> tuple[pa.Table, int]:
        """Return the gathered rows and their bytes, when the file is ready for them."""
        row_group, arrow_bytes = pa.Table.from_batches(self._gathered), self._gathered_bytes
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        # Here, as encoding is the longer part of the work and has a thread of its own.
        self._statistics.observe(row_group)
        # At most one row group is being encoded while one is gathered: memory stays at two row groups a file.
        self._wait()
        if self._writer is None:
            self._open(row_group)
        return row_group, arrow_bytes

    def _wait(self) -> None:
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            encoding.result()

    def _open(self, first: pa.Table) -> None:
        options, dictionaries = self._options, _dictionary_columns(self._schema, first)
        bounded, arrow_schema = _bounded_columns(self._schema), self._arrow_schema
        if any(column.type == VARIANT for column in self._schema):
            from ducklake_core.storage.variant_columns import VariantColumns

            self._variants = VariantColumns(self._schema, first)
            arrow_schema = self._variants.arrow_schema(arrow_schema)
            dictionaries += self._variants.dictionary_paths(self._schema)
            bounded += self._variants.bounded_paths(self._schema)
        # First: an interrupt can come when the file is there and nothing is returned yet.
        self._may_exist = True
        self._sink = target = self._storage.open_output(self._full_path)
        if self._key is not None:
            self._encrypting = encrypting_sink(self._sink, self._full_path, self._key)
            target = pa.PythonFile(self._encrypting, mode="w")
        marked = {node.id: node.type for node in self._schema.walk() if node.type in (GEOMETRY, VARIANT)}
        if marked:
            from ducklake_core.storage.annotations import AnnotatingSink

            self._annotating = AnnotatingSink(self._sink if self._encrypting is None else self._encrypting, marked)
            target = pa.PythonFile(self._annotating, mode="w")
        with self._storage.reporting("write", self._full_path):
            self._writer = pq.ParquetWriter(
                target,
                arrow_schema,
                # Version 1.0 would change the types of columns, not only their encoding.
                version="2.6",
                compression=_CODECS.get(options.parquet_compression, options.parquet_compression),
                compression_level=options.parquet_compression_level,
                # DuckDB cannot read all encrypted pages of version 2.
                data_page_version="1.0" if self._key is not None else f"{options.parquet_version}.0",
                **({} if self._key is None else ONE_PAGE),
                use_dictionary=dictionaries,
                write_statistics=bounded,
                column_encoding=_encodings(self._schema, dictionaries) if options.parquet_version == 2 else None,
                store_decimal_as_integer=True,
                store_schema=False,
                # A flipped bit often decodes without an error. Checksums cost under 2 % of a write; encryption authenticates pages anyway.
                write_page_checksum=self._key is None,
                # Encrypted files have one page a chunk, and of annotated ones the footer is rewritten, without places of indexes.
                write_page_index=self._key is None and self._annotating is None,
                metadata_collector=self._footers,
            )

    def _encode(self, row_group: pa.Table, arrow_bytes: int) -> None:
        assert self._writer is not None
        assert self._sink is not None
        with self._storage.reporting("write", self._full_path):
            if self._variants is not None:
                row_group = self._variants.shredded(row_group)
            self._writer.write_table(row_group, row_group_size=row_group.num_rows)
            if self._encrypting is not None:
                self._encrypting.seal()
        self._progress = (self._sink.tell(), self._progress[1] + arrow_bytes)

    def _finish(self) -> WrittenFile:
        if self._writer is None or self._sink is None:
            raise StorageError(f"no rows were written to {printable(self._full_path)}", path=printable(self._full_path))
        with self._storage.reporting("finish", self._full_path):
            if self._annotating is not None:
                self._annotating.hold()
            self._writer.close()
            annotated = None if self._annotating is None else self._annotating.finish()
            end = None if self._encrypting is None else self._encrypting.finish()
            size = self._sink.tell()
            self._sink.close()
        (footer,) = self._footers if end is None else (end.metadata,)
        if footer.num_rows != self.rows:
            raise StorageError(f"{printable(self._full_path)} holds {footer.num_rows} rows, but {self.rows} were written")
        return WrittenFile(
            path=self.path,
            record_count=footer.num_rows,
            file_size_bytes=size,
            footer_size=end.footer_size if end is not None else annotated or footer_size(footer),
            statistics=self._statistics.finish(footer, self._variants),
            partition_values=self._partition_values,
            row_ids_embedded=any(column.id == ROW_ID_FIELD_ID for column in self._schema),
            encryption_key=self._key,
            row_group_count=footer.num_row_groups,
        )


def _dictionary_columns(schema: Schema, first: pa.Table) -> list[str]:
    """Return Parquet paths of leaves worth a dictionary: those whose values repeat in the first row group, and all nested ones."""
    return [path for column in schema for leaf, path in parquet_paths(column) if _repeats(leaf, column, first)]


def _bounded_columns(schema: Schema) -> list[str]:
    """Return Parquet paths of leaves whose bounds the footer holds.

    Bounds leave NaN out, which is above all numbers, and readers, DuckDB too, leave row groups out by them: floats have
    none, as DuckDB writes none next to a NaN. When the first row group is written, the others are unknown.
    """
    leaves = [(path, leaf.type) for column in schema for leaf, path in parquet_paths(column)]
    floats = {path for path, leaf_type in leaves if leaf_type in FLOATS}
    return [path for path, _ in leaves if path not in floats]


def _encodings(schema: Schema, dictionaries: Collection[str]) -> dict[str, str] | None:
    """Return the encodings that version 2 of Parquet uses for columns without a dictionary, as DuckDB chooses them."""
    leaves = ((path, leaf.type) for column in schema for leaf, path in parquet_paths(column) if path not in dictionaries)
    found = {path: encoding for path, leaf_type in leaves if (encoding := _encoding(leaf_type)) is not None}
    return found or None


def _encoding(leaf_type: DataType) -> str | None:
    if leaf_type in FLOATS:
        return "BYTE_STREAM_SPLIT"
    if leaf_type in (VARCHAR, BLOB, JSON):
        return "DELTA_LENGTH_BYTE_ARRAY"
    return "DELTA_BINARY_PACKED" if leaf_type in _DELTAS else None


def _repeats(leaf: Field, column: Field, rows: pa.Table) -> bool:
    if leaf.type in (BOOLEAN, VARIANT, NULL):
        return False
    values = rows.column(column.name)
    # Nested values are not sampled: pyarrow gives up a dictionary by itself when it becomes too large.
    if leaf is not column or isinstance(values.type, pa.BaseExtensionType):
        return True
    sample = _distinct(values.slice(0, _SAMPLE_ROWS))
    return sample <= 0.5 or (sample <= _DISTINCT and len(values) > _SAMPLE_ROWS and _distinct(values.slice(0, ROW_GROUP_ROWS)) <= 0.5)


def _distinct(values: pa.ChunkedArray) -> float:
    """Return the part of the values that are distinct."""
    count = len(values) - values.null_count
    return int(pc.count_distinct(values, mode="only_valid").as_py()) / count if count else 0.0
