"""Bring the rows of one table partition together before they are written, so that tasks times partitions do not become files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.arrow.file_report import serialize_errors
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY = "__ducklake_key_{}"


def plain_name(position: int) -> str:
    """The name under which a frame's column travels, whatever the user called it."""
    return f"c{position}"


def distribute(df: DataFrame, names: Sequence[str], spec: PartitionSpec, schema: Schema) -> DataFrame:
    """The frame's rows shuffled by partition values, followed by columns that nobody needs any more.

    Spark may split a large partition among several tasks, and put small ones together into one.

    Args:
        df: A frame whose columns have plain names.
        names: What the user calls its columns.
        spec: The partition keys.
        schema: The table's columns.
    """
    keys = [_KEY.format(number) for number in range(len(spec.fields))]
    columns = [column_position(names, field.column) for field in spec.fields]
    missing = [field.column for field, column in zip(spec.fields, columns, strict=True) if column is None]
    if missing:
        # Their value is the same in all rows, the column's default.
        rest = tuple(field for field in spec.fields if field.column not in missing)
        return distribute(df, names, PartitionSpec(fields=rest), schema) if rest else df
    by_key = {
        key: partition_expression(df, plain_name(column), field)
        for key, column, field in zip(keys, columns, spec.fields, strict=True)
        if field.transform != "bucket" and column is not None
    }
    buckets = tuple(field for field in spec.fields if field.transform == "bucket")
    keyed = df.withColumns(by_key) if by_key else df
    if buckets:
        keyed = _with_buckets(keyed, names, PartitionSpec(fields=buckets), schema, [key for key in keys if key not in by_key])
    return keyed.hint("rebalance", *keys)


def column_position(names: Sequence[str], wanted: str) -> int | None:
    """Place of a column among a frame's, found without regard to case."""
    return next((position for position, name in enumerate(names) if folded(name) == folded(wanted)), None)


def partition_expression(df: DataFrame, name: str, field: PartitionField) -> Column:
    """Partition value of a row in Spark SQL, except for buckets; calendar parts in UTC whatever the session's time zone."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import LongType, TimestampType

    column = F.col(name)
    if field.transform == "identity":
        return column
    if isinstance(df.schema[name].dataType, TimestampType):
        # A timestamp without zone is counted on from the epoch, as year() and hour() of one with zone ask the session.
        column = F.expr(f"timestampadd(MICROSECOND, unix_micros({name}), TIMESTAMP_NTZ'1970-01-01 00:00:00')")
    elif isinstance(df.schema[name].dataType, LongType):
        # What columns of nanoseconds are read as, which have calendar parts where no integer has.
        column = F.expr(f"timestampadd(MICROSECOND, CAST(floor({name} / 1000D) AS BIGINT), TIMESTAMP_NTZ'1970-01-01 00:00:00')")
    match field.transform:
        case "year":
            return F.year(column)
        case "month":
            return F.month(column)
        case "day":
            return F.dayofmonth(column)
        case "epoch_year":
            return F.year(column) - 1970
        case "epoch_month":
            return (F.year(column) - 1970) * 12 + F.month(column) - 1
        case "epoch_day":
            return F.unix_date(F.to_date(column))
        case "epoch_hour":
            return F.unix_date(F.to_date(column)) * 24 + F.hour(column)
        case _:
            return F.hour(column)


def _with_buckets(df: DataFrame, names: Sequence[str], spec: PartitionSpec, schema: Schema, keys: list[str]) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    # The bucket hash has no Spark function, so the numbers come from a pass through Arrow of their own.
    target = StructType([*df.schema.fields, *(StructField(key, StringType(), True) for key in keys)])
    return df.mapInArrow(_bucket_adder(names, spec, schema, keys), target)


def _bucket_adder(
    names: Sequence[str], spec: PartitionSpec, schema: Schema, keys: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Whether NULL is allowed is for the writer to say.
    hashed = Schema(columns=tuple(replace(column, nullable=True) for column in schema.select({f.column: None for f in spec.fields})))
    positions = [position for column in hashed if (position := column_position(names, column.name)) is not None]

    def add_buckets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with serialize_errors():
                values = pa.RecordBatch.from_arrays([batch.column(p) for p in positions], names=list(hashed.names))
                buckets = partition_arrays(spec, hashed, cast_to(values, hashed, exact=True))
            fields = [pa.field(key, pa.string()) for key in keys]
            yield pa.RecordBatch.from_arrays([*batch.columns, *buckets], schema=pa.schema([*batch.schema, *fields]))

    return add_buckets
