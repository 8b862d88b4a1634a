"""INSERT, UPDATE, DELETE and MERGE as the verbs that do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import TokenType, exp

from ducklake_core.engines.duckdb.query import cast_text
from ducklake_core.errors import UsageError
from ducklake_core.format.types.names import folded, split_name
from ducklake_core.sql.parts import (
    as_path,
    bracketed,
    comma_separated,
    find_word,
    only,
    refuse,
    table_name,
    text_between,
    without_qualifier,
)
from ducklake_core.sql.time_travel import tokens_of

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


def insert_of(sql: str, node: exp.Insert) -> Insert:
    """Read an INSERT.

    Raises:
        UnsupportedFeatureError: ON CONFLICT, RETURNING, DEFAULT among values and the like.
    """
    if node.args.get("alternative"):
        refuse(f"INSERT OR {node.args['alternative']}", "MERGE, or table.upsert")
    only(node, "this", "expression", "by_name")
    if node.expression is None or node.expression is False:
        refuse("INSERT without a query or VALUES")
    if isinstance(node.expression, exp.Values) and any(one.name == "DEFAULT" for one in node.expression.find_all(exp.Var)):
        refuse("DEFAULT among VALUES", "leave the column out")
    tokens = tokens_of(sql)
    start = find_word(tokens, "INTO") + 1
    while start + 1 < len(tokens) and tokens[start + 1].token_type == TokenType.DOT:
        start += 2
    start += 1
    columns = tuple(one.name for one in node.this.expressions) if isinstance(node.this, exp.Schema) else None
    if columns is not None:
        start = bracketed(tokens, start)
    if tokens[start].text.upper() == "BY":
        start += 2
    query = text_between(sql, tokens, start)
    rows: tuple[tuple[str, ...], ...] = ()
    if tokens[start].text.upper() == "VALUES" and isinstance(node.expression, exp.Values):
        written = tokens_of(sql[tokens[start].end + 1 :])
        rest = sql[tokens[start].end + 1 :]
        rows = tuple(tuple(comma_separated(text[1:-1], tokens_of(text[1:-1]))) for text in comma_separated(rest, written))
    return Insert(table=table_name(node.this), columns=columns, by_name=bool(node.args.get("by_name")), query=query, rows=rows)


def update_of(node: exp.Update) -> tuple[str, dict[str, object], str | None]:
    """The table, the values by column and the condition of an UPDATE.

    Raises:
        UnsupportedFeatureError: FROM, RETURNING, DEFAULT as a value.
    """
    if node.args.get("from_") or node.args.get("from"):
        refuse("UPDATE ... FROM", "MERGE does the same")
    only(node, "this", "expressions", "where")
    name = table_name(node.this)
    names = _own_names(node.this, name)
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
    return name, _condition(node, _own_names(node.this, name))


def assignments(nodes: Sequence[exp.Expression], text: Callable[[exp.Expression], exp.Expression]) -> dict[str, object]:
    """Values by column of ``SET a = 1, b = a + 1``."""
    found: dict[str, object] = {}
    for node in nodes:
        if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column):
            refuse(f"SET {node.sql('duckdb')}")
        if isinstance(node.expression, exp.Column) and node.expression.sql() == "DEFAULT":
            refuse("DEFAULT as a value")
        if node.this.name in found:
            raise UsageError(f"column {node.this.name!r} is set twice", column=node.this.name)
        found[node.this.name] = text(node.expression).sql("duckdb")
    return found


def _own_names(table: exp.Expression, name: str) -> tuple[str, ...]:
    return (table.alias,) if table.alias else (split_name(name)[1],)


def _condition(node: exp.Expression, names: Sequence[str]) -> str | None:
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
    sides: Mapping[str, str]

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

        def lettered(part: exp.Expression) -> exp.Expression:
            if isinstance(part, exp.Column) and len(part.parts) > 1 and folded(part.parts[0].name) in self.sides:
                return as_path([self.sides[folded(part.parts[0].name)], *(one.name for one in part.parts[1:])])
            return part

        found = node.transform(lettered)
        assert isinstance(found, exp.Expression)
        return found


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
    sides = {folded(node.this.alias or split_name(name)[1]): "t", folded(source.alias_or_name): "s"}
    if len(sides) < 2:
        refuse("MERGE of a table with itself under one name")
    found = MergeStatement(table=name, source=f"FROM {text_between(sql, tokens, using + 1, end)}", on="", node=node, sides=sides)
    keys = node.args.get("using_cond")
    on = [one.name for one in keys] if keys else found.text(node.args["on"]).sql("duckdb")
    return MergeStatement(table=name, source=found.source, on=on, node=node, sides=sides)
