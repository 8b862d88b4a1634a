"""Spark's Python Data Source API: ``format("ducklake")`` in batch and streaming reads and writes.

``source`` is the class that Spark loads, ``options`` reads its options. On the driver, ``readers`` plan scans and change feeds,
``writers`` and ``committing`` commit what executors have written. On executors, ``reading`` and ``writing`` read tasks and write files;
they never receive the address of the catalog. ``docs/reference/spark.md`` states which process sees what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: SparkSession) -> None:
    """Make ``format("ducklake")`` known to a session, classic or Connect. Options are listed in docs/reference/spark.md.

    The driver (with Connect: the server) must be able to import ``ducklake_core`` with its libraries, and so must executors. A classic
    session becomes the active one of the thread, where Spark looks for the data source of a write; so register again after another
    session of the thread was used.
    """
    from ducklake_core.engines.spark.session import is_connect, make_active
    from ducklake_core.spark_source.source import DuckLakeDataSource

    session.dataSource.register(DuckLakeDataSource)
    if not is_connect(session):
        make_active(session)
