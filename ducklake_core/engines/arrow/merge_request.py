"""A MERGE as it was asked for: its condition split into keys and the rest, its branches in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from ducklake_core.engines.arrow.row_change import Action, When, flat_columns
from ducklake_core.engines.arrow.row_request import Binder, ChangeRequest, RequestedClause
from ducklake_core.engines.arrow.source_index import key_domain
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.predicates import ColumnReference
from ducklake_core.format.expressions.scalars import Expression
from ducklake_core.format.expressions.sql_trees import column_path, conjuncts, equal_sides, parse_text
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema

_ORDER: tuple[tuple[When, tuple[Action, ...]], ...] = (
    ("matched", ("update", "delete")),
    ("not matched", ("insert",)),
    ("not matched by source", ("update", "delete")),
)


def merge_request(
    table: str, target: Schema, source: Schema, on: str | Sequence[str], clauses: Sequence[tuple[When, Action, Any, str | None]]
) -> ChangeRequest:
    """The change that a MERGE asks for.

    Args:
        table: ``schema.table`` for messages.
        target: The table's columns.
        source: The source's columns.
        on: Name or names of columns that both have, or a condition over ``t.column`` and ``s.column``.
        clauses: Kind of rows, action, values (a mapping, ``"all"``, None for deletes) and condition of each branch.

    Raises:
        UsageError: No branch, one that can never be reached, or columns that are said wrongly.
        NotFoundError: A column that does not exist.
        UnsupportedFeatureError: A condition without an equality of one column of each side.
    """
    if not clauses:
        raise UsageError(f"a merge into {table} needs at least one branch, such as .when_matched_update(...)", table=table)
    binder = Binder(table, target, source)
    keys, residual = _matching(binder, on)
    flat = flat_columns(binder.source, "s")
    for ours, theirs in keys:
        key_domain(target.columns[ours], flat[theirs])
    requested = tuple(_clause(binder, *clause) for clause in clauses)
    for when, _ in _ORDER:
        about = [clause for clause in requested if clause.when == when]
        if any(clause.condition is None for clause in about[:-1]):
            raise UsageError(f"a branch of the merge into {table} follows one without a condition for rows {when!r}: it is never reached")
    return ChangeRequest(table=table, target=target, source=binder.source, keys=keys, residual=residual, clauses=requested)


def stored_names(source: Schema, clauses: Sequence[tuple[When, Action, Any, str | None]]) -> frozenset[str]:
    """Return the folded names of source columns that a branch stores as they are, in the column of the same name.

    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> source = Schema(columns=(Field(id=0, name="a", type=INT32), Field(id=0, name="B", type=INT32)))
    >>> sorted(stored_names(source, [("matched", "update", "all", None)])), stored_names(source, [("matched", "delete", None, None)])
    (['a', 'b'], frozenset())
    """
    found: set[str] = set()
    for _, _, values, _ in clauses:
        if values == "all":
            found |= {folded(column.name) for column in source}
        found |= {folded(name) for name, text in _texts_by_name(values) if _is_same_name(name, text)}
    return frozenset(found)


def computed_names(clauses: Sequence[tuple[When, Action, Any, str | None]]) -> frozenset[str]:
    """Return the folded names in expressions and conditions of branches, without values that are a column of the same name.

    >>> sorted(computed_names([("matched", "update", {"a": "s.a", "b": "s.c + 1"}, "s.d > t.d")]))
    ['c', 'd', 's', 't']

    Raises:
        UsageError: An expression cannot be parsed.
    """
    found: set[str] = set()
    for _, _, values, condition in clauses:
        texts = [text for name, text in _texts_by_name(values) if not _is_same_name(name, text)]
        for text in [*texts, *([condition] if condition is not None else [])]:
            found |= {folded(one.name) for one in parse_text(text).find_all(exp.Identifier)}
    return frozenset(found)


def _texts_by_name(values: object) -> list[tuple[str, str]]:
    return [(name, text) for name, text in values.items() if isinstance(text, str)] if isinstance(values, Mapping) else []


def _is_same_name(name: str, text: str) -> bool:
    path = column_path(parse_text(text))
    return path is not None and len(path) <= len(("s", name)) and folded(path[-1]) == folded(name)


def _clause(binder: Binder, when: When, action: Action, values: Any, condition: str | None) -> RequestedClause:
    bound: tuple[tuple[int, Expression], ...] = ()
    if action != "delete":
        bound = binder.same_names(whole=False) if isinstance(values, str) and values == "all" else binder.values(values)
    return RequestedClause(when=when, action=action, values=bound, condition=None if condition is None else binder.expression(condition))


def _matching(binder: Binder, on: str | Sequence[str]) -> tuple[tuple[tuple[int, int], ...], Expression | None]:
    on = _as_names(binder, on)
    if not isinstance(on, str):
        if not on:
            raise UsageError(f"a merge into {binder.table} needs on=: names of key columns, or a condition", table=binder.table)
        columns = [(binder.target.column(name), binder.source.column(name)) for name in on]
        return tuple((binder.target.columns.index(ours), binder.source.columns.index(theirs)) for ours, theirs in columns), None
    keys: list[tuple[int, int]] = []
    rest: list[str] = []
    for part in conjuncts(on):
        pair = _key(binder, part)
        if pair is None:
            rest.append(part)
        else:
            keys.append(pair)
    if not keys:
        raise UnsupportedFeatureError(
            f"the condition {on!r} of the merge into {binder.table} has no equality between a column of each side, such as t.id = s.id",
            table=binder.table,
        )
    return tuple(keys), binder.expression(" AND ".join(f"({part})" for part in rest)) if rest else None


def _as_names(binder: Binder, on: str | Sequence[str]) -> str | Sequence[str]:
    """A text that is a column's name, and no more, is a list of one name."""
    if not isinstance(on, str):
        return on
    if binder.target.find(on) is not None and binder.source.find(on) is not None:
        return (on,)
    path = column_path(parse_text(on))
    return path if path is not None and len(path) == 1 else on


def _key(binder: Binder, condition: str) -> tuple[int, int] | None:
    sides = equal_sides(condition)
    if sides is None:
        return None
    bound = [binder.expression(side).scalar for side in sides]
    places: dict[str, int] = {}
    for side in bound:
        if not isinstance(side, ColumnReference) or len(side.path) > 1:
            return None
        places[side.path[0][0]] = int(side.path[0][1:])
    return (places["t"], places["s"]) if set(places) == {"t", "s"} else None
