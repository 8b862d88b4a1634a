"""Types that a frame takes over from the table, where it has none of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ducklake_core.format.types.data_types import BLOB, GEOMETRY, DataType, Field, ListType, MapType, StructType
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema

Parts: TypeAlias = Callable[[Any], Sequence[Any] | None]
"""Types of the children of an engine's type, in order, none where they are not known; None for the type of NULLs alone."""


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


def with_types_for_nulls(frame: Schema, table: Schema, given: Mapping[str, Any], parts: Parts) -> Schema:
    """The frame's columns, where those of NULLs alone, and such elements and fields of others, have the types of the table's.

    Args:
        frame: The frame's columns.
        table: The table's columns.
        given: The engine's types of the frame's columns, by name.
        parts: Takes such a type apart.
    """
    columns = ((column, table.find(column.name)) for column in frame)
    return Schema(columns=tuple(mine if known is None else _typed(given[mine.name], mine, known, parts) for mine, known in columns))


def _typed(given: Any, mine: Field, known: Field, parts: Parts) -> Field:
    children = parts(given)
    if children is None:
        return replace(mine, type=known.type)
    if not children:
        return mine
    match mine.type, known.type:
        case ListType(element=element), ListType(element=other):
            return replace(mine, type=ListType(element=_typed(children[0], element, other, parts)))
        case MapType(key=key, value=value), MapType(key=other_key, value=other):
            typed = MapType(key=_typed(children[0], key, other_key, parts), value=_typed(children[1], value, other, parts))
            return replace(mine, type=typed)
        case StructType(fields=fields), StructType(fields=others):
            names = {folded(field.name): field for field in others}
            pairs = ((child, field, names.get(folded(field.name))) for child, field in zip(children, fields, strict=True))
            found = (field if same is None else _typed(child, field, same, parts) for child, field, same in pairs)
            return replace(mine, type=StructType(fields=tuple(found)))
        case _:
            return mine
