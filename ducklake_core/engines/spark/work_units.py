"""Run work units of maintenance on Spark executors, one per task, and clean up after failed attempts."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ducklake_core.engines.arrow.work import Work
from ducklake_core.engines.spark.session import is_connect
from ducklake_core.engines.spark.tasks import task_ids
from ducklake_core.errors import DuckLakeError, JobFailedError
from ducklake_core.storage.waiting import as_completed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")
R = TypeVar("R")
_REASON_CHARACTERS = 500
_CONNECT_JOBS = 8
"""Concurrent jobs in Spark Connect, which does not report the number of cores."""

LONGEST_WAIT = 20.0
"""Maximum seconds to wait for the tasks of a job that ended early."""
UNSEEN_WAIT = 5.0
"""Seconds to wait where no API reports tasks (Spark Connect, data sources). Spark ends a worker about 4 s after its task was killed."""
_PAUSE = 0.1
_PREFIX = "ducklake-write-"

ATTEMPT_COLUMNS = "stage int, attempt int"
"""The columns that every report of a task has in addition to its result, as Spark DDL."""


def run_in_one_job(work: Work[T, R], tasks: Sequence[T], session: SparkSession) -> tuple[list[R | DuckLakeError], bool]:
    """Carry out each task on an executor. If the job itself fails, or is interrupted, the files of its tasks stay for the caller to sweep.

    A job that fails, or that another client cancels, gives a :class:`JobFailedError` for each of its tasks; the message contains the
    task's string form.

    Args:
        work: The work unit.
        tasks: The tasks, one for each Spark task.
        session: The session that runs the job.

    Returns:
        For each task, in order, its result or its error: a task that fails does not stop the others. Then whether abandoned attempts of
        tasks may have left files behind.
    """
    try:
        with awaiting_tasks(session):
            return _job(work, tasks, session)
    except DuckLakeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever PySpark, py4j or the connection to a session that was stopped raises
        return [_failure(task, error) for task in tasks], True


def _failure(task: object, error: Exception) -> JobFailedError:
    # All further lines of the message are Java stack traces.
    reason = " ".join(line.strip() for line in f"{type(error).__name__}: {error}".splitlines()[:2])
    failure = JobFailedError(f"the Spark job for {task} failed or was cancelled: {reason[:_REASON_CHARACTERS]}")
    failure.__cause__ = error
    return failure


def run_in_jobs(
    work: Work[T, R], tasks: Sequence[T], session: SparkSession, jobs: int | None, is_late: Callable[[], bool]
) -> Generator[tuple[int, R | DuckLakeError, bool]]:
    """Carry out each task in a job of its own.

    Args:
        work: The work unit.
        tasks: The tasks.
        session: The session that runs the jobs.
        jobs: Maximum number of concurrent jobs; None for as many as Spark has cores.
        is_late: Called before each job; True skips it and all later ones.

    Yields:
        As soon as a job ends: the index of the task, its result or error, and whether files may have been left behind. If the iterator is
        closed or interrupted, it cancels the jobs and waits for them.
    """
    tag = new_tag()
    workers = min(len(tasks), jobs or (_CONNECT_JOBS if is_connect(session) else session.sparkContext.defaultParallelism))

    def run(task: T) -> tuple[list[R | DuckLakeError], bool]:
        if is_late():
            return [], False
        with tagged(session, tag):
            return run_in_one_job(work, [task], session)

    pool = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="ducklake-job")
    try:
        numbers = {pool.submit(run, task): number for number, task in enumerate(tasks)}
        for future in as_completed(numbers):
            results, lost = future.result()
            yield from ((numbers[future], result, lost) for result in results)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_jobs(session, tag)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _job(work: Work[T, R], tasks: Sequence[T], session: SparkSession) -> tuple[list[R | DuckLakeError], bool]:
    if not tasks:
        return [], False
    schema = f"number long, {ATTEMPT_COLUMNS}, result binary"
    rows = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(_runner(work, tasks), schema).collect()
    found = {row["number"]: pickle.loads(row["result"]) for row in rows}  # noqa: S301 - made by our own function in the same job
    return [found[number] for number in range(len(tasks))], may_have_lost(rows, session)


def _runner(work: Work[T, R], tasks: Sequence[T]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Each as bytes: the function travels with every Spark task, which unpickles only its own work.
    every = tuple(pickle.dumps(task, pickle.HIGHEST_PROTOCOL) for task in tasks)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            task: Any = pickle.loads(every[number])  # noqa: S301 - made above
            try:
                result: object = work(task, threads=False)
            except DuckLakeError as error:
                result = error
            columns = {
                "number": pa.array([number], pa.int64()),
                **attempt_columns(1),
                "result": pa.array([pickle.dumps(result)], pa.binary()),
            }
            yield pa.RecordBatch.from_pydict(columns)

    return run


@contextmanager
def awaiting_tasks(session: SparkSession) -> Iterator[None]:
    """Run jobs in the block; if it fails or is interrupted, cancel them and wait until none of their tasks runs.

    A task that still runs could write a file after the caller has swept. The wait is bounded by :data:`LONGEST_WAIT`; a second interrupt
    ends it at once.
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
    """Return a tag for jobs that end together."""
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
    """Cancel the jobs with a tag, and return when none of their tasks runs, or after :data:`LONGEST_WAIT`."""
    # A new thread has a new connection to Java: that of the interrupted thread still waits for the answer to its last call.
    ending = threading.Thread(target=_end, args=(session, tag), name="ending-tasks", daemon=True)
    ending.start()
    ending.join(LONGEST_WAIT + UNSEEN_WAIT)


def _tagging(session: SparkSession) -> tuple[Callable[[str], None], Callable[[str], None]]:
    if is_connect(session):
        return session.addTag, session.removeTag
    return session.sparkContext.addJobTag, session.sparkContext.removeJobTag


def _end(session: SparkSession, tag: str) -> None:
    """Cancel the jobs with a tag, and wait until none of their tasks runs."""
    # A stopped session runs no tasks, and the original error must not be replaced by one of the cleanup.
    with suppress(Exception):
        if is_connect(session):
            session.interruptTag(tag)
            time.sleep(UNSEEN_WAIT)
            return
        session.sparkContext.cancelJobsWithTag(tag)
        # Java's status tracker, because PySpark's own supports job groups but not tags.
        tracker: Any = session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001
        until = time.monotonic() + LONGEST_WAIT
        while _running(tracker, tag) and time.monotonic() < until:
            time.sleep(_PAUSE)


def _running(tracker: Any, tag: str) -> bool:
    """Return whether a job with the tag, or one of its tasks, still runs.

    The status of the job counts first: while it runs, the number of active tasks may date from before they began.
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


def attempt_columns(rows: int) -> dict[str, pa.Array]:
    """Return, on an executor, those columns for some rows: the running task's stage and its number of earlier attempts in it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    stage, attempt = (context.stageId(), context.attemptNumber()) if context is not None else (-1, 0)
    return {"stage": pa.array([stage] * rows, pa.int32()), "attempt": pa.array([attempt] * rows, pa.int32())}


def may_have_lost(reports: Sequence[Any], session: SparkSession) -> bool:
    """Return whether attempts other than those that reported may have written files.

    When an executor is lost, Spark repeats its stage, where task attempts count from 0 again. Spark Connect does not report that, so that
    files of such an executor stay as orphans there.

    Args:
        reports: Rows with the columns of :data:`ATTEMPT_COLUMNS`.
        session: The session that ran the tasks.
    """
    return any(row["attempt"] for row in reports) or speculates(session) or _ran_again({row["stage"] for row in reports}, session)


def speculates(session: SparkSession) -> bool:
    """Return whether Spark runs slow tasks twice."""
    return str(session.conf.get("spark.speculation", "false")).lower() == "true"


def _ran_again(stages: set[int], session: SparkSession) -> bool:
    if is_connect(session):
        return False
    tracker = session.sparkContext.statusTracker()
    found = (tracker.getStageInfo(stage) for stage in stages)
    return any(info is not None and info.currentAttemptId > 0 for info in found)
