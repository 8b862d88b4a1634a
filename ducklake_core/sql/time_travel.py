"""Replace ``t AT (VERSION => 3)`` and ``t AT (TIMESTAMP => ...)`` by generated names of the table at that snapshot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from sqlglot import TokenType
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.engines.duckdb.syntax import query_constant
from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_core.format.arguments import names_hold
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.expressions.syntax import QuotedText, constant_of, parse_text
from ducklake_core.format.types.data_types import DATE, INT64, TIMESTAMP, TIMESTAMPTZ
from ducklake_core.format.types.names import folded, quoted_path
from ducklake_core.format.types.text import parse_failure
from ducklake_core.format.values.temporal import zoned
from ducklake_core.view_sql.scopes import OTHER_SNAPSHOTS

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_LARGEST = 2**63 - 1
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAt:
    """A table or view at another snapshot.

    Attributes:
        key: Its name in :data:`~ducklake_core.view_sql.scopes.OTHER_SNAPSHOTS`.
        parts: Its name as it was written.
        at: A snapshot's id, a time, or the name of a hold.
    """

    key: str
    parts: tuple[str, ...]
    at: int | datetime | str


def tokens_of(sql: str) -> list[Any]:
    """Return the tokens of a text in DuckDB's dialect.

    Raises:
        UsageError: The text is empty or cannot be split into tokens.
    """
    found = _all_tokens(sql)
    while found and found[-1].token_type == TokenType.SEMICOLON:
        found.pop()
    if not found:
        raise UsageError("the SQL is empty")
    if any(token.token_type == TokenType.SEMICOLON for token in found):
        raise UsageError(
            "the SQL has several statements. Pass one statement at a time; in Python, use tx.sql(...) for each in one transaction"
        )
    return found


def statements_of(sql: str) -> list[str]:
    """Return the statements of a text, without the semicolons between them.

    >>> statements_of("SELECT ';' -- a; b\\n; ; DELETE FROM t; /* /* nested */ ; */")
    ["SELECT ';' -- a; b", 'DELETE FROM t']

    Raises:
        UsageError: The text cannot be split into tokens.
    """
    tokens = _all_tokens(sql)
    ends = [place for place, token in enumerate(tokens) if token.token_type == TokenType.SEMICOLON]
    found, first, start = [], 0, 0
    for place in (*ends, len(tokens)):
        end = tokens[place].start if place < len(tokens) else len(sql)
        # A part without tokens is empty or a comment.
        if first < place:
            found.append(sql[start:end].strip())
        first, start = place + 1, end + 1
    return found


def _all_tokens(sql: str) -> list[Any]:
    try:
        return list(DuckDB().tokenize(sql))
    except SqlglotError as problem:
        raise UsageError(f"cannot parse the SQL: {parse_failure(problem)}") from problem


def command(sql: str) -> tuple[str, str]:
    """Return the first word of a statement in capitals, and the text behind it.

    sqlglot makes one token of everything behind words such as CALL, SET and EXPLAIN.

    >>> command("CALL f(1);")
    ('CALL', 'f(1)')
    """
    first = tokens_of(sql)[0]
    return keyword(first), sql[first.end + 1 :].strip().rstrip(";").rstrip()


def is_name(token: Any) -> bool:
    """Return whether a token may be a part of a name: a quoted one, or any word, as many keywords are names too."""
    return token.token_type == TokenType.IDENTIFIER or (token.token_type != TokenType.STRING and bool(_WORD.fullmatch(token.text)))


def keyword(token: Any) -> str:
    """Return a word of SQL in capitals; an empty string for a quoted string or name, which may read like one."""
    return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else str(token.text).upper()


def without_time_travel(sql: str, first: int = 0) -> tuple[str, tuple[TableAt, ...]]:
    """Return the text with generated names for tables at other snapshots, and their tables.

    >>> text, (found,) = without_time_travel("SELECT t.a FROM s.t AT (VERSION => 3) WHERE a > 1")
    >>> text
    'SELECT t.a FROM "__ducklake_at"."t0" AS "t" WHERE a > 1'
    >>> found.parts, found.at
    (('s', 't'), 3)
    >>> without_time_travel("FROM s.t AS a AT (VERSION => 3)")[0]
    'FROM "__ducklake_at"."t0" AS "a"'

    Args:
        sql: A query.
        first: Number of the first such name.

    Raises:
        UsageError: The brackets do not contain a snapshot.
    """
    tokens = tokens_of(sql)
    parts: list[str] = []
    found: list[TableAt] = []
    done = place = 0
    while place < len(tokens):
        end = _clause_end(tokens, place)
        if end is None:
            place += 1
            continue
        begin, behind = _table_name(tokens, place)
        named = tuple(token.text for token in tokens[begin:behind] if token.token_type != TokenType.DOT)
        key = f"t{first + len(found)}"
        found.append(TableAt(key=key, parts=named, at=_moment(tokens[place + 2 : end], sql)))
        # Without an alias of its own the table keeps its name, by which columns may be qualified.
        has_alias = end + 1 < len(tokens) and tokens[end + 1].token_type in (TokenType.ALIAS, *_NAMES)
        alias = "" if has_alias else f" AS {quoted_path((tokens[place - 1].text,))}"
        parts += [sql[done : tokens[begin].start], quoted_path((OTHER_SNAPSHOTS, key)), alias]
        done, place = tokens[end].end + 1, end + 1
    return "".join([*parts, sql[done:]]), tuple(found)


def _clause_end(tokens: Sequence[Any], place: int) -> int | None:
    """Return the position of the bracket that closes AT (...), None where no such clause begins."""
    if place < 1 or place + 4 >= len(tokens) or tokens[place].text.upper() != "AT" or not is_name(tokens[place - 1]):
        return None
    # AT is not a reserved word: a column or an alias may be called so. Only AT (VERSION => and AT (TIMESTAMP => begin the clause.
    is_clause = tokens[place + 1].token_type == TokenType.L_PAREN and tokens[place + 2].text.upper() in ("VERSION", "TIMESTAMP")
    if not is_clause or not tokens[place + 3].text.startswith("="):
        return None
    depth = 0
    for end in range(place + 1, len(tokens)):
        depth += (tokens[end].token_type == TokenType.L_PAREN) - (tokens[end].token_type == TokenType.R_PAREN)
        if not depth:
            return end
    return None


def _table_name(tokens: Sequence[Any], place: int) -> tuple[int, int]:
    """Return the positions of the table's name before AT: DuckDB has an alias between both, ``s.t AS a AT (...)``."""
    begin = _name_start(tokens, place - 1)
    if begin != place - 1 or begin < 2:
        return begin, place
    behind = begin - 1 if tokens[begin - 1].token_type == TokenType.ALIAS else begin
    is_alias = behind < begin or tokens[begin - 1].token_type in _NAMES
    return (_name_start(tokens, behind - 1), behind) if is_alias else (begin, place)


def _name_start(tokens: Sequence[Any], last: int) -> int:
    while last >= 2 and tokens[last - 1].token_type == TokenType.DOT and is_name(tokens[last - 2]):
        last -= 2
    return last


def _moment(tokens: Sequence[Any], sql: str) -> int | datetime | str:
    """Return the snapshot, name or time of ``VERSION => expression``."""
    # The arrow is one token or two, depending on the version of sqlglot.
    start = next(place for place in range(1, len(tokens)) if ">" in tokens[place].text) + 1
    text = sql[tokens[start].start : tokens[-1].end + 1] if start < len(tokens) else ""
    is_version = tokens[0].text.upper() == "VERSION"
    constant = constant_of(parse_text(text, "snapshot"))
    value = constant.value if isinstance(constant, Literal) else None
    if is_version and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return value
    if is_version and isinstance(constant, QuotedText) and names_hold(constant.text):
        return constant.text
    moment = None if is_version else _time(constant)
    return moment if moment is not None else _computed(text, is_version=is_version)


def _time(constant: QuotedText | Literal | None) -> datetime | None:
    """Return the time of a constant, None for what only DuckDB reads; without a zone it is meant in the effective zone."""
    try:
        if isinstance(constant, QuotedText):
            moment = datetime.fromisoformat(constant.text)
            return moment if moment.tzinfo is not None else zoned(moment)
        if isinstance(constant, Literal) and isinstance(constant.value, int) and constant.type in (DATE, TIMESTAMP, TIMESTAMPTZ):
            moment = datetime.fromtimestamp(0, UTC) + _since_epoch(constant)
            return moment if constant.type == TIMESTAMPTZ else zoned(moment.replace(tzinfo=None))
    except (ValueError, OverflowError):
        pass
    return None


def _computed(text: str, *, is_version: bool) -> int | datetime:
    """Return the value of an expression such as ``now() - INTERVAL 1 DAY``, by DuckDB."""
    try:
        value = query_constant(text, INT64 if is_version else TIMESTAMPTZ)
        if isinstance(value, int):
            return value if is_version else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value)
    except DuckLakeError as problem:
        raise _no_moment(text, problem.message, is_version=is_version) from problem
    except OverflowError as problem:
        raise _no_moment(text, "it is out of range", is_version=is_version) from problem
    raise _no_moment(text, "it is NULL", is_version=is_version)


def _no_moment(text: str, reason: str, *, is_version: bool) -> UsageError:
    if is_version:
        return UsageError(f"AT (VERSION => {text}) needs the id of a snapshot: {reason}")
    return UsageError(
        f"AT (TIMESTAMP => {text}) needs a constant, such as TIMESTAMP '2026-01-31 12:00:00', or an expression without columns: {reason}."
        " To read the whole query at a snapshot, use the argument at of lake.sql",
        parameter="at",
    )


def _since_epoch(constant: Literal) -> timedelta:
    assert isinstance(constant.value, int)
    return timedelta(days=constant.value) if constant.type == DATE else timedelta(microseconds=constant.value)


def identifiers(sql: str) -> set[str]:
    """Return everything in a text that may be a name, folded."""
    word, rest = command(sql)
    # Behind these words, the rest of the text is one token.
    if word in ("EXPLAIN", "CALL"):
        return identifiers(rest) if rest else set()
    return {folded(token.text) for token in tokens_of(sql) if token.token_type not in (TokenType.STRING, TokenType.NUMBER)}


_QUERIES = ("SELECT", "FROM", "VALUES", "WITH", "(", "PIVOT", "UNPIVOT", "SUMMARIZE", "DESCRIBE", "DESC", "SHOW", "TABLE", "EXPLAIN")
LIST_PRAGMAS = ("table_info", "show_tables", "show_tables_expanded")
"""Pragmas that list definitions."""
_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")


def is_query(sql: str) -> bool:
    """Return whether a text is a query, and not a statement that changes something.

    >>> is_query("WITH a AS (SELECT 1) FROM a"), is_query("DELETE FROM t"), is_query("WITH a AS (SELECT 1) DELETE FROM t")
    (True, False, False)
    """
    tokens = tokens_of(sql)
    word = tokens[main_word(tokens)].text.upper()
    return word in _QUERIES or (word == "PRAGMA" and len(tokens) > 1 and folded(tokens[1].text) in LIST_PRAGMAS)


def reads_rows(sql: str) -> bool:
    """Return whether a query reads rows of tables, and is not about definitions alone."""
    return keyword(tokens_of(sql)[0]) not in ("SHOW", "PRAGMA", "DESCRIBE", "DESC", "EXPLAIN")


def main_word(tokens: Sequence[Any]) -> int:
    """Return the position of the statement's keyword, behind WITH and its queries."""
    if keyword(tokens[0]) != "WITH":
        return 0
    # The queries of WITH stand in brackets, so the first keyword outside of them is that of the statement.
    depths = accumulate((token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN) for token in tokens)
    outside = (place for place, depth in enumerate(depths) if not depth)
    return next((place for place in outside if keyword(tokens[place]) in (*_QUERIES[:3], *_CHANGES)), 0)
