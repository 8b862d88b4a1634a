"""The Spark columns of a scan, and the Arrow form in which Spark takes them from Python."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from ducklake_core.engines.spark.types import to_spark_type
from ducklake_core.errors import UsageError
from ducklake_core.format.types.data_types import DataType as LakeType
from ducklake_core.format.types.data_types import Field, ListType
from ducklake_core.format.types.data_types import MapType as LakeMap
from ducklake_core.format.types.data_types import StructType as LakeStruct
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.virtual import VIRTUAL_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TYPES_CONF = "spark.ducklake.read.types"
"""Session setting: "exact" (the default) reads columns as types that hold every value, "nearest" as Spark's nearest own types."""
_AGAIN = "_ducklake_exact_"


def wants_exact(session: SparkSession) -> bool:
    """Whether the session wants types that hold every value.

    Raises:
        UsageError: The setting has another value.
    """
    wanted = str(session.conf.get(TYPES_CONF, "exact")).lower()
    if wanted not in ("exact", "nearest"):
        raise UsageError(f"{TYPES_CONF} is {wanted!r}: set it to 'exact' or 'nearest', or unset it")
    return wanted == "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredColumns:
    """The columns that executors give when Spark itself evaluates a condition on them.

    A condition means the nearest types: a text or a long in its place would be compared in other ways. So the columns that it
    names, and that the exact types differ in, come twice.

    Attributes:
        schema: The columns, and after them those that come again.
        again: Places of the latter.
        exact: Name of the column that holds the exact values, by the column's name.
    """

    schema: StructType
    again: tuple[int, ...] = ()
    exact: Mapping[str, str]

    def selected(self, frame: DataFrame, names: Collection[str]) -> DataFrame:
        """The columns of these names, in exact types."""
        from pyspark.sql import functions as sf

        return frame.select(*(sf.col(quoted(self.exact.get(name, name))).alias(name) for name in names))


def filtered_columns(schema: Schema, virtual: tuple[str, ...], condition: Collection[int], *, exact: bool) -> FilteredColumns:
    """How to read columns on which Spark evaluates a condition.

    Args:
        schema: Columns to read.
        virtual: Virtual columns after them.
        condition: Ids of the nodes that the condition names; none without a condition.
        exact: Whether the result must have exact types.
    """
    every = {column.id for column in schema} if exact else set()
    named = {column.id for column in schema if any(node.id in condition for node in column.walk())}
    nearest = spark_schema(schema, virtual, exact=every - named)
    wanted = spark_schema(schema, exact=every)
    again = [place for place, field in enumerate(wanted) if field.dataType != nearest[place].dataType]
    names = {wanted[place].name: f"{_AGAIN}{place}" for place in again}
    copies = [StructField(names[wanted[place].name], wanted[place].dataType, True) for place in again]
    return FilteredColumns(schema=StructType([*nearest, *copies]), again=tuple(again), exact=names)


def spark_schema(
    schema: Schema, virtual: tuple[str, ...] = (), *, field_ids: bool = False, exact: Collection[int] = frozenset()
) -> StructType:
    """The Spark columns of a scan, all nullable.

    Args:
        schema: The table's columns.
        virtual: Virtual columns after them.
        field_ids: Whether to name the ids of all nodes, for reading Parquet by field id.
        exact: Ids of the columns whose types must hold every value; see :func:`~ducklake_core.engines.spark.types.to_spark_type`.
    """
    fields = [_field(column, field_ids, column.id in exact) for column in schema]
    return StructType([*fields, *(_field(column, False, False) for column in VIRTUAL_SCHEMA.select(virtual))])


def _field(column: Field, field_ids: bool, exact: bool) -> StructField:
    metadata: dict[str, Any] = {"parquet.field.id": column.id} if field_ids else {}
    return StructField(column.name, _type(column.type, field_ids, exact), True, metadata)


def _type(data_type: LakeType, field_ids: bool, exact: bool) -> Any:
    match data_type:
        case LakeStruct(fields=fields):
            return StructType([_field(field, field_ids, exact) for field in fields])
        case ListType(element=element):
            return ArrayType(_type(element.type, field_ids, exact), True)
        case LakeMap(key=key, value=value):
            return MapType(_type(key.type, field_ids, exact), _type(value.type, field_ids, exact), True)
        case leaf:
            return to_spark_type(leaf, exact=exact)


def arrow_form(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects from Python for a Spark schema."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable) for field in schema])


def quoted(name: str) -> str:
    """A column name for Spark's ``select``, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
