"""Compare values of two logical types by one rule for parsing, pruning, evaluation and SQL text."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias
from typing import Literal as OneOf
from uuid import UUID as Uuid

from ducklake_core.errors import UsageError
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
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT64,
    INTEGERS,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UNSIGNED_INTEGERS,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
    PrimitiveType,
)
from ducklake_core.format.values.temporal import INFINITE_DAYS, INFINITE_UNITS, civil_from_days, days_from_civil

# Two values are compared in a domain: "exact" for booleans, integers and decimals, "float32" and "float64", "point in time" for dates and
# timestamps without a zone, "instant" for timestamptz, and one each for the other types. Next to a float, DuckDB casts exact numbers to
# the float's type before it compares. Parsing, pruning, evaluation and SQL text all follow common_domain, so that they agree.
Domain: TypeAlias = OneOf["exact", "float32", "float64", "point in time", "instant", "time", "text", "bytes", "uuid"]
_OPERATIONS: dict[Operator, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FLIPPED: dict[Operator, Operator] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INT32_LIMIT = 2**31 - 1
_INT64_LIMIT = 2**63 - 1
_NANOSECONDS_A_DAY = 86_400_000_000_000
_WIDTHS = {
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "int128": 128,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "uint128": 128,
}
_DOMAINS: dict[str, Domain] = {
    **dict.fromkeys((kind.name for kind in (BOOLEAN, *INTEGERS)), "exact"),
    **dict.fromkeys((kind.name for kind in (DATE, *TIMESTAMPS)), "point in time"),
    TIMESTAMPTZ.name: "instant",
    FLOAT32.name: "float32",
    FLOAT64.name: "float64",
    TIME.name: "time",
    BLOB.name: "bytes",
    UUID.name: "uuid",
    **dict.fromkeys((VARCHAR.name, JSON.name), "text"),
}

Unit: TypeAlias = OneOf["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
_DAY = 86_400_000_000
_CLOCK: dict[Unit, int] = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_MONTHS: dict[Unit, int] = {"year": 12, "quarter": 3, "month": 1}
# Finer timestamps first: each goes into those after it only by rounding.
_WHOLE_TIMES = ("timestamp_s", "timestamp_ms", "timestamp")


def domain_of(data_type: DataType) -> Domain | None:
    """Return the domain that values of a type compare in among themselves; None when they cannot be ordered here."""
    if isinstance(data_type, PrimitiveType):
        return _DOMAINS.get(data_type.name)
    return "exact" if isinstance(data_type, DecimalType) else None


def common_domain(left: DataType, right: DataType) -> Domain | None:
    """Return the domain in which DuckDB compares two types, or None when it does not, or not without a cast of the column.

    >>> from ducklake_core.format.types.data_types import INT32, FLOAT32, DecimalType, VARCHAR, DATE, TIMESTAMP
    >>> common_domain(INT32, DecimalType(precision=4, scale=1)), common_domain(FLOAT32, INT32), common_domain(DATE, TIMESTAMP)
    ('exact', 'float32', 'point in time')
    >>> common_domain(VARCHAR, INT32) is None
    True
    """
    first, second = domain_of(left), domain_of(right)
    if first == second:
        return first
    numbers: tuple[Domain, ...] = ("exact", "float32", "float64")
    if first in numbers and second in numbers:
        return numbers[max(numbers.index(first), numbers.index(second))]
    return None


def are_comparable(left: DataType, right: DataType) -> bool:
    """Return whether DuckDB compares a value of one type inside of a variant with a constant of another, without a cast.

    >>> from ducklake_core.format.types.data_types import BOOLEAN, FLOAT64, INT8, VARCHAR
    >>> are_comparable(INT8, FLOAT64), are_comparable(BOOLEAN, INT8), are_comparable(VARCHAR, INT8)
    (True, False, False)
    """
    return (left == BOOLEAN) == (right == BOOLEAN) and common_domain(left, right) is not None


def key_of(value: object, data_type: DataType, domain: Domain) -> Any:
    """Return a Python object that orders as the value does in ``domain``.

    >>> from ducklake_core.format.types.data_types import FLOAT64, INT32, TIMESTAMP
    >>> key_of(float("nan"), FLOAT64, "float64") > key_of(float("inf"), FLOAT64, "float64")
    True
    >>> key_of(1, DATE, "point in time") == key_of(86_400_000_000, TIMESTAMP, "point in time")
    True

    Args:
        value: The value in the Python form of its type (format/values/leaf_values.py); not None.
        data_type: Its type.
        domain: The domain in which it is compared, see :func:`common_domain`.
    """
    match domain:
        case "exact":
            return _exact(value)
        case "float32":
            return _float_key(round_to_float32(_as_float(value)))
        case "float64":
            return _float_key(_as_float(value))
        case "point in time" | "instant":
            return _nanoseconds(value, data_type)
        case "uuid":
            return uuid_number(value)
        case "bytes":
            return bytes(value) if isinstance(value, bytearray | memoryview) else value
        case "time" | "text":
            return value


def holds(left: Any, op: Operator, right: Any) -> bool:
    """Return whether ``left op right`` for two keys of one domain."""
    return _OPERATIONS[op](left, right)


def _exact(value: object) -> int | Decimal:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | Decimal):
        return value
    raise UsageError(f"{value!r} is not an exact number")


def _as_float(value: object) -> float:
    assert isinstance(value, int | float | Decimal), value
    try:
        return float(value)
    # Python raises beyond the range of a double. Infinity has the same place in the order.
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_key(value: float) -> tuple[bool, float]:
    # DuckDB: NaN equals NaN and is greater than infinity.
    return (True, 0.0) if math.isnan(value) else (False, value)


def round_to_float32(value: float) -> float:
    """Return the nearest float32, as a Python float; infinity where the value is too large.

    >>> round_to_float32(0.1), round_to_float32(1e300)
    (0.10000000149011612, inf)
    """
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _unit_in_nanoseconds(data_type: DataType) -> int:
    if data_type == DATE:
        return _NANOSECONDS_A_DAY
    return 1 if data_type == TIMESTAMP_NS else 1000


def infinity_of(data_type: DataType) -> int:
    """Return the stored number that means ``infinity`` in a date or timestamp type; its negative means ``-infinity``."""
    return _INT32_LIMIT if data_type == DATE else _INT64_LIMIT


def _nanoseconds(value: object, data_type: DataType) -> float | int:
    assert isinstance(value, int), value
    if abs(value) >= infinity_of(data_type):
        return math.copysign(math.inf, value)
    return value * _unit_in_nanoseconds(data_type)


def uuid_number(value: object) -> int:
    """Return a UUID given as text, bytes or ``uuid.UUID`` as the unsigned number it compares as."""
    match value:
        case Uuid():
            return value.int
        case str():
            return Uuid(value).int
        case bytes():
            return int.from_bytes(value, "big")
        case _:
            raise UsageError(f"{value!r} is not a UUID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """``column operator value`` with a value of the column's own type, true for the same rows as the comparison it came from."""

    operator: Operator
    value: object


def fit(op: Operator, literal: Literal, column_type: DataType) -> Fitted | bool | None:
    """Rewrite ``column op literal`` so that the literal has the column's own type.

    >>> from ducklake_core.format.types.data_types import INT8, INT32, DecimalType
    >>> fit("<", Literal(value=Decimal("1.5"), type=DecimalType(precision=2, scale=1)), INT8)
    Fitted(operator='<=', value=1)
    >>> fit("=", Literal(value=1000, type=INT32), INT8), fit("<", Literal(value=1000, type=INT32), INT8)
    (False, True)

    Args:
        op: The comparison.
        literal: The constant on its right; not NULL.
        column_type: Type of the column on its left.

    Returns:
        The rewritten comparison; True or False when it has that outcome for every value that is not NULL; None when it
        cannot be rewritten (an exact column with a float, which compares as float).
    """
    assert literal.value is not None
    domain = common_domain(column_type, literal.type)
    if domain in ("float32", "float64"):
        if domain_of(column_type) == "exact":
            return None
        value = _as_float(literal.value)
        return _fit_float(op, round_to_float32(value) if literal.type == FLOAT32 else value, domain, column_type)
    if literal.type == column_type:
        return Fitted(operator=op, value=literal.value)
    match domain:
        case "exact":
            low, high, unit = _exact_range(column_type)
            exact = _exact(literal.value)
            fitted = _fit_steps(op, exact if isinstance(exact, int) and unit == 1 else Fraction(exact) / unit, low, high)
            if isinstance(fitted, bool):
                return fitted
            return Fitted(operator=fitted[0], value=_exact_value(fitted[1], column_type))
        case "point in time":
            return _fit_time(op, literal, column_type)
        case None:
            raise UsageError(f"a column of type {column_type} cannot be compared with a {literal.type}")
        case _:
            return Fitted(operator=op, value=literal.value)


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Return the least and greatest value of an integer type."""
    assert isinstance(data_type, PrimitiveType), data_type
    bits = _WIDTHS[data_type.name]
    return (0, 2**bits - 1) if data_type in UNSIGNED_INTEGERS else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@lru_cache(maxsize=64)
def _exact_range(data_type: DataType) -> tuple[int, int, Fraction]:
    if isinstance(data_type, DecimalType):
        limit = 10**data_type.precision - 1
        return -limit, limit, Fraction(1, 10**data_type.scale)
    low, high = (0, 1) if data_type == BOOLEAN else integer_range(data_type)
    return low, high, Fraction(1)


def _exact_value(steps: int, data_type: DataType) -> object:
    if isinstance(data_type, DecimalType):
        return Decimal((steps < 0, tuple(int(d) for d in str(abs(steps))), -data_type.scale))
    return bool(steps) if data_type == BOOLEAN else steps


def _fit_steps(op: Operator, wanted: Fraction | int, low: int, high: int) -> tuple[Operator, int] | bool:
    # The column has whole steps only: integers, or units of a decimal's last digit. A constant x may lie between two of them:
    #
    #    steps         steps + 1
    #   ---|------ x ------|---     ``< x`` and ``<= x`` mean ``<= steps``; ``> x`` and ``>= x`` mean ``> steps``
    #
    # Outside of the type's range, the outcome is the same for every value.
    steps = math.floor(wanted)
    if steps == wanted and low <= steps <= high:
        return op, steps
    match op:
        case "=":
            return False
        case "<>":
            return True
        case "<" | "<=":
            below = steps if steps != wanted else steps - (op == "<")
            return True if below >= high else False if below < low else ("<=", below)
        case ">" | ">=":
            above = steps if steps != wanted else steps - (op == ">=")
            return False if above >= high else True if above < low else (">", above)


def _fit_time(op: Operator, literal: Literal, column_type: DataType) -> Fitted | bool:
    point = _nanoseconds(literal.value, literal.type)
    infinity = infinity_of(column_type)
    if isinstance(point, float):
        return Fitted(operator=op, value=infinity if point > 0 else -infinity)
    wanted = Fraction(point, _unit_in_nanoseconds(column_type))
    steps = math.floor(wanted)
    if steps == wanted and abs(steps) < infinity:
        return Fitted(operator=op, value=steps)
    if op in ("=", "<>"):
        return op == "<>"
    # Infinite rows lie outside the finite range, so an unreachable literal decides for the finite rows only.
    less = op in ("<", "<=")
    last = steps - (steps == wanted and op in ("<", ">="))
    return Fitted(operator="<=" if less else ">", value=max(-infinity, min(last, infinity - 1)))


def _fit_float(op: Operator, value: float, domain: Domain, column_type: DataType) -> Fitted | bool:
    nearest = round_to_float32(value) if column_type == FLOAT32 else value
    if domain == "float32" or nearest == value or math.isnan(value):
        return Fitted(operator=op, value=nearest)
    if op in ("=", "<>"):
        return op == "<>"
    # No float32 lies between the two neighbors of the constant, so the lower one stands for it on both sides.
    below = nearest if nearest < value else _float32_before(nearest)
    return Fitted(operator="<=" if op in ("<", "<=") else ">", value=below)


def _float32_before(value: float) -> float:
    # Floats of one sign have the order of their bit patterns, so the neighbor is one pattern away. Below zero is the smallest subnormal.
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    if bits == 0:
        return -(2.0**-149)
    return float(struct.unpack("<f", struct.pack("<i", bits - 1 if bits > 0 else bits + 1))[0])


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
    """Return a cast that keeps the order, of ``TRY_CAST`` one that never fails; None for any other.

    >>> from ducklake_core.format.types.data_types import INT32, INT8
    >>> column = ColumnReference(column_id=1, path=("n",), type=INT32)
    >>> cast_of(column, INT64) is None, cast_of(column, INT8) is None
    (False, True)

    Args:
        column: The column that is cast.
        target: The type to which it is cast.
        is_try: Whether the cast is TRY_CAST, which gives NULL instead of an error.
    """
    if target == DATE and has_calendar(column):
        return Cast(column=column, type=DATE) if column.type == DATE else Truncated(column=column, unit="day", type=DATE)
    # Dates far away have no timestamp: DuckDB fails, or gives NULL.
    widens = _widens(column.type, target) or (column.type == DATE and target == TIMESTAMP and not is_try)
    return Cast(column=column, type=target) if widens else None


def has_calendar(column: ColumnReference) -> bool:
    """Return whether the column's dates are the same in every time zone."""
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
    """Return the least and greatest whole value, and digits after the point."""
    if isinstance(data_type, DecimalType):
        limit = 10 ** (data_type.precision - data_type.scale) - 1
        return -limit, limit, data_type.scale
    return (*integer_range(data_type), 0)


def compared(function: MonotonicTransform, op: Operator, literal: Literal) -> Predicate | None:
    """Return ``function op literal`` as a condition on the column, with the same outcome for every row; None where there is none.

    >>> from ducklake_core.format.expressions.sql import to_sql
    >>> at = ColumnReference(column_id=1, path=("at",), type=DATE)
    >>> first_of_march = Literal(value=15765, type=DATE)
    >>> to_sql(compared(Truncated(column=at, unit="month"), "=", first_of_march), "duckdb")
    '(("at" >= DATE \\'2013-03-01\\') AND ("at" < DATE \\'2013-04-01\\'))'
    >>> to_sql(compared(Truncated(column=at, unit="week"), ">", first_of_march), "duckdb")
    '("at" >= DATE \\'2013-03-04\\')'

    Args:
        function: A function that never falls as its column grows.
        op: The comparison.
        literal: The constant on its right; next to NULL the result is UNKNOWN.
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
    """Return ``function IN (literals)`` as a condition on the column, with NULL among the literals or without; None where there is none.

    Args:
        function: A function that never falls as its column grows.
        literals: The constants of the list that are not NULL.
        has_null: Whether the list also holds NULL.
    """
    parts = [compared(function, "=", literal) for literal in literals]
    if any(part is None for part in parts):
        return None
    return disjunction([*(part for part in parts if part is not None), *([UNKNOWN] if has_null else [])])


def is_null(function: MonotonicTransform) -> Predicate:
    """Return ``function IS NULL`` as a condition on the column."""
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
        value = _constant_as_float(literal)
        literal = Literal(value=round_to_float32(value) if target == FLOAT32 else value, type=target)
    elif target == FLOAT64 and column.type == FLOAT32 and domain_of(literal.type) == "exact":
        literal = Literal(value=_constant_as_float(literal), type=FLOAT64)
    return Comparison(left=column, operator=op, right=literal)


def _constant_as_float(literal: Literal) -> float:
    assert isinstance(literal.value, int | float | Decimal)
    return float(literal.value)


def _truncated(column: ColumnReference, unit: Unit, op: Operator, literal: Literal) -> Predicate | None:
    # A constant in nanoseconds or with a zone is left to the engine.
    if common_domain(TIMESTAMP, literal.type) is None or literal.type in (TIMESTAMPTZ, TIMESTAMP_NS):
        return None
    point = _microseconds(literal)
    # Infinity has no period, and truncating a date to a unit of the clock does not change it.
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
    """Return the microseconds since 1970; None for infinity."""
    assert isinstance(literal.value, int)
    if literal.type == DATE:
        return None if abs(literal.value) >= INFINITE_DAYS else literal.value * _DAY
    return None if abs(literal.value) >= INFINITE_UNITS else literal.value


def _period(point: int, unit: Unit) -> tuple[int, int]:
    """Return the first microsecond of the period that a point lies in, and of the next.

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
    """Return ``year(column) op year`` for finite values; not true for infinite ones."""
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
    """Return a condition that is not true for infinite values, made NULL for them."""
    return disjunction((of_finite, conjunction((_infinite(column), UNKNOWN))))


def _infinite(column: ColumnReference) -> Predicate:
    return InList(operand=column, values=tuple(_point(column, sign * INFINITE_UNITS * _DAY) for sign in (-1, 1)))


def _never(column: ColumnReference) -> Predicate:
    """Return a condition that is false for every value and NULL for NULL."""
    return conjunction((IsNull(operand=column), UNKNOWN))


def _since(column: ColumnReference, boundary: int) -> Predicate:
    """Return the condition that the column is at or after a point in microseconds; ``-infinity`` is before every point."""
    point = _point(column, boundary)
    return Comparison(left=column, operator=">" if _is_first(point) else ">=", right=point)


def _before(column: ColumnReference, boundary: int) -> Predicate:
    point = _point(column, boundary)
    return Comparison(left=column, operator="<=" if _is_first(point) else "<", right=point)


def _is_first(point: Literal) -> bool:
    return point.value == -(INFINITE_DAYS if point.type == DATE else INFINITE_UNITS)


def _point(column: ColumnReference, boundary: int) -> Literal:
    """Return a point in microseconds as a constant of the column; what lies beyond all finite values is infinite."""
    if column.type == DATE:
        return Literal(value=max(-INFINITE_DAYS, min(-(-boundary // _DAY), INFINITE_DAYS)), type=DATE)
    if column.type == TIMESTAMP_NS:
        # DuckDB cuts nanoseconds off towards zero: up to 999 before a point that is not after 1970 count as that point.
        boundary = boundary * 1000 - (999 if boundary <= 0 else 0)
    return Literal(value=max(-INFINITE_UNITS, min(boundary, INFINITE_UNITS)), type=column.type)
