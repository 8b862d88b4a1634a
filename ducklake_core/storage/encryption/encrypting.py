"""Plain Parquet encrypted while it is written, in the form that DuckDB reads."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError
from ducklake_core.storage.encryption.compact import BadStructError, Struct, read_struct, write_struct
from ducklake_core.storage.encryption.reading import CRYPTO_METADATA, ENCRYPTED_MAGIC, PLAIN_MAGIC, Cipher, plain_pages, with_length

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ducklake_core.format.files.data_files import EncryptionKey

_TAIL = 8
# Fields of the footer's structs (parquet.thrift).
_ROW_GROUPS = 4
_COLUMNS, _GROUP_START, _GROUP_COMPRESSED = 1, 5, 6
_CHUNK_FILE_OFFSET, _CHUNK_METADATA, _CHUNK_INDEXES = 2, 3, (4, 5, 6, 7)
_COMPRESSED_SIZE, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _BLOOM_FILTERS = 7, 9, 10, 11, (14, 15)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedEnd:
    """An encrypted file that is whole.

    Attributes:
        size: Its bytes.
        footer_size: Length of its footer as in ``ducklake_data_file``.
        metadata: The footer; offsets and sizes of chunks are those in the encrypted file.
    """

    size: int
    footer_size: int
    metadata: pq.FileMetaData


class EncryptingSink(io.RawIOBase):
    """Takes a plain Parquet file from its first byte on, and writes its encrypted form to another sink.

    What was written waits in memory until :meth:`seal`, so at most one row group does. Page indexes and Bloom filters are left
    out, as DuckDB would not decrypt them. It also fails on encrypted data pages of version 2 that are not compressed in a
    column that is, so the writer's pages must be of version 1.
    """

    def __init__(self, sink: pa.NativeFile, key: EncryptionKey, where: str) -> None:
        """Begin the file.

        Args:
            sink: Takes the encrypted file; closing it is the caller's.
            key: Its key.
            where: Its path as messages may show it.
        """
        super().__init__()
        self._sink, self._cipher, self._where = sink, Cipher(key.raw(where)), where
        self._pending = bytearray()
        self._written = 0  # plain bytes taken
        self._sealed = 0  # plain bytes that are no longer pending
        self._position = 0  # encrypted bytes
        self._places: dict[int, int] = {}  # where the pages of the plain file begin in the encrypted one, and where the last ends

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next plain byte."""
        return self._written

    def write(self, data: ReadableBuffer, /) -> int:
        """Take plain bytes."""
        length = memoryview(data).nbytes
        self._pending += data
        self._written += length
        return length

    def seal(self) -> None:
        """Encrypt and pass on what was written so far, at the end of a row group.

        Raises:
            CorruptFileError: It does not end with a whole page.
        """
        try:
            self._seal(self._written)
        except BadStructError as error:
            raise self._not_parquet(error) from error

    def finish(self) -> EncryptedEnd:
        """Write the rest, after the plain file was closed.

        Raises:
            CorruptFileError: The written file is not a plain Parquet file.
        """
        try:
            footer = self._plain_footer()
            chunks = [_metadata(chunk) for group in footer.structs(_ROW_GROUPS) for chunk in group.structs(_COLUMNS)]
            self._seal(max((sum(_extent(chunk)) for chunk in chunks), default=self._sealed))
            for group in footer.structs(_ROW_GROUPS):
                self._move_group(group)
        except BadStructError as error:
            raise self._not_parquet(error) from error
        plain = write_struct(footer)
        sealed = CRYPTO_METADATA + self._cipher.encrypt_module(plain)
        self._pass_on(with_length(sealed, ENCRYPTED_MAGIC))
        metadata = pq.read_metadata(pa.BufferReader(PLAIN_MAGIC + with_length(plain, PLAIN_MAGIC)))
        return EncryptedEnd(size=self._position, footer_size=len(sealed), metadata=metadata)

    def _not_parquet(self, error: BadStructError) -> CorruptFileError:
        return CorruptFileError(f"{self._where} is not a plain Parquet file: {error}", path=self._where)

    def _seal(self, end: int) -> None:
        """Encrypt the pages up to a place in the plain file."""
        if not self._sealed:
            if not self._pending.startswith(PLAIN_MAGIC):
                raise BadStructError("it does not begin as one does")
            self._pass_on(ENCRYPTED_MAGIC)
            del self._pending[: len(PLAIN_MAGIC)]
            self._sealed = len(PLAIN_MAGIC)
        if end <= self._sealed:
            return
        pending = memoryview(self._pending)[: end - self._sealed]
        self._pending = self._pending[end - self._sealed :]
        # Each module is longer than its plain form, so pages move. The new places of page starts are noted for the footer, which is
        # rewritten at the end.
        for _, header, page in plain_pages(pending):
            self._places[self._sealed] = self._position
            self._pass_on(self._cipher.encrypt_module(header))
            self._pass_on(self._cipher.encrypt_module(page))
            self._sealed += len(header) + len(page)
        self._places[self._sealed] = self._position

    def _pass_on(self, content: bytes) -> None:
        self._sink.write(content)
        self._position += len(content)

    def _plain_footer(self) -> Struct:
        tail = bytes(self._pending[-_TAIL:])
        start = len(self._pending) - _TAIL - int.from_bytes(tail[:4], "little")
        if tail[4:] != PLAIN_MAGIC or start < (0 if self._sealed else len(PLAIN_MAGIC)):
            raise BadStructError("it does not end as one does")
        footer, end = read_struct(self._pending[start:-_TAIL])
        if start + end != len(self._pending) - _TAIL:
            raise BadStructError("the footer is longer than the length that it states")
        return footer

    def _move_group(self, group: Struct) -> None:
        """Change the footer entry of a row group to where its chunks are now."""
        starts, length = [], 0
        for chunk in group.structs(_COLUMNS):
            first, size = self._move_chunk(_metadata(chunk))
            starts.append(first)
            length += size
            chunk.drop(*_CHUNK_INDEXES)
            # Deprecated, and 0 in all files that are written today.
            chunk.change(_CHUNK_FILE_OFFSET, 0)
        if _GROUP_START in group:
            group.change(_GROUP_START, min(starts, default=self._position))
        if _GROUP_COMPRESSED in group:
            group.change(_GROUP_COMPRESSED, length)

    def _move_chunk(self, metadata: Struct) -> tuple[int, int]:
        start, length = _extent(metadata)
        # Without rows there may be no page at all; what is not there is at 0.
        first = self._place(start) if length else self._position
        size = self._place(start + length) - first if length else 0
        data_page = metadata.number(_DATA_PAGE)
        metadata.change(_DATA_PAGE, self._place(data_page) if data_page and length else first)
        if metadata.number(_DICTIONARY_PAGE):
            metadata.change(_DICTIONARY_PAGE, first)
        metadata.change(_COMPRESSED_SIZE, size)
        metadata.drop(_INDEX_PAGE, *_BLOOM_FILTERS)
        return first, size

    def _place(self, plain: int) -> int:
        if plain not in self._places:
            raise BadStructError(f"no page begins or ends at byte {plain}")
        return self._places[plain]


def _metadata(chunk: Struct) -> Struct:
    metadata = chunk.struct(_CHUNK_METADATA)
    if metadata is None:
        raise BadStructError("a column chunk without metadata")
    return metadata


def _extent(metadata: Struct) -> tuple[int, int]:
    """Return the first byte of a plain chunk, and its length."""
    length = metadata.number(_COMPRESSED_SIZE)
    places = [place for place in (metadata.number(_DATA_PAGE), metadata.number(_DICTIONARY_PAGE)) if place]
    if length is None or (length and not places):
        raise BadStructError("a column chunk without a place")
    return min(places, default=0), length
