"""Compare a view on Spark with DuckDB: names, types and rows."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from ducklake_core.engines.spark.types import to_spark_type
from ducklake_core.format.types.data_types import DecimalType, Field, ListType, PrimitiveType, StructType
from tests.support.oracle import Oracle

NAMES = {
    "TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64", "HUGEINT": "int128", "UTINYINT": "uint8",
    "USMALLINT": "uint16", "UINTEGER": "uint32", "UBIGINT": "uint64", "FLOAT": "float32", "DOUBLE": "float64", "BOOLEAN": "boolean",
    "VARCHAR": "varchar", "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamptz", "BLOB": "blob",
    "TIMESTAMP_S": "timestamp_s", "TIMESTAMP_MS": "timestamp_ms", "TIMESTAMP_NS": "timestamp_ns", "UUID": "uuid", "TIME": "time",
}  # fmt: skip


def spark_type(duckdb_type: str) -> spark.DataType:
    """Return the Spark type that a column of DuckDB's type must have."""
    return to_spark_type(_type(duckdb_type))


def _type(text: str):  # type: ignore[no-untyped-def]
    if text.endswith("[]"):
        return ListType(element=Field(name="element", type=_type(text[:-2])))
    if text.startswith("STRUCT("):
        parts = [part.strip().partition(" ") for part in text[7:-1].split(",")]
        return StructType(fields=tuple(Field(name=name.strip('"'), type=_type(kind)) for name, _, kind in parts))
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", text)
    if decimal:
        return DecimalType(precision=int(decimal[1]), scale=int(decimal[2]))
    return PrimitiveType(name=NAMES[text.strip('"')])


def cell(value: object) -> object:
    """A value in a form that both engines give: numbers by value, NaN equal to itself."""
    match value:
        case bool():
            return value
        case float() if math.isnan(value):
            return "NaN"
        case int() | Decimal():
            return Decimal(value).normalize()
        case list() | tuple():
            return tuple(cell(item) for item in value)
        case dict():
            return tuple(cell(item) for item in value.values())
        case bytearray():
            return bytes(value)
        case UUID():
            return str(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case _:
            return value


def check(frame: DataFrame, duck: Oracle, source: str, *, ordered: bool = False) -> None:
    """Names, types and rows equal those of DuckDB; rows in its order where the view has one."""
    described = duck.rows(f"DESCRIBE FROM {source}")
    assert frame.columns == [row[0] for row in described], source
    for column, (name, kind, *_) in zip(frame.schema.fields, described, strict=True):
        assert column.dataType == spark_type(str(kind)), (source, name, kind, column.dataType)
    own = [tuple(cell(value) for value in row) for row in frame.collect()]
    by_duckdb = [tuple(cell(value) for value in row) for row in duck.rows(f"FROM {source}")]
    if not ordered:
        own.sort(key=repr)
        by_duckdb.sort(key=repr)
    assert len(own) == len(by_duckdb), (source, own[:5], by_duckdb[:5])
    wrong = {
        (frame.columns[index], mine, other)
        for row, expected in zip(own, by_duckdb, strict=True)
        for index, (mine, other) in enumerate(zip(row, expected, strict=True))
        if mine != other
    }
    assert not wrong, (source, sorted(wrong, key=repr)[:20])
