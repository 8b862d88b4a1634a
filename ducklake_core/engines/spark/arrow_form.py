"""Logical Arrow values as the Arrow values that Spark takes for the column's Spark type; runs on executors.

Spark has no unsigned integers, no 128-bit integers, no uuid and json, and only microseconds: engines/spark/types.py says which
types stand for each of them.  A value that the Spark type cannot hold is an error, never another value.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError
from ducklake_core.format.types.arrow_types import VARIANT_STORAGE, is_list
from ducklake_core.format.values.interval_text import Interval, interval_text
from ducklake_core.format.values.leaf_cast import cast_temporal

_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}


def to_spark_form(batch: pa.RecordBatch, wanted: pa.Schema, again: Sequence[int] = ()) -> pa.RecordBatch:
    """A batch in the Arrow types that Spark expects, column by column.

    Args:
        batch: Logical values.
        wanted: Names and types for Spark.
        again: Places of columns that are wanted a second time, after all of them, in another type.

    Raises:
        SchemaError: A value that the Spark type cannot hold, such as an int128 of 39 digits.
    """
    places = [*range(len(wanted) - len(again)), *again]
    arrays = [_named(batch.column(place), field) for place, field in zip(places, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _named(array: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    try:
        return _convert(array, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {field.name!r} holds a value that Spark cannot hold as {field.type}: {error}", column=field.name
        ) from error


def _convert(array: pa.Array[Any], wanted: pa.DataType) -> pa.Array[Any]:
    held = array.type
    if pa.types.is_time64(held):
        if pa.types.is_string(wanted):
            return _clock_text(array)
        _check_clock(array)
    if held == wanted and held.num_fields == 0:
        return array
    if isinstance(array, pa.ExtensionArray):
        storage = array.storage
        return (
            _uuid_text(storage) if pa.types.is_fixed_size_binary(storage.type) and pa.types.is_string(wanted) else _convert(storage, wanted)
        )
    if pa.types.is_struct(held):
        # Variants have the same two children in the other order; all others have their fields in order.
        places = [1, 0] if held == VARIANT_STORAGE else range(held.num_fields)
        children = [_convert(array.field(place), wanted.field(i).type) for i, place in enumerate(places)]
        return pa.StructArray.from_arrays(children, fields=[wanted.field(i) for i in range(wanted.num_fields)], mask=_null_mask(array))
    if pa.types.is_map(held):
        entries = array.cast(pa.list_(pa.struct([pa.field("key", held.key_type), pa.field("value", held.item_type)])))
        pairs = entries.flatten()
        keys, items = _convert(pairs.field(0), wanted.key_type), _convert(pairs.field(1), wanted.item_type)
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=wanted, mask=_null_mask(array))
    if is_list(held):
        values = _convert(array.flatten(), wanted.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=wanted, mask=_null_mask(array))
    if pa.types.is_interval(held) and pa.types.is_string(wanted):
        return _interval_text(array)
    if pa.types.is_integer(wanted) and pa.types.is_temporal(held):
        return array.view(wanted)
    if pa.types.is_timestamp(wanted):
        return cast_temporal(array, wanted)
    return array.cast(wanted)


def _clock_text(array: pa.Array[Any]) -> pa.Array[Any]:
    """Arrow has no text for 24:00:00."""
    is_end = pc.equal(array.view(pa.int64()), _DAY[array.type.unit])
    if not pc.any(is_end).as_py():
        return array.cast(pa.string())
    digits = 6 if array.type.unit == "us" else 9
    known = pc.if_else(is_end, pa.scalar(0, array.type), array).cast(pa.string())
    return pc.if_else(is_end, f"24:00:00.{'0' * digits}", known)


def _check_clock(array: pa.Array[Any]) -> None:
    latest = pc.max(array.view(pa.int64())).as_py()
    if latest is not None and latest >= _DAY[array.type.unit]:
        raise pa.ArrowInvalid("24:00:00 is no time of day in Spark")
    if array.type.unit == "ns":
        array.cast(pa.time64("us"))


def _offsets(array: pa.Array[Any]) -> pa.Array[Any]:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _null_mask(array: pa.Array[Any]) -> pa.Array[Any] | None:
    return pc.is_null(array) if array.null_count else None


def _uuid_text(array: pa.Array[Any]) -> pa.Array[Any]:
    return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in array.to_pylist()], pa.string())


def _interval_text(array: pa.Array[Any]) -> pa.Array[Any]:
    texts = [
        None if value is None else interval_text(Interval(months=value.months, days=value.days, microseconds=value.nanoseconds // 1000))
        for value in array.to_pylist()
    ]
    return pa.array(texts, pa.string())
