"""Spark types and DuckLake types, at any depth.

Writing (:func:`from_spark_type`): every Spark type becomes the DuckLake type that holds all of its values.

=============================================  ==========================================
Spark                                          DuckLake
=============================================  ==========================================
byte, short, int, long                         int8, int16, int32, int64
float, double, decimal(p,s), boolean           float32, float64, decimal(p,s), boolean
string, char(n), varchar(n)                    varchar
binary, date                                   blob, date
timestamp, timestamp_ntz                       timestamptz, timestamp
time(p)                                        time
day-time and calendar interval                 interval
year-month interval (top level only)           interval
array, map, struct                             list, map, struct
void                                           int32, as in DuckDB
variant                                        variant
collations, geometry, geography, UDT           refused by name
=============================================  ==========================================

Reading (:func:`to_spark_type`): where Spark lacks the type, one that holds all values, and on request the nearest one of Spark's
own, in which a value that does not fit is an error.

=========================================  ============================  ==============================================
DuckLake                                   exact                         nearest, where it differs
=========================================  ============================  ==============================================
uint8, uint16, uint32, uint64              short, int, long,
                                           decimal(20,0)
int128, uint128                            string                        decimal(38,0), 39 digits are an error
timestamp_s, timestamp_ms, timestamp       timestamp_ntz
timestamp_ns                               long, since 1970-01-01        timestamp_ntz, nanoseconds are an error
time, timetz (in UTC)                      string, 10:30:00.000000       time(6), 24:00:00 is an error; before 4.1 string
time_ns                                    string, nine digits           the same, nanoseconds are an error
interval, uuid, json                       string
geometry                                   binary, WKB
variant                                    variant
=========================================  ============================  ==============================================
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as spark

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.data_types import (
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
)  # fmt: skip
from ducklake_core.format.types.schema import Schema

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


def from_spark_schema(schema: spark.StructType) -> Schema:
    """The DuckLake columns of a Spark schema, without ids.

    All columns are nullable: Spark infers ``nullable`` from expressions, so it says nothing about what the user wants.

    Raises:
        UnsupportedFeatureError: A type that cannot be carried; the message names column and type.
    """
    return Schema(columns=tuple(Field(name=field.name, type=from_spark_type(field.dataType, field.name)) for field in schema.fields))


def from_spark_type(data_type: spark.DataType, path: str = "value") -> DataType:
    """The DuckLake type of a Spark type.

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
            raise _refused(data_type, path, "Spark cannot hand it to Python inside another type; cast it to string")
        case spark.StringType() if _collation(data_type) != _BINARY_COLLATION:
            raise _refused(data_type, path, "DuckLake has no collations; cast it to string collate UTF8_BINARY")
        case spark.StringType():
            return VARCHAR
        case _:
            found = _FROM_SPARK.get(type(data_type).__name__)
            if found is None:
                raise _refused(data_type, path, "cast it to string, binary or a struct")
            return found


def type_parts(data_type: spark.DataType) -> list[spark.DataType] | None:
    """Types of the children of a Spark type; None for void."""
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
    """Names of the columns that have to become text before Python can receive them."""
    return (field.name for field in schema.fields if isinstance(field.dataType, spark.YearMonthIntervalType))


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
_EXACT: dict[str, spark.DataType] = {
    "int128": spark.StringType(),
    "uint128": spark.StringType(),
    "timestamp_ns": spark.LongType(),
    # Spark refuses to count a frame with a column of its own TIME unless a setting allows the type, and has no 24:00:00.
    "time": spark.StringType(),
    "time_ns": spark.StringType(),
    "timetz": spark.StringType(),
}


def to_spark_type(data_type: DataType, *, exact: bool = False) -> spark.DataType:
    """The Spark type that values of a DuckLake type are read as.

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


def _refused(data_type: spark.DataType, path: str, advice: str) -> UnsupportedFeatureError:
    kind = data_type.simpleString()
    return UnsupportedFeatureError(f"column {path!r} has Spark type {kind}, which cannot be written: {advice}", column=path, type=kind)
