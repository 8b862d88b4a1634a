"""The one transaction of a migration."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlalchemy import Connection, Table, select

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.earlier_tables import stored_tables
from ducklake_core.catalog.database.versions import CATALOG_VERSION, read_layout
from ducklake_core.catalog.migrations.counted_files import counted_files
from ducklake_core.catalog.migrations.steps import Step, run_step, steps_to_current
from ducklake_core.errors import CatalogCorruptError, CatalogVersionError
from ducklake_core.format.state import LakeInfo

Outcome: TypeAlias = tuple[Step, ...] | Literal["done before", "other files"]


def stored_version(connection: Connection, database: Database) -> str | None:
    """The version that the catalog tells now, whatever it was when the lake was opened."""
    metadata = database.tables["metadata"]
    return connection.execute(select(metadata.c.value).where(metadata.c.key == "version")).scalar()


def migrate_catalog(database: Database, info: LakeInfo, known: frozenset[int], forgotten: tuple[int, ...]) -> Outcome:
    """Carry out all steps, or none.

    Args:
        known: Ids of the data files with counted rows that were looked into.
        forgotten: Ids of those that do not store the snapshot with each row.

    Returns:
        The steps that were carried out, ``done before`` when another process was first, or ``other files`` when a writer of the
        old version has added files that must be looked into.

    Raises:
        CatalogVersionError: The catalog has yet another version by now.
        CatalogCorruptError: Its tables are not those of any version; nothing was changed.
    """
    schema, layout = database.tables.schema, database.layout
    assert layout is not None
    with database.write(migrating=True) as connection:
        if database.abilities.concurrent_writers:
            _wait_for_others(connection, stored_tables(schema, layout)["metadata"])
        version = stored_version(connection, database)
        if version == CATALOG_VERSION:
            return "done before"
        if version != layout.version or read_layout(connection, schema, version) != layout:
            raise CatalogVersionError(
                f"the catalog {database.address} was changed from version {layout.version} to {version} meanwhile; connect to it again",
                found=version,
                supported=CATALOG_VERSION,
            )
        if {file.id for file in counted_files(connection, database.tables, info)} != known:
            return "other files"
        steps = steps_to_current(connection, database, info, forgotten)
        for step in steps:
            run_step(connection, schema, layout, step)
        differences = read_layout(connection, schema, CATALOG_VERSION).differences()
        if differences:
            raise CatalogCorruptError(
                f"the catalog {database.address} cannot be brought from version {layout.version} to {CATALOG_VERSION}: {differences[0]}; "
                "nothing was changed"
            )
    return steps


def _wait_for_others(connection: Connection, metadata: Table) -> None:
    """Let one migration at a time pass. What it reads afterwards is what the one before it has left."""
    connection.execute(select(metadata.c.value).where(metadata.c.key == "version").with_for_update())
