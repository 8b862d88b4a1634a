"""The SQL of macros and views as the catalog stores it, and the expansion of macro calls (specification: ducklake_macro)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.reconciliation import promotes
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicates import Literal as Constant
from ducklake_core.format.expressions.syntax import QuotedText, constant_of, parse_text
from ducklake_core.format.macro_definitions import MacroImplementation, MacroKind, MacroParameter
from ducklake_core.format.types.data_types import GEOMETRY, JSON, VARCHAR, VARIANT, DataType, PrimitiveType
from ducklake_core.format.types.names import dotted, folded, quoted_path, split_path
from ducklake_core.format.types.schema import duckdb_type, parse_leaf_type, type_text
from ducklake_core.format.types.text import parse_failure, shown
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.value_text import to_cast_text

PLACEHOLDER = "{DUCKLAKE_CATALOG}"
# As long as the placeholder, so that places in the text stay the same.
_STAND_IN = "_DUCKLAKE_CATALOG_"
FindTable = Callable[[str | None, str], str]
"""The path of the schema of a table or view of the lake, from the one that was written (None for none) and its name."""

_DEEPEST = 16
_MAX_CALLS = 1000
_SHOWN = 1000
# Without a parser, which long conditions would pay for twice. A word is read once, however long: from its start on alone, and possessively.
_CALL = re.compile(r"(?<!\w)(\w++)\"?\s*+\(")
_KEYWORDS = frozenset(
    {"and", "or", "not", "in", "any", "all", "between", "like", "ilike", "similar", "is", "from", "case", "when", "then", "else", "cast",
     "try_cast", "extract", "substring", "trim", "position", "exists", "interval", "decimal", "numeric", "varchar", "struct", "map", "row"}
)  # fmt: skip


_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


def implementations(name: str, definitions: Mapping[str, str], kind: MacroKind) -> tuple[MacroImplementation, ...]:
    """Return the definitions of a macro, from parameters and SQL.

    >>> (one,) = implementations("late", {"x, minutes INTEGER := 15": "x > minutes"}, "scalar")
    >>> one.sql, [(p.name, p.type, p.default, p.default_type) for p in one.parameters]
    ('x > minutes', [('x', None, None, None), ('minutes', 'int32', '15', 'int32')])

    Args:
        name: The macro, for messages.
        definitions: SQL by the text of the parameters, such as ``{"x, y := 5": "x + y"}``.
        kind: ``scalar`` for expressions, ``table`` for queries.

    Raises:
        UsageError: A definition is invalid; the message names the reason.
        UnsupportedFeatureError: The catalog cannot store a definition, or this library cannot parse it.
    """
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
        raise UsageError("two of its parameters have the same name")
    with_default = [parameter.default is not None for parameter in found]
    if with_default != sorted(with_default):
        raise UsageError("a parameter without a default follows one that has one")
    return found


def _tokens(text: str) -> list[Any]:
    try:
        return list(DuckDB().tokenize(text))
    except SqlglotError as problem:
        raise UsageError(f"cannot read the parameters {text!r}: {parse_failure(problem)}") from problem


def _split(tokens: Sequence[Any]) -> list[list[Any]]:
    """Return the parts between commas that are in no brackets."""
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
        raise UsageError(f"{text!r} is not a list of parameters. Write names, such as 'x, y INTEGER, z := 5'")
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
        raise UnsupportedFeatureError(f"a parameter cannot have the type {text!r}. Remove the type")
    if found in (VARIANT, GEOMETRY):
        raise UnsupportedFeatureError(f"parameters of type {text!r} are not supported. Remove the type")
    return found


def _default(text: str, kind: DataType | None) -> Constant:
    """Return the constant of a default, in the parameter's type if it has one."""
    constant = constant_of(parse_text(text, "default"))
    if isinstance(constant, QuotedText):
        typed = Constant(value=constant.text, type=VARCHAR) if kind is None or kind == VARCHAR else text_literal(constant.text, kind)
        if typed is None:
            raise UsageError(f"the default {text} is not a value of type {kind}")
        return typed
    if constant is None or constant.value is None:
        raise UnsupportedFeatureError(f"the default {text!r} must be a constant other than NULL, because DuckDB cannot read others back")
    if kind is None or constant.type == kind or (promotes(constant.type, kind) and kind != JSON):
        return constant
    cast = constant_of(parse_text(f"CAST({text} AS {duckdb_type(kind)})", "default"))
    if not isinstance(cast, Constant) or cast.value != constant.value:
        raise UsageError(f"the default {text} is not a value of type {kind}")
    return cast


def _body(sql: str, kind: MacroKind, parameters: Sequence[MacroParameter]) -> str:
    """Return the expression or query in the form in which it is stored: as it was written, without what follows its last word."""
    try:
        tokens = DuckDB().tokenize(sql)
        while tokens and tokens[-1].token_type.name == "SEMICOLON":
            tokens.pop()
        text = sql[tokens[0].start : tokens[-1].end + 1] if tokens else ""
        # An expression stands where one of a SELECT stands.
        parsed = sqlglot.parse(f"SELECT {text}" if kind == "scalar" else text, read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"cannot parse {shown(sql)}: {parse_failure(problem)}", sql=sql) from problem
    node = parsed[0] if len(parsed) == 1 else None
    if kind == "table":
        if not isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
            raise UsageError(f"a table macro is one SELECT, and {sql!r} is not", sql=sql)
    else:
        _check_expression(node, sql, parameters)
    if node is None or node.find(exp.Placeholder, exp.Parameter, exp.Into):
        raise UsageError(f"a macro must have named parameters, and must not write rows: {sql!r}", sql=sql)
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


def view_text(sql: str, find: FindTable) -> str:
    """Return the query of a view in the form in which it is stored.

    >>> view_text("SELECT a FROM t JOIN s.u USING (a);", lambda schema, name: schema or "main")
    'SELECT a FROM {DUCKLAKE_CATALOG}."main".t JOIN {DUCKLAKE_CATALOG}.s.u USING (a)'

    Args:
        sql: One SELECT, or several under UNION, EXCEPT and INTERSECT.
        find: How to find what it reads.

    Raises:
        UsageError: Not one query, one with parameters, or one that names a catalog.
        NotFoundError: It reads a table that the lake does not have.
        UnsupportedFeatureError: It cannot be parsed.
    """
    if _STAND_IN in sql:
        raise UsageError(f"the query of a view must not contain {_STAND_IN}")
    text = sql.replace(PLACEHOLDER, _STAND_IN)
    try:
        tokens = [token for token in DuckDB().tokenize(text) if token.text != ";" or token.token_type.name != "SEMICOLON"]
        statements = [statement for statement in sqlglot.parse(text, read="duckdb") if statement is not None]
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"cannot parse the view's query {shown(sql)}: {parse_failure(problem)}", sql=sql) from problem
    query = statements[0] if len(statements) == 1 else None
    if not isinstance(query, exp.Select | exp.SetOperation | exp.Subquery | exp.Values | exp.Pivot):
        raise UsageError(f"a view is one SELECT, and {sql!r} is not", sql=sql)
    if query.find(exp.Placeholder, exp.Parameter, exp.Into):
        raise UsageError(f"the query of a view must not have parameters or write rows: {sql!r}", sql=sql)
    if any(_STAND_IN in literal.this for literal in query.find_all(exp.Literal)):
        raise UsageError(f"a constant in the view's query holds {PLACEHOLDER}, which readers would replace", sql=sql)
    # Prefixes are inserted into the text as it was written, so that its comments and spacing survive.
    insertions = [place for table in query.find_all(exp.Table) if (place := _insertion(table, find, sql)) is not None]
    # A comment behind the last word would swallow what a reader puts there.
    start, end = tokens[0].start, tokens[-1].end + 1
    pieces: list[str] = []
    position = start
    for at, prefix in sorted(insertions):
        pieces += [text[position:at], prefix]
        position = at
    pieces.append(text[position:end])
    return "".join(pieces).replace(_STAND_IN, PLACEHOLDER)


def _insertion(table: exp.Table, find: FindTable, sql: str) -> tuple[int, str] | None:
    """Return the position and the prefix to insert before a table's name, None when the name is complete."""
    names = table_names(table)
    if not names or (len(names) == 1 and _is_named_query(table)):
        return None
    *schemas, name = names
    if schemas and schemas[0] == _STAND_IN:
        find(dotted(schemas[1:]) or None, name)
        return None
    place = table.parts[0].meta.get("start")
    if place is None or sql[place : place + 1] == "'":
        raise NotFoundError(f"the view reads {name!r}, which is not a table of the lake", sql=sql)
    try:
        schema = find(dotted(schemas) or None, name)
    except NotFoundError as problem:
        if len(schemas) < 2:
            raise
        raise UsageError(
            f"the view names {table.sql('duckdb')}: write schema.table, because readers attach the lake under names of their own", sql=sql
        ) from problem
    return place, f"{PLACEHOLDER}." + ("" if schemas else quoted_path(split_path(schema)) + ".")


def table_names(table: exp.Table) -> tuple[str, ...]:
    """Return the names that a query gives for a table, outermost first; none for a function that makes rows."""
    parts = table.parts
    return tuple(part.name for part in parts) if all(isinstance(part, exp.Identifier) for part in parts) else ()


def _is_named_query(table: exp.Table) -> bool:
    """Return whether the name is one that a WITH around it gives to a query."""
    node: Any = table
    while node.parent is not None:
        parent = node.parent
        if isinstance(parent, exp.With):
            # Within a WITH, queries see those before them.
            seen = parent.expressions if parent.args.get("recursive") else parent.expressions[: parent.expressions.index(node)]
            if any(folded(query.alias) == folded(table.name) for query in seen):
                return True
            node = parent.parent
            if node is None:
                return False
            continue
        around = parent.args.get("with_") or parent.args.get("with")
        if around is not None and any(folded(query.alias) == folded(table.name) for query in around.expressions):
            return True
        node = parent
    return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def aliases_text(names: tuple[str, ...]) -> str:
    """Return the text of ``column_aliases``.

    >>> aliases_text(("x", 'y"z')), aliases_text(())
    ('"x","y""z"', '')
    """
    return ",".join(_quoted(name) for name in names)


_NAMED_PARENTS = (exp.Column, exp.Table, exp.Alias, exp.TableAlias, exp.PropertyEQ, exp.Kwarg, exp.DataType, exp.WindowSpec)
"""Nodes whose identifiers are names, not columns."""


def called_functions(sql: str) -> frozenset[str]:
    """Return the folded words of an expression that may be names of functions, without those that DuckDB has.

    >>> sorted(called_functions("late(x, 5) AND (abs(y) > 1 OR y IN (1, 2))"))
    ['late']
    """
    found = {folded(name) for name in _CALL.findall(sql)}
    return frozenset(name for name in found if name not in _KEYWORDS and name.upper() not in DuckDB.Parser.FUNCTIONS)


def with_macros(sql: str, macros: Mapping[str, Sequence[MacroImplementation]]) -> str:
    """Return an expression without calls of macros.

    >>> from ducklake_core.format.macros import implementations
    >>> late = implementations("late", {"x, minutes INTEGER := 15": "x > minutes"}, "scalar")
    >>> with_macros("NOT late(delay)", {"late": late})
    "NOT (delay > CAST('15' AS INT))"

    Args:
        sql: The expression.
        macros: The definitions of scalar macros by their folded names.

    Raises:
        UsageError: No definition, or more than one, accepts the arguments.
        UnsupportedFeatureError: A macro that calls itself, or a definition that cannot be put in place of its call.
    """
    # A root of its own, so that every call has a parent.
    tree, count = exp.Paren(this=sqlglot.parse_one(sql, read="duckdb")), 0
    for _ in range(_DEEPEST):
        calls = [node for node in tree.find_all(exp.Anonymous) if folded(node.name) in macros]
        count += len(calls)
        if not calls:
            return str(tree.this.sql("duckdb"))
        if count > _MAX_CALLS:
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
    """Return the arguments by parameter, None when the call does not mean this definition."""
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


def _is_bare_column(node: exp.Expr) -> bool:
    """Return whether a node is a column without a table before it."""
    if isinstance(node, exp.Column):
        return not node.table
    # sqlglot leaves only the names of the columns that a method is called on, as in ``upper(x).trim()``.
    is_name = isinstance(node.parent, _NAMED_PARENTS) or (
        isinstance(node.parent, exp.Dot | exp.Comprehension) and node.arg_key == "expression"
    )
    return isinstance(node, exp.Identifier) and node.parent is not None and not is_name


def _substituted(one: MacroImplementation, values: Mapping[str, exp.Expression], name: str) -> exp.Expression:
    try:
        body = sqlglot.parse_one(one.sql, read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"the macro {name} cannot be parsed: {one.sql}", macro=name) from problem
    if body.find(exp.Query, exp.Lambda):
        raise UnsupportedFeatureError(f"the macro {name} holds a query or a lambda, which no condition does", macro=name)

    def meant(node: exp.Expr) -> exp.Expr:
        value = values.get(folded(node.name)) if _is_bare_column(node) else None
        if value is None:
            return node
        return value.copy() if isinstance(value, exp.Column | exp.Literal | exp.Cast) else exp.Paren(this=value.copy())

    found = body.transform(meant)
    assert isinstance(found, exp.Expression)
    return found
