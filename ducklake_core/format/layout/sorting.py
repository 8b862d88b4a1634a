"""Parse the stored sort orders of tables (specification: ducklake_sort_info)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema, duckdb_type
from ducklake_core.format.types.text import counted

if TYPE_CHECKING:
    from sqlglot import exp

    from ducklake_core.format.types.data_types import Field

WRITE_UNSORTED = "set the table's option sort_on_insert to false to write unsorted files"


@dataclass(frozen=True, slots=True, kw_only=True)
class SortKey:
    """One sort expression of a table, as stored."""

    expression: str
    direction: str
    null_order: str
    dialect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SortOrder:
    """One sort expression that writers follow.

    Attributes:
        expression: SQL in DuckDB's dialect.
        column: Name of the column; None for other expressions.
        columns: Names of all columns in the expression.
        descending: Whether the largest value comes first.
        nulls_first: Whether NULL comes before all values.
    """

    expression: str
    column: str | None
    columns: tuple[str, ...]
    descending: bool = False
    nulls_first: bool = False

    def in_columns(self, now: Mapping[str, Field], then: Mapping[str, Field]) -> SortOrder:
        """Return the order for columns with former names and types. Expressions are computed in the present types.

        >>> from ducklake_core.format.types.data_types import INT32, INT64, Field
        >>> order = SortOrder(expression="a * 2", column=None, columns=("a",))
        >>> order.in_columns({"a": Field(name="a", type=INT64)}, {"a": Field(name="b c", type=INT32)}).expression
        'CAST("b c" AS BIGINT) * 2'

        Args:
            now: The present column by its name in :attr:`columns`.
            then: The former column by the same name.
        """
        if all(then[name].name == name and then[name].type == now[name].type for name in self.columns):
            return self
        if self.column is not None:
            return replace(self, column=then[self.column].name, columns=(then[self.column].name,))
        from sqlglot import exp

        former: dict[str, exp.Expr] = {}
        for name in self.columns:
            column = exp.column(then[name].name, quoted=True)
            is_same = then[name].type == now[name].type
            former[folded(name)] = column if is_same else exp.cast(column, duckdb_type(now[name].type), dialect="duckdb")
        tree = parse_expression(self.expression).transform(lambda node: former[folded(node.name)] if isinstance(node, exp.Column) else node)
        return replace(self, expression=tree.sql(dialect="duckdb"), columns=tuple(sorted(then[name].name for name in self.columns)))


def sort_orders(keys: Sequence[SortKey], schema: Schema, table: str) -> tuple[SortOrder, ...]:
    """Return the keys bound to the table's columns.

    >>> from ducklake_core.format.types.data_types import INT64, Field
    >>> schema = Schema(columns=(Field(id=1, name="When", type=INT64),))
    >>> key = SortKey(expression='"when"', direction="DESC", null_order="NULLS_FIRST", dialect="duckdb")
    >>> sort_orders([key], schema, "main.t")
    (SortOrder(expression='"when"', column='When', columns=('When',), descending=True, nulls_first=True),)

    Args:
        keys: Sort keys as stored in the catalog.
        schema: The table's columns.
        table: ``schema.table`` for messages.

    Raises:
        UnsupportedFeatureError: A key has another dialect than DuckDB's, cannot be parsed, or has an unknown column, direction or
            position of NULL.
    """
    return tuple(_sort_order(key, schema, table) for key in keys)


def parse_expression(text: str) -> exp.Expr:
    """Return a sort expression as a tree.

    Raises:
        sqlglot.errors.SqlglotError: It cannot be read.
    """
    # Every writing task imports this module, and most tables are not sorted: importing sqlglot takes as long as everything else together.
    import sqlglot

    return sqlglot.parse_one(text, read="duckdb")


def _sort_order(key: SortKey, schema: Schema, table: str) -> SortOrder:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    def rejected(reason: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"table {table} is sorted by {key.expression!r}, {reason}; {WRITE_UNSORTED}, or change its sort order with DuckDB",
            table=table,
            expression=key.expression,
        )

    # Checked before rows are written, because other programs may have stored any expression.
    if key.dialect.lower() != "duckdb":
        raise rejected(f"an expression of the dialect {key.dialect!r}, but only 'duckdb' is supported")
    if key.direction not in ("ASC", "DESC") or key.null_order not in ("NULLS_FIRST", "NULLS_LAST"):
        raise rejected(f"in the unknown order {key.direction} {key.null_order}")
    try:
        tree = parse_expression(key.expression)
    except (SqlglotError, RecursionError) as error:
        raise rejected("which cannot be read") from error
    positions = [int(node.name) for node in tree.find_all(exp.PositionalColumn)]
    if any(not 1 <= position <= len(schema) for position in positions):
        raise rejected(f"but has only {counted(len(schema), 'column')}")
    if positions:
        tree = tree.transform(
            lambda node: exp.column(schema.names[int(node.name) - 1], quoted=True) if isinstance(node, exp.PositionalColumn) else node
        )
    named = {column.name for column in tree.find_all(exp.Column)}
    found = {name: schema.find(name) for name in named}
    unknown = sorted(name for name, column in found.items() if column is None)
    if unknown:
        raise rejected(f"but has no column {unknown[0]!r}")
    columns = tuple(sorted(column.name for column in found.values() if column is not None))
    return SortOrder(
        expression=tree.sql(dialect="duckdb") if positions else key.expression,
        column=columns[0] if isinstance(tree, exp.Column) else None,
        columns=columns,
        descending=key.direction == "DESC",
        nulls_first=key.null_order == "NULLS_FIRST",
    )
