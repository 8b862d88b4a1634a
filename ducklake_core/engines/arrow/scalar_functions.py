"""Casts, arithmetic and functions of scalar expressions, with the types and limits of DuckDB."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial, reduce
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.duckdb_instance import INEXACT_IN_ARROW, line_of, require_duckdb, shared_connection, variant_of
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.comparison import integer_range
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicates import VariantComparison
from ducklake_core.format.expressions.sql import escaped_pattern, nested_sql
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    GEOMETRY,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    INTEGERS,
    INTERVAL,
    JSON,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    TIMETZ,
    UINT8,
    UINT16,
    UINT64,
    UINT128,
    UNSIGNED_INTEGERS,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    StructType,
    as_decimal,
    children_of,
    common_number,
    decimal_result,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import duckdb_type, to_arrow_type
from ducklake_core.format.values.arrow_cast import cast_array, cast_leaf, from_values
from ducklake_core.format.values.leaf_values import python_values
from ducklake_core.format.values.temporal import INFINITE_DAYS, civil_from_days, days_from_civil, instant, wall_clock, zoned_text
from ducklake_core.format.values.value_text import BLANKS, from_cast_text, json_text, to_cast_text

_SMALL_DECIMAL = 18
_NEVER_LENIENT = (JSON, TIMESTAMPTZ)
"""Types whose strings only DuckDB's own rules parse, so that this library cannot decide which of them become NULL."""
_OWN_STRINGS = (INTERVAL, TIMETZ, TIME_NS)
"""Types whose strings this library parses in one form only."""
_DAY = 86_400_000_000
TIMESTAMP_UNITS: dict[DataType, int] = {TIMESTAMP_S: 1, TIMESTAMP_MS: 1_000, TIMESTAMP: 1_000_000, TIMESTAMP_NS: 1_000_000_000}
"""Units per second."""
_NO_CASTS = ((TIMESTAMP_MS, TIMESTAMP_S), (TIMESTAMP_NS, TIMESTAMP_S), (TIMESTAMP_NS, TIMESTAMP_MS))
"""Casts that DuckDB does not have."""

_LONG_DIGITS = 18
"""Digits that an int64 holds in any case."""
_WORD = 2**64

_WIDE = (INT128, UINT64, UINT128)
_DAYS = (INT8, INT16, INT32, UINT8, UINT16)
"""Types of numbers of days; DuckDB casts no others implicitly to int32."""
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_PLAIN = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_FIRST_DAY = -(2**31)
_WIDEST = 76
"""Digits that Arrow calculates with."""

_LONGEST = 2**31
"""More characters than any string has."""

FUNCTIONS = frozenset({"uuid", "uuidv7", "random"})


_INFINITE_DATE, _INFINITE_TIMESTAMP = 2**31 - 1, 2**63 - 1


def cast_scalar(array: Any, held: DataType, wanted: DataType, *, lenient: bool = False) -> Any:
    """Cast values of one type to another.

    Args:
        array: The values in the logical Arrow form of ``held``.
        held: Their type.
        wanted: The target type.
        lenient: Whether values that do not fit become NULL, as with TRY_CAST; False by default. Supported for casts from strings, and
            from variants where DuckDB is installed.

    Raises:
        SchemaError: A value that does not fit.
        UnsupportedFeatureError: A cast that only a SQL engine can do.
    """
    if held == wanted:
        return array
    if _same_values(held, wanted):
        return cast_array(array, Field(id=0, name="", type=wanted))
    if held == VARIANT and can_cast_variants():
        return cast_variants(array, wanted, lenient=lenient)
    # Before any value is read: an empty batch must reject an unsupported cast too (check_scalar).
    _check(held, wanted, lenient=lenient)
    if array.null_count == len(array):
        return pa.nulls(len(array), to_arrow_type(wanted))
    try:
        return _cast(array, held, wanted, lenient)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, ValueError) as error:
        if isinstance(error, DuckLakeError):
            raise
        raise SchemaError(f"a value of type {held} does not fit {wanted}: {error}") from error


def text_value(text: str, wanted: DataType) -> Any:
    """Return a quoted string as an array of one value of a type.

    Raises:
        UsageError: The string is not a value of that type.
    """
    return from_values([_read(text, wanted)], wanted)


def _same_values(held: DataType, wanted: DataType) -> bool:
    """Return whether two nested types hold the same values and differ only in ids, or in the case or order of a struct's fields."""
    fields, wanted_fields = (
        sorted(children_of(one), key=lambda field: folded(field.name)) if isinstance(one, StructType) else children_of(one)
        for one in (held, wanted)
    )
    if type(held) is not type(wanted) or not fields or len(fields) != len(wanted_fields):
        return held == wanted
    named = isinstance(held, StructType)
    return all(
        (not named or folded(one.name) == folded(two.name)) and _same_values(one.type, two.type)
        for one, two in zip(fields, wanted_fields, strict=True)
    )


def _check(held: DataType, wanted: DataType, *, lenient: bool) -> None:
    if lenient and (held != VARCHAR or wanted in _NEVER_LENIENT):
        raise UnsupportedFeatureError(f"TRY_CAST from {held} to {wanted}", cast=f"{held} to {wanted}")
    if not _is_known(held, wanted):
        raise UnsupportedFeatureError(f"a cast from {held} to {wanted}", cast=f"{held} to {wanted}")


def _is_known(held: DataType, wanted: DataType) -> bool:
    if TIMESTAMPTZ in (held, wanted) and {held, wanted} <= {DATE, TIMESTAMP, TIMESTAMPTZ}:
        return True
    if {held, wanted} in ({DATE, TIMESTAMP}, {JSON, VARCHAR}):
        return True
    if held in TIMESTAMP_UNITS and wanted in TIMESTAMP_UNITS:
        return (held, wanted) not in _NO_CASTS
    if wanted == VARCHAR:
        # DuckDB's string of a float32 is not always the shortest one, which Python would give.
        return not children_of(held) and held not in (FLOAT32, VARIANT, GEOMETRY)
    if held == VARCHAR:
        return not children_of(wanted) and wanted not in (TIME, TIME_NS, TIMETZ, INTERVAL, VARIANT, GEOMETRY)
    if held in FLOATS:
        huge = wanted in (INT128, UINT128) or (isinstance(wanted, DecimalType) and wanted.precision > _SMALL_DECIMAL)
        return _is_number(wanted) and not huge
    if held == BOOLEAN and isinstance(wanted, DecimalType):
        # In a decimal without digits before the point, DuckDB casts TRUE to the smallest step (0.01 in decimal(2, 2)).
        return wanted.scale < wanted.precision
    return _is_number(held) and _is_number(wanted)


def _is_number(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or data_type in (BOOLEAN, *INTEGERS, *FLOATS)


def _cast(array: Any, held: DataType, wanted: DataType, lenient: bool) -> Any:
    if wanted == VARCHAR:
        if held == JSON:
            return array.storage if isinstance(array, pa.ExtensionArray) else array
        text: Callable[[Any], str] = zoned_text if held == TIMESTAMPTZ else partial(to_cast_text, data_type=held)
        strings = _over_distinct(array, lambda part: [None if v is None else text(v) for v in python_values(part, held)], VARCHAR)
        return _with_signs(strings, array) if held == FLOAT64 else strings
    if wanted == JSON:
        strings = _over_distinct(array, lambda part: [None if v is None else json_text(v) for v in part.to_pylist()], VARCHAR)
        return from_values(strings.to_pylist(), JSON) if isinstance(to_arrow_type(JSON), pa.BaseExtensionType) else strings
    if held == VARCHAR:
        read = _lenient if lenient else _read
        return _over_distinct(array, lambda part: [None if v is None else read(v, wanted) for v in part.to_pylist()], wanted)
    if wanted == TIMESTAMPTZ:
        return _shifted_clocks(_date_to_timestamp(array) if held == DATE else array, instant).cast(to_arrow_type(wanted))
    if held == TIMESTAMPTZ:
        shown = _shifted_clocks(array, wall_clock)
        return shown if wanted == TIMESTAMP else _timestamp_to_date(shown)
    if wanted in TIMESTAMP_UNITS:
        return _date_to_timestamp(array) if held == DATE else _in_other_units(array, held, wanted)
    if wanted == DATE:
        return _timestamp_to_date(array)
    return _from_number(array.cast(pa.int8()), INTEGERS[0], wanted) if held == BOOLEAN else _from_number(array, held, wanted)


def _from_number(array: Any, held: DataType, wanted: DataType) -> Any:
    if wanted == BOOLEAN:
        zero = pa.scalar(Decimal(0), array.type) if pa.types.is_decimal(array.type) else pa.scalar(0).cast(array.type)
        return pc.not_equal(array, zero)
    if held in FLOATS:
        return _from_float(array, held, wanted)
    if isinstance(held, DecimalType) and wanted in FLOATS:
        return decimals_as_floats(array, held.scale, wanted)
    if isinstance(held, DecimalType) and (wanted in INTEGERS or isinstance(wanted, DecimalType)):
        digits = wanted.scale if isinstance(wanted, DecimalType) else 0
        if digits < array.type.scale:
            array = pc.round(_wide(array), digits, round_mode="half_towards_infinity")
        if wanted not in (INT128, UINT128) and wanted in INTEGERS:
            array = array.cast(pa.string()).cast(to_arrow_type(wanted)) if array.type.scale == 0 else _whole(array, wanted)
    if held in (INT128, UINT128) and wanted in INTEGERS:
        if wanted not in (INT128, UINT128):
            return _whole(array, wanted)
        _reject_beyond(array, wanted)
    return cast_array(array, Field(id=0, name="", type=wanted))


def _with_signs(strings: Any, array: Any) -> Any:
    """Add the sign to NaN, because DuckDB's strings show it."""
    numbers = np.asarray(array.fill_null(0.0))
    negative = np.isnan(numbers) & np.signbit(numbers)
    return pc.if_else(pa.array(negative), "-nan", strings) if negative.any() else strings


def _wide(array: Any) -> Any:
    return array.cast(pa.decimal256(76, array.type.scale))


def _whole(array: Any, wanted: DataType) -> Any:
    """Return decimals without a fraction as integers; Arrow's own cast rejects wide ones."""
    return array.cast(pa.decimal256(76 - array.type.scale, 0)).cast(pa.string()).cast(to_arrow_type(wanted))


def _from_float(array: Any, held: DataType, wanted: DataType) -> Any:
    if wanted in FLOATS:
        narrowed = array.cast(to_arrow_type(wanted), safe=False)
        if wanted == FLOAT32:
            _reject(pc.and_(pc.is_inf(narrowed), pc.is_finite(array)), array, wanted)
        return narrowed
    _reject(pc.invert(pc.is_finite(array)), array, wanted)
    if wanted in INTEGERS:
        low, high = integer_range(wanted)
        numbers = array.cast(pa.float64())
        # DuckDB checks the range before it rounds: -128.5 does not fit an int8, although it would round to -128.
        _reject(pc.or_(pc.less(numbers, float(low)), pc.greater_equal(numbers, float(high + 1))), array, wanted)
        rounded: Any = pc.round(numbers, 0, round_mode="half_to_even")
        _reject(pc.greater_equal(rounded, float(high + 1)), array, wanted)
        return rounded.cast(to_arrow_type(wanted))
    assert isinstance(wanted, DecimalType)
    with np.errstate(over="ignore"):
        steps = np.asarray(array.cast(pa.float64()).fill_null(0.0)) * 10.0**wanted.scale
    # To decimals DuckDB rounds half away from zero, to integers half to even. A float32 is rounded back to its precision afterwards.
    steps = np.trunc(steps + 0.5 * np.sign(steps))
    _reject(pa.array(np.abs(steps) >= 10.0**wanted.precision), array, wanted)
    steps = steps.astype(np.float32).astype(np.float64) if held == FLOAT32 else steps
    whole = pa.array(steps.astype(np.int64), mask=np.asarray(array.is_null()))
    return _shifted(whole, wanted)


def _shifted(whole: Any, wanted: DecimalType) -> Any:
    """Return integers as the unscaled digits of decimals."""
    # Arrow has no cast that takes integers for unscaled digits. The buffer of a decimal128 is two little-endian words per value: the
    # number, and its sign extension.
    values: Any = np.asarray(whole.fill_null(0))
    parts = np.empty((len(values), 2), dtype=np.int64)
    parts[:, 0], parts[:, 1] = values, values >> 63
    validity = whole.buffers()[0] if whole.null_count else None
    return pa.Array.from_buffers(to_arrow_type(wanted), len(values), [validity, pa.py_buffer(parts.tobytes())])


def _reject_beyond(array: Any, wanted: DataType) -> None:
    low, high = (pa.scalar(Decimal(bound), array.type) for bound in integer_range(wanted))
    _reject(pc.or_(pc.less(array, low), pc.greater(array, high)), array, wanted)


def _reject(bad: Any, array: Any, wanted: DataType) -> None:
    if pc.any(pc.fill_null(bad, False)).as_py():
        value = array.filter(pc.fill_null(bad, False))[0].as_py()
        raise SchemaError(f"the value {value!r} is out of the range of {wanted}")


def _over_distinct(array: Any, convert: Callable[[Any], list[object]], wanted: DataType) -> Any:
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if pa.types.is_interval(plain.type) or pa.types.is_decimal256(plain.type):
        return from_values(convert(array), wanted)
    # Conversions run in Python, so that each distinct value is converted only once.
    encoded = plain.dictionary_encode()
    return pc.take(from_values(convert(encoded.dictionary), wanted), encoded.indices)


def _read(text: str, wanted: DataType) -> object:
    if wanted == JSON:
        return json_text(text)
    try:
        return text_literal(text, wanted).value
    except UsageError as error:
        if "cannot be written" not in error.message:
            raise
    try:
        return from_cast_text(text, wanted)
    except (DuckLakeError, ValueError) as error:
        if wanted in _OWN_STRINGS:
            raise UnsupportedFeatureError(f"{text!r} as a value of type {wanted}", type=str(wanted)) from error
        raise UsageError(f"{text!r} is not a valid value of type {wanted}", type=str(wanted)) from error


def _lenient(text: str, wanted: DataType) -> object:
    try:
        return _read(text, wanted)
    except UsageError:
        return None


def _shifted_clocks(array: Any, shift: Callable[[int], int]) -> Any:
    """Shift microseconds of instants to the clock of the effective time zone, or back, as timestamps without a zone."""
    encoded = array.view(pa.int64()).dictionary_encode()
    moments = [None if moment is None else shift(moment) for moment in encoded.dictionary.to_pylist()]
    if any(moment is not None and abs(moment) > _INFINITE_TIMESTAMP for moment in moments):
        raise SchemaError("a timestamp is out of range in its time zone")
    return pc.take(pa.array(moments, pa.int64()), encoded.indices).view(pa.timestamp("us"))


def _date_to_timestamp(array: Any) -> Any:
    days = np.asarray(array.view(pa.int32()).fill_null(0)).astype(np.int64)
    # Infinite dates become infinite timestamps: the extreme integers, not a multiple of a day.
    infinite = np.abs(days) >= _INFINITE_DATE
    if np.any(~infinite & (np.abs(days) > _INFINITE_TIMESTAMP // _DAY)):
        raise SchemaError("a date is out of the range of timestamp")
    moments = np.where(infinite, np.sign(days) * _INFINITE_TIMESTAMP, np.where(infinite, 0, days) * _DAY)
    return pa.array(moments, mask=np.asarray(array.is_null())).view(pa.timestamp("us"))


def _in_other_units(array: Any, held: DataType, wanted: DataType) -> Any:
    """Convert timestamps to another unit: truncate nanoseconds, round microseconds half away from zero, keep infinities."""
    moments: Any = np.asarray(array.view(pa.int64()).fill_null(0))
    infinite = np.abs(moments) >= _INFINITE_TIMESTAMP
    if TIMESTAMP_UNITS[wanted] > TIMESTAMP_UNITS[held]:
        factor = TIMESTAMP_UNITS[wanted] // TIMESTAMP_UNITS[held]
        if np.any(~infinite & (np.abs(moments) > _INFINITE_TIMESTAMP // factor)):
            raise SchemaError(f"a {held} is out of the range of {wanted}")
        changed = np.where(infinite, 0, moments) * factor
    else:
        factor = TIMESTAMP_UNITS[held] // TIMESTAMP_UNITS[wanted]
        half = 0 if held == TIMESTAMP_NS else factor // 2
        changed = np.sign(moments) * ((np.abs(moments).astype(np.uint64) + np.uint64(half)) // np.uint64(factor)).astype(np.int64)
    return pa.array(np.where(infinite, moments, changed), mask=np.asarray(array.is_null())).view(to_arrow_type(wanted))


def _timestamp_to_date(array: Any) -> Any:
    moments = np.asarray(array.view(pa.int64()).fill_null(0))
    infinite = np.abs(moments) >= _INFINITE_TIMESTAMP
    days = np.where(infinite, np.sign(moments) * _INFINITE_DATE, moments // _DAY)
    return pa.array(days.astype(np.int32), mask=np.asarray(array.is_null())).view(pa.date32())


def decimals_as_floats(array: Any, scale: int, wanted: DataType) -> Any:
    """Return decimals as float32 or float64; the whole part and the fraction are converted separately and added.

    >>> from decimal import Decimal
    >>> decimals_as_floats(pa.array([Decimal("-0.1000000050"), None]), 10, FLOAT32).to_pylist()
    [-0.10000000894069672, None]
    """
    kind: Any = np.float32 if wanted == FLOAT32 else np.float64
    # DuckDB divides the unscaled integer by the power of ten if both are exact in the float, and adds whole and fraction otherwise. The
    # last digit of the result depends on that order, so that Arrow's cast would differ.
    numbers = array.cast(pa.decimal128(38, scale)).fill_null(0)
    words = np.frombuffer(numbers.buffers()[1], dtype=np.int64)[2 * numbers.offset : 2 * (numbers.offset + len(numbers))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if scale <= _LONG_DIGITS and np.array_equal(high, low >> 63) and not np.any(low == -(2**63)):
        values = _of_longs(low, scale, kind)
    else:
        distinct, places = np.unique(words, axis=0, return_inverse=True)
        integers = [int(upper) * _WORD + int(np.uint64(lower)) for lower, upper in distinct.astype(np.int64)]
        values = np.array([_of_integer(number, scale, kind) for number in integers], dtype=kind)[places.reshape(-1)]
    found = pa.array(values)
    return pc.if_else(array.is_valid(), found, pa.scalar(None, found.type))


def _of_longs(numbers: Any, scale: int, kind: Any) -> Any:
    power = 10**scale
    whole, rest = np.abs(numbers) // power, np.abs(numbers) % power
    sign = np.sign(numbers)
    added = (sign * whole).astype(kind) + (sign * rest).astype(kind) / kind(power)
    exact = np.abs(numbers) <= _exact_up_to(kind)
    return np.where(exact | (scale == 0), numbers.astype(kind) / kind(power), added)


def _of_integer(number: int, scale: int, kind: Any) -> Any:
    power, sign = 10**scale, -1 if number < 0 else 1
    if scale == 0 or abs(number) <= _exact_up_to(kind):
        return _as_float(number, kind) / kind(power)
    whole, rest = divmod(abs(number), power)
    return _as_float(sign * whole, kind) + _as_float(sign * rest, kind) / kind(power)


def _as_float(number: int, kind: Any) -> Any:
    """Return an integer of 128 bits as float64, computed from its two words."""
    upper, lower = divmod(number, _WORD)
    return kind(-float(_WORD - 1 - lower) - 1.0 if upper == -1 else float(upper) * float(_WORD) + float(lower))


def _exact_up_to(kind: Any) -> int:
    return 2**24 if kind is np.float32 else 2**53


def arithmetic(operator: str, left: TypedArray, right: TypedArray, rows: int) -> TypedArray:
    """Compute ``+ - * / // %``.

    Raises:
        SchemaError: A result that leaves the range of its type.
        UnsupportedFeatureError: Types whose arithmetic only a SQL engine has.
    """
    for value in (left, right):
        if value.text is not None:
            raise UnsupportedFeatureError(f"{value.text!r} as a number")
    if DATE in (left.type, right.type):
        return _with_days(operator, left, right, rows)
    if left.is_null or right.is_null:
        return _with_null(operator, left, right, rows)
    types = {left.type, right.type}
    if not all(_is_numeric(kind) for kind in types) or types & set(_WIDE):
        raise _rejection(operator, left, right)
    if types & set(FLOATS) or operator == "/":
        return _with_floats(operator, left, right)
    if any(isinstance(kind, DecimalType) for kind in types):
        return _with_decimals(operator, left, right)
    return _with_integers(operator, left, right)


def number_function(function: str, value: TypedArray) -> TypedArray:
    """Compute ``negate``, ``abs``, ``floor`` or ``ceil``.

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
        # Negation of unsigned numbers wraps around in DuckDB, which is left to a SQL engine.
        if function == "abs" or kind not in UNSIGNED_INTEGERS:
            return _in_range(_checked(pc.negate_checked if function == "negate" else pc.abs_checked, wide), kind)
    if kind in FLOATS or (isinstance(kind, DecimalType) and not rounds):
        operation: Callable[..., Any] = {"negate": pc.negate, "abs": pc.abs, "floor": pc.floor, "ceil": pc.ceil}[function]
        return TypedArray(operation(value.array), kind)
    raise UnsupportedFeatureError(f"{function}() of {kind}")


def _rejection(operator: str, left: TypedArray, right: TypedArray) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{left.type} {operator} {right.type}")


def _is_numeric(data_type: DataType) -> bool:
    return data_type in INTEGERS or data_type in FLOATS or isinstance(data_type, DecimalType)


def _with_null(operator: str, left: TypedArray, right: TypedArray, rows: int) -> TypedArray:
    """Return NULL for all rows, in the type of the other side; NULL with a decimal is not supported."""
    other = right if left.is_null else left
    if isinstance(other.type, DecimalType) and operator in ("+", "-", "*"):
        return nulls(rows)
    if other.is_null:
        kind: DataType = FLOAT64 if operator == "/" else INT64
    elif not _is_numeric(other.type) or (operator in ("//", "%") and other.type not in INTEGERS):
        raise _rejection(operator, left, right)
    else:
        kind = other.type if operator != "/" or other.type == FLOAT32 else FLOAT64
    return TypedArray(nulls(rows, kind).array, kind)


def _with_days(operator: str, left: TypedArray, right: TypedArray, rows: int) -> TypedArray:
    """Add days; infinite dates stay, others never become infinite. One finite date precedes ``-infinity``."""
    date, days = (left, right) if left.type == DATE else (right, left)
    if operator not in ("+", "-") or (operator == "-" and left.type != DATE) or not (days.is_null or days.type in _DAYS):
        raise _rejection(operator, left, right)
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
    # In DuckDB, division by zero is NULL, and the remainder has the sign of the dividend, as with Arrow's truncating division.
    two = pc.if_else(pc.equal(two, 0), pa.scalar(None, pa.int64()), two)
    quotient = _checked(pc.divide_checked, one, two)
    whole = _in_range(quotient, kind)
    return whole if operator == "//" else _in_range(pc.subtract(one, pc.multiply(quotient, two)), kind)


def _integer_type(left: TypedArray, right: TypedArray) -> DataType:
    """Return the type of arithmetic on two integers, whose range DuckDB does not leave."""
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
        raise _rejection(operator, left, right)
    return TypedArray(_PLAIN[operator](one, two), kind)


def _with_decimals(operator: str, left: TypedArray, right: TypedArray) -> TypedArray:
    first, second = as_decimal(left.type), as_decimal(right.type)
    if operator not in _PLAIN or first is None or second is None:
        raise _rejection(operator, left, right)
    kind = decimal_result(operator, first, second)
    if kind.scale > kind.precision or (operator == "*" and first.precision + second.precision >= _WIDEST):
        raise _rejection(operator, left, right)
    if operator != "*":
        # DuckDB casts both sides to the type of the result first, and a side that does not fit it is an error.
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


def joined(function: str, values: Sequence[TypedArray], rows: int) -> TypedArray:
    """Compute ``||``, which is NULL with a NULL, or ``concat``, which skips NULLs."""
    if function == "||" and all(value.type == BLOB and not value.is_null for value in values):
        blobs = [value.array.cast(pa.binary()) for value in values]
        return TypedArray(pc.binary_join_element_wise(*blobs, pa.scalar(b"", pa.binary()), null_handling="emit_null"), BLOB)
    strings = [as_type(value, VARCHAR, rows) for value in values]
    if function == "||":
        if any(value.is_null for value in values):
            return nulls(rows, VARCHAR)
    else:
        strings = [pc.fill_null(text, "") for text in strings]
    return TypedArray(pc.binary_join_element_wise(*strings, "", null_handling="emit_null"), VARCHAR)


def of_text(function: str, value: TypedArray) -> TypedArray:
    """Compute a function of one string."""
    array = _only_text(value, function)
    match function:
        case "length":
            return TypedArray(pc.utf8_length(array).cast(pa.int64()), INT64)
        case "upper" | "lower":
            return TypedArray((pc.utf8_upper if function == "upper" else pc.utf8_lower)(array), VARCHAR)
        case _:
            trimming = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}
            return TypedArray(trimming[function](array, characters=BLANKS), VARCHAR)


def with_constants(function: str, values: Sequence[TypedArray]) -> TypedArray:
    """Compute ``replace`` or ``substring``, whose further arguments are constants."""
    subject = _only_text(values[0], function)
    if function == "replace":
        if values[1].text is None or values[2].text is None:
            raise UnsupportedFeatureError("replace() with strings that are not constants")
        found = subject if not values[1].text else pc.replace_substring(subject, pattern=values[1].text, replacement=values[2].text)
        return TypedArray(found, VARCHAR)
    start, length = values[1].constant, values[2].constant if len(values) > 2 else None
    sizes = [start, length] if len(values) > 2 else [start]
    if start is None or start < 1 or any(size is None or not 0 <= size < _LONGEST for size in sizes):
        raise UnsupportedFeatureError("substring() with a start that is not a positive constant")
    return TypedArray(pc.utf8_slice_codeunits(subject, start - 1, None if length is None else start - 1 + length), VARCHAR)


def matching(function: str, value: TypedArray, pattern: TypedArray, escape: TypedArray | None = None) -> TypedArray:
    """Compute ``LIKE``, ``ILIKE`` or ``starts_with``; the pattern and the escape character are constants.

    Args:
        function: The function.
        value: The strings.
        pattern: The pattern, or the prefix.
        escape: Character that makes the next character of the pattern an ordinary one. Default: none.
    """
    subject = _only_text(value, function)
    if pattern.is_null or (escape is not None and escape.is_null):
        return TypedArray(pa.nulls(len(subject), pa.bool_()), BOOLEAN)
    if pattern.text is None or (escape is not None and escape.text is None):
        raise UnsupportedFeatureError(f"{function}() with a string that is not a constant")
    if function == "starts_with":
        return TypedArray(pc.starts_with(subject, pattern.text), BOOLEAN)
    text = escaped_pattern(pattern.text, "" if escape is None else str(escape.text), "\\")
    if function == "ilike":
        subject, text = pc.utf8_lower(subject), pc.utf8_lower(pa.scalar(text)).as_py()
    return TypedArray(pc.match_like(subject, text), BOOLEAN)


def _only_text(value: TypedArray, function: str) -> Any:
    if value.type != VARCHAR and not value.is_null:
        raise UnsupportedFeatureError(f"{function}() of {value.type}")
    return as_type(value, VARCHAR, len(value.array))


def random_values(function: str, rows: int) -> TypedArray:
    """Return values of ``uuid()`` (version 4), ``uuidv7()`` or ``random()`` (from 0 to below 1).

    >>> values = random_values("uuid", 3).array
    >>> len(set(values.to_pylist()))
    3
    """
    if function == "random":
        whole = np.frombuffer(os.urandom(8 * rows), np.uint64) >> np.uint64(11)
        return TypedArray(pa.array(whole * 2.0**-53), FLOAT64)
    # RFC 9562: the version in the upper half of byte 6, the variant in the two highest bits of byte 8, and for version 7 the milliseconds
    # since 1970 in the first 48 bits.
    ids = np.frombuffer(bytearray(os.urandom(16 * rows)), np.uint8).reshape(rows, 16)
    if function == "uuidv7":
        ids[:, :6] = np.frombuffer((time.time_ns() // 1_000_000).to_bytes(6, "big"), np.uint8)
    ids[:, 6] = (ids[:, 6] & 0x0F) | (0x70 if function == "uuidv7" else 0x40)
    ids[:, 8] = (ids[:, 8] & 0x3F) | 0x80
    binary = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(ids.tobytes())])
    return TypedArray(cast_leaf(binary, UUID, physical=False), UUID)


@dataclass(frozen=True, slots=True)
class TypedArray:
    """Values and their type.

    ``text`` is set for a quoted string, which takes the type of the other operand. ``constant`` is set for a literal whole number, which
    takes that type if it fits. ``is_null`` is set for NULL without a type.
    """

    array: Any
    type: DataType
    text: str | None = None
    is_null: bool = False
    constant: int | None = None


def nulls(length: int, data_type: DataType = BOOLEAN) -> TypedArray:
    """Return NULL without a type, kept as ``data_type``."""
    return TypedArray(pa.nulls(length, to_arrow_type(data_type)), data_type, is_null=True)


def as_type(value: TypedArray, wanted: DataType, length: int) -> Any:
    """Return the values in another type.

    Raises:
        SchemaError: A value that does not fit.
        UsageError: A quoted string that cannot be read.
    """
    if value.is_null:
        return pa.nulls(length, to_arrow_type(wanted))
    if value.text is not None:
        try:
            return repeated(text_value(value.text, wanted), length)
        except UsageError:
            # DuckDB casts the string only when a row needs it, so that without rows there is no error.
            if length:
                raise
            return pa.nulls(0, to_arrow_type(wanted))
    return cast_scalar(value.array, value.type, wanted)


def repeated(one: Any, length: int) -> Any:
    """Return an array of one value, as often as there are rows."""
    return pc.take(one, pa.nulls(length, pa.int32()).fill_null(0))


def without(array: Any, rows: Any) -> Any:
    """Return the values with NULL in the rows for which ``rows`` is true."""
    return pc.take(array, pc.if_else(rows, pa.scalar(None, pa.int64()), pa.array(range(len(array)), pa.int64())))


def unified_type(values: Sequence[TypedArray]) -> DataType | None:
    """Return the type that several values have in common: that of a quoted string comes from the value before or after it.

    Two quoted strings become VARCHAR for the following values, and so does a string with NULL; a literal number with NULL has its own type.
    """
    found = reduce(_wider, values)
    return None if found.is_null else found.type


def _wider(one: TypedArray, two: TypedArray) -> TypedArray:
    if one.is_null or two.is_null:
        other = two if one.is_null else one
        return replace(other, text=None, constant=None)
    if one.text is not None:
        return two if two.text is None else TypedArray(None, VARCHAR)
    if two.text is not None:
        return one
    for own, other in ((one, two), (two, one)):
        if own.constant is not None and other.constant is None and other.type in INTEGERS:
            low, high = integer_range(other.type)
            if low <= own.constant <= high:
                return TypedArray(None, other.type)
    found = one.type if one.type == two.type else common_number(one.type, two.type)
    if found is None:
        raise UnsupportedFeatureError(f"{one.type} and {two.type} in one CASE or COALESCE")
    return TypedArray(None, found)


def time_part(part: str, value: TypedArray, rows: int) -> TypedArray:
    """Return a part of dates or times, such as the month, as 64-bit integers; NULL for infinite ones.

    Parts of ``timestamptz`` are those of the effective time zone.
    """
    if value.is_null:
        return nulls(rows)
    if value.type != DATE and value.type not in (*TIMESTAMP_UNITS, TIMESTAMPTZ):
        raise UnsupportedFeatureError(f"{part} of {value.type}")
    array = value.array
    if value.type == TIMESTAMPTZ:
        array = cast_scalar(array, TIMESTAMPTZ, TIMESTAMP)
    is_date = pa.types.is_date32(array.type)
    numbers = np.asarray(array.view(pa.int32() if is_date else pa.int64()).fill_null(0)).astype(np.int64)
    infinity = _INFINITE_DATE if is_date else _INFINITE_TIMESTAMP
    missing = np.asarray(array.is_null()) | (np.abs(numbers) >= infinity)
    if not is_date and array.type.unit == "ns":
        # DuckDB casts to microseconds first, towards zero: the last nanosecond of 1969 is in 1970.
        numbers = np.sign(numbers) * (np.abs(numbers) // 1000) * 1000
    per_second = 0 if is_date else {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[array.type.unit]
    days = numbers if is_date else np.floor_divide(numbers, 86_400 * per_second)
    if part in ("hour", "minute", "second"):
        seconds = np.zeros_like(numbers) if is_date else np.mod(numbers, 86_400 * per_second) // per_second
        found = {"hour": seconds // 3600, "minute": seconds // 60 % 60, "second": seconds % 60}[part]
    elif part in ("dayofweek", "isodow"):
        # 1970-01-01 was a Thursday: Sunday is 0 for dayofweek and 7 for isodow.
        found = np.mod(days + 4, 7) if part == "dayofweek" else np.mod(days + 3, 7) + 1
    else:
        distinct, places = np.unique(np.where(missing, 0, days), return_inverse=True)
        zoned = value.type == TIMESTAMPTZ
        found = np.array([_calendar_part(part, int(day), zoned=zoned) for day in distinct], dtype=np.int64)[places.reshape(-1)]
    return TypedArray(pa.array(np.where(missing, 0, found), pa.int64(), mask=missing), INT64)


def _calendar_part(part: str, day: int, *, zoned: bool) -> int:
    year, month, number = civil_from_days(day)
    match part:
        case "year":
            # DuckDB numbers years before Christ of timestamptz from 1 upwards, and those of other types from 0 downwards.
            return 1 - year if zoned and year < 1 else year
        case "quarter":
            return (month + 2) // 3
        case "month":
            return month
        case "day":
            return number
        case "dayofyear":
            return day - days_from_civil(year, 1, 1) + 1
        case _:
            # An ISO week belongs to the year of its Thursday.
            thursday = day - (day + 3) % 7 + 3
            return (thursday - days_from_civil(civil_from_days(thursday)[0], 1, 1)) // 7 + 1


def can_cast_variants() -> bool:
    """Return whether DuckDB is installed, whose casts of variants have rules for objects, arrays and every pair of types."""
    return find_spec("duckdb") is not None


def compare_variants(predicate: VariantComparison, array: Any) -> pa.BooleanArray:
    """Return the outcome of a comparison for every variant.

    Args:
        predicate: The comparison; its column is the array.
        array: The variants.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or has no such cast.
        SchemaError: A value cannot be cast; the message contains DuckDB's reason.
    """
    field = predicate.left
    named = replace(predicate, left=replace(field, column=replace(field.column, path=("v",))))
    return _computed_by_duckdb(nested_sql(named, "duckdb"), array).cast(pa.bool_())


def cast_variants(array: Any, wanted: DataType, *, lenient: bool) -> Any:
    """Return variants as values of a type, in its logical Arrow form.

    Args:
        array: The variants.
        wanted: The type.
        lenient: Whether values that cannot be cast become NULL, as with TRY_CAST.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or has no such cast.
        SchemaError: A value cannot be cast; the message contains DuckDB's reason.
    """
    sql = f"{'TRY_CAST' if lenient else 'CAST'}(v AS {duckdb_type(wanted)})"
    if wanted in INEXACT_IN_ARROW:
        sql = f"CAST({sql} AS VARCHAR)"
    found = _computed_by_duckdb(sql, array)
    return found.cast(pa.string()) if wanted == VARCHAR else cast_array(found, Field(id=0, name="", type=wanted))


def _computed_by_duckdb(sql: str, array: Any) -> Any:
    duckdb = require_duckdb()
    rows = pa.table({"c0": array.storage if isinstance(array, pa.ExtensionArray) else array})
    # The conversion rejects NULL binaries, so that a NULL variant must not reach it.
    value = f"CASE WHEN c0 IS NULL THEN NULL ELSE {variant_of('c0')} END AS v"
    with shared_connection() as connection:
        connection.register("__ducklake_variants", rows)
        try:
            # DuckDB keeps the row order of a scan of Arrow data, so that the results line up with the input.
            found = connection.sql(f"SELECT {sql} AS found FROM (SELECT {value} FROM __ducklake_variants)").to_arrow_table()  # noqa: S608
        except duckdb.NotImplementedException as problem:
            raise UnsupportedFeatureError(f"{sql}: {line_of(problem)}", expression=sql) from problem
        except duckdb.Error as problem:
            raise SchemaError(f"{sql}: {line_of(problem)}", expression=sql) from problem
    return found.column("found").combine_chunks()
