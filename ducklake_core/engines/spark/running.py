"""Jobs whose tasks write files: when one ends early, its tasks are waited for, so that none writes after the sweep.

Spark answers a failed or cancelled job before its tasks have ended: a Python worker goes on until Spark kills it, some seconds later.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ducklake_core.engines.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_WAIT = 20.0
"""Seconds that the tasks of a job that ended early are waited for at most."""

UNSEEN_WAIT = 5.0
"""Seconds to wait where nobody tells of tasks (Spark Connect, data sources). Spark ends a worker about 4 s after its task was killed."""

_PAUSE = 0.1
_PREFIX = "ducklake-write-"


@contextmanager
def awaiting_tasks(session: SparkSession) -> Iterator[None]:
    """Run jobs in the block; when it fails, or is interrupted, they are cancelled, and left only when none of their tasks runs.

    The wait is bounded by :data:`LONGEST_WAIT`; whoever interrupts it as well is obeyed at once.
    """
    tag = new_tag()
    add, remove = _tagging(session)
    add(tag)
    try:
        yield
    except BaseException as error:
        end_jobs(session, tag)
        if isinstance(error, Exception):
            with suppress(Exception):
                remove(tag)
        raise
    remove(tag)


def new_tag() -> str:
    """A tag for jobs that end together."""
    return f"{_PREFIX}{uuid.uuid4().hex}"


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Give the jobs that this thread runs in the block a tag."""
    add, remove = _tagging(session)
    add(tag)
    try:
        yield
    finally:
        with suppress(Exception):
            remove(tag)


def end_jobs(session: SparkSession, tag: str) -> None:
    """Cancel the jobs with a tag, and come back when none of their tasks runs, or after :data:`LONGEST_WAIT`."""
    # In a thread of its own, which talks to Java over another connection: that of an interrupted thread still waits for an answer.
    ending = threading.Thread(target=_end, args=(session, tag), name="ending-tasks", daemon=True)
    ending.start()
    ending.join(LONGEST_WAIT + UNSEEN_WAIT)


def _tagging(session: SparkSession) -> tuple[Callable[[str], None], Callable[[str], None]]:
    if is_connect(session):
        return session.addTag, session.removeTag
    return session.sparkContext.addJobTag, session.sparkContext.removeJobTag


def _end(session: SparkSession, tag: str) -> None:
    """Cancel the jobs with a tag, and wait until none of their tasks runs."""
    # A session that is stopped runs nothing any more, and the error that led here is what is told.
    with suppress(Exception):
        if is_connect(session):
            session.interruptTag(tag)
            time.sleep(UNSEEN_WAIT)
            return
        session.sparkContext.cancelJobsWithTag(tag)
        # The Java side's, as PySpark's own tracker knows groups only.
        tracker: Any = session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001
        until = time.monotonic() + LONGEST_WAIT
        while _running(tracker, tag) and time.monotonic() < until:
            time.sleep(_PAUSE)


def _running(tracker: Any, tag: str) -> bool:
    """Whether a job with the tag, or one of its tasks, still runs.

    A job comes first: until its end is noted, what is noted of its tasks may be of a moment before they began.
    """
    for job in tracker.getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        if not info.isDefined():
            continue
        if info.get().status().toString() == "RUNNING":
            return True
        for stage in info.get().stageIds():
            found = tracker.getStageInfo(stage)
            if found.isDefined() and found.get().numActiveTasks():
                return True
    return False
