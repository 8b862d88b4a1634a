"""INSERT, UPDATE, DELETE and MERGE as the verbs that do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import TokenType, exp

from ducklake_core.engines.duckdb.query import cast_text
from ducklake_core.errors import UsageError
from ducklake_core.format.types.names import folded, split_name
from ducklake_core.format.view_text import table_names
from ducklake_core.sql.parts import (
    bracketed,
    comma_separated,
    find_word,
    name_of,
    names_at,
    only,
    outside_brackets,
    qualifiers,
    refuse,
    requalified,
    table_name,
    text_between,
    without_qualifier,
)
from ducklake_core.sql.time_travel import is_name, keyword, tokens_of

if TYPE_CHECKING:
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.merge_builder import Merge

Rows: TypeAlias = Any
"""What a query gave: a stream of Arrow batches, or a DataFrame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """What an INSERT says.

    Attributes:
        table: ``schema.table``.
        columns: Names of the columns that are given, all of the table's when None.
        by_name: Whether the names of the query's columns say which they are.
        query: The text of the query.
        rows: The texts of the values, for VALUES.
    """

    table: str
    columns: tuple[str, ...] | None
    by_name: bool
    query: str
    rows: tuple[tuple[str, ...], ...] = ()

    def query_for(self, target: Sequence[tuple[str, Field]]) -> str:
        """The text of the query; constants of VALUES become what they are for one by one, as they may be of several types."""
        for row in self.rows:
            if len(row) != len(target):
                raise UsageError(f"a row of VALUES has {len(row)} values, for {len(target)} columns of the table")
        rows = [", ".join(cast_text(text, column) for text, (_, column) in zip(row, target, strict=True)) for row in self.rows]
        return f"VALUES {', '.join(f'({row})' for row in rows)}" if rows else self.query

    def given(self, schema: Schema) -> list[str]:
        """Names of the table's columns in the order of the query's."""
        return [schema.column(name).name for name in self.columns] if self.columns is not None else list(schema.names)


_AFTER_COLUMNS = ("VALUES", "SELECT", "FROM", "WITH", "BY", "DEFAULT", "TABLE", "(", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")


def insert_of(sql: str) -> Insert:
    """Read an INSERT. The query is DuckDB's to read; its words are taken as they are.

    Raises:
        UnsupportedFeatureError: ON CONFLICT, RETURNING, DEFAULT among values and the like.
        UsageError: It has no table, or no query.
    """
    tokens = tokens_of(sql)
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
    _check_rest(tokens, start)
    return Insert(
        table=name_of(parts),
        columns=columns,
        by_name=by == ["NAME"],
        query=text_between(sql, tokens, start),
        rows=_rows_of_values(sql, tokens, start),
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
    """Refuse what may follow the rows, and DEFAULT in place of them."""
    words = [keyword(token) for token in tokens]
    outside = outside_brackets(tokens, start)
    if "RETURNING" in (words[place] for place in outside):
        refuse("RETURNING in INSERT")
    if any(words[place : place + 2] == ["ON", "CONFLICT"] for place in outside):
        refuse("ON CONFLICT in INSERT", "MERGE, or table.upsert")
    if words[start : start + 2] == ["DEFAULT", "VALUES"]:
        refuse("INSERT ... DEFAULT VALUES", "name a column, and its NULL or value")
    is_default = (token.token_type == TokenType.DEFAULT for token in tokens[start:])
    if words[start] == "VALUES" and any(is_default):
        refuse("DEFAULT among VALUES", "leave the column out")


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


def update_of(node: exp.Update) -> tuple[str, dict[str, object], str | None]:
    """The table, the values by column and the condition of an UPDATE.

    Raises:
        UnsupportedFeatureError: FROM, RETURNING, DEFAULT as a value.
    """
    if node.args.get("from_") or node.args.get("from"):
        refuse("UPDATE ... FROM", "MERGE does the same")
    only(node, "this", "expressions", "where")
    name = table_name(node.this)
    names = qualifiers(node.this)
    values = assignments(node.expressions, lambda value: without_qualifier(value, *names))
    return name, values, _condition(node, names)


def delete_of(node: exp.Expression) -> tuple[str, str | None]:
    """The table and the condition of a DELETE or TRUNCATE.

    Raises:
        UnsupportedFeatureError: USING, RETURNING.
    """
    if isinstance(node, exp.TruncateTable):
        only(node, "expressions")
        return table_name(node.expressions[0]), None
    if node.args.get("using"):
        refuse("DELETE ... USING", "MERGE does the same")
    only(node, "this", "where")
    name = table_name(node.this)
    return name, _condition(node, qualifiers(node.this))


def assignments(nodes: Sequence[exp.Expression], text: Callable[[exp.Expression], exp.Expression]) -> dict[str, object]:
    """Values by column of ``SET a = 1, b = a + 1``."""
    found: dict[str, object] = {}
    for node in nodes:
        # DuckDB takes neither fields of structs nor names with the table's in front.
        if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column) or len(node.this.parts) > 1:
            refuse(f"SET {node.sql('duckdb')}")
        if isinstance(node.expression, exp.Column) and node.expression.sql() == "DEFAULT":
            refuse("DEFAULT as a value")
        if folded(node.this.name) in map(folded, found):
            raise UsageError(f"column {node.this.name!r} is set twice", column=node.this.name)
        found[node.this.name] = text(node.expression).sql("duckdb")
    return found


def _condition(node: exp.Expression, names: Sequence[tuple[str, ...]]) -> str | None:
    where = node.args.get("where")
    return None if where is None else without_qualifier(where.this, *names).sql("duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStatement:
    """What a MERGE says.

    Attributes:
        table: ``schema.table``.
        source: The query of the source's rows.
        on: A condition over ``t`` and ``s``, or names of columns.
        node: The statement; ``sides`` are the letters by the names that it gives both sides.
    """

    table: str
    source: str
    on: str | list[str]
    node: exp.Merge
    sides: Mapping[tuple[str, ...], tuple[str, ...]]

    def add_branches(self, merge: Merge[None], target: Schema) -> None:
        """Add the branches in their order.

        Raises:
            UnsupportedFeatureError: An action that no verb does.
        """
        for when in self.node.args["whens"].expressions:
            condition = when.args.get("condition")
            self._add(merge, when, None if condition is None else self.text(condition).sql("duckdb"), target)

    def _add(self, merge: Merge[None], when: exp.Expression, where: str | None, target: Schema) -> None:
        matched, by_source, then = bool(when.args.get("matched")), bool(when.args.get("source")), when.args["then"]
        is_delete = isinstance(then, exp.Var) and then.name.upper() == "DELETE"
        if matched and is_delete:
            merge.when_matched_delete(where=where)
        elif matched and isinstance(then, exp.Update):
            merge.when_matched_update(self._set(then), where=where)  # type: ignore[arg-type]
        elif by_source and is_delete:
            merge.when_not_matched_by_source_delete(where=where)
        elif by_source and isinstance(then, exp.Update) and then.expressions:
            merge.when_not_matched_by_source_update(assignments(then.expressions, self.text), where=where)
        elif not matched and not by_source and isinstance(then, exp.Insert):
            merge.when_not_matched_insert(self._inserted(then, target), where=where)  # type: ignore[arg-type]
        else:
            refuse(f"{then.sql('duckdb')} in MERGE")

    def _set(self, then: exp.Update) -> dict[str, object] | str:
        if not then.expressions or isinstance(then.expressions[0], exp.Star):
            return "all"
        return assignments(then.expressions, self.text)

    def _inserted(self, then: exp.Insert, target: Schema) -> dict[str, object] | str:
        values = then.args.get("expression")
        if not values:
            if then.this and not isinstance(then.this, exp.Star):
                refuse(then.sql("duckdb"))
            return "all"
        names = [one.name for one in then.this.expressions] if then.this else list(target.names)
        if len(names) != len(values.expressions):
            raise UsageError(f"INSERT names {len(names)} columns and has {len(values.expressions)} values")
        return {name: self.text(value).sql("duckdb") for name, value in zip(names, values.expressions, strict=True)}

    def text(self, node: exp.Expression) -> exp.Expression:
        """An expression over ``t`` and ``s``."""

        return requalified(node, self.sides)


def merge_of(sql: str, node: exp.Merge) -> MergeStatement:
    """Read a MERGE.

    Raises:
        UnsupportedFeatureError: A WITH clause, RETURNING, a source without a name.
    """
    only(node, "this", "using", "on", "using_cond", "whens")
    tokens = tokens_of(sql)
    using = find_word(tokens, "USING")
    end = find_word(tokens, "ON", "USING", start=using + 1)
    name, source = table_name(node.this), node.args["using"]
    if not source.alias_or_name:
        refuse("a source of MERGE without a name")
    if folded(node.this.alias or split_name(name)[1]) == folded(source.alias_or_name):
        refuse("MERGE of a table with itself under one name")
    by_source = qualifiers(source) if isinstance(source, exp.Table) and table_names(source) else ((source.alias_or_name,),)
    sides = {**dict.fromkeys(by_source, ("s",)), **dict.fromkeys(qualifiers(node.this), ("t",))}
    found = MergeStatement(table=name, source=f"FROM {text_between(sql, tokens, using + 1, end)}", on="", node=node, sides=sides)
    keys = node.args.get("using_cond")
    on = [one.name for one in keys] if keys else found.text(node.args["on"]).sql("duckdb")
    return MergeStatement(table=name, source=found.source, on=on, node=node, sides=sides)
