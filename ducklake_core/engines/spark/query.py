"""A translated query as a lazy DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ducklake_core.engines.spark.types import to_spark_type
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import DataType
from ducklake_core.format.types.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ANSI = "spark.sql.ansi.enabled"


def scanned(frame: DataFrame, types: Sequence[DataType], identifiers: Sequence[str], subject: str) -> DataFrame:
    """A scan with the columns that the query knows.

    Raises:
        UnsupportedFeatureError: The session reads a column as another type than the query was typed with.
    """
    for field, expected in zip(frame.schema.fields, types, strict=True):
        if field.dataType != to_spark_type(expected):
            kind = field.dataType.simpleString()
            raise UnsupportedFeatureError(
                f"cannot read {subject}: this session reads column {field.name!r} of type {expected} as {kind}; "
                "set spark.sql.legacy.parquet.nanosAsLong to false",
                subject=subject,
                column=field.name,
            )
    return frame.toDF(*identifiers)


def run_query(
    sql: str, frames: Mapping[str, DataFrame], identifiers: Sequence[str], schema: Schema, session: SparkSession, subject: str
) -> DataFrame:
    """The rows of a query over frames, classic or Connect; nothing runs before an action.

    Args:
        sql: Spark SQL with ``{key}`` for each frame.
        identifiers: Columns of the query in the order of ``schema``, which names and types them.

    Raises:
        UsageError: The session does not follow ANSI SQL, so that overflows would go unseen.
        UnsupportedFeatureError: Spark refuses the query.
    """
    from pyspark.errors import AnalysisException

    if str(session.conf.get(_ANSI, "true")).lower() != "true":
        raise UsageError(
            f"cannot read {subject}: set {_ANSI} to true, as wrong numbers would come out where DuckDB reports an overflow", subject=subject
        )
    try:
        # mypy takes the names for `args`.
        frame = session.sql(sql, **frames)  # type: ignore[arg-type]
        found = frame.schema
    except AnalysisException as problem:
        reason = str(problem).splitlines()[0]
        raise UnsupportedFeatureError(f"cannot read {subject}: Spark does not run its query: {reason}", subject=subject) from problem
    columns = []
    for identifier, column in zip(identifiers, schema, strict=True):
        wanted = to_spark_type(column.type)
        chosen = frame[identifier]
        if found[identifier].dataType != wanted:
            chosen = chosen.cast(wanted)
        columns.append(chosen.alias(column.name))
    return frame.select(*columns)
