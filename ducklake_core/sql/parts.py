"""Parts of statements: names, keys, types, and the texts of the queries in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.defaults import with_default, with_expression
from ducklake_core.format.expressions.sql_constants import QuotedText, constant_of
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, join_name, quoted_path
from ducklake_core.format.types.type_parser import data_type_of

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def parse_statement(sql: str) -> exp.Expression:
    """The one statement of a text.

    Raises:
        UsageError: It cannot be parsed.
    """
    try:
        found = [one for one in sqlglot.parse(sql, read="duckdb") if one is not None]
    except (SqlglotError, RecursionError) as problem:
        raise UsageError(f"cannot parse the SQL: {str(problem).splitlines()[0]}") from problem
    if len(found) != 1:
        raise UsageError(f"one statement at a time, not {len(found)}")
    (statement,) = found
    assert isinstance(statement, exp.Expression)
    return statement


def refuse(what: str, instead: str | None = None) -> NoReturn:
    """Refuse what no verb does, and say what does it instead."""
    raise UnsupportedFeatureError(f"{what} is not supported{'' if instead is None else f': {instead}'}; docs/sql.md lists what is")


def only(node: exp.Expression, *keys: str) -> None:
    """Refuse a node that has more parts than these.

    Raises:
        UnsupportedFeatureError: It has.
    """
    for key, value in node.args.items():
        name = key.rstrip("_")
        if value and name not in keys:
            refuse(f"{name.upper().replace('_', ' ')} in {type(node).__name__.upper()}")


def table_name(node: exp.Expression | None) -> str:
    """``schema.table`` of a table's name.

    Raises:
        UnsupportedFeatureError: It is no name, or names a catalog.
    """
    table = node.this if isinstance(node, exp.Schema) else node
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        refuse(f"{'' if node is None else node.sql('duckdb')} in place of a table's name")
    if table.catalog:
        refuse(f"the catalog {table.catalog!r} before a schema")
    return join_name(table.db or DEFAULT_SCHEMA, table.name)


def without_qualifier(node: exp.Expression, *names: str) -> exp.Expression:
    """The expression with columns that are qualified by a table's name under their own names."""
    wanted = {folded(name) for name in names}

    def plain(part: exp.Expression) -> exp.Expression:
        if isinstance(part, exp.Column) and len(part.parts) > 1 and folded(part.parts[0].name) in wanted:
            return as_path([one.name for one in part.parts[1:]])
        return part

    found = node.transform(plain)
    assert isinstance(found, exp.Expression)
    return found


def as_path(names: Sequence[str]) -> exp.Expression:
    """A column, or a field of structs."""
    found = sqlglot.parse_one(quoted_path(names), read="duckdb")
    assert isinstance(found, exp.Expression)
    return found


def column_of(definition: exp.Expression) -> Field:
    """A column of CREATE TABLE.

    Raises:
        UnsupportedFeatureError: A constraint that DuckLake does not have.
        UsageError: A default that is no value of the type.
    """
    if not isinstance(definition, exp.ColumnDef):
        refuse(f"the constraint {definition.sql('duckdb')}")
    kind = definition.args.get("kind")
    if kind is None:
        refuse(f"column {definition.name!r} without a type")
    field = Field(name=definition.name, type=data_type_of(kind.sql("duckdb")))
    nullable = True
    for constraint in definition.args.get("constraints") or ():
        match constraint.kind:
            case exp.NotNullColumnConstraint():
                nullable = bool(constraint.kind.args.get("allow_null"))
            case exp.DefaultColumnConstraint():
                field = with_default_of(field, constraint.kind.this)
            case _:
                refuse(f"the constraint {constraint.sql('duckdb')}")
    return Field(
        name=field.name, type=field.type, nullable=nullable, default=field.default, default_is_expression=field.default_is_expression
    )


def with_default_of(field: Field, node: exp.Expression) -> Field:
    """The column with a default as it is written: a constant, or an expression."""
    text = constant_text(node)
    return with_expression(field, node.sql("duckdb")) if text is None and not isinstance(node, exp.Null) else with_default(field, text)


def constant_text(node: exp.Expression) -> str | None:
    """The text of a number or a quoted text; None for NULL, and for anything that is computed."""
    if isinstance(node, exp.Boolean):
        return str(bool(node.this)).lower()
    if isinstance(node, exp.Literal):
        return str(node.name)
    is_number = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not isinstance(constant_of(node), QuotedText)
    return f"-{node.this.name}" if is_number else None


def text_between(sql: str, tokens: Sequence[Any], start: int, end: int | None = None) -> str:
    """The text of some tokens, as it was written."""
    return sql[tokens[start].start : tokens[len(tokens) - 1 if end is None else end - 1].end + 1]


def find_word(tokens: Sequence[Any], *words: str, start: int = 0) -> int:
    """Place of the first of some words that stands in no brackets.

    Raises:
        UsageError: There is none.
    """
    found = next((place for place in _outside(tokens, start) if tokens[place].text.upper() in words), None)
    if found is None:
        raise UsageError(f"cannot parse the SQL: {' or '.join(words)} is missing")
    return found


def bracketed(tokens: Sequence[Any], start: int) -> int:
    """Place behind the bracket that closes the one at ``start``."""
    return next((place for place in _outside(tokens, start + 1, depth=1) if place > start), len(tokens))


def _outside(tokens: Sequence[Any], start: int, depth: int = 0) -> Iterator[int]:
    for place in range(start, len(tokens)):
        kind = tokens[place].token_type
        if kind in _CLOSE:
            depth -= 1
        elif not depth:
            yield place
        if kind in _OPEN:
            depth += 1


def comma_separated(sql: str, tokens: Sequence[Any]) -> list[str]:
    """The texts between commas that are in no brackets."""
    commas = [place for place in _outside(tokens, 0) if tokens[place].token_type == TokenType.COMMA]
    starts, ends = [0, *(place + 1 for place in commas)], [*commas, len(tokens)]
    return [text_between(sql, tokens, start, end) for start, end in zip(starts, ends, strict=True) if end > start]
