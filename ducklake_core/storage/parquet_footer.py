"""Footers of Parquet files: how long they are, and what they say of a file as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.second_look import read_twice

_MAGIC = b"PAR1"
_LENGTH_AND_MAGIC = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A Parquet file seen from its end.

    Attributes:
        record_count: Rows.
        file_size_bytes: Bytes of the whole file.
        footer_size: Bytes of the footer thrift, without its length field and magic, as in ``ducklake_data_file``.
        metadata: The parsed footer.
    """

    record_count: int
    file_size_bytes: int
    footer_size: int
    metadata: pq.FileMetaData


def read_footer(storage: Storage, path: str) -> Footer:
    """Read the footer of a file.

    Raises:
        NotFoundError: There is no such file.
        CorruptFileError: It is not a (whole) Parquet file.
        StorageError: It cannot be read.
    """
    return read_twice(lambda: _read_footer(storage, path))


def _read_footer(storage: Storage, path: str) -> Footer:
    with storage.open_input(path) as source, storage.reporting("read the footer of", path):
        size = source.size()
        source.seek(max(size - _LENGTH_AND_MAGIC, 0))
        tail = source.read(_LENGTH_AND_MAGIC)
        if len(tail) < _LENGTH_AND_MAGIC or tail[4:] != _MAGIC:
            raise CorruptFileError(f"{printable(path)} does not end as a Parquet file does: it was cut, or is something else", path=path)
        source.seek(0)
        try:
            metadata = pq.read_metadata(source)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(f"the footer of {printable(path)} cannot be read: {error}", path=printable(path)) from error
    return Footer(
        record_count=metadata.num_rows,
        file_size_bytes=size,
        footer_size=int.from_bytes(tail[:4], "little"),
        metadata=metadata,
    )


def footer_size(metadata: pq.FileMetaData) -> int:
    """Bytes of the footer thrift that a writer has just put at the end of its file, without reading the file again."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    # A metadata file is a magic, the footer, its length and the magic again.
    return int(sink.getvalue().size) - len(_MAGIC) - _LENGTH_AND_MAGIC
