"""What executors do for a write: Parquet files at their final paths, and a report of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ducklake_core.arrow.dataset_writer import DatasetWriter
from ducklake_core.arrow.file_report import file_from_json, file_to_json
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.format.files import WrittenFile
from ducklake_core.spark_source.notes import Note
from ducklake_core.storage.sweeping import sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """One write into one table, as it goes to executors and comes back with their reports.

    Attributes:
        state: What writers need.
        table_id: The table.
        overwrite: Whether the rows replace all others.
        created: Uuid of the table where the write is to make it.
        note: What planning left for the end of the write.
    """

    state: WriteState
    table_id: int
    overwrite: bool
    note: Note
    created: str | None = None

    def sweep(self, keep: Sequence[WrittenFile] = ()) -> None:
        """Delete the files of the write, except some."""
        sweep(self.state.storage, self.state.directory, self.state.write_id, keep=frozenset(file.path for file in keep))

    def abort(self) -> None:
        """Delete all files of the write, unless its commit has begun."""
        if self.note.withdraw():
            self.sweep()


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
