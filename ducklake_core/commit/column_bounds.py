"""Merging the statistics of new files into those of a whole table (specification: ducklake_table_column_stats)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.geometry_statistics import GeometryStatistics, merged_geometry_statistics, read_geometry_statistics
from ducklake_core.format.files.statistics import COMPARED_AS_TEXT, shortened_maximum, shortened_minimum
from ducklake_core.format.files.variant_statistics import merged_field_statistics, read_field_statistics, to_json
from ducklake_core.format.state import TableColumnStatistics
from ducklake_core.format.types.data_types import GEOMETRY, INT128, UINT128, VARIANT, DataType, PrimitiveType
from ducklake_core.format.values.leaf_values import from_text, order_key

_NO_BOUNDS_TYPES = (INT128, UINT128)


class _Bound(NamedTuple):
    """A bound, and whether it is a value of the column: None when that is unknown, or there is no bound."""

    text: str | None
    is_exact: bool | None


_NO_BOUND = _Bound(None, None)


def merge_column(
    old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics], data_type: DataType, table_id: int, column_id: int
) -> TableColumnStatistics | None:
    """The statistics row of a column after a batch of files, None when it must go.

    A row without bounds says "only NULLs so far" to DuckDB, whose next insert then starts bounds anew from its own
    rows and loses the older ones in filters.  So a row whose true bounds are unknown is removed: a missing row is never
    made again and counts as unknown.  The boxes of geometries are bounds too; only for variants, whose fields are in ``extra_stats``,
    does NULL mean unknown to DuckDB, which never fills it again.
    """
    has_values = any(column.value_count != 0 for column in batch)
    contains_null = (old is not None and old.contains_null is not False) or any(column.null_count != 0 for column in batch)
    contains_nan = _merge_nan(old, batch)
    low = _Bound(old.min_value, old.min_is_exact) if old is not None else _NO_BOUND
    high = _Bound(old.max_value, old.max_is_exact) if old is not None else _NO_BOUND
    extra_stats = old.extra_stats if old is not None else None
    if data_type == GEOMETRY:
        extra_stats = _boxes(old, batch)
        if extra_stats is None:
            return None
    elif data_type == VARIANT:
        extra_stats = _fields(old, batch)
        if has_values:
            # DuckDB keeps the least and greatest text of inlined variants there, which nobody can compare with.
            low = high = _NO_BOUND
    elif has_values:
        bounds = _bounds(old, batch, data_type)
        if bounds is None and not (data_type in _NO_BOUNDS_TYPES or contains_nan):
            return None
        low, high = bounds or (_NO_BOUND, _NO_BOUND)
    return TableColumnStatistics(
        table_id=table_id,
        column_id=column_id,
        contains_null=contains_null,
        contains_nan=contains_nan,
        min_value=low.text,
        max_value=high.text,
        extra_stats=extra_stats,
        min_is_exact=low.is_exact,
        max_is_exact=high.is_exact,
    )


def _boxes(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> str | None:
    """Box and types of the geometries of old rows and new ones; None when those of some are unknown."""
    texts = [column.extra_stats for column in batch if column.value_count != 0]
    if old is not None:
        texts.append(old.extra_stats)
    found = [read_geometry_statistics(text) for text in texts]
    known = [box for box in found if box is not None]
    if len(known) < len(found):
        return None
    merged = merged_geometry_statistics([GeometryStatistics(), *known])
    return old.extra_stats if old is not None and read_geometry_statistics(old.extra_stats) == merged else merged.to_json()


def _fields(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> str | None:
    """What is known of the fields of variants of old rows and new ones; None when that is nothing."""
    texts = [column.extra_stats for column in batch]
    if old is not None:
        if old.extra_stats is None or not texts:
            return old.extra_stats
        texts.insert(0, old.extra_stats)
    return to_json(merged_field_statistics([read_field_statistics(text) for text in texts]))


def _merge_nan(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> bool | None:
    """NaN in the old rows or the new: None when either side does not know, as in DuckDB."""
    known = [column.contains_nan for column in batch]
    if old is not None:
        known.append(old.contains_nan)
    return None if not known or None in known else any(known)


def _bounds(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics], data_type: DataType) -> tuple[_Bound, _Bound] | None:
    lows: list[_Bound] = []
    highs: list[_Bound] = []
    if old is not None:
        if old.min_value is None or old.max_value is None:
            return None
        lows.append(_Bound(old.min_value, old.min_is_exact))
        highs.append(_Bound(old.max_value, old.max_is_exact))
    for column in batch:
        if column.value_count == 0:
            continue
        least = column.min_value if column.min_value is not None else column.exact_min
        greatest = column.max_value if column.max_value is not None else column.exact_max
        if least is None or greatest is None:
            return None
        # A bound in full length may still be cut: before a NUL.
        lows.append(_Bound(least, column.exact_min is None and column.min_is_exact is not False))
        highs.append(_Bound(greatest, column.exact_max is None and column.max_is_exact is not False))
    try:
        low = min(lows, key=lambda bound: _order(bound.text, data_type))
        high = max(highs, key=lambda bound: _order(bound.text, data_type))
    except (SchemaError, UnsupportedFeatureError):
        return None
    return _shortened(low, high, data_type)


def _shortened(low: _Bound, high: _Bound, data_type: DataType) -> tuple[_Bound, _Bound] | None:
    """Cut long bounds, also those that DuckDB or an earlier version stored in full length. Return None if no short string is greater."""
    assert low.text is not None
    assert high.text is not None
    least, greatest = shortened_minimum(low.text, data_type), shortened_maximum(high.text, data_type)
    if greatest is None:
        return None
    return (
        low if least == low.text else _Bound(least, False),
        high if greatest == high.text else _Bound(greatest, False),
    )


def _order(text: str | None, data_type: DataType) -> Any:
    """Get the key that bounds are compared by: values for numbers, times and booleans, else the text itself, byte by byte."""
    if isinstance(data_type, PrimitiveType) and data_type.name in COMPARED_AS_TEXT:
        return text
    return order_key(from_text(text or "", data_type))
