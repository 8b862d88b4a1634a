"""Column chunks: pages to modules and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError
from ducklake_core.storage.encryption.compact import BadStructError, Struct, read_struct
from ducklake_core.storage.encryption.modules import BadModuleError, Cipher

# Fields of PageHeader, and of the header of each kind of data page in it (parquet.thrift).
_COMPRESSED_SIZE = 3
_DATA_PAGES = (5, 8)
_NUM_VALUES = 1


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
    """All column chunks in the order of their bytes.

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
    """The plain pages of a chunk, each after its header.

    Args:
        encrypted: The bytes of the chunk in the file.
        place: What the footer says of it.
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
        reason = f"{_named(place, where)} holds {values} values where the footer says {place.num_values}: pages were moved or lost"
        raise CorruptFileError(reason, path=where, column=place.column)
    return b"".join(pieces)


def data_page_values(header: Struct) -> int | None:
    """Values in a data page, NULLs included; None for another page."""
    return next((kind.number(_NUM_VALUES) for kind in map(header.struct, _DATA_PAGES) if kind is not None), None)


def _named(place: ChunkPlace, where: str) -> str:
    return f"column {place.column!r} in row group {place.row_group} of {where}"


def plain_pages(chunk: memoryview) -> Iterator[tuple[Struct, memoryview, memoryview]]:
    """The pages of a plain chunk: the parsed header, the header's bytes, the page's.

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
