"""The executors' part of a write: Parquet files at their final paths, and a report of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.file_report import file_from_json, file_to_json
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.spark.running import UNSEEN_WAIT
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.spark_source.sealed_options import SealedWriteOptions
from ducklake_core.storage.sweeping import NamedFiles, sweep

Replaced: TypeAlias = Literal["all", "partitions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """One write into one table, as it goes to executors and comes back with their reports.

    Attributes:
        state: What writers need.
        table_id: The table; ``uuid`` is its uuid.
        replaces: What the rows replace: ``all`` rows of the table, those of the ``partitions`` that they are in, or nothing.
        created: Uuid of the table where the write is to make it.
        note: What planning left for the end of the write.
    """

    state: WriteState
    table_id: int
    uuid: str
    replaces: Replaced | None
    note: SealedWriteOptions
    created: str | None = None

    def sweep(self, named: NamedFiles, keep: Sequence[WrittenFile] = ()) -> None:
        """Delete the files of the write, except some and those that the catalog names."""
        sweep(self.state.storage, self.state.directory, self.state.write_id, named=named, keep=[file.path for file in keep])

    def sweep_aborted(self, named: NamedFiles) -> None:
        """Delete all files of the write, also those of tasks that Spark ends only after it has aborted the write."""
        try:
            self.sweep(named)
            time.sleep(UNSEEN_WAIT)
        finally:
            self.sweep(named)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesMessage(WriterCommitMessage):
    """The files of one task.

    Attributes:
        plan: The write that they are part of.
        files: Their reports.
        attempt: How often the task was tried before.
    """

    plan: WritePlan
    files: tuple[str, ...]
    attempt: int


def write_rows(batches: Iterable[pa.RecordBatch], plan: WritePlan) -> FilesMessage:
    """Write the rows of one task."""
    from pyspark import TaskContext

    with DatasetWriter(plan.state) as writer:
        for batch in batches:
            writer.write(batch)
        files = tuple(file_to_json(file) for file in writer.close())
    context = TaskContext.get()
    return FilesMessage(plan=plan, files=files, attempt=context.attemptNumber() if context is not None else 0)


def reported(messages: Iterable[FilesMessage]) -> tuple[WrittenFile, ...]:
    """The files that tasks reported."""
    return tuple(file_from_json(file) for message in messages for file in message.files)
