"""Both ends of a write on the driver: what the table asks of its writers, and the one commit of their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import NullType, StructType

from ducklake_core.errors import CommitOutcomeUnknownError, DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.names import split_name
from ducklake_core.format.schema import Schema
from ducklake_core.spark.types import from_spark_schema, year_month_columns
from ducklake_core.spark.write import verify_files
from ducklake_core.spark_source.notes import Note
from ducklake_core.spark_source.writing import FilesMessage, WritePlan, reported
from ducklake_core.table_staging import evolve
from ducklake_core.write_target import new_write_state

if TYPE_CHECKING:
    from ducklake_core.catalog.state import Snapshot
    from ducklake_core.lake import DuckLake
    from ducklake_core.spark_source.options import SourceOptions


@contextmanager
def connected(options: SourceOptions) -> Iterator[DuckLake]:
    """The lake, its connections closed at the end."""
    lake = options.connect()
    try:
        yield lake
    finally:
        lake.close()


def plan_write(lake: DuckLake, table: str, frame: StructType, note: Mapping[str, str], *, overwrite: bool) -> WritePlan:
    """What executors need to write the rows of a frame; leaves a note for the end of the write.

    Raises:
        NotFoundError: There is no such table.
        SchemaError: The frame does not fit the table; the message lists every difference.
        UnsupportedFeatureError: A column of a type that cannot be written.
    """
    lake.database.check_writable()
    with lake.reader() as reader:
        state = reader.table(*split_name(table), reader.latest_snapshot().id)
    months = next(year_month_columns(frame), None)
    if months is not None:
        raise UnsupportedFeatureError(
            f"column {months!r} for {table} is an interval of months, which a data source cannot receive: cast it to string",
            table=table,
            column=months,
        )
    evolve(state, _frame_columns(frame, state.schema), "strict")
    written = new_write_state(state, lake.info, lake.storage)
    return WritePlan(state=written, table_id=state.id, overwrite=overwrite, note=Note.leave(note))


def _frame_columns(frame: StructType, table: Schema) -> Schema:
    """The frame's columns, those without a type of their own (all NULL) as the table has them."""
    untyped = {field.name for field in frame if isinstance(field.dataType, NullType)}
    columns = (
        replace(column, type=known.type) if column.name in untyped and (known := table.find(column.name)) is not None else column
        for column in from_spark_schema(frame)
    )
    return Schema(columns=tuple(columns))


def commit_files(
    options: SourceOptions,
    plan: WritePlan,
    messages: Sequence[FilesMessage],
    *,
    commit_id: str | None,
    extra_info: Mapping[str, object] | None = None,
) -> Snapshot | None:
    """Commit what executors wrote as one snapshot, once for a commit id. The plan's note was taken, so nobody else cleans up.

    Returns:
        The snapshot, None when there was nothing to commit.

    Raises:
        CommitConflictError: The table is no longer what the files were written for.
        CommitOutcomeUnknownError: The connection was lost at COMMIT; no file was deleted.
    """
    files = reported(messages)
    try:
        verify_files(files, plan.state)
        with connected(options) as lake:
            with lake.transaction(author=options.author, message=options.message, extra_info=extra_info, commit_id=commit_id) as tx:
                tx.stage_written(files, plan.state, plan.table_id, overwrite=plan.overwrite)
            result = tx.result
    except CommitOutcomeUnknownError:
        raise
    except DuckLakeError:
        plan.sweep()
        raise
    if result.repeated:
        plan.sweep()
    elif any(message.attempt for message in messages):
        plan.sweep(keep=files)
    return result.snapshot
