"""Convert between Spark types and DuckLake types, at any depth, and between their Arrow values."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import (  # fmt: skip
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.types.schema import VARIANT_STORAGE, Schema, is_list
from ducklake_core.format.values.arrow_cast import cast_temporal, list_offsets, list_values, map_entries, null_mask
from ducklake_core.format.values.value_text import Interval, interval_text

_BINARY_COLLATION = "UTF8_BINARY"
# Keyed by name, because the set of classes differs between Spark versions.
_FROM_SPARK: dict[str, PrimitiveType] = {
    "NullType": INT32,
    "ByteType": INT8,
    "ShortType": INT16,
    "IntegerType": INT32,
    "LongType": INT64,
    "FloatType": FLOAT32,
    "DoubleType": FLOAT64,
    "CharType": VARCHAR,
    "VarcharType": VARCHAR,
    "BinaryType": BLOB,
    "BooleanType": BOOLEAN,
    "DateType": DATE,
    "TimestampType": TIMESTAMPTZ,
    "TimestampNTZType": TIMESTAMP,
    "TimeType": TIME,
    "DayTimeIntervalType": INTERVAL,
    "CalendarIntervalType": INTERVAL,
    "YearMonthIntervalType": INTERVAL,
    "VariantType": VARIANT,
}
_TIME = spark.TimeType(6) if hasattr(spark, "TimeType") else spark.StringType()
_TO_SPARK: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int8": spark.ByteType(),
    "int16": spark.ShortType(),
    "int32": spark.IntegerType(),
    "int64": spark.LongType(),
    "int128": spark.DecimalType(38, 0),
    "uint8": spark.ShortType(),
    "uint16": spark.IntegerType(),
    "uint32": spark.LongType(),
    "uint64": spark.DecimalType(20, 0),
    "uint128": spark.DecimalType(38, 0),
    "float32": spark.FloatType(),
    "float64": spark.DoubleType(),
    "date": spark.DateType(),
    "time": _TIME,
    "time_ns": _TIME,
    "timetz": _TIME,
    "timestamp": spark.TimestampNTZType(),
    "timestamp_s": spark.TimestampNTZType(),
    "timestamp_ms": spark.TimestampNTZType(),
    "timestamp_ns": spark.TimestampNTZType(),
    "timestamptz": spark.TimestampType(),
    "interval": spark.StringType(),
    "varchar": spark.StringType(),
    "json": spark.StringType(),
    "blob": spark.BinaryType(),
    "uuid": spark.StringType(),
    "geometry": spark.BinaryType(),
    "variant": spark.VariantType(),
    "null": spark.IntegerType(),
}
# Types for reading that hold every value. Strings and integers replace Spark types that are narrower than DuckLake's: decimals of 38
# digits for integers of 39, timestamps in microseconds, and times without offset or nanoseconds.
_EXACT: dict[str, spark.DataType] = {
    "int128": spark.StringType(),
    "uint128": spark.StringType(),
    "timestamp_ns": spark.LongType(),
    # Spark cannot count a frame with a column of its own type TIME unless a setting allows it, and has no 24:00:00.
    "time": spark.StringType(),
    "time_ns": spark.StringType(),
    "timetz": spark.StringType(),
}

_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}


def from_spark_schema(schema: spark.StructType) -> Schema:
    """Return the DuckLake columns of a Spark schema, without ids.

    All columns are nullable: Spark infers ``nullable`` from expressions, so that it does not express the user's intent.

    Raises:
        UnsupportedFeatureError: A type that cannot be carried; the message names column and type.
    """
    return Schema(columns=tuple(Field(name=field.name, type=from_spark_type(field.dataType, field.name)) for field in schema.fields))


def from_spark_type(data_type: spark.DataType, path: str = "value") -> DataType:
    """Return the DuckLake type of a Spark type.

    Args:
        data_type: The Spark type.
        path: Column and fields above the type, for the message.

    >>> str(from_spark_type(spark.ArrayType(spark.TimestampType())))
    'list<timestamptz>'

    Raises:
        UnsupportedFeatureError: A type that cannot be carried.
    """
    match data_type:
        case spark.ArrayType():
            return ListType(element=_child("element", data_type.elementType, path))
        case spark.MapType():
            return MapType(key=_child("key", data_type.keyType, path), value=_child("value", data_type.valueType, path))
        case spark.StructType():
            return StructType(fields=tuple(_child(field.name, field.dataType, path) for field in data_type.fields))
        case spark.DecimalType():
            return DecimalType(precision=data_type.precision, scale=data_type.scale)
        case spark.YearMonthIntervalType() if "." in path:
            raise _rejected(data_type, path, "Spark cannot pass it to Python inside another type. Cast it to string")
        case spark.StringType() if _collation(data_type) != _BINARY_COLLATION:
            raise _rejected(data_type, path, "DuckLake has no collations. Cast it to string collate UTF8_BINARY")
        case spark.StringType():
            return VARCHAR
        case _:
            found = _FROM_SPARK.get(type(data_type).__name__)
            if found is None:
                raise _rejected(data_type, path, "DuckLake has no such type. Cast it to string, binary or a struct")
            return found


def type_parts(data_type: spark.DataType) -> list[spark.DataType] | None:
    """Return types of the children of a Spark type; None for void."""
    match data_type:
        case spark.NullType():
            return None
        case spark.ArrayType():
            return [data_type.elementType]
        case spark.MapType():
            return [data_type.keyType, data_type.valueType]
        case spark.StructType():
            return [field.dataType for field in data_type.fields]
        case _:
            return []


def year_month_columns(schema: spark.StructType) -> Iterator[str]:
    """Return the names of the columns that have to become strings before Python can receive them."""
    return (field.name for field in schema.fields if isinstance(field.dataType, spark.YearMonthIntervalType))


def to_spark_type(data_type: DataType, *, exact: bool = False) -> spark.DataType:
    """Return the Spark type that values of a DuckLake type are read as.

    Args:
        data_type: The DuckLake type.
        exact: Whether the type must hold every value, rather than be the nearest one that can be calculated with.

    >>> to_spark_type(PrimitiveType(name="uint64"))
    DecimalType(20,0)
    >>> to_spark_type(PrimitiveType(name="timestamp_ns"), exact=True)
    LongType()
    """
    match data_type:
        case ListType(element=element):
            return spark.ArrayType(to_spark_type(element.type, exact=exact), True)
        case MapType(key=key, value=value):
            return spark.MapType(to_spark_type(key.type, exact=exact), to_spark_type(value.type, exact=exact), True)
        case StructType(fields=fields):
            return spark.StructType([spark.StructField(field.name, to_spark_type(field.type, exact=exact), True) for field in fields])
        case DecimalType(precision=precision, scale=scale):
            return spark.DecimalType(precision, scale)
        case PrimitiveType(name=name):
            return _EXACT.get(name, _TO_SPARK[name]) if exact else _TO_SPARK[name]


def _child(name: str, data_type: spark.DataType, path: str) -> Field:
    return Field(name=name, type=from_spark_type(data_type, f"{path}.{name}"))


def _collation(data_type: spark.StringType) -> str:
    return str(getattr(data_type, "collation", _BINARY_COLLATION))


def _rejected(data_type: spark.DataType, path: str, advice: str) -> UnsupportedFeatureError:
    kind = data_type.simpleString()
    return UnsupportedFeatureError(f"column {path!r} has Spark type {kind}, which cannot be written: {advice}", column=path, type=kind)


def to_spark_form(batch: pa.RecordBatch, wanted: pa.Schema, again: Sequence[int] = ()) -> pa.RecordBatch:
    """Return a batch in the Arrow types that Spark expects, column by column.

    Args:
        batch: Logical values.
        wanted: Names and types for Spark.
        again: Indexes of columns to append a second time, after all others, in another type.

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
            f"column {field.name!r} has a value that Spark does not support as {field.type}: {error}", column=field.name
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
        # Spark's variants have the same two children in the opposite order; all other structs have their fields in order.
        places = [1, 0] if held == VARIANT_STORAGE else range(held.num_fields)
        children = [_convert(array.field(place), wanted.field(i).type) for i, place in enumerate(places)]
        return pa.StructArray.from_arrays(children, fields=[wanted.field(i) for i in range(wanted.num_fields)], mask=null_mask(array))
    if pa.types.is_map(held):
        entries = map_entries(array)
        pairs = list_values(entries)
        keys, items = _convert(pairs.field(0), wanted.key_type), _convert(pairs.field(1), wanted.item_type)
        return pa.MapArray.from_arrays(list_offsets(entries), keys, items, type=wanted, mask=null_mask(array))
    if is_list(held):
        values = _convert(list_values(array), wanted.value_type)
        return pa.ListArray.from_arrays(list_offsets(array), values, type=wanted, mask=null_mask(array))
    if pa.types.is_interval(held) and pa.types.is_string(wanted):
        return _interval_text(array)
    if pa.types.is_integer(wanted) and pa.types.is_temporal(held):
        return array.view(wanted)
    if pa.types.is_timestamp(wanted):
        return cast_temporal(array, wanted)
    return array.cast(wanted)


def _clock_text(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return times as strings, because Arrow has no string for 24:00:00."""
    is_end = pc.equal(array.view(pa.int64()), _DAY[array.type.unit])
    if not pc.any(is_end).as_py():
        return array.cast(pa.string())
    digits = 6 if array.type.unit == "us" else 9
    known = pc.if_else(is_end, pa.scalar(0, array.type), array).cast(pa.string())
    return pc.if_else(is_end, f"24:00:00.{'0' * digits}", known)


def _check_clock(array: pa.Array[Any]) -> None:
    latest = pc.max(array.view(pa.int64())).as_py()
    if latest is not None and latest >= _DAY[array.type.unit]:
        raise pa.ArrowInvalid("24:00:00 is not a time of day in Spark")
    if array.type.unit == "ns":
        array.cast(pa.time64("us"))


def _uuid_text(array: pa.Array[Any]) -> pa.Array[Any]:
    return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in array.to_pylist()], pa.string())


def _interval_text(array: pa.Array[Any]) -> pa.Array[Any]:
    strings = [
        None if value is None else interval_text(Interval(months=value.months, days=value.days, microseconds=value.nanoseconds // 1000))
        for value in array.to_pylist()
    ]
    return pa.array(strings, pa.string())
