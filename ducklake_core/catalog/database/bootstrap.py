"""Create a lake, or open one without changing it (specification: Connecting, ducklake_metadata)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    Table,
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
from sqlalchemy.schema import CreateSchema, CreateTable, DropTable

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
_NEW_LAKE = "Create a lake with DuckLake.create(...) or DuckLake.open(..., create=True) in Python, or ATTACH in DuckDB"
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
        database: The database of the new catalog.
        data_path: Base of all files; stored absolute, with a trailing slash. Required except for a DuckDB file, whose default is the
            directory ``<file>.files/``.
        relative_data_path: Whether to store a relative path as it is, relative to the working directory of each client; default False.
        encrypted: Whether all data files are encrypted; default False.
        indexes: Whether to create indexes too, where they are useful (see ``tables``); default True.
        version: Format version of the lake.

    Raises:
        AlreadyExistsError: The database holds a lake already; nothing was changed.
        UsageError: The data path is missing or cannot hold files.
    """
    path = database.address.default_data_path if data_path is None else str(data_path)
    if path is None or not path.strip():
        raise UsageError("A new lake needs a data path. Pass data_path=..., a directory or an object store prefix")
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
    fill_new_catalog(database, lambda connection, made: _insert_first_rows(connection, made, info), indexes=indexes)
    return info


def fill_new_catalog(
    database: Database, fill: Callable[[Connection, Database], None], *, indexes: bool = True, inlined: Sequence[Table] = ()
) -> None:
    """Create the metadata tables of a new lake and fill them, in one transaction. A killed process leaves no lake.

    Args:
        database: The database of the new catalog, which follows the version of the lake.
        fill: Inserts all rows, in a transaction on the database that it receives, which may be a draft of the file. May run again.
        indexes: Whether to create indexes too, where they are useful; default True.
        inlined: Tables of inlined rows and deletes to create too; default none.

    Raises:
        AlreadyExistsError: The database holds a lake already; nothing was changed.
    """
    attempts = _CREATE_RETRIES.attempts()
    while True:
        try:
            if database.abilities.is_file and not database.exists():
                with new_file(database) as draft:
                    _create(draft, fill, indexes=indexes, inlined=inlined)
            else:
                _create(database, fill, indexes=indexes, inlined=inlined)
            return
        except FileExistsError as error:
            if not attempts.again(error):
                raise CatalogError(f"The catalog {database.address} is being created by another client. Try again") from error
        except OSError as error:
            raise CatalogError(
                f"The catalog file of {database.address} cannot be created ({error.strerror}). Check that its directory exists "
                "and is writable"
            ) from error
        except CatalogError as error:
            # Two creators at the same time: the loser tries again and finds the lake of the winner (AlreadyExistsError).
            if classify(error) != "retry" or not attempts.again(error):
                raise


def open_or_create(connect: Callable[[], Opened], create: Callable[[], Opened]) -> Opened:
    """Connect to a lake, and create it if it is missing. Any number of processes may do so at the same time.

    Args:
        connect: Connects; raises ``NotALakeError`` if there is no lake.
        create: Creates the lake; raises ``AlreadyExistsError`` if another process was faster.

    Raises:
        NotALakeError: Other processes create and remove the lake repeatedly.
    """
    attempts = _OPEN_RETRIES.attempts()
    while True:
        try:
            return connect()
        except NotALakeError as error:
            if not attempts.again(error):
                raise
        # AlreadyExistsError: another process was faster. The next attempt connects.
        with suppress(AlreadyExistsError):
            return create()


def _create(database: Database, fill: Callable[[Connection, Database], None], *, indexes: bool, inlined: Sequence[Table] = ()) -> None:
    indexes = indexes and database.abilities.has_useful_indexes
    if database.abilities.commits_at_ddl:
        # DDL cannot be rolled back here. Empty tables do not count as a lake; the first snapshot does, and its primary key lets only one
        # creator insert it.
        database.definitions.make_all(lambda connection: _create_missing_tables(connection, database, inlined))
        with database.write(creating=True, patience=_CREATE_SECONDS) as connection:
            fill(connection, database)
        if indexes:
            database.definitions.make_all(lambda connection: create_indexes(connection, database.tables))
        return
    # Long patience: this waits for another creator to finish, and then finds its tables.
    with database.write(creating=True, patience=_CREATE_SECONDS) as connection:
        _create_tables(connection, database, inlined)
        fill(connection, database)
        if indexes:
            create_indexes(connection, database.tables)


def _create_tables(connection: Connection, database: Database, inlined: Sequence[Table]) -> None:
    tables = database.tables
    _reject_second_lake(connection, database)
    if tables.schema is not None and not inspect(connection).has_schema(tables.schema):
        connection.execute(CreateSchema(tables.schema))
    tables.metadata.create_all(connection, checkfirst=False)
    for table in inlined:
        connection.execute(CreateTable(table))


def _create_missing_tables(connection: Connection, database: Database, inlined: Sequence[Table]) -> None:
    tables = database.tables
    _reject_second_lake(connection, database)
    for table in tables.values():
        connection.execute(CreateTable(table, if_not_exists=True))
    differences = read_layout(connection, tables.schema, database.version.name).differences(database.version)
    if differences:
        raise CatalogError(
            f"the database {database.address} holds an unfinished catalog of another version ({differences[0]}): drop its tables, or name "
            "another database"
        )
    for table in inlined:
        # A killed copy of another lake may have left a table of this name with other columns.
        connection.execute(DropTable(table, if_exists=True))
        connection.execute(CreateTable(table))


def _reject_second_lake(connection: Connection, database: Database) -> None:
    metadata = database.tables["metadata"]
    if not inspect(connection).has_table(metadata.name, schema=metadata.schema):
        return
    if not database.abilities.commits_at_ddl or connection.execute(select(metadata.c.key).limit(1)).first() is not None:
        raise AlreadyExistsError(
            f"The database {database.address} already holds a lake. Open it with DuckLake.connect(...), or choose another "
            "database or metadata_schema"
        )


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
    """Read the settings of an existing lake; nothing is created, migrated or stored.

    Afterwards ``database`` uses the tables of the version that was found, which may be a version that is only readable.

    Args:
        database: The database of the catalog.
        data_path: Expected data path, which must be equal to the stored one; None, the default, accepts any.
        override: Use ``data_path`` instead of the stored one, in this session only; default False.

    Raises:
        NotALakeError: The database holds no lake.
        CatalogVersionError: This library does not know the version of the catalog.
        UsageError: ``data_path`` differs from the stored one.
    """
    settings = _read_settings(database)
    found = _follow_version(database, settings.get("version"))
    stored = settings.get("data_path")
    if stored is None:
        raise CatalogCorruptError(f"The catalog {database.address} has no data_path in ducklake_metadata. Restore the row from a backup")
    path = as_directory(stored)
    if override and data_path is None:
        raise UsageError("override_data_path=True needs a data path. Pass data_path=...")
    if data_path is not None and not _is_same_path(absolute_directory(str(data_path)), absolute_directory(path)):
        if not override:
            raise UsageError(
                f"Lake {database.address} stores its files under {printable(path)!r}, not "
                f"{printable(as_directory(str(data_path)))!r}. Remove data_path, or set override_data_path to read the "
                "files from there",
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
    """Return whether two data paths are equal, for any spelling of their protocol (``s3://``, ``s3a://``)."""
    return given == stored or (protocol_of(stored) != "file" and file_key(given) == file_key(stored))


def _read_settings(database: Database) -> Mapping[str, str]:
    if not database.exists():
        raise NotALakeError(f"There is no catalog file at {database.address}. {_NEW_LAKE}")
    metadata = database.tables["metadata"]
    try:
        with database.read() as connection:
            if not inspect(connection).has_table(metadata.name, schema=metadata.schema):
                where = f" in schema {metadata.schema!r}" if metadata.schema else ""
                raise NotALakeError(f"The database {database.address} holds no DuckLake catalog{where}. {_NEW_LAKE}")
            # The column exists since version 0.2; the version of an older catalog must be readable too.
            query = select(metadata.c.key, metadata.c.value)
            if "scope" in {column["name"] for column in inspect(connection).get_columns(metadata.name, schema=metadata.schema)}:
                query = query.where(metadata.c.scope.is_(None))
            found = {row.key: row.value for row in connection.execute(query)}
        if not found and database.abilities.commits_at_ddl:
            raise NotALakeError(f"The database {database.address} holds tables of a lake whose creation did not finish. {_NEW_LAKE}")
        return found
    except CatalogError as error:
        if database.abilities.is_file and (reason := forbidden(str(database.address.url.database), str(database.address))) is not None:
            raise reason from error
        raise


def _follow_version(database: Database, found: str | None) -> str:
    """Make the database use the tables of a version, and return the version.

    A version between two others means that a migration was interrupted: the tables that exist decide what can be read.
    """
    if found in WRITABLE:
        database.follow(WRITABLE[found])
        return found
    # SQLite cells are untyped, so the value may be bytes.
    if isinstance(found, str) and (begun := interrupted_migration(found)) is not None:
        former = begun[0]
        database.follow(former)
        with database.read() as connection:
            layout = read_layout(connection, database.tables.schema, former.name)
        database.follow(replace(former, name=found, is_writable=False), layout)
        return former.name
    known = (
        f"The catalog {database.address} has version {found or 'unknown'}, but this library reads {', '.join(VERSIONS)} "
        f"and writes {', '.join(WRITABLE)}"
    )
    if found is not None and found not in VERSIONS:
        raise CatalogVersionError(f"{known}. Use a newer release of this library", found=found, supported=", ".join(WRITABLE))
    database.follow(DEFAULT_VERSION)
    with database.read() as connection:
        layout = read_layout(connection, database.tables.schema, found or DEFAULT_VERSION.name)
    if layout.lost():
        raise CatalogCorruptError(
            f"The catalog {database.address} lacks tables that every version has: {', '.join(layout.lost())}. Restore them from a backup"
        )
    if found is not None:
        database.follow(VERSIONS[found], layout)
        return found
    # DuckDB opens a catalog without a version as one of its own version; here the tables decide.
    differences = {version: layout.differences(version) for version in WRITABLE.values()}
    version = next((version for version, found in differences.items() if not found), None)
    if version is None:
        reasons = "; ".join(f"it is not {version}: {found[0]}" for version, found in differences.items())
        raise CatalogVersionError(f"{known}; {reasons}", found=None, supported=", ".join(WRITABLE))
    database.follow(version)
    return version.name


def _created_by() -> str:
    try:
        return f"ducklake-core {version('ducklake-dagster')}"
    except PackageNotFoundError:
        return "ducklake-core"


@contextmanager
def new_file(database: Database) -> Iterator[Database]:
    """Return a database in a temporary file that is renamed when the block ends, so that no client ever sees it half created.

    Raises:
        FileExistsError: Another client created the file meanwhile; it is not touched.
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
    """Create the empty file of a database, and return its path.

    Raises:
        FileExistsError: The file exists already; it is not touched.
        OSError: The file cannot be created.
    """
    path = str(database.address.url.database)
    Path(path).touch(exist_ok=False)
    if database.address.url.get_backend_name() == "duckdb":
        # DuckDB does not open an empty file. The touch above only proves that the name is free.
        Path(path).unlink()
        duckdb_catalog.create_database(path)
    return path


def _give_name(draft: str, path: str) -> None:
    """Give a file its final name, if that is still free."""
    # link() fails atomically if the name exists; rename() would replace the file of another creator.
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links, and no other atomic way. A creator that finishes between these two lines loses its file.
        if Path(path).exists():
            raise FileExistsError(EEXIST, os.strerror(EEXIST), path) from None
        Path(draft).rename(path)


def existing_query(tables: CatalogTables, dialect: Dialect) -> Select[Any]:
    """Return the query for the name of the table given by the parameter ``name``; no row if it does not exist.

    Reads the system catalog of the database, because a query on a missing table would abort the transaction on PostgreSQL.

    Args:
        tables: The metadata tables, whose schema is searched.
        dialect: SQLAlchemy dialect of the database.
    """
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
    is_in_catalog = and_(listed.c.database_name == ALIAS, listed.c.schema_name == schema)
    return select(listed.c.table_name.label("name")).where(is_in_catalog, listed.c.table_name == wanted)


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
