"""Operators: arithmetic, comparisons, logic and text."""

from __future__ import annotations

from collections.abc import Callable

from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    SIGNED_INTEGERS,
    VARCHAR,
    DataType,
    DecimalType,
)
from ducklake_core.format.types.number_types import decimal_result
from ducklake_core.view_sql.casts import cast, finite, string_text
from ducklake_core.view_sql.typed import NULL_TYPE, Refused, Typed, as_decimal, common_type, is_comparable, is_number, spark_name


def arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    """``+ - * / // %``.

    Raises:
        Refused: Types whose arithmetic is not translated.
    """
    if operator in ("+", "-") and DATE in (left.type, right.type):
        return _date_arithmetic(operator, left, right)
    for side in (left, right):
        if side.text is not None or not is_number(side.type):
            raise Refused(f"it computes {left.type} {operator} {right.type}")
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
    """Sums have the larger scale and a digit more, products the digits of both; 18 digits or 38 are the limits."""
    first, second = (_decimal_of(side, other) for side, other in ((left, right), (right, left)))
    result = decimal_result(operator, first, second)
    computed = first.precision + second.precision + 1
    if operator != "*":
        computed = max(first.precision - first.scale, second.precision - second.scale) + result.scale + 1
    if computed > 38 and result.scale > 6:
        raise Refused(f"it computes {first} {operator} {second}, where Spark would round")
    return Typed(sql=f"CAST({cast(left, first).sql} {operator} {cast(right, second).sql} AS {spark_name(result)})", type=result)


def _decimal_of(side: Typed, other: Typed) -> DecimalType:
    return as_decimal(other.type if side.type == NULL_TYPE else side.type)


def _division(left: Typed, right: Typed, kind: DataType, operator: str) -> Typed:
    """A floating point division: by zero it gives an infinity or NaN with ``/``, and NULL with ``//``."""
    result = FLOAT32 if kind == FLOAT32 else FLOAT64
    first, second = cast(left, result).sql, cast(right, result).sql
    name = spark_name(result)
    if operator == "//":
        sql = f"CASE WHEN {second} = CAST(0 AS {name}) THEN NULL ELSE {first} / {second} END"
    elif right.constant is not None and right.text is None and _is_not_zero(right):
        sql = f"({first} / {second})"
    else:
        infinity = f"CASE WHEN CAST({second} AS STRING) = '-0.0' THEN CAST('-Infinity' AS {name}) ELSE CAST('Infinity' AS {name}) END"
        sql = f"CASE WHEN {second} = CAST(0 AS {name}) THEN {first} * {infinity} ELSE {first} / {second} END"
    return Typed(sql=f"CAST({sql} AS {name})", type=result)


def _is_not_zero(part: Typed) -> bool:
    value = getattr(part.constant, "value", None)
    return bool(value)


def _remainder(operator: str, left: Typed, right: Typed, kind: DataType) -> Typed:
    """NULL when divided by zero; NaN for floating point numbers."""
    if operator == "//" and kind == INT128:
        raise Refused("it divides an int128 with //")
    first, second, name = cast(left, kind).sql, cast(right, kind).sql, spark_name(kind)
    word = "DIV" if operator == "//" else "%"
    if operator == "//":
        # DIV answers in 64 bits, and knows no overflow of the narrower types.
        first, second = f"CAST({first} AS BIGINT)", f"CAST({second} AS BIGINT)"
    by_zero = f"CASE WHEN {first} IS NULL THEN NULL ELSE CAST('NaN' AS {name}) END" if kind in FLOATS else "NULL"
    return Typed(sql=f"CAST(CASE WHEN {second} = 0 THEN {by_zero} ELSE {first} {word} {second} END AS {name})", type=kind)


def _date_arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    if left.text is not None or right.text is not None:
        raise Refused("it computes with a date and a quoted text")
    if left.type == DATE and right.type == DATE and operator == "-":
        return Typed(sql=f"CAST(datediff({finite(left.sql, DATE)}, {finite(right.sql, DATE)}) AS BIGINT)", type=INT64)
    day, days = (left, right) if left.type == DATE else (right, left)
    if days.type in (INT8, INT16, INT32) and (left.type == DATE or operator == "+"):
        name = "date_add" if operator == "+" else "date_sub"
        return Typed(sql=f"{name}({finite(day.sql, DATE)}, {cast(days, INT32).sql})", type=DATE)
    raise Refused(f"it computes {left.type} {operator} {right.type}")


def negated(part: Typed) -> Typed:
    """The number with the other sign."""
    if part.text is not None or not is_number(part.type) or part.type == NULL_TYPE:
        raise Refused(f"it negates {part.type}")
    return Typed(sql=f"(- {part.sql})", type=part.type)


def comparison(operator: str, left: Typed, right: Typed) -> Typed:
    """A comparison; ``<=>`` is IS NOT DISTINCT FROM."""
    kind = compared_type((left, right))
    return Typed(sql=f"({cast(left, kind).sql} {operator} {cast(right, kind).sql})", type=BOOLEAN)


def compared_type(parts: tuple[Typed, ...]) -> DataType:
    """The type in which values are compared."""
    kind = common_type(parts)
    if not is_comparable(kind):
        raise Refused(f"it compares values of type {kind}")
    scale = max((part.type.scale for part in parts if isinstance(part.type, DecimalType)), default=0)
    if isinstance(kind, DecimalType) and scale > kind.scale:
        # Digits behind the point are kept, and a number that has too many before it is an error, in DuckDB as in Spark.
        return DecimalType(precision=38, scale=scale)
    return kind


def listed(subject: Typed, items: list[Typed]) -> Typed:
    """``IN`` a list."""
    kind = compared_type((subject, *items))
    return Typed(sql=f"({cast(subject, kind).sql} IN ({', '.join(cast(item, kind).sql for item in items)}))", type=BOOLEAN)


def condition(part: Typed) -> Typed:
    """The expression as a condition."""
    if part.type in (BOOLEAN, NULL_TYPE):
        return cast(part, BOOLEAN)
    raise Refused(f"it takes a value of type {part.type} for a condition")


def logic(word: str, left: Typed, right: Typed) -> Typed:
    """AND and OR."""
    return Typed(sql=f"({condition(left).sql} {word} {condition(right).sql})", type=BOOLEAN)


def like(subject: Typed, pattern: Typed, escape: str | None = None) -> Typed:
    """LIKE with a constant pattern; without ESCAPE nothing escapes."""
    if subject.type != VARCHAR or pattern.text is None:
        raise Refused("it has LIKE with other than a text and a constant pattern")
    if escape == "" or escape is None:
        free = next(letter for letter in map(chr, range(1, 32)) if letter not in pattern.text)
        return Typed(sql=f"({cast(subject, VARCHAR).sql} LIKE {pattern.sql} ESCAPE {_escape_text(free)})", type=BOOLEAN)
    raise Refused("it has LIKE with ESCAPE")


def _escape_text(letter: str) -> str:
    """Spark wants the letter itself in quotes; control characters mean themselves there."""
    return f"'{letter}'"


def joined(left: Typed, right: Typed) -> Typed:
    """``||`` of texts."""
    if NULL_TYPE in (left.type, right.type):
        return Typed(sql="CAST(NULL AS INT)", type=NULL_TYPE)
    parts = [as_text(side) for side in (left, right)]
    return Typed(sql=f"concat({parts[0].sql}, {parts[1].sql})", type=VARCHAR)


def as_text(part: Typed) -> Typed:
    """The value as text."""
    if not is_comparable(part.type):
        raise Refused(f"it casts {part.type} to varchar")
    return cast(part, VARCHAR)


Operator = Callable[[Typed, Typed], Typed]
EMPTY_TEXT = string_text("")
