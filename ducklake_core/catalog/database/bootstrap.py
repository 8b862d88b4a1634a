"""Create a lake, or open one without changing it (specification: Connecting, ducklake_metadata)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import EEXIST
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import (
    BindParameter,
    Connection,
    Dialect,
    Select,
    String,
    TableClause,
    and_,
    bindparam,
    cast,
    column,
    func,
    insert,
    inspect,
    or_,
    select,
)
from sqlalchemy.schema import CreateSchema, CreateTable

from ducklake_core.catalog.database import duckdb_catalog
from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.duckdb_catalog import ALIAS
from ducklake_core.catalog.database.failures import RetryPolicy
from ducklake_core.catalog.database.tables import CatalogTables, create_indexes
from ducklake_core.catalog.database.url import forbidden
from ducklake_core.catalog.database.versions import read_layout
from ducklake_core.errors import (
    AlreadyExistsError,
    CatalogCorruptError,
    CatalogError,
    CatalogVersionError,
    NotALakeError,
    UsageError,
)
from ducklake_core.format.files.paths import absolute_directory, as_directory, check_new_data_path, file_key, printable, protocol_of
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import DEFAULT_VERSION, VERSIONS, WRITABLE, FormatVersion, interrupted_migration

Opened = TypeVar("Opened")
_NEW_LAKE = "in Python DuckLake.create(...) or DuckLake.open(..., create=True) makes a new lake, and ATTACH in DuckDB"
_CREATE_RETRIES, _OPEN_RETRIES = RetryPolicy(max_attempts=3), RetryPolicy(max_attempts=4)
_CREATE_SECONDS = 30.0


def create_catalog(
    database: Database,
    data_path: str | None = None,
    *,
    relative_data_path: bool = False,
    encrypted: bool = False,
    indexes: bool = True,
    version: FormatVersion = DEFAULT_VERSION,
) -> LakeInfo:
    """Create the metadata tables and the rows of a new lake, in one transaction.

    Args:
        data_path: Base of all files; stored absolute, with a trailing slash. Only a DuckDB file needs none: its lake is in the directory
            ``<file>.files/``.
        relative_data_path: Whether a relative path is stored as it is written, and means the working directory of each client.
        indexes: Whether to make the indexes of catalog/database/tables.py too.
        version: Of the format.

    Raises:
        AlreadyExistsError: The database holds a lake already; nothing was changed.
        UsageError: No data path, or one at which no files can be stored.
    """
    path = database.address.default_data_path if data_path is None else str(data_path)
    if path is None or not path.strip():
        raise UsageError("a new lake needs a data_path: a directory or an object store prefix")
    check_new_data_path(path)
    full = as_directory(path) if relative_data_path else absolute_directory(path)
    database.follow(version)
    info = LakeInfo(
        version=version.name,
        data_path=full,
        encrypted=encrypted,
        created_by=_created_by(),
        stored_data_path=full,
        inlined_limits=database.abilities.inlined_limits,
    )
    attempts = _CREATE_RETRIES.attempts()
    while True:
        try:
            if database.abilities.is_file and not database.exists():
                with new_file(database) as draft:
                    _create(draft, info, indexes=indexes)
            else:
                _create(database, info, indexes=indexes)
            return info
        except FileExistsError as error:
            if not attempts.again(error):
                raise CatalogError(f"the catalog {database.address} is being created by another client; try again") from error
        except OSError as error:
            raise CatalogError(
                f"cannot create the catalog file of {database.address}: {error.strerror}; does its directory exist?"
            ) from error
        except CatalogError as error:
            # Two creators at once: the loser looks again and finds the winner's lake.
            if classify(error) != "retry" or not attempts.again(error):
                raise


def open_or_create(connect: Callable[[], Opened], create: Callable[[], Opened]) -> Opened:
    """Connect to a lake, which is created where there is none; any number of processes may do so at once.

    Raises:
        NotALakeError: Others create and remove it all the time.
    """
    attempts = _OPEN_RETRIES.attempts()
    while True:
        try:
            return connect()
        except NotALakeError as error:
            if not attempts.again(error):
                raise
        # Another process was faster, or created the file only so far.
        with suppress(AlreadyExistsError):
            return create()


def _create(database: Database, info: LakeInfo, *, indexes: bool) -> None:
    indexes = indexes and database.abilities.has_useful_indexes
    if database.abilities.commits_at_ddl:
        # Tables without rows are no lake: the first snapshot, of which there can be one, decides whose lake it is.
        database.definitions.make_all(lambda connection: _create_missing_tables(connection, database))
        with database.write(creating=True, patience=_CREATE_SECONDS) as connection:
            _insert_first_rows(connection, database, info)
        if indexes:
            database.definitions.make_all(lambda connection: create_indexes(connection, database.tables))
        return
    # Another creator is waited for: it has the tables then.
    with database.write(creating=True, patience=_CREATE_SECONDS) as connection:
        _create_tables(connection, database)
        _insert_first_rows(connection, database, info)
        if indexes:
            create_indexes(connection, database.tables)


def _create_tables(connection: Connection, database: Database) -> None:
    tables = database.tables
    _refuse_second_lake(connection, database)
    if tables.schema is not None and not inspect(connection).has_schema(tables.schema):
        connection.execute(CreateSchema(tables.schema))
    tables.metadata.create_all(connection, checkfirst=False)


def _create_missing_tables(connection: Connection, database: Database) -> None:
    tables = database.tables
    _refuse_second_lake(connection, database)
    for table in tables.values():
        connection.execute(CreateTable(table, if_not_exists=True))
    differences = read_layout(connection, tables.schema, database.version.name).differences(database.version)
    if differences:
        raise CatalogError(
            f"the database {database.address} holds an unfinished catalog of another version ({differences[0]}): drop its tables, or name "
            "another database"
        )


def _refuse_second_lake(connection: Connection, database: Database) -> None:
    metadata = database.tables["metadata"]
    if not inspect(connection).has_table(metadata.name, schema=metadata.schema):
        return
    if not database.abilities.commits_at_ddl or connection.execute(select(metadata.c.key).limit(1)).first() is not None:
        raise AlreadyExistsError(f"the catalog {database.address} holds a lake already; connect to it instead")


def _insert_first_rows(connection: Connection, database: Database, info: LakeInfo) -> None:
    tables = database.tables
    first = {"snapshot_id": 0, "schema_version": 0, "next_catalog_id": 1, "next_file_id": 0}
    connection.execute(insert(tables["snapshot"]), first | {"snapshot_time": database.now(connection)})
    connection.execute(insert(tables["snapshot_changes"]), {"snapshot_id": 0, "changes_made": 'created_schema:"main"'})
    main = {
        "schema_id": 0,
        "schema_uuid": str(uuid4()),
        "begin_snapshot": 0,
        "schema_name": "main",
        "path": "main/",
        "path_is_relative": True,
    }
    connection.execute(insert(tables["schema"]), main)
    settings = {
        "version": info.version,
        "created_by": info.created_by,
        "data_path": info.data_path,
        "encrypted": "true" if info.encrypted else "false",
    }
    connection.execute(insert(tables["metadata"]), [{"key": key, "value": value} for key, value in settings.items()])


def open_catalog(database: Database, data_path: str | None = None, override: bool = False) -> LakeInfo:
    """The settings of an existing lake; nothing is created, migrated or stored.

    After this the database reads the tables of the version that was found, which may be one that can only be read.

    Args:
        data_path: When given it must be the stored one.
        override: Use ``data_path`` in place of the stored one, for this session only.

    Raises:
        NotALakeError: The database holds no lake.
        CatalogVersionError: A catalog version that this library does not know.
        UsageError: ``data_path`` is not the stored one.
    """
    settings = _read_settings(database)
    found = _follow_version(database, settings.get("version"))
    stored = settings.get("data_path")
    if stored is None:
        raise CatalogCorruptError(f"the catalog {database.address} has no data_path in ducklake_metadata")
    path = as_directory(stored)
    if override and data_path is None:
        raise UsageError("override_data_path needs the data_path to use")
    if data_path is not None and not _is_same_path(absolute_directory(str(data_path)), absolute_directory(path)):
        if not override:
            raise UsageError(
                f"the lake {database.address} stores its files under {printable(path)!r}, not "
                f"{printable(as_directory(str(data_path)))!r}: leave data_path "
                "out, or set override_data_path as well to read the files from elsewhere",
                stored=printable(path),
                given=printable(str(data_path)),
            )
        path = as_directory(str(data_path))
    return LakeInfo(
        version=found,
        data_path=path,
        encrypted=settings.get("encrypted") == "true",
        created_by=settings.get("created_by"),
        stored_data_path=stored,
        inlined_limits=database.abilities.inlined_limits,
    )


def _is_same_path(given: str, stored: str) -> bool:
    """Return whether two data paths are one, whichever name of its protocol each has."""
    return given == stored or (protocol_of(stored) != "file" and file_key(given) == file_key(stored))


def _read_settings(database: Database) -> Mapping[str, str]:
    if not database.exists():
        raise NotALakeError(f"there is no catalog file at {database.address}; {_NEW_LAKE}")
    metadata = database.tables["metadata"]
    try:
        with database.read() as connection:
            if not inspect(connection).has_table(metadata.name, schema=metadata.schema):
                where = f" in schema {metadata.schema!r}" if metadata.schema else ""
                raise NotALakeError(f"the database {database.address} holds no DuckLake catalog{where}; {_NEW_LAKE}")
            # Scopes came with version 0.2: an older catalog must still be able to tell its version.
            query = select(metadata.c.key, metadata.c.value)
            if "scope" in {column["name"] for column in inspect(connection).get_columns(metadata.name, schema=metadata.schema)}:
                query = query.where(metadata.c.scope.is_(None))
            found = {row.key: row.value for row in connection.execute(query)}
        if not found and database.abilities.commits_at_ddl:
            raise NotALakeError(f"the database {database.address} holds the tables of a lake that was never finished; {_NEW_LAKE}")
        return found
    except CatalogError as error:
        if error.details.get("sqlite_error") == "SQLITE_NOTADB":
            raise NotALakeError(f"the file of {database.address} is no SQLite database, so it holds no DuckLake catalog") from error
        if database.abilities.is_file and (reason := forbidden(str(database.address.url.database), str(database.address))) is not None:
            raise reason from error
        raise


def _follow_version(database: Database, found: str | None) -> str:
    """Let the database read the tables of a version; gives the version."""
    if found in WRITABLE:
        database.follow(WRITABLE[found])
        return found
    # A cell of SQLite may be bytes.
    if isinstance(found, str) and (begun := interrupted_migration(found)) is not None:
        former = begun[0]
        database.follow(former)
        with database.read() as connection:
            layout = read_layout(connection, database.tables.schema, former.name)
        database.follow(replace(former, name=found, is_writable=False), layout)
        return former.name
    known = (
        f"the catalog {database.address} has version {found or 'unknown'}, this library reads {', '.join(VERSIONS)} "
        f"and writes {', '.join(WRITABLE)}"
    )
    if found is not None and found not in VERSIONS:
        raise CatalogVersionError(f"{known}; use a newer release of this library", found=found, supported=", ".join(WRITABLE))
    database.follow(DEFAULT_VERSION)
    with database.read() as connection:
        layout = read_layout(connection, database.tables.schema, found or DEFAULT_VERSION.name)
    if layout.lost():
        raise CatalogCorruptError(f"the catalog {database.address} lacks tables that every version has: {', '.join(layout.lost())}")
    if found is not None:
        database.follow(VERSIONS[found], layout)
        return found
    # DuckDB takes a catalog that does not tell its version for one of its own.
    differences = {version: layout.differences(version) for version in WRITABLE.values()}
    version = next((version for version, found in differences.items() if not found), None)
    if version is None:
        said = "; ".join(f"it is not {version}: {found[0]}" for version, found in differences.items())
        raise CatalogVersionError(f"{known}; {said}", found=None, supported=", ".join(WRITABLE))
    database.follow(version)
    return version.name


def _created_by() -> str:
    try:
        return f"ducklake-core {version('ducklake-dagster')}"
    except PackageNotFoundError:
        return "ducklake-core"


@contextmanager
def new_file(database: Database) -> Iterator[Database]:
    """A database under another name, which gets the name of this one when the block ends: nobody ever sees it half made.

    Raises:
        FileExistsError: Somebody else made the file meanwhile; it is not touched.
        OSError: The file cannot be created.
    """
    path = str(database.address.url.database)
    draft = Database(replace(database.address, url=database.address.url.set(database=f"{path}.{uuid4().hex}")))
    draft.follow(database.version)
    name = create_file(draft)
    try:
        yield draft
        draft.close()
        _give_name(name, path)
    finally:
        draft.close()
        for left in (name, f"{name}.wal"):
            Path(left).unlink(missing_ok=True)


def create_file(database: Database) -> str:
    """Create the empty file of a database, and give its name.

    Raises:
        FileExistsError: There is a file already; it is not touched.
        OSError: The file cannot be created.
    """
    path = str(database.address.url.database)
    Path(path).touch(exist_ok=False)
    if database.address.url.get_backend_name() == "duckdb":
        # DuckDB takes no empty file for a database, and makes its own.
        Path(path).unlink()
        duckdb_catalog.create_database(path)
    return path


def _give_name(draft: str, path: str) -> None:
    """Let a file be found under a name that is still free."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems know no links, and nothing else that leaves alone what another creator makes in this instant.
        if Path(path).exists():
            raise FileExistsError(EEXIST, os.strerror(EEXIST), path) from None
        Path(draft).rename(path)


def existing_query(tables: CatalogTables, dialect: Dialect) -> Select[Any]:
    """The name of the table that the parameter ``name`` names, beside the metadata tables; no row when there is none."""
    return tables.statement(f"existing, {dialect.name}", lambda: _existing(tables.schema, dialect.name))


def _existing(schema: str | None, dialect: str) -> Select[Any]:
    return _OF_DIALECT[dialect](schema, bindparam("name", type_=String))


def _of_sqlite(_schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    master = TableClause("sqlite_master", column("name"), column("type"))
    return select(master.c.name).where(master.c.name == wanted, master.c.type == "table")


def _of_postgresql(schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    relation = TableClause("pg_class", column("relname"), column("relnamespace"), column("relkind"), schema="pg_catalog")
    space = TableClause("pg_namespace", column("oid"), column("nspname"), schema="pg_catalog")
    inside = select(space.c.oid).where(space.c.nspname == schema).scalar_subquery()
    is_table = or_(relation.c.relkind == "r", relation.c.relkind == "p")
    name = cast(relation.c.relname, String).label("name")
    return select(name).where(relation.c.relname == wanted, relation.c.relnamespace == inside, is_table)


def _of_duckdb(schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    listed = func.duckdb_tables().table_valued("database_name", "schema_name", "table_name")
    is_ours = and_(listed.c.database_name == ALIAS, listed.c.schema_name == schema)
    return select(listed.c.table_name.label("name")).where(is_ours, listed.c.table_name == wanted)


def _of_mysql(_schema: str | None, wanted: BindParameter[str]) -> Select[Any]:
    listed = TableClause("tables", column("table_name"), column("table_schema"), schema="information_schema")
    return select(listed.c.table_name.label("name")).where(listed.c.table_schema == func.database(), listed.c.table_name == wanted)


_OF_DIALECT = {
    "sqlite": _of_sqlite,
    "postgresql": _of_postgresql,
    "duckdb": _of_duckdb,
    "mysql": _of_mysql,
    "mariadb": _of_mysql,
}
