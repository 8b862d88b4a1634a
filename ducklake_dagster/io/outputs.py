"""Plan an asset's output as one commit, and reject it before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import AlreadyExistsError, CommitConflictError, DuckLakeError, NotFoundError, SchemaError, UsageError
from ducklake_dagster.assets.provenance import AUTHOR, Provenance, output_subject, provenance
from ducklake_dagster.assets.settings import (
    OUTPUT_KEYS,
    WriteSettings,
    plain_metadata,
    reject_prefixed_settings,
    reject_replaced_columns,
    reject_unknown_keys,
    resolve_settings,
)
from ducklake_dagster.assets.tables import (
    AssetTable,
    TableAddress,
    TableComments,
    output_address,
    reject_other_names,
    spec_of,
    table_comments,
)
from ducklake_dagster.io.audits import RESULTS, Audit, AuditResult, Branch, audit_metadata, audits_of, passed_audits, run_audits
from ducklake_dagster.io.commit import OutputCommit, WrittenOutput, table_writers
from ducklake_dagster.io.handlers import ArrowHandler, FrameHandler, handler_for_frame, outside_text
from ducklake_dagster.partitions.predicates import SlicePredicate, reject_equal_keys, slice_bounds, slice_predicate
from ducklake_dagster.partitions.slices import PartitionDimension, TableSlice, partition_boxes, partition_dimensions

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Schema, Table, Transaction


# Maximum number of attempts when other writers change the table while its rows are audited.
_AUDIT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutput:
    """The plan of one output.

    Attributes:
        subject: Asset key, for messages.
        frame: The frame that the asset returned, in the form of its handler.
        address: The table that it is written to.
        settings: Settings of the write.
        partition_keys: Keys of the run, sorted; empty for an asset without partitions.
        table_slice: Rows of these partitions.
        dimensions: Partition dimensions of the asset, each with all of its keys.
        asset: The asset as sensors and checks see it, None for the output of an op.
        provenance: Commit id, message and facts about the run.
        comments: Descriptions of the table and its columns, which become comments.
        audits: Conditions that rows must meet before they are committed.
        branch: The branch that is written to, None for production.
        declared: Columns that the definition declares for the table; None when it declares none.
        creates_nothing: Whether there are neither rows nor columns to create the table with.
        kept_rows: Why nothing is written with write_mode ``ignore``, None if rows are written.
    """

    subject: str
    frame: Any
    handler: FrameHandler
    address: TableAddress
    settings: WriteSettings
    partition_keys: tuple[str, ...]
    table_slice: TableSlice
    dimensions: tuple[tuple[PartitionDimension, tuple[str, ...]], ...]
    asset: AssetTable | None
    provenance: Provenance
    comments: TableComments
    audits: Mapping[str, Audit]
    branch: str | None
    declared: Schema | None = None
    creates_nothing: bool = False
    kept_rows: str | None = None

    @property
    def columns(self) -> Schema:
        """Return the frame's columns, without reading its rows."""
        from ducklake_core import Schema, columns_of

        return Schema(columns=()) if self.creates_nothing else columns_of(self.frame)

    def settled(self, table: Table | None) -> TableOutput:
        """Return the plan with the columns of the table, or of the definition, for a frame without rows.

        Types of a frame without rows are not reliable: pandas uses the type object, and an empty list has no columns. A frame that is not
        in memory is read only when its columns do not fit.

        Args:
            table: The table before the write, None when it does not exist yet.
        """
        has_columns = self._has_columns(table)
        if not self.handler.is_surely_empty(self.frame):
            if has_columns:
                return self
            is_empty, frame = self.handler.checked_empty(self.frame)
            if not is_empty:
                return replace(self, frame=frame)
        columns = table.schema if table is not None else self.declared
        if columns is not None:
            return replace(self, frame=columns.to_arrow().empty_table(), handler=ArrowHandler())
        return self if has_columns else replace(self, frame=[], handler=ArrowHandler(), creates_nothing=True)

    def _has_columns(self, table: Table | None) -> bool:
        """Return whether the frame has the partition columns, and the columns that a table needs, or types to create one with."""
        names = {folded(name) for name in self.handler.column_names(self.frame)}
        wanted = {folded(constraint.column) for box in self.table_slice.boxes or () for constraint in box}
        if table is None:
            return wanted <= names and self.handler.is_typed(self.frame)
        if self.settings.rejects_missing_columns:
            wanted |= {folded(column.name) for column in table.schema if column.default is None}
        return bool(names) and wanted <= names

    def table(self, lake: DuckLake) -> Table | None:
        """Return the table before the write; None when the write will create it."""
        try:
            return lake.table(self.address.sql)
        except NotFoundError:
            return None

    def absent(self, lake: DuckLake, table: Table | None) -> TableOutput:
        """Return the plan for a write that must not replace rows: without the partitions that have rows, if the mode is ``ignore``.

        Args:
            lake: The lake, whose newest commits an earlier attempt of the step may have made.
            table: The table before the write, None when it does not exist yet.

        Raises:
            AlreadyExistsError: The mode is ``error``, and the table has rows where the output belongs.
        """
        if table is None or not self.settings.needs_absence or lake.find_commit(self.provenance.commit_id) is not None:
            return self
        present = self._present_keys(table) if self.table_slice.boxes is not None else None
        if present is not None and not present:
            return self
        if self.settings.write_mode == "error":
            what = f"table {self.address} exists" if present is None else f"table {self.address} has rows of {_listed(present)}"
            raise AlreadyExistsError(
                f"asset {self.subject} has write_mode 'error', and {what}. Nothing was written. Delete the rows first, or use write_mode "
                "'overwrite' to replace them or 'ignore' to keep them",
                table=str(self.address),
            )
        kept = tuple(key for key in self.partition_keys if key not in (present or self.partition_keys))
        if not kept or self.asset is None or self.asset.partitions_def is None:
            return replace(self, kept_rows=f"table {self.address} exists" if present is None else f"it has rows of {_listed(present)}")
        boxes = partition_boxes(self.asset.partitions_def, kept, self.asset.partition_expr, subject=self.subject)
        rest = replace(self, table_slice=replace(self.table_slice, boxes=boxes), partition_keys=kept)
        of_run, absent = self.predicate(table), rest.predicate(table)
        if of_run is None or absent is None:
            return rest
        # The commit checks rows against the partitions without rows, so the frame is checked against those of the run before.
        frame = self.frame if self.settings.out_of_slice == "filter" else self.handler.reject_outside(self.frame, of_run, self.subject)
        return replace(rest, frame=self.handler.keep_inside(frame, absent))

    def _present_keys(self, table: Table) -> tuple[str, ...]:
        """Return the partition keys of the run that have rows."""
        asset = self.asset
        if asset is None or asset.partitions_def is None:
            return ()

        def has_rows(keys: Sequence[str]) -> bool:
            boxes = partition_boxes(asset.partitions_def, keys, asset.partition_expr, subject=self.subject)  # type: ignore[arg-type]
            predicate = slice_predicate(replace(self.table_slice, boxes=boxes), schema_lookup(table.schema))
            return bool(table.scan(where=predicate.to_condition() if predicate else None).count())

        # A backfill usually writes new partitions: one count for all of them is enough then.
        found = has_rows(self.partition_keys)
        if not found or len(self.partition_keys) == 1:
            return self.partition_keys if found else ()
        return tuple(key for key in self.partition_keys if has_rows([key]))

    def missing_columns(self, table: Table | None) -> tuple[str, ...]:
        """Return columns of the table that the frame lacks, so that its rows get NULL or the default there.

        Raises:
            SchemaError: Some of them have no default, and the settings do not allow NULL.
        """
        if table is None or self.settings.schema_evolution == "replace":
            return ()
        given = self.columns
        missing = [column for column in table.schema if given.find(column.name) is None]
        without = tuple(column.name for column in missing if column.default is None)
        if without and self.settings.rejects_missing_columns:
            raise SchemaError(
                f"the data for {self.address} lacks columns {', '.join(without)} of the table, which have no default. Add them, or set "
                "missing_columns to 'null' to write NULL",
                table=str(self.address),
                columns=without,
            )
        return tuple(column.name for column in missing)

    def predicate(self, table: Table | None) -> SlicePredicate | None:
        """Return the slice as a predicate over the table's types, or the frame's for a table or column that does not exist yet.

        Raises:
            UsageError: The frame lacks a partition column, its type does not fit the partitions, or two partition keys are equal as
                values of it.
        """
        if self.table_slice.boxes is None or self.creates_nothing:
            return None
        in_frame = self.columns
        in_table = table.schema if table is not None else None

        def column_type(name: str) -> tuple[str, str]:
            mine, stored = in_frame.find(name), in_table.find(name) if in_table else None
            if mine is None:
                raise UsageError(
                    f"the data for {self.address} has no column {name!r}, but partition_expr needs it. Its columns are "
                    f"{', '.join(in_frame.names)}",
                    table=str(self.address),
                    column=name,
                )
            # The condition is about stored values, so the table's type decides; the frame must only have the column.
            return mine.name, str((stored or mine).type)

        for dimension, keys in self.dimensions:
            name, type_name = column_type(dimension.column)
            reject_equal_keys(keys, dimension.expression.unit, type_name, name, subject=self.subject)
        return slice_predicate(self.table_slice, column_type)

    def write(
        self, lake: DuckLake, table: Table | None, predicate: SlicePredicate | None, publish: Callable[[Sequence[AuditResult]], None]
    ) -> WrittenOutput:
        """Write it in exactly one commit, which also sets the keys and comments that the definition declares.

        Args:
            lake: The lake.
            table: The result of :meth:`table`.
            predicate: The slice.
            publish: Called with the results of the audits; an error that it raises ends the write without a commit.

        Raises:
            UsageError: Rows of another asset would be replaced, or a row lies outside the slice.
        """
        if self.kept_rows is not None:
            return self._nothing_written(lake)
        frame = self.rows(predicate)
        with self.explaining():
            if self.audits and not self.creates_nothing:
                return self._audited(lake, table, frame, predicate, publish)
            return self.commit(table, frame, predicate).run(lake)

    def _nothing_written(self, lake: DuckLake) -> WrittenOutput:
        from ducklake_core import WriteResult

        table = lake.table(self.address.sql)
        result = WriteResult(table=self.address.sql, table_id=table.state.id, snapshot=lake.snapshot(table.snapshot_id), committed=False)
        return WrittenOutput(result=result, notes={"ducklake/skipped": f"nothing was written, because {self.kept_rows}"})

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add advice to the error about a row outside of the slice."""
        try:
            yield
        except UsageError as error:
            row = error.details.get("row_outside")
            if row is None:
                raise
            raise UsageError(outside_text(self.subject, f"the row with {row}"), asset=self.subject, table=str(self.address)) from None

    def rows(self, predicate: SlicePredicate | None) -> Any:
        """Return the frame, filtered or checked for rows outside of the slice as the settings demand."""
        if predicate and self.settings.out_of_slice == "filter":
            return self.handler.keep_inside(self.frame, predicate)
        # An overwrite checks rows against its own condition while it writes them. Other modes have no condition, so the frame is checked.
        if predicate and not self.settings.overwrites:
            return self.handler.reject_outside(self.frame, predicate, self.subject)
        return self.frame

    def audit(self, tx: Transaction, predicate: SlicePredicate | None) -> list[AuditResult]:
        """Return the results of the audits on the rows that an open transaction would leave behind."""
        inside = predicate.to_condition() if predicate else None
        return run_audits(tx, self.address.sql, self.audits, inside, self.handler.session_of(self.frame))

    def commit(self, table: Table | None, frame: Any, predicate: SlicePredicate | None) -> OutputCommit:
        """Return the content of the commit.

        Raises:
            UsageError: Rows of another asset would be replaced.
        """
        writers, rows = table_writers(table, self.address), slice_bounds(predicate)
        if self.settings.replaces_rows and not self.settings.shared:
            writers.reject_to_replace_rows_of_others(self.address, self.provenance.writer, rows)
        known = writers.after(self.provenance.writer, rows, overwrites=self.settings.overwrites)
        return OutputCommit(
            address=self.address,
            frame=frame,
            columns=self.columns,
            settings=self.settings,
            table=table,
            predicate=predicate,
            creates_nothing=self.creates_nothing,
            comments=() if self.creates_nothing else self.comments.differing_from(table, self.columns),
            writer=self.provenance.writer,
            rows=rows,
            writers=known,
            commit={
                "author": AUTHOR,
                "message": self.provenance.message,
                "extra_info": self.provenance.with_writers(known),
                "commit_id": self.provenance.commit_id,
            },
        )

    def _audited(
        self,
        lake: DuckLake,
        table: Table | None,
        frame: Any,
        predicate: SlicePredicate | None,
        publish: Callable[[Sequence[AuditResult]], None],
    ) -> WrittenOutput:
        """Write in a transaction, audit the rows that it would leave behind, and commit only then."""
        # stage -> audit the staged table -> publish the results -> commit
        #
        # run_audits guards the table, so a commit of another writer in between is a conflict: it would change the rows that were audited.
        # The write then starts again on the new state of the table. It does not start again if the overwrite would replace rows that its
        # writer has not seen (concurrent_appends="fail" requests this error), or if the frame is a stream, which can be read only once.
        results: list[AuditResult] = []

        def look(tx: Transaction) -> None:
            results[:] = self.audit(tx, predicate)
            publish(results)

        for attempt in range(_AUDIT_ATTEMPTS):
            results.clear()
            try:
                written = self.commit(table, frame, predicate).run(lake, look)
            except CommitConflictError as conflict:
                if conflict.details.get("unseen_rows"):
                    raise
                if attempt + 1 == _AUDIT_ATTEMPTS or not self.handler.is_replayable(frame):
                    raise
                table = self.table(lake)
                continue
            if written.result.repeated:
                results[:] = passed_audits(written.result.snapshot)
            return replace(written, notes={**written.notes, RESULTS: audit_metadata(results)}) if results else written
        raise AssertionError("the last attempt returns or raises")


def plan_output(
    context: dg.OutputContext, frame: Any, defaults: WriteSettings, default_schema: str | None, *, comments: bool, branch: Branch | None
) -> TableOutput:
    """Plan an output, without a connection to the lake.

    Args:
        context: The output.
        frame: The frame that the asset returned.
        defaults: Settings of the IO manager.
        default_schema: The ``schema`` setting of the IO manager.
        comments: Whether descriptions of the definition become comments of the table.
        branch: The branch that is written to, None for production.

    Raises:
        UsageError: The asset did not return a frame, a setting is invalid, or partitions have no column.
    """
    subject = output_subject(context)
    handler = handler_for_frame(frame, subject)
    definition = plain_metadata(context.definition_metadata or {})
    run_time = plain_metadata(context.output_metadata)
    reject_other_names(run_time, definition, subject)
    reject_prefixed_settings(run_time, subject)
    reject_unknown_keys(definition, OUTPUT_KEYS, f"asset {subject}")
    address = output_address(context, definition, default_schema)
    address = branch.address(address) if branch is not None else address
    keys = tuple(sorted(context.asset_partition_keys)) if context.has_asset_partitions else ()
    boxes = None
    dimensions: tuple[tuple[PartitionDimension, tuple[str, ...]], ...] = ()
    if context.has_asset_partitions:
        boxes = partition_boxes(context.asset_partitions_def, keys, definition.get("partition_expr"), subject=subject)
        if not boxes:
            raise UsageError(
                f"the run has no partitions of {subject}, so its output has no rows to replace. Start the run with a partition of this "
                "asset",
                asset=subject,
            )
        dimensions = _with_keys(
            context, partition_dimensions(context.asset_partitions_def, definition.get("partition_expr"), subject=subject)
        )
    settings = resolve_settings(defaults, definition, run_time, subject=subject)
    if boxes is None and settings.replaces_rows:
        _reject_no_partitions(context, subject)
    audits = audits_of(definition, subject)
    reject_replaced_columns(settings, partitioned=boxes is not None, subject=subject)
    return TableOutput(
        subject=subject,
        frame=handler.opened(frame),
        handler=handler,
        address=address,
        settings=settings,
        partition_keys=keys,
        table_slice=TableSlice(schema=address.schema, table=address.table, boxes=boxes),
        dimensions=dimensions,
        asset=_asset(context, address, definition),
        provenance=provenance(context, keys, branch=branch.name if branch is not None else None, audits=list(audits)),
        comments=table_comments(context, definition) if comments else TableComments(),
        audits=audits,
        branch=branch.name if branch is not None else None,
        declared=declared_columns(definition.get("dagster/column_schema")),
    )


def _listed(keys: Sequence[str]) -> str:
    return f"partition {keys[0]}" if len(keys) == 1 else f"{len(keys)} partitions, such as {keys[0]}"


def _with_keys(
    context: dg.OutputContext, dimensions: Sequence[PartitionDimension]
) -> tuple[tuple[PartitionDimension, tuple[str, ...]], ...]:
    try:
        store = context.step_context.instance
    except dg.DagsterInvariantViolationError:
        # A context that a test builds has no step.
        store = None
    return tuple((dimension, dimension.all_keys(store)) for dimension in dimensions)


def _reject_no_partitions(context: dg.OutputContext, subject: str) -> None:
    """Reject an overwrite of a partitioned asset by a run without partitions: it would replace all of them.

    Raises:
        UsageError: The asset is partitioned.
    """
    spec = spec_of(context)
    if spec is not None and spec.partitions_def is not None:
        raise UsageError(
            f"asset {subject} is partitioned, but the run has no partitions, so its output would replace the rows of all of them. Start "
            "the run with a partition key or a range of partitions",
            asset=subject,
        )


def declared_columns(declared: object) -> Schema | None:
    """Return columns that a definition declares with DuckLake types, None when there are none or one has another type."""
    from ducklake_core import Field, Schema, data_type_of

    if not isinstance(declared, dg.TableSchema) or not declared.columns:
        return None
    try:
        return Schema(columns=tuple(Field(name=column.name, type=data_type_of(column.type)) for column in declared.columns))
    except DuckLakeError:
        return None


def _asset(context: dg.OutputContext, address: TableAddress, definition: Mapping[str, Any]) -> AssetTable | None:
    if not context.has_asset_key:
        return None
    partitions = context.asset_partitions_def if context.has_asset_partitions else None
    return AssetTable(key=context.asset_key, address=address, partitions_def=partitions, partition_expr=definition.get("partition_expr"))


def schema_lookup(schema: Schema) -> Callable[[str], tuple[str, str] | None]:
    """Return a function that finds the exact name and type name of a column by a name in any case."""

    def column_type(name: str) -> tuple[str, str] | None:
        column = schema.find(name)
        return (column.name, str(column.type)) if column else None

    return column_type


def without_keys(metadata: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the keys that the user set, because Dagster would prefer the IO manager's values."""
    return {key: value for key, value in metadata.items() if key not in taken}
