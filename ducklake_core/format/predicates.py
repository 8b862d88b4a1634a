"""Row predicates: a small expression tree bound to a table's columns.

SQL text is parsed with sqlglot's DuckDB dialect by :mod:`ducklake_core.format.predicate_parser`; evaluation lives with each engine.
Parts that only a SQL engine can evaluate stay as :class:`SqlExpression`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from ducklake_core.format.types import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReference:
    """A leaf of the table: its id, its path of names from the top-level column down, and its type."""

    column_id: int
    path: tuple[str, ...]
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant in the Python form of ``type`` (see format/values.py): int, Decimal, float, str, bytes, bool, or,
    for dates, days since 1970-01-01 and, for timestamps and times, microseconds (nanoseconds for timestamp_ns), as int."""

    value: object
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlExpression:
    """Any boolean or scalar SQL expression that has no finer form here: DuckDB dialect text and the columns it reads."""

    sql: str
    columns: tuple[ColumnReference, ...]


Operand: TypeAlias = ColumnReference | Literal | SqlExpression
Operator: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """SQL comparison: NULL when either side is NULL. NaN equals NaN and is greater than every number, as in DuckDB."""

    left: Operand
    operator: Operator
    right: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """``operand IS NULL``, never NULL itself."""

    operand: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class InList:
    """``operand IN (values)``; ``has_null`` says that the list also holds NULL, which makes misses NULL."""

    operand: ColumnReference
    values: tuple[Literal, ...]
    has_null: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsWith:
    """``operand LIKE 'prefix%'`` for a prefix without wildcards."""

    operand: ColumnReference
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """SQL NOT: NULL stays NULL."""

    operand: Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """All of at least two; SQL three-valued logic."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """Any of at least two; SQL three-valued logic."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """TRUE, FALSE or NULL (None)."""

    value: bool | None


Predicate: TypeAlias = Comparison | IsNull | InList | StartsWith | Not | And | Or | Constant | ColumnReference | SqlExpression
