"""Scalar expressions over Arrow batches, with DuckDB's results; what it computes differently is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.comparable import unified
from ducklake_core.engines.arrow.evaluate import column_of, compared, evaluate
from ducklake_core.engines.arrow.partition_keys import has_key_value
from ducklake_core.engines.arrow.scalar_arithmetic import arithmetic, number_function
from ducklake_core.engines.arrow.scalar_cast import TIMESTAMP_UNITS, cast_scalar
from ducklake_core.engines.arrow.scalar_random import FUNCTIONS as random_functions
from ducklake_core.engines.arrow.scalar_random import random_values
from ducklake_core.engines.arrow.scalar_text import joined, matching, of_text, with_constants
from ducklake_core.engines.arrow.scalar_values import TypedArray, as_type, nulls, repeated, unified_type, without
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.comparison import common_domain
from ducklake_core.format.expressions.predicates import ColumnReference, Literal
from ducklake_core.format.expressions.scalars import Call, Case, CastTo, Compare, InZone, KeyValue, Logical, Scalar, Test, Text
from ducklake_core.format.types.arrow_types import to_arrow_type
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    INT64,
    INT128,
    INTEGERS,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    TIMETZ,
    UINT128,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
)
from ducklake_core.format.values.arrow_cast import cast_array
from ducklake_core.format.values.leaf_cast import from_values
from ducklake_core.format.values.time_zones import in_zone

SOURCE_IDS = 1_000_000_000
"""Columns of a MERGE's source get ids from here on, so that they are told from the table's."""
_ARITHMETIC = ("+", "-", "*", "/", "//", "%")
_MOST_IN_FLOAT32 = 2**24


def assigned(scalar: Scalar, column: Field, batch: pa.RecordBatch) -> Any:
    """The values of an expression, as an UPDATE gives them to a column: in its type.

    Args:
        scalar: Bound to columns that the batch has, by name.
        column: The column that is set.
        batch: The rows, in logical form.

    Raises:
        SchemaError: A value that does not fit the column, an overflow.
        UnsupportedFeatureError: Something that only a SQL engine can do.
    """
    if isinstance(scalar, InZone):
        with in_zone(scalar.zone):
            return assigned(scalar.operand, column, batch)
    if isinstance(scalar, ColumnReference) and scalar.column_id >= SOURCE_IDS and {scalar.type, column.type} <= TIMESTAMP_UNITS.keys():
        # New rows as an append takes them: a cast of DuckDB's would leave digits out without a word, or is not there.
        return cast_array(column_of(scalar, batch), column)
    try:
        return as_type(_eval(scalar, batch), column.type, batch.num_rows)
    except (SchemaError, UsageError) as error:
        raise SchemaError(f"column {column.name!r}: {error.message}", column=column.name) from error
    except UnsupportedFeatureError as error:
        if isinstance(scalar, ColumnReference) and _is_taken_by_appends(scalar.type, column.type):
            # A column as it is: what an append of it gives.
            return cast_array(column_of(scalar, batch), column)
        message = f"column {column.name!r} of type {column.type} cannot be set in process: it needs {error.message}"
        raise UnsupportedFeatureError(message, column=column.name) from error


def _is_taken_by_appends(given: DataType, wanted: DataType) -> bool:
    """Whether an append takes values of one type for a column of another, though no cast in process is DuckDB's."""
    if wanted in (INT128, UINT128, INTERVAL, TIME, TIMETZ):
        return given == VARCHAR or (wanted in (INT128, UINT128) and (given in INTEGERS or isinstance(given, DecimalType)))
    return (wanted, given) == (TIMESTAMP_NS, INT64)


def holds_for(scalar: Scalar, batch: pa.RecordBatch) -> Any:
    """For which rows a condition is true; NULL counts as false."""
    return pc.fill_null(_boolean(scalar, batch), False)


def outcome(scalar: Scalar, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Evaluate a condition for every row: true, false, or NULL where it is unknown."""
    return _boolean(scalar, batch)


def evaluate_scalar(scalar: Scalar, batch: pa.RecordBatch) -> tuple[Any, DataType | None]:
    """The values of an expression for every row, and their type; None for NULL that takes the type of what stands beside it.

    Raises:
        SchemaError: A value out of the range of its type, a cast that fails.
        UnsupportedFeatureError: Something that only a SQL engine can do.
    """
    value = _eval(scalar, batch)
    return value.array, None if value.is_null else value.type


def check_scalar(scalar: Scalar, batch: pa.RecordBatch, column: Field | None = None) -> None:
    """Refuse before any row is read what cannot be evaluated.

    Args:
        scalar: An expression, or a condition when there is no column.
        batch: No rows, with the columns that it is bound to.
        column: The column that it is assigned to.
    """
    if column is None:
        _boolean(scalar, batch)
    else:
        assigned(scalar, column, batch)


def _boolean(scalar: Scalar, batch: pa.RecordBatch) -> Any:
    return as_type(_eval(scalar, batch), BOOLEAN, batch.num_rows)


def _eval(scalar: Scalar, batch: pa.RecordBatch) -> TypedArray:
    rows = batch.num_rows
    match scalar:
        case ColumnReference(type=data_type):
            return TypedArray(column_of(scalar, batch), data_type)
        case Literal(value=None, type=data_type):
            return TypedArray(pa.nulls(rows, to_arrow_type(data_type)), data_type, is_null=data_type == BOOLEAN)
        case Literal(value=value, type=data_type):
            constant = value if data_type in INTEGERS and isinstance(value, int) else None
            return TypedArray(repeated(from_values([value], data_type), rows), data_type, constant=constant)
        case Text(text=text):
            return TypedArray(repeated(pa.array([text]), rows), VARCHAR, text=text)
        case Test(predicate=predicate):
            return TypedArray(evaluate(predicate, batch), BOOLEAN)
        case InZone(operand=operand, zone=zone):
            with in_zone(zone):
                return _eval(operand, batch)
        case KeyValue():
            return TypedArray(has_key_value(scalar, batch), BOOLEAN)
        case CastTo(operand=operand, type=wanted, lenient=lenient):
            value = _eval(operand, batch)
            plain = as_type(value, wanted, rows) if value.is_null else cast_scalar(value.array, value.type, wanted, lenient=lenient)
            return TypedArray(plain, wanted)
        case Compare(left=left, operator=operator, right=right):
            return TypedArray(_comparison(_eval(left, batch), operator, _eval(right, batch), rows), BOOLEAN)
        case Logical(kind=kind, operands=operands):
            return TypedArray(_logical(kind, operands, batch), BOOLEAN)
        case Case():
            return _case(scalar, batch)
        case Call():
            return _call(scalar, batch)
        case _:
            assert_never(scalar)


def _logical(kind: str, operands: Sequence[Scalar], batch: pa.RecordBatch) -> Any:
    if kind == "is null":
        value = _eval(operands[0], batch)
        # is_null() of Arrow alone tells NaN from NULL.
        return value.array.is_null()
    if kind == "in":
        return _is_one_of([_eval(operand, batch) for operand in operands], batch.num_rows)
    booleans = [_boolean(operand, batch) for operand in operands]
    if kind == "not":
        return pc.invert(booleans[0])
    return reduce(pc.and_kleene if kind == "and" else pc.or_kleene, booleans)


def _is_one_of(values: Sequence[TypedArray], rows: int) -> Any:
    """Whether the first is equal to one of the others, compared one by one: DuckDB brings all to one type before, which may lose digits."""
    types = {value.type for value in values if value.text is None and not value.is_null and not _is_short(value)}
    if len(values) > 2 and len(types) > 1 and not all(kind in INTEGERS or isinstance(kind, DecimalType) for kind in types):
        raise UnsupportedFeatureError(f"IN with values of {' and '.join(sorted(map(str, types)))}")
    subject, *others = values
    return reduce(pc.or_kleene, [_comparison(subject, "=", other, rows) for other in others])


def _is_short(value: TypedArray) -> bool:
    """Whether it is a whole number as written that every type of numbers holds exactly."""
    return value.constant is not None and abs(value.constant) <= _MOST_IN_FLOAT32


def _comparison(left: TypedArray, operator: Any, right: TypedArray, rows: int) -> Any:
    if left.is_null or right.is_null:
        return pa.nulls(rows, pa.bool_())
    if left.text is not None and right.text is None:
        left = TypedArray(as_type(left, right.type, rows), right.type)
    elif right.text is not None and left.text is None:
        right = TypedArray(as_type(right, left.type, rows), left.type)
    if TIMESTAMPTZ in (left.type, right.type):
        left, right = (_at_instants(value) for value in (left, right))
    domain = common_domain(left.type, right.type)
    if domain is None:
        raise UnsupportedFeatureError(f"a comparison of {left.type} with {right.type}")
    return compared(*unified(left.array, left.type, right.array, right.type, domain), operator)


def _at_instants(value: TypedArray) -> TypedArray:
    """Dates and timestamps without a zone as the instants that they are in the effective one."""
    wider = value.type in (DATE, TIMESTAMP)
    return TypedArray(cast_scalar(value.array, value.type, TIMESTAMPTZ), TIMESTAMPTZ) if wider else value


def _case(case: Case, batch: pa.RecordBatch) -> TypedArray:
    """Each branch sees only the rows that come to it, so that a division it guards is never made for others."""
    rows = batch.num_rows
    left = pa.array(range(rows), pa.int64())
    parts: list[tuple[Any, TypedArray]] = []
    rest = batch
    for condition, value in case.branches:
        chosen = holds_for(condition, rest)
        parts.append((left.filter(chosen), _eval(value, rest.filter(chosen))))
        others = pc.invert(chosen)
        left, rest = left.filter(others), rest.filter(others)
    # The type of ELSE is looked at first.
    return _put_together([(left, _eval(case.otherwise, rest)), *parts], rows)


def _coalesce(arguments: Sequence[Scalar], batch: pa.RecordBatch) -> TypedArray:
    """Each argument sees only the rows for which all before it are NULL."""
    left = pa.array(range(batch.num_rows), pa.int64())
    parts: list[tuple[Any, TypedArray]] = []
    rest = batch
    for argument in arguments:
        value = _eval(argument, rest)
        empty = value.array.is_null() if argument is not arguments[-1] else pa.repeat(pa.scalar(False), rest.num_rows)
        kept = pc.invert(empty)
        parts.append((left.filter(kept), replace(value, array=value.array.filter(kept))))
        left, rest = left.filter(empty), rest.filter(empty)
    return _put_together(parts, batch.num_rows)


def _put_together(parts: Sequence[tuple[Any, TypedArray]], rows: int) -> TypedArray:
    """The values of all parts, each with its rows, in the type that they have in common, which depends on their order."""
    wanted = unified_type([value for _, value in parts])
    if wanted is None:
        return nulls(rows)
    values = pa.concat_arrays([as_type(value, wanted, len(places)) for places, value in parts])
    order = pc.sort_indices(pa.concat_arrays([places for places, _ in parts]))
    return TypedArray(pc.take(values, order), wanted)


def _null_if(first: TypedArray, second: TypedArray, rows: int) -> TypedArray:
    equal = pc.fill_null(_comparison(first, "=", second, rows), False)
    return replace(first, array=without(first.array, equal), text=None, constant=None)


def _call(call: Call, batch: pa.RecordBatch) -> TypedArray:
    function, rows = call.function, batch.num_rows
    if function == "coalesce":
        return _coalesce(call.arguments, batch)
    if function in random_functions:
        return random_values(function, rows)
    # What stands beside NULL gives it a type and is not calculated.
    is_null = function in _ARITHMETIC and Literal(value=None, type=BOOLEAN) in call.arguments
    values = [_eval(argument, batch.slice(0, 0) if is_null else batch) for argument in call.arguments]
    match function:
        case _ if function in _ARITHMETIC:
            return arithmetic(function, values[0], values[1], rows)
        case "negate" | "abs" | "floor" | "ceil":
            return number_function(function, values[0])
        case "||" | "concat":
            return joined(function, values, rows)
        case "upper" | "lower" | "length" | "trim" | "ltrim" | "rtrim":
            return of_text(function, values[0])
        case "like" | "starts_with":
            return matching(function, values[0], values[1])
        case "replace" | "substring":
            return with_constants(function, values)
        case "nullif":
            return _null_if(values[0], values[1], rows)
        case _:
            raise UnsupportedFeatureError(f"the function {function}")
