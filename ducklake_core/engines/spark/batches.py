"""How Spark hands the rows of a frame to Python: in Arrow batches whose bytes it weighs after every row, unless told not to.

Weighing takes most of the time of ``mapInArrow``: its input is one struct, and the size of a struct is that of all its
children, asked anew. So while a frame of the library runs, the limit in bytes is lifted and the limit in rows keeps batches small.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from ducklake_core.engines.spark.session_settings import held_settings, users_setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNLIMITED = str(2**31 - 1)
"""The value with which Spark does not weigh at all."""

SPARK_DEFAULTS = frozenset({"64mb", "67108864b", "67108864"})
"""The limit in bytes that nobody chose; any other is the user's, and is kept."""

SPARK_ROWS = 10_000
"""The limit in rows of a session that has none set."""

VARYING_ROWS = 2048
"""Rows of a batch that holds texts or lists: at 32 KiB a row they are as many bytes as Spark's own limit."""


@contextmanager
def unlimited_arrow_batches(df: DataFrame) -> Iterator[None]:
    """Run an action on a frame that goes through ``mapInArrow``, with batches limited by rows alone.

    The session's settings are as before afterwards. Frames with binary columns keep Spark's limit, as their rows may be of any
    size; so does a session whose limit was chosen by the user.
    """
    with held_settings(df.sparkSession, _settings(df.sparkSession, df.schema)):
        yield


def _settings(session: SparkSession, schema: StructType) -> dict[str, str]:
    kinds = {kind for field in schema for kind in _kinds(field.dataType)}
    limit = users_setting(session, BYTES)
    if kinds & {BinaryType, VariantType} or (limit is not None and limit.lower() not in SPARK_DEFAULTS) or not _weighs(session):
        return {}
    rows = int(users_setting(session, ROWS) or SPARK_ROWS)
    varying = kinds & {StringType, ArrayType, MapType} and not 0 < rows <= VARYING_ROWS
    return {BYTES: UNLIMITED, **({ROWS: str(VARYING_ROWS)} if varying else {})}


def _weighs(session: SparkSession) -> bool:
    """Whether this Spark has the limit at all."""
    try:
        session.conf.get(BYTES)
    except PySparkException:
        return False
    return True


def _kinds(data_type: DataType) -> Iterator[type[DataType]]:
    yield type(data_type)
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                yield from _kinds(field.dataType)
        case ArrayType(elementType=element):
            yield from _kinds(element)
        case MapType(keyType=key, valueType=value):
            yield from _kinds(key)
            yield from _kinds(value)
        case _:
            pass
