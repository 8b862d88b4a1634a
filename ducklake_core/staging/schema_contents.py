"""What a schema holds at a snapshot, for dropping it."""

from __future__ import annotations

from ducklake_core.catalog.reading.macros import macros
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.views import views
from ducklake_core.commit.definition_actions import DropMacro, DropTable, DropView
from ducklake_core.format.state import SchemaState


def drops_of(reader: CatalogReader, schema: SchemaState, snapshot_id: int) -> list[DropTable | DropView | DropMacro]:
    """An action for each table, view and macro of a schema that drops it."""
    own_tables = [table for table in reader.tables(snapshot_id) if table.schema_id == schema.id]
    own_views = [view for view in views(reader, snapshot_id) if view.schema_id == schema.id]
    own_macros = [macro for macro in macros(reader, snapshot_id) if macro.schema_id == schema.id]
    return [
        *(DropTable(table_id=table.id, schema_name=schema.name, name=table.name) for table in own_tables),
        *(DropView(view_id=view.id, schema_name=schema.name, name=view.name) for view in own_views),
        *(DropMacro(macro_id=macro.id, schema_name=schema.name, name=macro.name, kind=macro.kind) for macro in own_macros),
    ]
