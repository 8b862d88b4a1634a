"""Types of numbers put beside each other: in one column of alternatives, and in arithmetic."""

from __future__ import annotations

from ducklake_core.format.types.data_types import (
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    SIGNED_INTEGERS,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    UINT128,
    DataType,
    DecimalType,
)

DIGITS: dict[DataType, int] = {INT8: 3, INT16: 5, INT32: 10, INT64: 19, INT128: 38, UINT8: 3, UINT16: 5, UINT32: 10, UINT64: 20}
"""Digits of the decimal that an integer becomes beside a decimal."""
_UNSIGNED = (UINT8, UINT16, UINT32, UINT64, UINT128)
_LARGER: dict[DataType, DataType] = {UINT8: INT16, UINT16: INT32, UINT32: INT64, UINT64: INT128}
_SMALL_DECIMAL = 18
"""Digits of the decimals that DuckDB keeps in 64 bits; their results stay there, or are an error."""
_MOST_DIGITS = 38


def as_decimal(data_type: DataType) -> DecimalType | None:
    """The decimal that a number becomes beside a decimal, None where it becomes none."""
    if isinstance(data_type, DecimalType):
        return data_type
    digits = DIGITS.get(data_type)
    return None if digits is None else DecimalType(precision=digits, scale=0)


def common_number(first: DataType, second: DataType) -> DataType | None:
    """The type of alternatives of two types of numbers: digits before the point go before digits behind it.

    >>> from ducklake_core.format.types.data_types import UINT8, INT8
    >>> str(common_number(DecimalType(precision=38, scale=0), DecimalType(precision=18, scale=3))), str(common_number(UINT8, INT8))
    ('decimal(38,0)', 'int16')
    """
    kinds = (first, second)
    if not all(kind in DIGITS or kind == UINT128 or kind in FLOATS or isinstance(kind, DecimalType) for kind in kinds):
        return None
    if first == second:
        return first
    if FLOAT64 in kinds:
        return FLOAT64
    if FLOAT32 in kinds:
        return FLOAT32
    if any(isinstance(kind, DecimalType) for kind in kinds):
        left, right = as_decimal(first), as_decimal(second)
        if left is None or right is None:
            return None
        whole, scale = max(left.precision - left.scale, right.precision - right.scale), max(left.scale, right.scale)
        if isinstance(first, DecimalType) and isinstance(second, DecimalType):
            # Beside an integer the scale stays, and values have to fit.
            scale = min(scale, _MOST_DIGITS - whole)
        return DecimalType(precision=min(_MOST_DIGITS, whole + scale), scale=scale)
    return common_integer(first, second)


def common_integer(first: DataType, second: DataType) -> DataType | None:
    """Signed types go by size; beside an unsigned one the next type that holds both."""
    if first in _UNSIGNED and second in _UNSIGNED:
        return max(first, second, key=_UNSIGNED.index)
    sides = [_LARGER.get(side, side) for side in (first, second)]
    return None if UINT128 in sides else max(sides, key=SIGNED_INTEGERS.index)


def decimal_result(operator: str, left: DecimalType, right: DecimalType) -> DecimalType:
    """The type of ``+``, ``-`` or ``*`` of decimals: sums have the larger scale and a digit more, products the digits of both.

    >>> str(decimal_result("+", DecimalType(precision=10, scale=0), DecimalType(precision=4, scale=1)))
    'decimal(12,1)'
    """
    if operator == "*":
        precision, scale = left.precision + right.precision, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    widest = max(left.precision, right.precision)
    if precision > _SMALL_DECIMAL >= widest:
        precision = _SMALL_DECIMAL
    return DecimalType(precision=min(_MOST_DIGITS, precision), scale=scale)
