"""Convert values to and from the strings that the catalog stores (specification: Statistics, Data Types)."""

from __future__ import annotations

import json
import math
import re
import struct
import uuid
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import DataType, DecimalType, PrimitiveType
from ducklake_core.format.values.temporal import (
    date_text,
    parse_date,
    parse_time,
    parse_timestamp,
    parse_zoned_time,
    time_text,
    timestamp_text,
)

_INTEGER_BOUNDS = {
    f"{sign}int{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64, 128)
}
_TRUE = frozenset({"1", "true", "t"})
_FALSE = frozenset({"0", "false", "f"})
# Strings of a boolean column that has become a number since.
_TRUE_NUMBERS = {"true": "1", "false": "0"}
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)

_PART = re.compile(
    r"\s*(?:(?P<count>[+-]?\d+) (?P<unit>year|mon(?:th)?|day)s?"
    r"|(?P<sign>[+-]?)(?P<h>\d+):(?P<m>\d{2}):(?P<s>\d{2})(?:\.(?P<f>\d{1,6}))?)(?=\s|$)",
    re.ASCII,
)

_NO_NUMBER = re.compile(r"[ \t\n\r]*-?(?:nan|inf(?:inity)?)[ \t\n\r]*", re.IGNORECASE)

BLANKS = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""The characters that ``trim`` removes: the spaces of Unicode (category Zs), no other white space."""


# Every value has two strings, both DuckDB's: that of statistics (to_text, from_text) and that of a cast to VARCHAR (to_cast_text,
# from_cast_text). Only booleans (1 and true) and blobs (00FF and \x00\xFF) differ.
def to_text(value: object, data_type: DataType) -> str:
    """Return the statistics text of a value, in full length.

    >>> from ducklake_core.format.types.data_types import *
    >>> to_text(True, BOOLEAN), to_text(b"\\x00\\xffab", BLOB), to_text(1e-05, FLOAT64), to_text(3.4028234663852886e38, FLOAT32)
    ('1', '00FF6162', '1e-05', '3.4028235e+38')
    >>> to_text(Decimal("-1.5"), DecimalType(precision=9, scale=2)), to_text(19737, DATE), to_text(500_000, TIMESTAMPTZ)
    ('-1.50', '2024-01-15', '1970-01-01 00:00:00.5+00')

    Args:
        value: The value in its Python form; not None.
        data_type: A leaf type.

    Raises:
        SchemaError: A value of another form, or one with more digits than a decimal has.
        UnsupportedFeatureError: The type is a variant, a geometry, or nested.
    """
    match data_type, value:
        case PrimitiveType(name="boolean"), bool():
            return "1" if value else "0"
        case PrimitiveType(name="blob"), bytes():
            return value.hex().upper()
        case DecimalType(scale=scale), Decimal() | int():
            return decimal_text(unscaled(Decimal(value), scale), data_type)
        case PrimitiveType(name="float64"), float() | int():
            return _float_text(repr(float(value)))
        case PrimitiveType(name="float32"), float() | int():
            return _float32_text(np.float32(value))
        case PrimitiveType(name="varchar" | "json" | "uuid"), str():
            return value
        case PrimitiveType(name="interval"), Interval():
            return interval_text(value)
        case PrimitiveType(name=name), int():
            return _integer_text(value, name)
        case _:
            raise _rejection(data_type, f"{value!r} is not a value of type {data_type}")


def to_cast_text(value: object, data_type: DataType) -> str:
    """Return the text that ``CAST(value AS VARCHAR)`` gives in DuckDB: partition values, defaults, inlined cells.

    >>> from ducklake_core.format.types.data_types import *
    >>> to_cast_text(True, BOOLEAN), to_cast_text(b"\\x00\\xffab", BLOB), to_cast_text(7, INT32)
    ('true', '\\\\x00\\\\xFFab', '7')
    """
    match data_type, value:
        case PrimitiveType(name="boolean"), bool():
            return "true" if value else "false"
        case PrimitiveType(name="blob"), bytes():
            return "".join(chr(byte) if _is_plain(byte) else f"\\x{byte:02X}" for byte in value)
        case _:
            return to_text(value, data_type)


def from_text(text: str, data_type: DataType) -> object:
    """Return the Python form of a statistics text.

    Strings of narrower types are understood, because the catalog keeps them as they were when a column's type is widened.

    >>> from ducklake_core.format.types.data_types import *
    >>> from_text("1", BOOLEAN), from_text("00FF6162", BLOB), from_text("nan", FLOAT64), from_text("2024-01-15", TIMESTAMP)
    (True, b'\\x00\\xffab', nan, 1705276800000000)

    Raises:
        SchemaError: The text is not a value of that type.
        UnsupportedFeatureError: The type is a variant, a geometry, or nested.
    """
    match data_type:
        case PrimitiveType(name="blob"):
            try:
                return bytes.fromhex(text)
            except ValueError as error:
                raise SchemaError(f"{text!r} is not the hexadecimal text of a blob") from error
        case PrimitiveType(name="boolean"):
            return _parse_boolean(text)
        case PrimitiveType(name="float32" | "float64" as name):
            return _parse_float(text, name)
        case DecimalType():
            return _parse_decimal(text, data_type)
        case PrimitiveType(name=name) if name in _INTEGER_BOUNDS:
            return _parse_integer(text, name)
        case PrimitiveType(name="varchar" | "json"):
            return text
        case PrimitiveType(name="uuid"):
            return _parse_uuid(text)
        case PrimitiveType(name=name):
            return _parse_temporal(text, name)
        case _:
            raise _rejection(data_type, "")


def from_cast_text(text: str, data_type: DataType) -> object:
    """Return the Python form of a cast text (see :func:`to_cast_text`): partition values, defaults, inlined cells.

    >>> from ducklake_core.format.types.data_types import *
    >>> from_cast_text("true", BOOLEAN), from_cast_text("\\\\x00\\\\xFFab", BLOB)
    (True, b'\\x00\\xffab')
    """
    if data_type != PrimitiveType(name="blob"):
        return from_text(text, data_type)
    parts = re.split(r"\\x([0-9A-Fa-f]{2})", text)
    if any("\\" in plain for plain in parts[::2]):
        raise SchemaError(f"{text!r} is not the text of a blob")
    return b"".join(part.encode() if i % 2 == 0 else bytes.fromhex(part) for i, part in enumerate(parts))


def unscaled(value: Decimal, scale: int) -> int:
    """Return the integer that a decimal of this scale is stored as.

    >>> unscaled(Decimal("-1.5"), 2)
    -150

    Raises:
        SchemaError: The number is not finite, or has more digits than the scale.
    """
    # With integers, because arithmetic of Decimal rounds to the precision of its context.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise SchemaError(f"{value} is not a finite decimal")
    magnitude = int("".join(map(str, digits)) or 0)
    shift = exponent + scale
    power: int = 10 ** abs(shift)
    whole, lost = (magnitude * power, 0) if shift >= 0 else divmod(magnitude, power)
    if lost:
        raise SchemaError(f"{value} has more than {scale} digits behind the point")
    return -whole if sign else whole


def decimal_text(number: int, data_type: DecimalType) -> str:
    """Return the text of a decimal from its stored integer, always with all digits of the scale.

    DuckDB leaves out the zero before the point where the type has no digits there.

    >>> decimal_text(-150, DecimalType(precision=9, scale=2)), decimal_text(-50, DecimalType(precision=2, scale=2))
    ('-1.50', '-.50')
    """
    sign, scale = "-" if number < 0 else "", data_type.scale
    if not scale:
        return str(number)
    whole, fraction = divmod(abs(number), 10**scale)
    return f"{sign}{'' if data_type.precision == scale else whole}.{fraction:0{scale}d}"


def order_key(value: object) -> tuple[int, object]:
    """Return a sort key with the order of DuckDB: NaN equals itself and is greater than every number.

    >>> sorted([math.nan, 1.0, math.inf], key=order_key)
    [1.0, inf, nan]
    """
    match value:
        case float() if math.isnan(value):
            return (1, 0)
        case Interval(months=months, days=days, microseconds=microseconds):
            # DuckDB compares intervals as if months had 30 days of 24 hours.
            return (0, (months * 30 + days) * 86_400_000_000 + microseconds)
        case _:
            return (0, value)


def stored_float32(value: float) -> float:
    """Return the nearest float32 as a Python float, as a float32 column holds it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0]) if math.isfinite(value) else value


def _integer_text(value: int, name: str) -> str:
    match name:
        case "date":
            return date_text(value)
        case "time":
            return time_text(value)
        case "time_ns":
            return time_text(value, digits=9)
        case "timetz":
            return f"{time_text(value)}+00"
        case "timestamptz":
            return timestamp_text(value, zone="+00")
        case "timestamp_ns":
            return timestamp_text(value, digits=9)
        case "timestamp" | "timestamp_s" | "timestamp_ms":
            return timestamp_text(value)
        case _ if name in _INTEGER_BOUNDS and not isinstance(value, bool):
            return str(value)
        case _:
            raise _rejection(PrimitiveType(name=name), f"{value!r} is not a value of type {name}")


def _float_text(text: str) -> str:
    # DuckDB has no sign on NaN.
    return "nan" if "nan" in text else text


def _float32_text(value: np.float32) -> str:
    # numpy leaves plain notation earlier than Python and DuckDB do.
    plain = np.isfinite(value) and (value == 0 or np.float32(1e-4) <= abs(value) < np.float32(1e16))
    return np.format_float_positional(value, unique=True, trim="0") if plain else _float_text(str(value))


def _is_plain(byte: int) -> bool:
    return 32 <= byte <= 126 and byte not in b"\\'\""


def _parse_boolean(text: str) -> bool:
    folded = text.strip().lower()
    if folded in _TRUE or folded in _FALSE:
        return folded in _TRUE
    raise SchemaError(f"{text!r} is not a boolean")


def _parse_float(text: str, name: str) -> float:
    folded = _TRUE_NUMBERS.get(text.strip().lower(), text)
    try:
        value = float(folded)
    except ValueError as error:
        raise SchemaError(f"{text!r} is not a {name}") from error
    try:
        return stored_float32(value) if name == "float32" else value
    except OverflowError as error:
        raise SchemaError(f"{text!r} is out of the range of {name}") from error


def _parse_decimal(text: str, data_type: DecimalType) -> Decimal:
    try:
        value = Decimal(_TRUE_NUMBERS.get(text.strip().lower(), text.strip()))
    except InvalidOperation as error:
        raise SchemaError(f"{text!r} is not a decimal") from error
    number = unscaled(value, data_type.scale)
    if abs(number) >= 10**data_type.precision:
        raise SchemaError(f"{text!r} is out of the range of {data_type}")
    return Decimal(decimal_text(number, data_type))


def _parse_integer(text: str, name: str) -> int:
    digits = _TRUE_NUMBERS.get(text.strip().lower(), text.strip())
    low, high = _INTEGER_BOUNDS[name]
    if not _INTEGER.fullmatch(digits) or not low <= int(digits) <= high:
        raise SchemaError(f"{text!r} is not a value of type {name}")
    return int(digits)


def _parse_uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise SchemaError(f"{text!r} is not a uuid") from error


def _parse_temporal(text: str, name: str) -> object:
    match name:
        case "date":
            return parse_date(text)
        case "time":
            return parse_time(text)
        case "time_ns":
            return parse_time(text, digits=9)
        case "timetz":
            return parse_zoned_time(text)
        case "timestamp" | "timestamp_s" | "timestamp_ms" | "timestamptz":
            return parse_timestamp(text)
        case "timestamp_ns":
            return parse_timestamp(text, digits=9)
        case "interval":
            return parse_interval(text)
        case _:
            raise _rejection(PrimitiveType(name=name), "")


def _rejection(data_type: DataType, message: str) -> SchemaError | UnsupportedFeatureError:
    if isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.name not in ("variant", "geometry")):
        return SchemaError(message)
    return UnsupportedFeatureError(f"values of type {data_type} have no text", type=str(data_type))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Months, days and microseconds, which do not convert into each other; each may be negative."""

    months: int
    days: int
    microseconds: int


def interval_text(value: Interval) -> str:
    """Return the text of an interval.

    >>> interval_text(Interval(months=14, days=-2, microseconds=10_800_500_000))
    '1 year 2 months -2 days 03:00:00.5'
    >>> interval_text(Interval(months=-1, days=0, microseconds=-3_000_000)), interval_text(Interval(months=0, days=0, microseconds=0))
    ('-1 month -00:00:03', '00:00:00')
    """
    sign = -1 if value.months < 0 else 1
    years, months = (sign * part for part in divmod(abs(value.months), 12))
    counted = ((years, "year"), (months, "month"), (value.days, "day"))
    parts = [f"{count} {name}{'' if abs(count) == 1 else 's'}" for count, name in counted if count]
    if value.microseconds or not parts:
        parts.append(("-" if value.microseconds < 0 else "") + time_text(abs(value.microseconds)))
    return " ".join(parts)


def parse_interval(text: str) -> Interval:
    """Return the interval of a text as :func:`interval_text` makes it, or as PostgreSQL prints it (``1 mon``).

    >>> parse_interval("1 year 2 months -2 days 03:00:00.5")
    Interval(months=14, days=-2, microseconds=10800500000)

    Raises:
        SchemaError: The text is not such an interval.
    """
    months = days = microseconds = position = 0
    while position < len(text.rstrip()) or not position:
        found = _PART.match(text, position)
        if not found:
            raise SchemaError(f"{text!r} is not an interval")
        position = found.end()
        match found["unit"]:
            case "year":
                months += 12 * int(found["count"])
            case "month" | "mon":
                months += int(found["count"])
            case "day":
                days += int(found["count"])
            case _:
                size = (int(found["h"]) * 3600 + int(found["m"]) * 60 + int(found["s"])) * 1_000_000 + int((found["f"] or "").ljust(6, "0"))
                microseconds += -size if found["sign"] == "-" else size
    return Interval(months=months, days=days, microseconds=microseconds)


def json_text(text: str) -> str:
    """Return the text, which is JSON.

    >>> json_text(' {"a": 1}')
    ' {"a": 1}'

    Raises:
        UsageError: It is not JSON, or nested too deep.
    """
    if not is_json(text):
        raise UsageError(f"{text[:200]!r} cannot be read as JSON", type="json")
    return text


def is_json(text: str) -> bool:
    r"""Return whether a string is JSON that DuckDB reads, which may contain NaN and infinities, but no half of a surrogate pair.

    >>> [is_json(text) for text in ('{"a": 1}', "nan", "01", r'"\ud800"')]
    [True, True, False, False]
    """
    if _NO_NUMBER.fullmatch(text):
        return True
    try:
        # Numbers stay strings: JSON has no limit on their digits, and Python has one.
        found = json.loads(text, parse_int=str, parse_float=str)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True
