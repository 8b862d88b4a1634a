"""Operators and casts whose results in Spark SQL are those of DuckDB."""

from __future__ import annotations

from collections.abc import Callable

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.expressions.sql import literal_text, spark_pattern, string_text
from ducklake_core.format.expressions.syntax import QuotedText
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    DIGITS,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
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
    decimal_result,
)
from ducklake_core.view_sql.typed import NULL_TYPE, Rejected, Typed, as_decimal, common_type, fits, is_comparable, is_number, spark_name

Operator = Callable[[Typed, Typed], Typed]

_INFINITY: dict[DataType, int] = {DATE: 2**31 - 1, TIMESTAMP: 2**63 - 1}
_DATE_RANGE = "DATE '0001-01-01' AND DATE '9999-12-31'"
_TIMESTAMP_RANGE = "TIMESTAMP_NTZ '0001-01-01 00:00:00' AND TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"
_TEXT_FORMS = {
    "integer": r"\A-?[0-9]+\z",
    "number": r"\A-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?\z",
    "date": r"\A[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]\z",
}


def constant(value: QuotedText | Literal) -> Typed:
    """Return a bare constant with the type that it has by itself.

    Raises:
        Rejected: A constant that Spark cannot hold.
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
        raise Rejected(f"{problem.message} (a constant of type {value.type})") from problem


def _digits(value: object) -> str:
    assert isinstance(value, int)
    return str(value) if -(2**31) < value < 2**31 else f"'{value}'"


def cast(part: Typed, target: DataType) -> Typed:
    """Return a cast, written out or implied.

    Raises:
        Rejected: The two engines differ, or the constant is not a value of the type.
    """
    if part.type == NULL_TYPE:
        return Typed(sql=f"CAST(NULL AS {spark_name(target)})", type=target)
    if part.text is not None:
        if target == VARCHAR:
            return Typed(sql=part.sql, type=VARCHAR)
        try:
            return Typed(sql=_literal(text_literal(part.text, target)), type=target)
        except UsageError as problem:
            raise Rejected(problem.message) from problem
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
            # DuckDB rounds half away from zero; Spark's cast would cut the digits off.
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
    """Return a cast, unless to an unsigned type: Spark holds these in larger types, whose range is too wide."""
    if target in INTEGERS and target not in SIGNED_INTEGERS and target != UINT128:
        raise Rejected(f"it casts to {target}")
    return cast_sql


def _to_text(sql: str, source: DataType) -> str:
    if source in DIGITS or source == BOOLEAN or isinstance(source, DecimalType):
        return f"CAST({sql} AS STRING)"
    if source == DATE:
        return _checked(sql, f"{sql} BETWEEN {_DATE_RANGE}", f"CAST({sql} AS STRING)", "STRING")
    if source == TIMESTAMP:
        return _checked(sql, f"{sql} BETWEEN {_TIMESTAMP_RANGE}", f"CAST({sql} AS STRING)", "STRING")
    raise Rejected(f"it casts {source} to varchar")


def _from_text(sql: str, target: DataType) -> str:
    """Return a cast of strings that both engines read alike; any other string raises an error."""
    form = "integer" if target in SIGNED_INTEGERS else "number" if target == FLOAT64 else "date" if target == DATE else None
    if form is None:
        raise Rejected(f"it casts varchar to {target}")
    name = spark_name(target)
    return _checked(sql, f"{sql} RLIKE {string_text(_TEXT_FORMS[form])}", f"CAST({sql} AS {name})", name)


def _of_time(sql: str, source: DataType, target: DataType) -> str:
    if source == DATE and target == TIMESTAMP:
        return f"CAST({finite(sql, DATE)} AS TIMESTAMP_NTZ)"
    if source == TIMESTAMP and target == DATE:
        return f"CAST({finite(sql, TIMESTAMP)} AS DATE)"
    if source in TIMESTAMPS and target in TIMESTAMPS and TIMESTAMPTZ not in (source, target) and target == TIMESTAMP:
        return sql
    raise Rejected(f"it casts {source} to {target}")


def finite(sql: str, data_type: DataType) -> str:
    """Return the date or timestamp, or an error for an infinite one, which Spark would take for a day."""
    return _checked(sql, is_finite(sql, data_type), sql, spark_name(data_type))


def is_finite(sql: str, data_type: DataType) -> str:
    """Return the condition that a date or timestamp is not infinite."""
    low, high = (literal_text(sign * _INFINITY[data_type], data_type, "spark") for sign in (-1, 1))
    return f"({sql} > {low} AND {sql} < {high})"


def _checked(sql: str, condition: str, result: str, name: str) -> str:
    message = "Spark and DuckDB cast a value of the view differently"
    return f"CASE WHEN {sql} IS NULL THEN NULL WHEN {condition} THEN {result} ELSE CAST(raise_error('{message}') AS {name}) END"


def arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    """Return ``+ - * / // %`` of two expressions.

    Raises:
        Rejected: Types whose arithmetic is not translated.
    """
    if operator in ("+", "-") and DATE in (left.type, right.type):
        return _date_arithmetic(operator, left, right)
    for side in (left, right):
        if side.text is not None or not is_number(side.type):
            raise Rejected(f"it computes {left.type} {operator} {right.type}")
    kind = common_type((left, right))
    if kind == NULL_TYPE:
        return Typed(sql="CAST(NULL AS INT)", type=INT32)
    if operator == "/" or (operator == "//" and kind not in SIGNED_INTEGERS):
        return _division(left, right, kind, operator)
    if operator == "%" and isinstance(kind, DecimalType) and INT128 in (left.type, right.type):
        kind = FLOAT64
    if operator in ("//", "%"):
        return _remainder(operator, left, right, kind)
    if isinstance(kind, DecimalType):
        return _decimals(operator, left, right)
    return Typed(sql=f"CAST({cast(left, kind).sql} {operator} {cast(right, kind).sql} AS {spark_name(kind)})", type=kind)


def _decimals(operator: str, left: Typed, right: Typed) -> Typed:
    """Return a sum or product of decimals: sums have the larger scale and a digit more, products the digits of both."""
    first, second = (_decimal_of(side, other) for side, other in ((left, right), (right, left)))
    result = decimal_result(operator, first, second)
    computed = first.precision + second.precision + 1
    if operator != "*":
        computed = max(first.precision - first.scale, second.precision - second.scale) + result.scale + 1
    # Spark reduces the scale, down to 6, of results that need more than 38 digits. DuckDB raises an error.
    if computed > 38 and result.scale > 6:
        raise Rejected(f"it computes {first} {operator} {second}, where Spark would round")
    return Typed(sql=f"CAST({cast(left, first).sql} {operator} {cast(right, second).sql} AS {spark_name(result)})", type=result)


def _decimal_of(side: Typed, other: Typed) -> DecimalType:
    return as_decimal(other.type if side.type == NULL_TYPE else side.type)


def _division(left: Typed, right: Typed, kind: DataType, operator: str) -> Typed:
    """Return a floating point division: by zero it gives an infinity or NaN with ``/``, and NULL with ``//``."""
    result = FLOAT32 if kind == FLOAT32 else FLOAT64
    first, second = cast(left, result).sql, cast(right, result).sql
    name = spark_name(result)
    if operator == "//":
        sql = f"CASE WHEN {second} = CAST(0 AS {name}) THEN NULL ELSE {first} / {second} END"
    elif right.constant is not None and right.text is None and _is_not_zero(right):
        sql = f"({first} / {second})"
    else:
        # Spark raises an error for a division by zero. The sign of the zero decides about that of infinity, and only its text shows it.
        infinity = f"CASE WHEN CAST({second} AS STRING) = '-0.0' THEN CAST('-Infinity' AS {name}) ELSE CAST('Infinity' AS {name}) END"
        sql = f"CASE WHEN {second} = CAST(0 AS {name}) THEN {first} * {infinity} ELSE {first} / {second} END"
    return Typed(sql=f"CAST({sql} AS {name})", type=result)


def _is_not_zero(part: Typed) -> bool:
    value = getattr(part.constant, "value", None)
    return bool(value)


def _remainder(operator: str, left: Typed, right: Typed, kind: DataType) -> Typed:
    """Return ``//`` or ``%``: NULL when divided by zero, NaN for floating point numbers."""
    if operator == "//" and kind == INT128:
        raise Rejected("it divides an int128 with //")
    first, second, name = cast(left, kind).sql, cast(right, kind).sql, spark_name(kind)
    word = "DIV" if operator == "//" else "%"
    if operator == "//":
        # DIV answers in 64 bits, and knows no overflow of the narrower types.
        first, second = f"CAST({first} AS BIGINT)", f"CAST({second} AS BIGINT)"
    by_zero = f"CASE WHEN {first} IS NULL THEN NULL ELSE CAST('NaN' AS {name}) END" if kind in FLOATS else "NULL"
    return Typed(sql=f"CAST(CASE WHEN {second} = 0 THEN {by_zero} ELSE {first} {word} {second} END AS {name})", type=kind)


def _date_arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    if left.text is not None or right.text is not None:
        raise Rejected("it computes with a date and a string constant")
    if left.type == DATE and right.type == DATE and operator == "-":
        return Typed(sql=f"CAST(datediff({finite(left.sql, DATE)}, {finite(right.sql, DATE)}) AS BIGINT)", type=INT64)
    day, days = (left, right) if left.type == DATE else (right, left)
    if days.type in (INT8, INT16, INT32) and (left.type == DATE or operator == "+"):
        name = "date_add" if operator == "+" else "date_sub"
        return Typed(sql=f"{name}({finite(day.sql, DATE)}, {cast(days, INT32).sql})", type=DATE)
    raise Rejected(f"it computes {left.type} {operator} {right.type}")


def negated(part: Typed) -> Typed:
    """Return the number with the other sign."""
    if part.text is not None or not is_number(part.type) or part.type == NULL_TYPE:
        raise Rejected(f"it negates {part.type}")
    return Typed(sql=f"(- {part.sql})", type=part.type)


def comparison(operator: str, left: Typed, right: Typed) -> Typed:
    """Return a comparison; ``<=>`` is IS NOT DISTINCT FROM."""
    kind = compared_type((left, right))
    return Typed(sql=f"({cast(left, kind).sql} {operator} {cast(right, kind).sql})", type=BOOLEAN)


def compared_type(parts: tuple[Typed, ...]) -> DataType:
    """Return the type in which values are compared."""
    kind = common_type(parts)
    if not is_comparable(kind):
        raise Rejected(f"it compares values of type {kind}")
    scale = max((part.type.scale for part in parts if isinstance(part.type, DecimalType)), default=0)
    if isinstance(kind, DecimalType) and scale > kind.scale:
        # Digits behind the point are kept, and a number that has too many before it is an error, in DuckDB as in Spark.
        return DecimalType(precision=38, scale=scale)
    return kind


def listed(subject: Typed, items: list[Typed]) -> Typed:
    """Return ``IN`` with a list."""
    kind = compared_type((subject, *items))
    return Typed(sql=f"({cast(subject, kind).sql} IN ({', '.join(cast(item, kind).sql for item in items)}))", type=BOOLEAN)


def condition(part: Typed) -> Typed:
    """Return the expression as a condition."""
    if part.type in (BOOLEAN, NULL_TYPE):
        return cast(part, BOOLEAN)
    raise Rejected(f"it uses a value of type {part.type} as a condition")


def logic(word: str, left: Typed, right: Typed) -> Typed:
    """Return AND or OR of two conditions."""
    return Typed(sql=f"({condition(left).sql} {word} {condition(right).sql})", type=BOOLEAN)


def like(subject: Typed, pattern: Typed, escape: Typed | None = None, *, lower: Callable[[str], str] | None = None) -> Typed:
    """Return LIKE with a constant pattern.

    Args:
        subject: The string.
        pattern: The pattern.
        escape: The character of an ESCAPE clause.
        lower: Returns a string in lower case, for ILIKE; None for LIKE.
    """
    if subject.type != VARCHAR or pattern.text is None or (escape is not None and escape.text is None):
        raise Rejected("it has LIKE with a value that is not a string, or a pattern that is not constant")
    letter = "" if escape is None else str(escape.text)
    if lower is not None and letter.lower() != letter.upper():
        raise Rejected(f"it has ILIKE with the letter {letter!r} as ESCAPE")
    try:
        text, free = spark_pattern(pattern.text, letter)
    except UnsupportedFeatureError as error:
        raise Rejected(error.message) from error
    sides = (cast(subject, VARCHAR).sql, string_text(text))
    left, right = sides if lower is None else map(lower, sides)
    return Typed(sql=f"({left} LIKE {right} ESCAPE '{free}')", type=BOOLEAN)


def joined(left: Typed, right: Typed) -> Typed:
    """Return ``||`` of strings."""
    if NULL_TYPE in (left.type, right.type):
        return Typed(sql="CAST(NULL AS INT)", type=NULL_TYPE)
    parts = [as_text(side) for side in (left, right)]
    return Typed(sql=f"concat({parts[0].sql}, {parts[1].sql})", type=VARCHAR)


def as_text(part: Typed) -> Typed:
    """Return a value as a string."""
    if not is_comparable(part.type):
        raise Rejected(f"it casts {part.type} to varchar")
    return cast(part, VARCHAR)


EMPTY_TEXT = string_text("")
