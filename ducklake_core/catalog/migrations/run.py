"""Run a migration in one transaction, or in repeatable parts where the database commits before it alters a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from sqlalchemy import Connection, MetaData, Table, func, select, update

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import PREFIX, CatalogTables, metadata_tables
from ducklake_core.catalog.database.versions import Layout, read_layout
from ducklake_core.catalog.migrations.ddl import LockTables
from ducklake_core.catalog.migrations.steps import AddColumn, CreateTable, RenameInlinedColumn, Step, counted_files, run_step, steps_between
from ducklake_core.errors import CatalogCorruptError, CatalogUnavailableError, CatalogVersionError, UnsupportedFeatureError
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import V1_0, FormatVersion, interrupted_migration, interrupted_name

_DEFINES = (CreateTable, AddColumn, RenameInlinedColumn)
"""Steps that change tables; each is planned only where it is not done."""

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


def migrate_in_parts(database: Database, info: LakeInfo, target: FormatVersion) -> tuple[Step, ...] | None:
    """Carry out all steps, or those that an interrupted migration has left; None when another process was first.

    Raises:
        UnsupportedFeatureError: The catalog cannot be brought there; nothing was changed.
        CatalogVersionError: It has yet another version by now.
        CatalogUnavailableError: Another process migrates it now, or uses a table that is to be changed.
        CatalogCorruptError: Its tables are not those of any version.
    """
    before = (interrupted_migration(database.version.name) or (database.version, target))[0]
    if before.number < V1_0.number:
        raise UnsupportedFeatureError(
            f"the catalog {database.address} has version {before}: in MySQL catalogs of 1.0 and later are migrated; nothing was changed",
            found=before.name,
            wanted=target.name,
        )
    schema = database.tables.schema
    metadata = metadata_tables(schema, target)["metadata"]
    with database.beside() as connection, _alone(connection, database):
        begun = interrupted_name(before, target)
        version = _locked_version(connection, metadata)
        if version == target.name:
            return None
        if version not in (before.name, begun):
            raise CatalogVersionError(
                f"the catalog {database.address} was changed from version {before} to {version} meanwhile; connect to it again",
                found=version,
                supported=target.name,
            )
        layout = read_layout(connection, schema, before.name)
        steps = steps_between(connection, database, info, layout, target)
        _set_version(connection, metadata, begun)
        connection.commit()
        for step in steps:
            if isinstance(step, _DEFINES):
                run_step(connection, schema, layout, target, step)
        connection.commit()
        _locked_version(connection, metadata)
        _repair(connection, database, layout, target, steps)
        connection.commit()
    return steps


def _repair(connection: Connection, database: Database, layout: Layout, target: FormatVersion, steps: tuple[Step, ...]) -> None:
    schema = database.tables.schema
    for step in steps:
        if not isinstance(step, _DEFINES):
            run_step(connection, schema, layout, target, step)
    differences = read_layout(connection, schema, target.name).differences(target)
    if differences:
        raise CatalogCorruptError(
            f"the catalog {database.address} cannot be brought to version {target}: {differences[0]}; it stays between the versions"
        )


@contextmanager
def _alone(connection: Connection, database: Database) -> Iterator[None]:
    """Hold a lock of the session, which outlives its transactions."""
    place = hashlib.blake2b(str(database.address.url.database).encode(), digest_size=16).hexdigest()
    name = f"ducklake migrate {place}"
    if not connection.execute(select(func.get_lock(name, 0))).scalar():
        raise CatalogUnavailableError(f"another process migrates the catalog {database.address}; try again", failure="retry")
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.rollback()
            connection.execute(select(func.release_lock(name)))


def _locked_version(connection: Connection, metadata: Table) -> str | None:
    """The version, whose row every commit locks first."""
    return connection.execute(select(metadata.c.value).where(metadata.c.key == "version").with_for_update()).scalar()


def _set_version(connection: Connection, metadata: Table, version: str) -> None:
    connection.execute(update(metadata).where(metadata.c.key == "version").values(value=version))
