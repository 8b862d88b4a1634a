"""Casts between the types of scalar expressions, as DuckDB casts: rounding, ranges, texts."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow import variant_sql
from ducklake_core.engines.arrow.decimal_floats import decimals_as_floats
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.comparison import integer_range
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.types.arrow_types import to_arrow_type
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    GEOMETRY,
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
    UINT128,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    StructType,
    children_of,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.values.arrow_cast import cast_array
from ducklake_core.format.values.json_text import json_text
from ducklake_core.format.values.leaf_cast import from_values
from ducklake_core.format.values.leaf_values import python_values
from ducklake_core.format.values.time_zones import instant, wall_clock, zoned_text
from ducklake_core.format.values.value_text import from_cast_text, to_cast_text

_SMALL_DECIMAL = 18
_NEVER_LENIENT = (JSON, TIMESTAMPTZ)
"""Types whose texts only DuckDB's own rules parse, so that nobody else knows which of them become NULL."""
_OWN_TEXTS = (INTERVAL, TIMETZ, TIME_NS)
"""Types whose texts are understood here in one form only."""
_DAY = 86_400_000_000
_INFINITE_DATE, _INFINITE_TIMESTAMP = 2**31 - 1, 2**63 - 1
TIMESTAMP_UNITS: dict[DataType, int] = {TIMESTAMP_S: 1, TIMESTAMP_MS: 1_000, TIMESTAMP: 1_000_000, TIMESTAMP_NS: 1_000_000_000}
"""Units per second."""
_NO_CASTS = ((TIMESTAMP_MS, TIMESTAMP_S), (TIMESTAMP_NS, TIMESTAMP_S), (TIMESTAMP_NS, TIMESTAMP_MS))
"""Those that DuckDB has not."""


def cast_scalar(array: Any, held: DataType, wanted: DataType, *, lenient: bool = False) -> Any:
    """Values of one type as another.

    Args:
        array: The values in the logical Arrow form of ``held``.
        held: Their type.
        wanted: The type to give.
        lenient: Whether values that do not fit become NULL, as with TRY_CAST. Only for casts from text, and from variants where DuckDB
            is installed.

    Raises:
        SchemaError: A value that does not fit.
        UnsupportedFeatureError: A cast that only a SQL engine can do.
    """
    if held == wanted:
        return array
    if _same_values(held, wanted):
        return cast_array(array, Field(id=0, name="value", type=wanted))
    if held == VARIANT and variant_sql.is_available():
        return variant_sql.cast_variants(array, wanted, lenient=lenient)
    # Before any value is looked at: an empty batch has to find out too what cannot be done.
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
    """A quoted string as an array of one value of a type.

    Raises:
        UsageError: The text is not a value of that type.
    """
    return from_values([_read(text, wanted)], wanted)


def _same_values(held: DataType, wanted: DataType) -> bool:
    """Whether two nested types hold the same values: only ids, or the case and order of a struct's fields, tell them apart."""
    ours, theirs = (
        sorted(children_of(one), key=lambda field: folded(field.name)) if isinstance(one, StructType) else children_of(one)
        for one in (held, wanted)
    )
    if type(held) is not type(wanted) or not ours or len(ours) != len(theirs):
        return held == wanted
    named = isinstance(held, StructType)
    return all(
        (not named or folded(one.name) == folded(two.name)) and _same_values(one.type, two.type)
        for one, two in zip(ours, theirs, strict=True)
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
        # DuckDB's shortest text of a float32 is not always the shortest.
        return not children_of(held) and held not in (FLOAT32, VARIANT, GEOMETRY)
    if held == VARCHAR:
        return not children_of(wanted) and wanted not in (TIME, TIME_NS, TIMETZ, INTERVAL, VARIANT, GEOMETRY)
    if held in FLOATS:
        huge = wanted in (INT128, UINT128) or (isinstance(wanted, DecimalType) and wanted.precision > _SMALL_DECIMAL)
        return _is_number(wanted) and not huge
    if held == BOOLEAN and isinstance(wanted, DecimalType):
        # Without a digit before the point DuckDB takes TRUE for the last digit behind it.
        return wanted.scale < wanted.precision
    return _is_number(held) and _is_number(wanted)


def _is_number(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or data_type in (BOOLEAN, *INTEGERS, *FLOATS)


def _cast(array: Any, held: DataType, wanted: DataType, lenient: bool) -> Any:
    if wanted == VARCHAR:
        if held == JSON:
            return array.storage if isinstance(array, pa.ExtensionArray) else array
        text: Callable[[Any], str] = zoned_text if held == TIMESTAMPTZ else partial(to_cast_text, data_type=held)
        texts = _over_distinct(array, lambda part: [None if v is None else text(v) for v in python_values(part, held)], VARCHAR)
        return _with_signs(texts, array) if held == FLOAT64 else texts
    if wanted == JSON:
        texts = _over_distinct(array, lambda part: [None if v is None else json_text(v) for v in part.to_pylist()], VARCHAR)
        return from_values(texts.to_pylist(), JSON) if isinstance(to_arrow_type(JSON), pa.BaseExtensionType) else texts
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
        _refuse_beyond(array, wanted)
    return cast_array(array, Field(id=0, name="value", type=wanted))


def _with_signs(texts: Any, array: Any) -> Any:
    """NaN has a sign too, and the texts of DuckDB show it."""
    numbers = np.asarray(array.fill_null(0.0))
    negative = np.isnan(numbers) & np.signbit(numbers)
    return pc.if_else(pa.array(negative), "-nan", texts) if negative.any() else texts


def _wide(array: Any) -> Any:
    return array.cast(pa.decimal256(76, array.type.scale))


def _whole(array: Any, wanted: DataType) -> Any:
    """Decimals without a fraction as integers: Arrow's own cast refuses wide ones."""
    return array.cast(pa.decimal256(76 - array.type.scale, 0)).cast(pa.string()).cast(to_arrow_type(wanted))


def _from_float(array: Any, held: DataType, wanted: DataType) -> Any:
    if wanted in FLOATS:
        narrowed = array.cast(to_arrow_type(wanted), safe=False)
        if wanted == FLOAT32:
            _refuse(pc.and_(pc.is_inf(narrowed), pc.is_finite(array)), array, wanted)
        return narrowed
    _refuse(pc.invert(pc.is_finite(array)), array, wanted)
    if wanted in INTEGERS:
        low, high = integer_range(wanted)
        numbers = array.cast(pa.float64())
        # What is looked at is the number before it is rounded.
        _refuse(pc.or_(pc.less(numbers, float(low)), pc.greater_equal(numbers, float(high + 1))), array, wanted)
        rounded: Any = pc.round(numbers, 0, round_mode="half_to_even")
        _refuse(pc.greater_equal(rounded, float(high + 1)), array, wanted)
        return rounded.cast(to_arrow_type(wanted))
    assert isinstance(wanted, DecimalType)
    with np.errstate(over="ignore"):
        steps = np.asarray(array.cast(pa.float64()).fill_null(0.0)) * 10.0**wanted.scale
    # Half away from zero, other than to integers; then in the precision of the float.
    steps = np.trunc(steps + 0.5 * np.sign(steps))
    _refuse(pa.array(np.abs(steps) >= 10.0**wanted.precision), array, wanted)
    steps = steps.astype(np.float32).astype(np.float64) if held == FLOAT32 else steps
    whole = pa.array(steps.astype(np.int64), mask=np.asarray(array.is_null()))
    return _shifted(whole, wanted)


def _shifted(whole: Any, wanted: DecimalType) -> Any:
    """Integers as the unscaled digits of decimals."""
    values: Any = np.asarray(whole.fill_null(0))
    parts = np.empty((len(values), 2), dtype=np.int64)
    parts[:, 0], parts[:, 1] = values, values >> 63
    validity = whole.buffers()[0] if whole.null_count else None
    return pa.Array.from_buffers(to_arrow_type(wanted), len(values), [validity, pa.py_buffer(parts.tobytes())])


def _refuse_beyond(array: Any, wanted: DataType) -> None:
    low, high = (pa.scalar(Decimal(bound), array.type) for bound in integer_range(wanted))
    _refuse(pc.or_(pc.less(array, low), pc.greater(array, high)), array, wanted)


def _refuse(bad: Any, array: Any, wanted: DataType) -> None:
    if pc.any(pc.fill_null(bad, False)).as_py():
        value = array.filter(pc.fill_null(bad, False))[0].as_py()
        raise SchemaError(f"the value {value!r} is out of the range of {wanted}")


def _over_distinct(array: Any, convert: Callable[[Any], list[object]], wanted: DataType) -> Any:
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if pa.types.is_interval(plain.type) or pa.types.is_decimal256(plain.type):
        return from_values(convert(array), wanted)
    # Python sees each distinct value once.
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
        if wanted in _OWN_TEXTS:
            raise UnsupportedFeatureError(f"{text!r} as a value of type {wanted}", type=str(wanted)) from error
        raise UsageError(f"{text!r} cannot be read as a value of type {wanted}", type=str(wanted)) from error


def _lenient(text: str, wanted: DataType) -> object:
    try:
        return _read(text, wanted)
    except UsageError:
        return None


def _shifted_clocks(array: Any, shift: Callable[[int], int]) -> Any:
    """Microseconds of instants as those that clocks of the effective time zone show, or the other way round, as timestamps without zone."""
    encoded = array.view(pa.int64()).dictionary_encode()
    moments = [None if moment is None else shift(moment) for moment in encoded.dictionary.to_pylist()]
    if any(moment is not None and abs(moment) > _INFINITE_TIMESTAMP for moment in moments):
        raise SchemaError("a timestamp is out of range in its time zone")
    return pc.take(pa.array(moments, pa.int64()), encoded.indices).view(pa.timestamp("us"))


def _date_to_timestamp(array: Any) -> Any:
    days = np.asarray(array.view(pa.int32()).fill_null(0)).astype(np.int64)
    infinite = np.abs(days) >= _INFINITE_DATE
    if np.any(~infinite & (np.abs(days) > _INFINITE_TIMESTAMP // _DAY)):
        raise SchemaError("a date is out of the range of timestamp")
    moments = np.where(infinite, np.sign(days) * _INFINITE_TIMESTAMP, np.where(infinite, 0, days) * _DAY)
    return pa.array(moments, mask=np.asarray(array.is_null())).view(pa.timestamp("us"))


def _in_other_units(array: Any, held: DataType, wanted: DataType) -> Any:
    """Nanoseconds are cut off, microseconds rounded half away from zero; infinite timestamps stay so."""
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


__all__ = ["cast_scalar", "text_value"]
