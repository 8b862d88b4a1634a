"""The Spark columns of a read: those of the table, or those that the user's schema chooses."""

from __future__ import annotations

from pyspark.sql.types import StructType

from ducklake_core.engines.spark.scan_schema import spark_schema
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.schema import Schema


def all_columns(schema: Schema, *, exact: bool) -> StructType:
    """Every column, in types that hold every value or in Spark's nearest."""
    return spark_schema(schema, exact={column.id for column in schema} if exact else frozenset())


def check_columns(wanted: StructType, schema: Schema, table: str) -> None:
    """Check that columns can be read as a schema says.

    Args:
        wanted: What Spark expects, in the order of ``schema``.
        schema: The columns that are read.
        table: For the message.

    Raises:
        SchemaError: A column has neither of the types that it can be read as.
    """
    ways = [all_columns(schema, exact=exact) for exact in (True, False)]
    for place, field in enumerate(wanted):
        types = [way[place].dataType for way in ways]
        if field.dataType not in types or not field.nullable:
            known = " or ".join(dict.fromkeys(one.simpleString() for one in types))
            asked = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise SchemaError(
                f"column {field.name!r} of {table} cannot be read as {asked}, only as {known}; a stream whose table was changed is "
                "started again with a new checkpoint",
                table=table,
                column=field.name,
            )
