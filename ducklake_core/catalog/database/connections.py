"""Connections to the metadata database: short read and write transactions, safe across fork and pickle."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, create_engine, event, func, pool, true
from sqlalchemy import select as sql_select
from sqlalchemy.dialects import registry
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.compiled import shared_texts
from ducklake_core.catalog.database.earlier_tables import earlier_tables
from ducklake_core.catalog.database.failures import Failure, classify, wrapped
from ducklake_core.catalog.database.pipelines import has_pipelines, in_pipeline, raw_connection
from ducklake_core.catalog.database.server_connections import check_alive, note_idle, open_patiently
from ducklake_core.catalog.database.sqlite_file import sqlite_engine
from ducklake_core.catalog.database.statements import PipelinedStatements, PlainStatements, Question, Statements
from ducklake_core.catalog.database.tables import CatalogTables, metadata_tables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.versions import Layout, check_same_version, stored_version
from ducklake_core.catalog.database.writer_queue import Turn, WriterQueue
from ducklake_core.errors import CatalogError, CatalogVersionError, UsageError
from ducklake_core.format.types.message_text import read_only_message
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion, migration_target

__all__ = ["Database", "Failure", "classify"]

READ_BUSY_SECONDS = 10.0
WRITE_BUSY_SECONDS = 1.0

registry.register("duckdb.ducklake", "ducklake_core.catalog.database.duckdb_dialect", "DuckDBDialect")


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
        self.abilities: Abilities = abilities_of(address.engine_url.get_dialect()())
        self.layout: Layout | None = None
        self.version: FormatVersion
        self.tables: CatalogTables
        self.follow(DEFAULT_VERSION)
        self._pool_size = pool_size
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        _databases.add(self)
        self._engine: Engine | None = None
        self._known_statements: dict[Hashable, Any] = {}
        self._process = 0
        self.writer_queue = WriterQueue()

    def __repr__(self) -> str:
        return f"Database({str(self.address)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.address, self._pool_size, self._connect_timeout, self.version, self.layout, self.read_only))

    def follow(self, version: FormatVersion, layout: Layout | None = None) -> None:
        """Use the tables of a version: as they were found (``layout``) where it can only be read, else as the format has them."""
        schema = self.address.metadata_schema or self.abilities.default_schema
        self.version = version
        self.layout = layout
        self._known_statements = {}
        self.tables = metadata_tables(schema, version) if layout is None else earlier_tables(schema, layout)

    def check_not_read_only(self) -> None:
        """Refuse to change what was opened to be read only.

        Raises:
            UsageError: It was.
        """
        if self.read_only:
            raise UsageError(read_only_message("this call", str(self.address)), read_only=str(self.address))

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
                f"lake.migrate() brings it to {migration_target(self.version)} (lake.migrate(dry_run=True) shows how)",
                found=self.version.name,
                supported=migration_target(self.version).name,
            )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads and sees one state of the catalog in all of its statements. Keep it short.

        Raises:
            CatalogUnavailableError: The database cannot be reached or stays locked.
            CatalogVersionError: Someone migrated the catalog since it was opened.
            CatalogError: It refused a statement.
        """
        options = self._read_options
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

    @property
    def _read_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"ducklake_write": False, "ducklake_busy": READ_BUSY_SECONDS}
        if self.abilities.concurrent_writers:
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        return options

    def _check_not_migrated(self, error: CatalogError, options: dict[str, Any]) -> None:
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
            CatalogError: It refused a statement.
        """
        if not self.abilities.concurrent_writers or not has_pipelines():
            with self.read() as connection:
                plain = PlainStatements(connection, self._known_statements)
                return [plain.ask(*question)() for question in questions]
        with self._reporting_driver(), raw_connection(self._current_engine()) as connection:
            with in_pipeline(connection) as (raw, pipeline):
                statements = PipelinedStatements(raw, pipeline, self._current_engine().dialect, self._known_statements)
                raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                found = [statements.ask(*question) for question in questions]
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
            self._check_not_migrated(found, self._read_options)
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
    def write(self, *, migrating: bool = False, creating: bool = False, patience: float = WRITE_BUSY_SECONDS) -> Iterator[Connection]:
        """A transaction that commits when the block ends and rolls back when it raises.

        In a file it holds the one write lock from the start. The wait for that lock is short, as is the wait for any lock of others
        on PostgreSQL, where writers queue behind one that waits; repeating is up to the caller. Use :func:`classify` on what is raised.

        Args:
            migrating: Whether the catalog may be of another version.
            creating: Whether there is no catalog yet.
            patience: Seconds to wait for locks on PostgreSQL; a migration, which no writer may run beside, waits for ever.

        Raises:
            CatalogVersionError: The catalog has an earlier version, or was migrated since it was opened.
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (``classify`` tells which).
            CatalogError: The database refused a statement.
            UsageError: The database was opened to be read only.
        """
        self.check_not_read_only()
        if not migrating:
            self.check_writable()
        options: dict[str, Any] = {"ducklake_write": True, "ducklake_busy": WRITE_BUSY_SECONDS}
        if self.abilities.concurrent_writers:
            options |= {"isolation_level": "READ COMMITTED"}
        with self._transaction(options) as connection:
            if self.abilities.concurrent_writers and not migrating:
                connection.execute(sql_select(func.set_config("lock_timeout", f"{patience * 1000:.0f}ms", true())))
            if not migrating and not creating:
                self.check_version(self._stored_version(connection))
            yield connection
            try:
                connection.commit()
            except SQLAlchemyError as error:
                raise wrapped(error, str(self.address), self.address.secrets, at_commit=True) from error

    @contextmanager
    def commit(self, turn: Turn = Turn()) -> Iterator[Statements]:  # noqa: B008 - a frozen value
        """A write transaction for one commit, as :meth:`write` is one, of few and quick statements.

        On PostgreSQL the statements go through a pipeline: one wait for what is asked at first, one for everything else and COMMIT.
        Writers of this library take turns there, by an advisory lock that nobody else looks at, so that they do not collide.

        Args:
            turn: How this attempt gets its turn.

        Raises:
            CatalogVersionError: The catalog has an earlier version.
            CatalogUnavailableError: Busy, unreachable, or lost at COMMIT (``classify`` tells which).
            CatalogError: The database refused a statement.
        """
        if not self.abilities.concurrent_writers or not has_pipelines():
            with self.write() as connection:
                yield PlainStatements(connection, self._known_statements)
            return
        self.check_writable()
        import psycopg

        at_commit = False
        try:
            with raw_connection(self._current_engine()) as connection, in_pipeline(connection) as (raw, pipeline):
                statements = PipelinedStatements(raw, pipeline, self._current_engine().dialect, self._known_statements)
                raw.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                self.writer_queue.take(statements, self.tables.schema, turn)
                yield statements
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
        found: datetime = connection.execute(sql_select(func.clock_timestamp())).scalar_one()
        return found.astimezone(UTC)

    def exists(self) -> bool:
        """Whether a file database is there; server databases are asked by connecting."""
        return not self.abilities.is_file or Path(str(self.address.url.database)).exists()

    @property
    def _is_duckdb(self) -> bool:
        return self.address.url.get_backend_name() == "duckdb"

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

    @contextmanager
    def _transaction(self, options: dict[str, Any]) -> Iterator[Connection]:
        with self.reporting(), self._current_engine().connect() as opened:
            connection = opened.execution_options(**options)
            connection.begin()
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
        engine = self._pooling_engine()
        # Who was in a transaction when the database was closed gives a connection back that nobody would close any more.
        closed = threading.Event()
        event.listen(engine, "engine_disposed", lambda _engine: closed.set())
        event.listen(engine, "checkin", lambda _connection, record: record.invalidate() if closed.is_set() else None)
        return engine

    def _pooling_engine(self) -> Engine:
        if self._is_duckdb:
            engine = create_engine(self.address.engine_url, poolclass=NullPool, hide_parameters=True, execution_options=shared_texts())
            event.listen(engine, "begin", _announce_duckdb)
            return engine
        if self.abilities.is_file:
            return sqlite_engine(self.address.url, pool_size=self._pool_size)
        defaults = {"connect_timeout": self._connect_timeout, "application_name": "ducklake-core"}
        engine = create_engine(
            self.address.url,
            pool_size=self._pool_size,
            max_overflow=16,
            pool_use_lifo=True,
            hide_parameters=True,
            # JSON as it is written: DuckDB 1.4 inlined it in columns of that type.
            json_deserializer=bytes,
            execution_options=shared_texts(),
            connect_args={key: value for key, value in defaults.items() if key not in self.address.url.query},
        )
        open_patiently(engine)
        event.listen(engine, "checkin", note_idle)
        event.listen(engine, "checkout", check_alive)
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


def _announce_duckdb(connection: Connection) -> None:
    options = connection.get_execution_options()
    own: Any = connection.connection.dbapi_connection
    own.intend(write=options["ducklake_write"], patience=options["ducklake_busy"])
