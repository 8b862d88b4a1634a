"""Bounds of a column's values in a set of rows, in Python forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.types.data_types import FLOATS, INTERVAL, JSON, TIMETZ, VARIANT, Field
from ducklake_core.format.values.leaf_values import from_text

# Bounds of these say nothing of the order of values; see format/expressions/pruning.py.
_WITHOUT_BOUNDS = (TIMETZ, INTERVAL, VARIANT, JSON, *FLOATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """Bounds of one column in a set of rows: every value that is not NULL lies between the bounds, both included.

    Attributes:
        low: Lower bound in the column's Python form (format/values/leaf_values.py); None for unbounded. Likewise ``high``.
        has_values: False when all rows are NULL in this column.
    """

    low: object = None
    high: object = None
    has_values: bool = True


def range_of(column: Field, found: Mapping[str, ColumnStatistics | None], record_count: int, *, with_floats: bool = False) -> ValueRange:
    """Combine what several sources say about a column of a file, for instance its partition values and its statistics.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> column = Field(id=1, name="i", type=INT32)
    >>> known = ColumnStatistics(column_id=1, column_size_bytes=0, value_count=2, null_count=0, min_value="3", max_value="9")
    >>> range_of(column, {"statistics": known, "partition": None}, 2)
    ValueRange(low=3, high=9, has_values=True)

    Args:
        found: What each source knows, None for nothing.
        record_count: Rows of the file.
        with_floats: Whether columns of floats have bounds: those of sources that say they have no NaN.
    """
    low: Any = None
    high: Any = None
    for one in found.values():
        if one is None or not column.is_leaf or (column.type in _WITHOUT_BOUNDS and column.type not in FLOATS):
            continue
        if one.value_count == 0 and one.null_count == record_count > 0:
            return ValueRange(has_values=False)
        if column.type in FLOATS and not (with_floats and one.contains_nan is False):
            continue
        least, greatest = _value(one.min_value, column), _value(one.max_value, column)
        if least is not None and greatest is not None and least > greatest:
            continue
        low = least if low is None or (least is not None and least > low) else low
        high = greatest if high is None or (greatest is not None and greatest < high) else high
    if low is not None and high is not None and low > high:
        return ValueRange()
    return ValueRange(low=low, high=high)


def _value(text: str | None, column: Field) -> Any:
    if text is None:
        return None
    try:
        return from_text(text, column.type)
    except (DuckLakeError, ValueError, ArithmeticError):
        return None
