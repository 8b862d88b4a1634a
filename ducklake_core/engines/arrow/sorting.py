"""Rows in a table's sort order, as DuckDB sorts them: NaN above all numbers, texts by their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to


def sorted_rows(rows: pa.RecordBatch, orders: Sequence[SortOrder], schema: Schema, table: str) -> pa.RecordBatch:
    """The rows in order; equal ones stay as they are.

    Args:
        rows: With some of the table's columns, by name. A column that is missing is the same in all rows.
        orders: What to sort by, the most significant first.
        schema: The table's columns.
        table: ``schema.table`` for messages.

    Raises:
        SchemaError: A value does not fit its column.
        UnsupportedFeatureError: A key is no plain column, or a column of a type that Arrow cannot sort.
    """
    keys: dict[str, pa.Array] = {}
    sort_keys: list[tuple[str, str]] = []
    names = {name.casefold(): name for name in rows.schema.names}
    for number, order in enumerate(orders):
        if order.column is None:
            raise _refused(order, table, "which only a SQL engine can evaluate: write a Spark DataFrame")
        given = names.get(order.column.casefold())
        if given is None:
            continue
        column = schema.column(order.column)
        selected = pa.RecordBatch.from_arrays([rows.column(given)], names=[column.name])
        values = cast_to(selected, Schema(columns=(column,)), physical=False).column(0)
        for suffix, array, descending in _parts(values, column, order):
            keys[f"{number}{suffix}"] = array
            sort_keys.append((f"{number}{suffix}", "descending" if descending else "ascending"))
    if not sort_keys:
        return rows
    try:
        places = pc.sort_indices(pa.RecordBatch.from_pydict(keys), sort_keys=sort_keys)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        texts = ", ".join(order.expression for order in orders)
        raise UnsupportedFeatureError(
            f"table {table} is sorted by {texts}, of types that Arrow cannot sort ({error}); write a Spark DataFrame, or set the table's "
            "option sort_on_insert to false to write unsorted files",
            table=table,
        ) from error
    return rows.take(places)


def _parts(values: pa.Array, column: Field, order: SortOrder) -> list[tuple[str, pa.Array, bool]]:
    """The columns that order by one key: where NULL goes, where NaN goes, then the values."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    parts = [("null", pc.is_null(values), order.nulls_first)] if values.null_count else []
    if column.type in FLOATS:
        nan = pc.fill_null(pc.is_nan(values), False)
        if pc.any(nan).as_py():
            parts.append(("nan", nan, order.descending))
    return [*parts, ("value", values, order.descending)]


def _refused(order: SortOrder, table: str, reason: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"cannot write to {table}: {order.refusal.format(reason)}", table=table, expression=order.expression)
