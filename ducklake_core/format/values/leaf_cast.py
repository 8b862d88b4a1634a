"""Casts of leaf values between Arrow types that Arrow itself has no cast for, or one that would lose values."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError
from ducklake_core.format.types.arrow_types import HUGE_INTEGER, VARIANT_STORAGE, ArrowArray, ArrowType, to_arrow_type
from ducklake_core.format.types.data_types import DATE, INT128, INTEGERS, JSON, UINT128, DataType, DecimalType, PrimitiveType
from ducklake_core.format.values.interval_text import Interval, interval_text, parse_interval
from ducklake_core.format.values.value_text import from_text
from ducklake_core.format.values.wkb import check_geometries

_HUGE_BOUNDS = {"int128": (-(2**127), 2**127 - 1), "uint128": (0, 2**128 - 1)}
_DECIMALS: dict[int, Callable[[int, int], ArrowType]] = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
"""Makers of Arrow's types of decimals, by their bits."""
_HUGE_TYPES = (INT128, UINT128)
_WIDE = Context(prec=400)
_INFINITE_DATE = 2**31 - 1
_INFINITE_TIMESTAMP = 2**63 - 1


def cast_leaf(array: ArrowArray, data_type: DataType, *, physical: bool) -> ArrowArray:
    """The same values in the Arrow type of a leaf.

    Raises:
        SchemaError: A value outside the type's range.
        pyarrow.ArrowInvalid: A value that does not fit; the caller names the column.
    """
    target = to_arrow_type(data_type, physical=physical)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    match data_type:
        case PrimitiveType(name="null"):
            return _to_null(array)
        case PrimitiveType(name="int128" | "uint128" as name):
            return _to_huge(array, name, target)
        case PrimitiveType(name="interval"):
            return _to_interval(array, target)
        case PrimitiveType(name="variant"):
            return _to_variant(array)
        case PrimitiveType(name="geometry"):
            return _to_geometry(array)
        case PrimitiveType(name="uuid"):
            return _to_uuid(array, target)
        case PrimitiveType(name="time" | "time_ns" | "timetz") if _is_text(array.type):
            # Arrow has no text for 24:00:00, and none for offsets.
            return pc.take(*_over_distinct(array, lambda text: from_text(text, data_type), target))
        case PrimitiveType(name="float32" | "float64") if pa.types.is_integer(array.type):
            return array.cast(target, safe=False)  # rounds, as in SQL
        case PrimitiveType(name="float32" | "float64") if pa.types.is_decimal(array.type):
            # Arrow's own cast of decimals to floats is not always the nearest float.
            return array.cast(pa.string()).cast(target)
        case DecimalType():
            return _to_decimal(array, data_type).cast(target)
        case PrimitiveType() if pa.types.is_temporal(target):
            return cast_temporal(array, target)
        case _:
            return array.cast(target)


def fit_leaf(array: ArrowArray, data_type: DataType, *, physical: bool) -> ArrowArray:
    """The same values in the Arrow type of a leaf, or an error: no value is rounded.

    NaN stands for a missing value where the type has no NaN, as pandas has no other one for numbers. A decimal and a floating-point number
    are the same value when casting one to the other and back returns it: 0.1 fits ``decimal(10,2)``, 0.125 does not.

    >>> from ducklake_core.format.types.data_types import DATE, FLOAT32, INT64
    >>> fit_leaf(pa.array([1.0, float("nan"), None]), INT64, physical=False).to_pylist()
    [1, None, None]
    >>> fit_leaf(pa.array([2**53 + 1]), PrimitiveType(name="float64"), physical=False)
    Traceback (most recent call last):
    ducklake_core.errors.SchemaError: 9007199254740993 cannot be stored exactly as float64 [schema]

    Raises:
        SchemaError: A value that the type does not have.
        pyarrow.ArrowInvalid: The same; the caller names the column.
    """
    if pa.types.is_float16(array.type):
        # Arrow has no functions of short floats; each of their values is a float32.
        array = array.cast(pa.float32())
    held = array.type
    to_float = isinstance(data_type, PrimitiveType) and data_type.name in ("float32", "float64")
    if pa.types.is_floating(held) and not to_float:
        array = pc.if_else(pc.fill_null(pc.is_nan(array), False), pa.scalar(None, held), array)
        if array.null_count == len(array):
            return pa.nulls(len(array), to_arrow_type(data_type, physical=physical))
        if isinstance(data_type, DecimalType):
            return _checked(array, _decimals_of(array, data_type), data_type)
        if data_type not in INTEGERS:
            raise SchemaError(f"{_first(array)} is a number, but the column is {data_type}")
        _check_whole(array, data_type)
        if data_type in _HUGE_TYPES:
            array = array.cast(pa.decimal256(76, 0))
    is_number = pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held)
    cast = cast_leaf(array, data_type, physical=physical)
    if (to_float and is_number) or (pa.types.is_timestamp(held) and data_type == DATE):
        return _checked(array, cast, data_type)
    return cast


def _check_whole(array: ArrowArray, data_type: DataType) -> None:
    whole = pc.equal(pc.floor(array), array)
    wrong = pc.invert(pc.fill_null(pc.and_(whole, pc.is_finite(array)), True))
    if pc.any(wrong).as_py():
        raise SchemaError(f"{_first(array.filter(wrong))} is not a whole number, but the column is {data_type}")


def _decimals_of(array: ArrowArray, data_type: DecimalType) -> ArrowArray:
    """Floating-point numbers as the nearest decimals of a type."""
    try:
        return array.cast(to_arrow_type(data_type))
    except pa.ArrowInvalid as error:
        raise SchemaError(f"a value between {pc.min(array)} and {pc.max(array)} is out of the range of {data_type}") from error


def _checked(array: ArrowArray, cast: ArrowArray, data_type: DataType) -> ArrowArray:
    """The cast values, once casting them back has returned every value.

    Raises:
        SchemaError: A value was rounded.
    """
    if cast.type == array.type:
        return cast
    if pa.types.is_decimal(array.type) and pa.types.is_floating(cast.type):
        # Floats of decimals beyond their digits overflow on the way back.
        back: Any = pa.array([_rounded(value, array.type.scale) for value in cast.to_pylist()], pa.decimal256(76, array.type.scale))
        same = pc.equal(back, array.cast(back.type))
    elif pa.types.is_floating(cast.type) and pa.types.is_integer(array.type):
        same = pc.equal(cast.cast(pa.float64()).cast(pa.decimal256(76, 0), safe=False), array.cast(pa.decimal256(76, 0)))
    elif pa.types.is_decimal(cast.type):
        back = cast.cast(pa.string()).cast(pa.float64())
        same = pc.equal(back.cast(array.type, safe=False), array)
    elif pa.types.is_floating(array.type) and pa.types.is_floating(cast.type):
        # 0.1 is the same number in both widths, as its digits are: languages have floats of 64 bits, whatever the column has.
        digits = pc.equal(cast.cast(pa.string()).cast(pa.float64()).cast(array.type), array)
        same = pc.or_(pc.or_(pc.equal(cast.cast(array.type), array), digits), pc.is_nan(array))
    else:
        same = pc.equal(cast.cast(array.type, safe=False), array)
    wrong = pc.invert(pc.fill_null(same, True))
    if pc.any(wrong).as_py():
        raise SchemaError(f"{_first(array.filter(wrong))} cannot be stored exactly as {data_type}")
    return cast


def _rounded(value: float | None, scale: int) -> Decimal | None:
    return None if value is None else Decimal(repr(value)).quantize(Decimal(1).scaleb(-scale), context=_WIDE)


def _first(array: ArrowArray) -> object:
    return array.drop_null()[0].as_py()


def from_values(values: Sequence[object], data_type: DataType, *, physical: bool = False) -> ArrowArray:
    """An array of values in their Python forms (see format/values/leaf_values.py); None is NULL."""
    array: ArrowArray
    match data_type:
        case PrimitiveType(name="interval"):
            texts = [None if v is None else interval_text(v) for v in values if v is None or isinstance(v, Interval)]
            array = pa.array(texts, pa.string())
        case PrimitiveType(name="uuid"):
            array = pa.array([None if v is None else uuid.UUID(str(v)).bytes for v in values], pa.binary(16))
        case PrimitiveType(name="int128" | "uint128"):
            array = pa.array([None if v is None else str(v) for v in values], pa.string())
        case PrimitiveType(name="date"):
            array = pa.array(values, pa.int32()).cast(pa.date32())
        case PrimitiveType(name=name) if name.startswith("time"):
            unit = "ns" if name.endswith("_ns") else "us"
            stored: ArrowType = pa.timestamp(unit) if name.startswith("timestamp") else pa.time64(unit)
            array = pa.array(values, pa.int64()).view(stored)
        case _:
            storage = pa.string() if data_type == JSON else to_arrow_type(data_type)
            array = pa.array(values, storage)
    return cast_leaf(array, data_type, physical=physical)


def _to_null(array: ArrowArray) -> ArrowArray:
    if array.null_count < len(array):
        raise SchemaError("a column of type null holds NULL alone")
    return pa.nulls(len(array))


def _to_decimal(array: ArrowArray, data_type: DecimalType) -> ArrowArray:
    """Numbers as decimals that have no more digits before the point than the type has; other values as they are."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.decimal256(20 + data_type.scale, data_type.scale))
    if not pa.types.is_decimal(array.type):
        return array
    # Arrow does not see that a number leaves its 128 bits while digits are added behind the point.
    digits = max(1, data_type.precision - data_type.scale + array.type.scale)
    return array.cast(_DECIMALS[array.type.bit_width](digits, array.type.scale)) if digits < array.type.precision else array


def _to_variant(array: ArrowArray) -> ArrowArray:
    """The two binaries of unshredded variants, whatever their order is; a null variant is NULL."""
    arrow = array.type
    places = {arrow.field(place).name: place for place in range(arrow.num_fields)} if pa.types.is_struct(arrow) else {}
    if set(places) != {"metadata", "value"}:
        raise SchemaError(f"a variant is a struct of the binaries metadata and value, not {arrow}")
    parts = {name: array.field(place).cast(pa.binary()) for name, place in places.items()}
    # First bytes: the version of the encoding, and a null variant.
    version: ArrowArray = pc.is_in(
        pc.binary_slice(parts["metadata"], 0, 1), pa.array([bytes([16 * n + 1]) for n in range(16)], pa.binary())
    )
    is_null: ArrowArray = pc.or_kleene(array.is_null(), pc.fill_null(pc.equal(parts["value"], b"\0"), False))
    missing: ArrowArray = pc.or_(parts["value"].is_null(), pc.equal(pc.fill_null(pc.binary_length(parts["value"]), 0), 0))
    broken: ArrowArray = pc.and_(pc.invert(is_null), pc.or_(missing, pc.invert(pc.fill_null(version, False))))
    if pc.any(broken).as_py():
        raise SchemaError("a value is no variant: its metadata is not of version 1 of the encoding, or it has no value")
    # Nothing may be NULL below a variant, NULL or not.
    plain = [pc.if_else(is_null, pa.scalar(b"", pa.binary()), parts[name]) for name in ("metadata", "value")]
    fields = [VARIANT_STORAGE.field(place) for place in range(2)]
    return pa.StructArray.from_arrays(plain, fields=fields, mask=is_null)


def _to_geometry(array: ArrowArray) -> ArrowArray:
    found = array.cast(pa.binary())
    check_geometries(found)
    return found


def _is_text(arrow: ArrowType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))


def _over_distinct(array: ArrowArray, convert: Callable[[Any], object], target: ArrowType) -> tuple[ArrowArray, ArrowArray]:
    # Values repeat more often than not, and Python code is slow: it sees each distinct value once.
    encoded = (array.cast(pa.string()) if _is_text(array.type) else array).dictionary_encode()
    return pa.array([convert(value.as_py()) for value in encoded.dictionary], target), encoded.indices


def _to_huge(array: ArrowArray, name: str, target: ArrowType) -> ArrowArray:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    wide = array.cast(pa.string()).cast(HUGE_INTEGER) if _is_text(array.type) else array.cast(HUGE_INTEGER)
    low, high = _HUGE_BOUNDS[name]
    bounds: Any = pc.min_max(wide).as_py()
    if bounds["min"] is not None and not low <= bounds["min"] <= bounds["max"] <= high:
        raise SchemaError(f"a value between {bounds['min']} and {bounds['max']} is out of the range of {name}")
    return wide if target == HUGE_INTEGER else wide.cast(target)


def _to_interval(array: ArrowArray, target: ArrowType) -> ArrowArray:
    as_text = pa.types.is_string(target)
    if as_text and _is_text(array.type):
        return pc.take(*_over_distinct(array, lambda text: interval_text(parse_interval(text)), target))
    if pa.types.is_duration(array.type):
        array = array.cast(pa.duration("us"))
    values = (_interval_of(value, array.type) for value in array)
    plain = (None if v is None else interval_text(v) if as_text else (v.months, v.days, v.microseconds * 1000) for v in values)
    return pa.array(list(plain), target)


def _interval_of(value: Any, arrow: ArrowType) -> Interval | None:
    if not value.is_valid:
        return None
    if pa.types.is_duration(arrow):
        return Interval(months=0, days=0, microseconds=value.value)
    plain = value.as_py()
    if isinstance(plain, str):
        return parse_interval(plain)
    if isinstance(plain, bytes):  # Parquet INTERVAL: three little-endian numbers, the last in milliseconds
        months, days, milliseconds = (int.from_bytes(plain[i : i + 4], "little") for i in (0, 4, 8))
        return Interval(months=months, days=days, microseconds=milliseconds * 1000)
    microseconds, rest = divmod(plain.nanoseconds, 1000)
    if rest:
        raise SchemaError(f"interval {plain} has nanoseconds; DuckLake keeps microseconds")
    return Interval(months=plain.months, days=plain.days, microseconds=microseconds)


def _to_uuid(array: ArrowArray, target: ArrowType) -> ArrowArray:
    if _is_text(array.type):
        array = pc.take(*_over_distinct(array, lambda text: uuid.UUID(text).bytes, pa.binary(16)))
    return array.cast(pa.binary(16)).cast(target)


def cast_temporal(array: ArrowArray, target: ArrowType) -> ArrowArray:
    """Dates, times and timestamps in another unit; what does not fit is an error, and infinities stay what they are.

    >>> cast_temporal(pa.array([1, 2**63 - 1]).view(pa.timestamp("s")), pa.timestamp("us")).view(pa.int64()).to_pylist()
    [1000000, 9223372036854775807]

    Raises:
        pyarrow.ArrowInvalid: A value that does not fit.
    """
    if not pa.types.is_timestamp(target) or not (pa.types.is_timestamp(array.type) or pa.types.is_date32(array.type)):
        return array.cast(target)
    infinite = _infinities(array)
    if not pc.any(infinite).as_py():
        return array.cast(target)
    # Infinite dates and timestamps are extreme integers in every unit, so they must not be scaled.
    finite = pc.if_else(infinite, pa.scalar(None, array.type), array).cast(target)
    positive: ArrowArray = pc.greater(array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64()), pa.scalar(0))
    extremes: ArrowArray = pc.if_else(positive, pa.scalar(_INFINITE_TIMESTAMP), pa.scalar(-_INFINITE_TIMESTAMP)).cast(target)
    return pc.if_else(infinite, extremes, finite)


def _infinities(array: ArrowArray) -> ArrowArray:
    extreme = _INFINITE_DATE if pa.types.is_date(array.type) else _INFINITE_TIMESTAMP
    numbers: ArrowArray = array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64())
    return pc.fill_null(pc.equal(pc.abs(numbers), pa.scalar(extreme, numbers.type)), pa.scalar(False))
