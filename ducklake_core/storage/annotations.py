"""Annotate GEOMETRY and VARIANT columns in the footer of a Parquet file, because pyarrow cannot write these types.

Without the annotations, DuckDB reads a geometry as a blob and a variant as a struct. Only the footer changes, so the offsets in the
file stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Protocol

from thrift.Thrift import TType

from ducklake_core.format.types.data_types import GEOMETRY, VARIANT, DataType
from ducklake_core.storage.encryption.compact import Struct, read_struct, write_struct

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MAGIC = b"PAR1"
_TAIL = 8
# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData and Statistics.
_SCHEMA, _ROW_GROUPS = 2, 4
_CHILDREN, _FIELD_ID, _LOGICAL_TYPE = 5, 9, 10
_COLUMNS, _CHUNK_METADATA, _STATISTICS = 1, 3, 12
_BOUNDS = (1, 2, 5, 6, 7, 8)
# Members of the union LogicalType.
_VARIANT_TYPE, _GEOMETRY_TYPE = 16, 17
_VERSION = 1


class Sink(Protocol):
    """A file object that takes the bytes of the file."""

    def write(self, data: Any, /) -> object:
        """Take bytes."""


class AnnotatingSink(RawIOBase):
    """Passes a Parquet file on, with marks in its footer.

    Args:
        sink: Takes the file.
        types: Types to mark, by field id.
    """

    def __init__(self, sink: Sink, types: Mapping[int, DataType]) -> None:
        super().__init__()
        self._sink, self._types = sink, types
        self._written = 0
        self._held: bytearray | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._written

    def write(self, data: ReadableBuffer, /) -> int:
        """Take bytes: passed on, or held from :meth:`hold` on."""
        length = memoryview(data).nbytes
        if self._held is None:
            self._sink.write(data)
        else:
            self._held += data
        self._written += length
        return length

    def hold(self) -> None:
        """Hold what follows, which ends with the footer."""
        self._held = bytearray()

    def finish(self) -> int:
        """Pass on what was held, with its marks, after the file was closed.

        Returns:
            Bytes of the footer thrift.
        """
        held = bytes(self._held or b"")
        length = int.from_bytes(held[-_TAIL:-4], "little")
        start = len(held) - _TAIL - length
        footer, _ = read_struct(held[start:-_TAIL])
        _annotate(footer, self._types)
        content = write_struct(footer)
        self._sink.write(b"".join((held[:start], content, len(content).to_bytes(4, "little"), _MAGIC)))
        return len(content)


def _annotate(footer: Struct, types: Mapping[int, DataType]) -> None:
    elements = footer.structs(_SCHEMA)
    for element in elements:
        kind = types.get(element.number(_FIELD_ID) or 0)
        if kind == VARIANT:
            element[_LOGICAL_TYPE] = _union(_VARIANT_TYPE, Struct({1: (TType.BYTE, _VERSION)}))
        elif kind == GEOMETRY:
            element[_LOGICAL_TYPE] = _union(_GEOMETRY_TYPE, Struct())
    leaves = [element for element in elements if not element.number(_CHILDREN)]
    for group in footer.structs(_ROW_GROUPS):
        for leaf, chunk in zip(leaves, _chunks(group), strict=True):
            statistics = chunk.struct(_STATISTICS)
            if statistics is not None and types.get(leaf.number(_FIELD_ID) or 0) == GEOMETRY:
                # The order of these bytes is none of geometries.
                statistics.drop(*_BOUNDS)


def _union(member: int, value: Struct) -> tuple[int, Struct]:
    return TType.STRUCT, Struct({member: (TType.STRUCT, value)})


def _chunks(group: Struct) -> Iterator[Struct]:
    for chunk in group.structs(_COLUMNS):
        metadata = chunk.struct(_CHUNK_METADATA)
        assert metadata is not None
        yield metadata
