"""Storing options (specification: Configuration, ducklake_metadata)."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, delete, insert

from ducklake_core.catalog.tables import CatalogTables


def store_option(
    connection: Connection, tables: CatalogTables, key: str, value: str, scope: Literal["schema", "table"] | None, scope_id: int | None
) -> None:
    """Set an option for the lake (scope None), a schema or a table, in an open write transaction. Makes no snapshot."""
    metadata = tables["metadata"]
    same_scope = metadata.c.scope.is_(None) if scope is None else metadata.c.scope == scope
    same_id = metadata.c.scope_id.is_(None) if scope_id is None else metadata.c.scope_id == scope_id
    connection.execute(delete(metadata).where(metadata.c.key == key, same_scope, same_id))
    connection.execute(insert(metadata), {"key": key, "value": value, "scope": scope, "scope_id": scope_id})
