"""How values of two logical types compare: one rule for parsing, pruning, evaluation and SQL text.

Integers, decimals and booleans compare exactly; with a float32 they compare as float32 and with a float64 as float64; NaN is equal to
itself and greater than every number; dates and timestamps without a zone compare as points in time, those with one as instants: which
instant a time without a zone is depends on a zone, so the two have no common domain; text compares by its bytes.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias
from typing import Literal as OneOf
from uuid import UUID as Uuid

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.predicates import Literal, Operator
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INTEGERS,
    JSON,
    TIME,
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


def domain_of(data_type: DataType) -> Domain | None:
    """The domain that values of a type compare in among themselves; None when they cannot be ordered here."""
    if isinstance(data_type, PrimitiveType):
        return _DOMAINS.get(data_type.name)
    return "exact" if isinstance(data_type, DecimalType) else None


def common_domain(left: DataType, right: DataType) -> Domain | None:
    """The domain in which DuckDB compares two types, or None when it does not, or not without a cast of the column.

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
    """Whether DuckDB compares a value of one type inside of a variant with a constant of another, without a cast.

    >>> from ducklake_core.format.types.data_types import BOOLEAN, FLOAT64, INT8, VARCHAR
    >>> are_comparable(INT8, FLOAT64), are_comparable(BOOLEAN, INT8), are_comparable(VARCHAR, INT8)
    (True, False, False)
    """
    return (left == BOOLEAN) == (right == BOOLEAN) and common_domain(left, right) is not None


def key_of(value: object, data_type: DataType, domain: Domain) -> Any:
    """A Python object that orders as the value does in ``domain``.

    >>> from ducklake_core.format.types.data_types import FLOAT64, INT32, TIMESTAMP
    >>> key_of(float("nan"), FLOAT64, "float64") > key_of(float("inf"), FLOAT64, "float64")
    True
    >>> key_of(1, DATE, "point in time") == key_of(86_400_000_000, TIMESTAMP, "point in time")
    True
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
    """Whether ``left op right`` for two keys of one domain."""
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
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_key(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def round_to_float32(value: float) -> float:
    """The nearest float32, as a Python float; infinity where the value is too large.

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
    """The stored number that means ``infinity`` in a date or timestamp type; its negative means ``-infinity``."""
    return _INT32_LIMIT if data_type == DATE else _INT64_LIMIT


def _nanoseconds(value: object, data_type: DataType) -> float | int:
    assert isinstance(value, int), value
    if abs(value) >= infinity_of(data_type):
        return math.copysign(math.inf, value)
    return value * _unit_in_nanoseconds(data_type)


def uuid_number(value: object) -> int:
    """A UUID given as text, bytes or ``uuid.UUID`` as the unsigned number it compares as."""
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
    """Least and greatest value of an integer type."""
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
    below = nearest if nearest < value else _float32_before(nearest)
    return Fitted(operator="<=" if op in ("<", "<=") else ">", value=below)


def _float32_before(value: float) -> float:
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    if bits == 0:
        return -(2.0**-149)
    return float(struct.unpack("<f", struct.pack("<i", bits - 1 if bits > 0 else bits + 1))[0])
