"""INSERT as an append of what a query gives, and the defaults that statements name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from ducklake_core.engines.duckdb.query import cast_text
from ducklake_core.errors import UsageError
from ducklake_core.sql.parts import bracketed, comma_separated, name_of, names_at, outside_brackets, refuse, text_between
from ducklake_core.sql.time_travel import is_name, keyword, main_word, tokens_of

if TYPE_CHECKING:
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema

DEFAULT = "DEFAULT"
"""The word for a column's default, in place of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """What an INSERT says.

    Attributes:
        table: ``schema.table``.
        columns: Names of the columns that are given, all of the table's when None.
        by_name: Whether the names of the query's columns say which they are.
        query: The text of the query.
        rows: The texts of the values, for VALUES.
        prefix: The text of WITH, empty where there is none.
        defaults: Whether every column of one row gets its default.
    """

    table: str
    columns: tuple[str, ...] | None
    by_name: bool
    query: str
    rows: tuple[tuple[str, ...], ...] = ()
    prefix: str = ""
    defaults: bool = False

    def query_for(self, target: Sequence[tuple[str, Field]]) -> str:
        """The text of the query; constants of VALUES become what they are for one by one, as they may be of several types."""
        if self.defaults:
            return f"VALUES ({', '.join(cast_text(default_text(column), column) for _, column in target)})"
        for row in self.rows:
            if len(row) != len(target):
                raise UsageError(f"a row of VALUES has {len(row)} values, for {len(target)} columns of the table")
        rows = [", ".join(cast_text(value_text(text, one), one) for text, (_, one) in zip(row, target, strict=True)) for row in self.rows]
        query = f"VALUES {', '.join(f'({row})' for row in rows)}" if rows else self.query
        if not self.prefix:
            return query
        # A query has one WITH.
        return f"{self.prefix} FROM ({query}\n)" if keyword(tokens_of(query)[0]) in ("WITH", "(") else f"{self.prefix} {query}"

    def given(self, schema: Schema) -> list[str]:
        """Names of the table's columns in the order of the query's."""
        return [schema.column(name).name for name in self.columns] if self.columns is not None else list(schema.names)


_AFTER_COLUMNS = ("VALUES", "SELECT", "FROM", "WITH", "BY", "DEFAULT", "TABLE", "(", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")


def insert_of(sql: str) -> Insert:
    """Read an INSERT. The query is DuckDB's to read; its words are taken as they are.

    Raises:
        UnsupportedFeatureError: ON CONFLICT, RETURNING and the like.
        UsageError: It has no table, or no query.
    """
    every = tokens_of(sql)
    tokens = every[main_word(every) :]
    words = [keyword(token) for token in tokens]
    if words[1:2] == ["OR"]:
        refuse(f"INSERT {' '.join(words[1:3])}", "MERGE, or table.upsert")
    if words[1:2] != ["INTO"]:
        raise UsageError("cannot parse the SQL: INSERT is INSERT INTO table, columns in brackets, and VALUES or a query")
    parts = names_at(tokens, 2)
    start = 1 + 2 * len(parts)
    if words[start : start + 1] == ["AS"]:
        start += 2
    columns = _column_list(tokens, start)
    if columns is not None:
        start = bracketed(tokens, start)
    by = words[start + 1 : start + 2] if words[start : start + 1] == ["BY"] else []
    start += 2 if by else 0
    if by not in ([], ["NAME"], ["POSITION"]):
        raise UsageError("cannot parse the SQL: INSERT is BY NAME or BY POSITION")
    if start >= len(tokens) or words[start:] == ["VALUES"]:
        raise UsageError("cannot parse the SQL: INSERT without VALUES or a query")
    if by and words[start] == "VALUES":
        raise UsageError("INSERT BY NAME and BY POSITION need a query: VALUES have no names")
    _check_rest(tokens, start)
    if words[start:] == ["DEFAULT", "VALUES"]:
        return Insert(table=name_of(parts), columns=None, by_name=False, query="", defaults=True)
    return Insert(
        table=name_of(parts),
        columns=columns,
        by_name=by == ["NAME"],
        query=text_between(sql, tokens, start),
        rows=_rows_of_values(sql, tokens, start),
        prefix=text_between(sql, every, 0, main_word(every)) if main_word(every) else "",
    )


def _column_list(tokens: Sequence[Any], start: int) -> tuple[str, ...] | None:
    """The columns in brackets; None where a query stands there, or nothing."""
    end = bracketed(tokens, start) if start < len(tokens) and tokens[start].token_type == TokenType.L_PAREN else start
    inside = tokens[start + 1 : end - 1]
    is_list = len(inside) % 2 == 1 and all(
        token.token_type == TokenType.COMMA if place % 2 else is_name(token) for place, token in enumerate(inside)
    )
    if not is_list or not (end >= len(tokens) or keyword(tokens[end]) in _AFTER_COLUMNS):
        return None
    return tuple(token.text for token in inside[::2])


def _check_rest(tokens: Sequence[Any], start: int) -> None:
    """Refuse what may follow the rows."""
    words = [keyword(token) for token in tokens]
    outside = outside_brackets(tokens, start)
    if "RETURNING" in (words[place] for place in outside):
        refuse("RETURNING in INSERT", "DuckDB has it for no table of a lake; query the rows before or after")
    if any(words[place : place + 2] == ["ON", "CONFLICT"] for place in outside):
        refuse("ON CONFLICT in INSERT", "MERGE, or table.upsert")


def _rows_of_values(sql: str, tokens: Sequence[Any], start: int) -> tuple[tuple[str, ...], ...]:
    """The texts of the values where the query is nothing but VALUES."""
    if keyword(tokens[start]) != "VALUES":
        return ()
    rows: list[tuple[str, ...]] = []
    place = start + 1
    while place < len(tokens):
        if tokens[place].token_type != TokenType.L_PAREN:
            return ()
        end = bracketed(tokens, place)
        rows.append(tuple(comma_separated(sql, tokens[place + 1 : end - 1])))
        if end < len(tokens) and tokens[end].token_type != TokenType.COMMA:
            return ()
        place = end + 1
    return tuple(rows)


def value_text(text: str, column: Field) -> str:
    """The text of a value for a column, of its default where it is DEFAULT."""
    return default_text(column) if text.upper() == DEFAULT else text


def default_text(column: Field) -> str:
    """The default of a column as SQL."""
    if column.default is None:
        return "NULL"
    return f"({column.default})" if column.default_is_expression else exp.Literal.string(column.default).sql("duckdb")
