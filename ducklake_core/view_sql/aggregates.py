"""Aggregate and window functions by DuckDB's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ducklake_core.format.types.data_types import (
    BOOLEAN,
    FLOAT64,
    FLOATS,
    INT32,
    INT64,
    INT128,
    DataType,
    DecimalType,
)
from ducklake_core.format.types.number_types import DIGITS
from ducklake_core.view_sql.casts import cast
from ducklake_core.view_sql.operators import condition
from ducklake_core.view_sql.typed import NULL_TYPE, Refused, Typed, is_comparable, is_number

Call: TypeAlias = Callable[[str], str]
"""Completes one call of an aggregate with its FILTER or OVER."""
Aggregate: TypeAlias = Callable[[Sequence[Typed], str, Call], Typed]
"""Makes a value of arguments, ``DISTINCT `` or nothing, and what completes each call."""


def _count(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    if not parts:
        return Typed(sql=call("count(*)"), type=INT64)
    (part,) = parts
    if distinct:
        _same_order(part)
    return Typed(sql=call(f"count({distinct}{part.sql})"), type=INT64)


def _sum(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    (part,) = parts
    kind = _sum_type(part)
    summand = cast(part, INT32) if part.type == BOOLEAN else part
    return Typed(sql=call(f"sum({distinct}{cast(summand, kind).sql})"), type=kind)


def _sum_type(part: Typed) -> DataType:
    if part.text is None and (part.type in DIGITS or part.type in (BOOLEAN, NULL_TYPE)):
        return INT128
    if isinstance(part.type, DecimalType):
        return DecimalType(precision=38, scale=part.type.scale)
    if part.type in FLOATS:
        return FLOAT64
    raise Refused(f"it sums values of type {part.type}")


def _average(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    """The exact sum divided as doubles, as DuckDB does it; Spark's own would add doubles."""
    (part,) = parts
    if part.text is not None or not (is_number(part.type) or part.type in DIGITS) or part.type == NULL_TYPE:
        raise Refused(f"it takes the average of values of type {part.type}")
    if part.type in FLOATS:
        return Typed(sql=call(f"avg({distinct}{cast(part, FLOAT64).sql})"), type=FLOAT64)
    scale, counted = 0, cast(part, INT128).sql if part.type in DIGITS else part.sql
    if isinstance(part.type, DecimalType):
        scale = part.type.scale
        if part.type.precision + scale + 2 > 38:
            return _average_of_many_digits(part, part.type, distinct, call)
        counted = f"CAST({part.sql} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS DECIMAL(38,0))"
    total, number = call(f"sum({distinct}{counted})"), call(f"count({distinct}{part.sql})")
    return Typed(sql=f"(CAST({total} AS DOUBLE) / nullif(CAST({number} AS DOUBLE) * 1E{scale}D, 0D))", type=FLOAT64)


def _average_of_many_digits(part: Typed, kind: DecimalType, distinct: str, call: Call) -> Typed:
    """Likewise where the digits leave no room to be shifted: those of the sum become a whole number as a text."""
    total = call(f"sum({distinct}{cast(part, DecimalType(precision=38, scale=kind.scale)).sql})")
    number = call(f"count({distinct}{part.sql})")
    # A text of a small number with more digits behind the point has an exponent.
    if kind.scale <= 6:
        digits, divisor = f"CAST(replace(CAST({total} AS STRING), '.', '') AS DOUBLE)", f" * 1E{kind.scale}D"
    else:
        digits, divisor = f"CAST({total} AS DOUBLE)", ""
    return Typed(sql=f"({digits} / nullif(CAST({number} AS DOUBLE){divisor}, 0D))", type=FLOAT64)


def _spread(name: str) -> Aggregate:
    """A variance or deviation, up to rounding: engines add in other orders. What is none is an error in DuckDB."""

    def aggregate(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
        (part,) = parts
        if part.text is not None or not (is_number(part.type) or part.type in DIGITS) or part.type == NULL_TYPE:
            raise Refused(f"it takes the deviation of values of type {part.type}")
        found = call(f"{name}({distinct}{cast(part, FLOAT64).sql})")
        if part.type not in FLOATS:
            return Typed(sql=found, type=FLOAT64)
        error = f"raise_error('{name.upper()} is out of range!')"
        return Typed(
            sql=f"CASE WHEN abs({found}) >= CAST('Infinity' AS DOUBLE) THEN CAST({error} AS DOUBLE) ELSE {found} END", type=FLOAT64
        )

    return aggregate


def _extreme(name: str) -> Aggregate:
    def aggregate(parts: Sequence[Typed], _distinct: str, call: Call) -> Typed:
        (part,) = parts
        _same_order(part)
        return Typed(sql=call(f"{name}({part.sql})"), type=INT32 if part.type == NULL_TYPE else part.type)

    return aggregate


def _same_order(part: Typed) -> None:
    if not is_comparable(part.type):
        raise Refused(f"it compares values of type {part.type}")


def _truth(name: str) -> Aggregate:
    def aggregate(parts: Sequence[Typed], _distinct: str, call: Call) -> Typed:
        (part,) = parts
        return Typed(sql=call(f"{name}({condition(part).sql})"), type=BOOLEAN)

    return aggregate


def _count_if(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    """NULL without rows, as a sum."""
    (part,) = parts
    if distinct:
        raise Refused("it has count_if with DISTINCT")
    counted = f"CASE WHEN {condition(part).sql} THEN CAST(1 AS DECIMAL(38,0)) ELSE CAST(0 AS DECIMAL(38,0)) END"
    return Typed(sql=call(f"sum({counted})"), type=INT128)


AGGREGATES: dict[str, Aggregate] = {
    "count": _count, "count_star": _count, "sum": _sum, "avg": _average, "mean": _average, "min": _extreme("min"), "max": _extreme("max"),
    "stddev": _spread("stddev_samp"), "stddev_samp": _spread("stddev_samp"), "stddev_pop": _spread("stddev_pop"),
    "variance": _spread("var_samp"), "var_samp": _spread("var_samp"), "var_pop": _spread("var_pop"),
    "bool_and": _truth("bool_and"), "bool_or": _truth("bool_or"), "count_if": _count_if, "countif": _count_if,
}  # fmt: skip

RANKS: dict[str, tuple[str, DataType]] = {
    "row_number": ("CAST({} AS BIGINT)", INT64), "rank": ("CAST({} AS BIGINT)", INT64), "dense_rank": ("CAST({} AS BIGINT)", INT64),
    "percent_rank": ("{}", FLOAT64), "cume_dist": ("{}", FLOAT64), "ntile": ("CAST({} AS BIGINT)", INT64),
}  # fmt: skip
"""Window functions that number rows: what is made of Spark's answer, and its type."""
NEIGHBOURS = ("lag", "lead", "first_value", "last_value", "first", "last", "nth_value")
"""Window functions that take a value from another row."""
