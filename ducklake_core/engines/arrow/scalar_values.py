"""Values of scalar expressions with their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.scalar_cast import cast_scalar, text_value
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.comparison import integer_range
from ducklake_core.format.types.arrow_types import to_arrow_type
from ducklake_core.format.types.data_types import BOOLEAN, INTEGERS, VARCHAR, DataType
from ducklake_core.format.types.number_types import common_number


@dataclass(frozen=True, slots=True)
class TypedArray:
    """Values and their type.

    ``text`` is set for a quoted string, which takes the type of what stands beside it, ``constant`` for a whole number as
    written, which does so where it fits, ``is_null`` for NULL without a type.
    """

    array: Any
    type: DataType
    text: str | None = None
    is_null: bool = False
    constant: int | None = None


def nulls(length: int, data_type: DataType = BOOLEAN) -> TypedArray:
    """NULL without a type, kept as ``data_type``."""
    return TypedArray(pa.nulls(length, to_arrow_type(data_type)), data_type, is_null=True)


def as_type(value: TypedArray, wanted: DataType, length: int) -> Any:
    """The values in another type.

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
            # Where no row comes, a text that cannot be read is none's error.
            if length:
                raise
            return pa.nulls(0, to_arrow_type(wanted))
    return cast_scalar(value.array, value.type, wanted)


def repeated(one: Any, length: int) -> Any:
    """An array of one value, as often as there are rows."""
    return pc.take(one, pa.nulls(length, pa.int32()).fill_null(0))


def without(array: Any, rows: Any) -> Any:
    """The values with NULL in the rows for which ``rows`` is true."""
    return pc.take(array, pc.if_else(rows, pa.scalar(None, pa.int64()), pa.array(range(len(array)), pa.int64())))


def unified_type(values: Sequence[TypedArray]) -> DataType | None:
    """The type that several values have in common: that of a quoted string comes from the value before or after it.

    Two quoted strings are VARCHAR for what follows, and so is one beside NULL; a whole number as written beside NULL has its own type.
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
