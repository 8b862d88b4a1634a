"""Names with more parts than DuckDB reads: ``sales.europe.orders`` gets the one name that the instance has for its schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import TokenType

from ducklake_core.engines.duckdb.query import schema_in_instance
from ducklake_core.format.types.names import dotted, folded, quoted_path, split_path
from ducklake_core.sql.time_travel import is_name, keyword, tokens_of

_BEFORE_TABLES = ("FROM", "JOIN", "INTO", "USING", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")


@dataclass(frozen=True, slots=True)
class Run:
    """Names with dots between them: tokens from ``start`` to before ``end``."""

    start: int
    end: int
    parts: tuple[str, ...]


class SchemaPaths:
    """Schemas inside schemas, and what is in them.

    Args:
        objects: Path of the schema and name of every table, view and macro.
    """

    def __init__(self, objects: Collection[tuple[str, str]]) -> None:
        every = {path: split_path(path) for path in {path for path, _ in objects}}
        nested = {path: tuple(map(folded, parts)) for path, parts in every.items() if len(parts) > 1}
        self._schemas = set(nested.values())
        self._objects = {(nested[path], folded(name)) for path, name in objects if path in nested}

    def flattened(self, sql: str) -> str:
        """A text in which every name of two parts and more of a schema's path has one for it.

        >>> print(SchemaPaths([("sales.europe", "orders")]).flattened("SELECT orders.k FROM sales.europe.orders"))
        SELECT orders.k FROM \"\"\"sales\"\".\"\"europe\"\"\".orders
        """
        if not self._schemas:
            return sql
        tokens = tokens_of(sql)
        runs = list(_runs(tokens))
        aliases = {folded(one.parts[0]) for one in runs if len(one.parts) == 1 and _may_be_alias(tokens, one.start)}
        pieces: list[str] = []
        done = 0
        for one in runs:
            length = self._schema_length(one, tokens, aliases)
            if length:
                pieces += [sql[done : tokens[one.start].start], quoted_path((schema_in_instance(dotted(one.parts[:length])),))]
                done = tokens[one.start + 2 * length - 2].end + 1
        return "".join([*pieces, sql[done:]])

    def _schema_length(self, run: Run, tokens: Sequence[Any], aliases: Collection[str]) -> int:
        """How many of the names are a schema's path; 0 for a column, a field of structs, or a schema at the top."""
        names = tuple(map(folded, run.parts))
        before = keyword(tokens[run.start - 1]) if run.start else ""
        # Behind the placeholder for the lake's name stands a table or a macro.
        is_table = before in _BEFORE_TABLES or before == "."
        if is_table and names[:-1] in self._schemas:
            return len(names) - 1
        if names[0] in aliases and not is_table:
            return 0
        lengths = range(len(names) - 1, 1, -1)
        return next((length for length in lengths if (names[:length], names[length]) in self._objects), 0)


def _runs(tokens: Sequence[Any]) -> Iterator[Run]:
    place = 0
    while place < len(tokens):
        start = place
        place += 1
        if not is_name(tokens[start]):
            continue
        while place + 1 < len(tokens) and tokens[place].token_type == TokenType.DOT and is_name(tokens[place + 1]):
            place += 2
        yield Run(start, place, tuple(token.text for token in tokens[start:place:2]))


def _may_be_alias(tokens: Sequence[Any], place: int) -> bool:
    """Whether a name that stands alone names a table in this query."""
    if not place:
        return False
    before = tokens[place - 1]
    return keyword(before) in (*_BEFORE_TABLES, "AS") or before.token_type in (TokenType.R_PAREN, TokenType.VAR, TokenType.IDENTIFIER)
