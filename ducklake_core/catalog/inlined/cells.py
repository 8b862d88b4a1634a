"""Cells of inlined rows, as any of the databases stores them, into Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.inlined.nested_text import parse_leaf, parse_nested
from ducklake_core.catalog.inlined.variants import NULL_VARIANT, plain_type, split_variant
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.evolution.promotion import promote
from ducklake_core.format.types.arrow_types import ArrowArray, ArrowType, to_arrow_field, to_arrow_type
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    FLOATS,
    INTEGERS,
    JSON,
    TIMESTAMP,
    VARCHAR,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.format.values.leaf_cast import from_values
from ducklake_core.format.values.variant_encoding import plain_metadata


def cells_array(cells: Sequence[Any], old: Field, new: Field, abilities: Abilities) -> ArrowArray:
    """Cells of a column as an array of what the column is now.

    Raises:
        SchemaError: A cell is not a value of the column; also as Arrow says it.
        UnsupportedFeatureError: The column cannot be read from this database.
    """
    kinds = set(map(type, cells)) - {type(None)}
    quick = _parsed(cells, kinds, old)
    if quick is not None:
        return quick if old.type == new.type else promote(quick, new)
    held = cells if _are_plain(kinds, old) else [_decoded(cell, old, abilities) for cell in cells]
    return stored_array(held, old, new)


def _parsed(cells: Sequence[Any], kinds: set[type], column: Field) -> ArrowArray | None:
    """Cells that Arrow parses as we do, a hundred times as fast; None when there are others among them, and each has to be looked at."""
    if kinds == {int} and column.type == BOOLEAN and set(cells) <= {0, 1, None}:
        return pa.array(cells, pa.int8()).cast(pa.bool_())
    if kinds != {str} or not (column.type in (FLOAT64, DATE, TIMESTAMP) or isinstance(column.type, DecimalType)):
        return None
    # Arrow takes a time of hours alone.
    if column.type == TIMESTAMP and min(len(cell) for cell in cells if cell is not None) < len("2024-01-01 00:00:00"):
        return None
    try:
        return pa.array(cells, pa.string()).cast(to_arrow_type(column.type))
    except pa.ArrowException:
        return None


def _are_plain(kinds: set[type], column: Field) -> bool:
    """Whether all cells are values already: looking at each costs more than everything else."""
    if column.type in (VARCHAR, JSON):
        return kinds <= {str}
    return (kinds <= {int} and column.type in INTEGERS) or (kinds <= {float} and column.type in FLOATS)


def _decoded(cell: Any, column: Field, abilities: Abilities) -> object:
    """The Python form of a cell as any of the databases stores it."""
    match column.type, cell:
        case _, None:
            return None
        case PrimitiveType(name="boolean"), 0 | 1:
            return bool(cell)
        case PrimitiveType(name="blob"), bytes() | memoryview():
            return bytes(cell)
        case PrimitiveType(name="varchar" | "json"), bytes() | memoryview():
            return bytes(cell).decode()
        case PrimitiveType(name="varchar" | "json"), str():
            return cell
        case PrimitiveType(name="variant"), {"metadata": bytes(), "value": bytes() as value}:
            return None if value == NULL_VARIANT else cell
        case PrimitiveType(name="variant"), bytes() | memoryview() if not abilities.inlined_as_is:
            found = split_variant(bytes(cell))
            return None if found["value"] == NULL_VARIANT else found
        case PrimitiveType(name="variant" | "geometry"), _:
            raise UnsupportedFeatureError(f"inlined values of type {column.type} are not supported", column=column.name)
        case PrimitiveType(), int():
            if column.type != BOOLEAN:
                return cell
            raise SchemaError(f"{cell} is neither true nor false")
        case PrimitiveType(), float() if column.type in FLOATS or cell.is_integer():
            return cell
        case ((ListType() | MapType() | StructType()), str()):
            held = plain_type(column.type) if abilities.inlined_as_is else column.type
            return parse_nested(cell, held, literal_structs=not abilities.inlined_as_is)
        case ((PrimitiveType() | DecimalType()), str()):
            return parse_leaf(cell, column.type)
        case _:
            raise SchemaError(f"{cell!r} is not a value of type {column.type}")


def stored_array(values: Sequence[Any], old: Field, new: Field) -> ArrowArray:
    """Values of a column as it was when they were stored, as an array of what the column is now; children are matched by id."""
    match old.type, new.type:
        case StructType(), StructType(fields=fields):
            children = _children(old)
            arrays = [_member(values, children.get(field.id), field) for field in fields]
            nulls = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=[to_arrow_field(field) for field in fields], mask=nulls)
        case ListType(element=before), ListType(element=after):
            flat = [item for value in values if value is not None for item in value]
            return _list_array(pa.ListArray, _offsets(values), stored_array(flat, before, after), type=to_arrow_type(new.type))
        case MapType(key=old_key, value=old_value), MapType(key=new_key, value=new_value):
            pairs = [pair for value in values if value is not None for pair in value]
            keys = stored_array([key for key, _ in pairs], old_key, new_key)
            items = stored_array([value for _, value in pairs], old_value, new_value)
            return _list_array(pa.MapArray, _offsets(values), keys, items, type=to_arrow_type(new.type))
        case PrimitiveType(name="variant"), _:
            return from_values([_as_in_files(value) for value in values], old.type)
        case _:
            array = from_values(values, old.type)
            return array if old.type == new.type else promote(array, new)


def _as_in_files(variant: Any) -> object:
    """A variant as it reads from files: NULL for null, and a dictionary that says that it is sorted only when it is."""
    if variant is None or variant["value"] == NULL_VARIANT:
        return None
    return {"metadata": plain_metadata(variant["metadata"]), "value": variant["value"]}


def _list_array(kind: Any, *parts: ArrowArray, type: ArrowType) -> ArrowArray:  # noqa: A002
    return kind.from_arrays(*parts, type=type)


def _children(field: Field) -> dict[int, Field]:
    return {child.id: child for child in field.children}


def _member(values: Sequence[Any], old: Field | None, new: Field) -> ArrowArray:
    if old is None:
        return constant_array(new.initial_default, new, len(values))
    return stored_array([None if value is None else value.get(old.name) for value in values], old, new)


def _offsets(values: Iterable[Any]) -> ArrowArray:
    """Where each list begins; a NULL offset makes the list NULL."""
    found: list[int | None] = []
    end = 0
    for value in values:
        found.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*found, end], pa.int32())
