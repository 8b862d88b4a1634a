"""Spark's Python Data Source API: ``format("ducklake")`` in batch and streaming reads and writes.

The catalog is asked and written in Python processes of the driver. What goes to executors - :mod:`reading`, the writers' state - knows
nothing of it: see ``docs/spark.md`` for which process sees what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: SparkSession) -> None:
    """Make ``format("ducklake")`` known to a session, classic or Connect. Options are listed in docs/spark.md.

    The driver (with Connect: the server) must be able to import ``ducklake_core`` with its libraries, executors likewise.
    """
    from ducklake_core.spark_source.source import DuckLakeDataSource

    session.dataSource.register(DuckLakeDataSource)
