"""Predicates over Arrow batches, with DuckDB's semantics: NULL is unknown, NaN equals NaN and is the greatest number,
text compares by its bytes, numbers exactly."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never
from uuid import UUID as Uuid

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.comparable import comparable, hashable, in_domain, unified
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import FLIPPED, Domain, Fitted, common_domain, fit, holds, key_of
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
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    SqlExpression,
    StartsWith,
    VariantComparison,
    VariantIsNull,
)
from ducklake_core.format.types.data_types import FLOATS, UUID, DataType
from ducklake_core.format.types.names import folded
from ducklake_core.format.values.wkb import overlaps

if TYPE_CHECKING:
    from ducklake_core.format.expressions.scalars import Scalar

Data: TypeAlias = pa.RecordBatch | pa.Table

_FUNCTIONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate(predicate: Predicate, batch: Data, *, filtering: bool = False) -> pa.BooleanArray:
    """The predicate's outcome for every row: true, false, or NULL where it is unknown.

    Args:
        predicate: Bound to columns that the batch has, by name, in logical or physical form.
        batch: The rows.
        filtering: Only where it is true matters: elsewhere it may be false in place of NULL, which is faster to find out.

    Raises:
        UnsupportedFeatureError: A part that only a SQL engine can evaluate; ``.to_spark()`` can.
        NotFoundError: The batch lacks a column.
    """
    match predicate:
        case Constant(value=value):
            return _repeated(value, batch.num_rows)
        case ColumnReference():
            return column_of(predicate, batch)
        case SqlExpression(scalar=scalar):
            return _of_scalar(scalar, predicate, batch)
        case Not(operand=operand):
            return pc.invert(evaluate(operand, batch))
        case And(operands=operands):
            return reduce(pc.and_kleene, (evaluate(o, batch, filtering=filtering) for o in operands))
        case Or():
            return _any(predicate, batch, filtering)
        case IsNull(operand=operand):
            return _is_null(operand, batch)
        case Comparison(left=left, operator=op, right=right):
            return _comparison(left, op, right, batch)
        case InList():
            return _in_list(predicate, batch)
        case InRanges():
            from ducklake_core.engines.arrow.branches import in_ranges

            return in_ranges(predicate, batch)
        case StartsWith(operand=column, prefix=prefix):
            return pc.starts_with(comparable(column_of(column, batch), column.type), prefix)
        case VariantComparison() | VariantIsNull():
            from ducklake_core.engines.arrow.variant_filter import variant_outcome

            return variant_outcome(predicate, batch)
        case BoxOverlap():
            return _of_geometries(predicate, batch)
        case _:
            assert_never(predicate)


def _of_geometries(predicate: BoxOverlap, batch: Data) -> pa.BooleanArray:
    array = column_of(predicate.operand, batch)
    if predicate.relation is None:
        return overlaps(array, predicate.box)
    from ducklake_core.engines.arrow.geometry_filter import related

    return related(predicate, array)


def _any(predicate: Or, batch: Data, filtering: bool) -> pa.BooleanArray:
    from ducklake_core.engines.arrow.branches import branches_of, outcome_of_branches

    grouped, others = branches_of(predicate)
    parts = [outcome_of_branches(branches, batch, filtering=filtering) for branches in grouped]
    return reduce(pc.or_kleene, [*parts, *(evaluate(operand, batch, filtering=filtering) for operand in others)])


def column_of(column: ColumnReference, batch: Data) -> pa.Array:
    """The column's values; NULL where a struct above it is NULL.

    Raises:
        NotFoundError: The batch has no such column.
    """
    index = _place(column.path[0], batch.schema.names)
    if index is None:
        raise NotFoundError(f"the batch has no column {column.path[0]!r}; it has: {', '.join(batch.schema.names)}", column=column.path[0])
    found: Any = batch.column(index)
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    for name in column.path[1:]:
        names = [array.type.field(i).name for i in range(array.type.num_fields)]
        child = _place(name, names)
        if child is None:
            raise NotFoundError(f"the struct {column.path[0]!r} has no field {name!r}; it has: {', '.join(names)}", column=name)
        array = pc.struct_field(array, [child])
    return array


def _place(name: str, names: list[str]) -> int | None:
    if name in names:
        return names.index(name)
    wanted = folded(name)
    return next((place for place, one in enumerate(names) if folded(one) == wanted), None)


def _needs_engine(expression: SqlExpression) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{expression.sql!r} can only be evaluated by a SQL engine; scan with .to_spark() instead", expression=expression.sql
    )


def _of_scalar(scalar: Scalar | None, expression: SqlExpression, batch: Data) -> pa.BooleanArray:
    from ducklake_core.engines.arrow.scalars import outcome

    if scalar is None:
        raise _needs_engine(expression)
    if isinstance(batch, pa.Table):
        return pa.chunked_array([outcome(scalar, part) for part in batch.to_batches()], pa.bool_()).combine_chunks()
    return outcome(scalar, batch)


def _repeated(value: bool | None, length: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value, pa.bool_()), length)


def _is_null(operand: Operand, batch: Data) -> pa.BooleanArray:
    match operand:
        case ColumnReference():
            return column_of(operand, batch).is_null()
        case Literal(value=value):
            return _repeated(value is None, batch.num_rows)
        case SqlExpression():
            raise _needs_engine(operand)
        case _:
            assert_never(operand)


def _comparison(left: Operand, op: Operator, right: Operand, batch: Data) -> pa.BooleanArray:
    match left, right:
        case (SqlExpression() as expression, _) | (_, SqlExpression() as expression):
            raise _needs_engine(expression)
        case (Literal(value=None), _) | (_, Literal(value=None)):
            return _repeated(None, batch.num_rows)
        case ColumnReference(), Literal():
            return _with_literal(column_of(left, batch), left.type, op, right)
        case Literal(), ColumnReference():
            return _with_literal(column_of(right, batch), right.type, FLIPPED[op], left)
        case ColumnReference(), ColumnReference():
            domain = _domain(left.type, right.type)
            first, second = unified(column_of(left, batch), left.type, column_of(right, batch), right.type, domain)
            return compared(first, second, op)
        case Literal(), Literal():
            domain = _domain(left.type, right.type)
            outcome = holds(key_of(left.value, left.type, domain), op, key_of(right.value, right.type, domain))
            return _repeated(outcome, batch.num_rows)
        case _:
            raise AssertionError((left, right))


def _domain(left: DataType, right: DataType) -> Domain:
    domain = common_domain(left, right)
    if domain is None:
        raise UnsupportedFeatureError(f"{left} and {right} cannot be compared here; scan with .to_spark() instead")
    return domain


def _with_literal(array: pa.Array, data_type: DataType, op: Operator, literal: Literal) -> pa.BooleanArray:
    domain = _domain(data_type, literal.type)
    fitted = fit(op, literal, data_type)
    match fitted:
        case bool():
            return pc.if_else(array.is_null(), pa.scalar(None, pa.bool_()), pa.scalar(fitted))
        case None:
            wanted = key_of(literal.value, literal.type, domain)
            converted = in_domain(array, data_type, domain)
            return compared(converted, pa.scalar(float("nan") if wanted[0] else wanted[1], converted.type), op)
        case Fitted(operator=changed, value=value):
            plain = comparable(array, data_type)
            return compared(plain, to_scalar(value, data_type, plain.type), changed)
        case _:
            assert_never(fitted)


def to_scalar(value: object, data_type: DataType, arrow: pa.DataType) -> Any:
    """A value of a column's type as a scalar of the type in which it is compared."""
    if data_type == UUID:
        value = Uuid(str(value)).bytes
    return pa.scalar(value, arrow)


def compared(left: Any, right: Any, op: Operator) -> pa.BooleanArray:
    """Two columns in one comparable form, or a column and a scalar, compared; NaN is the greatest number."""
    plain = _FUNCTIONS[op](left, right)
    if not pa.types.is_floating(left.type):
        return plain
    # Arrow finds every comparison with NaN false (true for <>): say what NaN as the greatest number gives instead.
    if isinstance(right, pa.Scalar) and right.is_valid and not math.isnan(right.as_py()):
        return pc.or_(plain, pc.is_nan(left)) if op in (">", ">=") else plain
    first, second = pc.is_nan(left), pc.is_nan(right)
    either = pc.or_(first, second)
    return pc.if_else(either, _with_nan(first, op, second), plain)


def _with_nan(first: pa.BooleanArray, op: Operator, second: pa.BooleanArray) -> pa.BooleanArray:
    """Outcomes where at least one side is NaN, from which sides are."""
    match op:
        case "=":
            return pc.and_(first, second)
        case "<>":
            return pc.invert(pc.and_(first, second))
        case "<":
            return pc.and_(pc.invert(first), second)
        case "<=":
            return second
        case ">":
            return pc.and_(first, pc.invert(second))
        case ">=":
            return first


def _in_list(predicate: InList, batch: Data) -> pa.BooleanArray:
    column = predicate.operand
    array = column_of(column, batch)
    values: list[object] = []
    parts: list[pa.BooleanArray] = [pc.if_else(array.is_null(), pa.scalar(None, pa.bool_()), pa.scalar(False))]
    for literal in predicate.values:
        _domain(column.type, literal.type)
        fitted = fit("=", literal, column.type)
        if isinstance(fitted, Fitted):
            values.append(fitted.value)
        elif fitted is None:
            parts.append(_with_literal(array, column.type, "=", literal))
    if values:
        parts.append(_is_in(comparable(array, column.type), column.type, values))
    if predicate.has_null:
        parts.append(_repeated(None, batch.num_rows))
    return reduce(pc.or_kleene, parts)


def _is_in(array: pa.Array, data_type: DataType, values: list[object]) -> pa.BooleanArray:
    wanted = pa.array([to_scalar(value, data_type, array.type).as_py() for value in values], array.type)
    if data_type in FLOATS:
        array, wanted = hashable(array), hashable(wanted)
    return pc.if_else(array.is_null(), pa.scalar(None, pa.bool_()), pc.is_in(array, wanted))
