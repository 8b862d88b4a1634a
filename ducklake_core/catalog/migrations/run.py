"""The one transaction of a migration."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlalchemy import Connection, MetaData, Table, select

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import PREFIX, CatalogTables
from ducklake_core.catalog.database.versions import Layout, read_layout
from ducklake_core.catalog.migrations.counted_files import counted_files
from ducklake_core.catalog.migrations.ddl import LockTables
from ducklake_core.catalog.migrations.in_parts import migrate_in_parts
from ducklake_core.catalog.migrations.steps import Step, run_step, steps_between
from ducklake_core.errors import CatalogCorruptError, CatalogVersionError
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import FormatVersion

Outcome: TypeAlias = tuple[Step, ...] | Literal["done before", "other files"]


def stored_version(connection: Connection, database: Database) -> str | None:
    """The version that the catalog tells now, whatever it was when the lake was opened."""
    metadata = database.tables["metadata"]
    return connection.execute(select(metadata.c.value).where(metadata.c.key == "version")).scalar()


def present_layout(connection: Connection, database: Database) -> Layout:
    """The tables of the catalog that the database follows."""
    return database.layout or read_layout(connection, database.tables.schema, database.version.name)


def migrate_catalog(
    database: Database, info: LakeInfo, target: FormatVersion, known: frozenset[int], forgotten: tuple[int, ...]
) -> Outcome:
    """Carry out all steps, or none.

    Args:
        target: The version that is wanted.
        known: Ids of the data files with counted rows that were looked into.
        forgotten: Ids of those that do not store the snapshot with each row.

    Returns:
        The steps that were carried out, ``done before`` when another process was first, or ``other files`` when a writer of the
        old version has added files that must be looked into.

    Raises:
        CatalogVersionError: The catalog has yet another version by now.
        CatalogCorruptError: Its tables are not those of any version; nothing was changed.
    """
    if database.abilities.commits_at_ddl:
        return migrate_in_parts(database, info, target) or "done before"
    schema, former = database.tables.schema, database.version
    with database.write(migrating=True) as connection:
        if database.abilities.concurrent_writers:
            _wait_for_others(connection, database.tables)
        version = stored_version(connection, database)
        if version == target.name:
            return "done before"
        layout = read_layout(connection, schema, former.name)
        if version not in (None, former.name) or database.layout not in (None, layout):
            raise CatalogVersionError(
                f"the catalog {database.address} was changed from version {former} to {version} meanwhile; connect to it again",
                found=version,
                supported=target.name,
            )
        if {file.id for file in counted_files(connection, database.tables, info)} != known:
            return "other files"
        steps = steps_between(connection, database, info, layout, target, forgotten)
        for step in steps:
            run_step(connection, schema, layout, target, step)
        differences = read_layout(connection, schema, target.name).differences(target)
        if differences:
            raise CatalogCorruptError(
                f"the catalog {database.address} cannot be brought from version {former} to {target}: {differences[0]}; nothing was changed"
            )
    return steps


def _wait_for_others(connection: Connection, tables: CatalogTables) -> None:
    """Let one migration at a time pass, and no commit beside it: every commit reads the newest snapshot first, and keeps that lock.

    What is read afterwards is what the others have left; what they read afterwards is the new version.
    """
    connection.execute(LockTables([Table(PREFIX + name, MetaData(schema=tables.schema)) for name in ("snapshot", "metadata")]))
