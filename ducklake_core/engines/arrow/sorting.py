"""Rows in a table's sort order, as DuckDB sorts them: NaN above all numbers, texts by their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to


def sorted_rows(rows: pa.RecordBatch, orders: Sequence[SortOrder], schema: Schema, table: str) -> pa.RecordBatch:
    """The rows in order; equal ones stay as they are. Arguments and errors are those of :func:`sorted_places`."""
    places = sorted_places(rows, orders, schema, table)
    return rows if places is None else rows.take(places)


def sorted_places(rows: pa.RecordBatch, orders: Sequence[SortOrder], schema: Schema, table: str) -> pa.Array | None:
    """Where the rows stand that come first, second and so on; None when they stay as they are. Equal ones keep their order.

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
    names = {folded(name): name for name in rows.schema.names}
    for number, order in enumerate(orders):
        if order.column is None:
            raise _refused(order, table, "which only a SQL engine can evaluate: write a Spark DataFrame")
        given = names.get(folded(order.column))
        if given is None:
            continue
        column = schema.column(order.column)
        values = comparable_values(rows.column(given), column)
        for suffix, array, descending in _parts(values, column, order):
            keys[f"{number}{suffix}"] = array
            sort_keys.append((f"{number}{suffix}", "descending" if descending else "ascending"))
    if not sort_keys:
        return None
    try:
        return pc.sort_indices(pa.RecordBatch.from_pydict(keys), sort_keys=sort_keys)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        texts = ", ".join(order.expression for order in orders)
        raise UnsupportedFeatureError(
            f"table {table} is sorted by {texts}, of types that Arrow cannot sort ({error}); write a Spark DataFrame, or set the table's "
            "option sort_on_insert to false to write unsorted files",
            table=table,
        ) from error


def comparable_values(values: pa.Array, column: Field) -> pa.Array:
    """Values of a column in the form in which Arrow compares them.

    Raises:
        SchemaError: A value does not fit the column.
    """
    selected = pa.RecordBatch.from_arrays([values], names=[column.name])
    found = cast_to(selected, Schema(columns=(column,)), physical=False).column(0)
    return found.storage if isinstance(found, pa.ExtensionArray) else found


def is_sortable(column: Field) -> bool:
    """Whether Arrow can sort by a column of this type.

    >>> from ducklake_core.format.types.data_types import INT64, INTERVAL
    >>> is_sortable(Field(id=1, name="a", type=INT64)), is_sortable(Field(id=1, name="a", type=INTERVAL))
    (True, False)
    """
    schema = Schema(columns=(replace(column, nullable=True),))
    rows = pa.RecordBatch.from_arrays([pa.nulls(2, to_arrow_schema(schema, physical=True).field(0).type)], names=[column.name])
    order = SortOrder(expression=column.name, column=column.name, columns=(column.name,))
    try:
        sorted_places(rows, [order], schema, column.name)
    except UnsupportedFeatureError:
        return False
    return True


def _parts(values: pa.Array, column: Field, order: SortOrder) -> list[tuple[str, pa.Array, bool]]:
    """The columns that order by one key: where NULL goes, where NaN goes, then the values."""
    parts = [("null", pc.is_null(values), order.nulls_first)] if values.null_count else []
    if column.type in FLOATS:
        nan = pc.fill_null(pc.is_nan(values), False)
        if pc.any(nan).as_py():
            parts.append(("nan", nan, order.descending))
    return [*parts, ("value", values, order.descending)]


def _refused(order: SortOrder, table: str, reason: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"cannot write to {table}: {order.refusal.format(reason)}", table=table, expression=order.expression)
