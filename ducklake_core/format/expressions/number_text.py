"""Texts of numbers and UUIDs read as DuckDB's casts from text read them: only ASCII counts, and every letter does."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, localcontext
from uuid import UUID as Uuid

from ducklake_core.format.expressions.comparison import integer_range, round_to_float32
from ducklake_core.format.types.data_types import FLOAT32, INT128, UINT128, UNSIGNED_INTEGERS, DataType, DecimalType

SPACES = " \t\n\v\f\r"
"""The white space that casts ignore around a number or a date; no other space of Unicode."""
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_NUMBER = re.compile(rf"(?P<sign>[+-]?)(?P<digits>{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE](?P<exponent>[+-]?{_DIGITS}))?")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+(?:_[0-9A-Fa-f]+)*")
_BINARY = re.compile(r"0[bB][01]+(?:_[01]+)*")
_NO_NUMBER = re.compile(r"(?P<sign>[+-]{0,1}|\+-)(?P<name>inf(?:inity)?|nan(?:\([A-Za-z0-9_]*\))?)", re.IGNORECASE)
_UUID = re.compile(r"[0-9A-Fa-f-]+|\{[0-9A-Fa-f-]+\}")
_MOST_DIGITS = 400
_EXPONENTS = range(-(2**15), 2**15)


def read_integer(text: str, data_type: DataType) -> int:
    """An integer; a fraction is rounded half away from zero, but cut off beside an exponent's digits.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> [read_integer(text, INT32) for text in (" 7", "-2.5", "1_000", "0x1F", "1e3", "14.9e-1")]
    [7, -3, 1000, 31, 1000, 1]

    Raises:
        ValueError: The text is no integer of that type.
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
        # Digits behind the point are cut off before the exponent is looked at.
        text = f"{found['sign']}{found['digits'].partition('.')[0] or '0'}e{found['exponent']}"
        found = _matched(text)
    return int(_exact(found, text).to_integral_value(rounding=ROUND_HALF_UP))


def read_decimal(text: str, data_type: DecimalType) -> Decimal:
    """A decimal, rounded half away from zero to the type's scale.

    Raises:
        ValueError: The text is no number, or has more digits than the type.
    """
    found = _matched(text)
    whole = found["digits"].partition(".")[0].replace("_", "").lstrip("0")
    if found["exponent"] is not None and len(whole) > data_type.precision - data_type.scale:
        # What is before the point has to fit, whatever the exponent makes of it.
        raise ValueError(text)
    return to_scale(_exact(found, text), data_type)


def read_float(text: str, data_type: DataType) -> float:
    """A floating-point number; one that is too large is infinite.

    >>> from ducklake_core.format.types.data_types import FLOAT64
    >>> read_float("-Infinity", FLOAT64), read_float(" 1e400 ", FLOAT64), read_float("+-7", FLOAT64)
    (-inf, inf, -7.0)

    Raises:
        ValueError: The text is no number.
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
    """A UUID: 32 hexadecimal digits, hyphens anywhere, perhaps in braces.

    Raises:
        ValueError: The text is not a uuid.
    """
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return str(Uuid(text.strip("{}").replace("-", "")))


def to_scale(value: Decimal, data_type: DecimalType) -> Decimal:
    """A number rounded half away from zero to a decimal type's scale.

    >>> to_scale(Decimal("1.235"), DecimalType(precision=10, scale=2))
    Decimal('1.24')

    Raises:
        ValueError: It has more digits than the type holds.
    """
    if value.adjusted() > data_type.precision:
        raise ValueError(f"{value} does not fit {data_type}")
    with localcontext(prec=_MOST_DIGITS):
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
    if len(exponent.lstrip("+-0")) > _MOST_DIGITS or int(exponent) not in _EXPONENTS or len(found["digits"]) > _MOST_DIGITS:
        raise ValueError(text)
    if not found["digits"].strip("0._"):
        return Decimal(0)
    # Far beyond every type and every scale, so that nothing is lost by going no further.
    exponent = str(max(-2 * _MOST_DIGITS, min(int(exponent), 2 * _MOST_DIGITS)))
    with localcontext(prec=3 * _MOST_DIGITS):
        return Decimal(f"{found['sign']}{found['digits'].replace('_', '')}e{exponent}")
