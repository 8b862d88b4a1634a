"""Bring the rows of one table partition together before they are written, so that tasks times partitions do not become files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.arrow.file_report import carried
from ducklake_core.format.arrow_cast import cast_to
from ducklake_core.format.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.schema import Schema
from ducklake_core.format.transforms import partition_arrays

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = "__ducklake_key_{}"


def distribute(df: DataFrame, spec: PartitionSpec, schema: Schema) -> DataFrame:
    """The frame's rows shuffled by partition values, followed by columns that nobody needs any more.

    Spark may split a large partition among several tasks, and put small ones together into one.
    """
    names = [_KEY.format(number) for number in range(len(spec.fields))]
    buckets = [field for field in spec.fields if field.transform == "bucket"]
    others = [(name, field) for name, field in zip(names, spec.fields, strict=True) if field.transform != "bucket"]
    keyed = df.withColumns({name: partition_expression(df, field) for name, field in others}) if others else df
    if buckets:
        bucket_names = [name for name, field in zip(names, spec.fields, strict=True) if field.transform == "bucket"]
        keyed = _with_buckets(keyed, PartitionSpec(fields=tuple(buckets)), schema, bucket_names)
    return keyed.hint("rebalance", *names)


def partition_expression(df: DataFrame, field: PartitionField) -> Column:
    """Partition value of a row in Spark SQL, except for buckets; calendar parts in UTC whatever the session's time zone."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import TimestampType

    name = next(name for name in df.columns if name.casefold() == field.column.casefold())
    column = F.col(quoted(name))
    if field.transform == "identity":
        return column
    if isinstance(df.schema[name].dataType, TimestampType):
        # A timestamp without zone is counted on from the epoch, as year() and hour() of one with zone ask the session.
        column = F.expr(f"timestampadd(MICROSECOND, unix_micros({quoted(name)}), TIMESTAMP_NTZ'1970-01-01 00:00:00')")
    match field.transform:
        case "year":
            return F.year(column)
        case "month":
            return F.month(column)
        case "day":
            return F.dayofmonth(column)
        case _:
            return F.hour(column)


def quoted(name: str) -> str:
    """A column name as Spark SQL takes it literally.

    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"


def _with_buckets(df: DataFrame, spec: PartitionSpec, schema: Schema, names: list[str]) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    # The bucket hash has no Spark function, so the numbers come from a pass through Arrow of their own.
    target = StructType([*df.schema.fields, *(StructField(name, StringType(), True) for name in names)])
    return df.mapInArrow(_bucket_adder(spec, schema, names), target)


def _bucket_adder(spec: PartitionSpec, schema: Schema, names: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    keys = schema.select([field.column for field in spec.fields])

    def add_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = {column.name.casefold() for column in keys}
        for batch in batches:
            present = [name for name in batch.schema.names if name.casefold() in wanted]
            with carried():
                values = partition_arrays(spec, keys, cast_to(batch.select(present), keys))
            fields = [pa.field(name, pa.string()) for name in names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *values], schema=pa.schema([*batch.schema, *fields]))

    return add_buckets
