"""Constants of SQL text as typed literals, read as DuckDB's casts from text read them."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.comparison import infinity_of, integer_range
from ducklake_core.format.expressions.number_text import read_decimal, read_float, read_integer, read_uuid
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    INT128,
    INTEGERS,
    JSON,
    TIME,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UINT128,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
)
from ducklake_core.format.values.calendar_text import civil_from_days, days_from_civil
from ducklake_core.format.values.time_zones import checked_zone, instant

_DATE = r"[ \t-\r]*(?P<year>-?\d{1,9})(?P<separator>[-/ \\])(?P<month>\d{1,2})(?P=separator)(?P<day>\d{1,2})(?P<bc>\s\((?i:BC)\))?"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?:(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?"
_ZONE = r"(?P<zone>Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?| (?i:UTC)| (?P<named>[A-Za-z][-+\w/]*)| )?[ \t-\r]*"
_TIME_TEXT = re.compile(rf"\s*{_CLOCK}\s*", re.ASCII)
# What stands behind the day is not looked at, as in DuckDB.
_DATE_TEXT = re.compile(rf"{_DATE}(?!\d)", re.ASCII)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?!\d)(?:[ T]?[ \t-\r]*{_CLOCK}{_ZONE})?", re.ASCII)
_SPECIAL = re.compile(r"[ \t-\r]*(?P<sign>-?)(?P<name>infinity|inf|epoch)[ \t-\r]*", re.ASCII | re.IGNORECASE)
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})?:?(\d{2})?", re.ASCII)
_BLOB_PART = re.compile(r"\\x([0-9A-Fa-f]{2})|([\x00-\x5b\x5d-\x7f])")
_TRUTHS = {"true": True, "t": True, "1": True, "yes": True, "y": True, "false": False, "f": False, "0": False, "no": False, "n": False}
_LONGEST_EXACT = 100
_DAY_IN_NANOSECONDS = 86_400 * 10**9


def number_literal(text: str) -> Literal:
    """A number as written in SQL, typed as DuckDB types it: integer, decimal, or double with an exponent.

    >>> [str(number_literal(text).type) for text in ("5", "3000000000", "1.50", "0.01", "1e3")]
    ['int32', 'int64', 'decimal(3,2)', 'decimal(3,2)', 'float64']
    """
    try:
        as_float = float(text)
    except ValueError as problem:
        raise UsageError(f"{text!r} is not a number") from problem
    if len(text) > _LONGEST_EXACT and math.isinf(as_float):
        raise UsageError(f"a number of {len(text)} digits is larger than any number here")
    if "e" in text.lower() or len(text) > _LONGEST_EXACT:
        return Literal(value=as_float, type=FLOAT64)
    if "." not in text:
        value = int(text)
        for candidate in (INT32, INT64, INT128, UINT128):
            low, high = integer_range(candidate)
            # The least int32 is written as the negative of an int64.
            if low <= value <= high and (candidate != INT32 or value > low):
                return Literal(value=value, type=candidate)
        return Literal(value=as_float, type=FLOAT64)
    exact = Decimal(text)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    # Zeros before the point count as they are written.
    precision = sum(letter.isdigit() for letter in text)
    if precision > 38:
        return Literal(value=as_float, type=FLOAT64)
    return Literal(value=exact, type=DecimalType(precision=precision, scale=-exponent))


def text_literal(text: str, data_type: DataType) -> Literal:
    """A quoted SQL string read as a value of ``data_type``.

    >>> from ducklake_core.format.types.data_types import TIMESTAMP
    >>> text_literal("2024-01-02", DATE).value, text_literal("2024-01-02 00:00:01.5", TIMESTAMP).value, text_literal("5", INT32).value
    (19724, 1704153601500000, 5)
    >>> text_literal("2024-01-02 02:00:00+02", TIMESTAMPTZ) == text_literal("2024-01-02 00:00:00Z", TIMESTAMPTZ)
    True

    A ``timestamptz`` that names no zone is meant in the effective one (:func:`~ducklake_core.format.values.time_zones.session_zone`).

    Raises:
        UsageError: The text is not a value of that type, or constants of that type cannot be written here.
    """
    try:
        return Literal(value=_read(text, data_type), type=data_type)
    except ValueError as problem:
        if isinstance(problem, UsageError):
            raise
        raise UsageError(f"{text!r} cannot be read as a value of type {data_type}", type=str(data_type)) from problem


def _read(text: str, data_type: DataType) -> object:
    if data_type in (VARCHAR, JSON):
        return text
    if data_type == BOOLEAN:
        if text.lower() not in _TRUTHS:
            raise ValueError(text)
        return _TRUTHS[text.lower()]
    if data_type in INTEGERS:
        return read_integer(text, data_type)
    if isinstance(data_type, DecimalType):
        return read_decimal(text, data_type)
    if data_type in (FLOAT32, FLOAT64):
        return read_float(text, data_type)
    if data_type == DATE:
        return _read_date(text)
    if data_type in TIMESTAMPS:
        return _read_timestamp(text, data_type)
    if data_type == TIME:
        return _read_time(text)
    if data_type == BLOB:
        return _read_blob(text)
    if data_type == UUID:
        return read_uuid(text)
    raise UsageError(f"a constant of type {data_type} cannot be written in a predicate", type=str(data_type))


def _special(text: str, data_type: DataType) -> int | None:
    """An infinity or the epoch by its name."""
    found = _SPECIAL.fullmatch(text)
    if not found:
        return None
    limit = 0 if found["name"].lower() == "epoch" else infinity_of(data_type)
    return -limit if found["sign"] else limit


def _day(parts: re.Match[str]) -> int:
    year, month, day = int(parts["year"]), int(parts["month"]), int(parts["day"])
    if parts["bc"]:
        if year <= 0:
            raise ValueError(parts[0])
        year = 1 - year
    days = days_from_civil(year, month, day) if 1 <= month <= 12 and day <= 31 else 0
    if civil_from_days(days) != (year, month, day) or abs(days) >= infinity_of(DATE):
        raise ValueError(parts[0])
    return days


def _read_date(text: str) -> int:
    special = _special(text, DATE)
    if special is not None:
        return special
    parts = _DATE_TEXT.match(text)
    if not parts:
        raise ValueError(text)
    return _day(parts)


def _clock(parts: re.Match[str]) -> int:
    hour, minute, second = int(parts["hour"]), int(parts["minute"]), int(parts["second"] or 0)
    fraction = int((parts["fraction"] or "").ljust(9, "0")[:9])
    nanoseconds = ((hour * 60 + minute) * 60 + second) * 10**9 + fraction
    if minute > 59 or second > 59 or nanoseconds > _DAY_IN_NANOSECONDS:
        raise ValueError(parts[0])
    return nanoseconds


def _read_time(text: str) -> int:
    parts = _TIME_TEXT.fullmatch(text)
    if not parts:
        raise ValueError(text)
    return _clock(parts) // 1000


def _offset(zone: str | None) -> int:
    found = _OFFSET.fullmatch(zone or "")
    if not found:
        return 0
    seconds = int(found[2]) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
    return (-seconds if found[1] == "-" else seconds) * 10**9


def _read_timestamp(text: str, data_type: DataType) -> int:
    special = _special(text, data_type)
    if special is not None:
        return special
    parts = _TIMESTAMP_TEXT.fullmatch(text)
    if not parts:
        raise ValueError(text)
    nanoseconds = _day(parts) * _DAY_IN_NANOSECONDS + (_clock(parts) if parts["hour"] else 0)
    if parts["named"] and data_type != TIMESTAMPTZ:
        raise ValueError(text)
    if data_type == TIMESTAMPTZ and (parts["named"] or not (parts["zone"] or "").strip()):
        nanoseconds = instant(nanoseconds // 1000, checked_zone(parts["named"])) * 1000
    elif data_type in (TIMESTAMPTZ, TIMESTAMP_NS):
        # Only these two heed an offset; DuckDB drops it for the other types.
        nanoseconds -= _offset(parts["zone"])
    limit = infinity_of(data_type)
    if abs(nanoseconds) >= limit * (1 if data_type == TIMESTAMP_NS else 1000):
        raise ValueError(text)
    if data_type == TIMESTAMP_NS:
        return nanoseconds
    microseconds = nanoseconds // 1000
    unit = 1_000_000 if data_type == TIMESTAMP_S else 1000 if data_type == TIMESTAMP_MS else 1
    half_away = (abs(microseconds) + unit // 2) // unit * unit
    if half_away >= limit:
        raise ValueError(text)
    return half_away if microseconds >= 0 else -half_away


def _read_blob(text: str) -> bytes:
    out, position = bytearray(), 0
    for part in _BLOB_PART.finditer(text):
        if part.start() != position:
            raise ValueError(text)
        out += bytes.fromhex(part[1]) if part[1] else part[2].encode("ascii")
        position = part.end()
    if position != len(text):
        raise ValueError(text)
    return bytes(out)
