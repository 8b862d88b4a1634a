"""A Spark frame in a table's sort order, within each of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from ducklake_core.engines.spark.distribution import column_position, plain_name
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.layout.sorting import SortOrder, parse_expression
from ducklake_core.format.types.data_types import BLOB, BOOLEAN, DATE, FLOATS, INTEGERS, JSON, TIMESTAMPS, UUID, VARCHAR, DecimalType, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def sort_within_partitions(
    df: DataFrame, names: Sequence[str], orders: Sequence[SortOrder], schema: Schema, table: str
) -> DataFrame | None:
    """The frame sorted within its partitions, spilling to disk where Spark has to.

    Args:
        df: A frame whose columns have plain names, more may follow them.
        names: What the user calls its columns.
        orders: What to sort by, the most significant first.
        schema: The table's columns.
        table: ``schema.table`` for messages.

    Returns:
        None when Spark would sort a key otherwise than the table's type: rows are then sorted where they are written.

    Raises:
        UnsupportedFeatureError: An expression that Spark cannot evaluate, or of columns that the frame lacks.
    """
    try:
        keys = _keys(df, names, orders, schema, table)
        if not keys:
            return df if keys is not None else None
        done = df.sortWithinPartitions(*keys)
        # With Spark Connect this is where expressions are looked at.
        _ = done.schema
    except (AnalysisException, ParseException) as error:
        texts = ", ".join(order.expression for order in orders)
        raise UnsupportedFeatureError(
            f"table {table} is sorted by {texts}, which Spark cannot evaluate; set the table's option sort_on_insert to false to write "
            "unsorted files, or write with DuckDB",
            table=table,
        ) from error
    return done


def _keys(df: DataFrame, names: Sequence[str], orders: Sequence[SortOrder], schema: Schema, table: str) -> list[Column] | None:
    """The Spark columns to sort by, None when Spark would sort a key in another way."""
    keys: list[Column] = []
    for order in orders:
        positions = {name: column_position(names, name) for name in order.columns}
        if order.column is None:
            keys.append(_directed(_one_zero(df, _expression(positions, order, table)), order))
            continue
        position = positions[order.column]
        if position is None:
            # The same in all rows, the column's default.
            continue
        name = plain_name(position)
        key = _comparable(name, df.schema[name].dataType, schema.column(order.column))
        if key is None:
            return None
        keys.append(_directed(_one_zero(df, key), order))
    return keys


def _one_zero(df: DataFrame, key: Column) -> Column:
    """The key without negative zeros, which Spark sorts before the others."""
    return key + sf.lit(0.0).cast("float") if isinstance(df.select(key).schema[0].dataType, FloatType | DoubleType) else key


def _expression(positions: dict[str, int | None], order: SortOrder, table: str) -> Column:
    missing = [name for name, position in positions.items() if position is None]
    if missing:
        raise UnsupportedFeatureError(
            f"cannot write to {table}: {order.refusal.format(f'but the data lacks column {missing[0]!r}')}", table=table, column=missing[0]
        )
    plain = {folded(name): plain_name(position) for name, position in positions.items() if position is not None}

    def renamed(node: exp.Expr) -> exp.Expr:
        return exp.column(plain[folded(node.name)]) if isinstance(node, exp.Column) else node

    return sf.expr(parse_expression(order.expression).transform(renamed).sql(dialect="spark"))


def _comparable(name: str, given: DataType, column: Field) -> Column | None:
    """The frame's column as something that Spark sorts as the table's type is sorted."""
    key = sf.col(name)
    wanted = column.type
    match given:
        case NumericType():
            return key if wanted in (*INTEGERS, *FLOATS) or isinstance(wanted, DecimalType) else None
        case StringType():
            # The text of a uuid has many forms.
            return sf.lower(key) if wanted == UUID else key if wanted in (VARCHAR, JSON) else None
        case DateType() | TimestampType() | TimestampNTZType():
            return key if wanted == DATE or wanted in TIMESTAMPS else None
        case BooleanType():
            return key if wanted == BOOLEAN else None
        case BinaryType():
            return key if wanted == BLOB else None
        case _:
            return None


def _directed(key: Column, order: SortOrder) -> Column:
    if order.descending:
        return key.desc_nulls_first() if order.nulls_first else key.desc_nulls_last()
    return key.asc_nulls_first() if order.nulls_first else key.asc_nulls_last()
