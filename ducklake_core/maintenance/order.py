"""The sort order of a table as far as compaction follows it."""

from __future__ import annotations

from dataclasses import replace

from ducklake_core.engines.arrow.sorting import is_sortable
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.layout.sorting import SortOrder, sort_orders
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema


def followed_order(table: TableState, schema: Schema) -> tuple[SortOrder, ...]:
    """The table's sort order in columns that it has or had, as far as files in Arrow's hands can follow it.

    It ends before the first key that is no plain column: a sort order makes reading faster, and promises nothing.
    """
    names = {column.id: column.name for column in schema}
    found: list[SortOrder] = []
    for order in _orders(table):
        if order.column is None:
            break
        then = names.get(table.schema.column(order.column).id)
        # A column that the rows lack is the same in all of them.
        if then is not None:
            found.append(replace(order, column=then, columns=(then,)))
    return tuple(found)


def can_follow_order(table: TableState) -> bool:
    """Whether every key of the table's sort order is a plain column of a type that Arrow can sort by."""
    orders = _orders(table)
    columns = [table.schema.column(order.column) for order in orders if order.column is not None]
    return len(orders) == len(columns) == len(table.sort_keys) and all(is_sortable(column) for column in columns)


def _orders(table: TableState) -> tuple[SortOrder, ...]:
    try:
        return sort_orders(table.sort_keys, table.schema, join_name(table.schema_name, table.name))
    except UnsupportedFeatureError:
        return ()
