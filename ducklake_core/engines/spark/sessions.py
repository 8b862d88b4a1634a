"""Tells kinds of Spark sessions apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(session: SparkSession) -> bool:
    """Whether it is a client of Spark Connect, without a Java process of its own and perhaps without access to what executors reach."""
    return type(session).__module__.startswith("pyspark.sql.connect")
