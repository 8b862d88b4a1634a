"""From an input to one scan: which rows and columns of which snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.handlers import FrameHandler, handler_for_type
from ducklake_dagster.naming import TableAddress, output_address, table_address
from ducklake_dagster.slice_predicate import slice_predicate
from ducklake_dagster.table_output import schema_lookup
from ducklake_dagster.table_slice import TableSlice, partition_boxes
from ducklake_dagster.write_settings import INPUT_KEYS, plain_metadata, refuse_unknown_keys

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core import Condition, DuckLake, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInput:
    """One input, planned.

    Attributes:
        subject: Asset key, for messages.
        address: The table that is read.
        table_slice: Rows of the upstream partitions at hand, and the columns asked for.
        declared: Columns that the upstream asset's definition says the table has, for when there is no table yet.
        where: The input's own condition, None for none.
        snapshot: Snapshot to read, None for the newest.
    """

    subject: str
    handler: FrameHandler
    address: TableAddress
    table_slice: TableSlice
    declared: dg.TableSchema | None
    where: str | None
    snapshot: int | None

    def load(self, lake: DuckLake, session: Callable[[], Any], log: Callable[..., None]) -> Any:
        """The rows.

        Raises:
            NotFoundError: The table, a column or the snapshot does not exist.
        """
        try:
            table = lake.table(self.address.sql, at=self.snapshot)
        except NotFoundError:
            # The first partition of an asset that reads its own past has nothing to read, and no table yet.
            if self.table_slice.boxes != ():
                raise
            return self.handler.empty(self._no_rows(), session)
        where = self._condition(table)
        columns = self.table_slice.columns
        log("loading %s at snapshot %s, columns %s, where %s", table.name, table.snapshot_id, columns or "all", self._shown(table))
        return self.handler.load(table, columns, where, session)

    def _no_rows(self) -> pa.Table:
        """The columns that the definition declares, as far as it does."""
        from ducklake_core import Field, Schema, data_type_of

        declared = self.declared.columns if self.declared is not None else []
        schema = Schema(columns=tuple(Field(name=column.name, type=data_type_of(column.type)) for column in declared)).to_arrow()
        rows = schema.empty_table()
        return rows.select(list(self.table_slice.columns)) if self.table_slice.columns and declared else rows

    def _condition(self, table: Table) -> Condition | str | None:
        from ducklake_core import AllOf

        predicate = slice_predicate(self.table_slice, schema_lookup(table.schema))
        parts = tuple(part for part in (predicate.to_condition() if predicate else None, self.where) if part is not None)
        return AllOf(conditions=parts) if parts else None

    def _shown(self, table: Table) -> str:
        predicate = slice_predicate(self.table_slice, schema_lookup(table.schema))
        parts = [part for part in (predicate.shown() if predicate else None, self.where) if part]
        return " AND ".join(f"({part})" for part in parts) or "TRUE"


def plan_input(context: dg.InputContext, default_frame: str, default_schema: str | None) -> TableInput:
    """Plan the load.

    Raises:
        UsageError: An annotation or metadata that cannot be, or partitions without a column to match them with.
    """
    upstream = context.upstream_output
    stored = plain_metadata((upstream.definition_metadata if upstream else None) or {})
    wanted = plain_metadata(context.definition_metadata or {})
    path = list(context.asset_key.path) if context.has_asset_key else [upstream.name if upstream else context.name]
    subject = "/".join(path)
    refuse_unknown_keys(wanted, INPUT_KEYS, f"input {subject}")
    boxes = None
    if context.has_asset_partitions:
        expression = stored.get("partition_expr")
        boxes = partition_boxes(context.asset_partitions_def, context.asset_partition_keys, expression, subject=subject)
    if upstream is None or context.has_asset_key:
        address = table_address(path, stored, default_schema)
    else:
        address = output_address(upstream, stored, default_schema)
    return TableInput(
        subject=subject,
        handler=handler_for_type(context.dagster_type.typing_type, default_frame, subject),
        address=address,
        table_slice=TableSlice(schema=address.schema, table=address.table, columns=_columns(wanted, subject), boxes=boxes),
        declared=schema if isinstance(schema := stored.get("dagster/column_schema"), dg.TableSchema) else None,
        where=_typed(wanted, "ducklake/where", str, "SQL text", subject),
        snapshot=_typed(wanted, "ducklake/snapshot", int, "a snapshot id", subject),
    )


def _typed(metadata: Mapping[str, Any], key: str, kind: type, what: str, subject: str) -> Any:
    value = metadata.get(key)
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"input {subject}: metadata {key!r} must be {what}, not {value!r}", input=subject)
    return value


def _columns(metadata: Mapping[str, Any], subject: str) -> tuple[str, ...] | None:
    columns = metadata.get("columns")
    if columns is None:
        return None
    if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"input {subject}: metadata 'columns' must be a list of names, not {columns!r}", input=subject)
    return tuple(columns)
