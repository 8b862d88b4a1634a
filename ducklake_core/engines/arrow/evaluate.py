"""Evaluate predicates and scalar expressions over Arrow batches with DuckDB's semantics.

There are two kinds of expressions. A ``Predicate`` filters rows and also prunes files: comparisons of columns with constants, NULL tests,
ranges. A ``Scalar`` computes a value of any type, for other conditions and for assignments; ``SqlExpression`` embeds one in a predicate.

DuckDB and Arrow differ in what comes up in every comparison, so that values are first brought to a comparable form: NaN is the greatest
number and equals itself, -0.0 equals 0.0, infinite timestamps survive a change of unit, and integers compare with decimals exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias, assert_never
from uuid import UUID as Uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.scalar_functions import FUNCTIONS as random_functions
from ducklake_core.engines.arrow.scalar_functions import (
    TIMESTAMP_UNITS,
    TypedArray,
    arithmetic,
    as_type,
    can_cast_variants,
    cast_scalar,
    compare_variants,
    joined,
    matching,
    nulls,
    number_function,
    of_text,
    random_values,
    repeated,
    time_part,
    unified_type,
    with_constants,
    without,
)
from ducklake_core.errors import DuckLakeError, NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.comparison import (
    FLIPPED,
    Domain,
    Fitted,
    are_comparable,
    common_domain,
    domain_of,
    fit,
    holds,
    key_of,
)
from ducklake_core.format.expressions.predicates import (
    TIME_PARTS,
    And,
    BoxOverlap,
    Call,
    Case,
    CastTo,
    ColumnReference,
    Compare,
    Comparison,
    Constant,
    InList,
    InRanges,
    InZone,
    IsNull,
    KeyValue,
    Literal,
    Logical,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    Scalar,
    SqlExpression,
    StartsWith,
    Test,
    Text,
    VariantComparison,
    VariantIsNull,
    columns_of,
)
from ducklake_core.format.expressions.ranges import Span, spans_between, spans_of_ranges
from ducklake_core.format.expressions.sql import nested_sql
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOATS,
    INT64,
    INT128,
    INTEGERS,
    INTERVAL,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    TIMETZ,
    UINT64,
    UINT128,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
    PrimitiveType,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import HUGE_INTEGER, Schema, to_arrow_type
from ducklake_core.format.values.arrow_cast import cast_array, decoded_dictionary, from_values
from ducklake_core.format.values.temporal import in_zone
from ducklake_core.format.values.variant_encoding import ARRAY_TYPE, NULL_TYPE, OBJECT_TYPE, Slots, VariantBuffer
from ducklake_core.format.values.variant_shredding import column_types, typed_values
from ducklake_core.format.values.wkb import overlaps

Data: TypeAlias = pa.RecordBatch | pa.Table
_FUNCTIONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}

_INFINITY = 2**63 - 1
_MICROSECONDS_A_DAY = 86_400_000_000

RELATIONS = {
    "st_intersects": "intersects", "st_within": "within", "st_contains": "contains", "st_covers": "covers", "st_coveredby": "covered_by",
    "st_equals": "equals", "st_touches": "touches", "st_crosses": "crosses", "st_overlaps": "overlaps",
}  # fmt: skip
"""Functions of shapely, by those of DuckDB's spatial extension."""
_TURNED = {"intersects": "intersects", "within": "contains", "covered_by": "covers", "touches": "touches", "overlaps": "overlaps"}
"""The relation with its arguments exchanged: shapely evaluates faster when the prepared constant comes first."""

SOURCE_IDS = 1_000_000_000
"""Columns of a MERGE's source get ids from this number on, which distinguishes them from the table's."""
_ARITHMETIC = ("+", "-", "*", "/", "//", "%")
_MAX_IN_FLOAT32 = 2**24


def evaluate(predicate: Predicate, batch: Data) -> pa.BooleanArray:
    """Return the predicate's outcome for every row: true, false, or NULL where it is unknown.

    Args:
        predicate: Bound to columns that the batch has, by name, in logical or physical form.
        batch: The rows.

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
            return reduce(pc.and_kleene, (evaluate(operand, batch) for operand in operands))
        case Or(operands=operands):
            return reduce(pc.or_kleene, (evaluate(operand, batch) for operand in operands))
        case IsNull(operand=operand):
            return _is_null(operand, batch)
        case Comparison(left=left, operator=op, right=right):
            return _comparison(left, op, right, batch)
        case InList():
            return _in_list(predicate, batch)
        case InRanges():
            return in_ranges(predicate, batch)
        case StartsWith(operand=column, prefix=prefix):
            return pc.starts_with(comparable(column_of(column, batch), column.type), prefix)
        case VariantComparison() | VariantIsNull():
            return variant_outcome(predicate, batch)
        case BoxOverlap():
            return _of_geometries(predicate, batch)
        case _:
            assert_never(predicate)


def _of_geometries(predicate: BoxOverlap, batch: Data) -> pa.BooleanArray:
    array = column_of(predicate.operand, batch)
    if predicate.relation is None:
        return overlaps(array, predicate.box)

    return related(predicate, array)


def column_of(column: ColumnReference, batch: Data) -> pa.Array:
    """Return the column's values; NULL where a struct above it is NULL.

    Raises:
        NotFoundError: The batch has no such column.
    """
    index = _place(column.path[0], batch.schema.names)
    if index is None:
        raise NotFoundError(
            f"the data has no column {column.path[0]!r}. Its columns are {', '.join(batch.schema.names)}", column=column.path[0]
        )
    found: Any = batch.column(index)
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    for name in column.path[1:]:
        names = [array.type.field(i).name for i in range(array.type.num_fields)]
        child = _place(name, names)
        if child is None:
            raise NotFoundError(f"struct {column.path[0]!r} has no field {name!r}. Its fields are {', '.join(names)}", column=name)
        array = pc.struct_field(array, [child])
    return array


def _place(name: str, names: list[str]) -> int | None:
    if name in names:
        return names.index(name)
    wanted = folded(name)
    return next((place for place, one in enumerate(names) if folded(one) == wanted), None)


def _needs_engine(expression: SqlExpression) -> UnsupportedFeatureError:
    has_bits = re.search(r"[^&|][&|][^&|]", re.sub(r"'[^']*'", "", expression.sql))
    remedy = "Write AND and OR instead of & and |, which compute with bits," if has_bits else "Write the condition without it,"
    return UnsupportedFeatureError(
        f"Arrow cannot evaluate {expression.sql!r}. {remedy} or use lake.sql(...) or Spark",
        expression=expression.sql,
    )


def _of_scalar(scalar: Scalar | None, expression: SqlExpression, batch: Data) -> pa.BooleanArray:

    if scalar is None:
        raise _needs_engine(expression)
    with _as_condition(repr(expression.sql), expression=expression.sql):
        if isinstance(batch, pa.Table):
            return pa.chunked_array([outcome(scalar, part) for part in batch.to_batches()], pa.bool_()).combine_chunks()
        return outcome(scalar, batch)


@contextmanager
def _as_condition(condition: str, **details: object) -> Iterator[None]:
    """Raise errors about a part of a condition, whose messages are nouns such as "a comparison of varchar with int32", as its errors."""
    try:
        yield
    except UnsupportedFeatureError as error:
        if error.message.startswith("Arrow cannot"):
            raise
        message = f"Arrow cannot evaluate {condition}, because it does not support {error.message}"
        raise UnsupportedFeatureError(
            f"{message}. Cast the values, write it in another way, or use lake.sql(...) or Spark", **details
        ) from error


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
        raise UnsupportedFeatureError(f"Arrow cannot compare {left} with {right}. Use values of one type in the condition, or use Spark")
    return domain


def _with_literal(array: pa.Array, data_type: DataType, op: Operator, literal: Literal) -> pa.BooleanArray:
    domain = _domain(data_type, literal.type)
    # A constant is fitted to the column's type, so that the column is compared as it is stored. The outcomes of fit():
    #   bool     no value of the type can make a difference (int8 < 1000 is always true); NULL stays NULL
    #   Fitted   an equivalent comparison with a value of the column's type (int8 < 1.5 becomes int8 <= 1)
    #   None     the column has to be converted to the domain of the comparison (floats)
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
    """Return a value of a column's type as a scalar of the type in which it is compared."""
    if data_type == UUID:
        value = Uuid(str(value)).bytes
    return pa.scalar(value, arrow)


def compared(left: Any, right: Any, op: Operator) -> pa.BooleanArray:
    """Compare two columns in one comparable form, or a column and a scalar; NaN is the greatest number."""
    plain = _FUNCTIONS[op](left, right)
    if not pa.types.is_floating(left.type):
        return plain
    # In Arrow every comparison with NaN is false (true for <>). Where a side is NaN, its outcome is replaced by that of a greatest number.
    if isinstance(right, pa.Scalar) and right.is_valid and not math.isnan(right.as_py()):
        return pc.or_(plain, pc.is_nan(left)) if op in (">", ">=") else plain
    first, second = pc.is_nan(left), pc.is_nan(right)
    either = pc.or_(first, second)
    return pc.if_else(either, _with_nan(first, op, second), plain)


def _with_nan(first: pa.BooleanArray, op: Operator, second: pa.BooleanArray) -> pa.BooleanArray:
    """Return the outcomes of rows in which at least one side is NaN."""
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
    values, others = predicate.derived.get_or_make("fitted", lambda: _fitted(predicate))
    parts: list[pa.BooleanArray] = [pc.if_else(array.is_null(), pa.scalar(None, pa.bool_()), pa.scalar(False))]
    parts += [_with_literal(array, column.type, "=", literal) for literal in others]
    if values:
        plain = comparable(array, column.type)
        wanted = predicate.derived.get_or_make(plain.type, lambda: _constants(values, column.type, plain.type))
        found = pc.is_in(hashable(plain) if column.type in FLOATS else plain, wanted)
        parts.append(pc.if_else(array.is_null(), pa.scalar(None, pa.bool_()), found))
    if predicate.has_null:
        parts.append(_repeated(None, batch.num_rows))
    return reduce(pc.or_kleene, parts)


def _fitted(predicate: InList) -> tuple[list[object], list[Literal]]:
    """Return the values of the column's own type among the constants, and the constants that no value of that type is equal to exactly."""
    column, values, others = predicate.operand, list[object](), list[Literal]()
    for literal in predicate.values:
        _domain(column.type, literal.type)
        fitted = fit("=", literal, column.type)
        if isinstance(fitted, Fitted):
            values.append(fitted.value)
        elif fitted is None:
            others.append(literal)
    return values, others


def _constants(values: list[object], data_type: DataType, arrow: pa.DataType) -> pa.Array:
    wanted = pa.array([to_scalar(value, data_type, arrow).as_py() for value in values], arrow)
    return hashable(wanted) if data_type in FLOATS else wanted


def in_ranges(predicate: InRanges, batch: Data) -> pa.BooleanArray:
    """Return whether each row's value lies in one of the ranges, found by a search."""
    column = predicate.operand
    array = column_of(column, batch)
    plain = comparable(array, column.type)
    spans = spans_of_ranges(predicate)
    if not (pa.types.is_integer(plain.type) or pa.types.is_floating(plain.type)) or pa.types.is_float16(plain.type):
        return _in_spans_by_key(column, plain, spans)
    values = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False)
    return pa.array(_in_spans(values, spans), mask=plain.is_null().to_numpy(zero_copy_only=False))


def _in_spans(values: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
    bounded = [span for span in spans if span.start[0] == 1]
    lows = np.array([span.low for span in bounded], values.dtype)
    exclusive = np.array([span.start[2] == 1 for span in bounded], bool)
    place = np.searchsorted(lows, values, side="right") - 1
    # The spans ascend and are disjoint: only the last one that begins at or below a value can contain it. A value equal to an exclusive
    # start belongs to the span before. Spans without a start come first, and have no entry in ``lows``.
    same = np.zeros(len(values), bool) if not len(lows) else (place >= 0) & _equal(lows[np.maximum(place, 0)], values) & exclusive[place]
    place = place - same + (len(spans) - len(bounded))
    highs = np.array([0 if span.end[0] else span.high for span in spans], values.dtype)
    inclusive, endless = (np.array([span.end[n] == 1 for span in spans], bool) for n in (2, 0))
    at = np.maximum(place, 0)
    inside = endless[at] | _before(values, highs[at]) | (inclusive[at] & _equal(values, highs[at]))
    return np.asarray((place >= 0) & inside)


def _equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)) if left.dtype.kind == "f" else left == right)


def _before(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return whether each number sorts before a bound, with NaN as the greatest number."""
    return np.asarray((left < right) | (np.isnan(right) & ~np.isnan(left)) if left.dtype.kind == "f" else left < right)


def _in_spans_by_key(column: ColumnReference, plain: pa.Array, spans: Sequence[Span]) -> pa.BooleanArray:
    """Search the spans for values that only Python orders; each distinct value is searched once."""
    domain = domain_of(column.type)
    assert domain is not None
    coded = plain.dictionary_encode()
    keys = [None if value is None else key_of(value, column.type, domain) for value in coded.dictionary.to_pylist()]
    found = pa.array([None if key is None else spans_between(spans, key, key)[0] for key in keys], pa.bool_())
    return found.take(coded.indices)


def related(predicate: BoxOverlap, array: Any) -> pa.BooleanArray:
    """Return whether the relation holds between each geometry and the constant; NULL for NULL.

    Raises:
        UnsupportedFeatureError: The package shapely is not installed.
        UsageError: The constant is not a geometry.
        SchemaError: A geometry for which the relation cannot be computed.
    """
    text = nested_sql(predicate, "duckdb")
    shapely = require_shapely(text)
    try:
        constant = shapely.from_wkt(predicate.constant)
    except shapely.errors.ShapelyError as error:
        raise UsageError(f"{predicate.constant!r} is not a geometry in well-known text: {error}") from error
    shapely.prepare(constant)
    # The bounding boxes exclude most rows at a fraction of the cost of decoding a geometry.
    near = overlaps(array, predicate.box)
    found = near.fill_null(False).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(found)
    function = RELATIONS[predicate.relation or "st_intersects"]
    found[places] = _outcomes(shapely, function, array.take(pa.array(places)), constant, predicate.constant_first, text)
    return pa.array(found, mask=array.is_null().to_numpy(zero_copy_only=False))


def _outcomes(shapely: ModuleType, function: str, array: Any, constant: Any, constant_first: bool, text: str) -> Any:
    try:
        shapes = shapely.from_wkb(array.to_numpy(zero_copy_only=False))
        if constant_first:
            return getattr(shapely, function)(constant, shapes)
        if function in _TURNED:
            return getattr(shapely, _TURNED[function])(constant, shapes)
        return getattr(shapely, function)(shapes, constant)
    except shapely.errors.ShapelyError as error:
        raise SchemaError(f"{text} cannot be evaluated for a geometry: {error}") from error


def require_shapely(what: str) -> ModuleType:
    """Import the optional package.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    try:
        return import_module("shapely")
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"{what} needs the package shapely, also on Spark's executors. Run pip install 'ducklake-dagster[spatial]', or compare only "
            "bounding boxes with column && constant",
            package="shapely",
        ) from error


def variant_outcome(predicate: VariantComparison | VariantIsNull, batch: Data) -> pa.BooleanArray:
    """Return the outcome for every row. DuckDB, where it is installed, evaluates casts that this library does not have.

    Raises:
        SchemaError: A value does not compare with the constant, or cannot be cast.
        CorruptFileError: A value is not a variant.
    """
    field = predicate.left if isinstance(predicate, VariantComparison) else predicate.operand
    array: Any = column_of(field.column, batch)
    try:
        return _outcome(predicate, field.path, array)
    except (SchemaError, UnsupportedFeatureError):
        if field.cast is None or isinstance(predicate, VariantIsNull) or not can_cast_variants():
            raise
        return compare_variants(predicate, array)


def _outcome(predicate: VariantComparison | VariantIsNull, path: tuple[str | int, ...], array: Any) -> pa.BooleanArray:
    buffer = VariantBuffer(array)
    slots = _at(buffer, path)
    slots = slots.where(slots.kinds != NULL_TYPE)
    found, known = np.zeros(len(array), bool), np.zeros(len(array), bool)
    if isinstance(predicate, VariantIsNull):
        found[:] = True
        found[slots.places] = False
        return pa.array(found)
    for data_type, chosen in column_types(buffer, slots):
        part = slots.where(chosen)
        outcome = _compared(buffer, part, data_type, predicate)
        found[part.places] = outcome.fill_null(False).to_numpy(zero_copy_only=False)
        known[part.places] = outcome.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=~known)


def _at(buffer: VariantBuffer, path: tuple[str | int, ...]) -> Slots:
    """Return the values at a path; their places are row indexes."""
    slots = buffer.root()
    for step in path:
        parents = slots.where(slots.kinds == (OBJECT_TYPE if isinstance(step, str) else ARRAY_TYPE))
        if isinstance(step, str):
            children = buffer.fields(parents).get(step)
        else:
            elements, counts = buffer.elements(parents)
            first = np.cumsum(counts) - counts
            children = elements.where(first[counts >= step] + step - 1)
        if children is None:
            return slots.where(np.empty(0, np.int64))
        slots = children.moved(parents.places[children.places])
    return slots


def _compared(
    buffer: VariantBuffer, slots: Slots, data_type: PrimitiveType | DecimalType | None, predicate: VariantComparison
) -> pa.BooleanArray:
    cast, right = predicate.left.cast, predicate.right
    if data_type is None or (cast is None and not are_comparable(data_type, right.type)):
        held = "an object, an array or a value" if data_type is None else data_type
        raise SchemaError(
            f"{nested_sql(predicate, 'duckdb')}: a row has {held}, which cannot be compared with {right.type}. Cast the value, or "
            "exclude such rows with another condition",
            column=predicate.left.column.path[0],
        )
    if cast == JSON:
        # DuckDB makes a quoted JSON string of a string, instead of parsing its content.
        raise UnsupportedFeatureError(
            f"Arrow cannot cast variant to json in {nested_sql(predicate, 'duckdb')}. Use Spark", cast="variant to json"
        )
    values = typed_values(buffer, slots, data_type)
    column = ColumnReference(column_id=0, path=("value",), type=data_type)
    batch = pa.record_batch([values], names=["value"])
    if cast is None:
        return evaluate(Comparison(left=column, operator=predicate.operator, right=right), batch)

    wanted = CastTo(operand=column, type=cast, lenient=predicate.left.lenient)
    return outcome(Compare(left=wanted, operator=predicate.operator, right=right), batch)


def assigned(scalar: Scalar, column: Field, batch: pa.RecordBatch) -> Any:
    """Return the values of an expression, as an UPDATE gives them to a column: in its type.

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
        # New rows are stored as an append stores them: DuckDB's cast would silently drop digits, or does not exist.
        return cast_array(column_of(scalar, batch), column)
    try:
        return as_type(_eval(scalar, batch), column.type, batch.num_rows)
    except (SchemaError, UsageError) as error:
        raise SchemaError(f"column {column.name!r}: {error.message}", column=column.name) from error
    except UnsupportedFeatureError as error:
        if isinstance(scalar, ColumnReference) and _is_taken_by_appends(scalar.type, column.type):
            # A plain column is stored as an append of it would be.
            return cast_array(column_of(scalar, batch), column)
        message = f"column {column.name!r} of type {column.type} cannot be computed without Spark: Arrow does not support {error.message}"
        raise UnsupportedFeatureError(message, column=column.name) from error


def _is_taken_by_appends(given: DataType, wanted: DataType) -> bool:
    """Return whether an append takes values of one type for a column of another, though no cast in process is DuckDB's."""
    if wanted in (INT128, UINT128, INTERVAL, TIME, TIMETZ):
        return given == VARCHAR or (wanted in (INT128, UINT128) and (given in INTEGERS or isinstance(given, DecimalType)))
    return (wanted, given) == (TIMESTAMP_NS, INT64)


def holds_for(scalar: Scalar, batch: pa.RecordBatch) -> Any:
    """Return for each row whether a condition is true; NULL counts as false."""
    return pc.fill_null(outcome(scalar, batch), False)


def check_scalar(scalar: Scalar, batch: pa.RecordBatch, column: Field | None = None) -> None:
    """Reject an expression that cannot be evaluated, before any row is read.

    Args:
        scalar: An expression, or a condition when there is no column.
        batch: No rows, with the columns that it is bound to.
        column: The column that it is assigned to.
    """
    if column is not None:
        assigned(scalar, column, batch)
        return
    with _as_condition("the condition"):
        outcome(scalar, batch)


def outcome(scalar: Scalar, batch: pa.RecordBatch) -> Any:
    """Evaluate a condition for every row: true, false, or NULL where it is unknown."""
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
            return TypedArray(_scalar_comparison(_eval(left, batch), operator, _eval(right, batch), rows), BOOLEAN)
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
        # By default, Arrow's is_null() does not count NaN as NULL.
        return value.array.is_null()
    if kind == "in":
        return _is_one_of([_eval(operand, batch) for operand in operands], batch.num_rows)
    booleans = [outcome(operand, batch) for operand in operands]
    if kind == "not":
        return pc.invert(booleans[0])
    return reduce(pc.and_kleene if kind == "and" else pc.or_kleene, booleans)


def _is_one_of(values: Sequence[TypedArray], rows: int) -> Any:
    """Return whether the first equals one of the others, compared in pairs: DuckDB casts all to one type first, which may lose digits."""
    # Pairwise comparison equals DuckDB's cast to a common type only if that type loses nothing: with one type, exact numbers, or a single
    # value. Strings and short constants adapt to the other side and do not count.
    types = {value.type for value in values if value.text is None and not value.is_null and not _is_short(value)}
    if len(values) > 2 and len(types) > 1 and not all(kind in INTEGERS or isinstance(kind, DecimalType) for kind in types):
        raise UnsupportedFeatureError(f"IN with values of {' and '.join(sorted(map(str, types)))}")
    if len(types) == 1 and (kind := next(iter(types))) not in INTEGERS:
        # DuckDB casts each string, so that one is an error that is no value of the type.
        values = [TypedArray(as_type(value, kind, rows), kind) if value.text is not None else value for value in values]
    subject, *others = values
    return reduce(pc.or_kleene, [_scalar_comparison(subject, "=", other, rows) for other in others])


def _is_short(value: TypedArray) -> bool:
    """Return whether a literal is a whole number that every numeric type holds exactly."""
    return value.constant is not None and abs(value.constant) <= _MAX_IN_FLOAT32


def _scalar_comparison(left: TypedArray, operator: Any, right: TypedArray, rows: int) -> Any:
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
    """Return dates and timestamps without a zone as the instants that they are in the effective one."""
    wider = value.type in (DATE, TIMESTAMP)
    return TypedArray(cast_scalar(value.array, value.type, TIMESTAMPTZ), TIMESTAMPTZ) if wider else value


def _case(case: Case, batch: pa.RecordBatch) -> TypedArray:
    """Evaluate each branch only for the rows that reach it, so that a division that the branch guards is never computed for other rows."""
    rows = batch.num_rows
    left = pa.array(range(rows), pa.int64())
    parts: list[tuple[Any, TypedArray]] = []
    rest = batch
    for condition, value in case.branches:
        chosen = holds_for(condition, rest)
        parts.append((left.filter(chosen), _eval(value, rest.filter(chosen))))
        others = pc.invert(chosen)
        left, rest = left.filter(others), rest.filter(others)
    # DuckDB's common type depends on the order of its inputs, and it begins with ELSE.
    return _put_together([(left, _eval(case.otherwise, rest)), *parts], rows)


def _coalesce(arguments: Sequence[Scalar], batch: pa.RecordBatch) -> TypedArray:
    """Evaluate each argument only for the rows in which all earlier arguments are NULL."""
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
    """Return the values of all parts, each with its rows, in their common type, which depends on their order."""
    wanted = unified_type([value for _, value in parts])
    if wanted is None:
        return nulls(rows)
    values = pa.concat_arrays([as_type(value, wanted, len(places)) for places, value in parts])
    order = pc.sort_indices(pa.concat_arrays([places for places, _ in parts]))
    return TypedArray(pc.take(values, order), wanted)


def _null_if(first: TypedArray, second: TypedArray, rows: int) -> TypedArray:
    equal = pc.fill_null(_scalar_comparison(first, "=", second, rows), False)
    return replace(first, array=without(first.array, equal), text=None, constant=None)


def _is_null_constant(scalar: Scalar, batch: pa.RecordBatch) -> bool:
    """Return whether a scalar is NULL whatever the row is, such as ``TRY_CAST(NULL AS INTEGER)``."""
    match scalar:
        case Literal(value=value):
            return value is None
        case CastTo() | Call() if not columns_of(scalar):
            try:
                return bool(_eval(scalar, batch.slice(0, 1)).array.null_count) and batch.num_rows > 0
            except DuckLakeError:
                return False
        case _:
            return False


def _call(call: Call, batch: pa.RecordBatch) -> TypedArray:
    function, rows = call.function, batch.num_rows
    if function == "coalesce":
        return _coalesce(call.arguments, batch)
    if function in random_functions:
        return random_values(function, rows)
    # DuckDB does not compute the other operand of NULL, which only gives NULL its type: a division by zero in it is not an error.
    if function in _ARITHMETIC and any(_is_null_constant(argument, batch) for argument in call.arguments):
        left, right = (_eval(argument, batch.slice(0, 0)) for argument in call.arguments)
        typed = arithmetic(function, left, right, 0)
        return replace(typed, array=pa.nulls(rows, typed.array.type))
    values = [_eval(argument, batch) for argument in call.arguments]
    match function:
        case _ if function in _ARITHMETIC:
            return arithmetic(function, values[0], values[1], rows)
        case "negate" | "abs" | "floor" | "ceil":
            return number_function(function, values[0])
        case "||" | "concat":
            return joined(function, values, rows)
        case "upper" | "lower" | "length" | "trim" | "ltrim" | "rtrim":
            return of_text(function, values[0])
        case _ if function in TIME_PARTS:
            return time_part(function, values[0], rows)
        case "like" | "ilike" | "starts_with":
            return matching(function, *values)
        case "replace" | "substring":
            return with_constants(function, values)
        case "nullif":
            return _null_if(values[0], values[1], rows)
        case _:
            raise UnsupportedFeatureError(f"the function {function}")


def comparable(array: pa.Array, data_type: DataType) -> pa.Array:
    """Return plain storage of a leaf column whose order is the type's order: days, units of time (see format/values/leaf_values.py), bytes.

    Raises:
        UnsupportedFeatureError: A type whose values cannot be ordered here.
    """
    if domain_of(data_type) is None:
        raise UnsupportedFeatureError(f"Arrow cannot compare values of type {data_type}. Write the condition without them, or use Spark")
    plain: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
    if pa.types.is_dictionary(plain.type):
        plain = decoded_dictionary(plain)
    arrow = plain.type
    if data_type in (INT128, UINT128):
        return plain if arrow == HUGE_INTEGER else plain.cast(HUGE_INTEGER)
    if pa.types.is_date32(arrow):
        return plain.view(pa.int32())
    if pa.types.is_timestamp(arrow):
        return _units(plain.view(pa.int64()), arrow.unit, "ns" if data_type == TIMESTAMP_NS else "us")
    if pa.types.is_time(arrow):
        return plain.cast(pa.time64("us")).view(pa.int64())
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return plain.cast(pa.string())
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return plain.cast(pa.binary())
    return plain


def hashable(array: Any) -> Any:
    """Return equal values in equal form, of a type that Arrow's set operations support: one NaN for all of them, one zero for both."""
    if pa.types.is_floating(array.type):
        # Arrow hashes the bits: NaN has many of them, and -0.0 + 0.0 is 0.0.
        return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), pc.add(array, pa.scalar(0.0, array.type)))
    return array.cast(pa.string()) if pa.types.is_decimal256(array.type) else array


def in_domain(array: pa.Array, data_type: DataType, domain: Domain) -> pa.Array:
    """Return numbers as the floats of ``domain``; other columns as :func:`comparable`."""
    plain = comparable(array, data_type)
    if domain not in ("float32", "float64"):
        return plain
    target = pa.float32() if domain == "float32" else pa.float64()
    if pa.types.is_decimal(plain.type):
        # Arrow's own cast of decimals to floats is not always the nearest float.
        return plain.cast(pa.string()).cast(target)
    if pa.types.is_boolean(plain.type):
        plain = plain.cast(pa.int8())
    return plain.cast(target, safe=False)


def unified(left: pa.Array, left_type: DataType, right: pa.Array, right_type: DataType, domain: Domain) -> tuple[pa.Array, pa.Array]:
    """Return two columns in one comparable form."""
    if domain == "exact" and left_type != right_type:
        return _exact(comparable(left, left_type), left_type, comparable(right, right_type), right_type)
    if domain == "point in time" and left_type != right_type:
        unit = "ns" if TIMESTAMP_NS in (left_type, right_type) else "us"
        return _instants(comparable(left, left_type), left_type, unit), _instants(comparable(right, right_type), right_type, unit)
    return in_domain(left, left_type, domain), in_domain(right, right_type, domain)


def _exact(left: pa.Array, left_type: DataType, right: pa.Array, right_type: DataType) -> tuple[pa.Array, pa.Array]:
    left, right = (a.cast(pa.int8()) if t == BOOLEAN else a for a, t in ((left, left_type), (right, right_type)))
    if all(pa.types.is_integer(a.type) for a in (left, right)) and UINT64 not in (left_type, right_type):
        return left.cast(pa.int64()), right.cast(pa.int64())
    # Wide enough for the digits of both sides before and after the point. 76 is the widest decimal of Arrow.
    whole, scale = (max(pair) for pair in zip(_digits(left_type), _digits(right_type), strict=True))
    if whole + scale > 76:
        raise UnsupportedFeatureError(
            f"Arrow has no common type of {left_type} and {right_type}. Cast one of them in the condition, or use Spark"
        )
    common = pa.decimal256(76, scale)
    return left.cast(common), right.cast(common)


def _digits(data_type: DataType) -> tuple[int, int]:
    if isinstance(data_type, DecimalType):
        return data_type.precision - data_type.scale, data_type.scale
    return (39, 0) if data_type in (INT128, UINT128) else (20, 0)


def _instants(array: pa.Array, data_type: DataType, unit: str) -> pa.Array:
    if data_type == DATE:
        return _scaled(array.cast(pa.int64()), _MICROSECONDS_A_DAY * (1000 if unit == "ns" else 1))
    return _units(array, "ns" if data_type == TIMESTAMP_NS else "us", unit)


def _units(array: pa.Array, unit: str, wanted: str) -> pa.Array:
    steps = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
    if steps[unit] < steps[wanted]:
        # No writer stores nanoseconds in a column of microseconds, and rounding would change the outcome of comparisons.
        raise UnsupportedFeatureError(f"timestamps in {unit} are used where {wanted} are expected")
    return _scaled(array, steps[unit] // steps[wanted])


def _scaled(array: pa.Array, factor: int) -> pa.Array:
    """Return the multiplied values; values that do not fit 64 bits, infinities included, become infinite."""
    if factor == 1:
        return array
    numbers = np.asarray(array.fill_null(0))
    # DuckDB's infinite dates and timestamps are the extreme integers of their type, which the multiplication would wrap around.
    limit = _INFINITY // factor
    scaled = np.where(numbers > limit, _INFINITY, np.where(numbers < -limit, -_INFINITY, numbers * factor))
    return pc.if_else(array.is_null(), pa.scalar(None, pa.int64()), pa.array(scaled))


def has_key_value(wanted: KeyValue, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return whether the key of each row has the wanted value; never NULL."""
    field = Field(id=wanted.column.column_id, name=wanted.column.path[0], type=wanted.column.type)
    rows = pa.RecordBatch.from_arrays([column_of(wanted.column, batch)], names=[field.name])
    (strings,) = partition_arrays(PartitionSpec(fields=(wanted.key,)), Schema(columns=(field,)), rows)
    return strings.is_null() if wanted.text is None else pc.fill_null(pc.equal(strings, pa.scalar(wanted.text)), False)
