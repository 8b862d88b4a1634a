"""A batch write: planned and committed on the driver, written by executors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ducklake_core.errors import CommitError
from ducklake_core.spark_source.options import parse_options
from ducklake_core.spark_source.user_errors import user_errors
from ducklake_core.spark_source.writing import FilesMessage, WritePlan, write_rows


class TableWriter(DataSourceArrowWriter):
    """One write. Spark ships it to executors, and to the process that commits, which finds the catalog's address in the plan's note.

    Args:
        plan: The write.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @user_errors
    def write(self, iterator: Iterable[pa.RecordBatch]) -> FilesMessage:
        """On an executor: the rows of one task."""
        return write_rows(iterator, self._plan)

    @user_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: one snapshot of all files."""
        from ducklake_core.spark_source.committing import commit_files

        options = parse_options(self._plan.note.claim(), "write")
        commit_files(options, self._plan, cast("list[FilesMessage]", messages), commit_id=options.commit_id)

    @user_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - the write id tells
        """On the driver: no file stays, whichever task wrote it, unless a commit has begun."""
        from ducklake_core.spark_source.committing import named_by

        try:
            options = parse_options(self._plan.note.claim(), "write")
        except CommitError:
            return
        self._plan.sweep_aborted(named_by(options))
