"""Cells of inlined rows, as any of the databases stores them, into Arrow arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.inlined.nested_text import parse_leaf, parse_nested
from ducklake_core.catalog.inlined.variants import NULL_VARIANT, plain_type, split_variant
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.evolution.promotion import promote
from ducklake_core.format.types.arrow_types import ArrowArray, ArrowType, to_arrow_field, to_arrow_type
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOATS,
    INT128,
    INTEGERS,
    JSON,
    TIMESTAMP,
    UINT128,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.format.values.leaf_cast import cast_leaf, from_values
from ducklake_core.format.values.variant_encoding import plain_metadata

_PLAIN = frozenset({BLOB, BOOLEAN, DATE, TIMESTAMP, VARCHAR, JSON, *FLOATS, *INTEGERS} - {INT128, UINT128})


def cells_array(cells: Sequence[Any] | ArrowArray, old: Field, new: Field, abilities: Abilities) -> ArrowArray:
    """Cells of a column, as Python's values or as Arrow's, as an array of what the column is now.

    Raises:
        SchemaError: A cell is not a value of the column; also as Arrow says it.
        UnsupportedFeatureError: The column cannot be read from this database.
    """
    quick = _plain_array(cells, old)
    if quick is not None:
        return quick if old.type == new.type else promote(quick, new)
    values = cells.to_pylist() if isinstance(cells, pa.Array) else cells
    return stored_array([_decoded(cell, old, abilities) for cell in values], old, new)


def _plain_array(cells: Sequence[Any] | ArrowArray, column: Field) -> ArrowArray | None:
    """Cells that Arrow reads as we do, many times as fast; None when there are others among them, and each has to be looked at."""
    if not (column.type in _PLAIN or isinstance(column.type, DecimalType)):
        return None
    try:
        return _converted(found_array(cells, integers=column.type in INTEGERS), column.type)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        # Cells of several types, or values that the column cannot have: what is wrong is found one by one.
        return None


def found_array(cells: Sequence[Any] | ArrowArray, *, integers: bool = False) -> ArrowArray:
    """Cells in the type that they have, NULL for None; an array as it is.

    Args:
        integers: Whether they likely are integers without NULL, of which the standard library makes an array in half of the time.

    Raises:
        pyarrow.ArrowException, ValueError, OverflowError, TypeError: They are of several types, or have no Arrow type.
    """
    if isinstance(cells, pa.Array):
        return cells
    if integers:
        with suppress(TypeError, OverflowError):
            return pa.Array.from_buffers(pa.int64(), len(cells), [None, pa.py_buffer(array("q", cells))])
    return pa.array(cells)


def _converted(found: ArrowArray, wanted: DataType) -> ArrowArray | None:
    """Cells of one type, which Arrow has found, as values of a column; None where Arrow's conversion may be another than ours."""
    if pa.types.is_null(found.type):
        found = found.cast(pa.string())
        return cast_leaf(found, wanted, physical=False) if wanted in (VARCHAR, JSON) else found.cast(to_arrow_type(wanted))
    match wanted:
        case PrimitiveType(name="varchar" | "json") if pa.types.is_string(found.type) or pa.types.is_binary(found.type):
            return cast_leaf(found.cast(pa.string()), wanted, physical=False)
        case PrimitiveType(name="blob"):
            return found if pa.types.is_binary(found.type) else None
        case PrimitiveType(name="boolean"):
            return found.cast(pa.bool_()) if pa.types.is_boolean(found.type) or _is_zero_or_one(found) else None
        case PrimitiveType(name="float64" | "float32") if pa.types.is_float64(found.type):
            return found.cast(to_arrow_type(wanted))
        case PrimitiveType(name="float64" | "date" | "timestamp") | DecimalType() if pa.types.is_string(found.type):
            # Arrow takes a time of hours alone.
            is_short = wanted == TIMESTAMP and pc.min(pc.binary_length(found)).as_py() < len("2024-01-01 00:00:00")
            return None if is_short else found.cast(to_arrow_type(wanted))
        case _ if wanted in INTEGERS and pa.types.is_int64(found.type):
            return found.cast(to_arrow_type(wanted))
        case _:
            return None


def _is_zero_or_one(found: ArrowArray) -> bool:
    if not pa.types.is_int64(found.type):
        return False
    bounds: Any = pc.min_max(found).as_py()
    return bool(0 <= bounds["min"] <= bounds["max"] <= 1)


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
            stored = from_values(values, old.type)
            return stored if old.type == new.type else promote(stored, new)


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
