"""Scalar expressions over Arrow batches, with the reference's results; what it computes differently is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.arrow.comparable import unified
from ducklake_core.arrow.evaluate import column_of, compared, evaluate
from ducklake_core.arrow.partition_keys import has_key_value
from ducklake_core.arrow.scalar_cast import cast_scalar, text_value
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.arrow_types import to_arrow_type
from ducklake_core.format.comparison import common_domain, integer_range
from ducklake_core.format.leaf_cast import from_values
from ducklake_core.format.predicates import ColumnReference, Literal
from ducklake_core.format.scalars import Call, Case, CastTo, Compare, KeyValue, Logical, Scalar, Test, Text
from ducklake_core.format.types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT64,
    INT128,
    INTEGERS,
    UINT64,
    UINT128,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
)

_WIDE = (INT128, UINT64, UINT128)
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_PLAIN = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


@dataclass(frozen=True, slots=True)
class _Typed:
    """Values and their type.

    ``text`` is set for a quoted string, which takes the type of what stands beside it, ``constant`` for a whole number as
    written, which does so where it fits.
    """

    array: Any
    type: DataType
    text: str | None = None
    is_null: bool = False
    constant: int | None = None


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
    try:
        return _as(_eval(scalar, batch), column.type, batch.num_rows)
    except (SchemaError, UsageError) as error:
        raise SchemaError(f"column {column.name!r}: {error.message}", column=column.name) from error
    except UnsupportedFeatureError as error:
        message = f"column {column.name!r} of type {column.type} cannot be set in process: it needs {error.message}"
        raise UnsupportedFeatureError(message, column=column.name) from error


def holds_for(scalar: Scalar, batch: pa.RecordBatch) -> Any:
    """For which rows a condition is true; NULL counts as false."""
    return pc.fill_null(_boolean(scalar, batch), False)


def outcome(scalar: Scalar, batch: pa.RecordBatch) -> pa.BooleanArray:
    """What a condition gives for every row: true, false, or NULL where it is unknown."""
    return _boolean(scalar, batch)


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
    return _as(_eval(scalar, batch), BOOLEAN, batch.num_rows)


def _as(value: _Typed, wanted: DataType, length: int) -> Any:
    if value.is_null:
        return pa.nulls(length, to_arrow_type(wanted))
    if value.text is not None:
        return _repeated(text_value(value.text, wanted), length)
    return cast_scalar(value.array, value.type, wanted)


def _repeated(one: Any, length: int) -> Any:
    return pc.take(one, pa.nulls(length, pa.int32()).fill_null(0))


def _eval(scalar: Scalar, batch: pa.RecordBatch) -> _Typed:
    rows = batch.num_rows
    match scalar:
        case ColumnReference(type=data_type):
            return _Typed(column_of(scalar, batch), data_type)
        case Literal(value=None, type=data_type):
            return _Typed(pa.nulls(rows, to_arrow_type(data_type)), data_type, is_null=data_type == BOOLEAN)
        case Literal(value=value, type=data_type):
            constant = value if data_type in INTEGERS and isinstance(value, int) else None
            return _Typed(_repeated(from_values([value], data_type), rows), data_type, constant=constant)
        case Text(text=text):
            return _Typed(_repeated(pa.array([text]), rows), VARCHAR, text=text)
        case Test(predicate=predicate):
            return _Typed(evaluate(predicate, batch), BOOLEAN)
        case KeyValue():
            return _Typed(has_key_value(scalar, batch), BOOLEAN)
        case CastTo(operand=operand, type=wanted, lenient=lenient):
            value = _eval(operand, batch)
            plain = _as(value, wanted, rows) if value.is_null else cast_scalar(value.array, value.type, wanted, lenient=lenient)
            return _Typed(plain, wanted)
        case Compare(left=left, operator=operator, right=right):
            return _Typed(_comparison(_eval(left, batch), operator, _eval(right, batch), rows), BOOLEAN)
        case Logical(kind=kind, operands=operands):
            return _Typed(_logical(kind, operands, batch), BOOLEAN)
        case Case():
            return _case(scalar, batch)
        case Call(function=function, arguments=arguments):
            return _call(function, [_eval(argument, batch) for argument in arguments], rows)
        case _:
            assert_never(scalar)


def _logical(kind: str, operands: Sequence[Scalar], batch: pa.RecordBatch) -> Any:
    if kind == "is null":
        value = _eval(operands[0], batch)
        # is_null() of Arrow alone tells NaN from NULL.
        return value.array.is_null()
    booleans = [_boolean(operand, batch) for operand in operands]
    if kind == "not":
        return pc.invert(booleans[0])
    return reduce(pc.and_kleene if kind == "and" else pc.or_kleene, booleans)


def _comparison(left: _Typed, operator: Any, right: _Typed, rows: int) -> Any:
    if left.is_null or right.is_null:
        return pa.nulls(rows, pa.bool_())
    if left.text is not None and right.text is None:
        left = _Typed(_as(left, right.type, rows), right.type)
    elif right.text is not None and left.text is None:
        right = _Typed(_as(right, left.type, rows), left.type)
    domain = common_domain(left.type, right.type)
    if domain is None:
        raise UnsupportedFeatureError(f"a comparison of {left.type} with {right.type}")
    return compared(*unified(left.array, left.type, right.array, right.type, domain), operator)


def _case(case: Case, batch: pa.RecordBatch) -> _Typed:
    """Each branch sees only the rows that come to it, so that a division it guards is never made for others."""
    rows = batch.num_rows
    left = pa.array(range(rows), pa.int64())
    parts: list[tuple[Any, _Typed]] = []
    rest = batch
    for condition, value in case.branches:
        chosen = holds_for(condition, rest)
        parts.append((left.filter(chosen), _eval(value, rest.filter(chosen))))
        others = pc.invert(chosen)
        left, rest = left.filter(others), rest.filter(others)
    parts.append((left, _eval(case.otherwise, rest)))
    wanted = _unified_type([value for _, value in parts])
    if wanted is None:
        return _Typed(pa.nulls(rows, pa.bool_()), BOOLEAN, is_null=True)
    values = pa.concat_arrays([_as(value, wanted, len(places)) for places, value in parts])
    order = pc.sort_indices(pa.concat_arrays([places for places, _ in parts]))
    return _Typed(pc.take(values, order), wanted)


def _unified_type(values: Sequence[_Typed]) -> DataType | None:
    """The type that several values have in common: that of quoted strings and NULLs comes from the others."""
    types = [value.type for value in values if value.text is None and not value.is_null]
    if not types:
        return VARCHAR if any(value.text is not None for value in values) else None
    return reduce(_wider, types)


def _wider(one: DataType, two: DataType) -> DataType:
    if one == two:
        return one
    if VARCHAR in (one, two) and not any(t in (BOOLEAN, *INTEGERS, *FLOATS) or isinstance(t, DecimalType) for t in (one, two)):
        raise UnsupportedFeatureError(f"{one} and {two} in one CASE or COALESCE")
    if one in INTEGERS and two in INTEGERS:
        return _wider_integer(one, two)
    if FLOAT64 in (one, two) and _is_number(one) and _is_number(two):
        return FLOAT64
    if FLOAT32 in (one, two) and _is_number(one) and _is_number(two):
        return FLOAT32
    decimals = [t if isinstance(t, DecimalType) else DecimalType(precision=19, scale=0) for t in (one, two) if _is_number(t)]
    if len(decimals) == 2 and not {one, two} & set(_WIDE):
        scale = max(t.scale for t in decimals)
        whole = max(t.precision - t.scale for t in decimals)
        return DecimalType(precision=min(38, whole + scale), scale=scale)
    raise UnsupportedFeatureError(f"{one} and {two} in one CASE or COALESCE")


def _wider_integer(one: DataType, two: DataType) -> DataType:
    (low, high), (other_low, other_high) = integer_range(one), integer_range(two)
    if low <= other_low and other_high <= high:
        return one
    if other_low <= low and high <= other_high:
        return two
    return INT128 if {one, two} & set(_WIDE) else INT64


def _integer_type(left: _Typed, right: _Typed) -> DataType:
    """The type of arithmetic on two integers, whose range the reference does not leave."""
    for value, other in ((left, right), (right, left)):
        if value.constant is not None and other.constant is None:
            low, high = integer_range(other.type)
            if low <= value.constant <= high:
                return other.type
    return _wider_integer(left.type, right.type)


def _is_number(data_type: DataType) -> bool:
    return data_type in INTEGERS or data_type in FLOATS or isinstance(data_type, DecimalType)


def _call(function: str, values: list[_Typed], rows: int) -> _Typed:
    match function:
        case "+" | "-" | "*" | "/" | "//" | "%":
            return _arithmetic(function, values[0], values[1], rows)
        case "negate" | "abs" | "floor" | "ceil":
            return _number(function, values[0])
        case "||" | "concat":
            texts = [_text(value, rows) for value in values]
            how = "emit_null" if function == "||" else "skip"
            return _Typed(pc.binary_join_element_wise(*texts, "", null_handling=how), VARCHAR)
        case "upper" | "lower" | "length" | "trim" | "ltrim" | "rtrim":
            return _of_text(function, _only_text(values[0], function))
        case "replace" | "substring":
            return _with_constants(function, values)
        case "coalesce" | "nullif":
            return _choice(function, values, rows)
        case _:
            raise UnsupportedFeatureError(f"the function {function}")


def _choice(function: str, values: list[_Typed], rows: int) -> _Typed:
    if function == "nullif":
        first, second = values
        equal = pc.fill_null(_comparison(first, "=", second, rows), False)
        return _Typed(pc.if_else(equal, pa.scalar(None, first.array.type), first.array), first.type)
    wanted = _unified_type(values)
    if wanted is None:
        return values[0]
    arrays = [_as(value, wanted, rows) for value in values]
    return _Typed(reduce(lambda one, two: pc.if_else(one.is_null(), two, one), arrays), wanted)


def _text(value: _Typed, rows: int) -> Any:
    return _as(value, VARCHAR, rows)


def _only_text(value: _Typed, function: str) -> Any:
    if value.type != VARCHAR and not value.is_null:
        raise UnsupportedFeatureError(f"{function}() of {value.type}")
    return _as(value, VARCHAR, len(value.array))


def _of_text(function: str, array: Any) -> _Typed:
    match function:
        case "length":
            return _Typed(pc.utf8_length(array).cast(pa.int64()), INT64)
        case "upper" | "lower":
            return _Typed((pc.utf8_upper if function == "upper" else pc.utf8_lower)(array), VARCHAR)
        case _:
            trimming = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}
            return _Typed(trimming[function](array, characters=" "), VARCHAR)


def _with_constants(function: str, values: list[_Typed]) -> _Typed:
    subject = _only_text(values[0], function)
    if function == "replace":
        if values[1].text is None or values[2].text is None:
            raise UnsupportedFeatureError("replace() with texts that are no constants")
        found = subject if not values[1].text else pc.replace_substring(subject, pattern=values[1].text, replacement=values[2].text)
        return _Typed(found, VARCHAR)
    numbers: list[int] = []
    for value in values[1:]:
        distinct = value.array.unique().to_pylist() if value.type in INTEGERS else [None]
        if not distinct:
            return _Typed(subject, VARCHAR)
        if len(distinct) > 1 or distinct[0] is None or distinct[0] < 0 or (not numbers and distinct[0] < 1):
            raise UnsupportedFeatureError("substring() with a place that is no positive constant")
        numbers.append(distinct[0])
    stop = None if len(numbers) == 1 else numbers[0] - 1 + numbers[1]
    return _Typed(pc.utf8_slice_codeunits(subject, numbers[0] - 1, stop), VARCHAR)


def _number(function: str, value: _Typed) -> _Typed:
    kind = value.type
    if value.is_null:
        return value
    if kind in INTEGERS and kind not in _WIDE:
        if function in ("floor", "ceil"):
            return value
        wide = value.array.cast(pa.int64())
        return _in_range(_checked(pc.negate_checked if function == "negate" else pc.abs_checked, wide), kind)
    if kind in FLOATS or (isinstance(kind, DecimalType) and function in ("negate", "abs")):
        operation: Callable[..., Any] = {"negate": pc.negate, "abs": pc.abs, "floor": pc.floor, "ceil": pc.ceil}[function]
        return _Typed(operation(value.array), kind)
    raise UnsupportedFeatureError(f"{function}() of {kind}")


def _arithmetic(operator: str, left: _Typed, right: _Typed, rows: int) -> _Typed:
    if left.is_null or right.is_null:
        other = right if left.is_null else left
        # The type is that of the other side, all values are NULL.
        return _Typed(pa.nulls(rows, other.array.type), other.type, is_null=other.is_null)
    for value in (left, right):
        if value.text is not None:
            raise UnsupportedFeatureError(f"{value.text!r} as a number: cast it")
    types = {left.type, right.type}
    if left.type == DATE and operator in "+-" and right.type in INTEGERS and right.type not in _WIDE:
        days = _checked(_CHECKED[operator], left.array.view(pa.int32()).cast(pa.int64()), right.array.cast(pa.int64()))
        return _Typed(days.cast(pa.int32()).view(pa.date32()), DATE)
    if not all(_is_number(kind) for kind in types) or types & set(_WIDE):
        raise UnsupportedFeatureError(f"{left.type} {operator} {right.type}")
    if types & set(FLOATS) or operator == "/":
        return _with_floats(operator, left, right)
    if any(isinstance(kind, DecimalType) for kind in types):
        return _with_decimals(operator, left, right)
    kind = _integer_type(left, right)
    one, two = left.array.cast(pa.int64()), right.array.cast(pa.int64())
    if operator in _CHECKED:
        return _in_range(_checked(_CHECKED[operator], one, two), kind)
    two = pc.if_else(pc.equal(two, 0), pa.scalar(None, pa.int64()), two)
    quotient = _checked(pc.divide_checked, one, two)
    return _in_range(quotient if operator == "//" else pc.subtract(one, pc.multiply(quotient, two)), kind)


def _in_range(array: Any, kind: DataType) -> _Typed:
    return _Typed(_checked(lambda wide: wide.cast(to_arrow_type(kind)), array), kind)


def _with_floats(operator: str, left: _Typed, right: _Typed) -> _Typed:
    narrow = FLOAT32 in (left.type, right.type) and FLOAT64 not in (left.type, right.type)
    kind = FLOAT32 if narrow else FLOAT64
    one, two = (cast_scalar(value.array, value.type, kind) for value in (left, right))
    if operator == "/":
        return _Typed(pc.divide(one, two), kind)
    if operator not in _PLAIN:
        raise UnsupportedFeatureError(f"{left.type} {operator} {right.type}")
    return _Typed(_PLAIN[operator](one, two), kind)


def _with_decimals(operator: str, left: _Typed, right: _Typed) -> _Typed:
    if operator not in _PLAIN:
        raise UnsupportedFeatureError(f"{left.type} {operator} {right.type}")
    one, two = (value.array if isinstance(value.type, DecimalType) else value.array.cast(pa.decimal128(19, 0)) for value in (left, right))
    if max(one.type.precision, two.type.precision) > 38 or one.type.precision + two.type.precision + 1 > 76:
        raise UnsupportedFeatureError(f"{left.type} {operator} {right.type}")
    wide = [array.cast(pa.decimal256(array.type.precision, array.type.scale)) for array in (one, two)]
    found = _PLAIN[operator](*wide)
    if found.type.scale > 38:
        raise UnsupportedFeatureError(f"{left.type} {operator} {right.type}")
    kind = DecimalType(precision=38, scale=found.type.scale)
    try:
        return _Typed(found.cast(to_arrow_type(kind)), kind)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{left.type} {operator} {right.type} is out of the range of {kind}") from error


def _checked(operation: Callable[..., Any], *arrays: Any) -> Any:
    try:
        return operation(*arrays)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"a value is out of range: {error}") from error
