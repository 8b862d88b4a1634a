"""Scalar SQL expressions as values: what an UPDATE sets a column to, bound to the columns of one row.

They are made by :mod:`ducklake_core.format.expressions.scalar_parser` and evaluated by :mod:`ducklake_core.engines.arrow.scalars`, also on
executors, which therefore need no SQL parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from ducklake_core.format.expressions.predicates import ColumnReference, Literal, Operator, Predicate, references
from ducklake_core.format.files.partitioning import PartitionField
from ducklake_core.format.types.data_types import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A quoted string, whose type comes from what stands beside it or from the column it is assigned to."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function or an operator: one of :data:`FUNCTIONS`."""

    function: str
    arguments: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CastTo:
    """``CAST(operand AS type)``; ``lenient`` is TRY_CAST, which gives NULL instead of an error."""

    operand: Scalar
    type: DataType
    lenient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``CASE WHEN condition THEN value ... ELSE otherwise END``."""

    branches: tuple[tuple[Scalar, Scalar], ...]
    otherwise: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A comparison of two scalars, as in :class:`~ducklake_core.format.expressions.predicates.Comparison`."""

    left: Scalar
    operator: Operator
    right: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Logical:
    """``and``, ``or``, ``not``, ``is null`` of scalars, or ``in``: whether the first is equal to one of the others."""

    kind: str
    operands: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A predicate on columns alone, for the conditions that predicates know and scalars do not (IN, LIKE 'a%')."""

    predicate: Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """Whether a column's value is in a partition, by one key: ``text`` is the partition's value as it is stored, None for NULL."""

    column: ColumnReference
    key: PartitionField
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InZone:
    """A scalar that is evaluated in a time zone."""

    operand: Scalar
    zone: str


Scalar: TypeAlias = ColumnReference | Literal | Text | Call | CastTo | Case | Compare | Logical | Test | KeyValue | InZone

FUNCTIONS = frozenset(
    {"+", "-", "*", "/", "//", "%", "negate", "abs", "floor", "ceil", "||", "concat", "upper", "lower", "length", "trim", "ltrim", "rtrim",
     "replace", "substring", "coalesce", "nullif", "like", "starts_with", "uuid", "uuidv7", "random"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One expression as a user wrote it.

    Attributes:
        text: What the user wrote, for messages.
        sql: The same in DuckDB's dialect over the columns that it was bound to, for engines that evaluate SQL.
        columns: The columns that it reads.
        scalar: What Arrow evaluates, None when it cannot.
        obstacle: Why it cannot.
    """

    text: str
    sql: str
    columns: tuple[ColumnReference, ...] = ()
    scalar: Scalar | None = None
    obstacle: str | None = None


def columns_of(scalar: Scalar) -> frozenset[ColumnReference]:
    """Every column that a scalar reads."""
    match scalar:
        case ColumnReference():
            return frozenset((scalar,))
        case Literal() | Text():
            return frozenset()
        case Call(arguments=parts) | Logical(operands=parts):
            return frozenset().union(*(columns_of(part) for part in parts))
        case CastTo(operand=operand) | InZone(operand=operand):
            return columns_of(operand)
        case Case(branches=branches, otherwise=otherwise):
            return frozenset().union(columns_of(otherwise), *(columns_of(part) for branch in branches for part in branch))
        case Compare(left=left, right=right):
            return columns_of(left) | columns_of(right)
        case Test(predicate=predicate):
            return references(predicate)
        case KeyValue(column=column):
            return frozenset((column,))
        case _:
            assert_never(scalar)
