"""Casts of DuckDB in Spark SQL: those whose every value comes out alike, or with an error in both."""

from __future__ import annotations

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicate_sql import literal_text
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.expressions.sql_constants import QuotedText
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT128,
    INTEGERS,
    SIGNED_INTEGERS,
    TIMESTAMP,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UINT128,
    VARCHAR,
    DataType,
    DecimalType,
)
from ducklake_core.format.types.number_types import DIGITS
from ducklake_core.view_sql.typed import NULL_TYPE, Refused, Typed, fits, spark_name

_INFINITY: dict[DataType, int] = {DATE: 2**31 - 1, TIMESTAMP: 2**63 - 1}
_DATE_RANGE = "DATE '0001-01-01' AND DATE '9999-12-31'"
_TIMESTAMP_RANGE = "TIMESTAMP_NTZ '0001-01-01 00:00:00' AND TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"
_TEXT_FORMS = {
    "integer": r"\A-?[0-9]+\z",
    "number": r"\A-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?\z",
    "date": r"\A[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]\z",
}


def string_text(text: str) -> str:
    """A string constant that means the same under every setting of Spark's parser.

    >>> string_text("it's"), string_text("a-b")
    ("CAST(X'69742773' AS STRING)", "'a-b'")
    """
    if text.isascii() and text.isprintable() and not set(text) & set("'\\{}"):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"


def constant(value: QuotedText | Literal) -> Typed:
    """A bare constant with the type that it has by itself.

    Raises:
        Refused: A constant that Spark cannot hold.
    """
    if isinstance(value, QuotedText):
        return Typed(sql=string_text(value.text), type=VARCHAR, constant=value)
    if value.value is None:
        return Typed(sql="CAST(NULL AS INT)", type=NULL_TYPE)
    return Typed(sql=_literal(value), type=value.type, constant=value)


def _literal(value: Literal) -> str:
    if value.type == VARCHAR:
        return string_text(str(value.value))
    if value.type in DIGITS:
        # A cast, so that a number is never taken for a position in GROUP BY.
        return f"CAST({_digits(value.value)} AS {spark_name(value.type)})"
    if value.type in FLOATS and value.value == 0:
        # Conditions know one zero; as a value it has a sign.
        return f"CAST('{value.value}' AS {spark_name(value.type)})"
    try:
        return literal_text(value.value, value.type, "spark")
    except (UsageError, UnsupportedFeatureError) as problem:
        raise Refused(f"{problem.message} (a constant of type {value.type})") from problem


def _digits(value: object) -> str:
    assert isinstance(value, int)
    return str(value) if -(2**31) < value < 2**31 else f"'{value}'"


def cast(part: Typed, target: DataType) -> Typed:
    """A cast, written out or implied.

    Raises:
        Refused: The two engines differ, or the constant is not a value of the type.
    """
    if part.type == NULL_TYPE:
        return Typed(sql=f"CAST(NULL AS {spark_name(target)})", type=target)
    if part.text is not None:
        if target == VARCHAR:
            return Typed(sql=part.sql, type=VARCHAR)
        try:
            return Typed(sql=_literal(text_literal(part.text, target)), type=target)
        except UsageError as problem:
            raise Refused(problem.message) from problem
    if part.integer is not None and target in DIGITS and fits(part.integer, target):
        return Typed(sql=f"CAST({_digits(part.integer)} AS {spark_name(target)})", type=target)
    if part.type == target:
        return Typed(sql=part.sql, type=target)
    return Typed(sql=_cast_sql(part.sql, part.type, target), type=target)


def _cast_sql(sql: str, source: DataType, target: DataType) -> str:
    name = spark_name(target)
    match source, target:
        case _ if source in DIGITS and (target in DIGITS or target in (FLOAT32, FLOAT64) or isinstance(target, DecimalType)):
            return _to_narrower_unsigned(f"CAST({sql} AS {name})", target)
        case _ if source in DIGITS and target == BOOLEAN:
            return f"({sql} <> 0)"
        case _ if source == BOOLEAN and target in SIGNED_INTEGERS:
            return f"CAST({sql} AS {name})"
        case DecimalType(), DecimalType():
            return f"CAST({sql} AS {name})"
        case DecimalType(), _ if target in SIGNED_INTEGERS:
            return f"CAST(round({sql}, 0) AS {name})"
        case DecimalType(), _ if target in (FLOAT32, FLOAT64):
            return f"CAST({sql} AS {name})"
        case _ if source == FLOAT32 and target == FLOAT64:
            return f"CAST({sql} AS DOUBLE)"
        # Spark makes decimals of the digits that a float is shown with.
        case _ if source in FLOATS and target in SIGNED_INTEGERS and target in DIGITS and target != INT128:
            return f"CAST(rint(CAST({sql} AS DOUBLE)) AS {name})"
        case _ if target == VARCHAR:
            return _to_text(sql, source)
        case _ if source == VARCHAR:
            return _from_text(sql, target)
        case _:
            return _of_time(sql, source, target)


def _to_narrower_unsigned(cast_sql: str, target: DataType) -> str:
    """Spark holds unsigned integers in larger types, whose range would let too much through."""
    if target in INTEGERS and target not in SIGNED_INTEGERS and target != UINT128:
        raise Refused(f"it casts to {target}")
    return cast_sql


def _to_text(sql: str, source: DataType) -> str:
    if source in DIGITS or source == BOOLEAN or isinstance(source, DecimalType):
        return f"CAST({sql} AS STRING)"
    if source == DATE:
        return _checked(sql, f"{sql} BETWEEN {_DATE_RANGE}", f"CAST({sql} AS STRING)", "STRING")
    if source == TIMESTAMP:
        return _checked(sql, f"{sql} BETWEEN {_TIMESTAMP_RANGE}", f"CAST({sql} AS STRING)", "STRING")
    raise Refused(f"it casts {source} to varchar")


def _from_text(sql: str, target: DataType) -> str:
    """Only texts that both engines read alike; any other is an error rather than another value."""
    form = "integer" if target in SIGNED_INTEGERS else "number" if target == FLOAT64 else "date" if target == DATE else None
    if form is None:
        raise Refused(f"it casts varchar to {target}")
    name = spark_name(target)
    return _checked(sql, f"{sql} RLIKE {string_text(_TEXT_FORMS[form])}", f"CAST({sql} AS {name})", name)


def _of_time(sql: str, source: DataType, target: DataType) -> str:
    if source == DATE and target == TIMESTAMP:
        return f"CAST({finite(sql, DATE)} AS TIMESTAMP_NTZ)"
    if source == TIMESTAMP and target == DATE:
        return f"CAST({finite(sql, TIMESTAMP)} AS DATE)"
    if source in TIMESTAMPS and target in TIMESTAMPS and TIMESTAMPTZ not in (source, target) and target == TIMESTAMP:
        return sql
    raise Refused(f"it casts {source} to {target}")


def finite(sql: str, data_type: DataType) -> str:
    """The date or timestamp, or an error for an infinite one, which Spark would take for a day."""
    return _checked(sql, is_finite(sql, data_type), sql, spark_name(data_type))


def is_finite(sql: str, data_type: DataType) -> str:
    """The condition that a date or timestamp is not infinite."""
    low, high = (literal_text(sign * _INFINITY[data_type], data_type, "spark") for sign in (-1, 1))
    return f"({sql} > {low} AND {sql} < {high})"


def _checked(sql: str, condition: str, result: str, name: str) -> str:
    message = "a value of the view is outside of what Spark and DuckDB cast alike"
    return f"CASE WHEN {sql} IS NULL THEN NULL WHEN {condition} THEN {result} ELSE CAST(raise_error('{message}') AS {name}) END"
