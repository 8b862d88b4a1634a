"""Partition keys of rows: what each transform makes of a column's values (specification: Partitioning)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files.partitioning import CALENDAR_PARTS, EPOCH_TRANSFORMS, PartitionField, PartitionSpec
from ducklake_core.format.layout.bucket_hash import MASK, bucket_of, hashed_as_int64, murmur3_of_int64
from ducklake_core.format.layout.partition_pruning import partition_may_match, partition_must_match, partition_statistics
from ducklake_core.format.types.data_types import (
    DATE,
    GEOMETRY,
    NULL,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPS,
    VARIANT,
    DataType,
    Field,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.calendar_text import civil_from_days
from ducklake_core.format.values.leaf_values import python_values, to_cast_text
from ducklake_core.format.versions import FormatVersion

__all__ = ["bucket_of", "check_spec", "partition_arrays", "partition_may_match", "partition_must_match", "partition_statistics"]

Data: TypeAlias = "pa.RecordBatch | pa.Table"

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


MAX_BUCKETS = 2**31 - 1
"""DuckDB reads no more."""


def check_spec(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse keys that no row can be partitioned by; DuckDB finds out only at the first INSERT.

    Raises:
        UsageError: No keys, a bucket count below 1, or a transform of a type that has no such part.
        NotFoundError: A column that is not there, or not on top level.
        UnsupportedFeatureError: A key on a nested, variant or geometry column.
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
        UsageError: The same key twice.
        UnsupportedFeatureError: A transform that lakes of the version do not have.
    """
    seen: set[tuple[int, str]] = set()
    for key in spec.fields:
        if (key.column_id, key.text) in seen:
            raise UsageError(
                f"the partition key {key.expression} is given twice, and DuckDB cannot write files by it: give it once", column=key.column
            )
        seen.add((key.column_id, key.text))
        if key.transform in EPOCH_TRANSFORMS and not version.epoch_transforms:
            raise UnsupportedFeatureError(
                f"{key.transform}({key.column}): lakes of version {version} have no such partition keys; a migration to 1.1 makes it "
                "a lake that has them",
                transform=key.transform,
            )


def partition_arrays(spec: PartitionSpec, schema: Schema, batch: Data) -> list[pa.Array]:
    """The text of every row's partition values, one string array per key; NULL where the value is NULL.

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
            return _over_distinct(array, column.type, lambda value: to_cast_text(value, column.type))
        case "bucket":
            assert key.buckets is not None
            return _bucket_array(array, column.type, key.buckets)
        case "year" | "month" | "day" | "hour":
            return _calendar_array(array, key.transform)
        case "epoch_year" | "epoch_month" | "epoch_day" | "epoch_hour":
            return _epoch_array(array, key.transform)


def _over_distinct(array: pa.Array, data_type: DataType, text_of: Callable[[object], str]) -> pa.Array:
    """Python code sees each distinct value once."""
    storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    encoded = storage if isinstance(storage, pa.DictionaryArray) else storage.dictionary_encode()
    texts = [None if value is None else text_of(value) for value in python_values(encoded.dictionary, data_type)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _numbers(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], int]:
    """Days or units of time since 1970, where there is none or an infinite one, and how many of them a day has."""
    is_date = pa.types.is_date32(array.type)
    numbers = np.asarray(array.view(pa.int32() if is_date else pa.int64()).fill_null(0)).astype(np.int64)
    infinity = 2**31 - 1 if is_date else 2**63 - 1
    mask = np.asarray(array.is_null()) | (numbers >= infinity) | (numbers <= -infinity)
    return numbers, mask, 1 if is_date else 86_400 * (10**9 // _NANOSECONDS[array.type.unit])


def _epoch_array(array: pa.Array, transform: str) -> pa.Array:
    """Whole units since 1970 in UTC, rounded down, for timestamps with a zone and nanoseconds too."""
    numbers, mask, per_day = _numbers(array)
    if transform == "epoch_hour":
        hours = numbers * 24 if per_day == 1 else np.floor_divide(numbers, per_day // 24)
        return pa.array(hours, mask=mask).cast(pa.string())
    days = pa.array(np.floor_divide(numbers, per_day), mask=mask).dictionary_encode()
    texts = [None if day is None else str(_units_until(day, transform)) for day in days.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(days.indices)


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
    texts = [None if day is None else str(_part_of(day, index, zoned)) for day in days.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(days.indices)


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
    """Integers, days or units of time as int64, in the unit that the type itself has; 0 for NULL."""
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
