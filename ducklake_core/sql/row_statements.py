"""Take INSERT, UPDATE, DELETE and MERGE statements apart into values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sqlglot import TokenType, exp

from ducklake_core.engines.arrow.merge import When
from ducklake_core.engines.duckdb.query import cast_text
from ducklake_core.errors import SchemaError, UsageError
from ducklake_core.format.types.names import folded, quoted_path
from ducklake_core.format.types.text import counted
from ducklake_core.sql.parts import bracketed, comma_separated, name_of, names_at, outside_brackets, reject, text_between, unsupported
from ducklake_core.sql.time_travel import is_name, keyword, main_word, tokens_of, without_time_travel

if TYPE_CHECKING:
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema


Assigned: TypeAlias = "Mapping[str, str] | tuple[str, ...] | Literal['by position', 'by name', 'defaults']"
"""Expressions as SQL text: by column, or for all columns in their order; or the place that has them."""
Then: TypeAlias = Literal["update", "delete", "insert", "nothing", "error"]

DEFAULT = "DEFAULT"
"""The word for a column's default, in place of a value."""
_AFTER_COLUMNS = ("VALUES", "SELECT", "FROM", "WITH", "BY", "DEFAULT", "TABLE", "(", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """The parts of an INSERT.

    Attributes:
        table: ``schema.table``.
        columns: Names of the columns in the statement; None for all columns of the table.
        by_name: Whether the query's columns are matched by name.
        query: The text of the query.
        rows: The statements of the values, for VALUES.
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
        """Return the text of the query; constants of VALUES become what they are for one by one, as they may be of several types."""
        if self.defaults:
            return f"VALUES ({', '.join(cast_text(default_text(column), column) for _, column in target)})"
        for row in self.rows:
            if len(row) != len(target):
                raise UsageError(
                    f"a row of VALUES has {counted(len(row), 'value')} for {counted(len(target), 'column')}. List the columns or add values"
                )
        rows = [", ".join(row) for row in self._casts(target)]
        query = f"VALUES {', '.join(f'({row})' for row in rows)}" if rows else self.query
        if not self.prefix:
            return query
        # A query has one WITH, so one with a WITH of its own goes into brackets. The line break ends a comment at its end.
        return f"{self.prefix} FROM ({query}\n)" if keyword(tokens_of(query)[0]) in ("WITH", "(") else f"{self.prefix} {query}"

    def _casts(self, target: Sequence[tuple[str, Field]]) -> list[list[str]]:
        return [[cast_text(value_text(text, column), column) for text, (_, column) in zip(row, target, strict=True)] for row in self.rows]

    def check_values(self, target: Sequence[tuple[str, Field]]) -> None:
        """Name the row and the column of a constant that does not fit: DuckDB's own error does not.

        Raises:
            SchemaError: There is one.
        """
        from ducklake_core.engines.duckdb.query import misfit

        found = misfit([one for row in self._casts(target) for one in row])
        if found is not None:
            row, place = divmod(found[0], len(target))
            name = target[place][0]
            raise SchemaError(f"row {row + 1} of VALUES, column {name!r}: {found[1]}", column=name)

    def given(self, schema: Schema) -> list[str]:
        """Return the names of the table's columns in the order of the query's."""
        return [schema.column(name).name for name in self.columns] if self.columns is not None else list(schema.names)


def insert_of(sql: str) -> Insert:
    """Read an INSERT. The query is DuckDB's to read; its words are taken as they are.

    Raises:
        UnsupportedFeatureError: The statement has ON CONFLICT, RETURNING or another clause that is not supported.
        UsageError: It has no table, or no query.
    """
    every = tokens_of(sql)
    tokens = every[main_word(every) :]
    words = [keyword(token) for token in tokens]
    if words[1:2] == ["OR"]:
        reject(f"INSERT {' '.join(words[1:3])}", "MERGE, or table.upsert")
    if words[1:2] != ["INTO"]:
        raise UsageError("cannot parse the SQL. Write INSERT INTO table (columns) VALUES (...), or INSERT INTO table query")
    parts = names_at(tokens, 2)
    start = 1 + 2 * len(parts)
    if words[start : start + 1] == ["AS"]:
        start += 2
    # Brackets behind the table hold its columns or a query: ``INSERT INTO t (SELECT 1)``.
    columns = _column_list(tokens, start)
    if columns is not None:
        start = bracketed(tokens, start)
    by = words[start + 1 : start + 2] if words[start : start + 1] == ["BY"] else []
    start += 2 if by else 0
    if by not in ([], ["NAME"], ["POSITION"]):
        raise UsageError("cannot parse the SQL. Write INSERT ... BY NAME or BY POSITION")
    if start >= len(tokens) or words[start:] == ["VALUES"]:
        raise UsageError("cannot parse the SQL: INSERT has neither VALUES nor a query")
    if by and words[start] == "VALUES":
        raise UsageError("INSERT BY NAME and BY POSITION need a query, because VALUES have no names. List the columns instead")
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
    """Return the columns in brackets; None where a query stands there, or nothing."""
    end = bracketed(tokens, start) if start < len(tokens) and tokens[start].token_type == TokenType.L_PAREN else start
    inside = tokens[start + 1 : end - 1]
    is_list = len(inside) % 2 == 1 and all(
        token.token_type == TokenType.COMMA if place % 2 else is_name(token) for place, token in enumerate(inside)
    )
    if not is_list or not (end >= len(tokens) or keyword(tokens[end]) in _AFTER_COLUMNS):
        return None
    return tuple(token.text for token in inside[::2])


def _check_rest(tokens: Sequence[Any], start: int) -> None:
    """Reject clauses that may follow the rows."""
    words = [keyword(token) for token in tokens]
    outside = outside_brackets(tokens, start)
    if "RETURNING" in (words[place] for place in outside):
        reject("RETURNING in INSERT", "DuckDB does not support it for tables of a lake; query the rows before or after")
    if any(words[place : place + 2] == ["ON", "CONFLICT"] for place in outside):
        reject("ON CONFLICT in INSERT", "MERGE, or table.upsert")


def _rows_of_values(sql: str, tokens: Sequence[Any], start: int) -> tuple[tuple[str, ...], ...]:
    """Return the SQL of the values if the query consists only of VALUES."""
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
    """Return the text of a value for a column, of its default where it is DEFAULT."""
    return default_text(column) if text.upper() == DEFAULT else text


def default_text(column: Field) -> str:
    """Return the default of a column as SQL."""
    if column.default is None:
        return "NULL"
    return f"({column.default})" if column.default_is_expression else exp.Literal.string(column.default).sql("duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """An action for some rows of a statement.

    Attributes:
        when: Rows that the action applies to; rows of an UPDATE or DELETE are matched.
        then: Action.
        condition: Further condition, None for none.
        values: What columns get.
        message: Expression of an error's message.
    """

    when: When
    then: Then
    condition: str | None = None
    values: Assigned = "defaults"
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatement:
    """An UPDATE, DELETE or MERGE.

    Attributes:
        kind: Its first word.
        prefix: The text of WITH, empty where there is none.
        target: The table's name, ``alias`` what it is called in the statement.
        other: The text of FROM or USING, None where there is none.
        where: The condition of an UPDATE or DELETE.
        on: The condition of a MERGE, or names of columns.
        branches: What is done.
    """

    kind: str
    prefix: str = ""
    target: tuple[str, ...]
    alias: str
    other: str | None = None
    where: str | None = None
    on: str | tuple[str, ...] = ""
    branches: tuple[Branch, ...]


def row_statement(sql: str) -> RowStatement:
    """Take a statement apart.

    Raises:
        UnsupportedFeatureError: The statement has RETURNING, or sets a field of a struct.
        UsageError: It is not one.
    """
    return _Parts(sql).statement()


# Statements are cut at keywords outside of brackets and CASE, and the pieces stay text, because DuckDB reads them later:
#
#   WITH ...   MERGE INTO s.t      AS x     USING source     ON condition    WHEN ... THEN ...    WHEN ... THEN ...
#   prefix                target     alias         other        on              branch               branch
#
#   UPDATE s.t SET a = 1 FROM source WHERE condition      is one branch for rows that are "matched", and so is DELETE
class _Parts:
    """The tokens of a statement."""

    def __init__(self, sql: str) -> None:
        every = tokens_of(sql)
        place = main_word(every)
        self._prefix = text_between(sql, every, 0, place) if place else ""
        self._sql = sql
        self._tokens: Sequence[Any] = every[place:]
        self._words = [keyword(token) for token in self._tokens]

    def statement(self) -> RowStatement:
        kind = self._words[0]
        start = 2 if self._words[:2] in (["DELETE", "FROM"], ["MERGE", "INTO"]) else 1
        target = tuple(names_at(self._tokens, start))
        place = start + 2 * len(target) - 1
        alias, place = self._alias(place, target[-1])
        if any(self._words[at] == "RETURNING" for at in self._outside(place)):
            reject(f"RETURNING in {kind}", "DuckDB does not support it for tables of a lake; query the rows before or after")
        if kind == "MERGE":
            return self._merge(target, alias, place)
        values = None
        if kind == "UPDATE":
            self._expect(place, "SET")
            end = next(self._places(place, "FROM", "WHERE"), len(self._tokens))
            values, place = self._assignments(place + 1, end), end
        other = where = None
        if self._word(place) == ("FROM" if kind == "UPDATE" else "USING"):
            end = next(self._places(place, "WHERE"), len(self._tokens))
            other, place = self._text(place + 1, end), end
        if self._word(place) == "WHERE":
            where, place = self._text(place + 1, len(self._tokens)), len(self._tokens)
        if place < len(self._tokens):
            raise UsageError(f"cannot parse the SQL: {self._tokens[place].text} is unexpected")
        branch = Branch(when="matched", then="delete") if values is None else Branch(when="matched", then="update", values=values)
        return RowStatement(kind=kind, prefix=self._prefix, target=target, alias=alias, other=other, where=where, branches=(branch,))

    def _merge(self, target: tuple[str, ...], alias: str, place: int) -> RowStatement:
        self._expect(place, "USING")
        whens = list(self._places(place, "WHEN"))
        if not whens:
            raise UsageError("cannot parse the SQL: WHEN is missing")
        # A source that is a join has conditions of its own.
        end = max(self._places(place + 1, "ON", "USING", end=whens[0]), default=len(self._tokens))
        if self._word(end) == "USING" and end + 1 < whens[0]:
            on: str | tuple[str, ...] = tuple(token.text for token in self._tokens[end + 2 : whens[0] - 1 : 2])
        else:
            on = self._text(end + 1, whens[0])
        branches = tuple(self._branch(start, end) for start, end in pairwise([*whens, len(self._tokens)]))
        for number, branch in enumerate(branches):
            if any(one.when == branch.when and one.condition is None for one in branches[:number]):
                raise UsageError(
                    f"MERGE has an action for rows {branch.when!r} after one without a condition, so it is never used. Change the order"
                )
        source = self._text(place + 1, end)
        return RowStatement(kind="MERGE", prefix=self._prefix, target=target, alias=alias, other=source, on=on, branches=branches)

    def _branch(self, start: int, end: int) -> Branch:
        is_not = self._word(start + 1) == "NOT"
        place = start + 2 + is_not
        by = self._word(place + 1) if self._word(place) == "BY" else ""
        place += 2 if by else 0
        when: When = ("not matched by source" if by == "SOURCE" else "not matched") if is_not else "matched"
        then = next(self._places(place, "THEN", end=end), end)
        condition = self._text(place + 1, then) if self._word(place) == "AND" else None
        if (place != then and condition is None) or self._word(start + 1 + is_not) != "MATCHED" or then + 1 >= end:
            raise UsageError("cannot parse the SQL. Write actions of MERGE as WHEN [NOT] MATCHED [BY SOURCE] [AND condition] THEN action")
        action, place = self._word(then + 1), then + 2
        rest = tuple(self._words[place:end])
        match action:
            case "DELETE" if not rest and when != "not matched":
                return Branch(when=when, then="delete", condition=condition)
            case "DO" if rest == ("NOTHING",):
                return Branch(when=when, then="nothing", condition=condition)
            case "ERROR":
                return Branch(when=when, then="error", condition=condition, message=self._text(place, end) if rest else None)
            case "UPDATE" if when != "not matched":
                values: Assigned | None = _by(rest[1:] if rest[:1] == ("SET",) and rest[1:] == ("*",) else rest)
                if values is None:
                    self._expect(place, "SET")
                    values = self._assignments(place + 1, end)
                return Branch(when=when, then="update", condition=condition, values=values)
            case "INSERT" if when == "not matched":
                return Branch(when=when, then="insert", condition=condition, values=_by(rest) or self._inserted(place, end))
        raise unsupported(f"{self._text(then + 1, end)} in MERGE, WHEN {when.upper()}")

    def _inserted(self, place: int, end: int) -> Assigned:
        """Return the values of ``(columns) VALUES (...)``."""
        if tuple(self._words[place:end]) == ("DEFAULT", "VALUES"):
            return "defaults"
        names: list[str] | None = None
        if place < end and self._tokens[place].token_type == TokenType.L_PAREN:
            closed = place + bracketed(self._tokens[place:end], 0)
            names, place = [token.text for token in self._tokens[place + 1 : closed - 1 : 2]], closed
        self._expect(place, "VALUES")
        closed = place + 1 + bracketed(self._tokens[place + 1 : end], 0)
        values = comma_separated(self._sql, self._tokens[place + 2 : closed - 1])
        if closed != end:
            reject("several rows in INSERT of MERGE")
        if names is None:
            return tuple(values)
        if len(names) != len(values):
            raise UsageError(f"INSERT lists {len(names)} columns, but has {len(values)} values")
        return _each_once(zip(names, values, strict=True))

    def _assignments(self, start: int, end: int) -> Mapping[str, str]:
        """Return the values by column of ``a = 1, (b, c) = (2, 3)``."""
        commas = [at for at in self._outside(start, end) if self._tokens[at].token_type == TokenType.COMMA]
        found: list[tuple[str, str]] = []
        for first, last in zip([start, *(at + 1 for at in commas)], [*commas, end], strict=True):
            equals = next((at for at in self._outside(first, last) if self._tokens[at].token_type == TokenType.EQ), last)
            if equals + 1 >= last:
                raise UsageError("cannot parse the SQL. Write SET column = value")
            names, value = self._tokens[first:equals], self._text(equals + 1, last)
            if names[0].token_type == TokenType.L_PAREN:
                found += self._row(names, equals + 1, last)
            elif len(names) != 1 or not is_name(names[0]):
                reject(f"SET {self._text(first, last)}")
            else:
                found.append((names[0].text, value))
        return _each_once(found)

    def _row(self, names: Sequence[Any], start: int, end: int) -> list[tuple[str, str]]:
        start += self._word(start) == "ROW"
        inside = self._tokens[start + 1 : end - 1]
        is_row = self._tokens[start].token_type == TokenType.L_PAREN and start + bracketed(self._tokens[start:end], 0) == end
        values = comma_separated(self._sql, inside) if is_row and inside and keyword(inside[0]) not in ("SELECT", "FROM", "WITH") else []
        if len(values) != len(names[1:-1:2]):
            reject(f"SET {text_between(self._sql, names, 0)} = {self._text(start, end)}", "one value for each column")
        return [(name.text, value) for name, value in zip(names[1:-1:2], values, strict=True)]

    def _alias(self, place: int, name: str) -> tuple[str, int]:
        """Return the name of the table in the statement, and the position behind it."""
        if self._word(place) == "AS" and place + 1 < len(self._tokens):
            return self._tokens[place + 1].text, place + 2
        if place < len(self._tokens) and is_name(self._tokens[place]) and self._word(place) not in ("SET", "USING", "WHERE", "RETURNING"):
            return self._tokens[place].text, place + 1
        return name, place

    def _word(self, place: int) -> str:
        return self._words[place] if place < len(self._words) else ""

    def _expect(self, place: int, word: str) -> None:
        if self._word(place) != word:
            raise UsageError(f"cannot parse the SQL: {word} is missing")

    def _text(self, start: int, end: int) -> str:
        if start >= end:
            raise UsageError("cannot parse the SQL: a part is missing")
        return text_between(self._sql, self._tokens, start, end)

    def _outside(self, start: int, end: int | None = None) -> Iterator[int]:
        """Yield the places in no brackets and in no CASE."""
        depth = 0
        for place in outside_brackets(self._tokens[:end], start):
            # ``s.end`` is a field, not the end of a CASE.
            is_field = place > 0 and self._tokens[place - 1].token_type == TokenType.DOT
            word = "" if is_field else self._words[place]
            depth += word == "CASE"
            if not depth:
                yield place
            depth -= word == "END"

    def _places(self, start: int, *words: str, end: int | None = None) -> Iterator[int]:
        """Yield the positions of words that begin a clause."""
        for place in self._outside(start, end):
            # IS DISTINCT FROM is an operator.
            is_part = self._words[place] == "FROM" and self._words[place - 1] == "DISTINCT"
            if self._words[place] in words and not is_part:
                yield place


def _by(rest: Sequence[str]) -> Literal["by position", "by name"] | None:
    if tuple(rest) == ("BY", "NAME"):
        return "by name"
    return "by position" if tuple(rest) in ((), ("*",), ("BY", "POSITION")) else None


def _each_once(found: Any) -> Mapping[str, str]:
    values: dict[str, str] = {}
    known: set[str] = set()
    for name, value in found:
        if folded(name) in known:
            raise UsageError(f"column {name!r} is set twice. Set it once", column=name)
        known.add(folded(name))
        values[name] = value
    return values


def under_alias(sql: str, name: Sequence[str], alias: str) -> str:
    """Return a text in which columns with a table's whole name before them have its alias there.

    >>> under_alias("s.t.a + t.b", ("s", "t"), "t")
    '"t".a + t.b'

    Args:
        sql: The text of an expression.
        name: Schema and name of the table.
        alias: What the statement calls it.
    """
    if len(name) < 2:
        return sql
    wanted = [folded(part) for part in name]
    tokens = tokens_of(sql)
    pieces: list[str] = []
    done = place = 0
    while place < len(tokens):
        start = place
        place += 1
        if not is_name(tokens[start]):
            continue
        while place + 1 < len(tokens) and tokens[place].token_type == TokenType.DOT and is_name(tokens[place + 1]):
            place += 2
        parts = [folded(token.text) for token in tokens[start:place:2]]
        has_more = len(parts) > len(wanted) or (place < len(tokens) and tokens[place].token_type == TokenType.DOT)
        if parts[: len(wanted)] == wanted and has_more:
            pieces += [sql[done : tokens[start].start], quoted_path((alias,))]
            done = tokens[start + 2 * len(wanted) - 2].end + 1
    return "".join([*pieces, sql[done:]])


def source_name(text: str) -> tuple[tuple[str, ...], str] | None:
    """Return the name of a source as it is written, and what it is called; None for a query without a name.

    >>> source_name("s.u AS x"), source_name("(SELECT 1 AS k) AS y(k)"), source_name("range(3) r"), source_name("(VALUES (1))")
    ((('s', 'u'), 'x'), (('y',), 'y'), (('r',), 'r'), None)

    Raises:
        UnsupportedFeatureError: It is a join.
    """
    # A name, a call or brackets, and perhaps an alias with names of columns behind it. Whatever is left over makes it a join.
    tokens = tokens_of(without_time_travel(text)[0])
    names: tuple[str, ...] = ()
    place = 0
    if is_name(tokens[0]) and tokens[0].token_type != TokenType.L_PAREN:
        names = tuple(names_at(tokens, 0))
        place = 2 * len(names) - 1
    is_call = False
    if place < len(tokens) and tokens[place].token_type == TokenType.L_PAREN:
        is_call, place = bool(names), bracketed(tokens[place:], 0) + place
    place += place < len(tokens) and keyword(tokens[place]) == "AS"
    if place < len(tokens) and is_name(tokens[place]):
        alias, place = tokens[place].text, place + 1
        if place < len(tokens) and tokens[place].token_type == TokenType.L_PAREN:
            place += bracketed(tokens[place:], 0)
        if place >= len(tokens):
            return (names if names and not is_call else (alias,)), alias
    is_query = keyword(tokens[1]) in ("SELECT", "FROM", "VALUES", "WITH", "(") if len(tokens) > 1 and not names else bool(names)
    if place < len(tokens) or not is_query:
        reject("a join as the source of MERGE", "USING (SELECT ... FROM ... JOIN ...) AS name")
    return (names, names[-1]) if names else None
