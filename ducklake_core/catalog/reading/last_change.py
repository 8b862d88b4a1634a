"""The newest commit that changed rows of a table, found from the end of the history: it need not be read whole."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import String, literal, or_

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.state import Snapshot

_ROW_CHANGES = ("inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")
_BATCH = 100


def last_row_change(reader: CatalogReader, table_id: int, until: int, author: str | None = None) -> Snapshot | None:
    """The newest snapshot up to ``until`` that added or deleted rows of a table, None when there is none (any more)."""
    for snapshot in _mentioning(reader, table_id, until, author):
        changes = snapshot.change_set
        if any(table_id in getattr(changes, kind) for kind in _ROW_CHANGES):
            return snapshot
    return None


def _mentioning(reader: CatalogReader, table_id: int, until: int, author: str | None) -> Iterator[Snapshot]:
    """Snapshots, newest first, whose changes seem to name the table. A quoted name can look so too; usually the first one is right."""
    snapshot, changes = reader.catalog["snapshot"], reader.catalog["snapshot_changes"]
    delimited = literal(",", String).concat(changes.c.changes_made).concat(",")
    mentioned = or_(*(delimited.contains(f",{kind}:{table_id},", autoescape=True) for kind in _ROW_CHANGES))
    query = reader.snapshot_query().where(mentioned).order_by(snapshot.c.snapshot_id.desc()).limit(_BATCH)
    if author is not None:
        query = query.where(changes.c.author == author)
    while True:
        rows = reader.connection.execute(query.where(snapshot.c.snapshot_id <= until)).all()
        found = [reader.snapshot_of(row) for row in rows]
        yield from found
        if len(found) < _BATCH:
            return
        until = found[-1].id - 1
