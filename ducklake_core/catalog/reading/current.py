"""The newest snapshot, and what may change of a table although the schema version stays, in one question to the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Dialect, bindparam, func, literal_column, null, or_, select, union_all

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.existing import existing_query
from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.option_rows import StoredOptions
from ducklake_core.catalog.reading.own_rows import is_option
from ducklake_core.catalog.reading.snapshot_rows import snapshot_of, snapshot_query
from ducklake_core.catalog.reading.table_rows import inlined_tables_of
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.state import InlinedTable, Snapshot

NOTHING = -1
"""An id that no snapshot and no table has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What the catalog says at this moment.

    Attributes:
        snapshot: The newest snapshot.
        known: The snapshot that has the known id now, None when none has it (any more).
        options: All options of the lake.
        inlined_tables: Tables of inlined rows of the table, by schema version.
        has_inlined_deletes: Whether the database has a table for the table's inlined deletes.
    """

    snapshot: Snapshot
    known: Snapshot | None
    options: StoredOptions
    inlined_tables: tuple[InlinedTable, ...]
    has_inlined_deletes: bool


def read_current(database: Database, known: int = NOTHING, table_id: int = NOTHING) -> Current:
    """Ask for all of it in one read transaction; on a server, in one round trip.

    Args:
        database: The catalog.
        known: Id of a snapshot that was seen before.
        table_id: The table.

    Raises:
        CatalogCorruptError: The lake has no snapshot, or a table of inlined rows is registered without a name or version, or for two.
        CatalogVersionError: The catalog was migrated since it was opened.
    """
    tables, dialect = database.tables, database.dialect
    parameters = {"known": known, "table_id": table_id, "name": inlined_delete_name(table_id)}
    (rows,) = database.answers(("current", lambda: _query(tables, dialect), parameters))
    found: dict[str, list[Any]] = {"snapshot": [], "option": [], "inlined": [], "deletes": []}
    for row in rows:
        found[row.kind].append(row)
    if not found["snapshot"]:
        raise CatalogCorruptError("the catalog holds no snapshot")
    newest = max(found["snapshot"], key=lambda row: row.snapshot_id)
    database.check_version(newest.version)
    return Current(
        snapshot=snapshot_of(newest),
        known=next((snapshot_of(row) for row in found["snapshot"] if row.snapshot_id == known), None),
        options=StoredOptions(tuple(_option(row) for row in found["option"])),
        inlined_tables=inlined_tables_of(((row.changes_made, _text(row.schema_version)) for row in found["inlined"]), table_id),
        has_inlined_deletes=bool(found["deletes"]),
    )


def _query(tables: CatalogTables, dialect: Dialect) -> CompoundSelect[Any]:
    """Rows of several kinds under the columns of a snapshot, each in one of its own type: a statement by itself sees one state.

    ::

        kind       snapshot_id  ...  schema_version  next_file_id  changes_made  author  commit_message  ...
        snapshot   7                 3               12            inserted...   me      why
        option                                       scope_id      key           value   scope
        inlined                      schema_version                table_name
        deletes                                                    table_name
    """
    number, registered, metadata = tables["snapshot"].c.snapshot_id, tables["inlined_data_tables"], tables["metadata"]
    newest = select(func.max(number)).scalar_subquery()
    history = snapshot_query(tables).add_columns(literal_column("'snapshot'").label("kind"))
    names = history.selected_columns.keys()

    def like_history(kind: str, **cells: ColumnElement[Any]) -> list[ColumnElement[Any]]:
        given = cells | {"kind": literal_column(f"'{kind}'")}
        return [given.get(name, null()).label(name) for name in names]

    option = like_history(
        "option", changes_made=metadata.c.key, author=metadata.c.value, commit_message=metadata.c.scope, next_file_id=metadata.c.scope_id
    )
    inlined = like_history("inlined", changes_made=registered.c.table_name, schema_version=registered.c.schema_version)
    deletes = existing_query(tables, dialect)
    return union_all(
        history.where(or_(number == newest, number == bindparam("known"))),
        select(*option).where(is_option(metadata)),
        select(*inlined).where(registered.c.table_id == bindparam("table_id")),
        deletes.with_only_columns(*like_history("deletes", changes_made=deletes.selected_columns[0])),
    )


def _text(number: object) -> str | None:
    return None if number is None else str(number)


def _option(row: Any) -> tuple[str, str, str | None, int | None]:
    return row.changes_made.lower(), row.author, row.commit_message, row.next_file_id
