"""Rows as plain values, to be kept in the catalog instead of a file (specification: Data Inlining)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.statistics import COMPARED_AS_TEXT
from ducklake_core.format.types.data_types import INTERVAL, VARIANT, Field, ListType, MapType, PrimitiveType, StructType
from ducklake_core.format.types.schema import ArrowArray, Schema
from ducklake_core.format.values.arrow_cast import cast_leaf
from ducklake_core.format.values.leaf_values import order_key, python_values, to_cast_text

MAX_BYTES = 16 * 2**20
"""Maximum Arrow bytes of rows that go into the catalog at once: every reader of the table reads all of them with the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedRows:
    """Rows of a table whose columns are known.

    Attributes:
        columns: Values by top-level column, in the table's order. Leaves in their Python forms (see format/values/leaf_values.py), lists as
            lists, maps as lists of (key, value) pairs, structs as dicts by field name; None is NULL.
        record_count: How many rows.
        statistics: One entry per leaf, with the strings that DuckDB stores for inlined values.
    """

    columns: tuple[tuple[object, ...], ...]
    record_count: int
    statistics: tuple[ColumnStatistics, ...]

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the values row by row."""
        return zip(*self.columns, strict=True)


def inlined_rows_of(data: pa.Table, schema: Schema) -> InlinedRows:
    """Return the rows of an Arrow table that has the columns of a schema, in logical form."""
    columns = tuple(tuple(column_values(array, column)) for array, column in zip(data.columns, schema, strict=True))
    return inlined_rows(columns, data.num_rows, schema)


def chosen_rows(rows: InlinedRows, places: Sequence[int], schema: Schema) -> InlinedRows:
    """Return some of the rows, which have the columns of a schema.

    Args:
        rows: The rows.
        places: Indexes of the rows to keep, from 0.
        schema: Their columns.
    """
    return inlined_rows(tuple(tuple(values[place] for place in places) for values in rows.columns), len(places), schema)


def inlined_rows(columns: tuple[tuple[object, ...], ...], count: int, schema: Schema) -> InlinedRows:
    """Return ``count`` rows of values by column of a schema, with their statistics.

    Args:
        columns: Values by column, in the Python forms of :class:`InlinedRows`.
        count: Number of rows.
        schema: Their columns.
    """
    statistics = [entry for values, column in zip(columns, schema, strict=True) for entry in _statistics(values, column)]
    return InlinedRows(columns=columns, record_count=count, statistics=tuple(statistics))


def column_values(array: ArrowArray, field: Field) -> list[Any]:
    """Return the values of an Arrow array of a column or nested node, logical form.

    >>> from ducklake_core.format.types.data_types import *
    >>> numbers = ListType(element=Field(name="element", type=INT32))
    >>> column_values(pa.array([[1, None], None, []], pa.list_(pa.int32())), Field(name="a", type=numbers))
    [[1, None], None, []]
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in column_values(chunk, field)]
    match field.type:
        case ListType(element=element):
            return _gathered(array, column_values(_within(array, array.values), element))
        case MapType(key=key, value=value):
            keys, items = column_values(_within(array, array.keys), key), column_values(_within(array, array.items), value)
            return _gathered(array, list(zip(keys, items, strict=True)))
        case StructType(fields=fields):
            children = [column_values(array.field(position), child) for position, child in enumerate(fields)]
            names = [child.name for child in fields]
            present = array.is_valid().to_pylist()
            return [
                dict(zip(names, row, strict=True)) if valid else None
                for row, valid in zip(zip(*children, strict=True), present, strict=True)
            ]
        case PrimitiveType(name="interval"):
            # The way through the physical form rejects nanoseconds, which DuckLake does not keep.
            return python_values(cast_leaf(cast_leaf(array, INTERVAL, physical=True), INTERVAL, physical=False), INTERVAL)
        case leaf:
            return python_values(array, leaf)


def _within(array: Any, values: ArrowArray) -> ArrowArray:
    """Return the children that the lists of a slice have, or that lie between them."""
    offsets = array.offsets
    first = offsets[0].as_py()
    return values.slice(first, offsets[len(array)].as_py() - first)


def _gathered(array: Any, items: list[Any]) -> list[Any]:
    # Offsets count in the whole child array; ``items`` begins at the first offset of this slice.
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    # A NULL list may have a length in Arrow, so validity decides and not the offsets.
    present = array.is_valid().to_pylist()
    return [items[start - first : end - first] if valid else None for start, end, valid in zip(offsets, offsets[1:], present, strict=False)]


def _statistics(values: Sequence[Any], field: Field) -> Iterator[ColumnStatistics]:
    """Yield statistics of the leaves at and below a node.

    A NULL struct makes its fields NULL; a NULL or empty list or map has no elements at all, unlike in files.
    """
    there = [value for value in values if value is not None]
    match field.type:
        case ListType(element=element):
            yield from _statistics([item for value in there for item in value], element)
        case MapType(key=key, value=item_field):
            yield from _statistics([key for value in there for key, _ in value], key)
            yield from _statistics([item for value in there for _, item in value], item_field)
        case StructType(fields=fields):
            for child in fields:
                yield from _statistics([None if value is None else value[child.name] for value in values], child)
        case _:
            low, high = _bounds(there, field)
            yield ColumnStatistics(
                column_id=field.id,
                column_size_bytes=0,
                value_count=len(there),
                null_count=len(values) - len(there),
                min_value=low if low is None or "\0" not in low else None,
                max_value=high if high is None or "\0" not in high else None,
                # PostgreSQL cannot store NUL. U+0001 is the next character, so a string that ends with it is an upper bound.
                exact_min=low.partition("\0")[0] if low is not None and "\0" in low else None,
                exact_max=high.partition("\0")[0] + "\x01" if high is not None and "\0" in high else None,
            )


def _bounds(values: Sequence[Any], leaf: Field) -> tuple[str | None, str | None]:
    """Return the least and the greatest value as strings; NaN is the greatest, and types that DuckDB compares as strings are so here."""
    if not values or leaf.type == VARIANT:
        return None, None
    if isinstance(leaf.type, PrimitiveType) and leaf.type.name in COMPARED_AS_TEXT:
        strings = [to_cast_text(value, leaf.type) for value in values]
        return min(strings), max(strings)
    return to_cast_text(min(values, key=order_key), leaf.type), to_cast_text(max(values, key=order_key), leaf.type)
