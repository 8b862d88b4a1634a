"""Set and remove options of a lake, a schema or a table. Options have no history and create no snapshot."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.options import delete_option, store_option
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import UsageError
from ducklake_core.format.options import check_option_scope, normalize_option, option_name
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.names import schemas_meant, split_name
from ducklake_core.maintenance.groups import run_write

_Scope: TypeAlias = tuple[Literal["schema", "table"] | None, int | None]


def set_option(database: Database, info: LakeInfo, name: str, value: object, *, table: str | None, schema: str | None) -> None:
    """Set an option; see ``DuckLake.set_option`` for the parameters."""
    key, text = normalize_option(name, value)
    check_option_scope(key, is_lake=table is None and schema is None)

    def attempt() -> None:
        with database.write() as connection:
            store_option(connection, database.tables, key, text, *_scope(CatalogReader(connection, info, database.tables), table, schema))

    run_write(attempt, f"set the option {key}")


def unset_option(database: Database, info: LakeInfo, name: str, *, table: str | None, schema: str | None) -> bool:
    """Remove an option; see ``DuckLake.unset_option`` for the parameters."""
    key = option_name(name)
    found: list[bool] = []

    def attempt() -> None:
        with database.write() as connection:
            scope = _scope(CatalogReader(connection, info, database.tables), table, schema)
            found.append(delete_option(connection, database.tables, key, *scope))

    run_write(attempt, f"unset the option {key}")
    return any(found)


def _scope(reader: CatalogReader, table: str | None, schema: str | None) -> _Scope:
    """Return the scope of an option.

    Raises:
        UsageError: Both a table and a schema are given.
        NotFoundError: The table or schema does not exist.
    """
    if table is not None and schema is not None:
        raise UsageError("table and schema cannot be combined. Pass the table as schema.table, or remove one of them")
    if table is not None:
        return "table", reader.table(*split_name(table), reader.latest_snapshot().id).id
    if schema is not None:
        return "schema", reader.schema(*schemas_meant(schema), snapshot_id=reader.latest_snapshot().id).id
    return None, None
