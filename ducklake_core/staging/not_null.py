"""Proving that a column holds no NULL before it becomes NOT NULL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import SchemaError
from ducklake_core.format.expressions.predicate_builder import is_null

if TYPE_CHECKING:
    from ducklake_core.format.state import TableState
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.staging.context import LakeContext


def check_no_nulls(
    lake: LakeContext, table: TableState, column: str, session: Any = None, overlay: Callable[[ScanPlan], ScanPlan] | None = None
) -> None:
    """Refuse a column that has NULL in a live row.

    Files whose statistics say that they have none are not opened; of the others that one column is read, batch by batch, up to
    the first NULL.

    Args:
        lake: The table's lake.
        table: The table at the snapshot to look at, with the columns that a transaction has made of it.
        column: A top-level column of those.
        session: A Spark session, whose executors look; this process does without it.
        overlay: What the transaction has done to its rows.

    Raises:
        SchemaError: There is one.
    """
    from ducklake_core.scan import Scan

    name = table.schema.column(column).name
    where = is_null(table.schema, (name,))
    scan = Scan(table=table, columns=[name], where=where, reader=lake.reader, storage=lake.storage, overlay=overlay)
    found = any(batch.num_rows for batch in scan.to_batches()) if session is None else not scan.to_spark(session).isEmpty()
    if found:
        raise SchemaError(
            f"column {name!r} of {table.qualified_name} has NULL in it at snapshot {table.snapshot_id}; "
            "give those rows a value, or delete them, before it becomes NOT NULL",
            table=table.qualified_name,
            column=name,
            snapshot_id=table.snapshot_id,
        )
