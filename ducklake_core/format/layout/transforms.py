"""Partition transforms: compute partition keys of rows, and prune files by them (specification: Partitioning)."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.comparison import FLIPPED, Fitted, fit, holds, infinity_of
from ducklake_core.format.expressions.predicates import (
    UNKNOWN,
    And,
    Call,
    ColumnReference,
    Compare,
    Comparison,
    Constant,
    InList,
    InZone,
    KeyValue,
    Literal,
    Logical,
    Not,
    Operator,
    Or,
    Predicate,
    Scalar,
    SqlExpression,
    conjunction,
    disjunction,
    negation,
    walk,
)
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.partitioning import CALENDAR_PARTS, EPOCH_TRANSFORMS, PartitionField, PartitionSpec
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOATS,
    GEOMETRY,
    INT8,
    INTERVAL,
    NULL,
    SIGNED_INTEGERS,
    TIME,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_leaf
from ducklake_core.format.values.leaf_values import from_cast_text, python_values, to_cast_text, to_text
from ducklake_core.format.values.temporal import civil_from_days, date_text, days_from_civil, timestamp_text
from ducklake_core.format.versions import FormatVersion

Data: TypeAlias = "pa.RecordBatch | pa.Table"
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
MAX_BUCKETS = 2**31 - 1
"""DuckDB reads no more."""

# Longer numbers are neither a bucket nor a part of a date, and take time to parse.
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DAY = 86_400_000_000
# No other type widens into these and hashes otherwise, so their buckets hold for files of any age.
_NEVER_WIDENED_INTO = (INT8, BLOB, UUID, VARCHAR)

# Hashes without their sign bit, as in Iceberg's bucket transform.
MASK = 0x7FFFFFFF


__all__ = ["bucket_of", "check_spec", "partition_arrays", "partition_may_match", "partition_must_match", "partition_statistics"]


def check_spec(spec: PartitionSpec, schema: Schema) -> None:
    """Reject keys that no row can be partitioned by; DuckDB raises an error only at the first INSERT.

    Raises:
        UsageError: There is no key, a bucket count is below 1, or a type does not support the transform.
        NotFoundError: A column does not exist, or is nested.
        UnsupportedFeatureError: The column of a key is nested, a variant or a geometry.
    """
    if not spec.fields:
        raise UsageError("a partition spec needs at least one key")
    for key in spec.fields:
        column = schema.column(key.column)
        if not column.is_leaf or column.type in (VARIANT, GEOMETRY, NULL):
            raise UnsupportedFeatureError(f"a table cannot be partitioned by {column.name!r} of type {column.type}", column=column.name)
        unit = key.transform.removeprefix("epoch_")
        if unit in CALENDAR_PARTS and column.type != DATE and column.type not in TIMESTAMPS:
            raise UsageError(
                f"{key.transform}({column.name}): the column is {column.type}, and only dates and timestamps have a {unit}",
                column=column.name,
            )
        if key.transform == "bucket" and not 1 <= (key.buckets or 0) <= MAX_BUCKETS:
            raise UsageError(
                f"bucket({key.buckets}, {column.name}): the number of buckets must be between 1 and {MAX_BUCKETS:,}", column=column.name
            )


def check_new_keys(spec: PartitionSpec, version: FormatVersion) -> None:
    """Reject keys by which DuckDB or a version of the format cannot write rows.

    Raises:
        UsageError: A key is repeated.
        UnsupportedFeatureError: The version of the lake does not support a transform.
    """
    seen: set[tuple[int, str]] = set()
    for key in spec.fields:
        if (key.column_id, key.text) in seen:
            raise UsageError(
                f"the partition key {key.expression} is given twice, and DuckDB cannot write files by it. Remove one of them",
                column=key.column,
            )
        seen.add((key.column_id, key.text))
        if key.transform in EPOCH_TRANSFORMS and not version.epoch_transforms:
            raise UnsupportedFeatureError(
                f"{key.transform}({key.column}): lakes of version {version} have no such partition keys; a migration to 1.1 makes it "
                "a lake that has them",
                transform=key.transform,
            )


def partition_arrays(spec: PartitionSpec, schema: Schema, batch: Data) -> list[pa.Array]:
    """Return the text of every row's partition values, one string array per key; NULL where the value is NULL.

    Calendar parts are taken in UTC, and are NULL for infinite dates, as in DuckDB.

    Args:
        spec: The keys; see :func:`check_spec`.
        schema: The table's columns.
        batch: Rows in the logical or physical Arrow form of these columns, by name.
    """
    columns = schema.by_id()
    return [_key_array(key, columns[key.column_id], batch) for key in spec.fields]


def _key_array(key: PartitionField, column: Field, batch: Data) -> pa.Array:
    names = [folded(name) for name in batch.schema.names]
    found = batch.column(names.index(folded(column.name)))
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    match key.transform:
        case "identity":
            if column.type == INTERVAL:
                # SQL gives intervals as strings, and one interval has many.
                array = cast_leaf(array, INTERVAL, physical=False)
            return _over_distinct(array, column.type, lambda value: to_cast_text(value, column.type))
        case "bucket":
            assert key.buckets is not None
            return _bucket_array(array, column.type, key.buckets)
        case "year" | "month" | "day" | "hour":
            return _calendar_array(array, key.transform)
        case "epoch_year" | "epoch_month" | "epoch_day" | "epoch_hour":
            return _epoch_array(array, key.transform)


def _over_distinct(array: pa.Array, data_type: DataType, text_of: Callable[[object], str]) -> pa.Array:
    """Return the strings of all values; Python code sees each distinct value once."""
    storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    encoded = storage if isinstance(storage, pa.DictionaryArray) else storage.dictionary_encode()
    strings = [None if value is None else text_of(value) for value in python_values(encoded.dictionary, data_type)]
    return pa.array(strings, pa.string()).take(encoded.indices)


def _numbers(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], int]:
    """Return the days or units of time since 1970, a mask of the missing and infinite ones, and the units per day."""
    is_date = pa.types.is_date32(array.type)
    numbers = np.asarray(array.view(pa.int32() if is_date else pa.int64()).fill_null(0)).astype(np.int64)
    infinity = 2**31 - 1 if is_date else 2**63 - 1
    mask = np.asarray(array.is_null()) | (numbers >= infinity) | (numbers <= -infinity)
    return numbers, mask, 1 if is_date else 86_400 * (10**9 // _NANOSECONDS[array.type.unit])


def _epoch_array(array: pa.Array, transform: str) -> pa.Array:
    """Return whole units since 1970 in UTC, rounded down, for timestamps with a zone and nanoseconds too."""
    numbers, mask, per_day = _numbers(array)
    if transform == "epoch_hour":
        hours = numbers * 24 if per_day == 1 else np.floor_divide(numbers, per_day // 24)
        return pa.array(hours, mask=mask).cast(pa.string())
    days = pa.array(np.floor_divide(numbers, per_day), mask=mask).dictionary_encode()
    strings = [None if day is None else str(_units_until(day, transform)) for day in days.dictionary.to_pylist()]
    return pa.array(strings, pa.string()).take(days.indices)


def _units_until(day: int, transform: str) -> int:
    if transform == "epoch_day":
        return day
    year, month, _ = civil_from_days(day)
    return year - 1970 if transform == "epoch_year" else (year - 1970) * 12 + month - 1


def _calendar_array(array: pa.Array, part: str) -> pa.Array:
    arrow = array.type
    is_date = pa.types.is_date32(arrow)
    numbers, mask, per_day = _numbers(array)
    if not is_date and arrow.unit == "ns":
        # DuckDB casts to microseconds first, towards zero: the last nanosecond of 1969 is in 1970.
        numbers = np.sign(numbers) * (np.abs(numbers) // 1000) * 1000
    if part == "hour":
        hours = np.zeros_like(numbers) if is_date else np.mod(numbers, per_day) // (per_day // 24)
        return pa.array(hours, mask=mask).cast(pa.string())
    days = pa.array(np.floor_divide(numbers, per_day), mask=mask).dictionary_encode()
    index = ("year", "month", "day").index(part)
    zoned = not is_date and arrow.tz is not None
    strings = [None if day is None else str(_part_of(day, index, zoned)) for day in days.dictionary.to_pylist()]
    return pa.array(strings, pa.string()).take(days.indices)


def _part_of(day: int, index: int, zoned: bool) -> int:
    part = civil_from_days(day)[index]
    # DuckDB numbers years before Christ of timestamptz from 1 upwards, and those of other types from 0 downwards.
    return 1 - part if zoned and index == 0 and part < 1 else part


def _bucket_array(array: pa.Array, data_type: DataType, buckets: int) -> pa.Array:
    if not hashed_as_int64(data_type) and data_type not in TIMESTAMPS:
        return _over_distinct(array, data_type, lambda value: str(bucket_of(value, data_type, buckets)))
    numbers = _native_numbers(array, data_type)
    return pa.array((murmur3_of_int64(numbers) & np.uint32(MASK)) % np.uint32(buckets), mask=np.asarray(array.is_null())).cast(pa.string())


def _native_numbers(array: pa.Array, data_type: DataType) -> npt.NDArray[np.int64]:
    """Return integers, days or units of time as int64, in the unit that the type itself has; 0 for NULL."""
    arrow = array.type
    if pa.types.is_date32(arrow) or pa.types.is_time32(arrow):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(arrow) or pa.types.is_time64(arrow):
        array = array.view(pa.int64())
    numbers = np.asarray(array.cast(pa.int64()).fill_null(0))
    if not pa.types.is_timestamp(arrow):
        return numbers
    native = "s" if data_type == TIMESTAMP_S else "ms" if data_type == TIMESTAMP_MS else "ns" if data_type == TIMESTAMP_NS else "us"
    step = _NANOSECONDS[native] // _NANOSECONDS[arrow.unit]
    return numbers if step <= 1 else np.where(np.abs(numbers) == 2**63 - 1, numbers, numbers // step)


def partition_may_match(
    spec: PartitionSpec,
    values: Sequence[str | None],
    predicate: Predicate,
    schema: Schema,
    file_begin_snapshot: int | None = None,
) -> bool:
    """Return whether a file with these partition values may hold a row that satisfies the predicate; never False wrongly.

    Args:
        spec: The spec that the file itself was written with.
        values: Values of its keys as strings, in key order; None for NULL.
        predicate: Bound to ``schema``.
        schema: The table's columns.
        file_begin_snapshot: Snapshot that added the file. Buckets prune only files that are newer than the present type of the
            column, because another type may have other hashes. Without it, buckets prune only columns of types to which no other
            type can be widened.
    """
    decided = _decided(predicate, spec, values, schema, file_begin_snapshot)
    return pruning.may_match(decided, partition_statistics(spec, values, schema), 1)


def partition_must_match(
    spec: PartitionSpec,
    values: Sequence[str | None],
    predicate: Predicate,
    schema: Schema,
    file_begin_snapshot: int | None = None,
) -> bool:
    """Return whether these partition values prove that every row satisfies the predicate; never True wrongly.

    Args:
        spec: The spec that the file itself was written with.
        values: Values of its keys as strings, in key order; None for NULL.
        predicate: Bound to ``schema``.
        schema: The table's columns.
        file_begin_snapshot: Snapshot that added the file, see :func:`partition_may_match`.
    """
    decided = _decided(predicate, spec, values, schema, file_begin_snapshot)
    return pruning.must_match(decided, partition_statistics(spec, values, schema), 1)


def _decided(
    predicate: Predicate, spec: PartitionSpec, values: Sequence[str | None], schema: Schema, file_begin_snapshot: int | None
) -> Predicate:
    """Return the predicate with constants for the parts that the file's buckets and keys decide."""
    buckets = _buckets(spec, values, schema, file_begin_snapshot)
    if not buckets and not _tests_keys(predicate):
        return predicate
    keys = _Keys(spec=spec, values=tuple(values), schema=schema, file_begin_snapshot=file_begin_snapshot)

    def decided(part: Predicate) -> Predicate:
        match part:
            case And(operands=operands):
                return conjunction(decided(operand) for operand in operands)
            case Or(operands=operands):
                return disjunction(decided(operand) for operand in operands)
            case Not(operand=operand):
                return negation(decided(operand))
            case SqlExpression():
                return _by_key(part, keys)
            case _:
                return _by_bucket(part, buckets)

    return decided(predicate)


def _tests_keys(predicate: Predicate) -> bool:
    return any(_is_key_test(part) for part in walk(predicate))


def _is_key_test(part: Predicate) -> bool:
    return isinstance(part, SqlExpression) and (isinstance(part.scalar, KeyValue) or _part_test(part.scalar) is not None)


def _part_test(scalar: Scalar | None) -> tuple[ColumnReference, str, Operator, tuple[int, ...]] | None:
    """Return column, part, operator and numbers of a test such as ``month(day) IN (1, 2)``; None for any other scalar."""
    numbers: tuple[int, ...]
    match scalar.operand if isinstance(scalar, InZone) else scalar:
        case Compare(left=Call() as call, operator=operator, right=Literal(value=int() as number)):
            numbers = (number,)
        case Compare(left=Literal(value=int() as number), operator=other, right=Call() as call):
            operator, numbers = FLIPPED[other], (number,)
        case Logical(kind="in", operands=(Call() as call, *others)):
            operator, numbers = "=", tuple(one.value for one in others if isinstance(one, Literal) and isinstance(one.value, int))
            if len(numbers) < len(others):
                return None
        case _:
            return None
    column = call.arguments[0] if len(call.arguments) == 1 else None
    if call.function not in CALENDAR_PARTS or not isinstance(column, ColumnReference):
        return None
    return column, call.function, operator, numbers


def partition_statistics(
    spec: PartitionSpec, values: Sequence[str | None], schema: Schema, record_count: int = 1
) -> dict[int, ColumnStatistics]:
    """Turn partition values into bounds of columns, in the form of file statistics: all rows of the file are alike.

    Calendar parts bound a column only if they are consecutive from the year down (year and month, but not year and day).

    Args:
        spec: The spec that the file was written with.
        values: Values of its keys as strings, in key order; None for NULL.
        schema: The table's columns.
        record_count: Number of rows that the statistics describe.
    """
    columns = schema.by_id()
    # Several keys may be of one column: identity wins over calendar parts, these over epoch units, and a bucket only excludes NULL.
    constants: dict[int, ColumnStatistics] = {}
    parts: dict[int, dict[str, str | None]] = {}
    by_epoch: dict[int, ColumnStatistics] = {}
    by_bucket: dict[int, ColumnStatistics] = {}
    finest: dict[int, int] = {}
    for key, text in zip(spec.fields, values, strict=True):
        column = columns.get(key.column_id)
        if column is None or not column.is_leaf:
            continue
        match key.transform:
            case "identity":
                constants[column.id] = _constant(column, text, record_count)
            case "bucket":
                by_bucket[column.id] = _nulls(column, text is None, record_count)
            case "epoch_year" | "epoch_month" | "epoch_day" | "epoch_hour":
                narrow = _epoch_bounds(column, key.transform, text, record_count)
                if narrow is not None and EPOCH_TRANSFORMS.index(key.transform) > finest.get(column.id, -1):
                    finest[column.id] = EPOCH_TRANSFORMS.index(key.transform)
                    by_epoch[column.id] = narrow
            case "year" | "month" | "day" | "hour":
                parts.setdefault(column.id, {})[key.transform] = text
    calendar = {column_id: _calendar_bounds(columns[column_id], known, record_count) for column_id, known in parts.items()}
    return by_bucket | by_epoch | {column_id: bounds for column_id, bounds in calendar.items() if bounds is not None} | constants


def _nulls(column: Field, all_null: bool, record_count: int) -> ColumnStatistics:
    return ColumnStatistics(
        column_id=column.id,
        column_size_bytes=0,
        value_count=0 if all_null else record_count,
        null_count=record_count if all_null else 0,
    )


def _constant(column: Field, text: str | None, record_count: int) -> ColumnStatistics:
    alike = _nulls(column, text is None, record_count)
    if text is None:
        return alike
    if column.type == BLOB:
        try:
            text = to_text(from_cast_text(text, BLOB), BLOB)
        except DuckLakeError:
            return alike
    is_nan = text.strip().lower() == "nan" if column.type in FLOATS else None
    return replace(alike, min_value=text, max_value=text, contains_nan=is_nan)


def _calendar_bounds(column: Field, parts: Mapping[str, str | None], record_count: int) -> ColumnStatistics | None:
    """Return the bounds from year, month, day and hour, as many as there are without a gap; None when the year is not known.

    NULL parts are not bounds: infinite dates have them too.
    """
    if column.type != DATE and column.type not in TIMESTAMPS:
        return None
    known: list[int] = []
    for part in ("year", "month", "day", "hour"):
        text = parts.get(part)
        if text is None or not _WHOLE.fullmatch(text):
            break
        known.append(int(text))
    if not known:
        return None
    first, last = _range_of(known)
    if column.type == TIMESTAMPTZ:
        # DuckDB takes the parts in the time zone of its session, which is at most a day away.
        first, last = first - _DAY, last + _DAY
    elif column.type == TIMESTAMP_NS:
        # DuckDB cuts nanoseconds off towards zero before it takes the parts.
        first, last = first - 1, last + 1
    low, high = (
        (date_text(first // _DAY), date_text(last // _DAY)) if column.type == DATE else (timestamp_text(first), timestamp_text(last))
    )
    # A year of timestamptz may be one before Christ, which DuckDB gives the same number as the year after.
    return replace(_nulls(column, False, record_count), min_value=None if column.type == TIMESTAMPTZ else low, max_value=high)


def _epoch_bounds(column: Field, transform: str, text: str | None, record_count: int) -> ColumnStatistics | None:
    """Return the bounds from whole units since 1970; None where there are none, as for infinite dates."""
    if text is None or not _WHOLE.fullmatch(text) or (column.type != DATE and column.type not in TIMESTAMPS):
        return None
    number = int(text)
    match transform:
        case "epoch_year":
            first, last = days_from_civil(1970 + number, 1, 1) * _DAY, days_from_civil(1971 + number, 1, 1) * _DAY - 1
        case "epoch_month":
            first, last = (days_from_civil(1970 + n // 12, n % 12 + 1, 1) * _DAY for n in (number, number + 1))
            last -= 1
        case "epoch_day":
            first, last = number * _DAY, (number + 1) * _DAY - 1
        case _:
            first, last = number * (_DAY // 24), (number + 1) * (_DAY // 24) - 1
    if column.type == DATE:
        low, high = date_text(first // _DAY), date_text(last // _DAY)
    elif column.type == TIMESTAMP_NS:
        low, high = timestamp_text(first), timestamp_text(last + 1)
    else:
        low, high = timestamp_text(first), timestamp_text(last)
    return replace(_nulls(column, False, record_count), min_value=low, max_value=high)


def _range_of(known: list[int]) -> tuple[int, int]:
    """Return the first and last microsecond of a year, month, day or hour."""
    match known:
        case [year]:
            start, end = days_from_civil(year, 1, 1), days_from_civil(year + 1, 1, 1)
        case [year, month]:
            start, end = days_from_civil(year, month, 1), days_from_civil(year + month // 12, month % 12 + 1, 1)
        case [year, month, day]:
            start = days_from_civil(year, month, day)
            end = start + 1
        case [year, month, day, hour, *_]:
            begin = days_from_civil(year, month, day) * _DAY + hour * (_DAY // 24)
            return begin, begin + _DAY // 24 - 1
        case _:
            raise AssertionError(known)
    return start * _DAY, end * _DAY - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    column: Field
    buckets: int
    number: int


def _buckets(
    spec: PartitionSpec, values: Sequence[str | None], schema: Schema, file_begin_snapshot: int | None
) -> dict[int, list[_Bucket]]:
    columns = schema.by_id()
    found: dict[int, list[_Bucket]] = {}
    for key, text in zip(spec.fields, values, strict=True):
        column = columns.get(key.column_id)
        if column is None or key.buckets is None or text is None or not _WHOLE.fullmatch(text):
            continue
        fresh = column.type in _NEVER_WIDENED_INTO if file_begin_snapshot is None else column.begin_snapshot <= file_begin_snapshot
        if fresh:
            found.setdefault(column.id, []).append(_Bucket(column=column, buckets=key.buckets, number=int(text)))
    return found


def _by_bucket(predicate: Predicate, buckets: Mapping[int, list[_Bucket]]) -> Predicate:
    """Return FALSE for an equality that the file's buckets rule out; its rows are not NULL in these columns."""
    match predicate:
        case Comparison(left=ColumnReference() as column, operator="=" | "<>" as op, right=Literal() as literal):
            return Constant(value=op == "<>") if _excluded(column, literal, buckets) else predicate
        case Comparison(left=Literal() as literal, operator="=" | "<>" as op, right=ColumnReference() as column):
            return Constant(value=op == "<>") if _excluded(column, literal, buckets) else predicate
        case InList(operand=column):
            known = buckets.get(column.column_id, [])
            return _values_in_buckets(predicate, tuple((b.buckets, b.number) for b in known)) if known else predicate
        case _:
            return predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """The partition values of a file, with their keys."""

    spec: PartitionSpec
    values: tuple[str | None, ...]
    schema: Schema
    file_begin_snapshot: int | None

    def text_of(self, column_id: int, transform: str, buckets: int | None = None) -> tuple[str | None] | None:
        """Return the value that all rows of the file have for a key; None when that is not known."""
        column = self.schema.by_id().get(column_id)
        # Parts of timestamptz are of the writer's time zone, NaN has many hashes, and another type may have other values.
        if column is None or column.type == TIMESTAMPTZ or column.type in FLOATS:
            return None
        if self.file_begin_snapshot is None or column.begin_snapshot > self.file_begin_snapshot:
            return None
        wanted_key = (column_id, transform, buckets)
        for key, text in zip(self.spec.fields, self.values, strict=True):
            if (key.column_id, key.transform, key.buckets) == wanted_key and (text is None or text.lstrip("-").isdecimal()):
                return (text,)
        return None


def _by_key(predicate: SqlExpression, keys: _Keys) -> Predicate:
    """Return TRUE or FALSE for a test of a partition key that the file's own partition values decide."""
    if isinstance(predicate.scalar, KeyValue):
        key = predicate.scalar.key
        known = keys.text_of(key.column_id, key.transform, key.buckets)
        return predicate if known is None else Constant(value=known[0] == predicate.scalar.text)
    test = _part_test(predicate.scalar)
    known = None if test is None else keys.text_of(test[0].column_id, test[1])
    if test is None or known is None:
        return predicate
    _, _, operator, numbers = test
    # A part is NULL where the column is NULL or infinite.
    return UNKNOWN if known[0] is None else Constant(value=any(holds(int(known[0]), operator, number) for number in numbers))


def _values_in_buckets(predicate: InList, wanted: tuple[tuple[int, int], ...]) -> InList:
    """Return an IN list without the values that are in other buckets: the same for all files of these buckets."""
    column = predicate.operand

    def is_kept(value: Literal) -> bool:
        return not any(_bucket_number(column, value, buckets) not in (None, number) for buckets, number in wanted)

    return predicate.derived.get_or_make(("buckets", wanted), lambda: replace(predicate, values=tuple(filter(is_kept, predicate.values))))


def _excluded(column: ColumnReference, literal: Literal, buckets: Mapping[int, list[_Bucket]]) -> bool:
    return any(_bucket_number(column, literal, b.buckets) not in (None, b.number) for b in buckets.get(column.column_id, []))


def _bucket_number(column: ColumnReference, literal: Literal, buckets: int) -> int | None:
    """Return the bucket of the column's value that equals a constant, -1 when there is no such value, None when it is not known."""
    if literal.value is None:
        return None
    try:
        fitted = fit("=", literal, column.type)
    except UsageError:
        return None
    if not isinstance(fitted, Fitted):
        return -1 if fitted is False else None
    if isinstance(fitted.value, float) and math.isnan(fitted.value):
        # NaN has many bit patterns, and each has a hash of its own.
        return None
    return bucket_of(fitted.value, column.type, buckets)


def bucket_of(value: object, data_type: DataType, buckets: int) -> int:
    """Return the bucket of one value, by 32-bit murmur3 as DuckDB hashes it.

    >>> from ducklake_core.format.types.data_types import INT32, VARCHAR
    >>> [bucket_of(v, INT32, 3) for v in (1,)], [bucket_of(v, INT32, 4) for v in (1, 2, 3)], bucket_of(7, INT32, 5)
    ([2], [0, 0, 3], 4)
    >>> bucket_of("200", VARCHAR, 2**31) == 395818824
    True

    Args:
        value: The value in its Python form (format/values/leaf_values.py); not None.
        data_type: Its type.
        buckets: Number of buckets.
    """
    return (mmh3.hash(hashed_bytes(value, data_type), 0, signed=False) & MASK) % buckets


def hashed_bytes(value: object, data_type: DataType) -> bytes:
    """Return the bytes that the bucket transform hashes: 8 bytes of numbers and times, strings and blobs as they are, the text of all else.

    >>> from ducklake_core.format.types.data_types import INT32, FLOAT64, UINT8, DecimalType
    >>> hashed_bytes(1, INT32).hex(), hashed_bytes(-0.0, FLOAT64) == bytes(8), hashed_bytes(200, UINT8)
    ('0100000000000000', True, b'200')
    >>> hashed_bytes(Decimal("14.20"), DecimalType(precision=38, scale=2))
    b'14.20'
    >>> hashed_bytes(Decimal("1.5"), DecimalType(precision=4, scale=2))[:2]
    b'\\x96\\x00'
    """
    if isinstance(data_type, DecimalType) and data_type.precision <= 18:
        assert isinstance(value, Decimal)
        return struct.pack("<q", int(value.scaleb(data_type.scale)))
    if data_type in FLOATS:
        assert isinstance(value, int | float)
        # Adding 0.0 makes -0.0 the 0.0 that it equals.
        return struct.pack("<d", float(value) + 0.0)
    if data_type in TIMESTAMPS:
        assert isinstance(value, int)
        finite = abs(value) < infinity_of(data_type)
        unit = 1_000_000 if data_type == TIMESTAMP_S else 1000 if data_type == TIMESTAMP_MS else 1
        return struct.pack("<q", value // unit if finite else value)
    if hashed_as_int64(data_type):
        assert isinstance(value, int)
        return struct.pack("<q", value)
    if isinstance(value, bytes):
        return value
    return to_cast_text(value, data_type).encode()


def hashed_as_int64(data_type: DataType) -> bool:
    """Return whether values are hashed as 8 bytes in their own Python form."""
    return data_type in (BOOLEAN, DATE, TIME) or data_type in SIGNED_INTEGERS[:4]


def murmur3_of_int64(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the 32-bit murmur3 hashes, with seed 0, of many 8-byte little-endian numbers.

    >>> murmur3_of_int64(np.array([0, 200])).tolist()
    [1669671676, 845973527]
    """
    words = np.ascontiguousarray(numbers, dtype="<i8").view("<u4").reshape(-1, 2)
    state = np.zeros(len(words), dtype=np.uint32)
    # murmur3 as published, for two blocks of four bytes. Products wrap around at 32 bits, and 8 is the length in bytes.
    with np.errstate(over="ignore"):
        for column in range(2):
            block = words[:, column] * np.uint32(0xCC9E2D51)
            block = (block << np.uint32(15)) | (block >> np.uint32(17))
            state ^= block * np.uint32(0x1B873593)
            state = (state << np.uint32(13)) | (state >> np.uint32(19))
            state = state * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(8)
        state ^= state >> np.uint32(16)
        state = state * np.uint32(0x85EBCA6B)
        state ^= state >> np.uint32(13)
        state = state * np.uint32(0xC2B2AE35)
        return state ^ (state >> np.uint32(16))
