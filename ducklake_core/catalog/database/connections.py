"""Connections to the metadata database: short read and write transactions, safe across fork and pickle."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, Engine, event, pool
from sqlalchemy import select as sql_select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.failures import Failure, classify, closed_after_interrupted_commit, interruption, wrapped
from ducklake_core.catalog.database.mysql_catalog import MySQLAccess
from ducklake_core.catalog.database.postgres_catalog import PostgresAccess, is_behind_a_pooler, set_in_transaction
from ducklake_core.catalog.database.server_connections import Access, ask_alone, in_pipeline, raw_connection
from ducklake_core.catalog.database.sqlite_catalog import DuckDBAccess, SqliteAccess
from ducklake_core.catalog.database.statements import (
    MAX_KNOWN,
    Definitions,
    PipelinedStatements,
    PlainStatements,
    Question,
    Statements,
    attach,
    known_statement,
)
from ducklake_core.catalog.database.tables import CatalogTables, metadata_tables
from ducklake_core.catalog.database.url import CatalogAddress, file_exists
from ducklake_core.catalog.database.versions import Layout, check_same_version, earlier_tables, stored_version
from ducklake_core.catalog.database.writer_queue import Turn, WriterQueue
from ducklake_core.errors import CatalogError, CatalogVersionError, UsageError
from ducklake_core.format.cache import BoundedCache
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion, migration_target

__all__ = ["Database", "Failure", "classify"]

WRITE_LOCK_SECONDS = 1.0
"""How long a transaction that writes waits for a lock of others on a server."""
_ACCESS: dict[str, Access] = {"sqlite": SqliteAccess(), "duckdb": DuckDBAccess(), "postgresql": PostgresAccess(), "mysql": MySQLAccess()}


class Database:
    """One metadata database. Nothing is opened before the first :meth:`read` or :meth:`write`.

    Connections are never shared with a forked child; a pickled database opens its own.

    Args:
        address: Where it is.
        pool_size: Connections that are kept open between transactions. A DuckDB file has none.
        connect_timeout: Seconds to wait for a server's first answer.
        read_only: Whether every transaction that could write is refused.
    """

    def __init__(self, address: CatalogAddress, *, pool_size: int = 2, connect_timeout: int = 10, read_only: bool = False) -> None:
        self.address = address
        self.read_only = read_only
        self._access = _ACCESS[address.url.get_backend_name()]
        self.abilities: Abilities = abilities_of(address.engine_url.get_dialect()())
        self.definitions = Definitions(self.abilities, self.beside)
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
        """Use the tables of a version: as they were found (``layout``) where it can only be read, else as the format has them."""
        schema = self.address.metadata_schema or self.abilities.default_schema
        self.version = version = replace(version, inlined_limits=self.abilities.inlined_limits)
        self.layout = layout
        self._known_statements.clear()
        self.tables = metadata_tables(schema, version) if layout is None else earlier_tables(schema, layout)

    def check_not_read_only(self) -> None:
        """Refuse to change what was opened to be read only.

        Raises:
            UsageError: It was.
        """
        if self.read_only:
            raise UsageError(
                f"The lake {self.address} was opened read-only, so nothing was changed. Open it without read_only to write.",
                read_only=str(self.address),
            )

    def check_writable(self, *, dry_run: bool = False) -> None:
        """Refuse a catalog of an earlier version, and one that was opened to be read only, unless nothing is written (``dry_run``).

        Raises:
            CatalogVersionError: It can only be read, or migrated.
            UsageError: It was opened to be read only.
        """
        if not dry_run:
            self.check_not_read_only()
        if self.layout is not None:
            raise CatalogVersionError(
                f"the catalog {self.address} has version {self.version}, which this library reads but does not write: "
                f"lake.migrate(), or ducklake migrate, brings it to {migration_target(self.version)}, and as a dry run shows how",
                found=self.version.name,
                supported=migration_target(self.version).name,
            )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads and sees one state of the catalog in all of its statements. Keep it short.

        Raises:
            CatalogUnavailableError: The database cannot be reached or stays locked.
            CatalogVersionError: Someone migrated the catalog since it was opened.
            CatalogError: It rejected a statement.
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
        """Find out whether a statement was refused because the catalog has the tables of another version by now."""
        if isinstance(error, CatalogVersionError) or not isinstance(error.__cause__, SQLAlchemyError) or classify(error) != "fatal":
            return
        try:
            with self._transaction(options) as connection:
                found = self._stored_version(connection)
        except CatalogError:
            return
        self.check_version(found)

    def answers(self, *questions: Question) -> list[Sequence[Any]]:
        """Rows of several queries in one transaction that only reads; on PostgreSQL asked at once, so that there is one wait for all.

        Args:
            questions: Name, statement and parameters of each, as for :meth:`Statements.ask`.

        Raises:
            CatalogUnavailableError: The database cannot be reached or stays locked.
            CatalogVersionError: Someone migrated the catalog since it was opened.
            CatalogError: It rejected a statement.
        """
        if not self._access.is_pipelined:
            with self.read() as connection:
                plain = PlainStatements(connection, self._known_statements)
                return [plain.ask(*question)() for question in questions]
        with self._reporting_driver(), raw_connection(self._current_engine()) as connection:
            if len(questions) == 1 and not is_behind_a_pooler(connection):
                name, build, parameters = questions[0]
                statement = known_statement(self._known_statements, name, build, self._current_engine().dialect)
                return [ask_alone(connection, statement, parameters)]
            with in_pipeline(connection) as (raw, pipeline):
                statements = PipelinedStatements(raw, pipeline, self._current_engine().dialect, self._known_statements)
                raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                set_in_transaction(raw, pipeline)
                found = [statements.ask(*question) for question in questions]
                if is_behind_a_pooler(raw):
                    # The driver reads values by settings, which are the session's own again after COMMIT.
                    answered = [answer() for answer in found]
                    raw.execute("COMMIT")
                    return answered
                raw.execute("COMMIT")
            statements.all_answered()
            return [answer() for answer in found]

    @contextmanager
    def _reporting_driver(self) -> Iterator[None]:
        """What psycopg raises, where SQLAlchemy is not in between, leaves the block as an error of this library."""
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
        """SQLAlchemy's dialect of the database."""
        return self._current_engine().dialect

    def _stored_version(self, connection: Connection) -> str | None:
        return connection.execute(sql_select(stored_version(self.tables))).scalar()

    def check_version(self, found: str | None) -> None:
        """Refuse to go on with the tables of one version after a migration to another: they may answer wrongly, and not only fail.

        Args:
            found: The version that the catalog says now; None when it says none.

        Raises:
            CatalogVersionError: It is another one.
        """
        check_same_version(found, self.version)

    @contextmanager
    def write(self, *, migrating: bool = False, creating: bool = False, patience: float = WRITE_LOCK_SECONDS) -> Iterator[Connection]:
        """A transaction that commits when the block ends and rolls back when it raises.

        In a file it holds the one write lock from the start. The wait for that lock is short, as is the wait for any lock of others
        on a server, where writers queue behind one that waits; repeating is up to the caller. Use :func:`classify` on what is raised.

        Args:
            migrating: Whether the catalog may be of another version.
            creating: Whether there is no catalog yet.
            patience: Seconds to wait for locks on a server; a migration, which no writer may run beside, waits for ever.

        Raises:
            CatalogVersionError: The catalog has an earlier version, or was migrated since it was opened.
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (``classify`` tells which).
            CatalogError: The database rejected a statement.
            UsageError: The database was opened to be read only.
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
    def without_commits(self) -> Iterator[Connection]:
        """Begin a write transaction that blocks other commits to the lake; readers continue.

        For deleting files: what the transaction reads of the catalog stays true until it ends. Keep it short, as writers wait.

        Raises:
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (``classify`` tells which).
            CatalogError: The database rejected a statement.
        """
        with self.write() as connection:
            self._access.keep_commits_out(connection, self.tables)
            yield connection

    @contextmanager
    def commit(self, turn: Turn = Turn()) -> Iterator[Statements]:  # noqa: B008 - a frozen value
        """A write transaction for one commit, as :meth:`write` is one, of few and quick statements.

        On PostgreSQL the statements go through a pipeline: one wait for what is asked at first, one for everything else and COMMIT.
        Writers of this library take turns on servers, so that they do not collide: on PostgreSQL by an advisory lock that nobody else
        looks at, on MySQL by the lock of one row.

        Args:
            turn: How this attempt gets its turn.

        Raises:
            CatalogVersionError: The catalog has an earlier version.
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (``classify`` tells which).
            CatalogError: The database rejected a statement.
        """
        if not self._access.is_pipelined:
            with self.write() as connection:
                plain = self.definitions.statements(connection, self._known_statements)
                self._access.take_turn(plain, self.tables, turn)
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
                self.writer_queue.take(statements, self.tables.schema, turn)
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
        """The database's clock, in UTC; this machine's where the database has none."""
        if not self.abilities.has_clock:
            return datetime.now(UTC)
        return in_utc(connection.execute(sql_select(self.clock())).scalar_one())

    def clock(self) -> ColumnElement[Any]:
        """The database's clock as a part of a statement, see :func:`in_utc`; NULL where the database has none."""
        return self._access.clock()

    def exists(self) -> bool:
        """Whether a file database is there; server databases are asked by connecting.

        Raises:
            NotALakeError: A directory is there instead.
            CatalogError: The operating system does not say.
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
        """Within a transaction: what the driver raises leaves the block as an error of this library."""
        try:
            yield
        except SQLAlchemyError as error:
            raise wrapped(error, str(self.address), self.address.secrets) from error
        except AssertionError as error:
            raise interruption(error)  # noqa: B904 - its own traceback says where

    @contextmanager
    def beside(self) -> Iterator[Connection]:
        """A session beside a transaction, for what a transaction cannot hold where ``abilities.commits_at_ddl``.

        Raises:
            CatalogUnavailableError: The database cannot be reached, or something is locked.
            CatalogError: It rejected a statement.
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
        """Forget in a forked child who held the lock when the process was copied."""
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
        # Who was in a transaction when the database was closed gives a connection back that nobody would close any more.
        closed = threading.Event()
        event.listen(engine, "engine_disposed", lambda _engine: closed.set())
        event.listen(engine, "checkin", lambda _connection, record: record.invalidate() if closed.is_set() else None)
        return engine


def _reopen(
    address: CatalogAddress, pool_size: int, connect_timeout: int, version: FormatVersion, layout: Layout | None, read_only: bool = False
) -> Database:
    database = Database(address, pool_size=pool_size, connect_timeout=connect_timeout, read_only=read_only)
    database.follow(version, layout)
    return database


_of_parents: list[pool.Pool] = []
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _unlock_copies() -> None:
    """In a forked child no thread is left that could give back a lock which another thread of the parent held."""
    for database in list(_databases):
        database.unlock_copy()


os.register_at_fork(after_in_child=_unlock_copies)


def _dispose(engine: Engine, process: int) -> None:
    is_ours = process == os.getpid()
    if not is_ours:
        # In a forked child these connections are the parent's: no goodbye to the server, no close of a file, which garbage would get.
        _of_parents.append(engine.pool)
    engine.dispose(close=is_ours)


def in_utc(found: datetime) -> datetime:
    """What a database's clock says, with its zone; MySQL says it in UTC, without one."""
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
