"""A plain Parquet file made into an encrypted one that the reference reads."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core.errors import CorruptFileError
from ducklake_core.format.encryption_key import EncryptionKey
from ducklake_core.storage.encryption.chunks import data_page_values, plain_pages
from ducklake_core.storage.encryption.compact import BadStructError, Struct, read_struct, write_struct
from ducklake_core.storage.encryption.footer import CRYPTO_METADATA, ENCRYPTED_MAGIC, PLAIN_MAGIC, with_length
from ducklake_core.storage.encryption.modules import Cipher

_TAIL = 8
# Fields of the footer's structs (parquet.thrift).
_ROW_GROUPS = 4
_COLUMNS, _GROUP_START, _GROUP_COMPRESSED = 1, 5, 6
_CHUNK_FILE_OFFSET, _CHUNK_METADATA, _CHUNK_INDEXES = 2, 3, (4, 5, 6, 7)
_COMPRESSED_SIZE, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, _BLOOM_FILTERS = 7, 9, 10, 11, (14, 15)


def encrypt_parquet(source: pa.NativeFile, sink: pa.NativeFile, key: EncryptionKey, where: str) -> tuple[int, int]:
    """Write the encrypted form of a plain file, a column chunk at a time.

    Page indexes and Bloom filters are left out, as the reference would not decrypt them. It also fails on encrypted data pages
    of version 2 that are not compressed in a column that is, so leave the source's pages at version 1, pyarrow's default.

    Args:
        source: The plain file, whole and open for random reads.
        sink: Takes the encrypted file; closing it is the caller's.
        key: The key.
        where: The file, for messages.

    Returns:
        Size of the encrypted file and its footer's length as in ``ducklake_data_file``, in bytes.

    Raises:
        CorruptFileError: The source is no plain Parquet file.
    """
    cipher = Cipher(key.raw(where))
    try:
        footer = _plain_footer(source, where)
        sink.write(ENCRYPTED_MAGIC)
        position = len(ENCRYPTED_MAGIC)
        for group in footer.structs(_ROW_GROUPS):
            position = _encrypt_group(group, position, source, sink, cipher)
    except BadStructError as error:
        raise CorruptFileError(f"{where} is not a readable Parquet file: {error}", path=where) from error
    sealed = CRYPTO_METADATA + cipher.encrypt_module(write_struct(footer))
    end = with_length(sealed, ENCRYPTED_MAGIC)
    sink.write(end)
    return position + len(end), len(sealed)


def _plain_footer(source: pa.NativeFile, where: str) -> Struct:
    size = source.size()
    tail = source.read_at(_TAIL, max(size - _TAIL, 0))
    start = size - _TAIL - int.from_bytes(tail[:4], "little")
    if tail[4:] != PLAIN_MAGIC or start < len(PLAIN_MAGIC):
        raise CorruptFileError(f"{where} is not a plain Parquet file", path=where)
    footer, end = read_struct(source.read_at(size - _TAIL - start, start))
    if start + end != size - _TAIL:
        raise BadStructError("the footer is longer than what it says")
    return footer


def _encrypt_group(group: Struct, position: int, source: pa.NativeFile, sink: pa.NativeFile, cipher: Cipher) -> int:
    """Write the chunks of a row group from a position on, and change its footer entry to them; returns where they end."""
    first = position
    for chunk in group.structs(_COLUMNS):
        metadata = chunk.struct(_CHUNK_METADATA)
        if metadata is None:
            raise BadStructError("a column chunk without metadata")
        position = _encrypt_chunk(metadata, position, source, sink, cipher)
        chunk.drop(*_CHUNK_INDEXES)
        # Deprecated, and 0 in all files that are written today.
        chunk.change(_CHUNK_FILE_OFFSET, 0)
    if _GROUP_START in group:
        group.change(_GROUP_START, first)
    if _GROUP_COMPRESSED in group:
        group.change(_GROUP_COMPRESSED, position - first)
    return position


def _encrypt_chunk(metadata: Struct, position: int, source: pa.NativeFile, sink: pa.NativeFile, cipher: Cipher) -> int:
    length, dictionary = metadata.number(_COMPRESSED_SIZE), metadata.number(_DICTIONARY_PAGE)
    # Without rows there may be a dictionary alone, or no page at all; what is not there is at 0.
    places = [place for place in (metadata.number(_DATA_PAGE), dictionary) if place]
    if length is None or (length and not places):
        raise BadStructError("a column chunk without a place")
    start = min(places, default=0)
    first = position
    data_page = None
    for header, header_bytes, page in plain_pages(memoryview(source.read_at(length, start))):
        if data_page is None and data_page_values(header) is not None:
            data_page = position
        for plain in (header_bytes, page):
            module = cipher.encrypt_module(plain)
            sink.write(module)
            position += len(module)
    metadata.change(_DATA_PAGE, first if data_page is None else data_page)
    if dictionary:
        metadata.change(_DICTIONARY_PAGE, first)
    metadata.change(_COMPRESSED_SIZE, position - first)
    metadata.drop(_INDEX_PAGE, *_BLOOM_FILTERS)
    return position
