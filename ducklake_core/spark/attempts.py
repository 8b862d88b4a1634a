"""Attempts of Spark tasks: any but the one that reported may have left files behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attempt_number() -> int:
    """On an executor: how often the running task was tried before."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


def may_have_lost(attempts: Iterable[int], session: SparkSession) -> bool:
    """Whether attempts other than those that reported may have written files.

    Args:
        attempts: The attempt numbers that came with the reports.
        session: The session that ran the tasks.
    """
    return any(attempts) or speculates(session)


def speculates(session: SparkSession) -> bool:
    """Whether Spark runs slow tasks twice."""
    return str(session.conf.get("spark.speculation", "false")).lower() == "true"
