"""Read parts of statements: names, keys, types, and the SQL text of the queries in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.defaults import with_default, with_expression
from ducklake_core.format.expressions.syntax import MAX_BRACKETS, QuotedText, constant_of, quoting_hint
from ducklake_core.format.macros import table_names
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, dotted, folded, join_name, quoted_path
from ducklake_core.format.types.text import parse_failure
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.sql.time_travel import is_name, keyword

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def parse_statement(sql: str) -> exp.Expression:
    """Return the one statement of a text.

    Raises:
        UsageError: It cannot be parsed.
    """
    # sqlglot logs a warning when it falls back to an unparsed command; such statements are rejected by name.
    log = logging.getLogger("sqlglot")
    log.addFilter(_is_no_fallback)
    try:
        found = [one for one in sqlglot.parse(sql, read="duckdb") if one is not None]
    except SqlglotError as problem:
        raise UsageError(f"cannot parse the SQL: {parse_failure(problem)}{quoting_hint(sql)}") from problem
    except RecursionError:
        raise UsageError(
            f"The SQL is nested too deeply: at most {MAX_BRACKETS} nested parentheses, function calls and CASEs are supported."
        ) from None
    finally:
        log.removeFilter(_is_no_fallback)
    if len(found) != 1:
        raise UsageError(f"the SQL has {len(found)} statements. Pass one statement at a time")
    (statement,) = found
    assert isinstance(statement, exp.Expression)
    return statement


def _is_no_fallback(record: logging.LogRecord) -> bool:
    """Return False for the parser's warnings about statements that it does not know: they are rejected by name."""
    return "Falling back" not in record.getMessage()


def reject(what: str, instead: str | None = None) -> NoReturn:
    """Reject what no operation supports, and name what to use instead."""
    raise unsupported(what, instead)


def unsupported(what: str, instead: str | None = None) -> UnsupportedFeatureError:
    """Return the error for what no operation supports."""
    return UnsupportedFeatureError(f"{what} is not supported{'' if instead is None else f': {instead}'}")


def only(node: exp.Expression, *keys: str) -> None:
    """Reject a node that has more parts than these.

    Raises:
        UnsupportedFeatureError: It has.
    """
    for key, value in node.args.items():
        name = key.rstrip("_")
        if value and name not in keys:
            reject(f"{name.upper().replace('_', ' ')} in {type(node).__name__.upper()}")


def table_name(node: exp.Expression | None) -> str:
    """Return ``schema.table`` of a table's name; a schema may be a path.

    Raises:
        UnsupportedFeatureError: The expression is not a name.
    """
    table = node.this if isinstance(node, exp.Schema) else node
    names = table_names(table) if isinstance(table, exp.Table) else ()
    if not names:
        reject(f"{'' if node is None else node.sql('duckdb')} instead of a table's name")
    return name_of(names)


def name_of(parts: Sequence[str]) -> str:
    """Return the text of a name that is given by its parts.

    >>> name_of(["orders"]), name_of(["sales.europe", "orders"]), name_of(["sales", "europe", "orders"])
    ('main.orders', '"sales.europe".orders', 'sales.europe.orders')
    """
    return join_name(dotted(parts[:-1]) or DEFAULT_SCHEMA, parts[-1])


def names_at(tokens: Sequence[Any], start: int) -> list[str]:
    """Return the parts of the name that begins at a place; none where no name does.

    Raises:
        UsageError: A dot is not followed by a name.
    """
    parts: list[str] = []
    while start < len(tokens) and is_name(tokens[start]):
        parts.append(tokens[start].text)
        if start + 1 >= len(tokens) or tokens[start + 1].token_type != TokenType.DOT:
            return parts
        start += 2
    raise UsageError("cannot parse the SQL: a name is missing")


def without_qualifier(node: exp.Expression, *names: tuple[str, ...]) -> exp.Expression:
    """Return the expression with columns that are qualified by a table's name under their own names."""
    return requalified(node, dict.fromkeys(names, ()))


def requalified(
    node: exp.Expression, names: Mapping[tuple[str, ...], tuple[str, ...]], of_side: tuple[str | None, Sequence[str]] = (None, ())
) -> exp.Expression:
    """Return the expression with other names before its columns, by those that are written there.

    Args:
        node: The expression.
        names: Names to replace, with their replacements.
        of_side: What is to stand before columns that have nothing there, and their names.
    """
    side, own = of_side[0], set(map(folded, of_side[1]))
    # Longest names first, so that ``s.t.a`` is column a of table s.t before it is field t of column s.
    wanted = sorted(((tuple(map(folded, old)), new) for old, new in names.items()), key=lambda pair: -len(pair[0]))

    def other(part: exp.Expression) -> exp.Expression:
        written = _column_parts(part)
        known = tuple(map(folded, written))
        for old, new in wanted:
            if len(known) > len(old) and known[: len(old)] == old:
                return as_path([*new, *written[len(old) :]])
        return as_path([side, *written]) if side is not None and known[:1] and known[0] in own else part

    found = node.transform(other)
    assert isinstance(found, exp.Expression)
    return found


def _column_parts(node: exp.Expression) -> tuple[str, ...]:
    """Return the names of a column with everything before it; none for anything else. More than four stand in dots around a column."""
    if isinstance(node, exp.Column):
        return tuple(part.name for part in node.parts)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = _column_parts(node.this)
        return (*before, node.expression.name) if before else ()
    return ()


def as_path(names: Sequence[str]) -> exp.Expression:
    """Return a column, or a field of structs."""
    found = sqlglot.parse_one(quoted_path(names), read="duckdb")
    assert isinstance(found, exp.Expression)
    return found


def column_of(definition: exp.Expression) -> Field:
    """Return a column of CREATE TABLE.

    Raises:
        UnsupportedFeatureError: A constraint that DuckLake does not have.
        UsageError: A default that is not a value of the type.
    """
    if not isinstance(definition, exp.ColumnDef):
        reject(f"the constraint {definition.sql('duckdb')}")
    if definition.args.get("position") is not None:
        reject(f"a place for column {definition.name!r}", "new columns come last")
    kind = definition.args.get("kind")
    if kind is None:
        reject(f"column {definition.name!r} without a type")
    field = Field(name=definition.name, type=data_type_of(kind.sql("duckdb")))
    nullable = True
    for constraint in definition.args.get("constraints") or ():
        match constraint.kind:
            case exp.NotNullColumnConstraint():
                nullable = bool(constraint.kind.args.get("allow_null"))
            case exp.DefaultColumnConstraint():
                field = with_default_of(field, constraint.kind.this)
            case _:
                reject(f"the constraint {constraint.sql('duckdb')}")
    return Field(
        name=field.name, type=field.type, nullable=nullable, default=field.default, default_is_expression=field.default_is_expression
    )


def with_default_of(field: Field, node: exp.Expression) -> Field:
    """Return the column with a default as it is written: a constant, or an expression."""
    text = constant_text(node)
    return with_expression(field, node.sql("duckdb")) if text is None and not isinstance(node, exp.Null) else with_default(field, text)


def constant_text(node: exp.Expression) -> str | None:
    """Return the text of a number or a quoted text; None for NULL, and for anything that is computed."""
    if isinstance(node, exp.Boolean):
        return str(bool(node.this)).lower()
    if isinstance(node, exp.Literal):
        return str(node.name)
    is_number = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not isinstance(constant_of(node), QuotedText)
    return f"-{node.this.name}" if is_number else None


def text_between(sql: str, tokens: Sequence[Any], start: int, end: int | None = None) -> str:
    """Return the text of some tokens, as it was written.

    Args:
        sql: The text that the tokens are of.
        tokens: Its tokens.
        start: Position of the first token.
        end: Position behind the last token; the end of the text when None.
    """
    return sql[tokens[start].start : tokens[len(tokens) - 1 if end is None else end - 1].end + 1]


def find_word(tokens: Sequence[Any], *words: str, start: int = 0) -> int:
    """Return the position of the first of some words outside of brackets.

    Raises:
        UsageError: There is none.
    """
    found = next((place for place in _outside(tokens, start) if keyword(tokens[place]) in words), None)
    if found is None:
        raise UsageError(f"cannot parse the SQL: {' or '.join(words)} is missing")
    return found


def bracketed(tokens: Sequence[Any], start: int) -> int:
    """Return the position behind the bracket that closes the one at ``start``."""
    depth = 0
    for place in range(start, len(tokens)):
        depth += (tokens[place].token_type in _OPEN) - (tokens[place].token_type in _CLOSE)
        if not depth:
            return place + 1
    return len(tokens)


def outside_brackets(tokens: Sequence[Any], start: int) -> list[int]:
    """Return the places from ``start`` on that stand in no brackets."""
    return list(_outside(tokens, start))


# An opening bracket counts as outside, a closing one as inside.
def _outside(tokens: Sequence[Any], start: int) -> Iterator[int]:
    depth = 0
    for place in range(start, len(tokens)):
        kind = tokens[place].token_type
        if kind in _CLOSE:
            depth -= 1
        elif not depth:
            yield place
        if kind in _OPEN:
            depth += 1


def comma_separated(sql: str, tokens: Sequence[Any]) -> list[str]:
    """Return the parts between commas outside of brackets."""
    commas = [place for place in _outside(tokens, 0) if tokens[place].token_type == TokenType.COMMA]
    starts, ends = [0, *(place + 1 for place in commas)], [*commas, len(tokens)]
    return [text_between(sql, tokens, start, end) for start, end in zip(starts, ends, strict=True) if end > start]
