"""Proving that a column holds no NULL before it becomes NOT NULL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import SchemaError
from ducklake_core.format.predicate_builder import is_null
from ducklake_core.format.schema import committed_at

if TYPE_CHECKING:
    from ducklake_core.catalog.state import TableState
    from ducklake_core.lake import DuckLake


def check_no_nulls(lake: DuckLake, committed: TableState, wanted: TableState, column_id: int, session: Any = None) -> None:
    """Refuse a column that has NULL in a live row of the committed table.

    Files whose statistics say that they have none are not opened; of the others that one column is read, batch by batch, up to
    the first NULL.

    Args:
        lake: The table's lake.
        committed: The table at the snapshot to look at.
        wanted: The table with its columns as they shall be.
        column_id: A top-level column of those.
        session: A Spark session, whose executors look; this process does without it.

    Raises:
        SchemaError: There is one.
    """
    from ducklake_core.scan.scan import Scan

    state = replace(committed, schema=committed_at(wanted.schema, committed.snapshot_id + 1))
    name = state.schema.by_id()[column_id].name
    scan = Scan(table=state, columns=[name], where=is_null(state.schema, (name,)), reader=lake.reader, storage=lake.storage)
    found = any(batch.num_rows for batch in scan.to_batches()) if session is None else not scan.to_spark(session).isEmpty()
    if found:
        raise SchemaError(
            f"column {name!r} of {committed.qualified_name} has NULL in it at snapshot {committed.snapshot_id}; "
            "give those rows a value, or delete them, before it becomes NOT NULL",
            table=committed.qualified_name,
            column=name,
            snapshot_id=committed.snapshot_id,
        )
