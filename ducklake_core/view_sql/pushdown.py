"""Conditions of a view that one table's scan can decide: they leave out files before Spark sees them."""

from __future__ import annotations

from sqlglot import exp

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.predicate_parser import parse_predicate
from ducklake_core.format.expressions.predicates import And, Not, Or, Predicate, SqlExpression
from ducklake_core.view_sql.parsing import CATALOG
from ducklake_core.view_sql.scopes import Scope
from ducklake_core.view_sql.sources import Sources, TableSource
from ducklake_core.view_sql.typed import Refused


def push_conditions(condition: exp.Expression, scope: Scope, sources: Sources) -> None:
    """Hands every part of a condition that is about one table to that table's scan, where it needs no SQL engine.

    The condition itself stays where it is: only rows that it would drop are left out early.
    """
    for part in _parts(condition):
        if part.find(exp.Query) is None:
            _push(part.copy(), scope, sources)


def _parts(node: exp.Expression) -> list[exp.Expression]:
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += [node.this, node.expression]
        else:
            found.append(node)
    return found


def _push(part: exp.Expression, scope: Scope, sources: Sources) -> None:
    owners = {column: (source, name) for source in sources.tables for column, name in source.used.items()}
    about: TableSource | None = None
    columns = list(part.find_all(exp.Column))
    for column in columns:
        if isinstance(column.this, exp.Star):
            return
        try:
            meant = scope.column(tuple(own.name for own in column.parts)).sql
        except Refused:
            return
        source, name = owners.get(meant, (None, ""))
        if source is None or (about is not None and source is not about):
            return
        about = source
        column.replace(exp.column(exp.to_identifier(name, quoted=True)))
    if about is None:
        return
    text = part.sql("duckdb")
    try:
        predicate = parse_predicate(text, about.table.schema)
    except DuckLakeError:
        return
    if CATALOG not in text and not _is_opaque(predicate):
        about.conditions.append(text)


def _is_opaque(predicate: Predicate) -> bool:
    """Whether a part of it needs a SQL engine."""
    match predicate:
        case SqlExpression():
            return True
        case And(operands=operands) | Or(operands=operands):
            return any(_is_opaque(operand) for operand in operands)
        case Not(operand=operand):
            return _is_opaque(operand)
        case _:
            return any(isinstance(getattr(predicate, name, None), SqlExpression) for name in ("left", "right", "operand"))
