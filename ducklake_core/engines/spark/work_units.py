"""Work units of maintenance on executors: one for each Spark task. Tasks get files and rows, never the catalog's address."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ducklake_core.engines.arrow.work import Work
from ducklake_core.engines.spark.attempts import ATTEMPT_COLUMNS, attempt_columns, may_have_lost
from ducklake_core.engines.spark.running import awaiting_tasks, end_jobs, new_tag, tagged
from ducklake_core.engines.spark.sessions import is_connect
from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.errors import DuckLakeError, JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_REASON_CHARACTERS = 500
_CONNECT_JOBS = 8
"""Jobs at a time where nobody tells how many cores there are."""


def run_in_one_job(work: Work[T, R], tasks: Sequence[T], session: SparkSession) -> tuple[list[R | DuckLakeError], bool]:
    """Carry out each task on an executor. When the job itself fails, or is interrupted, files of its tasks stay for the caller to sweep.

    A job that fails, or that somebody cancels, is a :class:`JobFailedError` of each of its tasks, which are named by their texts.

    Returns:
        For each task, in order, what became of it, or why nothing did: a task that fails does not stop the others. Then whether
        attempts of tasks that Spark gave up may have left files behind.
    """
    try:
        with awaiting_tasks(session):
            return _job(work, tasks, session)
    except DuckLakeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever PySpark, py4j or the connection to a session that was stopped raises
        return [_failure(task, error) for task in tasks], True


def _failure(task: object, error: Exception) -> JobFailedError:
    # What follows in the text are the stacks of Java.
    reason = " ".join(line.strip() for line in f"{type(error).__name__}: {error}".splitlines()[:2])
    failure = JobFailedError(f"the Spark job for {task} failed or was cancelled: {reason[:_REASON_CHARACTERS]}")
    failure.__cause__ = error
    return failure


def run_in_jobs(
    work: Work[T, R], tasks: Sequence[T], session: SparkSession, jobs: int | None, is_late: Callable[[], bool]
) -> Generator[tuple[int, R | DuckLakeError, bool]]:
    """Carry out each task in a job of its own.

    Args:
        jobs: So many at a time; as many as Spark has cores when None.
        is_late: Asked before each job: whether it and those after it are left out.

    Yields:
        As soon as a job ends: the number of the task, what became of it, and whether files may have been left behind. When the
        iterator is closed, or interrupted, jobs are cancelled and waited for.
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
    # Each as bytes: the function travels with every Spark task, which unpacks its own and leaves the others alone.
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
