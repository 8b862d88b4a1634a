"""Decimals as floating-point numbers, in the steps in which DuckDB casts them, which are not always the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.format.types.data_types import FLOAT32, DataType

_LONG_DIGITS = 18
"""Digits that an int64 holds in any case."""
_WORD = 2**64


def decimals_as_floats(array: Any, scale: int, wanted: DataType) -> Any:
    """Decimals as values of ``wanted``, float32 or float64: the whole part and the fraction are converted by themselves and added.

    >>> from decimal import Decimal
    >>> decimals_as_floats(pa.array([Decimal("-0.1000000050"), None]), 10, FLOAT32).to_pylist()
    [-0.10000000894069672, None]
    """
    kind: Any = np.float32 if wanted == FLOAT32 else np.float64
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
    """An integer of 128 bits, by its two words as float64."""
    upper, lower = divmod(number, _WORD)
    return kind(-float(_WORD - 1 - lower) - 1.0 if upper == -1 else float(upper) * float(_WORD) + float(lower))


def _exact_up_to(kind: Any) -> int:
    return 2**24 if kind is np.float32 else 2**53


__all__ = ["decimals_as_floats"]
