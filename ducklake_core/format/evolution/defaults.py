"""Column defaults: constants and expressions (specification: ducklake_column)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID as Uuid

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.parser import scalar_of
from ducklake_core.format.expressions.predicates import Scalar
from ducklake_core.format.expressions.syntax import unwrapped
from ducklake_core.format.types.data_types import (
    BLOB,
    DATE,
    FLOAT64,
    GEOMETRY,
    INTEGERS,
    INTERVAL,
    JSON,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    TIMETZ,
    VARIANT,
    DecimalType,
    Field,
)
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.schema import NO_DEFAULT, Schema
from ducklake_core.format.types.text import parse_failure, shown
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.value_text import from_cast_text, json_text, to_cast_text

_NO_DEFAULTS = (
    exp.Column,
    exp.Query,
    exp.Star,
    exp.Columns,
    exp.AggFunc,
    exp.Window,
    exp.Explode,
    exp.Unnest,
    exp.Placeholder,
    exp.Parameter,
)
_MAX_BITS = 256
OWN_STRINGS = (TIMETZ, TIME_NS, INTERVAL)
"""Types whose strings have one form only, that of the catalog."""

# Functions of the current time have one value for all rows of a statement, as in SQL. _constant puts it in their place.
_MOMENTS = frozenset({"now", "transaction_timestamp", "get_current_timestamp", "CurrentTimestamp"})
_LOCAL = {
    "Localtimestamp": "TIMESTAMP",
    "current_localtimestamp": "TIMESTAMP",
    "Localtime": "TIME",
    "current_localtime": "TIME",
    "CurrentDate": "DATE",
    "CurrentTime": "TIMETZ",
}
_OF_COLUMNS = {
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_S: "TIMESTAMP",
    TIMESTAMP_MS: "TIMESTAMP",
    TIMESTAMP_NS: "TIMESTAMP",
}
_FORMS: dict[str, Callable[[datetime], str]] = {
    "TIMESTAMPTZ": lambda moment: moment.isoformat(sep=" "),
    "TIMESTAMP": lambda moment: moment.replace(tzinfo=None).isoformat(sep=" "),
    "DATE": lambda moment: moment.date().isoformat(),
    "TIME": lambda moment: moment.time().isoformat(),
    "TIMETZ": lambda moment: moment.timetz().isoformat(),
}


def with_default(field: Field, value: object) -> Field:
    """Return the column with a default for new rows; None removes it.

    >>> from ducklake_core.format.types.data_types import DecimalType
    >>> with_default(Field(name="d", type=DecimalType(precision=10, scale=2)), 1.5).default
    '1.5'

    Args:
        field: The column.
        value: A Python value, or a text that the column's type can be read from. A time of a ``timestamptz`` column that names no zone is
            meant in the effective time zone.

    Raises:
        UsageError: It is not a value of the type.
        UnsupportedFeatureError: The column is nested, a variant or a geometry.
    """
    if value is None:
        return replace(field, default=None, default_is_expression=False)
    _check_kind(field)
    text = _literal_text(value)
    if text == NO_DEFAULT:
        raise UnsupportedFeatureError(
            f"the text {NO_DEFAULT} cannot be the default of column {field.name!r}: in the catalog it means that there is none",
            column=field.name,
        )
    canonical = _cast_text(text, field)
    # With its offset, so that every session means the same instant by it.
    return replace(field, default=canonical if field.type == TIMESTAMPTZ else text, default_is_expression=False)


def with_expression(field: Field, sql: str) -> Field:
    """Return the column with a default that is computed for new rows that lack it, such as ``now()``.

    A literal with the column's type, such as ``DATE '2020-01-01'``, becomes a constant:

    >>> from ducklake_core.format.types.data_types import DATE, TIMESTAMP
    >>> with_expression(Field(name="d", type=DATE), "DATE '2020-01-01'").default
    '2020-01-01'
    >>> with_expression(Field(name="at", type=TIMESTAMP), "now()").default_is_expression
    True

    Raises:
        UsageError: Not one expression, or one that reads columns, tables or other rows.
        UnsupportedFeatureError: The column is nested, a variant or a geometry.
    """
    _check_kind(field)
    try:
        parsed = sqlglot.parse(sql, read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        message = f"cannot read the default {shown(sql)} of column {field.name!r}: {parse_failure(problem)}"
        raise UsageError(message, column=field.name) from problem
    expression = parsed[0] if len(parsed) == 1 else None
    # sqlglot does not count an interval among the conditions, although it is a value.
    if not isinstance(expression, exp.Condition | exp.Interval) or expression.find(*_NO_DEFAULTS):
        raise UsageError(
            f"the default {sql!r} of column {field.name!r} must be an expression without columns, queries, aggregates or windows",
            column=field.name,
        )
    constant = _typed_literal(expression, field)
    if constant is not None:
        return with_default(field, constant)
    return replace(field, default=sql.strip(), default_is_expression=True)


def checked_defaults(schema: Schema) -> Schema:
    """Return the columns of a new table with defaults as :func:`with_default` and :func:`with_expression` make them.

    Raises:
        UsageError: A default is not a value of its column's type, or not an expression.
        UnsupportedFeatureError: The column is nested, a variant or a geometry.
    """
    return Schema(columns=tuple(_checked(column) for column in schema))


def _checked(column: Field) -> Field:
    if column.default is None:
        return column
    return with_expression(column, column.default) if column.default_is_expression else with_default(column, column.default)


def _typed_literal(node: object, field: Field) -> str | None:
    """Return the value of a literal with the column's type, or of an integer literal for a number column; None for other expressions."""
    node = _unbracketed(node)
    # TRY_CAST stays an expression: it gives NULL where a constant would be an error.
    if not isinstance(node, exp.Cast) or isinstance(node, exp.TryCast):
        return None
    operand = _unbracketed(node.this)
    sign = "-" if isinstance(operand, exp.Neg) else ""
    operand = operand.this if sign else operand
    if not isinstance(operand, exp.Literal) or (sign and operand.is_string):
        return None
    try:
        own = replace(field, type=data_type_of(node.to.sql("duckdb")))
    except (SchemaError, UnsupportedFeatureError, UsageError):
        # A type of DuckDB that DuckLake lacks: DuckDB computes the default.
        return None
    if own.type == field.type or (own.type in INTEGERS and (field.type in INTEGERS or isinstance(field.type, DecimalType))):
        return _cast_text(f"{sign}{operand.name}", own)
    return None


def _unbracketed(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def with_initial_default(field: Field) -> Field:
    """Return the column as it is added: rows of files that lack it have its default, as the type's own text.

    >>> from ducklake_core.format.types.data_types import DecimalType
    >>> with_initial_default(Field(name="d", type=DecimalType(precision=10, scale=2), default="1.5")).initial_default
    '1.50'
    """
    if field.default is None or field.default_is_expression or field.initial_default is not None:
        return field
    # Later changes of ``default`` leave it alone: rows of files that lack the column keep this value.
    return replace(field, initial_default=canonical_default(field))


def canonical_default(field: Field) -> str:
    """Return the constant default of a column in its type's own form: ``2`` for ``1.5`` in a column of integers.

    Raises:
        UsageError: It is not a value of the type.
    """
    return _cast_text(field.default or "", field)


def with_initial_defaults(schema: Schema) -> Schema:
    """Return the same for all columns of a new table."""
    return Schema(columns=tuple(with_initial_default(column) for column in schema))


def _check_kind(field: Field) -> None:
    """Raise for a type whose defaults DuckDB ignores: new rows would have NULL there."""
    if not field.is_leaf or field.type in (VARIANT, GEOMETRY):
        raise UnsupportedFeatureError(f"column {field.name!r} of type {field.type} cannot have a default", column=field.name)


def _literal_text(value: object) -> str:
    match value:
        case str():
            return storable("a default", value)
        case bool():
            return "true" if value else "false"
        case int():
            if value.bit_length() > _MAX_BITS:
                raise UsageError(f"a default of {value.bit_length()} bits is larger than any type holds")
            return str(value)
        case Decimal():
            return format(value, "f")
        case float():
            return to_cast_text(value, FLOAT64)
        case bytes():
            return to_cast_text(value, BLOB)
        case datetime():
            return value.isoformat(sep=" ")
        case date() | time():
            return value.isoformat()
        case Uuid():
            return str(value)
        case _:
            raise UsageError(
                f"a default cannot be a {type(value).__qualname__}. Pass a constant, or its SQL as a string", type=type(value).__qualname__
            )


def _cast_text(text: str, field: Field) -> str:
    """Return the text of the value in the form of the column's type.

    Raises:
        UsageError: The text is not a value of the type.
    """
    try:
        if field.type in OWN_STRINGS:
            return to_cast_text(from_cast_text(text, field.type), field.type)
        if field.type == JSON:
            return json_text(text)
        return to_cast_text(text_literal(text, field.type).value, field.type)
    except (DuckLakeError, ValueError, ArithmeticError) as problem:
        raise UsageError(f"{text!r} is not a value of type {field.type}, so it cannot be the default of column {field.name!r}") from problem


def statement_tree(column: Field, moment: datetime) -> exp.Expression:
    """Return the default of a column as sqlglot's tree, in which what depends on the time of the statement is constant.

    Times without a zone are those of the time zone of ``moment``.

    Raises:
        UnsupportedFeatureError: It cannot be parsed, or reads columns or tables.
    """
    try:
        root = sqlglot.parse_one(column.default or "", read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        raise rejection(column, "it cannot be parsed") from problem
    assert isinstance(root, exp.Expression)
    # Checked again although with_expression checks it: another client may have stored the default.
    if root.find(exp.Column, exp.Query):
        raise rejection(column, "it reads columns or tables")
    if _name(unwrapped(root)) in {*_MOMENTS, "CurrentTime"} and column.type in _OF_COLUMNS:
        # As the column is assigned, so that no cast is left that depends on the zone of a session.
        return _constant(moment, _OF_COLUMNS[column.type])
    found = root.transform(lambda node: _at(node, moment))
    assert isinstance(found, exp.Expression)
    return found


def default_scalar(column: Field, moment: datetime) -> Scalar:
    """Return the default of a column as something that writers evaluate for each row.

    >>> from datetime import UTC
    >>> from ducklake_core.format.types.data_types import UUID
    >>> field = Field(name="at", type=DATE, default="now()", default_is_expression=True)
    >>> default_scalar(field, datetime(1970, 1, 3, tzinfo=UTC)).value
    2
    >>> default_scalar(Field(name="id", type=UUID, default="gen_random_uuid()", default_is_expression=True), datetime.now(UTC)).function
    'uuid'

    Raises:
        UnsupportedFeatureError: Only a SQL engine can evaluate it.
    """
    tree = statement_tree(column, moment)
    try:
        return scalar_of(tree, column.default or "")
    except UnsupportedFeatureError as problem:
        raise rejection(column, f"only a SQL engine evaluates {problem.message}") from problem


def rejection(column: Field, reason: str) -> UnsupportedFeatureError:
    """Return the error for a default that cannot be evaluated."""
    return UnsupportedFeatureError(
        f"column {column.name!r} is missing in the data and its default {column.default} cannot be evaluated: {reason}; give the column a "
        "value",
        column=column.name,
        expression=column.default,
        reason=reason,
    )


def _name(node: exp.Expression) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else type(node).__name__


def _at(node: exp.Expression, moment: datetime) -> exp.Expression:
    if isinstance(node, exp.Cast) and _name(unwrapped(node.this)) in _MOMENTS:
        # ``now()::DATE`` is the day in the zone of ``moment``. Cast from a TIMESTAMPTZ constant, it would be the day in the zone of the
        # session that evaluates it.
        kind = node.to.sql("duckdb")
        return _constant(moment, kind) if kind in _FORMS else node
    name = _name(node)
    if name in _MOMENTS:
        return _constant(moment, "TIMESTAMPTZ")
    return _constant(moment, _LOCAL[name]) if name in _LOCAL else node


def _constant(moment: datetime, kind: str) -> exp.Expression:
    return exp.cast(exp.Literal.string(_FORMS[kind](moment)), kind, dialect="duckdb")
