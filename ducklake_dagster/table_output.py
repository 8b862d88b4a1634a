"""From an asset's output to one commit: what to write where, decided and refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.engines import schema_of
from ducklake_core.errors import UsageError
from ducklake_dagster.handlers import FrameHandler, handler_for_frame
from ducklake_dagster.naming import TableAddress, table_address
from ducklake_dagster.provenance import AUTHOR, Provenance, output_subject, provenance
from ducklake_dagster.slice_predicate import SlicePredicate, slice_predicate
from ducklake_dagster.table_slice import TableSlice, partition_boxes
from ducklake_dagster.write_settings import WriteSettings, plain_metadata, resolve_settings

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Schema, WriteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutput:
    """One output, planned.

    Attributes:
        subject: Asset key, for messages.
        frame: What the asset returned.
        address: The table that it goes to.
        settings: How it is written.
        partition_keys: Keys of the run, sorted; empty for an asset without partitions.
        table_slice: Their rows.
        provenance: What the commit says about itself.
    """

    subject: str
    frame: Any
    handler: FrameHandler
    address: TableAddress
    settings: WriteSettings
    partition_keys: tuple[str, ...]
    table_slice: TableSlice
    provenance: Provenance

    def predicate(self, lake: DuckLake) -> SlicePredicate | None:
        """The slice as a predicate over the table's types, or the frame's for a table or column that does not exist yet.

        Raises:
            UsageError: The frame lacks a partition column, or its type cannot be matched with the partitions.
        """
        in_frame = schema_of(self.frame)
        in_table = lake.table(self.address.sql).schema if lake.has_table(self.address.sql) else None

        def column_type(name: str) -> tuple[str, str]:
            mine, stored = in_frame.find(name), in_table.find(name) if in_table else None
            if mine is None:
                raise UsageError(
                    f"the frame for {self.address} has no column {name!r}, which partition_expr names; it has: {', '.join(in_frame.names)}",
                    table=str(self.address),
                    column=name,
                )
            return mine.name, str((stored or mine).type)

        return slice_predicate(self.table_slice, column_type)

    def write(self, lake: DuckLake, predicate: SlicePredicate | None) -> WriteResult:
        """Write it, in exactly one commit."""
        replaces = self.settings.write_mode == "overwrite"
        frame = self.frame
        if predicate and self.settings.out_of_slice == "filter":
            frame = self.handler.keep_inside(frame, predicate)
        elif predicate and not replaces:
            frame = self.handler.refuse_outside(frame, predicate, self.subject)
        return lake.write(
            self.address.sql,
            frame,
            mode=self.settings.write_mode,
            where=predicate.to_sql() if predicate and replaces else None,
            on=self.settings.upsert_keys if self.settings.write_mode == "upsert" else (),
            partition_by=self.settings.partition_by,
            schema_evolution=self.settings.schema_evolution,
            author=AUTHOR,
            message=self.provenance.message,
            extra_info=self.provenance.extra_info,
            commit_id=self.provenance.commit_id,
        )


def plan_output(context: dg.OutputContext, frame: Any, defaults: WriteSettings, default_schema: str | None) -> TableOutput:
    """What the output will be.

    Raises:
        UsageError: No frame, a setting that cannot be, or partitions without a column to match them with.
    """
    subject = output_subject(context)
    handler = handler_for_frame(frame, subject)
    definition = plain_metadata(context.definition_metadata or {})
    run_time = plain_metadata(context.output_metadata)
    path = list(context.asset_key.path) if context.has_asset_key else [context.name]
    address = table_address(path, {**definition, **run_time}, default_schema)
    keys = tuple(sorted(context.asset_partition_keys)) if context.has_asset_partitions else ()
    boxes = None
    if context.has_asset_partitions:
        boxes = partition_boxes(context.asset_partitions_def, keys, definition.get("partition_expr"), subject=subject)
        if not boxes:
            raise UsageError(f"the run has no partitions of {subject}, so there is nothing that its output could replace", asset=subject)
    return TableOutput(
        subject=subject,
        frame=frame,
        handler=handler,
        address=address,
        settings=resolve_settings(defaults, definition, run_time, subject=subject),
        partition_keys=keys,
        table_slice=TableSlice(schema=address.schema, table=address.table, boxes=boxes),
        provenance=provenance(context, keys),
    )


def schema_lookup(schema: Schema) -> Callable[[str], tuple[str, str] | None]:
    """Exact name and type name of a table's column, by a name in any case."""

    def column_type(name: str) -> tuple[str, str] | None:
        column = schema.find(name)
        return (column.name, str(column.type)) if column else None

    return column_type


def without_keys(metadata: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without the keys that the user set: Dagster lets an IO manager's value win over the user's, and the user's must."""
    return {key: value for key, value in metadata.items() if key not in taken}
