"""Sort keys as users write them and as the catalog stores them, and the columns that they read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import parse_failure, shown, similar_or_all

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def parse_sort_key(text: str, schema: Schema) -> SortKey:
    """Parse the text after ORDER BY into the form that DuckDB stores.

    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> schema = Schema(columns=(Field(id=1, name="a", type=INT32), Field(id=2, name="b c", type=INT32)))
    >>> key = parse_sort_key('a*2+1 DESC NULLS FIRST', schema)
    >>> key.expression, key.direction, key.null_order, parse_sort_key('"b c"', schema).expression
    ('((a * 2) + 1)', 'DESC', 'NULLS_FIRST', '"b c"')

    Raises:
        UsageError: The text is not exactly one sort expression.
        NotFoundError: It names a column that the table does not have.
    """
    try:
        # Parsed where it will stand, so that one grammar reads the direction and the position of NULLs.
        parsed = sqlglot.parse(f"SELECT 1 ORDER BY {text}", read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        raise UsageError(f"cannot read the sort key {shown(text)}: {parse_failure(problem)}", sort_key=text) from problem
    query = parsed[0] if len(parsed) == 1 else None
    order = query.args.get("order") if isinstance(query, exp.Select) else None
    # A text such as "a LIMIT 1" would add other clauses to the query.
    extra = set() if query is None else {name for name, value in query.args.items() if value} - {"expressions", "order", "kind"}
    # DuckDB rejects ORDER BY ALL as a sort order.
    if order is None or len(order.expressions) != 1 or extra or isinstance(order.expressions[0].this, exp.Var):
        raise UsageError(f"{text!r} is not one sort key. Pass a list with one string for each key", sort_key=text)
    ordered = order.expressions[0]
    if ordered.find(exp.Query, exp.Star, exp.Columns, exp.AggFunc, exp.Window, exp.Explode, exp.Unnest, exp.Placeholder, exp.Parameter):
        raise UsageError(f"the sort key {text!r} may only compute with the columns of its row", sort_key=text)
    if ordered.find(exp.Lambda):
        raise UsageError(f"the sort key {text!r} has a lambda, which DuckDB does not support in sort keys", sort_key=text)
    if any(column.args.get("table") is not None for column in ordered.find_all(exp.Column)) or ordered.find(exp.Dot):
        raise UnsupportedFeatureError(
            f"the sort key {text!r} has a dot, such as before a field of a struct, which DuckDB does not support. Sort by a column",
            sort_key=text,
        )
    for name in _columns(ordered):
        if schema.find(name) is None:
            listed = similar_or_all(name, schema.names, ". The columns are")
            raise NotFoundError(f"the sort key {text!r} names a column {name!r} that the table does not have{listed}", column=name)
    return SortKey(
        expression=_printed(ordered.this),
        direction="DESC" if ordered.args.get("desc") else "ASC",
        null_order="NULLS_FIRST" if ordered.args.get("nulls_first") else "NULLS_LAST",
        dialect="duckdb",
    )


def is_column(key: SortKey) -> bool:
    """Return whether a sort key is only the name of a column."""
    return isinstance(_parsed(key), exp.Column)


def sort_columns(key: SortKey) -> frozenset[str]:
    """Return the names of the columns that a key reads, in lower case.

    Raises:
        UnsupportedFeatureError: Its expression cannot be read.
    """
    return frozenset(folded(name) for name in _columns(_parsed(key)))


def renamed_in(key: SortKey, old: str, new: str) -> SortKey:
    """Return the key after a column got another name.

    Args:
        key: The key.
        old: Former name of the column.
        new: New name of the column.

    Raises:
        UnsupportedFeatureError: Its expression cannot be read.
    """
    if folded(old) not in sort_columns(key):
        return key

    def other(node: Any) -> Any:
        if isinstance(node, exp.Column) and folded(node.parts[0].name) == folded(old):
            copy = node.copy()
            copy.parts[0].replace(exp.to_identifier(new, quoted=True))
            return copy
        return node

    return replace(key, expression=_printed(_parsed(key).transform(other)))


def _parsed(key: SortKey) -> Any:
    try:
        return sqlglot.parse_one(key.expression, read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"the sort key {key.expression!r} cannot be read; change it with DuckDB") from problem


def _columns(expression: Any) -> list[str]:
    return [column.parts[0].name for column in expression.find_all(exp.Column)]


def _printed(expression: Any) -> str:
    """Return an expression with brackets around every operation, and quotes only where a name needs them."""

    # The tuple gives the root a parent, without which sqlglot cannot replace it.
    bare = exp.Tuple(expressions=[expression.copy()])
    for paren in list(bare.find_all(exp.Paren)):
        if isinstance(paren.this, exp.Binary | exp.Column | exp.Literal | exp.Func | exp.Paren):
            paren.replace(paren.this)
    for name in list(bare.find_all(exp.Identifier)):
        name.set("quoted", name.name.lower() in DuckDB.Generator.RESERVED_KEYWORDS or not _PLAIN.fullmatch(name.name))
    for named in list(bare.find_all(exp.Kwarg)):
        named.replace(exp.PropertyEQ(this=exp.to_identifier(named.name), expression=named.expression))
    for operation in list(bare.find_all(exp.Binary)):
        if not isinstance(operation, exp.Dot | exp.PropertyEQ):
            brackets = exp.Paren()
            operation.replace(brackets)
            brackets.set("this", operation)
    return str(bare.expressions[0].sql("duckdb", normalize_functions="lower"))
