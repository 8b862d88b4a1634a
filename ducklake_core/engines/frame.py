"""What a user hands in as rows, made one thing at the door. Told by its type, without importing Spark, pandas or polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ducklake_core.engines.arrow.frame import ArrowFrame, arrow_frame
from ducklake_core.engines.arrow.frame_input import kind_of, no_columns
from ducklake_core.errors import UsageError
from ducklake_core.format.types.arrow_types import from_arrow_schema
from ducklake_core.format.types.schema import Schema

if TYPE_CHECKING:
    from ducklake_core.engines.spark.frame import SparkFrame

Frame: TypeAlias = "ArrowFrame | SparkFrame"
"""Rows and the engine that works on them: the one place that knows what a user has handed in."""


def frame_of(data: Any) -> Frame:
    """The frame of what a verb was given; rows are not read.

    Args:
        data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, a pandas DataFrame, a list of dicts, or a Spark DataFrame
            (classic, Connect, pandas-on-Spark).

    Raises:
        UsageError: It is none of these, or has rows without columns; the message names its kind.
        UnsupportedFeatureError: A column of a type that DuckLake has not.
    """
    kinds = [cls.__module__ for cls in type(data).__mro__ if cls.__name__ == "DataFrame"]
    # Asked first, because newer Spark frames give Arrow streams as well, with all their rows in this process.
    if any(module.startswith("pyspark.pandas") for module in kinds):
        from ducklake_core.engines.spark.frame import of_pandas_on_spark, spark_frame

        return spark_frame(of_pandas_on_spark(data))
    if any(module.startswith("pyspark.sql") for module in kinds):
        from ducklake_core.engines.spark.frame import spark_frame

        return spark_frame(data)
    return arrow_frame(data)


def columns_of(data: Any) -> Schema:
    """The DuckLake columns, without ids, of a DuckLake schema, an Arrow schema of any library, or a frame, which is not read.

    Raises:
        UsageError: It is none of these, or a frame without columns; the message names its kind.
    """
    if isinstance(data, Schema):
        return data
    if isinstance(data, pa.Schema):
        return from_arrow_schema(data)
    if hasattr(data, "__arrow_c_schema__"):
        # A stream of another library may be opened once only, which is for its rows.
        try:
            return from_arrow_schema(pa.schema(data))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UsageError(f"cannot take columns from a {kind_of(data)}: {error}", type=kind_of(data)) from error
    frame = frame_of(data)
    if not frame.schema.columns:
        raise no_columns(frame.kind)
    return frame.schema
