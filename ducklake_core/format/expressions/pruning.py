"""Decide from a file's statistics whether any row may, or every row must, match a predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.comparison import (
    Domain,
    are_comparable,
    cast_of,
    common_domain,
    compared,
    domain_of,
    key_of,
    round_to_float32,
)
from ducklake_core.format.expressions.predicates import (
    And,
    BoxOverlap,
    ColumnReference,
    Comparison,
    Constant,
    InList,
    InRanges,
    IsNull,
    Literal,
    NestedTest,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    SqlExpression,
    StartsWith,
    VariantComparison,
    VariantIsNull,
    references,
)
from ducklake_core.format.expressions.ranges import any_between, sorted_keys, spans_between, spans_of_ranges
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.statistics import field_statistics, read_geometry_statistics
from ducklake_core.format.types.data_types import (
    FLOAT32,
    FLOAT64,
    FLOATS,
    INTERVAL,
    JSON,
    TIMESTAMP_MS,
    TIMESTAMP_S,
    TIMETZ,
    VARIANT,
    DataType,
    Field,
)
from ducklake_core.format.values.leaf_values import from_text
from ducklake_core.format.values.temporal import INFINITE_UNITS

_WITHOUT_STATISTICS = (TIMETZ, INTERVAL, VARIANT)
# Every type may become json, and bounds keep the order of the old type: 5 to 10 holds 7, "5" to "10" does not.
_WITHOUT_BOUNDS = (*_WITHOUT_STATISTICS, JSON)
_ROUNDING: dict[Domain, float] = {"float32": 1e-6, "float64": 1e-15}
_STEPS: dict[DataType, int] = {TIMESTAMP_S: 1_000_000, TIMESTAMP_MS: 1000}
_NAN_KEY = (True, 0.0)

_BOX_ERROR = 1e-6
"""DuckDB rounds the sides of boxes to the nearest of six digits."""

# No ranges of values for these types: bounds are missing or follow another order, or leave NaN out.
_WITHOUT_RANGE = (TIMETZ, INTERVAL, VARIANT, JSON, *FLOATS)


# Three-valued logic over sets of rows. Each function below maps a predicate and a file's statistics to the outcomes that rows of the file
# may have: may_match returns whether TRUE is among them, must_match whether TRUE is the only one. An outcome too many costs a read; a
# missing one would lose rows, so whatever is unknown counts as possible.
# Named tuples: a long condition makes two of them for each comparison and file, and a frozen dataclass takes three times as long.
class Outcomes(NamedTuple):
    """Possible outcomes of a predicate for the rows of a set; all three are False for a set without rows."""

    true: bool
    false: bool
    null: bool


ANYTHING = Outcomes(true=True, false=True, null=True)
_TRUE = Outcomes(true=True, false=False, null=False)
_FALSE = Outcomes(true=False, false=True, null=False)


class Bounds(NamedTuple):
    """Bounds of one operand's values: inclusive bounds in a domain, None for unbounded, and which kinds there may be."""

    low: Any = None
    high: Any = None
    may_be_null: bool = True
    may_be_value: bool = True


class _File:
    """Statistics of one file by column id, its number of rows, and the bounds that were already parsed for this predicate."""

    __slots__ = ("bounds", "record_count", "statistics")

    def __init__(self, statistics: Mapping[int, ColumnStatistics], record_count: int) -> None:
        self.statistics = statistics
        self.record_count = record_count
        self.bounds: dict[tuple[int, Domain], Bounds] = {}


def may_match(predicate: Predicate, statistics: Mapping[int, ColumnStatistics], record_count: int) -> bool:
    """Return whether a file may hold a row that satisfies the predicate; never False wrongly.

    Args:
        predicate: Bound to the table's columns.
        statistics: Statistics by column id; a missing column is unknown.
        record_count: Rows of the file, deleted ones included.
    """
    # A count of zero or less may be as wrong as any other, and an empty file costs little to read.
    return _may_be_true(predicate, _File(statistics, record_count))


def must_match(predicate: Predicate, statistics: Mapping[int, ColumnStatistics], record_count: int) -> bool:
    """Return whether every row of a file surely satisfies the predicate; never True wrongly.

    Args:
        predicate: Bound to the table's columns.
        statistics: Statistics by column id; a missing column is unknown.
        record_count: Rows of the file, deleted ones included.
    """
    found = outcomes(predicate, statistics, record_count)
    return not found.false and not found.null


def columns(predicate: Predicate) -> frozenset[int]:
    """Return the ids of the columns whose statistics bear on the predicate."""
    return frozenset(column.column_id for column in references(predicate))


def outcomes(predicate: Predicate, statistics: Mapping[int, ColumnStatistics], record_count: int) -> Outcomes:
    """Return every outcome that some row of the file may have, and possibly more.

    Args:
        predicate: Bound to the table's columns.
        statistics: Statistics by column id; a missing column is unknown.
        record_count: Rows of the file, deleted ones included.
    """
    return _outcomes(predicate, _File(statistics, record_count))


def _may_be_true(predicate: Predicate, file: _File) -> bool:
    """Return ``_outcomes(predicate, file).true``; the first operand that a row may match ends the search in an OR."""
    match predicate:
        case And(operands=operands):
            return all(_may_be_true(operand, file) for operand in operands)
        case Or(operands=operands):
            return any(_may_be_true(operand, file) for operand in operands)
        case _:
            return _outcomes(predicate, file).true


def _outcomes(predicate: Predicate, file: _File) -> Outcomes:
    match predicate:
        case Constant(value=value):
            return Outcomes(true=value is True, false=value is False, null=value is None)
        case ColumnReference():
            wanted = Comparison(left=predicate, operator="=", right=Literal(value=True, type=predicate.type))
            return _outcomes(wanted, file)
        case SqlExpression(implies=implied):
            return Outcomes(true=implied is None or _outcomes(implied, file).true, false=True, null=True)
        case Not(operand=operand):
            inner = _outcomes(operand, file)
            return Outcomes(true=inner.false, false=inner.true, null=inner.null)
        case And(operands=operands):
            return _combined(_all_of, operands, file, decisive=_FALSE)
        case Or(operands=operands):
            return _combined(_any_of, operands, file, decisive=_TRUE)
        case IsNull(operand=operand):
            return _is_null(operand, file)
        case Comparison():
            return _comparison(predicate, file)
        case InList():
            return _in_list(predicate, file)
        case InRanges():
            return _in_ranges(predicate, file)
        case StartsWith():
            return _starts_with(predicate, file)
        case VariantComparison() | VariantIsNull() | BoxOverlap():
            return _nested(predicate, file)
        case _:
            assert_never(predicate)


def _nested(predicate: NestedTest, file: _File) -> Outcomes:
    """Return the outcomes by the statistics of a variant's fields, or by the boxes around geometries.

    Statistics do not show which rows have a field, or no value."""
    match predicate:
        case VariantComparison():
            found = field_question(predicate, file.statistics.get(predicate.left.column.column_id))
            may_be = found is None or outcomes(found.predicate, found.statistics, found.record_count).true
        case VariantIsNull():
            may_be = True
        case BoxOverlap():
            may_be = boxes_may_meet(predicate, file.statistics.get(predicate.operand.column_id))
        case _:
            assert_never(predicate)
    return Outcomes(true=may_be, false=True, null=True)


def _combined(
    combine: Callable[[Collection[Outcomes]], Outcomes], operands: Sequence[Predicate], file: _File, *, decisive: Outcomes
) -> Outcomes:
    """Return the outcome of an AND or OR; an operand that decides for every row, such as FALSE in an AND, ends the search."""
    # Operands have at most eight different outcomes, however many they are.
    parts = set[Outcomes]()
    for operand in operands:
        part = _outcomes(operand, file)
        if part == decisive:
            return decisive
        parts.add(part)
    return combine(parts)


def _all_of(parts: Collection[Outcomes]) -> Outcomes:
    return Outcomes(
        true=all(p.true for p in parts),
        false=any(p.false for p in parts),
        # One row makes AND NULL only if no part is FALSE for it: every part must be able to be TRUE or NULL.
        null=any(p.null for p in parts) and all(p.true or p.null for p in parts),
    )


def _any_of(parts: Collection[Outcomes]) -> Outcomes:
    return Outcomes(
        true=any(p.true for p in parts),
        false=all(p.false for p in parts),
        null=any(p.null for p in parts) and all(p.false or p.null for p in parts),
    )


def _is_null(operand: Operand, file: _File) -> Outcomes:
    match operand:
        case Literal(value=value):
            return Outcomes(true=value is None, false=value is not None, null=False)
        case ColumnReference():
            nulls, values = _kinds(operand.type, file.statistics.get(operand.column_id), file.record_count)
            return Outcomes(true=nulls, false=values, null=False)
        case SqlExpression():
            return Outcomes(true=True, false=True, null=False)
        case _:
            assert_never(operand)


def _kinds(data_type: DataType, found: ColumnStatistics | None, record_count: int) -> tuple[bool, bool]:
    """Return whether there may be NULLs, and whether there may be values."""
    if found is None or data_type in _WITHOUT_STATISTICS or found.value_count is None or found.null_count is None:
        return True, True
    # Counts that do not add up, such as the zeros that DuckDB writes for some types, are unknown.
    if found.value_count + found.null_count != record_count or min(found.value_count, found.null_count) < 0 or record_count == 0:
        return True, True
    return found.null_count > 0, found.value_count > 0


def _bounds(operand: ColumnReference | Literal, domain: Domain, file: _File) -> Bounds:
    if isinstance(operand, Literal):
        if operand.value is None:
            return Bounds(may_be_value=False)
        key = key_of(operand.value, operand.type, domain)
        return Bounds(low=key, high=key, may_be_null=False)
    known = file.bounds.get((operand.column_id, domain))
    if known is None:
        known = file.bounds[operand.column_id, domain] = _bounds_of_column(operand, domain, file)
    return known


def _bounds_of_column(operand: ColumnReference, domain: Domain, file: _File) -> Bounds:
    found = file.statistics.get(operand.column_id)
    nulls, values = _kinds(operand.type, found, file.record_count)
    if found is None or operand.type in _WITHOUT_BOUNDS:
        return Bounds(may_be_null=nulls, may_be_value=values)
    low, high = _key(found.min_value, operand.type, domain, -1), _key(found.max_value, operand.type, domain, +1)
    if operand.type in (FLOAT32, FLOAT64):
        # Comparisons with NaN fail, so that some writers end up with it as a bound: it is one where there is nothing else.
        if low == _NAN_KEY and not (high == _NAN_KEY and found.contains_nan):
            low = None
        high = _NAN_KEY if found.contains_nan is not False else None if high == _NAN_KEY else high
    # Bounds that contradict each other are damaged, and count as unknown.
    if low is not None and high is not None and low > high:
        low = high = None
    return Bounds(low=low, high=high, may_be_null=nulls, may_be_value=values)


def _key(text: str | None, data_type: DataType, domain: Domain, side: int) -> Any:
    if text is None:
        return None
    try:
        value = from_text(text, data_type)
        if data_type in _STEPS and isinstance(value, int) and value % _STEPS[data_type] and abs(value) != INFINITE_UNITS:
            # Bounds of a file whose timestamps are rounded when they are read.
            return None
        if data_type == FLOAT64:
            # The text may come from a time when the column was float32, whose shortest text is another float64.
            assert isinstance(value, float)
            values = sorted((value, round_to_float32(value))) if _may_be_float32(text) else [value, value]
            value = values[0] if side < 0 else values[1]
        key = key_of(value, data_type, domain)
        return _widened(key, domain, side) if domain != domain_of(data_type) else key
    except (DuckLakeError, ValueError, ArithmeticError):
        return None


def _widened(key: Any, domain: Domain, side: int) -> Any:
    """Return a bound that holds however an engine rounds when it casts exact numbers to floats."""
    if domain not in _ROUNDING:
        return key
    is_nan, value = key
    if math.isinf(value):
        # There is nothing between infinity and what was rounded to it.
        return key if side * value > 0 else None
    return is_nan, value + side * abs(value) * _ROUNDING[domain]


def _may_be_float32(text: str) -> bool:
    digits = text.lower().split("e")[0].lstrip("-").replace(".", "").strip("0")
    return digits.isdigit() and len(digits) <= 9


def _comparison(predicate: Comparison, file: _File) -> Outcomes:
    left, op, right = predicate.left, predicate.operator, predicate.right
    if isinstance(left, SqlExpression) or isinstance(right, SqlExpression):
        return ANYTHING
    if (isinstance(left, Literal) and left.value is None) or (isinstance(right, Literal) and right.value is None):
        return Outcomes(true=False, false=False, null=True)
    domain = common_domain(left.type, right.type)
    if domain is None:
        return ANYTHING
    return _compare(_bounds(left, domain, file), op, _bounds(right, domain, file))


def _compare(left: Bounds, op: Operator, right: Bounds) -> Outcomes:
    null = left.may_be_null or right.may_be_null
    if not (left.may_be_value and right.may_be_value):
        return Outcomes(true=False, false=False, null=null)
    match op:
        case "=" | "<>":
            same = _at_most(left.low, right.high) and _at_most(right.low, left.high)
            differ = left.low is None or not (left.low == left.high == right.low == right.high)
            return Outcomes(true=same if op == "=" else differ, false=differ if op == "=" else same, null=null)
        case "<":
            return Outcomes(true=_below(left.low, right.high), false=_at_most(right.low, left.high), null=null)
        case "<=":
            return Outcomes(true=_at_most(left.low, right.high), false=_below(right.low, left.high), null=null)
        case ">" | ">=":
            return _compare(right, "<" if op == ">" else "<=", left)


def _below(low: Any, high: Any) -> bool:
    return low is None or high is None or bool(low < high)


def _at_most(low: Any, high: Any) -> bool:
    return low is None or high is None or bool(low <= high)


def _in_list(predicate: InList, file: _File) -> Outcomes:
    column = predicate.operand
    parts = [Outcomes(true=False, false=False, null=True)] if predicate.has_null else []
    for domain, keys in sorted_keys(predicate, column.type).items():
        if domain is None:
            return ANYTHING
        found = _bounds(column, domain, file)
        if not found.may_be_value:
            parts.append(Outcomes(true=False, false=False, null=found.may_be_null))
            continue
        only = found.low is not None and found.low == found.high
        hit = any_between(keys, found.low, found.high)
        parts.append(Outcomes(true=hit, false=not (hit and only), null=found.may_be_null))
    if not parts:
        nulls, _ = _kinds(column.type, file.statistics.get(column.column_id), file.record_count)
        return Outcomes(true=False, false=True, null=nulls)
    return _any_of(parts)


def _in_ranges(predicate: InRanges, file: _File) -> Outcomes:
    domain = domain_of(predicate.operand.type)
    assert domain is not None
    found = _bounds(predicate.operand, domain, file)
    if not found.may_be_value:
        return Outcomes(true=False, false=False, null=found.may_be_null)
    hit, whole = spans_between(spans_of_ranges(predicate), found.low, found.high)
    return Outcomes(true=hit, false=not whole, null=found.may_be_null)


def _starts_with(predicate: StartsWith, file: _File) -> Outcomes:
    domain = domain_of(predicate.operand.type)
    if domain != "text":
        return ANYTHING
    found = _bounds(predicate.operand, domain, file)
    if not found.may_be_value:
        return Outcomes(true=False, false=False, null=found.may_be_null)
    prefix = predicate.prefix
    # Bounds are inclusive: strings with the prefix sort from the prefix itself up to any text that goes on from it.
    true = _at_most(prefix, found.high) and (found.low is None or found.low <= prefix or found.low.startswith(prefix))
    within = found.low is not None and found.high is not None and found.low.startswith(prefix) and found.high.startswith(prefix)
    return Outcomes(true=true, false=not within, null=found.may_be_null)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldQuestion:
    """A condition on the values of one field as if they were a column, with its statistics."""

    predicate: Predicate
    statistics: Mapping[int, ColumnStatistics]
    record_count: int


def field_question(test: VariantComparison, found: ColumnStatistics | None) -> FieldQuestion | None:
    """Return the test of the statistics of a field; None where nothing is known, or they do not decide.

    Args:
        test: The condition.
        found: Statistics of the variant.
    """
    field, right = test.left, test.right
    path = tuple(step if isinstance(step, str) else None for step in field.path)
    known = None if found is None else field_statistics(found.extra_stats, path)
    if known is None or known.entries is None or known.null_count is None:
        return None
    column = ColumnReference(column_id=0, path=("value",), type=known.type)
    if field.cast is not None:
        function = cast_of(column, field.cast, is_try=field.lenient)
        predicate = None if function is None else compared(function, test.operator, right)
    else:
        # A comparison of other types is an error, and not for statistics to hide.
        comparable = are_comparable(known.type, right.type)
        predicate = Comparison(left=column, operator=test.operator, right=right) if comparable else None
    if predicate is None:
        return None
    statistics = ColumnStatistics(
        column_id=0,
        column_size_bytes=0,
        value_count=known.value_count,
        null_count=known.null_count,
        min_value=known.min_value,
        max_value=known.max_value,
        contains_nan=known.contains_nan,
    )
    return FieldQuestion(predicate=predicate, statistics={0: statistics}, record_count=known.entries)


def boxes_may_meet(test: BoxOverlap, found: ColumnStatistics | None) -> bool:
    """Return whether the box about all geometries of a file may share a place with that of the condition."""
    if test.box is None:
        return False
    held = None if found is None else read_geometry_statistics(found.extra_stats)
    if held is None:
        return True
    bounds = {axis: (low, high) for axis, low, high in held.bounds}
    low_x, low_y, high_x, high_y = test.box
    sides = ((bounds.get("x"), low_x, high_x), (bounds.get("y"), low_y, high_y))
    return all(side is not None and side[0] - _BOX_ERROR <= high and low <= side[1] + _BOX_ERROR for side, low, high in sides)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """Bounds of one column in a set of rows: every value that is not NULL lies between the bounds, both included.

    Attributes:
        low: Lower bound in the column's Python form (format/values/leaf_values.py); None for unbounded. The same for ``high``.
        has_values: False when all rows are NULL in this column.
    """

    low: object = None
    high: object = None
    has_values: bool = True


def range_of(column: Field, found: Mapping[str, ColumnStatistics | None], record_count: int, *, with_floats: bool = False) -> ValueRange:
    """Combine what several sources know about a column of a file, for instance its partition values and its statistics.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> column = Field(id=1, name="i", type=INT32)
    >>> known = ColumnStatistics(column_id=1, column_size_bytes=0, value_count=2, null_count=0, min_value="3", max_value="9")
    >>> range_of(column, {"statistics": known, "partition": None}, 2)
    ValueRange(low=3, high=9, has_values=True)

    Args:
        found: What each source knows, None for nothing.
        record_count: Rows of the file.
        with_floats: Whether columns of floats have bounds: those of sources that state that there is no NaN.
    """
    low: Any = None
    high: Any = None
    for one in found.values():
        if one is None or not column.is_leaf or (column.type in _WITHOUT_RANGE and column.type not in FLOATS):
            continue
        if one.value_count == 0 and one.null_count == record_count > 0:
            return ValueRange(has_values=False)
        if column.type in FLOATS and not (with_floats and one.contains_nan is False):
            continue
        least, greatest = _value(one.min_value, column), _value(one.max_value, column)
        if least is not None and greatest is not None and least > greatest:
            continue
        low = least if low is None or (least is not None and least > low) else low
        high = greatest if high is None or (greatest is not None and greatest < high) else high
    if low is not None and high is not None and low > high:
        return ValueRange()
    return ValueRange(low=low, high=high)


def _value(text: str | None, column: Field) -> Any:
    if text is None:
        return None
    try:
        return from_text(text, column.type)
    except (DuckLakeError, ValueError, ArithmeticError):
        return None
