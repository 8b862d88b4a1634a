"""The logical types of DuckLake, and the common type of numbers (specification: Data Types)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

T = TypeVar("T")

_SMALL_DECIMAL = 18
"""Digits of the decimals that DuckDB keeps in 64 bits; their results stay there, or are an error."""
_MAX_DIGITS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimitiveType:
    """A type without parameters or children, by its name in ``ducklake_column.column_type``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalType:
    """An exact number of ``precision`` (1 to 38) digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListType:
    """A list; its one child is called ``element``."""

    element: Field

    def __str__(self) -> str:
        return f"list<{self.element.type}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapType:
    """A map; its children are called ``key`` and ``value``."""

    key: Field
    value: Field

    def __str__(self) -> str:
        return f"map<{self.key.type}, {self.value.type}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class StructType:
    """A struct with at least one named field."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        inner = ", ".join(f"{f.name}: {f.type}" for f in self.fields)
        return f"struct<{inner}>"


DataType: TypeAlias = PrimitiveType | DecimalType | ListType | MapType | StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One node of a type tree.

    Attributes:
        id: ``column_id`` of the node, which its table never uses again; 0 if it is not assigned yet.
        name: Name as the user wrote it. Names are case-insensitive.
        type: Logical type.
        nullable: False only for columns declared NOT NULL.
        initial_default: Value of rows in files that lack the column, as a string; None for NULL.
        default: Default value of new rows, as a string; None for NULL.
        default_is_expression: Whether ``default`` is an SQL expression instead of a value.
        begin_snapshot: Snapshot that created this version of the node; 0 if it is not committed.
    """

    id: int = 0
    name: str
    type: DataType
    nullable: bool = True
    initial_default: str | None = None
    default: str | None = None
    default_is_expression: bool = False
    begin_snapshot: int = 0

    @property
    def children(self) -> tuple[Field, ...]:
        """Direct children in catalog order; empty for leaves."""
        return children_of(self.type)

    @property
    def is_leaf(self) -> bool:
        """Return whether this node holds values itself, and so has statistics."""
        return not isinstance(self.type, ListType | MapType | StructType)

    def walk(self) -> Iterator[Field]:
        """Yield this node and all below it, parents first (the order of column ids at CREATE)."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Field]:
        """Yield the leaves at or below this node, in the order of the Parquet leaf columns."""
        return (node for node in self.walk() if node.is_leaf)


def with_children(data_type: DataType, change: Callable[[Field], Field]) -> DataType:
    """Return the same type with its children changed, in the order in which they are stored; types without children as they are."""
    match data_type:
        case ListType(element=element):
            return ListType(element=change(element))
        case MapType(key=key, value=value):
            return MapType(key=change(key), value=change(value))
        case StructType(fields=fields):
            return StructType(fields=tuple(change(field) for field in fields))
        case _:
            return data_type


def children_of(data_type: DataType) -> tuple[Field, ...]:
    """Return the children of a type, in catalog order."""
    match data_type:
        case ListType(element=element):
            return (element,)
        case MapType(key=key, value=value):
            return (key, value)
        case StructType(fields=fields):
            return fields
        case _:
            return ()


MAX_DEPTH = 100
"""Levels of types within each other. Functions that walk a type call themselves for each level, which Python limits."""


def is_too_deep(data_type: T, children: Callable[[T], Iterable[T]]) -> bool:
    """Return whether a type is nested more deeply than ``MAX_DEPTH``.

    Args:
        data_type: The type, of this library or of Arrow.
        children: Returns the types within one.
    """
    # Level by level: recursion would fail for the types that this is to reject.
    level = [data_type]
    for _ in range(MAX_DEPTH + 1):
        level = [child for one in level for child in children(one)]
        if not level:
            return False
    return True


BOOLEAN = PrimitiveType(name="boolean")
INT8 = PrimitiveType(name="int8")
INT16 = PrimitiveType(name="int16")
INT32 = PrimitiveType(name="int32")
INT64 = PrimitiveType(name="int64")
INT128 = PrimitiveType(name="int128")
UINT8 = PrimitiveType(name="uint8")
UINT16 = PrimitiveType(name="uint16")
UINT32 = PrimitiveType(name="uint32")
UINT64 = PrimitiveType(name="uint64")
UINT128 = PrimitiveType(name="uint128")
FLOAT32 = PrimitiveType(name="float32")
FLOAT64 = PrimitiveType(name="float64")
DATE = PrimitiveType(name="date")
TIME = PrimitiveType(name="time")
TIME_NS = PrimitiveType(name="time_ns")
TIMETZ = PrimitiveType(name="timetz")
TIMESTAMP = PrimitiveType(name="timestamp")
TIMESTAMP_S = PrimitiveType(name="timestamp_s")
TIMESTAMP_MS = PrimitiveType(name="timestamp_ms")
TIMESTAMP_NS = PrimitiveType(name="timestamp_ns")
TIMESTAMPTZ = PrimitiveType(name="timestamptz")
INTERVAL = PrimitiveType(name="interval")
VARCHAR = PrimitiveType(name="varchar")
JSON = PrimitiveType(name="json")
BLOB = PrimitiveType(name="blob")
UUID = PrimitiveType(name="uuid")
VARIANT = PrimitiveType(name="variant")
GEOMETRY = PrimitiveType(name="geometry")
NULL = PrimitiveType(name="null")
"""The type whose only value is NULL (format 1.1); no name of DuckDB's SQL."""

PRIMITIVES: dict[str, PrimitiveType] = {
    t.name: t
    for t in (
        BOOLEAN, INT8, INT16, INT32, INT64, INT128, UINT8, UINT16, UINT32, UINT64, UINT128, FLOAT32, FLOAT64,
        DATE, TIME, TIME_NS, TIMETZ, TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMP_NS, TIMESTAMPTZ, INTERVAL,
        VARCHAR, JSON, BLOB, UUID, VARIANT, GEOMETRY,
    )
}  # fmt: skip

SIGNED_INTEGERS = (INT8, INT16, INT32, INT64, INT128)
UNSIGNED_INTEGERS = (UINT8, UINT16, UINT32, UINT64, UINT128)
INTEGERS = SIGNED_INTEGERS + UNSIGNED_INTEGERS
FLOATS = (FLOAT32, FLOAT64)
TIMESTAMPS = (TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMP_NS, TIMESTAMPTZ)


def holds_variants(data_type: DataType) -> bool:
    """Return whether a type is, or holds, a variant."""
    return data_type == VARIANT or any(holds_variants(child.type) for child in children_of(data_type))


DIGITS: dict[DataType, int] = {INT8: 3, INT16: 5, INT32: 10, INT64: 19, INT128: 38, UINT8: 3, UINT16: 5, UINT32: 10, UINT64: 20}
"""Digits of the decimal that an integer becomes next to a decimal."""
_UNSIGNED = (UINT8, UINT16, UINT32, UINT64, UINT128)
_LARGER: dict[DataType, DataType] = {UINT8: INT16, UINT16: INT32, UINT32: INT64, UINT64: INT128}


def as_decimal(data_type: DataType) -> DecimalType | None:
    """Return the decimal that a number becomes next to a decimal, None where it becomes none."""
    if isinstance(data_type, DecimalType):
        return data_type
    digits = DIGITS.get(data_type)
    return None if digits is None else DecimalType(precision=digits, scale=0)


def common_number(first: DataType, second: DataType) -> DataType | None:
    """Return the type of alternatives of two types of numbers: digits before the point go before digits behind it.

    >>> from ducklake_core.format.types.data_types import UINT8, INT8
    >>> str(common_number(DecimalType(precision=38, scale=0), DecimalType(precision=18, scale=3))), str(common_number(UINT8, INT8))
    ('decimal(38,0)', 'int16')
    """
    kinds = (first, second)
    if not all(kind in DIGITS or kind == UINT128 or kind in FLOATS or isinstance(kind, DecimalType) for kind in kinds):
        return None
    if first == second:
        return first
    if FLOAT64 in kinds:
        return FLOAT64
    if FLOAT32 in kinds:
        return FLOAT32
    if any(isinstance(kind, DecimalType) for kind in kinds):
        left, right = as_decimal(first), as_decimal(second)
        if left is None or right is None:
            return None
        whole, scale = max(left.precision - left.scale, right.precision - right.scale), max(left.scale, right.scale)
        if isinstance(first, DecimalType) and isinstance(second, DecimalType):
            # Next to an integer the scale stays, and values have to fit.
            scale = min(scale, _MAX_DIGITS - whole)
        return DecimalType(precision=min(_MAX_DIGITS, whole + scale), scale=scale)
    return common_integer(first, second)


def common_integer(first: DataType, second: DataType) -> DataType | None:
    """Return the common type of two integer types: signed types go by size, next to an unsigned one the next type that holds both."""
    if first in _UNSIGNED and second in _UNSIGNED:
        return max(first, second, key=_UNSIGNED.index)
    sides = [_LARGER.get(side, side) for side in (first, second)]
    return None if UINT128 in sides else max(sides, key=SIGNED_INTEGERS.index)


def decimal_result(operator: str, left: DecimalType, right: DecimalType) -> DecimalType:
    """Return the type of ``+``, ``-`` or ``*`` of decimals: sums have the larger scale and a digit more, products the digits of both.

    >>> str(decimal_result("+", DecimalType(precision=10, scale=0), DecimalType(precision=4, scale=1)))
    'decimal(12,1)'

    Args:
        operator: ``+``, ``-`` or ``*``.
        left: Type of the left side.
        right: Type of the right side.
    """
    if operator == "*":
        precision, scale = left.precision + right.precision, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    widest = max(left.precision, right.precision)
    # DuckDB computes in 64 bits while both sides fit, and raises an error on overflow instead of widening.
    if precision > _SMALL_DECIMAL >= widest:
        precision = _SMALL_DECIMAL
    return DecimalType(precision=min(_MAX_DIGITS, precision), scale=scale)
