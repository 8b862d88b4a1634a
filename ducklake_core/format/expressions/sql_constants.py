"""Constants in parsed SQL as typed literals."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from sqlglot import exp

from ducklake_core.format.expressions.comparison import infinity_of, integer_range
from ducklake_core.format.expressions.literals import number_literal, text_literal
from ducklake_core.format.expressions.number_text import to_scale
from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOATS,
    INTEGERS,
    JSON,
    PRIMITIVES,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    DataType,
    DecimalType,
)
from ducklake_core.format.values.time_zones import instant

TYPE_NAMES = {
    "INT": "int32", "TINYINT": "int8", "SMALLINT": "int16", "BIGINT": "int64", "INT128": "int128", "UTINYINT": "uint8",
    "USMALLINT": "uint16", "UINT": "uint32", "UBIGINT": "uint64", "UINT128": "uint128", "FLOAT": "float32", "DOUBLE": "float64",
    "BOOLEAN": "boolean", "DATE": "date", "TIME": "time", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp",
    "TIMESTAMP_S": "timestamp_s", "TIMESTAMP_MS": "timestamp_ms", "TIMESTAMP_NS": "timestamp_ns", "TIMESTAMPTZ": "timestamptz",
    "TEXT": "varchar", "VARCHAR": "varchar", "VARBINARY": "blob", "BLOB": "blob", "UUID": "uuid", "JSON": "json",
}  # fmt: skip


def unwrapped(node: exp.Expression) -> exp.Expression:
    """The node inside its parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class QuotedText(NamedTuple):
    """A quoted string whose type comes from what it is compared with."""

    text: str


def constant_of(node: exp.Expression) -> QuotedText | Literal | None:
    """The constant that a node spells, None when it is none or only an engine can compute it."""
    node = unwrapped(node)
    match node:
        case exp.Literal() if node.is_string:
            return QuotedText(node.name)
        case exp.Literal():
            return number_literal(node.name)
        case exp.Neg() if isinstance(unwrapped(node.this), exp.Literal) and not unwrapped(node.this).is_string:
            return number_literal("-" + unwrapped(node.this).name)
        case exp.Boolean():
            return Literal(value=bool(node.this), type=BOOLEAN)
        case exp.Null():
            return Literal(value=None, type=BOOLEAN)
        case exp.Cast() if not isinstance(node, exp.TryCast):
            inner, target = constant_of(node.this), data_type_of(node.to)
            return None if inner is None or target is None else _cast(inner, target)
        case _:
            return None


def data_type_of(node: exp.DataType) -> DataType | None:
    """The type that a cast names, None for one that is not a table's leaf type."""
    name = str(node.this.value) if isinstance(node.this, exp.DataType.Type) else ""
    if name == "DECIMAL":
        sizes = [int(part.name) for part in node.expressions] or [18, 3]
        return DecimalType(precision=sizes[0], scale=sizes[1] if len(sizes) > 1 else 0)
    return PRIMITIVES.get(TYPE_NAMES.get(name, ""))


def zoned(constant: Literal) -> Literal | None:
    """Return the instant at which a date or timestamp begins in the effective time zone, None for other types and for no instant."""
    value = constant.value
    if not isinstance(value, int) or (constant.type != DATE and constant.type not in TIMESTAMPS):
        return None
    if constant.type == TIMESTAMPTZ:
        return constant
    if abs(value) >= infinity_of(constant.type):
        limit = infinity_of(TIMESTAMPTZ)
        return Literal(value=limit if value > 0 else -limit, type=TIMESTAMPTZ)
    if constant.type == TIMESTAMP_NS and value % 1000:
        return None
    wall = value * 86_400_000_000 if constant.type == DATE else value // 1000 if constant.type == TIMESTAMP_NS else value
    moment = instant(wall) if abs(wall) < infinity_of(TIMESTAMPTZ) else None
    return None if moment is None or abs(moment) >= infinity_of(TIMESTAMPTZ) else Literal(value=moment, type=TIMESTAMPTZ)


def _is_exact_number(data_type: DataType) -> bool:
    """Whether values of a type are integers or decimals; days and microseconds are not."""
    return data_type in INTEGERS or isinstance(data_type, DecimalType)


def _cast(constant: QuotedText | Literal, target: DataType) -> Literal | None:
    """A constant cast to another type where that is exact and plain; None leaves the cast to the engine."""
    if isinstance(constant, QuotedText):
        # Whether a text is JSON is looked at where it is cast.
        return None if target == JSON else text_literal(constant.text, target)
    value = constant.value
    if value is None or constant.type == target:
        return Literal(value=value, type=target)
    if constant.type == DATE and target == TIMESTAMP and isinstance(value, int) and abs(value) < 2**26:
        return Literal(value=value * 86_400_000_000, type=TIMESTAMP)
    if target == TIMESTAMPTZ:
        return zoned(constant)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not _is_exact_number(constant.type):
        return None
    if target in INTEGERS:
        whole, (low, high) = int(Decimal(value).to_integral_value(rounding=ROUND_HALF_UP)), integer_range(target)
        return Literal(value=whole, type=target) if low <= whole <= high else None
    if isinstance(target, DecimalType):
        try:
            return Literal(value=to_scale(Decimal(value), target), type=target)
        except ValueError:
            return None
    return text_literal(str(value), target) if target in FLOATS else None
