"""Prunes files by their partition values (specification: Partitioning).

A file is judged by the spec that it was written with, never by the table's present one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.comparison import Fitted, fit
from ducklake_core.format.expressions.predicates import (
    And,
    ColumnReference,
    Comparison,
    Constant,
    InList,
    Literal,
    Not,
    Or,
    Predicate,
    SqlExpression,
    conjunction,
    disjunction,
    negation,
    walk,
)
from ducklake_core.format.expressions.remembered import remembered
from ducklake_core.format.expressions.scalars import KeyValue
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.partitioning import EPOCH_TRANSFORMS, PartitionSpec
from ducklake_core.format.layout.bucket_hash import bucket_of
from ducklake_core.format.types.data_types import BLOB, DATE, FLOATS, INT8, TIMESTAMP_NS, TIMESTAMPS, TIMESTAMPTZ, UUID, VARCHAR, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.calendar_text import date_text, days_from_civil, timestamp_text
from ducklake_core.format.values.leaf_values import from_cast_text, to_text

# Longer ones are no bucket and no part of a date, and cost time to read.
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DAY = 86_400_000_000
_NEVER_WIDENED_INTO = (INT8, BLOB, UUID, VARCHAR)


def partition_may_match(
    spec: PartitionSpec,
    values: Sequence[str | None],
    predicate: Predicate,
    schema: Schema,
    file_begin_snapshot: int | None = None,
) -> bool:
    """Whether a file with these partition values may hold a row that satisfies the predicate; never False wrongly.

    Args:
        spec: The spec that the file itself was written with.
        values: Texts of its keys, in key order, None for NULL.
        predicate: Bound to ``schema``.
        schema: The table's columns.
        file_begin_snapshot: Snapshot that the file came with. Buckets say something only about files that are as new as the
            column's present type, because another type may hash otherwise; without it they count for types that nothing
            widens into.
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
    """Whether these partition values prove that every row satisfies the predicate; never True wrongly."""
    decided = _decided(predicate, spec, values, schema, file_begin_snapshot)
    return pruning.must_match(decided, partition_statistics(spec, values, schema), 1)


def _decided(
    predicate: Predicate, spec: PartitionSpec, values: Sequence[str | None], schema: Schema, file_begin_snapshot: int | None
) -> Predicate:
    """The predicate with constants in the place of what the file's buckets and keys decide."""
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
    return _one_tests_keys(predicate) if isinstance(predicate, And | Or | Not) else _is_key_test(predicate)


@remembered
def _one_tests_keys(predicate: Predicate) -> bool:
    return any(_is_key_test(part) for part in walk(predicate))


def _is_key_test(part: Predicate) -> bool:
    return isinstance(part, SqlExpression) and isinstance(part.scalar, KeyValue)


def partition_statistics(
    spec: PartitionSpec, values: Sequence[str | None], schema: Schema, record_count: int = 1
) -> dict[int, ColumnStatistics]:
    """Turn partition values into bounds of columns, in the form of file statistics: all rows of the file are alike.

    Calendar parts bound a column as far as they lead down from the year without a gap.
    """
    columns = schema.by_id()
    found: dict[int, ColumnStatistics] = {}
    parts: dict[int, dict[str, str | None]] = {}
    by_epoch: dict[int, ColumnStatistics] = {}
    finest: dict[int, int] = {}
    for key, text in zip(spec.fields, values, strict=True):
        column = columns.get(key.column_id)
        if column is None or not column.is_leaf:
            continue
        match key.transform:
            case "identity":
                found[column.id] = _constant(column, text, record_count)
            case "bucket":
                found.setdefault(column.id, _nulls(column, text is None, record_count))
            case "epoch_year" | "epoch_month" | "epoch_day" | "epoch_hour":
                narrow = _epoch_bounds(column, key.transform, text, record_count)
                if narrow is not None and EPOCH_TRANSFORMS.index(key.transform) > finest.get(column.id, -1):
                    finest[column.id] = EPOCH_TRANSFORMS.index(key.transform)
                    by_epoch[column.id] = narrow
            case "year" | "month" | "day" | "hour":
                parts.setdefault(column.id, {})[key.transform] = text
    for column_id, known in parts.items():
        bounds = _calendar_bounds(columns[column_id], known, record_count)
        if bounds is not None and column_id not in found:
            found[column_id] = bounds
    return by_epoch | found


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
    """Bounds from year, month, day and hour, as many as there are without a gap; None when the year is not known.

    NULL parts say nothing: infinite dates have them too.
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
        # DuckDB takes the parts in its session's time zone.
        first, last = first - _DAY, last + _DAY
    elif column.type == TIMESTAMP_NS:
        # DuckDB cuts nanoseconds off towards zero before it takes the parts.
        first, last = first - 1, last + 1
    low, high = (
        (date_text(first // _DAY), date_text(last // _DAY)) if column.type == DATE else (timestamp_text(first), timestamp_text(last))
    )
    # A year of timestamptz may be one before Christ, which DuckDB numbers like those after.
    return replace(_nulls(column, False, record_count), min_value=None if column.type == TIMESTAMPTZ else low, max_value=high)


def _epoch_bounds(column: Field, transform: str, text: str | None, record_count: int) -> ColumnStatistics | None:
    """Bounds from whole units since 1970; None where there are none, as for infinite dates."""
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
    """First and last microsecond of a year, month, day or hour."""
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
    """FALSE for an equality that the file's buckets rule out; its rows are not NULL in these columns."""
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
    """A file's partition values, and what they are of."""

    spec: PartitionSpec
    values: tuple[str | None, ...]
    schema: Schema
    file_begin_snapshot: int | None

    def text_of(self, wanted: KeyValue) -> tuple[str | None] | None:
        """The value that all rows of the file have for a key; None when that is not known."""
        column = self.schema.by_id().get(wanted.key.column_id)
        # Parts of timestamptz are of the writer's time zone, NaN has many hashes, and another type may have other values.
        if column is None or column.type == TIMESTAMPTZ or column.type in FLOATS:
            return None
        if self.file_begin_snapshot is None or column.begin_snapshot > self.file_begin_snapshot:
            return None
        wanted_key = (wanted.key.column_id, wanted.key.transform, wanted.key.buckets)
        for key, text in zip(self.spec.fields, self.values, strict=True):
            if (key.column_id, key.transform, key.buckets) == wanted_key and (text is None or text.lstrip("-").isdecimal()):
                return (text,)
        return None


def _by_key(predicate: SqlExpression, keys: _Keys) -> Predicate:
    """TRUE or FALSE for a test of a partition key, where the file's own partition values decide it."""
    if not isinstance(predicate.scalar, KeyValue):
        return predicate
    known = keys.text_of(predicate.scalar)
    return predicate if known is None else Constant(value=known[0] == predicate.scalar.text)


@remembered
def _values_in_buckets(predicate: InList, wanted: tuple[tuple[int, int], ...]) -> InList:
    """An IN list without the values that are in other buckets: the same for all files of these buckets."""
    column = predicate.operand
    kept = (v for v in predicate.values if not any(_number(column, v, buckets) not in (None, number) for buckets, number in wanted))
    return replace(predicate, values=tuple(kept))


def _excluded(column: ColumnReference, literal: Literal, buckets: Mapping[int, list[_Bucket]]) -> bool:
    return any(_number(column, literal, b.buckets) not in (None, b.number) for b in buckets.get(column.column_id, []))


def _number(column: ColumnReference, literal: Literal, buckets: int) -> int | None:
    """The bucket that a value of the column which equals the constant is in, -1 when there is no such value, None when it is not known."""
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
