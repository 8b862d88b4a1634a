"""Batch and streaming writers of ``format("ducklake")``: planned and committed on the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ducklake_core.errors import CommitError, DuckLakeError, UsageError
from ducklake_core.spark_source.options import SourceOptions, error_while_pickling, parse_options, user_errors
from ducklake_core.spark_source.writing import FilesMessage, WritePlan, write_rows
from ducklake_core.storage.filesystems import Storage, StorageOptions


# A batch write, process by process:
#
#   driver       DuckLakeDataSource.writer    plans the write, and leaves the options (address, secrets) in a sealed note
#   executors    TableWriter.write            writes files at their final paths; never talks to the catalog
#   driver       TableWriter.commit           claims the note, and commits all files as one snapshot
#                TableWriter.abort            claims the note, and deletes all files
#
# Spark pickles the writer for executors, and commits in another Python process of the driver's machine, so the options cannot travel in it.
# Claiming renames the note: one of commit and abort gets it, however often Spark calls them.
class TableWriter(DataSourceArrowWriter):
    """One write. Spark ships it to executors, and to the process that commits, which finds the catalog's address in the plan's note.

    Args:
        plan: The write.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @user_errors
    def write(self, iterator: Iterable[pa.RecordBatch]) -> FilesMessage:
        """Write the rows of one task, on an executor."""
        return write_rows(iterator, self._plan)

    @user_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit all files as one snapshot, on the driver."""
        from ducklake_core.spark_source.committing import commit_files

        options = parse_options(self._plan.note.claim(), "write")
        commit_files(options, self._plan, cast("list[FilesMessage]", messages), commit_id=options.commit_id)

    @user_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - the write id identifies them
        """Delete all files of the write, on the driver, unless a commit has begun."""
        from ducklake_core.spark_source.committing import named_by

        try:
            options = parse_options(self._plan.note.claim(), "write")
        except CommitError:
            return
        self._plan.sweep_aborted(named_by(options))


class StreamPartWriter(DataSourceStreamArrowWriter):
    """The part of a sink that travels to executors.

    Args:
        plan: The write of this micro-batch.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @user_errors
    def write(self, iterator: Iterable[pa.RecordBatch]) -> FilesMessage:
        """Write the rows of one task, on an executor."""
        return write_rows(iterator, self._plan)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink on the driver. Spark makes one where it plans a micro-batch, which it ships, and another where it commits it.

    Args:
        options: Where to.
        schema: The frame's columns.
        overwrite: Whether each micro-batch replaces all rows (output mode complete).
    """

    def __init__(self, options: SourceOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = schema
        self._overwrite = overwrite
        self._stream_id = stream_id(options)
        self._plan: WritePlan | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Only what is shipped has to be planned, and it is pickled twice.
        if self._plan is None:
            from ducklake_core.spark_source.committing import connected, plan_write

            try:
                with connected(self._options) as lake:
                    self._plan = plan_write(lake, self._options, self._schema, {}, overwrite=self._overwrite, is_stream=True)
            except DuckLakeError as error:
                raise error_while_pickling(error) from None
        return StreamPartWriter, (self._plan,)

    def write(self, iterator: Iterable[pa.RecordBatch]) -> FilesMessage:  # noqa: ARG002
        """Never called: executors have a :class:`StreamPartWriter`."""
        raise AssertionError("the sink itself does not go to executors")

    @user_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit all files of the micro-batch as one snapshot; none when an earlier run committed it, or when it had no rows."""
        from ducklake_core.spark_source.committing import commit_files

        found = _of_batch(messages)
        plan = found[0].plan
        plan.note.claim()
        commit_files(
            self._options,
            plan,
            found,
            commit_id=f"spark-stream/{self._stream_id}/{batchId}/{plan.table_id}",
            has_own_id=True,
            extra_info={"stream_id": self._stream_id, "batch_id": batchId},
        )

    @user_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Delete the files of tasks that ended, unless a commit has begun; a task that fails deletes its own."""
        from ducklake_core.spark_source.committing import named_by

        for message in messages:
            if isinstance(message, FilesMessage) and message.plan.note.withdraw():
                message.plan.sweep_aborted(named_by(self._options))


def _of_batch(messages: list[WriterCommitMessage | None]) -> list[FilesMessage]:
    found = [message for message in messages if isinstance(message, FilesMessage)]
    if not found or len(found) < len(messages):
        raise CommitError(
            f"{len(messages) - len(found)} of {len(messages)} tasks of the micro-batch did not report their files. Nothing was "
            "committed. Restart the stream"
        )
    return found


def stream_id(options: SourceOptions) -> str:
    """Return the identity of a stream: the option ``streamId``, or the id that Spark keeps in the checkpoint.

    Batches are counted from 0 in each checkpoint. So an id must never outlive it, or rows of a new one would pass for repeated.

    Raises:
        UsageError: There is neither a ``streamId`` nor a readable checkpoint.
    """
    if options.stream_id:
        return options.stream_id
    if options.checkpoint is None:
        raise UsageError(
            f"writing a stream to {options.table} needs option checkpointLocation, so that no micro-batch is committed twice. Set it, or "
            "set streamId to an id that is unique for each checkpoint",
            table=options.table,
        )
    storage = Storage(options=StorageOptions(by_protocol=options.storage))
    path = f"{options.checkpoint.removesuffix('/')}/metadata"
    try:
        with storage.open_input(path) as file:
            found: Mapping[str, object] = json.loads(file.read())
        return str(found["id"])
    except (DuckLakeError, ValueError, KeyError, OSError) as error:
        raise UsageError(
            f"cannot read the id of the stream into {options.table} from {path}. Set option streamId to an id that is unique for each "
            "checkpoint",
            table=options.table,
        ) from error
