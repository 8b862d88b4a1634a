"""Attempts of Spark tasks: any but the one that reported may have left files behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.engines.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPT_COLUMNS = "stage int, attempt int"
"""The columns that every report of a task has beside its result, as Spark DDL."""


def attempt_columns(rows: int) -> dict[str, pa.Array]:
    """On an executor: those columns for some rows: the running task's stage, and how often the task was tried before in it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    stage, attempt = (context.stageId(), context.attemptNumber()) if context is not None else (-1, 0)
    return {"stage": pa.array([stage] * rows, pa.int32()), "attempt": pa.array([attempt] * rows, pa.int32())}


def may_have_lost(reports: Sequence[Any], session: SparkSession) -> bool:
    """Whether attempts other than those that reported may have written files.

    When an executor is lost, Spark runs its stage anew, where tasks begin to count at 0. Spark Connect does not tell of that:
    files that such an executor left are orphans there.

    Args:
        reports: Rows with the columns of :data:`ATTEMPT_COLUMNS`.
        session: The session that ran the tasks.
    """
    return any(row["attempt"] for row in reports) or speculates(session) or _ran_anew({row["stage"] for row in reports}, session)


def speculates(session: SparkSession) -> bool:
    """Whether Spark runs slow tasks twice."""
    return str(session.conf.get("spark.speculation", "false")).lower() == "true"


def _ran_anew(stages: set[int], session: SparkSession) -> bool:
    if is_connect(session):
        return False
    tracker = session.sparkContext.statusTracker()
    found = (tracker.getStageInfo(stage) for stage in stages)
    return any(info is not None and info.currentAttemptId > 0 for info in found)
