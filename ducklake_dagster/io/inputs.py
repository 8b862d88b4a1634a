"""Plan an input as one read: rows and columns of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.assets.settings import INPUT_KEYS, InputSettings, input_settings, plain_metadata, reject_unknown_keys
from ducklake_dagster.assets.tables import TableAddress, output_address, table_address
from ducklake_dagster.io.handlers import FrameHandler, Parts, handler_for_type, parts_of_type
from ducklake_dagster.io.outputs import schema_lookup
from ducklake_dagster.io.read_points import (
    ReadPoint,
    changed_rows,
    lake_identity,
    last_read,
    materialized_snapshot,
    note_read,
    pinned_snapshot,
)
from ducklake_dagster.partitions.predicates import slice_predicate
from ducklake_dagster.partitions.slices import Box, TableSlice, partition_boxes

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from ducklake_core import Condition, DuckLake, Table, View
    from ducklake_dagster.io.handlers import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInput:
    """The plan of one input.

    Attributes:
        subject: Asset key, for messages.
        context: The input.
        address: The table that is read.
        table_slice: Rows of the run's upstream partitions, and the columns to load.
        declared: Columns that the upstream asset's definition declares, for a table that does not exist yet.
        settings: Settings in the input's metadata.
        branch: The branch that the table belongs to, None for production's.
        parts: Form of an input with one frame per partition; None for one frame.
        partitions: Boxes by partition key, for an input with one frame per partition.
    """

    subject: str
    context: dg.InputContext
    handler: FrameHandler
    address: TableAddress
    table_slice: TableSlice
    declared: dg.TableSchema | None
    settings: InputSettings
    branch: str | None = None
    parts: Parts | None = None
    partitions: Mapping[str, tuple[Box, ...]] = field(default_factory=dict)

    def in_branch(self, branch: str, address: TableAddress) -> TableInput:
        """Return the same input from the table of a branch."""
        table_slice = replace(self.table_slice, schema=address.schema, table=address.table)
        return replace(self, branch=branch, address=address, table_slice=table_slice)

    def load(self, lake: DuckLake, session: Callable[[], Any], *, pin: bool, reader_branch: str | None = None) -> Any:
        """Return the rows, or their changes.

        Args:
            lake: The lake.
            session: Returns the Spark session; called only for a Spark frame.
            pin: Whether all inputs of the run read one snapshot, unless the input selects another.
            reader_branch: The branch that outputs go to, None for production.

        Raises:
            NotFoundError: The table, a column or the snapshot does not exist.
            UsageError: The input is a view, with settings that only a table supports.
        """
        at = self._moment(lake, pin=pin)
        try:
            table = lake.table(self.address.sql, at=at)
        except NotFoundError as error:
            # The first partition of an asset that reads its own past has nothing to read, and no table yet.
            if self.table_slice.boxes == () and self.parts is not None:
                return [] if self.parts == "list" else {}
            if self.table_slice.boxes == ():
                return self.handler.empty(self._no_rows(), session)
            view = self._view(lake, at)
            if view is None:
                raise self._absent(error) from error
            return self.handler.load(view, session)
        since = self._since(table, lake, reader_branch)
        parts = {key: replace(self, table_slice=replace(self.table_slice, boxes=boxes)) for key, boxes in self.partitions.items()}
        columns = ", ".join(self.settings.columns or ()) or "all"
        what = "changes" if self.settings.changes else "rows"
        self.context.log.debug("loading %s of %s at snapshot %s: %s", what, table.name, table.snapshot_id, self._shown(table, columns))
        if pin or self.settings.changes:
            # A run that resumes another one reads the pin of that run. The last materialisation may have newer changes, and the read
            # point must never go back.
            newest = max(table.snapshot_id, since.snapshot if since is not None else 0)
            point = ReadPoint(table_id=table.state.id, snapshot=newest, lake=lake_identity(lake))
            note_read(self.context, point, reader_branch)
        if self.parts is None:
            return self.handler.load(self._rows(table, since), session)
        # All partitions are read from the same snapshot.
        frames = {key: self.handler.load(part._rows(table, since), session) for key, part in parts.items()}  # noqa: SLF001
        return list(frames.values()) if self.parts == "list" else frames

    def _absent(self, error: NotFoundError) -> NotFoundError:
        """Return the error, with advice where the newest state of the table was read."""
        if self.settings.names_a_moment or "table" not in error.details:
            return error
        advice = (
            f"Materialise {self.subject} first. An asset that stores no rows belongs in deps=, not in the arguments. An asset whose frame "
            "had no rows has a table only if dagster/column_schema in its metadata declares the columns"
        )
        return NotFoundError(f"{error.message}. {advice}", **error.details)

    def _moment(self, lake: DuckLake, *, pin: bool) -> int | datetime | None:
        settings = self.settings
        if settings.run_id is not None:
            return materialized_snapshot(self.context, settings.run_id, self.branch)
        if settings.names_a_moment:
            return settings.as_of if settings.snapshot is None else settings.snapshot
        # Changes lie between two snapshots. A retry of the step must read the same two.
        return pinned_snapshot(self.context, lake, self.branch) if pin or settings.changes else None

    def _since(self, table: Table, lake: DuckLake, reader_branch: str | None) -> ReadPoint | None:
        """Return what was read last, None unless the input reads changes since then."""
        since = last_read(self.context, reader_branch) if self.settings.changes == "last_materialization" else None
        if since is not None and since.lake != lake_identity(lake):
            raise UsageError(
                f"input {self.subject}: {table.name} was last read from another lake, so the changes since then are not known; "
                "materialise the asset once with ducklake_input(changes='beginning') on its input",
                input=self.subject,
            )
        return since

    def _rows(self, table: Table, since: ReadPoint | None) -> Rows:
        where = self._condition(table)
        if self.settings.changes is None:
            return table.scan(self.settings.columns, where)
        return changed_rows(table, since, self.settings.columns, where, self.subject)

    def _view(self, lake: DuckLake, at: int | datetime | None) -> View | None:
        try:
            view = lake.view(self.address.sql) if at is None else lake.at(at).view(self.address.sql)
        except NotFoundError:
            return None
        settings = self.settings
        if self.table_slice.boxes is not None or settings.columns or settings.where or settings.changes:
            raise UsageError(
                f"input {self.subject} is a view, and views are read as a whole. Remove partitions, columns, where and changes",
                input=self.subject,
            )
        return view

    def _no_rows(self) -> pa.Table:
        """Return an empty table with the columns that the definition declares, without columns if it declares none."""
        from ducklake_core import Field, Schema, data_type_of

        declared = self.declared.columns if self.declared is not None else []
        schema = Schema(columns=tuple(Field(name=column.name, type=data_type_of(column.type)) for column in declared)).to_arrow()
        rows = schema.empty_table()
        return rows.select(list(self.table_slice.columns)) if self.table_slice.columns and declared else rows

    def _condition(self, table: Table) -> Condition | str | None:
        from ducklake_core import AllOf

        predicate = slice_predicate(self.table_slice, schema_lookup(table.schema))
        parts = tuple(part for part in (predicate.to_condition() if predicate else None, self.settings.where) if part is not None)
        return AllOf(conditions=parts) if parts else None

    def _shown(self, table: Table, columns: str) -> str:
        predicate = slice_predicate(self.table_slice, schema_lookup(table.schema))
        parts = [part for part in (predicate.shown() if predicate else None, self.settings.where) if part]
        return f"columns {columns}, where {' AND '.join(f'({part})' for part in parts) or 'TRUE'}"


def _annotation(context: dg.InputContext) -> object:
    try:
        return context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        # A context that a test builds without dagster_type=.
        return Any


def plan_input(context: dg.InputContext, default_frame: str, default_schema: str | None) -> TableInput:
    """Plan the load of an input, without a connection to the lake.

    Args:
        context: The input.
        default_frame: Name of the handler for an input without a type annotation.
        default_schema: The ``schema`` setting of the IO manager.

    Raises:
        UsageError: The annotation or the metadata is invalid, or partitions have no column.
    """
    upstream = context.upstream_output
    stored = plain_metadata((upstream.definition_metadata if upstream else None) or {})
    wanted = plain_metadata(context.definition_metadata or {})
    path = list(context.asset_key.path) if context.has_asset_key else [upstream.name if upstream else context.name]
    subject = "/".join(path)
    reject_unknown_keys(wanted, INPUT_KEYS, f"input {subject}")
    settings = input_settings(wanted, subject)
    if (settings.run_id or settings.changes) and not context.has_asset_key:
        raise UsageError(
            f"input {subject}: ducklake/run_id and ducklake/changes are only supported for inputs that are assets", input=subject
        )
    boxes, expression = None, stored.get("partition_expr")
    if context.has_asset_partitions:
        boxes = partition_boxes(context.asset_partitions_def, context.asset_partition_keys, expression, subject=subject)
    parts, frame_type = parts_of_type(_annotation(context))
    partitions: dict[str, tuple[Box, ...]] = {}
    if parts == "list" and not context.has_asset_key:
        # Dagster loads each of the outputs that an op collects by itself.
        parts = None
    if parts is not None and boxes is None:
        raise UsageError(
            f"input {subject} is annotated as a {parts} of frames, one per partition, but it has no partitions. Annotate it as one frame",
            input=subject,
        )
    if parts is not None:
        keys = sorted(context.asset_partition_keys)
        partitions = {key: partition_boxes(context.asset_partitions_def, [key], expression, subject=subject) for key in keys}
    # The writer takes the table from the metadata of the output's definition, so the reader uses the same metadata.
    if upstream is None or context.has_asset_key:
        address = table_address(path, stored, default_schema)
    else:
        address = output_address(upstream, stored, default_schema)
    return TableInput(
        subject=subject,
        context=context,
        handler=handler_for_type(frame_type, default_frame, subject),
        parts=parts,
        partitions=partitions,
        address=address,
        table_slice=TableSlice(schema=address.schema, table=address.table, columns=settings.columns, boxes=boxes),
        declared=schema if isinstance(schema := stored.get("dagster/column_schema"), dg.TableSchema) else None,
        settings=settings,
    )
