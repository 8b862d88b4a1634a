"""A mark that every operation changes in the transaction in which it deletes files: one row of ``ducklake_metadata`` (see ``own_rows``).

Whoever adds files of other writers reads it before the files and again in the transaction that commits them. A changed mark means that the
files may have been deleted in between.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Select, delete, insert, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.own_rows import OWN_PREFIX

_KEY = f"{OWN_PREFIX}sweep"


def sweep_mark(tables: CatalogTables) -> Select[Any]:
    """Build the query for the mark; there is no row before the first sweep."""
    metadata = tables["metadata"]
    return select(metadata.c.value).where(metadata.c.key == _KEY)


def change_sweep_mark(connection: Connection, tables: CatalogTables) -> None:
    """Change the mark."""
    metadata = tables["metadata"]
    connection.execute(delete(metadata).where(metadata.c.key == _KEY))
    connection.execute(insert(metadata), {"key": _KEY, "value": uuid4().hex, "scope": None, "scope_id": None})
