"""DuckDB's SQL parsed with every function under the name that was written."""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.format.macros import table_names
from ducklake_core.format.types.names import dotted
from ducklake_core.view_sql.typed import Rejected

PLACEHOLDER = "{DUCKLAKE_CATALOG}"
CATALOG = "__ducklake_catalog_of_the_view"
"""The identifier that takes the place of the placeholder while a text is parsed."""


def _substring(parser: Any) -> exp.Expression:
    """Parse ``substring(x FROM 1 FOR 2)`` as ``substring(x, 1, 2)``."""
    parsed = parser._parse_substring()  # noqa: SLF001 - sqlglot's parsers are made to be extended
    parts = [parsed.this, parsed.args.get("start"), parsed.args.get("length")]
    return exp.Anonymous(this="substring", expressions=[part for part in parts if part is not None])


class WrittenDuckDB(DuckDB):
    """DuckDB's dialect without the meanings that sqlglot gives functions, so that a list of names can be a list of names."""

    INDEX_OFFSET = 0

    # sqlglot makes the class at run time.
    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]
        """Functions keep their names; only those with a grammar of their own are parsed as such."""

        # With its own functions, sqlglot would turn names into classes and complete or reorder arguments.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser for name, parser in DuckDB.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST", "EXTRACT")
        } | {"SUBSTRING": _substring}


def parse_query(sql: str) -> exp.Expression:
    """Return the one query of a text.

    Raises:
        Rejected: The text is not exactly one query.
    """
    try:
        statements = sqlglot.parse(sql.replace(PLACEHOLDER, CATALOG), read=WrittenDuckDB)
    except (SqlglotError, RecursionError) as problem:
        raise Rejected("its SQL cannot be parsed") from problem
    if len(statements) != 1 or statements[0] is None:
        raise Rejected(f"it is {len(statements)} statements")
    if any(CATALOG in text.this for text in statements[0].find_all(exp.Literal)):
        raise Rejected(f"a constant contains {PLACEHOLDER}")
    (statement,) = statements
    assert isinstance(statement, exp.Expression)
    return statement


def only(node: exp.Expression, *keys: str) -> None:
    """Reject a node that has more parts than these.

    Raises:
        Rejected: It has.
    """
    for key, value in node.args.items():
        name = key.rstrip("_")
        if value and name not in keys:
            raise Rejected(f"it has {name.upper()} ({_kind(node)})")


def schema_and_name(table: exp.Table) -> tuple[str | None, str]:
    """Return the path of the schema that a query gives for a table, None for none, and the table's name."""
    *schemas, name = table_names(table)
    if schemas and schemas[0] == CATALOG:
        schemas = schemas[1:]
    return dotted(schemas) or None, name


def shown(node: exp.Expression) -> str:
    """Return a part of the query for a message."""
    text = node.sql(dialect=WrittenDuckDB, normalize_functions=False).replace(CATALOG, PLACEHOLDER)
    return text if len(text) < 80 else f"{text[:77]}..."


def _kind(node: exp.Expression) -> str:
    return type(node).__name__.upper()


def written_columns(sql: str) -> list[str]:
    """Return the SQL text of the columns of a query's first SELECT, which DuckDB uses as names for columns without one.

    >>> written_columns("SELECT a, (b + 1), count_star() FROM t")
    ['a', '(b + 1)', 'count_star()']
    """
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError:
        return []
    depths = _depths(tokens)
    with_first = bool(tokens) and tokens[0].token_type == TokenType.WITH
    # The SELECT of the query itself, not one inside of its WITH.
    start = next((i for i, t in enumerate(tokens) if t.token_type == TokenType.SELECT and not (with_first and depths[i])), None)
    if start is None:
        return []
    arguments, begin = [], start + 1
    for index in range(start + 1, len(tokens) + 1):
        ends = index == len(tokens) or depths[index] < depths[start] or (depths[index] == depths[start] and _ends(tokens, index))
        if ends or (tokens[index].token_type == TokenType.COMMA and depths[index] == depths[start]):
            if index > begin:
                arguments.append(_as_named(sql[tokens[begin].start : tokens[index - 1].end + 1]))
            begin = index + 1
        if ends:
            break
    return arguments


def _as_named(text: str) -> str:
    """Return a text as DuckDB names a column: it quotes the type that it puts into intervals when it reads the text again."""
    return text.replace(" AS DOUBLE)) AS ", ' AS "DOUBLE")) AS ')


def _depths(tokens: list[Any]) -> list[int]:
    """Return the number of open brackets around each token; a closing one is outside already."""
    depth, depths = 0, []
    for token in tokens:
        if token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
            depth -= 1
        depths.append(depth)
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
            depth += 1
    return depths


_AFTER_COLUMNS = (
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.UNION,
    TokenType.EXCEPT, TokenType.INTERSECT, TokenType.QUALIFY, TokenType.WINDOW, TokenType.SEMICOLON,
)  # fmt: skip


def _ends(tokens: list[Any], index: int) -> bool:
    """Return whether the columns end here; DISTINCT FROM is an operator."""
    kind = tokens[index].token_type
    return kind in _AFTER_COLUMNS and not (kind == TokenType.FROM and tokens[index - 1].token_type == TokenType.DISTINCT)
