"""Plan a write on the driver, and commit the files of its tasks as one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from pyspark.sql.types import NullType, StructType

from ducklake_core.catalog.reading.maintenance import named_files
from ducklake_core.catalog.reading.options import stored_options
from ducklake_core.engines.spark.types import from_spark_schema, year_month_columns
from ducklake_core.engines.spark.write import verify_files
from ducklake_core.errors import (
    CommitOutcomeUnknownError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    UsageError,
)
from ducklake_core.format.types.names import split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.temporal import zone_info
from ducklake_core.spark_source.writing import FilesMessage, Replaced, SealedWriteOptions, WritePlan, reported
from ducklake_core.staging.staged_rows import computed_defaults
from ducklake_core.staging.staged_table import check_replaceable, evolve, lacking_columns, new_table, new_write_state
from ducklake_core.storage.unfinished import NamedFiles

if TYPE_CHECKING:
    from ducklake_core.format.state import Snapshot, TableState
    from ducklake_core.lake import DuckLake
    from ducklake_core.spark_source.options import SourceOptions
    from ducklake_core.staging.arguments import MissingColumns


@contextmanager
def connected(options: SourceOptions) -> Iterator[DuckLake]:
    """Open the lake, and close its connections at the end."""
    lake = options.connect()
    try:
        yield lake
    finally:
        lake.close()


def plan_write(
    lake: DuckLake,
    options: SourceOptions,
    frame: StructType,
    note: Mapping[str, str],
    *,
    overwrite: bool,
    create: bool = False,
    is_stream: bool = False,
) -> WritePlan:
    """Prepare the value that executors write the rows of a frame with, and seal its options for the end of the write.

    A table that is missing is planned with the frame's columns where ``create`` allows it, and made by the commit.

    Args:
        lake: The lake.
        options: The options of the write.
        frame: The frame's columns.
        note: What the end of the write needs to know.
        overwrite: Whether the rows replace others.
        create: Whether to create a missing table.
        is_stream: Whether it is one micro-batch of a stream, whose output mode determines what it replaces.

    Raises:
        NotFoundError: There is no such table, or no schema to make it in.
        SchemaError: The frame does not fit the table; the message lists every difference.
        UsageError: Option partitionOverwriteMode is missing for an overwrite of a partitioned table.
        UnsupportedFeatureError: A column of a type that cannot be written.
    """
    table = options.table
    lake.database.check_writable()
    months = next(year_month_columns(frame), None)
    if months is not None:
        raise UnsupportedFeatureError(
            f"column {months!r} for {table} is an interval of months, which Spark does not pass to a data source. Cast it to string",
            table=table,
            column=months,
        )
    state = _table(lake, table, frame, create=create)
    is_new = state.id < 0
    if not is_new:
        _check_fits(state, _frame_columns(frame, state.schema), options.missing_columns)
    replaces = _replaced(state, options, is_stream=is_stream) if overwrite and not is_new else None
    defaults = computed_defaults(state.schema, frame.names, datetime.now(zone_info()))
    written = new_write_state(state, lake.info, lake.storage, defaults=defaults)
    note_left = SealedWriteOptions.store(note)
    return WritePlan(
        state=written,
        table_id=state.id,
        uuid=state.uuid,
        replaces=replaces,
        note=note_left,
        created=state.uuid if is_new else None,
    )


def _check_fits(state: TableState, frame: Schema, missing_columns: MissingColumns) -> None:
    try:
        evolve(state, frame, "strict", missing_columns)
    except SchemaError as error:
        if missing := cast("tuple[str, ...]", error.details.get("missing_columns", ())):
            raise lacking_columns(state.qualified_name, missing, "option('missingColumns', 'null')") from None
        differences = cast("tuple[str, ...]", error.details.get("differences", ()))
        if not differences or "schema_evolution" not in error.message:
            raise
        raise SchemaError(
            f"the data does not fit {state.qualified_name}: {'; '.join(differences)}. format('ducklake') does not change columns. Change "
            "the data, alter the table, or use lake.write(..., schema_evolution='additive')",
            table=state.qualified_name,
            differences=differences,
        ) from None


def _replaced(state: TableState, options: SourceOptions, *, is_stream: bool) -> Replaced:
    """Return the scope that an overwrite replaces. Spark does not pass data sources in Python the settings of the session.

    Raises:
        UsageError: The option is missing for a partitioned table, or is 'dynamic' for a table without partitions.
    """
    if is_stream or (options.overwrite_mode is None and state.partition_spec is None):
        return "all"
    if options.overwrite_mode is None:
        assert state.partition_spec is not None
        keys = ", ".join(key.expression for key in state.partition_spec.fields)
        raise UsageError(
            f"{state.qualified_name} is partitioned by {keys}, and the overwrite has no option partitionOverwriteMode. Spark does not "
            "pass on spark.sql.sources.partitionOverwriteMode. Set the option to 'static' to replace all rows, or to 'dynamic' to "
            "replace only the partitions of the data",
            table=state.qualified_name,
        )
    if options.overwrite_mode == "dynamic":
        check_replaceable(state, None)
        return "partitions"
    return "all"


def _table(lake: DuckLake, table: str, frame: StructType, *, create: bool) -> TableState:
    """Return the table, or the one that is to be made."""
    schema_name, name = split_name(table)
    with lake.reader() as reader:
        base = reader.latest_snapshot().id
        try:
            return reader.table(schema_name, name, base)
        except NotFoundError:
            if not create:
                raise
        owner = reader.schema(schema_name, snapshot_id=base)
        options = stored_options(reader.connection, lake.database.tables).effective(owner.id)
    _, state = new_table(
        owner,
        name,
        from_spark_schema(frame),
        local_id=-1,
        partition_by=(),
        comment=None,
        options=options,
        snapshot_id=base,
        format_version=lake.info.format_version,
    )
    return state


def _frame_columns(frame: StructType, table: Schema) -> Schema:
    """Return the frame's columns, those without a type of their own (all NULL) as the table has them."""
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
    has_own_id: bool = False,
    extra_info: Mapping[str, object] | None = None,
) -> Snapshot | None:
    """Commit what executors wrote as one snapshot, once for a commit id. The plan's note was taken, so no other process cleans up.

    Args:
        options: Where to.
        plan: The write; ``messages`` are the reports of its tasks.
        messages: See ``plan``.
        commit_id: Makes it happen once.
        has_own_id: Whether the commit id is that of this table alone, whatever it is called.
        extra_info: Stored with the commit id.

    Returns:
        The snapshot, None when there was nothing to commit.

    Raises:
        CommitConflictError: The table was changed after the files were written, or another writer created it.
        CommitOutcomeUnknownError: The connection was lost at COMMIT; no file was deleted.
    """
    files, named = reported(messages), named_by(options)
    try:
        verify_files(files, plan.state)
        with connected(options) as lake:
            with lake.transaction(author=options.author, message=options.message, extra_info=extra_info, commit_id=commit_id) as tx:
                if plan.created is not None:
                    tx.stage_created(files, plan.state, plan.created)
                else:
                    tx.stage_written(files, plan.state, plan.table_id, plan.uuid, replaces=plan.replaces, has_own_id=has_own_id)
            result = tx.result
    except CommitOutcomeUnknownError:
        raise
    except DuckLakeError:
        plan.sweep(named)
        raise
    if result.repeated:
        plan.sweep(named)
    # A task that was tried before may have left files of the earlier attempt.
    elif any(message.attempt for message in messages):
        plan.sweep(named, keep=files)
    return result.snapshot


def named_by(options: SourceOptions) -> NamedFiles:
    """Return a function that finds the files that the catalog names, with a separate connection for each call."""

    def named(files: Sequence[str]) -> frozenset[str]:
        with connected(options) as lake, lake.reader() as reader:
            return named_files(reader, files)

    return named
