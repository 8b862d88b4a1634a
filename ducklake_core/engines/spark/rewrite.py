"""Compaction on executors: one group of files for each Spark task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.arrow.rewrite import MergeTask, merge_files
from ducklake_core.engines.spark.running import awaiting_tasks
from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files.data_files import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def merge_groups(tasks: Sequence[MergeTask], session: SparkSession) -> list[WrittenFile | DuckLakeError]:
    """Carry out each task on an executor. When the job itself fails, or is interrupted, files of its tasks stay for the caller to sweep.

    Returns:
        For each task, in order, the file that was written, or why none was: a task that fails does not stop the others.
    """
    if not tasks:
        return []
    with awaiting_tasks(session):
        rows = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(_runner(tasks), "number long, result binary").collect()
    found: dict[int, WrittenFile | DuckLakeError] = {row["number"]: pickle.loads(row["result"]) for row in rows}  # noqa: S301 - our own
    return [found[number] for number in range(len(tasks))]


def _runner(tasks: Sequence[MergeTask]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    every = tuple(tasks)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            result = pa.array([pickle.dumps(_outcome(every[number]))], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64()), result], names=["number", "result"])

    return run


def _outcome(task: MergeTask) -> WrittenFile | DuckLakeError:
    try:
        return merge_files(task, threads=False)
    except DuckLakeError as error:
        return error
