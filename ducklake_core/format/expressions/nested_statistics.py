"""What the statistics of a file say about conditions on what lies inside of variants and geometries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ducklake_core.format.expressions.comparison import are_comparable
from ducklake_core.format.expressions.monotonic import cast_of, compared
from ducklake_core.format.expressions.predicates import BoxOverlap, ColumnReference, Comparison, Predicate, VariantComparison
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.geometry_statistics import read_geometry_statistics
from ducklake_core.format.files.variant_statistics import field_statistics

_BOX_ERROR = 1e-6
"""DuckDB rounds the sides of boxes to the nearest of six digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldQuestion:
    """A condition on the values of one field as if they were a column, with its statistics."""

    predicate: Predicate
    statistics: Mapping[int, ColumnStatistics]
    record_count: int


def field_question(test: VariantComparison, found: ColumnStatistics | None) -> FieldQuestion | None:
    """What is to be asked of the statistics of a field; None where nothing is known, or they do not decide.

    Args:
        test: The condition.
        found: Statistics of the variant.
    """
    field, right = test.left, test.right
    path = tuple(step if isinstance(step, str) else None for step in field.path)
    known = None if found is None else field_statistics(found.extra_stats, path)
    if known is None or known.entries is None or known.null_count is None:
        return None
    column = ColumnReference(column_id=0, path=("value",), type=known.type)
    if field.cast is not None:
        function = cast_of(column, field.cast, is_try=field.lenient)
        predicate = None if function is None else compared(function, test.operator, right)
    else:
        # A comparison of other types is an error, and not for statistics to hide.
        comparable = are_comparable(known.type, right.type)
        predicate = Comparison(left=column, operator=test.operator, right=right) if comparable else None
    if predicate is None:
        return None
    statistics = ColumnStatistics(
        column_id=0,
        column_size_bytes=0,
        value_count=known.value_count,
        null_count=known.null_count,
        min_value=known.min_value,
        max_value=known.max_value,
        contains_nan=known.contains_nan,
    )
    return FieldQuestion(predicate=predicate, statistics={0: statistics}, record_count=known.entries)


def boxes_may_meet(test: BoxOverlap, found: ColumnStatistics | None) -> bool:
    """Whether the box about all geometries of a file may share a place with that of the condition."""
    if test.box is None:
        return False
    held = None if found is None else read_geometry_statistics(found.extra_stats)
    if held is None:
        return True
    bounds = {axis: (low, high) for axis, low, high in held.bounds}
    low_x, low_y, high_x, high_y = test.box
    sides = ((bounds.get("x"), low_x, high_x), (bounds.get("y"), low_y, high_y))
    return all(side is not None and side[0] - _BOX_ERROR <= high and low <= side[1] + _BOX_ERROR for side, low, high in sides)
