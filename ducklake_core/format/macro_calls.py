"""Calls of scalar macros in conditions, replaced by what the macros say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.macro_text import MacroImplementation
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.type_names import duckdb_type, parse_leaf_type

_DEEPEST = 16
_MOST_CALLS = 1000
_SHOWN = 1000
# Without a parser, which long conditions would pay for twice. A word is read once, however long: from its start on alone, and possessively.
_CALL = re.compile(r"(?<!\w)(\w++)\"?\s*+\(")
_KEYWORDS = frozenset(
    {"and", "or", "not", "in", "any", "all", "between", "like", "ilike", "similar", "is", "from", "case", "when", "then", "else", "cast",
     "try_cast", "extract", "substring", "trim", "position", "exists", "interval", "decimal", "numeric", "varchar", "struct", "map", "row"}
)  # fmt: skip


def called_functions(sql: str) -> frozenset[str]:
    """What may be names of functions in an expression that are none of DuckDB's known ones, folded.

    >>> sorted(called_functions("late(x, 5) AND (abs(y) > 1 OR y IN (1, 2))"))
    ['late']
    """
    found = {folded(name) for name in _CALL.findall(sql)}
    return frozenset(name for name in found if name not in _KEYWORDS and name.upper() not in DuckDB.Parser.FUNCTIONS)


def with_macros(sql: str, macros: Mapping[str, Sequence[MacroImplementation]]) -> str:
    """An expression without calls of macros.

    >>> from ducklake_core.format.macro_text import implementations
    >>> late = implementations("late", {"x, minutes INTEGER := 15": "x > minutes"}, "scalar")
    >>> with_macros("NOT late(delay)", {"late": late})
    "NOT (delay > CAST('15' AS INT))"

    Args:
        sql: The expression.
        macros: The definitions of scalar macros by their folded names.

    Raises:
        UsageError: No definition, or several, take the arguments.
        UnsupportedFeatureError: A macro that calls itself, or a definition that cannot be put in place of its call.
    """
    # A root of its own, so that every call has a parent.
    tree, count = exp.Paren(this=sqlglot.parse_one(sql, read="duckdb")), 0
    for _ in range(_DEEPEST):
        calls = [node for node in tree.find_all(exp.Anonymous) if folded(node.name) in macros]
        count += len(calls)
        if not calls:
            return str(tree.this.sql("duckdb"))
        if count > _MOST_CALLS:
            break
        # The innermost first, so that arguments are whole when they are put in place.
        for call in reversed(calls):
            call.replace(_put_in_place(call, macros[folded(call.name)]))
    raise UnsupportedFeatureError(f"macros are called too often, or call themselves, in {sql[:_SHOWN]!r}", expression=sql)


def _put_in_place(call: exp.Anonymous, definitions: Sequence[MacroImplementation]) -> exp.Expression:
    meant = [(one, values) for one in definitions if (values := _arguments(call, one)) is not None]
    if len(meant) == 1:
        return exp.Paren(this=_substituted(*meant[0], call.name))
    known = "; ".join(f"{call.name}({', '.join(parameter.name for parameter in one.parameters)})" for one in definitions)
    count = "several definitions" if meant else "no definition"
    raise UsageError(f"{count} of the macro can take the arguments of {call.sql('duckdb')}: {known}", macro=call.name)


def _arguments(call: exp.Anonymous, one: MacroImplementation) -> dict[str, exp.Expression] | None:
    """What the parameters stand for, None when the definition is not meant."""
    named = {folded(node.this.name): node.expression for node in call.expressions if isinstance(node, exp.PropertyEQ | exp.Kwarg)}
    places = [node for node in call.expressions if not isinstance(node, exp.PropertyEQ | exp.Kwarg)]
    if len(places) > len(one.parameters) or not set(named) <= {folded(parameter.name) for parameter in one.parameters}:
        return None
    found: dict[str, exp.Expression] = {}
    for place, parameter in enumerate(one.parameters):
        name = folded(parameter.name)
        if place < len(places):
            value = places[place]
        elif name in named:
            value = named[name]
        elif parameter.default is not None and parameter.default_type is not None:
            value = exp.cast(exp.Literal.string(parameter.default), duckdb_type(parse_leaf_type(parameter.default_type)), dialect="duckdb")
        else:
            return None
        is_typed = parameter.type is not None and (place < len(places) or name in named)
        found[name] = exp.cast(value, duckdb_type(parse_leaf_type(parameter.type or "")), dialect="duckdb") if is_typed else value
    return found


def _substituted(one: MacroImplementation, values: Mapping[str, exp.Expression], name: str) -> exp.Expression:
    try:
        body = sqlglot.parse_one(one.sql, read="duckdb")
    except SqlglotError as problem:
        raise UnsupportedFeatureError(f"the macro {name} cannot be parsed: {one.sql}", macro=name) from problem
    if body.find(exp.Query, exp.Lambda):
        raise UnsupportedFeatureError(f"the macro {name} holds a query or a lambda, which no condition does", macro=name)

    def meant(node: exp.Expr) -> exp.Expr:
        value = values.get(folded(node.name)) if isinstance(node, exp.Column) and not node.table else None
        if value is None:
            return node
        return value.copy() if isinstance(value, exp.Column | exp.Literal | exp.Cast) else exp.Paren(this=value.copy())

    found = body.transform(meant)
    assert isinstance(found, exp.Expression)
    return found
