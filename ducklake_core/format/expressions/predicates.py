"""Predicates and scalar expressions: small immutable trees bound to a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import TypeAlias, assert_never

from ducklake_core.format.cache import Derived
from ducklake_core.format.files.partitioning import PartitionField
from ducklake_core.format.types.data_types import DataType

Operator: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">="]
_OPPOSITE: dict[Operator, Operator] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MAX_LEVELS = 100
"""Maximum nesting of conditions and expressions; a chain of AND or OR is one level."""
MAX_PARTS = 5000
"""Maximum number of comparisons in a condition; a list of values and the ranges of one column count once."""

TIME_PARTS = ("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear", "hour", "minute", "second")
"""Functions that return a part of a date or time as an integer."""
FUNCTIONS = frozenset(
    {"+", "-", "*", "/", "//", "%", "negate", "abs", "floor", "ceil", "||", "concat", "upper", "lower", "length", "trim", "ltrim", "rtrim",
     "replace", "substring", "coalesce", "nullif", "like", "ilike", "starts_with", "uuid", "uuidv7", "random",
     *TIME_PARTS}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReference:
    """A leaf of the table: its id, its path of names from the top-level column down, and its type."""

    column_id: int
    path: tuple[str, ...]
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant in the Python form of ``type`` (see format/values/leaf_values.py): int, Decimal, float, str, bytes, bool, or,
    for dates, days since 1970-01-01 and, for timestamps and times, microseconds (nanoseconds for timestamp_ns), as int."""

    value: object
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlExpression:
    """Any boolean or scalar SQL expression that has no finer form here: DuckDB dialect text and the columns it reads.

    ``scalar`` is what Arrow evaluates of a condition, None when only a SQL engine can; ``in_arrow`` means that no SQL engine can.
    ``implies`` is a condition that holds for every row for which this one does, None for no known one.
    """

    sql: str
    columns: tuple[ColumnReference, ...]
    # Follows from ``sql``, and would make comparing and hashing expensive.
    scalar: Scalar | None = field(default=None, compare=False, repr=False)
    in_arrow: bool = False
    implies: Predicate | None = field(default=None, compare=False, repr=False)


Operand: TypeAlias = ColumnReference | Literal | SqlExpression


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
    """``operand IN (values)``; with ``has_null`` the list also holds NULL, which makes misses NULL."""

    operand: ColumnReference
    values: tuple[Literal, ...]
    has_null: bool = False
    derived: Derived = field(default_factory=Derived, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Values of a column's own type from ``low`` to ``high``; None means no bound."""

    low: object = None
    low_inclusive: bool = True
    high: object = None
    high_inclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InRanges:
    """The column lies in one of the ranges, which are disjoint and ascend; NULL for NULL."""

    operand: ColumnReference
    ranges: tuple[Range, ...]
    derived: Derived = field(default_factory=Derived, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsWith:
    """``operand LIKE 'prefix%'`` for a prefix without wildcards."""

    operand: ColumnReference
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantField:
    """A value inside of a variant: names of fields and positions in arrays (from 1 on) from the column down.

    Attributes:
        column: The variant.
        path: Never empty but for a variant that is cast itself.
        cast: The type that the value is cast to, None for the value as it is.
        lenient: Whether a value that cannot be cast is NULL (``TRY_CAST``), and no error.
    """

    column: ColumnReference
    path: tuple[str | int, ...]
    cast: DataType | None = None
    lenient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantComparison:
    """A value inside of a variant compared with a constant: NULL where there is none; without a cast, an error for values that do not
    compare with the constant."""

    left: VariantField
    operator: Operator
    right: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantIsNull:
    """Test that a variant has no value at a path, or null."""

    operand: VariantField


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOverlap:
    """``operand && constant``: the boxes about two geometries share a place, their edges included; only x and y count.

    Attributes:
        operand: A geometry.
        box: Least x and y, greatest x and y of the constant; None where it is empty, and overlaps nothing.
        constant: Its text (WKT).
        relation: What has to hold of the geometries themselves too, such as ``st_within``; None for their boxes alone.
        constant_first: Whether the constant is the first argument of the relation.
    """

    operand: ColumnReference
    box: tuple[float, float, float, float] | None
    constant: str
    relation: str | None = None
    constant_first: bool = False


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


NestedTest: TypeAlias = VariantComparison | VariantIsNull | BoxOverlap
"""Conditions on what lies inside of one value, which no SQL engine is asked to evaluate."""
Predicate: TypeAlias = (
    Comparison | IsNull | InList | InRanges | StartsWith | NestedTest | Not | And | Or | Constant | ColumnReference | SqlExpression
)


TRUE = Constant(value=True)
FALSE = Constant(value=False)
UNKNOWN = Constant(value=None)


def conjunction(predicates: Iterable[Predicate]) -> Predicate:
    """Return all of the predicates: flattened, without TRUE; FALSE as soon as one of them is.

    >>> conjunction([]) == TRUE, conjunction([TRUE, UNKNOWN]) == UNKNOWN
    (True, True)
    """
    parts: list[Predicate] = []
    for predicate in predicates:
        parts.extend(predicate.operands if isinstance(predicate, And) else (predicate,))
    kept = tuple(dict.fromkeys(p for p in parts if p != TRUE))
    if FALSE in kept:
        return FALSE
    return And(operands=kept) if len(kept) > 1 else kept[0] if kept else TRUE


def disjunction(predicates: Iterable[Predicate]) -> Predicate:
    """Return any of the predicates: flattened, without FALSE; TRUE as soon as one of them is.

    >>> disjunction([]) == FALSE, disjunction([FALSE, UNKNOWN]) == UNKNOWN
    (True, True)
    """
    parts: list[Predicate] = []
    for predicate in predicates:
        parts.extend(predicate.operands if isinstance(predicate, Or) else (predicate,))
    kept = tuple(dict.fromkeys(p for p in parts if p != FALSE))
    if TRUE in kept:
        return TRUE
    return Or(operands=kept) if len(kept) > 1 else kept[0] if kept else FALSE


def negation(predicate: Predicate) -> Predicate:
    """Return SQL's NOT of a predicate, folded for constants and double negation."""
    match predicate:
        case Constant(value=value):
            return Constant(value=None if value is None else not value)
        case Not(operand=operand):
            return operand
        case _:
            return Not(operand=predicate)


def as_filter(predicate: Predicate) -> Predicate:
    """Return a simpler predicate that is true for the same rows; where it is not true, it may be FALSE in place of NULL.

    >>> from ducklake_core.format.types.data_types import BOOLEAN
    >>> column = ColumnReference(column_id=1, path=("flag",), type=BOOLEAN)
    >>> as_filter(Or(operands=(column, And(operands=(IsNull(operand=column), UNKNOWN))))) == column
    True
    """
    match predicate:
        case And(operands=operands):
            return conjunction(as_filter(operand) for operand in operands)
        case Or(operands=operands):
            return disjunction(as_filter(operand) for operand in operands)
        case Not(operand=operand):
            # Not as_filter of the operand: NOT makes TRUE of FALSE alone, so FALSE and NULL differ there.
            return _as_negated_filter(operand)
        case Constant(value=None):
            return FALSE
        case _:
            return predicate


def _as_negated_filter(predicate: Predicate) -> Predicate:
    """Return a filter for the rows for which the predicate is false, with NOT as far inside as it goes: there it prunes in SQL too."""
    match predicate:
        case And(operands=operands):
            return disjunction(_as_negated_filter(operand) for operand in operands)
        case Or(operands=operands):
            return conjunction(_as_negated_filter(operand) for operand in operands)
        case Not(operand=operand):
            return as_filter(operand)
        case Constant(value=None):
            return FALSE
        case Comparison(left=ColumnReference() | Literal(), operator=operator, right=ColumnReference() | Literal()):
            # Every type is ordered as a whole, NaN included, so that exactly one of the two holds for two values.
            return replace(predicate, operator=_OPPOSITE[operator])
        case _:
            return negation(predicate)


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the predicate and all that it is made of, in no particular order."""
    # A stack of its own, so that deep conditions do not use up Python's recursion limit.
    waiting: list[Predicate] = [predicate]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, And | Or):
            waiting += part.operands
        elif isinstance(part, Not):
            waiting.append(part.operand)


def references(predicate: Predicate | Operand) -> frozenset[ColumnReference]:
    """Return every column that a predicate reads."""
    if isinstance(predicate, Literal):
        return frozenset()
    # By identity first: long conditions name the same few columns again and again.
    found: dict[int, ColumnReference] = {}
    for part in walk(predicate):
        for column in _columns_of(part):
            found[id(column)] = column
    return frozenset(found.values())


def _columns_of(predicate: Predicate) -> tuple[ColumnReference, ...]:
    """Return the columns that a predicate reads itself, without its operands' own."""
    match predicate:
        case ColumnReference():
            return (predicate,)
        case SqlExpression(columns=columns):
            return columns
        case Comparison(left=left, right=right):
            return (*_columns_of_operand(left), *_columns_of_operand(right))
        case IsNull(operand=operand):
            return _columns_of_operand(operand)
        case InList(operand=column) | InRanges(operand=column) | StartsWith(operand=column) | BoxOverlap(operand=column):
            return (column,)
        case VariantComparison(left=field) | VariantIsNull(operand=field):
            return (field.column,)
        case Constant() | Not() | And() | Or():
            return ()
        case _:
            assert_never(predicate)


def _columns_of_operand(operand: Operand) -> tuple[ColumnReference, ...]:
    match operand:
        case ColumnReference():
            return (operand,)
        case SqlExpression(columns=columns):
            return columns
        case Literal():
            return ()
        case _:
            assert_never(operand)


def terms(predicate: Predicate) -> int:
    """Return the number of comparisons that a predicate makes of each row; a list of values is one, which is looked up."""
    return sum(len(part.ranges) if isinstance(part, InRanges) else not isinstance(part, And | Or | Not) for part in walk(predicate))


def parts(predicate: Predicate) -> int:
    """Return the number of conditions that a predicate joins; a list of values, or of ranges, is one."""
    return sum(not isinstance(part, And | Or | Not) for part in walk(predicate))


def sql_parts(predicate: Predicate) -> list[SqlExpression]:
    """Return the conditions and operands of a predicate that are SQL, in no particular order."""
    sides = (getattr(part, name, None) for part in walk(predicate) for name in ("left", "right", "operand"))
    return [one for one in (*walk(predicate), *sides) if isinstance(one, SqlExpression)]


def needs_sql(predicate: Predicate) -> bool:
    """Return whether a predicate has a part that is SQL, whose rows an engine finds faster or alone."""
    return any(_needs_sql(part) for part in walk(predicate))


def _needs_sql(predicate: Predicate) -> bool:
    match predicate:
        case SqlExpression(in_arrow=in_arrow):
            return not in_arrow
        case Comparison(left=left, right=right):
            return isinstance(left, SqlExpression) or isinstance(right, SqlExpression)
        case IsNull(operand=operand):
            return isinstance(operand, SqlExpression)
        case _:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A quoted string, whose type comes from what stands next to it or from the column it is assigned to."""

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
    """Test that a column's value is in a partition, by one key: ``text`` is the stored value of the partition, None for NULL."""

    column: ColumnReference
    key: PartitionField
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InZone:
    """A scalar that is evaluated in a time zone."""

    operand: Scalar
    zone: str


Scalar: TypeAlias = ColumnReference | Literal | Text | Call | CastTo | Case | Compare | Logical | Test | KeyValue | InZone


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
    """Return every column that a scalar reads."""
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
