"""Run a migration in one transaction, or in repeatable parts if the database commits at DDL.

MySQL cannot roll back ALTER TABLE, so the stored version marks each part::

    version 1.0           -> set "1.0 to 1.1, interrupted"    readers use the tables that exist, writers are rejected
    interrupted           -> CREATE and ALTER TABLE           each step is planned only if it is not done
    interrupted           -> changes of rows, version 1.1     one transaction

A process that is killed leaves an interrupted version, and the next migration plans the remaining steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from sqlalchemy import Connection, MetaData, Table, func, select, update

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import PREFIX, CatalogTables, metadata_tables
from ducklake_core.catalog.database.versions import Layout, read_layout
from ducklake_core.catalog.migrations.steps import (
    AddColumn,
    CreateTable,
    LockTables,
    RenameInlinedColumn,
    Step,
    counted_files,
    run_step,
    steps_between,
)
from ducklake_core.errors import CatalogCorruptError, CatalogUnavailableError, CatalogVersionError, UnsupportedFeatureError
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import V1_0, FormatVersion, interrupted_migration, interrupted_name

_DEFINES = (CreateTable, AddColumn, RenameInlinedColumn)
"""Steps that are DDL. Each is planned only if it is not done, so repeating the plan is safe."""

Outcome: TypeAlias = tuple[Step, ...] | Literal["done before", "other files"]


def stored_version(connection: Connection, database: Database) -> str | None:
    """Return the version that the catalog stores now."""
    metadata = database.tables["metadata"]
    return connection.execute(select(metadata.c.value).where(metadata.c.key == "version")).scalar()


def present_layout(connection: Connection, database: Database) -> Layout:
    """Return the existing tables of the catalog."""
    return database.layout or read_layout(connection, database.tables.schema, database.version.name)


def migrate_catalog(
    database: Database, info: LakeInfo, target: FormatVersion, known: frozenset[int], forgotten: tuple[int, ...]
) -> Outcome:
    """Execute all steps, or none.

    Args:
        database: The catalog.
        info: Settings of the lake.
        target: The target version.
        known: Ids of the data files with row counts per snapshot that the caller has read.
        forgotten: Ids of those among them that do not store the snapshot of each row.

    Returns:
        The executed steps; ``done before`` when another process was first; ``other files`` when a writer of the old version has added
        files that the caller must read first.

    Raises:
        CatalogVersionError: The catalog has another version by now.
        CatalogCorruptError: Its tables match no version; nothing was changed.
    """
    if database.abilities.commits_at_ddl:
        return migrate_in_parts(database, info, target) or "done before"
    schema, former = database.tables.schema, database.version
    with database.write(migrating=True) as connection:
        if database.abilities.concurrent_writers:
            _wait_for_other_sessions(connection, database.tables)
        version = stored_version(connection, database)
        if version == target.name:
            return "done before"
        layout = read_layout(connection, schema, former.name)
        if version not in (None, former.name) or database.layout not in (None, layout):
            raise CatalogVersionError(
                f"the catalog {database.address} was changed from version {former} to {version} meanwhile. Connect to it again",
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
                f"The catalog {database.address} cannot be migrated from version {former} to {target}: {differences[0]}. Nothing "
                "was changed"
            )
    return steps


def _wait_for_other_sessions(connection: Connection, tables: CatalogTables) -> None:
    """Lock out commits and other migrations: every commit reads the snapshot table first and keeps that lock to its end.

    After the lock this transaction reads the final state of earlier commits, and later commits read the new version.
    """
    connection.execute(LockTables([Table(PREFIX + name, MetaData(schema=tables.schema)) for name in ("snapshot", "metadata")]))


def migrate_in_parts(database: Database, info: LakeInfo, target: FormatVersion) -> tuple[Step, ...] | None:
    """Execute all steps, or the remaining ones of an interrupted migration; return None when another process was first.

    Args:
        database: The catalog.
        info: Settings of the lake.
        target: The target version.

    Raises:
        UnsupportedFeatureError: The catalog cannot be migrated to the target; nothing was changed.
        CatalogVersionError: It has another version by now.
        CatalogUnavailableError: Another process migrates it now, or uses a table that must be altered.
        CatalogCorruptError: Its tables match no version.
    """
    before = (interrupted_migration(database.version.name) or (database.version, target))[0]
    if before.number < V1_0.number:
        raise UnsupportedFeatureError(
            f"The catalog {database.address} has version {before}. In MySQL, only catalogs of version 1.0 and later can be "
            "migrated. Nothing was changed",
            found=before.name,
            wanted=target.name,
        )
    schema = database.tables.schema
    metadata = metadata_tables(schema, target)["metadata"]
    with database.side_session() as connection, _alone(connection, database):
        begun = interrupted_name(before, target)
        version = _locked_version(connection, metadata)
        if version == target.name:
            return None
        if version not in (before.name, begun):
            raise CatalogVersionError(
                f"the catalog {database.address} was changed from version {before} to {version} meanwhile. Connect to it again",
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
        # Lock the row again: the commits above released it, and writers must wait until the rows are repaired.
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
            f"The catalog {database.address} cannot be migrated to version {target}: {differences[0]}. It is partly migrated; "
            "restore it from a backup"
        )


@contextmanager
def _alone(connection: Connection, database: Database) -> Iterator[None]:
    """Hold a lock of the session, which survives the end of its transactions."""
    place = hashlib.blake2b(str(database.address.url.database).encode(), digest_size=16).hexdigest()
    name = f"ducklake migrate {place}"
    if not connection.execute(select(func.get_lock(name, 0))).scalar():
        raise CatalogUnavailableError(f"Another process is migrating the catalog {database.address}. Try again", failure="retry")
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.rollback()
            connection.execute(select(func.release_lock(name)))


def _locked_version(connection: Connection, metadata: Table) -> str | None:
    """Return the version and lock its row, which every commit locks first."""
    return connection.execute(select(metadata.c.value).where(metadata.c.key == "version").with_for_update()).scalar()


def _set_version(connection: Connection, metadata: Table, version: str) -> None:
    connection.execute(update(metadata).where(metadata.c.key == "version").values(value=version))
