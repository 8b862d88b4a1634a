"""Store and forget that writes are running, see :mod:`ducklake_core.catalog.reading.running_writes`. Makes no snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.running_writes import WRITE_PREFIX, read_running_writes
from ducklake_core.catalog.writing.head import chunks


def store_running_writes(connection: Connection, tables: CatalogTables, write_ids: Sequence[str], now: datetime) -> None:
    """Store that writes were heard of."""
    forget_running_writes(connection, tables, write_ids)
    heard = now.astimezone(UTC).isoformat()
    rows = [{"key": WRITE_PREFIX + write_id, "value": heard, "scope": None, "scope_id": None} for write_id in write_ids]
    connection.execute(insert(tables["metadata"]), rows)


def forget_running_writes(connection: Connection, tables: CatalogTables, write_ids: Iterable[str]) -> None:
    """Forget writes that have ended."""
    metadata = tables["metadata"]
    for keys in chunks(WRITE_PREFIX + write_id for write_id in write_ids):
        connection.execute(delete(metadata).where(metadata.c.key.in_(keys)))


def forget_lost_writes(connection: Connection, tables: CatalogTables, now: datetime) -> None:
    """Forget writes that were killed; one that was heard of again meanwhile stays."""
    lost = [write.write_id for write in read_running_writes(connection, tables) if write.is_lost(now)]
    forget_running_writes(connection, tables, lost)
