"""Types that a frame takes over from the table, where it has none of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ducklake_core.format.types.data_types import BLOB, GEOMETRY, Field
from ducklake_core.format.types.schema import Schema


def with_adopted_types(frame: Schema, table: Schema, adopts: Callable[[Field, Field], bool]) -> Schema:
    """The frame's columns, where some take the type of the table's column.

    Args:
        frame: The frame's columns.
        table: The table's columns.
        adopts: Whether a column of the frame takes the type of a column of the table, beside binaries where the table has geometries,
            which are well-known binary wherever there is no type for them.
    """

    def adopted(column: Field) -> Field:
        known = table.find(column.name)
        takes = known is not None and (adopts(column, known) or (column.type == BLOB and known.type == GEOMETRY))
        return replace(column, type=known.type) if known is not None and takes else column

    return Schema(columns=tuple(adopted(column) for column in frame))
