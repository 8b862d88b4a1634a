"""Old values of columns whose type was changed since, as DuckDB casts them (specification: Schema Evolution).

Beyond what :func:`~ducklake_core.format.values.arrow_cast.cast_array` does without losing anything, DuckDB
lets every type become json or text, and decimals lose digits of their scale.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    INT128,
    INTEGERS,
    INTERVAL,
    JSON,
    UINT128,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
    PrimitiveType,
)
from ducklake_core.format.types.schema import ArrowArray, ArrowType, from_arrow_field
from ducklake_core.format.values.arrow_cast import cast_array
from ducklake_core.format.values.leaf_values import python_values
from ducklake_core.format.values.value_text import decimal_text, to_cast_text, unscaled

# From this many digits on, DuckDB copies a decimal's text instead of making a number.
_NUMBER_DIGITS = 15
_STRINGS = ("varchar", "json")


def promote(array: ArrowArray, field: Field) -> ArrowArray:
    """Return the values of a leaf's older type in the Arrow type that it has now.

    >>> promote(pa.array([True, None]), Field(name="c", type=JSON)).to_pylist()
    ['true', None]
    >>> promote(pa.array([Decimal("2.50"), Decimal("-2.50")]), Field(name="c", type=DecimalType(precision=3, scale=0))).to_pylist()
    [Decimal('3'), Decimal('-3')]

    Raises:
        SchemaError: A value that does not fit, or one whose text depends on a type that the file does not name.
    """
    if pa.types.is_null(array.type):
        return cast_array(array, field)
    if field.type == JSON:
        return _to_json(array, field)
    if field.type == VARCHAR and _has_own_text(array.type):
        return _to_text(array, field)
    if isinstance(field.type, DecimalType) and pa.types.is_decimal(array.type) and array.type.scale > field.type.scale:
        # One more digit, because 9.9 becomes 10.
        wider = array.cast(pa.decimal256(array.type.precision + 1, array.type.scale))
        array = pc.round(wider, field.type.scale, round_mode="half_towards_infinity")
    return cast_array(array, field)


def bounds_hold(old: DataType, new: DataType) -> bool:
    """Return whether minimum and maximum strings of one type are right for the values as another type.

    >>> from ducklake_core.format.types.data_types import *
    >>> bounds_hold(INT32, INT64), bounds_hold(INT32, JSON), bounds_hold(FLOAT32, FLOAT64)
    (True, False, False)
    """
    if old == new or (old == VARCHAR and new == JSON):
        return True
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale <= new.scale
    # The shortest text of a float32, read as a float64, is another number. Integers of up to 64 bits are read in order.
    if isinstance(new, PrimitiveType) and new.name in ("float32", "float64"):
        return old in INTEGERS and old not in (INT128, UINT128)
    return old != BOOLEAN and new != JSON


def _to_json(array: ArrowArray, field: Field) -> ArrowArray:
    old = _held_type(array, field)
    if isinstance(old, PrimitiveType) and old.name in _STRINGS:
        return cast_array(array, field)
    if isinstance(old, PrimitiveType) and old.name == "time":
        raise SchemaError(
            f"column {field.name!r} was a time and is json now: whether these times have a zone is not known here", column=field.name
        )
    if old == INTERVAL:
        array = cast_array(array, Field(name=field.name, type=INTERVAL))
    strings = [None if value is None else json_text(value, old) for value in python_values(array, old)]
    return cast_array(pa.array(strings, pa.string()), field)


def _has_own_text(arrow_type: ArrowType) -> bool:
    """Return whether DuckDB's text of such values is not Arrow's."""
    types = pa.types
    binary = types.is_binary(arrow_type) or types.is_large_binary(arrow_type) or types.is_fixed_size_binary(arrow_type)
    return bool(binary or types.is_floating(arrow_type) or types.is_decimal(arrow_type) or types.is_temporal(arrow_type))


def _to_text(array: ArrowArray, field: Field) -> ArrowArray:
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    old = _held_type(array, field)
    # Values are formatted in Python, so each distinct value is formatted once.
    encoded = array.dictionary_encode()
    strings = [None if value is None else to_cast_text(value, old) for value in python_values(encoded.dictionary, old)]
    return pc.take(pa.array(strings, pa.string()), encoded.indices)


def _held_type(array: ArrowArray, field: Field) -> DataType:
    # Parquet's INTERVAL is read as 12 bytes, and a 128-bit integer as decimal256 (schema.HUGE_INTEGER).
    if array.type == pa.binary(12):
        return INTERVAL
    if pa.types.is_decimal256(array.type):
        return PrimitiveType(name="int128")
    return from_arrow_field(pa.field(field.name, array.type)).type


def json_text(value: Any, data_type: DataType) -> str:
    """Convert a value in its Python form as DuckDB's cast to JSON does.

    >>> from ducklake_core.format.types.data_types import *
    >>> json_text(1e16, FLOAT64), json_text(1e-7, FLOAT64), json_text(19737, DATE), json_text(b"\\x00", BLOB)
    ('10000000000000000.0', '1e-7', '"2024-01-15"', '"\\\\\\\\x00"')
    """
    match data_type:
        case PrimitiveType(name="float32" | "float64"):
            return _number(value)
        case PrimitiveType() if data_type == BOOLEAN or data_type in INTEGERS:
            return to_cast_text(value, data_type)
        case DecimalType(precision=precision, scale=scale) if precision > _NUMBER_DIGITS or not scale:
            return decimal_text(unscaled(value, scale), data_type) if scale else str(value)
        case DecimalType():
            return _number(float(value))
        case _:
            return json.dumps(to_cast_text(value, data_type), ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number as the JSON writer of DuckDB prints it: shortest digits, plain between 1e-6 and 1e21."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent
    if value == 0:
        plain = "0.0"
    elif 0 < point <= 21:
        plain = f"{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    elif -6 < point <= 0:
        plain = f"0.{'0' * -point}{text}"
    else:
        plain = f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{point - 1}"
    return f"-{plain}" if sign else plain
