"""Rows of snapshots with what they changed, as values."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from sqlalchemy import Select, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.versions import stored_version
from ducklake_core.format.state import Snapshot


def snapshot_query(tables: CatalogTables) -> Select[Any]:
    """Snapshots with what they changed, and the version that the catalog has by now; :func:`snapshot_of` reads the rows."""
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    source = snapshot.outerjoin(changes, changes.c.snapshot_id == snapshot.c.snapshot_id)
    said = stored_version(tables).label("version")
    return select(snapshot, *(column for column in changes.c if column.name != "snapshot_id"), said).select_from(source)


def snapshot_of(row: Any) -> Snapshot:
    """A snapshot of a row that came through SQLAlchemy, or from the driver itself."""
    return Snapshot(
        id=row.snapshot_id,
        time=row.snapshot_time and row.snapshot_time.astimezone(UTC),
        schema_version=row.schema_version,
        next_catalog_id=row.next_catalog_id,
        next_file_id=row.next_file_id,
        changes=row.changes_made or "",
        author=row.author,
        message=row.commit_message,
        extra_info=row.commit_extra_info,
    )
