"""The newest snapshot, and what may change of a table although the schema version stays, in one question to the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import CompoundSelect, Dialect, Select, String, bindparam, cast, func, literal, null, or_, select, union_all

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.existing import existing_query
from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.option_rows import StoredOptions, options_of, stored_options_query
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
    history, settings = database.answers(
        ("newest and known", lambda: _history_query(tables), {"known": known}),
        ("current settings", lambda: _settings_query(tables, dialect), {"table_id": table_id, "name": inlined_delete_name(table_id)}),
    )
    if not history:
        raise CatalogCorruptError("the catalog holds no snapshot")
    database.check_version(history[-1].version)
    return Current(
        snapshot=snapshot_of(history[-1]),
        known=next((snapshot_of(row) for row in history if row.snapshot_id == known), None),
        options=options_of(row for row in settings if row.kind == "option"),
        inlined_tables=inlined_tables_of(((row.key, row.value) for row in settings if row.kind == "inlined"), table_id),
        has_inlined_deletes=any(row.kind == "deletes" for row in settings),
    )


def _history_query(tables: CatalogTables) -> Select[Any]:
    number = tables["snapshot"].c.snapshot_id
    newest = select(func.max(number)).scalar_subquery()
    return snapshot_query(tables).where(or_(number == newest, number == bindparam("known"))).order_by(number)


def _settings_query(tables: CatalogTables, dialect: Dialect) -> CompoundSelect[Any]:
    registered = tables["inlined_data_tables"]
    return union_all(
        stored_options_query(tables).add_columns(literal("option").label("kind")),
        select(registered.c.table_name, cast(registered.c.schema_version, String), null(), null(), literal("inlined")).where(
            registered.c.table_id == bindparam("table_id")
        ),
        existing_query(tables, dialect).add_columns(null(), null(), null(), literal("deletes")),
    )
