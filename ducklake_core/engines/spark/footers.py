"""Footers of files that are to be added, read on executors: for many files, or where only executors reach the store quickly."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.errors import DuckLakeError
from ducklake_core.storage.added_files import AddingRules, inspect_file
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.files.added_files import AddedFile

_FILES_OF_A_TASK = 64


def inspect_on_executors(storage: Storage, paths: Sequence[str], rules: AddingRules, session: SparkSession) -> list[AddedFile]:
    """As :func:`ducklake_core.storage.added_files.inspect_file`, for every path, in order.

    Raises:
        DuckLakeError: Of the first file in order that does not fit.
    """
    if not paths:
        return []
    groups = tuple(tuple(paths[start : start + _FILES_OF_A_TASK]) for start in range(0, len(paths), _FILES_OF_A_TASK))
    numbers = session.range(0, len(groups), 1, len(groups))
    rows = numbers.mapInArrow(_inspector(storage, groups, rules), "number long, result binary").collect()
    by_number = {row["number"]: pickle.loads(row["result"]) for row in rows}  # noqa: S301 - made by our own function in the same job
    found: list[AddedFile] = []
    for number in range(len(groups)):
        for outcome in by_number[number]:
            if isinstance(outcome, DuckLakeError):
                raise outcome
            found.append(outcome)
    return found


def _inspector(
    storage: Storage, groups: Sequence[tuple[str, ...]], rules: AddingRules
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            outcomes = [_outcome(storage, path, rules) for path in groups[number]]
            yield pa.RecordBatch.from_pydict({"number": [number], "result": pa.array([pickle.dumps(outcomes)], pa.binary())})

    return run


def _outcome(storage: Storage, path: str, rules: AddingRules) -> AddedFile | DuckLakeError:
    try:
        return inspect_file(storage, path, rules)
    except DuckLakeError as error:
        return error
