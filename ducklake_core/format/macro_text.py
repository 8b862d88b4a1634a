"""Macros as values, and what users write of them (specification: ducklake_macro_impl, ducklake_macro_parameters).

DuckDB reads every macro of a lake before it does anything else there: one that it cannot read takes the whole lake along. So what
it would not take in CREATE MACRO is refused, and defaults that it stores but cannot load again, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.reconciliation import promotes
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicates import Literal as Constant
from ducklake_core.format.expressions.sql_constants import QuotedText, constant_of
from ducklake_core.format.expressions.sql_trees import parse_text
from ducklake_core.format.types.data_types import GEOMETRY, JSON, VARCHAR, VARIANT, DataType, PrimitiveType
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.type_names import duckdb_type, type_text
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.value_text import to_cast_text

MacroKind: TypeAlias = Literal["scalar", "table"]
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroParameter:
    """One parameter.

    Attributes:
        type: A type as in ``ducklake_column``, None for any.
        default: Text of the value when none is given, None when one must be; ``default_type`` is its type.
    """

    name: str
    type: str | None = None
    default: str | None = None
    default_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroImplementation:
    """One of a macro's definitions; which one a call means goes by its arguments.

    Attributes:
        kind: ``scalar`` makes a value of an expression, ``table`` makes rows of a query.
        dialect: Language of ``sql``; DuckDB writes ``duckdb``.
        sql: The expression or query.
    """

    kind: MacroKind
    dialect: str
    sql: str
    parameters: tuple[MacroParameter, ...] = ()


def implementations(name: str, definitions: Mapping[str, str], kind: MacroKind) -> tuple[MacroImplementation, ...]:
    """The definitions of a macro, from the text of each one's parameters and its expression or query.

    >>> (one,) = implementations("late", {"x, minutes INTEGER := 15": "x > minutes"}, "scalar")
    >>> one.sql, [(p.name, p.type, p.default, p.default_type) for p in one.parameters]
    ('x > minutes', [('x', None, None, None), ('minutes', 'int32', '15', 'int32')])

    Raises:
        UsageError: What is wrong with it.
        UnsupportedFeatureError: What the catalog cannot hold, or cannot be parsed here.
    """
    if kind not in ("scalar", "table"):
        raise UsageError(f"a macro is of kind 'scalar' or 'table', not {kind!r}", macro=name)
    if not definitions:
        raise UsageError(f"macro {name} needs definitions: a mapping of parameters to SQL, such as {{'x': 'x * 2'}}", macro=name)
    found: list[MacroImplementation] = []
    for parameters, sql in definitions.items():
        try:
            known = _parameters(parameters)
            text = _body(sql, kind, known)
        except DuckLakeError as error:
            raise type(error)(f"macro {name}({parameters}): {error.message}", **error.details, macro=name) from error
        found.append(MacroImplementation(kind=kind, dialect="duckdb", sql=text, parameters=known))
    types = [tuple(parameter.type for parameter in one.parameters) for one in found]
    if len(set(types)) < len(types):
        raise UsageError(f"macro {name} has several definitions with the same number and types of parameters", macro=name)
    return tuple(found)


def _parameters(text: str) -> tuple[MacroParameter, ...]:
    found = tuple(_parameter(part, text) for part in _split(_tokens(text)))
    names = [folded(parameter.name) for parameter in found]
    if len(set(names)) < len(names):
        raise UsageError("two of its parameters have one name")
    with_default = [parameter.default is not None for parameter in found]
    if with_default != sorted(with_default):
        raise UsageError("a parameter without a default follows one that has one")
    return found


def _tokens(text: str) -> list[Any]:
    try:
        return list(DuckDB().tokenize(text))
    except SqlglotError as problem:
        raise UsageError(f"cannot read {text!r}: {problem}") from problem


def _split(tokens: Sequence[Any]) -> list[list[Any]]:
    """Parts between commas that are in no brackets."""
    parts: list[list[Any]] = [[]] if tokens else []
    depth = 0
    for token in tokens:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.token_type.name == "COMMA" and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _parameter(tokens: Sequence[Any], text: str) -> MacroParameter:
    if not tokens or tokens[0].token_type.name in ("STRING", "NUMBER") or not tokens[0].text.strip():
        raise UsageError(f"{text!r} are no parameters: write names, such as 'x, y INTEGER, z := 5'")
    name, rest = tokens[0].text, list(tokens[1:])
    at = next((place for place, token in enumerate(rest) if token.token_type.name == "COLON_EQ"), len(rest))
    typed, default = rest[:at], rest[at + 1 :]
    kind = _leaf_type(text[typed[0].start : typed[-1].end + 1]) if typed else None
    type_ = None if kind is None else type_text(kind)
    if at == len(rest):
        return MacroParameter(name=name, type=type_)
    constant = _default(text[default[0].start : default[-1].end + 1] if default else "", kind)
    return MacroParameter(name=name, type=type_, default=to_cast_text(constant.value, constant.type), default_type=type_text(constant.type))


def _leaf_type(text: str) -> DataType:
    found = data_type_of(text)
    if not isinstance(found, PrimitiveType) and type_text(found) in ("list", "map", "struct"):
        raise UnsupportedFeatureError(f"the catalog does not hold {text!r} as the type of a parameter; leave the type away")
    if found in (VARIANT, GEOMETRY):
        raise UnsupportedFeatureError(f"parameters of type {text!r} are not supported; leave the type away")
    return found


def _default(text: str, kind: DataType | None) -> Constant:
    """The constant of a default: of its own type where that becomes the parameter's, else of the parameter's type."""
    constant = constant_of(parse_text(text, "default"))
    if isinstance(constant, QuotedText):
        typed = Constant(value=constant.text, type=VARCHAR) if kind is None or kind == VARCHAR else text_literal(constant.text, kind)
        if typed is None:
            raise UsageError(f"the default {text} is not a value of type {kind}")
        return typed
    if constant is None or constant.value is None:
        raise UnsupportedFeatureError(f"the default {text!r} is no constant, or NULL: only constants with a value are read again by DuckDB")
    if kind is None or constant.type == kind or (promotes(constant.type, kind) and kind != JSON):
        return constant
    cast = constant_of(parse_text(f"CAST({text} AS {duckdb_type(kind)})", "default"))
    if not isinstance(cast, Constant) or cast.value != constant.value:
        raise UsageError(f"the default {text} is not a value of type {kind}")
    return cast


def _body(sql: str, kind: MacroKind, parameters: Sequence[MacroParameter]) -> str:
    """The expression or query as it is stored: as it was written, without what follows its last word."""
    try:
        tokens = DuckDB().tokenize(sql)
        while tokens and tokens[-1].token_type.name == "SEMICOLON":
            tokens.pop()
        text = sql[tokens[0].start : tokens[-1].end + 1] if tokens else ""
        # An expression stands where one of a SELECT stands.
        parsed = sqlglot.parse(f"SELECT {text}" if kind == "scalar" else text, read="duckdb")
    except SqlglotError as problem:
        raise UnsupportedFeatureError(f"cannot parse {sql!r}: {problem}", sql=sql) from problem
    node = parsed[0] if len(parsed) == 1 else None
    if kind == "table":
        if not isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
            raise UsageError(f"a table macro is one SELECT, and {sql!r} is not", sql=sql)
    else:
        _check_expression(node, sql, parameters)
    if node is None or node.find(exp.Placeholder, exp.Parameter, exp.Into):
        raise UsageError(f"a macro has named parameters only and writes nothing: {sql!r}", sql=sql)
    return text


def _check_expression(node: Any, sql: str, parameters: Sequence[MacroParameter]) -> None:
    plain = isinstance(node, exp.Select) and len(node.expressions) == 1
    if not plain or any(value for key, value in node.args.items() if key != "expressions") or isinstance(node.expressions[0], exp.Alias):
        raise UsageError(f"a scalar macro is one expression, and {sql!r} is not; kind='table' makes rows", sql=sql)
    if node.expressions[0].find(exp.Select, exp.Lambda, exp.Comprehension, exp.Star) is not None:
        return
    names = {folded(parameter.name) for parameter in parameters}
    unknown = [column.sql("duckdb") for column in node.find_all(exp.Column) if not column.table and folded(column.name) not in names]
    if unknown:
        raise UsageError(f"{', '.join(dict.fromkeys(unknown))} in {sql!r} is no parameter", sql=sql)
