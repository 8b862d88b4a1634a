"""Rows that the driver has, as constants of a query of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NO_ROWS = pa.table({"id": pa.array([], pa.int64())})


def local_frame(session: SparkSession, rows: pa.Table, schema: StructType | str | None = None) -> DataFrame:
    """The rows as a frame, which leaves alone which session of the thread is the active one.

    Spark makes the session of each frame of constants the active one, where it then looks for data sources of other sessions' frames.

    Args:
        session: The session of the frame.
        rows: The rows.
        schema: Names and types of Spark; those of the rows unless given.
    """
    active = None if is_connect(session) else type(session).getActiveSession()
    try:
        return session.createDataFrame(rows) if schema is None else session.createDataFrame(rows, schema)
    finally:
        if active is not None and active is not session:
            make_active(active)


def make_active(session: SparkSession) -> None:
    """Make a session the active one of the thread, where Spark looks for data sources by name, as each frame of constants does."""
    session.createDataFrame(_NO_ROWS)
