"""Types that a frame takes over from the table, where it has none of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ducklake_core.format.types.data_types import BLOB, GEOMETRY, DataType, Field
from ducklake_core.format.types.schema import Schema


def with_adopted_types(frame: Schema, table: Schema, adopted_type: Callable[[Field, Field], DataType]) -> Schema:
    """The frame's columns, where some take the type of the table's column.

    Args:
        frame: The frame's columns.
        table: The table's columns.
        adopted_type: The type that a column of the frame has beside a column of the table; binaries where the table has geometries, which
            are well-known binary wherever there is no type for them, are geometries.
    """

    def adopted(column: Field) -> Field:
        known = table.find(column.name)
        if known is None:
            return column
        is_geometry = column.type == BLOB and known.type == GEOMETRY
        return replace(column, type=GEOMETRY if is_geometry else adopted_type(column, known))

    return Schema(columns=tuple(adopted(column) for column in frame))
