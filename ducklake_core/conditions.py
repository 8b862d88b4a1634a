"""Conditions built from values instead of SQL text, wherever a ``where`` is taken: nothing has to be quoted or parsed.

from ducklake_core import col

table.scan(where=(col("delay") > 5) & col("carrier").isin(["UA", "B6"]) & ~col("dest").is_null())

The classes below are what such conditions are made of; programs may build and take apart the values themselves:

hours = InIntervals(column="at", intervals=((datetime(2026, 1, 1, 0), datetime(2026, 1, 1, 1)), ...))
table.scan(where=AllOf(conditions=(hours, OneOf(column="carrier", values=("UA", "B6")), "delay > 0")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.format.expressions.conditions import (
    AllOf,
    AnyOf,
    Column,
    Comparison,
    Condition,
    InIntervals,
    IsNull,
    Not,
    OneOf,
    OtherColumn,
    StartsWith,
    col,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AllOf",
    "AnyOf",
    "Column",
    "Comparison",
    "Condition",
    "InIntervals",
    "IsNull",
    "Not",
    "OneOf",
    "OtherColumn",
    "StartsWith",
    "col",
    "matching_rows",
]


def matching_rows(data: pa.Table, condition: Condition | Column | str) -> pa.Table:
    """Return the rows of an Arrow table for which a condition is true.

    Args:
        data: Arrow table.
        condition: Condition built with :func:`ducklake_core.col`, or SQL text.

    Raises:
        NotFoundError: The table lacks a column of the condition.
        UsageError: A value cannot be compared with its column, or the SQL text is not a condition.
        UnsupportedFeatureError: Arrow cannot evaluate the condition.
    """
    from ducklake_core.engines.arrow.evaluate import evaluate
    from ducklake_core.format.expressions.conditions import bind
    from ducklake_core.format.expressions.predicates import as_filter
    from ducklake_core.format.types.schema import from_arrow_schema, with_ids

    predicate = as_filter(bind(condition, with_ids(from_arrow_schema(data.schema))))
    matching: pa.Table = data.filter(evaluate(predicate, data))
    return matching
