"""Views and macros: this library makes none, but their names are taken and their schemas are not empty."""

from __future__ import annotations

from sqlalchemy import Connection, literal, select, union_all

from ducklake_core.catalog.tables import CatalogTables
from ducklake_core.catalog.visibility import live


def other_entries(connection: Connection, tables: CatalogTables, schema_id: int, snapshot_id: int) -> list[tuple[str, str]]:
    """Kind (``view`` or ``macro``) and name of what a schema holds beside its tables at a snapshot, by kind and name."""
    view, macro = tables["view"], tables["macro"]
    names = select(literal("view").label("kind"), view.c.view_name.label("name"))
    views = names.where(view.c.schema_id == schema_id, live(view, snapshot_id))
    macros = select(literal("macro"), macro.c.macro_name).where(macro.c.schema_id == schema_id, live(macro, snapshot_id))
    return sorted({(row.kind, row.name) for row in connection.execute(union_all(views, macros))})
