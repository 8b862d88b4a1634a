"""Read encrypted Parquet files as if they were plain ones (overview in the package's docstring)."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.storage.encryption.compact import BadStructError, Bytes, Struct, read_struct
from ducklake_core.storage.filesystems import Storage

# Fields of PageHeader, and of the header of each kind of data page in it (parquet.thrift).
_COMPRESSED_SIZE = 3
_DATA_PAGES = (5, 8)
_NUM_VALUES = 1

# As much as readers fetch from the end of a file before they know how long its footer is.
_GAP = 64 << 10

PLAIN_MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
CRYPTO_METADATA = bytes.fromhex("1c1c000000")
"""FileCryptoMetaData as DuckDB writes it: AES_GCM_V1 without any associated data, and no key metadata."""
_TAIL = 8
# Enough for the footers of most files, so that one request brings the whole of them.
_FIRST_GUESS = 64 << 10


_LENGTH = 4
_NONCE = 12
_TAG = 16


class BadModuleError(ValueError):
    """Bytes are not a module made with this key."""


class Cipher:
    """AES-GCM with one key and no associated data.

    >>> cipher = Cipher(bytes(16))
    >>> module = cipher.encrypt_module(b"page")
    >>> len(module), cipher.decrypt_module(memoryview(b"ab" + module + b"c"), 2)
    (36, (b'page', 38))
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def encrypt_module(self, plain: Bytes) -> bytes:
        """Return the plain bytes as one module, under a nonce of its own."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, plain, None)
        return b"".join(((_NONCE + len(sealed)).to_bytes(_LENGTH, "little"), nonce, sealed))

    def decrypt_module(self, data: memoryview, start: int) -> tuple[bytes, int]:
        """Decrypt the module at a place; the plain bytes, and the place after it.

        Raises:
            BadModuleError: It is cut, was made with another key, or was changed.
        """
        begin = start + _LENGTH
        end = begin + int.from_bytes(data[start:begin], "little")
        if begin + _NONCE + _TAG > end or end > len(data):
            raise BadModuleError(f"the module at byte {start} is cut")
        try:
            return self._cipher.decrypt(data[begin : begin + _NONCE], data[begin + _NONCE : end], None), end
        except InvalidTag:
            raise BadModuleError(f"the module at byte {start} was changed, or encrypted with another key") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlace:
    """A column chunk in an encrypted file.

    Attributes:
        start: Its first byte.
        end: The byte after its last.
        row_group: Ordinal of its row group.
        column: Path of its leaf column.
        num_values: Values in its data pages, NULLs included.
    """

    start: int
    end: int
    row_group: int
    column: str
    num_values: int


def chunk_places(metadata: pq.FileMetaData, first: int, end: int, where: str) -> list[ChunkPlace]:
    """Return all column chunks in the order of their bytes.

    Args:
        metadata: The footer.
        first: The first byte that may belong to a chunk.
        end: The byte where the footer begins.
        where: The file, for messages.

    Raises:
        CorruptFileError: They lie outside of the file or in one another.
    """
    found = [
        _place(metadata.row_group(group).column(column), group)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    found.sort(key=lambda place: place.start)
    for place in found:
        # Without associated data a footer could point two columns at one chunk, and both would decrypt.
        if place.start < first or place.end < place.start:
            raise CorruptFileError(f"the footer of {where} has column chunks that overlap each other or the magic", path=where)
        first = place.end
    if first > end:
        raise CorruptFileError(f"the footer of {where} has column chunks beyond the end of the file: it was cut", path=where)
    return found


def _place(chunk: pq.ColumnChunkMetaData, row_group: int) -> ChunkPlace:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    return ChunkPlace(
        start=start,
        end=start + chunk.total_compressed_size,
        row_group=row_group,
        column=chunk.path_in_schema,
        num_values=chunk.num_values,
    )


def decrypt_chunk(encrypted: memoryview, place: ChunkPlace, cipher: Cipher, where: str) -> bytes:
    """Return the plain pages of a chunk, each after its header.

    Args:
        encrypted: The bytes of the chunk in the file.
        place: Entry of the footer.
        cipher: With the file's key.
        where: The file, for messages.

    Raises:
        CorruptFileError: A page was changed, or the pages are not those that the footer promises.
    """
    pieces: list[bytes] = []
    values = position = 0
    try:
        while position < len(encrypted):
            header, position = cipher.decrypt_module(encrypted, position)
            page, position = cipher.decrypt_module(encrypted, position)
            pieces += (header, page)
            facts, _ = read_struct(header)
            if facts.number(_COMPRESSED_SIZE) != len(page):
                raise BadModuleError(f"a page of {len(page)} bytes under a header for {facts.number(_COMPRESSED_SIZE)}")
            values += data_page_values(facts) or 0
    except (BadModuleError, BadStructError) as error:
        raise CorruptFileError(f"{_named(place, where)} cannot be decrypted: {error}", path=where, column=place.column) from None
    if values != place.num_values:
        reason = f"{_named(place, where)} holds {values} values, but {place.num_values} by the footer: pages were moved or lost"
        raise CorruptFileError(reason, path=where, column=place.column)
    return b"".join(pieces)


def data_page_values(header: Struct) -> int | None:
    """Return values in a data page, NULLs included; None for another page."""
    return next((kind.number(_NUM_VALUES) for kind in map(header.struct, _DATA_PAGES) if kind is not None), None)


def _named(place: ChunkPlace, where: str) -> str:
    return f"column {place.column!r} in row group {place.row_group} of {where}"


def plain_pages(chunk: memoryview) -> Iterator[tuple[Struct, memoryview, memoryview]]:
    """Yield the pages of a plain chunk: the parsed header, the header's bytes, the page's.

    Raises:
        BadStructError: These are not pages.
    """
    position = 0
    while position < len(chunk):
        header, begin = read_struct(chunk, position)
        size = header.number(_COMPRESSED_SIZE)
        if size is None or size < 0 or begin + size > len(chunk):
            raise BadStructError(f"the page at byte {position} of a column chunk is cut")
        yield header, chunk[position:begin], chunk[begin : begin + size]
        position = begin + size


class PlainImage(io.RawIOBase):
    """A read-only file of plain Parquet, decrypted a column chunk at a time as it is read."""

    def __init__(self, source: pa.NativeFile, key: bytes, path: str, where: str, storage: Storage) -> None:
        """Read the footer.

        Args:
            source: The encrypted file; closed with this one.
            key: Its key.
            path: Its path, to report what the store raises.
            where: Its path as messages may show it.
            storage: That it was opened with.

        Raises:
            CorruptFileError: It is not such a file, or the key is another file's.
            UnsupportedFeatureError: It is encrypted in another form.
        """
        super().__init__()
        self._source, self._cipher, self._path, self._where, self._storage = source, Cipher(key), path, where, storage
        footer = read_encrypted_footer(source, self._cipher, where)
        self._places = chunk_places(footer.metadata, len(ENCRYPTED_MAGIC), footer.start, where)
        self._starts = [place.start for place in self._places]
        self._footer = with_length(footer.plain, PLAIN_MAGIC)
        self._footer_start = footer.start + _GAP
        self._position = 0
        self._last: tuple[ChunkPlace, bytes] | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a place; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._footer_start + len(self._footer)}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, fewer at the end of the file."""
        start, last = self._position, self._footer_start + len(self._footer)
        end = last if size is None or size < 0 else min(start + size, last)
        if start >= end:
            return b""
        self._position = end
        if start >= self._footer_start:
            return self._footer[start - self._footer_start : end - self._footer_start]
        first = max(bisect_right(self._starts, start) - 1, 0)
        place = self._places[first] if self._places else None
        if place is not None and (place.start, place.end) == (start, end):
            # The usual case: pyarrow reads each chunk as a whole, and once.
            return self._decrypted(place).ljust(end - start, b"\0")
        return self._assembled(start, end, first)

    def _assembled(self, start: int, end: int, first: int) -> bytes:
        """Return a part of the image that is not just one chunk."""
        image = bytearray(end - start)
        self._put(image, start, 0, PLAIN_MAGIC)
        self._put(image, start, self._footer_start, self._footer)
        for place in self._places[first:]:
            if place.start >= end:
                break
            if place.end > start:
                # Small reads come in order, so that one chunk is enough to keep.
                if self._last is None or self._last[0] is not place:
                    self._last = (place, self._decrypted(place))
                self._put(image, start, place.start, self._last[1])
        return bytes(image)

    @staticmethod
    def _put(image: bytearray, image_start: int, start: int, content: bytes) -> None:
        """Copy what of the content, standing at a place, lies inside a part of the image."""
        begin, end = max(start, image_start), min(start + len(content), image_start + len(image))
        if begin < end:
            image[begin - image_start : end - image_start] = content[begin - start : end - start]

    def _decrypted(self, place: ChunkPlace) -> bytes:
        length = place.end - place.start
        with self._storage.reporting("read", self._path):
            encrypted = self._source.read_at(length, place.start)
        if len(encrypted) < length:
            raise CorruptFileError(f"{self._where} ends within a column chunk: it was cut while it was read", path=self._where)
        return decrypt_chunk(memoryview(encrypted), place, self._cipher, self._where)

    def close(self) -> None:
        """Close the encrypted file as well."""
        self._last = None
        self._source.close()
        super().close()

    def __repr__(self) -> str:
        return f"PlainImage({self._where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecryptedFooter:
    """The footer of an encrypted file.

    Attributes:
        start: Place in the encrypted file where the footer begins and the column chunks have ended.
        plain: The decrypted footer thrift.
        metadata: The same, parsed; offsets and sizes of chunks are those in the encrypted file.
    """

    start: int
    plain: bytes
    metadata: pq.FileMetaData


def with_length(footer: bytes, magic: bytes) -> bytes:
    """Return a footer with its length and magic number, as at the end of a file."""
    return b"".join((footer, len(footer).to_bytes(4, "little"), magic))


def read_encrypted_footer(source: pa.NativeFile, cipher: Cipher, where: str) -> DecryptedFooter:
    """Read the footer with the file's key.

    Args:
        source: The encrypted file.
        cipher: With its key.
        where: The file, for messages.

    Raises:
        CorruptFileError: The file is not encrypted, is cut, or was encrypted with another key.
        UnsupportedFeatureError: It is encrypted in another form than DuckDB writes.
    """
    start, content = _encrypted_footer(source, where)
    begin = _end_of_crypto_metadata(content, where)
    try:
        plain, end = cipher.decrypt_module(memoryview(content), begin)
    except BadModuleError as error:
        reason = f"the footer of {where} cannot be decrypted: the catalog's key is not the file's, or the file was changed ({error})"
        raise CorruptFileError(reason, path=where) from None
    if end != len(content):
        raise CorruptFileError(f"the footer of {where} has {len(content) - end} bytes too many", path=where)
    try:
        metadata = pq.read_metadata(pa.BufferReader(PLAIN_MAGIC + with_length(plain, PLAIN_MAGIC)))
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFileError(f"the footer of {where} cannot be read: {error}", path=where) from error
    return DecryptedFooter(start=start, plain=plain, metadata=metadata)


def _encrypted_footer(source: pa.NativeFile, where: str) -> tuple[int, bytes]:
    """Return the position of the encrypted footer, and its bytes up to its length."""
    size = source.size()
    tail = source.read_at(min(size, _FIRST_GUESS), max(size - _FIRST_GUESS, 0))
    magic = tail[-4:]
    if magic == PLAIN_MAGIC:
        raise CorruptFileError(f"{where} is not encrypted, although the catalog has a key for it", path=where)
    if size < len(ENCRYPTED_MAGIC) + _TAIL or magic != ENCRYPTED_MAGIC:
        raise CorruptFileError(f"{where} does not end as an encrypted Parquet file does: it was cut, or is something else", path=where)
    length = int.from_bytes(tail[-_TAIL:-4], "little")
    start = size - _TAIL - length
    if start < len(ENCRYPTED_MAGIC):
        raise CorruptFileError(f"{where} is shorter than its footer: it was cut", path=where)
    inside = len(tail) - _TAIL - length
    return start, tail[inside:-_TAIL] if inside >= 0 else source.read_at(length, start)


def _end_of_crypto_metadata(content: bytes, where: str) -> int:
    if content.startswith(CRYPTO_METADATA):
        return len(CRYPTO_METADATA)
    try:
        crypto, end = read_struct(content)
    except BadStructError as error:
        raise CorruptFileError(f"{where} does not contain how it is encrypted: {error}", path=where) from None
    algorithm = crypto.struct(1)
    gcm = algorithm.struct(1) if algorithm is not None else None
    if gcm is None:
        raise UnsupportedFeatureError(f"{where} is encrypted with another algorithm than AES_GCM_V1, which is not supported", path=where)
    if gcm != Struct():
        raise UnsupportedFeatureError(
            f"{where} is encrypted with associated data (AAD), as DuckDB does not write it; this is not supported", path=where
        )
    # Field 2, metadata of the key, is not needed by a reader that has the key.
    return end
