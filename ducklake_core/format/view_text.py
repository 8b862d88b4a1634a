"""The text of a view as the catalog stores it: one query of DuckDB's SQL, in which tables of the lake are named in full.

The text stays as the user wrote it; names of tables get ``{DUCKLAKE_CATALOG}`` and their schema in front, so that a reader finds
them under whatever name it has attached the lake, and in whatever schema it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.names import dotted, folded, quoted_path, split_path

PLACEHOLDER = "{DUCKLAKE_CATALOG}"
# As long as the placeholder, so that places in the text stay the same.
_STAND_IN = "_DUCKLAKE_CATALOG_"

FindTable = Callable[[str | None, str], str]
"""The path of the schema of a table or view of the lake, from the one that was written (None for none) and its name."""


def view_text(sql: str, find: FindTable) -> str:
    """The query as it is stored.

    >>> view_text("SELECT a FROM t JOIN s.u USING (a);", lambda schema, name: schema or "main")
    'SELECT a FROM {DUCKLAKE_CATALOG}."main".t JOIN {DUCKLAKE_CATALOG}.s.u USING (a)'

    Args:
        sql: One SELECT, or several under UNION, EXCEPT and INTERSECT.
        find: How to find what it reads.

    Raises:
        UsageError: Not one query, one with parameters, or one that names a catalog.
        NotFoundError: It reads a table that the lake does not have.
        UnsupportedFeatureError: It cannot be parsed.
    """
    if _STAND_IN in sql:
        raise UsageError(f"the view's text must not contain {_STAND_IN}")
    text = sql.replace(PLACEHOLDER, _STAND_IN)
    try:
        tokens = [token for token in DuckDB().tokenize(text) if token.text != ";" or token.token_type.name != "SEMICOLON"]
        statements = [statement for statement in sqlglot.parse(text, read="duckdb") if statement is not None]
    except SqlglotError as problem:
        raise UnsupportedFeatureError(f"cannot parse the view's query {sql!r}: {problem}", sql=sql) from problem
    query = statements[0] if len(statements) == 1 else None
    if not isinstance(query, exp.Select | exp.SetOperation | exp.Subquery):
        raise UsageError(f"a view is one SELECT, and {sql!r} is not", sql=sql)
    if query.find(exp.Placeholder, exp.Parameter, exp.Into):
        raise UsageError(f"a view has no parameters and writes nothing: {sql!r}", sql=sql)
    if any(_STAND_IN in literal.this for literal in query.find_all(exp.Literal)):
        raise UsageError(f"a constant in the view's query holds {PLACEHOLDER}, which readers would replace", sql=sql)
    insertions = [place for table in query.find_all(exp.Table) if (place := _insertion(table, find, sql)) is not None]
    # A comment behind the last word would swallow what a reader puts there.
    start, end = tokens[0].start, tokens[-1].end + 1
    pieces: list[str] = []
    position = start
    for at, prefix in sorted(insertions):
        pieces += [text[position:at], prefix]
        position = at
    pieces.append(text[position:end])
    return "".join(pieces).replace(_STAND_IN, PLACEHOLDER)


def _insertion(table: exp.Table, find: FindTable, sql: str) -> tuple[int, str] | None:
    """Where to put what in front of a table's name, None when it is complete."""
    names = table_names(table)
    if not names or (len(names) == 1 and _is_named_query(table)):
        return None
    *schemas, name = names
    if schemas and schemas[0] == _STAND_IN:
        find(dotted(schemas[1:]) or None, name)
        return None
    place = table.parts[0].meta.get("start")
    if place is None or sql[place : place + 1] == "'":
        raise NotFoundError(f"the view reads {name!r}, which is not a table of the lake", sql=sql)
    try:
        schema = find(dotted(schemas) or None, name)
    except NotFoundError as problem:
        if len(schemas) < 2:
            raise
        raise UsageError(
            f"the view names {table.sql('duckdb')}: write schema.table, because readers attach the lake under names of their own", sql=sql
        ) from problem
    return place, f"{PLACEHOLDER}." + ("" if schemas else quoted_path(split_path(schema)) + ".")


def table_names(table: exp.Table) -> tuple[str, ...]:
    """The names that a query gives for a table, outermost first; none for a function that makes rows."""
    parts = table.parts
    return tuple(part.name for part in parts) if all(isinstance(part, exp.Identifier) for part in parts) else ()


def _is_named_query(table: exp.Table) -> bool:
    """Whether the name is one that a WITH around it gives to a query."""
    node: Any = table
    while node.parent is not None:
        parent = node.parent
        if isinstance(parent, exp.With):
            # Within a WITH, queries see those before them.
            seen = parent.expressions if parent.args.get("recursive") else parent.expressions[: parent.expressions.index(node)]
            if any(folded(query.alias) == folded(table.name) for query in seen):
                return True
            node = parent.parent
            if node is None:
                return False
            continue
        around = parent.args.get("with_") or parent.args.get("with")
        if around is not None and any(folded(query.alias) == folded(table.name) for query in around.expressions):
            return True
        node = parent
    return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def aliases_text(names: tuple[str, ...]) -> str:
    """The text of ``column_aliases``.

    >>> aliases_text(("x", 'y"z')), aliases_text(())
    ('"x","y""z"', '')
    """
    return ",".join(_quoted(name) for name in names)
