"""The Spark columns of a scan, and the Arrow form in which Spark takes them from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from ducklake_core.format.schema import Schema
from ducklake_core.format.types import DataType as LakeType
from ducklake_core.format.types import Field, ListType
from ducklake_core.format.types import MapType as LakeMap
from ducklake_core.format.types import StructType as LakeStruct
from ducklake_core.scan.virtual import VIRTUAL_SCHEMA
from ducklake_core.spark.types import to_spark_type

if TYPE_CHECKING:
    import pyarrow as pa


def spark_schema(
    schema: Schema, virtual: tuple[str, ...] = (), *, field_ids: bool = False, nanoseconds_as_long: bool = False
) -> StructType:
    """The Spark columns of a scan, all nullable.

    Args:
        schema: The table's columns.
        virtual: Virtual columns after them.
        field_ids: Whether to name the ids of all nodes, for reading Parquet by field id.
        nanoseconds_as_long: See :func:`~ducklake_core.spark.types.to_spark_type`.
    """
    fields = [_field(column, field_ids, nanoseconds_as_long) for column in schema]
    return StructType([*fields, *(_field(column, False, False) for column in VIRTUAL_SCHEMA.select(virtual))])


def _field(column: Field, field_ids: bool, as_long: bool) -> StructField:
    metadata: dict[str, Any] = {"parquet.field.id": column.id} if field_ids else {}
    return StructField(column.name, _type(column.type, field_ids, as_long), True, metadata)


def _type(data_type: LakeType, field_ids: bool, as_long: bool) -> Any:
    match data_type:
        case LakeStruct(fields=fields):
            return StructType([_field(field, field_ids, as_long) for field in fields])
        case ListType(element=element):
            return ArrayType(_type(element.type, field_ids, as_long), True)
        case LakeMap(key=key, value=value):
            return MapType(_type(key.type, field_ids, as_long), _type(value.type, field_ids, as_long), True)
        case leaf:
            return to_spark_type(leaf, nanoseconds_as_long=as_long)


def arrow_form(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects from Python for a Spark schema."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable) for field in schema])


def quoted(name: str) -> str:
    """A column name for Spark's ``select``, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
