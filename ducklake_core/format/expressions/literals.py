"""Read constants of SQL text as typed literals, as DuckDB casts strings."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal, localcontext
from uuid import UUID as Uuid

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.comparison import infinity_of, integer_range, round_to_float32
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
    UNSIGNED_INTEGERS,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
)
from ducklake_core.format.values.temporal import checked_zone, civil_from_days, days_from_civil, instant

_DATE = r"[ \t-\r]*(?P<year>-?\d{1,9})(?P<separator>[-/ \\])(?P<month>\d{1,2})(?P=separator)(?P<day>\d{1,2})(?P<bc>\s\((?i:BC)\))?"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?:(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?)?"
_ZONE = r"(?P<zone>Z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?| (?i:UTC)| (?P<named>[A-Za-z][-+\w/]*)| )?[ \t-\r]*"
_TIME_TEXT = re.compile(rf"\s*{_CLOCK}\s*", re.ASCII)
# Anything may follow the day, as in DuckDB.
_DATE_TEXT = re.compile(rf"{_DATE}(?!\d)", re.ASCII)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?!\d)(?:[ T]?[ \t-\r]*{_CLOCK}{_ZONE})?", re.ASCII)
_SPECIAL = re.compile(r"[ \t-\r]*(?P<sign>-?)(?P<name>infinity|inf|epoch)[ \t-\r]*", re.ASCII | re.IGNORECASE)
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})?:?(\d{2})?", re.ASCII)
_BLOB_PART = re.compile(r"\\x([0-9A-Fa-f]{2})|([\x00-\x5b\x5d-\x7f])")
_TRUTHS = {"true": True, "t": True, "1": True, "yes": True, "y": True, "false": False, "f": False, "0": False, "no": False, "n": False}
_LONGEST_EXACT = 100
_DAY_IN_NANOSECONDS = 86_400 * 10**9

SPACES = " \t\n\v\f\r"
"""The white space that casts ignore around a number or a date; no other space of Unicode."""
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_NUMBER = re.compile(rf"(?P<sign>[+-]?)(?P<digits>{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE](?P<exponent>[+-]?{_DIGITS}))?")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+(?:_[0-9A-Fa-f]+)*")
_BINARY = re.compile(r"0[bB][01]+(?:_[01]+)*")
_NO_NUMBER = re.compile(r"(?P<sign>[+-]{0,1}|\+-)(?P<name>inf(?:inity)?|nan(?:\([A-Za-z0-9_]*\))?)", re.IGNORECASE)
_UUID = re.compile(r"[0-9A-Fa-f-]+|\{[0-9A-Fa-f-]+\}")
_MAX_DIGITS = 400
_EXPONENTS = range(-(2**15), 2**15)


def number_literal(text: str) -> Literal:
    """Return a number as written in SQL, typed as DuckDB types it: integer, decimal, or double with an exponent.

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
    """Return a quoted SQL string read as a value of ``data_type``.

    >>> from ducklake_core.format.types.data_types import TIMESTAMP
    >>> text_literal("2024-01-02", DATE).value, text_literal("2024-01-02 00:00:01.5", TIMESTAMP).value, text_literal("5", INT32).value
    (19724, 1704153601500000, 5)
    >>> text_literal("2024-01-02 02:00:00+02", TIMESTAMPTZ) == text_literal("2024-01-02 00:00:00Z", TIMESTAMPTZ)
    True

    A ``timestamptz`` that names no zone is meant in the effective one (:func:`~ducklake_core.format.values.temporal.session_zone`).

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
    """Return an infinity or the epoch by its name."""
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


def read_integer(text: str, data_type: DataType) -> int:
    """Return an integer; a fraction is rounded half away from zero, but cut off where the text has a negative exponent.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> [read_integer(text, INT32) for text in (" 7", "-2.5", "1_000", "0x1F", "1e3", "14.9e-1")]
    [7, -3, 1000, 31, 1000, 1]

    Raises:
        ValueError: The text is not an integer of that type.
    """
    low, high = integer_range(data_type)
    if data_type not in (INT128, UINT128) and (_HEXADECIMAL.fullmatch(text) or _BINARY.fullmatch(text)):
        value = int(text, 0)
    else:
        value = _integer(text, is_unsigned=data_type in UNSIGNED_INTEGERS)
    if not low <= value <= high:
        raise ValueError(text)
    return value


def _integer(text: str, *, is_unsigned: bool) -> int:
    found = _matched(text)
    plain = found["digits"].isdigit() and found["exponent"] is None
    if is_unsigned and found["sign"] == "-" and not plain:
        raise ValueError(text)
    if (found["exponent"] or "").startswith("-"):
        # DuckDB cuts the digits behind the point off before it applies a negative exponent.
        text = f"{found['sign']}{found['digits'].partition('.')[0] or '0'}e{found['exponent']}"
        found = _matched(text)
    return int(_exact(found, text).to_integral_value(rounding=ROUND_HALF_UP))


def read_decimal(text: str, data_type: DecimalType) -> Decimal:
    """Return a decimal, rounded half away from zero to the type's scale.

    Raises:
        ValueError: The text is not a number, or has more digits than the type.
    """
    found = _matched(text)
    whole = found["digits"].partition(".")[0].replace("_", "").lstrip("0")
    if found["exponent"] is not None and len(whole) > data_type.precision - data_type.scale:
        # What is before the point has to fit, whatever the exponent makes of it.
        raise ValueError(text)
    return to_scale(_exact(found, text), data_type)


def read_float(text: str, data_type: DataType) -> float:
    """Return a floating-point number; one that is too large is infinite.

    >>> from ducklake_core.format.types.data_types import FLOAT64
    >>> read_float("-Infinity", FLOAT64), read_float(" 1e400 ", FLOAT64), read_float("+-7", FLOAT64)
    (-inf, inf, -7.0)

    Raises:
        ValueError: The text is not a number.
    """
    stripped = text.strip(SPACES)
    special = _NO_NUMBER.fullmatch(stripped)
    if special:
        value = float(special["sign"][-1:] + special["name"][:3])
    else:
        _matched(stripped.removeprefix("+") if stripped.startswith("+-") else stripped)
        value = float(stripped.removeprefix("+").replace("_", ""))
    return round_to_float32(value) if data_type == FLOAT32 else value


def read_uuid(text: str) -> str:
    """Return a UUID: 32 hexadecimal digits, hyphens anywhere, perhaps in braces.

    Raises:
        ValueError: The text is not a uuid.
    """
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return str(Uuid(text.strip("{}").replace("-", "")))


def to_scale(value: Decimal, data_type: DecimalType) -> Decimal:
    """Return a number rounded half away from zero to a decimal type's scale.

    >>> to_scale(Decimal("1.235"), DecimalType(precision=10, scale=2))
    Decimal('1.24')

    Raises:
        ValueError: It has more digits than the type holds.
    """
    if value.adjusted() > data_type.precision:
        raise ValueError(f"{value} does not fit {data_type}")
    with localcontext(prec=_MAX_DIGITS):
        rounded = value.quantize(Decimal(1).scaleb(-data_type.scale), rounding=ROUND_HALF_UP)
        if abs(rounded) >= Decimal(10) ** (data_type.precision - data_type.scale):
            raise ValueError(f"{value} does not fit {data_type}")
        return rounded


def _matched(text: str) -> re.Match[str]:
    found = _NUMBER.fullmatch(text.strip(SPACES))
    if found is None:
        raise ValueError(text)
    return found


def _exact(found: re.Match[str], text: str) -> Decimal:
    exponent = (found["exponent"] or "0").replace("_", "")
    if len(exponent.lstrip("+-0")) > _MAX_DIGITS or int(exponent) not in _EXPONENTS or len(found["digits"]) > _MAX_DIGITS:
        raise ValueError(text)
    if not found["digits"].strip("0._"):
        return Decimal(0)
    # Far beyond every type and every scale, so that nothing is lost by going no further.
    exponent = str(max(-2 * _MAX_DIGITS, min(int(exponent), 2 * _MAX_DIGITS)))
    with localcontext(prec=3 * _MAX_DIGITS):
        return Decimal(f"{found['sign']}{found['digits'].replace('_', '')}e{exponent}")
