"""The logical types of DuckLake (specification: Data Types).

A type is a pure value.  Containers hold :class:`Field` children, because every node of a type tree is a row of
``ducklake_column`` with an id of its own, which is also the Parquet field id of that node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias


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
        id: ``column_id`` of the node, unique in its table for ever; 0 while none has been assigned.
        name: Name as written by the user; compared without regard to case.
        type: Logical type.
        nullable: False only for columns declared NOT NULL.
        initial_default: Text of the value that rows of files without this column have; None for NULL.
        default: Text of the default value for new rows; None for NULL.
        default_is_expression: Whether ``default`` is a SQL expression rather than a literal's text.
        begin_snapshot: Snapshot that made this version of the node; 0 while it is not committed.
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
        """Whether this node holds values itself, and so has statistics."""
        return not isinstance(self.type, ListType | MapType | StructType)

    def walk(self) -> Iterator[Field]:
        """This node and all below it, parents first (the order of column ids at CREATE)."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Field]:
        """The leaves at or below this node, in the order of the Parquet leaf columns."""
        return (node for node in self.walk() if node.is_leaf)


def with_children(data_type: DataType, change: Callable[[Field], Field]) -> DataType:
    """The same type with its children changed, in the order in which they are stored; types without children as they are."""
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
    """Children of a type, in catalog order."""
    match data_type:
        case ListType(element=element):
            return (element,)
        case MapType(key=key, value=value):
            return (key, value)
        case StructType(fields=fields):
            return fields
        case _:
            return ()


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
    """Whether a type is, or holds, a variant."""
    return data_type == VARIANT or any(holds_variants(child.type) for child in children_of(data_type))
