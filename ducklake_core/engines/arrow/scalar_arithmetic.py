"""Arithmetic of scalar expressions, with the types and the limits of DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.scalar_cast import cast_scalar
from ducklake_core.engines.arrow.scalar_values import TypedArray, nulls
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import integer_range
from ducklake_core.format.types.arrow_types import to_arrow_type
from ducklake_core.format.types.data_types import (
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    INTEGERS,
    UINT8,
    UINT16,
    UINT64,
    UINT128,
    UNSIGNED_INTEGERS,
    DataType,
    DecimalType,
)
from ducklake_core.format.types.number_types import as_decimal, decimal_result
from ducklake_core.format.values.calendar_text import INFINITE_DAYS

_WIDE = (INT128, UINT64, UINT128)
_DAYS = (INT8, INT16, INT32, UINT8, UINT16)
"""Types of numbers of days; others are never turned into an int32 by themselves."""
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_PLAIN = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_FIRST_DAY = -(2**31)
_WIDEST = 76
"""Digits that Arrow calculates with."""


def arithmetic(operator: str, left: TypedArray, right: TypedArray, rows: int) -> TypedArray:
    """``+ - * / // %``.

    Raises:
        SchemaError: A result that leaves the range of its type.
        UnsupportedFeatureError: Types whose arithmetic only a SQL engine has.
    """
    for value in (left, right):
        if value.text is not None:
            raise UnsupportedFeatureError(f"{value.text!r} as a number: cast it")
    if DATE in (left.type, right.type):
        return _with_days(operator, left, right, rows)
    if left.is_null or right.is_null:
        return _with_null(operator, left, right, rows)
    types = {left.type, right.type}
    if not all(_is_number(kind) for kind in types) or types & set(_WIDE):
        raise _refusal(operator, left, right)
    if types & set(FLOATS) or operator == "/":
        return _with_floats(operator, left, right)
    if any(isinstance(kind, DecimalType) for kind in types):
        return _with_decimals(operator, left, right)
    return _with_integers(operator, left, right)


def number_function(function: str, value: TypedArray) -> TypedArray:
    """``negate``, ``abs``, ``floor`` or ``ceil``.

    Raises:
        SchemaError: A result that leaves the range of its type.
        UnsupportedFeatureError: A type whose function only a SQL engine has.
    """
    kind, rounds = value.type, function in ("floor", "ceil")
    if value.is_null:
        return TypedArray(pa.nulls(len(value.array), pa.float64() if rounds else pa.int64()), FLOAT64 if rounds else INT64)
    if value.text is None and kind in INTEGERS and kind not in _WIDE:
        wide = value.array.cast(pa.int64())
        if rounds:
            return TypedArray(wide.cast(pa.float64(), safe=False), FLOAT64)
        # DuckDB turns unsigned numbers around their range.
        if function == "abs" or kind not in UNSIGNED_INTEGERS:
            return _in_range(_checked(pc.negate_checked if function == "negate" else pc.abs_checked, wide), kind)
    if kind in FLOATS or (isinstance(kind, DecimalType) and not rounds):
        operation: Callable[..., Any] = {"negate": pc.negate, "abs": pc.abs, "floor": pc.floor, "ceil": pc.ceil}[function]
        return TypedArray(operation(value.array), kind)
    raise UnsupportedFeatureError(f"{function}() of {kind}")


def _refusal(operator: str, left: TypedArray, right: TypedArray) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{left.type} {operator} {right.type}")


def _is_number(data_type: DataType) -> bool:
    return data_type in INTEGERS or data_type in FLOATS or isinstance(data_type, DecimalType)


def _with_null(operator: str, left: TypedArray, right: TypedArray, rows: int) -> TypedArray:
    """All values are NULL; the type is that of the other side, but beside a decimal there is none."""
    other = right if left.is_null else left
    if isinstance(other.type, DecimalType) and operator in ("+", "-", "*"):
        return nulls(rows)
    if other.is_null:
        kind: DataType = FLOAT64 if operator == "/" else INT64
    elif not _is_number(other.type) or (operator in ("//", "%") and other.type not in INTEGERS):
        raise _refusal(operator, left, right)
    else:
        kind = other.type if operator != "/" or other.type == FLOAT32 else FLOAT64
    return TypedArray(nulls(rows, kind).array, kind)


def _with_days(operator: str, left: TypedArray, right: TypedArray, rows: int) -> TypedArray:
    """Infinite dates stay where they are, others never become infinite; there is one finite date before ``-infinity``."""
    date, days = (left, right) if left.type == DATE else (right, left)
    if operator not in ("+", "-") or (operator == "-" and left.type != DATE) or not (days.is_null or days.type in _DAYS):
        raise _refusal(operator, left, right)
    if days.is_null or date.is_null:
        return TypedArray(pa.nulls(rows, pa.date32()), DATE)
    before = date.array.view(pa.int32()).cast(pa.int64())
    after: Any = _PLAIN[operator](before, days.array.cast(pa.int64()))
    finite = pc.not_equal(pc.abs(before), INFINITE_DAYS)
    beyond = pc.or_(pc.greater_equal(after, INFINITE_DAYS), pc.or_(pc.equal(after, -INFINITE_DAYS), pc.less(after, _FIRST_DAY)))
    if pc.any(pc.and_(finite, beyond)).as_py():
        raise SchemaError("a date is out of the range of date")
    moved: Any = pc.if_else(finite, after, pc.if_else(days.array.is_null(), pa.scalar(None, pa.int64()), before))
    return TypedArray(moved.cast(pa.int32()).view(pa.date32()), DATE)


def _with_integers(operator: str, left: TypedArray, right: TypedArray) -> TypedArray:
    kind = _integer_type(left, right)
    one, two = left.array.cast(pa.int64()), right.array.cast(pa.int64())
    if operator in _CHECKED:
        return _in_range(_checked(_CHECKED[operator], one, two), kind)
    two = pc.if_else(pc.equal(two, 0), pa.scalar(None, pa.int64()), two)
    quotient = _checked(pc.divide_checked, one, two)
    whole = _in_range(quotient, kind)
    return whole if operator == "//" else _in_range(pc.subtract(one, pc.multiply(quotient, two)), kind)


def _integer_type(left: TypedArray, right: TypedArray) -> DataType:
    """The type of arithmetic on two integers, whose range DuckDB does not leave."""
    for value, other in ((left, right), (right, left)):
        if value.constant is not None and other.constant is None:
            low, high = integer_range(other.type)
            if low <= value.constant <= high:
                return other.type
    (low, high), (other_low, other_high) = integer_range(left.type), integer_range(right.type)
    if low <= other_low and other_high <= high:
        return left.type
    return right.type if other_low <= low and high <= other_high else INT64


def _in_range(array: Any, kind: DataType) -> TypedArray:
    return TypedArray(_checked(lambda wide: wide.cast(to_arrow_type(kind)), array), kind)


def _with_floats(operator: str, left: TypedArray, right: TypedArray) -> TypedArray:
    kind = FLOAT32 if FLOAT32 in (left.type, right.type) and FLOAT64 not in (left.type, right.type) else FLOAT64
    one, two = (cast_scalar(value.array, value.type, kind) for value in (left, right))
    if operator == "/":
        return TypedArray(pc.divide(one, two), kind)
    if operator not in _PLAIN:
        raise _refusal(operator, left, right)
    return TypedArray(_PLAIN[operator](one, two), kind)


def _with_decimals(operator: str, left: TypedArray, right: TypedArray) -> TypedArray:
    first, second = as_decimal(left.type), as_decimal(right.type)
    if operator not in _PLAIN or first is None or second is None:
        raise _refusal(operator, left, right)
    kind = decimal_result(operator, first, second)
    if kind.scale > kind.precision or (operator == "*" and first.precision + second.precision >= _WIDEST):
        raise _refusal(operator, left, right)
    if operator != "*":
        # Each side has to fit the result by itself.
        first = second = kind
    wide = [
        cast_scalar(value.array, value.type, own).cast(pa.decimal256(own.precision, own.scale))
        for value, own in ((left, first), (right, second))
    ]
    try:
        return TypedArray(_PLAIN[operator](*wide).cast(to_arrow_type(kind)), kind)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{left.type} {operator} {right.type} is out of the range of {kind}") from error


def _checked(operation: Callable[..., Any], *arrays: Any) -> Any:
    try:
        return operation(*arrays)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"a value is out of range: {error}") from error
