"""Tags: texts by key on tables, views and columns (specification: ducklake_tag, ducklake_column_tag)."""

from __future__ import annotations

from sqlalchemy import select

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import live


def object_tags(reader: CatalogReader, object_id: int, snapshot_id: int) -> dict[str, str]:
    """Tags of a table or view at a snapshot; a tag whose value is NULL was taken away."""
    tag = reader.catalog["tag"]
    rows = reader.connection.execute(select(tag.c.key, tag.c.value).where(tag.c.object_id == object_id, live(tag, snapshot_id)))
    return {row.key: row.value for row in rows if row.value is not None}


def column_tags(reader: CatalogReader, table_id: int, snapshot_id: int) -> dict[int, dict[str, str]]:
    """Tags of a table's columns at a snapshot, by column id; columns without any are left out."""
    tag = reader.catalog["column_tag"]
    found: dict[int, dict[str, str]] = {}
    for row in reader.connection.execute(select(tag).where(tag.c.table_id == table_id, live(tag, snapshot_id))):
        if row.value is not None:
            found.setdefault(row.column_id, {})[row.key] = row.value
    return found
