"""How Spark hands the rows of a frame to Python: in Arrow batches whose bytes it weighs after every row, unless told not to.

Weighing takes most of the time of ``mapInArrow``: its input is one struct, and the size of a struct is that of all its
children, asked anew. So while a frame of the library runs, the limit in bytes is lifted and the limit in rows keeps batches small.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNLIMITED = str(2**31 - 1)
"""The value with which Spark does not weigh at all."""

SPARK_DEFAULTS = frozenset({"64mb", "67108864b", "67108864"})
"""The limit in bytes that nobody chose; any other is the user's, and is kept."""

VARYING_ROWS = 2048
"""Rows of a batch that holds texts or lists: at 32 KiB a row they are as many bytes as Spark's own limit."""

_running: WeakKeyDictionary[SparkSession, tuple[int, dict[str, str]]] = WeakKeyDictionary()
_lock = threading.Lock()


@contextmanager
def unlimited_arrow_batches(df: DataFrame) -> Iterator[None]:
    """Run an action on a frame that goes through ``mapInArrow``, with batches limited by rows alone.

    The session's settings are as before afterwards, once the last of several threads is through. Frames with binary
    columns keep Spark's limit, as their rows may be of any size; so does a session whose limit was chosen by the user.
    """
    session = df.sparkSession
    settings = _settings(df.schema)
    if settings is None:
        yield
        return
    with _lock:
        count, before = _running.get(session, (0, {}))
        if count == 0:
            before = _apply(session, settings)
        _running[session] = (count + 1, before)
    try:
        yield
    finally:
        with _lock:
            count, before = _running[session]
            _running[session] = (count - 1, before)
            if count == 1:
                for name, value in before.items():
                    session.conf.set(name, value)


def _settings(schema: StructType) -> dict[str, str] | None:
    kinds = {kind for field in schema for kind in _kinds(field.dataType)}
    if kinds & {BinaryType, VariantType}:
        return None
    varying = kinds & {StringType, ArrayType, MapType}
    return {BYTES: UNLIMITED, **({ROWS: str(VARYING_ROWS)} if varying else {})}


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


def _apply(session: SparkSession, settings: dict[str, str]) -> dict[str, str]:
    """Set what is to be set; the values before, none if the limit is the user's own or this Spark has none."""
    try:
        limit = session.conf.get(BYTES) or ""
    except PySparkException:
        return {}
    if limit.lower() not in SPARK_DEFAULTS:
        return {}
    before = {name: session.conf.get(name) for name in settings}
    for name, value in settings.items():
        if name != ROWS or not 0 < int(before[ROWS] or 0) <= int(value):
            session.conf.set(name, value)
    return {name: value for name, value in before.items() if value is not None}
