"""Functions that never fall as their column grows: comparing one with a constant is comparing the column with another constant.

``year(ts) = 2013`` and ``ts >= '2013-01-01' AND ts < '2014-01-01'`` have the same outcome for every finite row.  So every engine can
evaluate them, and statistics, partition values and row groups leave files out as they do for the column itself.  Only what the
reference computes without a time zone is here: it takes the parts and the date of a ``timestamptz`` in the zone of its session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal as OneOf
from typing import TypeAlias

from ducklake_core.format.expressions.comparison import Fitted, common_domain, domain_of, fit, integer_range, round_to_float32
from ducklake_core.format.expressions.predicates import (
    UNKNOWN,
    ColumnReference,
    Comparison,
    InList,
    IsNull,
    Literal,
    Operator,
    Predicate,
    conjunction,
    disjunction,
    negation,
)
from ducklake_core.format.types.data_types import (
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT64,
    INTEGERS,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    DataType,
    DecimalType,
    PrimitiveType,
)
from ducklake_core.format.values.calendar_text import INFINITE_DAYS, INFINITE_UNITS, civil_from_days, days_from_civil

Unit: TypeAlias = OneOf["year", "quarter", "month", "week", "day", "hour", "minute", "second"]

_DAY = 86_400_000_000
_CLOCK: dict[Unit, int] = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_MONTHS: dict[Unit, int] = {"year": 12, "quarter": 3, "month": 1}
# Finer timestamps first: each goes into those after it only by rounding.
_WHOLE_TIMES = ("timestamp_s", "timestamp_ms", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """``CAST(column AS type)`` to a type that has every value of the column's, in the same order."""

    column: ColumnReference
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """``date_trunc(unit, column)``, or ``CAST(column AS DATE)`` as the day; infinite where the column is."""

    column: ColumnReference
    unit: Unit
    type: DataType = TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """``year(column)``; NULL where the column is infinite."""

    column: ColumnReference
    type: DataType = INT64


MonotonicTransform: TypeAlias = Cast | Truncated | Year


def cast_of(column: ColumnReference, target: DataType, *, is_try: bool = False) -> MonotonicTransform | None:
    """A cast that keeps the order, of ``TRY_CAST`` one that never fails; None for any other.

    >>> from ducklake_core.format.types.data_types import INT32, INT8
    >>> column = ColumnReference(column_id=1, path=("n",), type=INT32)
    >>> cast_of(column, INT64) is None, cast_of(column, INT8) is None
    (False, True)
    """
    if target == DATE and has_calendar(column):
        return Cast(column=column, type=DATE) if column.type == DATE else Truncated(column=column, unit="day", type=DATE)
    # Dates far away have no timestamp: DuckDB fails, or gives NULL.
    widens = _widens(column.type, target) or (column.type == DATE and target == TIMESTAMP and not is_try)
    return Cast(column=column, type=target) if widens else None


def has_calendar(column: ColumnReference) -> bool:
    """Whether the column's dates are the same in every time zone."""
    return column.type == DATE or (column.type in TIMESTAMPS and column.type != TIMESTAMPTZ)


def _widens(source: DataType, target: DataType) -> bool:
    if source == target:
        return domain_of(source) is not None
    if target in FLOATS:
        return (source == FLOAT32 and target == FLOAT64) or source in INTEGERS or isinstance(source, DecimalType)
    if isinstance(target, DecimalType) or target in INTEGERS:
        low, high, scale = _exact_limits(target)
        if not (isinstance(source, DecimalType) or source in INTEGERS):
            return False
        least, greatest, digits = _exact_limits(source)
        return digits <= scale and low <= least and greatest <= high
    if isinstance(source, PrimitiveType) and isinstance(target, PrimitiveType) and {source.name, target.name} <= {*_WHOLE_TIMES}:
        return _WHOLE_TIMES.index(source.name) < _WHOLE_TIMES.index(target.name)
    return False


def _exact_limits(data_type: DataType) -> tuple[int, int, int]:
    """Least and greatest whole value, and digits after the point."""
    if isinstance(data_type, DecimalType):
        limit = 10 ** (data_type.precision - data_type.scale) - 1
        return -limit, limit, data_type.scale
    return (*integer_range(data_type), 0)


def compared(function: MonotonicTransform, op: Operator, literal: Literal) -> Predicate | None:
    """``function op literal`` as a condition on the column, with the same outcome for every row; None where there is none.

    >>> from ducklake_core.format.expressions.predicate_sql import to_sql
    >>> at = ColumnReference(column_id=1, path=("at",), type=DATE)
    >>> first_of_march = Literal(value=15765, type=DATE)
    >>> to_sql(compared(Truncated(column=at, unit="month"), "=", first_of_march), "duckdb")
    '(("at" >= DATE \\'2013-03-01\\') AND ("at" < DATE \\'2013-04-01\\'))'
    >>> to_sql(compared(Truncated(column=at, unit="week"), ">", first_of_march), "duckdb")
    '("at" >= DATE \\'2013-03-04\\')'
    """
    if literal.value is None:
        return UNKNOWN
    match function:
        case Cast(column=column, type=target):
            return _cast(column, target, op, literal)
        case Truncated(column=column, unit=unit):
            return _truncated(column, unit, op, literal)
        case Year(column=column):
            return _year(column, op, literal)


def one_of(function: MonotonicTransform, literals: Sequence[Literal], *, has_null: bool) -> Predicate | None:
    """``function IN (literals)``, or with NULL among them."""
    parts = [compared(function, "=", literal) for literal in literals]
    if any(part is None for part in parts):
        return None
    return disjunction([*(part for part in parts if part is not None), *([UNKNOWN] if has_null else [])])


def is_null(function: MonotonicTransform) -> Predicate:
    """``function IS NULL``."""
    missing = IsNull(operand=function.column)
    return disjunction((missing, conjunction((negation(missing), _infinite(function.column))))) if isinstance(function, Year) else missing


def _cast(column: ColumnReference, target: DataType, op: Operator, literal: Literal) -> Predicate | None:
    domain = common_domain(target, literal.type)
    if domain is None:
        return None
    if target in FLOATS and domain_of(column.type) == "exact":
        if target == FLOAT32 and domain == "float64":
            # Rounded twice: to float32 by the cast, and not at all by the comparison.
            return None
        value = _as_float(literal)
        literal = Literal(value=round_to_float32(value) if target == FLOAT32 else value, type=target)
    elif target == FLOAT64 and column.type == FLOAT32 and domain_of(literal.type) == "exact":
        literal = Literal(value=_as_float(literal), type=FLOAT64)
    return Comparison(left=column, operator=op, right=literal)


def _as_float(literal: Literal) -> float:
    assert isinstance(literal.value, int | float | Decimal)
    return float(literal.value)


def _truncated(column: ColumnReference, unit: Unit, op: Operator, literal: Literal) -> Predicate | None:
    if common_domain(TIMESTAMP, literal.type) is None or literal.type in (TIMESTAMPTZ, TIMESTAMP_NS):
        return None
    point = _microseconds(literal)
    if point is None or (column.type == DATE and unit in _CLOCK):
        return Comparison(left=column, operator=op, right=literal)
    start, end = _period(point, unit)
    match op:
        case ">=":
            return _since(column, start if point == start else end)
        case "<":
            return _before(column, start if point == start else end)
        case ">":
            return _since(column, end)
        case "<=":
            return _before(column, end)
        case "=" | "<>":
            same = conjunction((_since(column, start), _before(column, end))) if point == start else _never(column)
            return same if op == "=" else negation(same)


def _microseconds(literal: Literal) -> int | None:
    """Since 1970; None for infinity."""
    assert isinstance(literal.value, int)
    if literal.type == DATE:
        return None if abs(literal.value) >= INFINITE_DAYS else literal.value * _DAY
    return None if abs(literal.value) >= INFINITE_UNITS else literal.value


def _period(point: int, unit: Unit) -> tuple[int, int]:
    """First microsecond of the period that a point lies in, and of the next.

    >>> _period(-1, "week") == (-3 * _DAY, 4 * _DAY), _period(-1, "hour") == (-3_600_000_000, 0)
    (True, True)
    """
    if unit in _CLOCK or unit == "day":
        length = _CLOCK.get(unit, _DAY)
        return point // length * length, (point // length + 1) * length
    day = point // _DAY
    if unit == "week":
        # 1970-01-01 was a Thursday, and weeks begin on Mondays.
        monday = (day + 3) // 7 * 7 - 3
        return monday * _DAY, (monday + 7) * _DAY
    months = _MONTHS[unit]
    year, month, _ = civil_from_days(day)
    first = (month - 1) // months * months
    next_year, next_month = divmod(year * 12 + first + months, 12)
    return days_from_civil(year, first + 1, 1) * _DAY, days_from_civil(next_year, next_month + 1, 1) * _DAY


def _year(column: ColumnReference, op: Operator, literal: Literal) -> Predicate | None:
    if domain_of(literal.type) != "exact":
        return None
    fitted = fit(op, literal, INT64)
    if not isinstance(fitted, Fitted):
        always = conjunction((_since(column, -INFINITE_UNITS * _DAY), _before(column, INFINITE_UNITS * _DAY)))
        return None if fitted is None else _null_where_infinite(column, always if fitted else _never(column))
    assert isinstance(fitted.value, int)
    return _null_where_infinite(column, _finite_years(column, fitted.operator, fitted.value))


def _finite_years(column: ColumnReference, op: Operator, year: int) -> Predicate:
    """``year(column) op year`` for finite values; not true for infinite ones."""
    start, end = (days_from_civil(first, 1, 1) * _DAY for first in (year, year + 1))
    finite_from, finite_to = _since(column, -INFINITE_UNITS * _DAY), _before(column, INFINITE_UNITS * _DAY)
    match op:
        case ">=":
            return conjunction((_since(column, start), finite_to))
        case ">":
            return conjunction((_since(column, end), finite_to))
        case "<":
            return conjunction((_before(column, start), finite_from))
        case "<=":
            return conjunction((_before(column, end), finite_from))
        case "=":
            return conjunction((_since(column, start), _before(column, end)))
        case "<>":
            before = conjunction((_before(column, start), finite_from))
            return disjunction((before, conjunction((_since(column, end), finite_to))))


def _null_where_infinite(column: ColumnReference, of_finite: Predicate) -> Predicate:
    """A condition that is not true for infinite values, made NULL for them."""
    return disjunction((of_finite, conjunction((_infinite(column), UNKNOWN))))


def _infinite(column: ColumnReference) -> Predicate:
    return InList(operand=column, values=tuple(_point(column, sign * INFINITE_UNITS * _DAY) for sign in (-1, 1)))


def _never(column: ColumnReference) -> Predicate:
    """False for every value, NULL for NULL."""
    return conjunction((IsNull(operand=column), UNKNOWN))


def _since(column: ColumnReference, boundary: int) -> Predicate:
    """The column is at or after a point in microseconds; ``-infinity`` is before every point."""
    point = _point(column, boundary)
    return Comparison(left=column, operator=">" if _is_first(point) else ">=", right=point)


def _before(column: ColumnReference, boundary: int) -> Predicate:
    point = _point(column, boundary)
    return Comparison(left=column, operator="<=" if _is_first(point) else "<", right=point)


def _is_first(point: Literal) -> bool:
    return point.value == -(INFINITE_DAYS if point.type == DATE else INFINITE_UNITS)


def _point(column: ColumnReference, boundary: int) -> Literal:
    """A point in microseconds as a constant of the column; what lies beyond all finite values is infinite."""
    if column.type == DATE:
        return Literal(value=max(-INFINITE_DAYS, min(-(-boundary // _DAY), INFINITE_DAYS)), type=DATE)
    if column.type == TIMESTAMP_NS:
        # DuckDB cuts nanoseconds off towards zero: up to 999 before a point that is not after 1970 count as that point.
        boundary = boundary * 1000 - (999 if boundary <= 0 else 0)
    return Literal(value=max(-INFINITE_UNITS, min(boundary, INFINITE_UNITS)), type=column.type)
