"""Values of files that do not fit their column exactly, as DuckDB casts them when it reads.

Reading takes what DuckDB takes; that values fit exactly is asked of those who add files and write rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.scalar_cast import cast_scalar
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.promotion import promote
from ducklake_core.format.types.arrow_types import from_arrow_field, to_arrow_type
from ducklake_core.format.types.data_types import BLOB, FLOAT32, JSON, TIME_NS, TIMESTAMP_NS, VARCHAR, DataType, DecimalType, Field
from ducklake_core.format.values.leaf_cast import cast_temporal

_INFINITE = 2**63 - 1
_NARROW_DIGITS = 18
"""Decimals of so many digits are 64 bits or less to DuckDB, which rounds to them in another way than to wider ones."""
_MICROSECONDS = {"ms": 1000, "s": 1_000_000}


def from_file(array: pa.Array[Any], column: Field) -> pa.Array[Any]:
    """Values of a leaf in the Arrow type of the column, rounded where the column is coarser.

    Nanoseconds are cut to microseconds (towards zero), microseconds rounded to milliseconds and seconds, fractions and texts of them to
    integers, as DuckDB does each of these.

    >>> from ducklake_core.format.types.data_types import INT32, TIMESTAMP
    >>> from_file(pa.array([1001, -1999]).view(pa.timestamp("ns")), Field(name="c", type=TIMESTAMP)).cast(pa.int64()).to_pylist()
    [1, -1]
    >>> from_file(pa.array([1.5, 2.5, -1.5]), Field(name="c", type=INT32)).to_pylist()
    [2, 2, -2]

    Raises:
        SchemaError: A value that has no counterpart in the column's type.
    """
    if _loses_nanoseconds(array.type, column.type):
        array = _without_nanoseconds(array)
    if _needs_cast(array, column.type):
        return _cast(array, column)
    try:
        return promote(array, column)
    except SchemaError:
        target = to_arrow_type(column.type)
        if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
            return promote(_rounded(array, target.unit), column)
        try:
            return _cast(array, column)
        except (UnsupportedFeatureError, pa.ArrowException):
            pass
        raise


def _needs_cast(array: pa.Array[Any], wanted: DataType) -> bool:
    """Whether Arrow would cast without an error, but to other values: infinities for large numbers, escapes as they are, halves to even."""
    if wanted == BLOB and _is_text(array.type):
        return bool(pc.any(pc.match_substring(array, "\\")).as_py())
    narrow = isinstance(wanted, DecimalType) and wanted.precision <= _NARROW_DIGITS
    return pa.types.is_floating(array.type) and (narrow or (wanted == FLOAT32 and pa.types.is_float64(array.type)))


def _cast(array: pa.Array[Any], column: Field) -> pa.Array[Any]:
    held = from_arrow_field(pa.field(column.name, array.type)).type
    if _is_text(array.type):
        array = array.cast(pa.string())
    try:
        return cast_scalar(array, held, column.type)
    except (SchemaError, UsageError) as error:
        message = f"column {column.name!r}: values of type {held} do not fit {column.type}: {error.message}"
        raise SchemaError(message, column=column.name) from error


def _loses_nanoseconds(held: pa.DataType, wanted: DataType) -> bool:
    """Whether DuckDB reads such values as microseconds first."""
    if not (pa.types.is_timestamp(held) or pa.types.is_time64(held)) or held.unit != "ns" or wanted in (TIMESTAMP_NS, TIME_NS):
        return False
    return wanted not in (VARCHAR, JSON) or pa.types.is_time64(held) or held.tz is not None


def _without_nanoseconds(array: pa.Array[Any]) -> pa.Array[Any]:
    held = array.type
    numbers = array.view(pa.int64())
    cut = pc.divide(numbers, pa.scalar(1000, pa.int64()))
    if pa.types.is_time64(held):
        return cut.view(pa.time64("us"))
    infinite = pc.equal(pc.abs(numbers), pa.scalar(_INFINITE, pa.int64()))
    return pc.if_else(infinite, numbers, cut).view(pa.timestamp("us", held.tz))


def _rounded(array: pa.Array[Any], unit: str) -> pa.Array[Any]:
    """Whole milliseconds or seconds, as microseconds; halves are rounded away from zero."""
    if array.type.unit == "s" or unit not in _MICROSECONDS:
        return array
    array = cast_temporal(array, pa.timestamp("us", array.type.tz))
    step = pa.scalar(_MICROSECONDS[unit], pa.int64())
    numbers = array.view(pa.int64())
    half = pc.multiply(pc.sign(numbers), pa.scalar(_MICROSECONDS[unit] // 2, pa.int64()))
    infinite = pc.equal(pc.abs(numbers), pa.scalar(_INFINITE, pa.int64()))
    whole = pc.multiply(pc.divide(pc.add(pc.if_else(infinite, pa.scalar(0, pa.int64()), numbers), half), step), step)
    return pc.if_else(infinite, numbers, whole).view(array.type)


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))
