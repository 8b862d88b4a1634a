"""Storing options (specification: Configuration, ducklake_metadata)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, insert, select

from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.tables import CatalogTables
from ducklake_core.format.names import join_name


def store_option(
    connection: Connection, tables: CatalogTables, key: str, value: str, scope: Literal["schema", "table"] | None, scope_id: int | None
) -> None:
    """Set an option for the lake (scope None), a schema or a table, in an open write transaction. Makes no snapshot."""
    metadata = tables["metadata"]
    same_scope = metadata.c.scope.is_(None) if scope is None else metadata.c.scope == scope
    same_id = metadata.c.scope_id.is_(None) if scope_id is None else metadata.c.scope_id == scope_id
    connection.execute(delete(metadata).where(metadata.c.key == key, same_scope, same_id))
    connection.execute(insert(metadata), {"key": key, "value": value, "scope": scope, "scope_id": scope_id})


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """Every option of a lake: (key in lower case, value, scope, scope_id)."""

    rows: tuple[tuple[str, str, str | None, int | None], ...] = ()

    def in_force(self, schema_id: int | None = None, table_id: int | None = None) -> dict[str, str]:
        """What holds for the lake, a schema or a table: table over schema over lake.

        >>> stored = StoredOptions((("a", "1", None, None), ("a", "2", "table", 7), ("b", "3", "schema", 0)))
        >>> stored.in_force(0, 7), stored.in_force()
        ({'a': '2', 'b': '3'}, {'a': '1'})
        """
        found = {key: value for key, value, scope, _ in self.rows if scope is None}
        for wanted in (("schema", schema_id), ("table", table_id)):
            found |= {key: value for key, value, scope, scope_id in self.rows if scope_id is not None and (scope, scope_id) == wanted}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedOption:
    """One stored option.

    Attributes:
        name: In lower case.
        value: As stored, sizes in bytes.
        scope: ``global`` for the lake, else ``schema`` or ``table``.
        entry: The schema's name, or ``schema.table``; None for the lake, and where it is gone.
    """

    name: str
    value: str
    scope: Literal["global", "schema", "table"]
    entry: str | None = None


def scoped_options(reader: CatalogReader, snapshot_id: int) -> list[ScopedOption]:
    """Every stored option with the name of what it holds for at a snapshot, by option name; None for what is gone."""
    schemas = {schema.id: schema.name for schema in reader.schemas(snapshot_id)}
    tables = {table.id: join_name(table.schema_name, table.name) for table in reader.tables(snapshot_id)}
    found: list[ScopedOption] = []
    for name, value, scope, scope_id in stored_options(reader.connection, reader.catalog).rows:
        match scope:
            case None:
                found.append(ScopedOption(name=name, value=value, scope="global"))
            case "schema":
                found.append(ScopedOption(name=name, value=value, scope="schema", entry=schemas.get(scope_id or 0)))
            case "table":
                found.append(ScopedOption(name=name, value=value, scope="table", entry=tables.get(scope_id or 0)))
            case _:
                continue
    return sorted(found, key=lambda option: (option.name, option.scope, option.entry or ""))


def stored_options(connection: Connection, tables: CatalogTables) -> StoredOptions:
    """All options of the lake in one statement, settings of the lake itself included, as they share the table."""
    metadata = tables["metadata"]
    rows = connection.execute(select(metadata.c.key, metadata.c.value, metadata.c.scope, metadata.c.scope_id))
    return StoredOptions(tuple((row.key.lower(), row.value, row.scope, row.scope_id) for row in rows))
