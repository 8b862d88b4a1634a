"""Open short read and write transactions on the metadata database, safe across fork and pickle.

Four kinds of transaction::

    read, answers     one consistent state of the catalog; several queries in one round trip on PostgreSQL
    write             any change; waits at most ``patience`` for locks
    commit            the change of one snapshot, under the writer lease
    without_commits   a write transaction that keeps commits out, for deleting files
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, Engine, event, pool
from sqlalchemy import select as sql_select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.failures import Failure, classify, closed_after_interrupted_commit, interruption, wrapped
from ducklake_core.catalog.database.postgres_catalog import PostgresAccess, is_behind_a_pooler, set_in_transaction
from ducklake_core.catalog.database.server_connections import Access, fetch_alone, in_pipeline, raw_connection
from ducklake_core.catalog.database.sqlite_catalog import DuckDBAccess, SqliteAccess
from ducklake_core.catalog.database.statements import (
    MAX_KNOWN,
    Definitions,
    NamedQuery,
    PipelinedStatements,
    PlainStatements,
    Statements,
    attach,
    known_statement,
)
from ducklake_core.catalog.database.tables import CatalogTables, metadata_tables
from ducklake_core.catalog.database.url import CatalogAddress, driver_module, file_exists
from ducklake_core.catalog.database.versions import Layout, check_same_version, earlier_tables, stored_version
from ducklake_core.catalog.database.writer_queue import LeaseRequest, WriterQueue
from ducklake_core.errors import CatalogError, CatalogVersionError, UsageError
from ducklake_core.format.cache import BoundedCache
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion, migration_target

__all__ = ["Database", "Failure", "classify"]

WRITE_LOCK_SECONDS = 1.0
"""Seconds for which a write transaction on a server waits for a lock of another client."""
_ACCESS: dict[str, Access] = {"sqlite": SqliteAccess(), "duckdb": DuckDBAccess(), "postgresql": PostgresAccess()}


class Database:
    """One metadata database. Nothing is opened before the first :meth:`read` or :meth:`write`.

    Connections are never shared with a forked child; a pickled database opens its own.

    Args:
        address: Address of the catalog.
        pool_size: Number of connections that are kept open between transactions, default 2. A DuckDB file has none.
        connect_timeout: Seconds to wait for the first answer of a server, default 10.
        read_only: Whether to reject every transaction that could write; default False.

    Attributes:
        last_committed: Id of the last snapshot that was committed through this object, None if there is none.
    """

    def __init__(self, address: CatalogAddress, *, pool_size: int = 2, connect_timeout: int = 10, read_only: bool = False) -> None:
        self.address = address
        self.read_only = read_only
        self.last_committed: int | None = None
        self._access = _access_of(address.url.get_backend_name())
        self.abilities: Abilities = abilities_of(address.engine_url.get_dialect()())
        self.definitions = Definitions(self.abilities, self.side_session)
        self.layout: Layout | None = None
        self.version: FormatVersion
        self.tables: CatalogTables
        self._known_statements = BoundedCache[Hashable, Any](MAX_KNOWN)
        self.follow(DEFAULT_VERSION)
        self._pool_size = pool_size
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        _databases.add(self)
        self._engine: Engine | None = None
        self._process = 0
        self.writer_queue = WriterQueue()

    def __repr__(self) -> str:
        return f"Database({str(self.address)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.address, self._pool_size, self._connect_timeout, self.version, self.layout, self.read_only))

    def follow(self, version: FormatVersion, layout: Layout | None = None) -> None:
        """Use the metadata tables of a format version.

        Args:
            version: The format version.
            layout: Tables and columns that exist, for a version that can only be read; None for those that the format defines.
        """
        schema = self.address.metadata_schema or self.abilities.default_schema
        self.version = version = replace(version, inlined_limits=self.abilities.inlined_limits)
        self.layout = layout
        self._known_statements.clear()
        self.tables = metadata_tables(schema, version) if layout is None else earlier_tables(schema, layout)

    def check_not_read_only(self) -> None:
        """Reject writes to a lake that was opened with ``read_only``.

        Raises:
            UsageError: It was opened with ``read_only``.
        """
        if self.read_only:
            raise UsageError(
                f"The lake {self.address} was opened read-only, so nothing was changed. Open it without read_only to write",
                read_only=str(self.address),
            )

    def check_writable(self, *, dry_run: bool = False) -> None:
        """Reject writes to a catalog of an earlier version, and to one that was opened with ``read_only``.

        Args:
            dry_run: Whether nothing will be written, which ``read_only`` allows; default False.

        Raises:
            CatalogVersionError: The catalog can only be read or migrated.
            UsageError: It was opened with ``read_only``.
        """
        if not dry_run:
            self.check_not_read_only()
        if self.layout is not None:
            raise CatalogVersionError(
                f"The catalog {self.address} has version {self.version}, which this library can only read. To write, migrate it to version "
                f"{migration_target(self.version)} with lake.migrate(); a dry run shows the steps",
                found=self.version.name,
                supported=migration_target(self.version).name,
            )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read-only transaction, in which all statements see the same state of the catalog. Keep it short.

        Raises:
            CatalogUnavailableError: The database cannot be reached or stays locked.
            CatalogVersionError: The catalog was migrated since it was opened.
            CatalogError: The database rejected a statement.
        """
        options = self._access.read_options
        try:
            with self._transaction(options) as connection:
                if self.layout is not None:
                    self.check_version(self._stored_version(connection))
                yield connection
                # Not a rollback: psycopg then forgets all prepared statements, which costs more than the reads themselves.
                connection.commit()
        except CatalogError as error:
            self._check_not_migrated(error, options)
            raise

    def _check_not_migrated(self, error: CatalogError, options: Mapping[str, Any]) -> None:
        """Raise a better error if a statement failed because the catalog was migrated to other tables since it was opened."""
        if isinstance(error, CatalogVersionError) or not isinstance(error.__cause__, SQLAlchemyError) or classify(error) != "fatal":
            return
        try:
            with self._transaction(options) as connection:
                found = self._stored_version(connection)
        except CatalogError:
            return
        self.check_version(found)

    def answers(self, *queries: NamedQuery) -> list[Sequence[Any]]:
        """Return the rows of several queries in one read-only transaction; on PostgreSQL they are sent together, in one round trip.

        Args:
            queries: Name, statement and parameters of each, as for :meth:`Statements.ask`.

        Raises:
            CatalogUnavailableError: The database cannot be reached or stays locked.
            CatalogVersionError: The catalog was migrated since it was opened.
            CatalogError: The database rejected a statement.
        """
        if not self._access.is_pipelined:
            with self.read() as connection:
                plain = PlainStatements(connection, self._known_statements)
                return [plain.fetch(*query)() for query in queries]
        with self._reporting_driver(), raw_connection(self._current_engine()) as connection:
            if len(queries) == 1 and not is_behind_a_pooler(connection):
                name, build, parameters = queries[0]
                statement = known_statement(self._known_statements, name, build, self._current_engine().dialect)
                return [fetch_alone(connection, statement, parameters)]
            with in_pipeline(connection) as (raw, pipeline):
                statements = PipelinedStatements(raw, pipeline, self._current_engine().dialect, self._known_statements)
                raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                set_in_transaction(raw, pipeline)
                found = [statements.fetch(*query) for query in queries]
                if is_behind_a_pooler(raw):
                    # The driver parses values by session settings such as DateStyle. A pooler's session keeps them only until COMMIT, so
                    # the answers are read before it.
                    answered = [answer() for answer in found]
                    raw.execute("COMMIT")
                    return answered
                raw.execute("COMMIT")
            statements.all_answered()
            return [answer() for answer in found]

    @contextmanager
    def _reporting_driver(self) -> Iterator[None]:
        """Convert errors that psycopg raises without SQLAlchemy in between to errors of this library."""
        import psycopg

        try:
            with self.reporting():
                yield
        except psycopg.Error as error:
            cause = DBAPIError(None, None, error)
            found = wrapped(cause, str(self.address), self.address.secrets)
            found.__cause__ = cause
            self._check_not_migrated(found, self._access.read_options)
            raise found from cause

    @property
    def dialect(self) -> Dialect:
        """Return the SQLAlchemy dialect of the database."""
        return self._current_engine().dialect

    def _stored_version(self, connection: Connection) -> str | None:
        return connection.execute(sql_select(stored_version(self.tables))).scalar()

    def check_version(self, found: str | None) -> None:
        """Reject a catalog that was migrated since it was opened. Queries on the tables of another version may even return wrong rows.

        Args:
            found: The version that the catalog stores now; None when it stores none.

        Raises:
            CatalogVersionError: The version changed.
        """
        check_same_version(found, self.version)

    @contextmanager
    def write(self, *, migrating: bool = False, creating: bool = False, patience: float = WRITE_LOCK_SECONDS) -> Iterator[Connection]:
        """Open a transaction that commits when the block ends and rolls back when it raises.

        On a file the transaction holds the only write lock from the start. Waits for locks are short, because other writers queue behind
        a transaction that waits. The caller decides about a retry by :func:`classify`.

        Args:
            migrating: Whether the catalog may have another version; default False.
            creating: Whether there is no catalog yet; default False.
            patience: Seconds to wait for locks on a server. A migration waits without limit, because it excludes all writers.

        Raises:
            CatalogVersionError: The catalog has an earlier version, or was migrated since it was opened.
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (see ``classify``).
            CatalogError: The database rejected a statement.
            UsageError: The database was opened with ``read_only``.
        """
        self.check_not_read_only()
        if not migrating:
            self.check_writable()
        with self.definitions.around() as scope, self._transaction(self._access.write_options) as connection:
            attach(connection, scope)
            if not migrating:
                self._access.limit_waits(connection, patience)
            if not migrating and not creating:
                self.check_version(self._stored_version(connection))
            yield connection
            scope.at_commit = True
            try:
                connection.commit()
            except SQLAlchemyError as error:
                raise wrapped(error, str(self.address), self.address.secrets, at_commit=True) from error

    @contextmanager
    def unblocked(self) -> Iterator[Database]:
        """Return a database for a long read that blocks no writer: a temporary copy of a file, or the server's database itself.

        Raises:
            CatalogUnavailableError: The database cannot be reached or stays locked.
        """
        if not self.abilities.is_file:
            yield self
            return
        with TemporaryDirectory(prefix="ducklake-") as directory:
            path = str(Path(directory, "catalog"))
            with self.read() as connection:
                self._access.copy_file(connection, path)
            copy = Database(replace(self.address, url=self.address.url.set(database=path)), read_only=True)
            copy.follow(self.version, self.layout)
            try:
                yield copy
            finally:
                copy.close()

    @contextmanager
    def without_commits(self) -> Iterator[Connection]:
        """Begin a write transaction that blocks other commits to the lake; readers continue.

        For deleting files: what the transaction reads of the catalog stays true until it ends. Keep it short, as writers wait.

        Raises:
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (see ``classify``).
            CatalogError: The database rejected a statement.
        """
        with self.write() as connection:
            self._access.keep_commits_out(connection, self.tables)
            yield connection

    @contextmanager
    def commit(self, lease: LeaseRequest = LeaseRequest()) -> Iterator[Statements]:  # noqa: B008 - a frozen value
        """Open a write transaction for one commit, of few and quick statements; see :meth:`write`.

        On PostgreSQL the statements go through a pipeline with two round trips: one for the head, one for all changes and COMMIT::

            BEGIN | lease | history | options | statistics  -->  wait  -->  INSERT ... | UPDATE ... | COMMIT  -->  wait

        Writers of this library hold a lease on servers, so that they commit one after another: an advisory lock on PostgreSQL, which
        other clients do not check, and the lock of one row on MySQL.

        Args:
            lease: The way in which this attempt gets the lease; see :class:`~ducklake_core.catalog.database.writer_queue.Turn`.

        Raises:
            CatalogVersionError: The catalog has an earlier version.
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (see ``classify``).
            CatalogError: The database rejected a statement.
        """
        if not self._access.is_pipelined:
            with self.write() as connection:
                plain = self.definitions.statements(connection, self._known_statements)
                self._access.take_lease(plain, self.tables, lease)
                yield plain
            return
        self.check_writable()
        import psycopg

        at_commit = False
        try:
            with raw_connection(self._current_engine()) as connection, in_pipeline(connection) as (raw, pipeline):
                statements = PipelinedStatements(raw, pipeline, self._current_engine().dialect, self._known_statements)
                raw.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
                set_in_transaction(raw, pipeline)
                self.writer_queue.take(statements, self.tables.schema, lease)
                yield statements
                statements.send()
                at_commit = True
                raw.execute("COMMIT")
        except psycopg.Error as error:
            cause = DBAPIError(None, None, error)
            raise wrapped(cause, str(self.address), self.address.secrets, at_commit=at_commit) from error
        except SQLAlchemyError as error:
            raise wrapped(error, str(self.address), self.address.secrets) from error

    def now(self, connection: Connection) -> datetime:
        """Return the time of the database, in UTC; that of this machine if the database has no clock."""
        if not self.abilities.has_clock:
            return datetime.now(UTC)
        return in_utc(connection.execute(sql_select(self.clock())).scalar_one())

    def clock(self) -> ColumnElement[Any]:
        """Return the clock of the database as a part of a statement, see :func:`in_utc`; NULL if the database has none."""
        return self._access.clock()

    def exists(self) -> bool:
        """Return whether the file of a database exists; True for servers, where only a connection shows it.

        Raises:
            NotALakeError: The path is a directory.
            CatalogError: The operating system denies access.
        """
        return not self.abilities.is_file or file_exists(str(self.address.url.database), str(self.address))

    def close(self) -> None:
        """Close pooled connections. The database can be used again afterwards."""
        with self._lock:
            if self._engine is not None:
                _dispose(self._engine, self._process)
            self._engine = None

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Convert errors that the driver raises inside the block to errors of this library."""
        try:
            yield
        except SQLAlchemyError as error:
            raise wrapped(error, str(self.address), self.address.secrets) from error
        except AssertionError as error:
            raise interruption(error)  # noqa: B904 - its own traceback shows where

    @contextmanager
    def side_session(self) -> Iterator[Connection]:
        """Open another session next to a transaction, for DDL that would commit the transaction (``abilities.commits_at_ddl``).

        Raises:
            CatalogUnavailableError: The database cannot be reached, or something is locked.
            CatalogError: The database rejected a statement.
        """
        with self._transaction(self._access.write_options) as connection:
            yield connection
            connection.commit()

    @contextmanager
    def _transaction(self, options: Mapping[str, Any]) -> Iterator[Connection]:
        with self.reporting(), self._current_engine().connect() as opened:
            connection = opened.execution_options(**options)
            connection.begin()
            with closed_after_interrupted_commit(connection):
                yield connection

    def unlock_copy(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it when the process was copied."""
        self._lock = threading.Lock()

    def _current_engine(self) -> Engine:
        with self._lock:
            if self._engine is not None and self._process != os.getpid():
                _dispose(self._engine, self._process)
                self._engine = None
            if self._engine is None:
                self._process = os.getpid()
                self._engine = self._new_engine()
                weakref.finalize(self, _dispose, self._engine, self._process)
            return self._engine

    def _new_engine(self) -> Engine:
        engine = self._access.engine(self.address, pool_size=self._pool_size, connect_timeout=self._connect_timeout)
        # A transaction that is open while the database is closed returns its connection to a disposed pool, which would never close it.
        closed = threading.Event()
        event.listen(engine, "engine_disposed", lambda _engine: closed.set())
        event.listen(engine, "checkin", lambda _connection, record: record.invalidate() if closed.is_set() else None)
        return engine


def _access_of(database: str) -> Access:
    """Return how a kind of database is used.

    Raises:
        UnsupportedFeatureError: Its driver is not installed.
    """
    if database != "mysql":
        return _ACCESS[database]
    # The driver comes with an extra.
    driver_module("pymysql", "a catalog in a MySQL or MariaDB database", "mysql")
    from ducklake_core.catalog.database.mysql_catalog import MySQLAccess

    return MySQLAccess()


def _reopen(
    address: CatalogAddress, pool_size: int, connect_timeout: int, version: FormatVersion, layout: Layout | None, read_only: bool = False
) -> Database:
    database = Database(address, pool_size=pool_size, connect_timeout=connect_timeout, read_only=read_only)
    database.follow(version, layout)
    return database


_of_parents: list[pool.Pool] = []
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _unlock_copies() -> None:
    """Replace all locks in a forked child, where the threads that held them do not exist."""
    for database in list(_databases):
        database.unlock_copy()


os.register_at_fork(after_in_child=_unlock_copies)


def _dispose(engine: Engine, process: int) -> None:
    is_own_process = process == os.getpid()
    if not is_own_process:
        # In a forked child these connections belong to the parent. Closing them would end its sessions, and garbage collection would close
        # them too, so the pool is kept alive.
        _of_parents.append(engine.pool)
    engine.dispose(close=is_own_process)


def in_utc(found: datetime) -> datetime:
    """Return a time of the database clock in UTC. MySQL returns UTC without a time zone."""
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
