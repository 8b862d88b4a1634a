"""From an input to one scan: which rows and columns of which snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.handlers import FrameHandler, handler_for_type
from ducklake_dagster.naming import TableAddress, table_address
from ducklake_dagster.slice_predicate import slice_predicate
from ducklake_dagster.table_output import schema_lookup
from ducklake_dagster.table_slice import TableSlice, partition_boxes
from ducklake_dagster.write_settings import plain_metadata

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInput:
    """One input, planned.

    Attributes:
        subject: Asset key, for messages.
        address: The table that is read.
        table_slice: Rows of the upstream partitions at hand, and the columns asked for.
        where: The input's own condition, None for none.
        snapshot: Snapshot to read, None for the newest.
    """

    subject: str
    handler: FrameHandler
    address: TableAddress
    table_slice: TableSlice
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
            return self.handler.empty(session)
        where = self._condition(table)
        columns = self.table_slice.columns
        log("loading %s at snapshot %s, columns %s, where %s", table.name, table.snapshot_id, columns or "all", where or "TRUE")
        return self.handler.load(table, columns, where, session)

    def _condition(self, table: Table) -> str | None:
        predicate = slice_predicate(self.table_slice, schema_lookup(table.schema))
        parts = [part for part in (predicate.to_sql() if predicate else None, self.where) if part]
        return " AND ".join(f"({part})" for part in parts) or None


def plan_input(context: dg.InputContext, default_frame: str, default_schema: str | None) -> TableInput:
    """What will be loaded.

    Raises:
        UsageError: An annotation or metadata that cannot be, or partitions without a column to match them with.
    """
    upstream = context.upstream_output
    stored = plain_metadata((upstream.definition_metadata if upstream else None) or {})
    wanted = plain_metadata(context.definition_metadata or {})
    path = list(context.asset_key.path) if context.has_asset_key else [upstream.name if upstream else context.name]
    subject = "/".join(path)
    boxes = None
    if context.has_asset_partitions:
        expression = stored.get("partition_expr")
        boxes = partition_boxes(context.asset_partitions_def, context.asset_partition_keys, expression, subject=subject)
    address = table_address(path, stored, default_schema)
    return TableInput(
        subject=subject,
        handler=handler_for_type(context.dagster_type.typing_type, default_frame, subject),
        address=address,
        table_slice=TableSlice(schema=address.schema, table=address.table, columns=_columns(wanted, subject), boxes=boxes),
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
