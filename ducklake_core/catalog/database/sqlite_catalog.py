"""Use SQLite files as catalogs: connections that stay open between transactions, one writer at a time.

A pooled connection keeps pages and table definitions of the file in memory. Between two transactions the file may be written or replaced
(a backup, another lake), so each checkout compares two marks::

    device and inode changed     another file: open a new connection
    ctime or size changed        the content was written: drop cached pages, and re-read definitions if they differ
    neither                      reuse everything
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import URL, ColumnElement, Connection, Engine, create_engine, event, null
from sqlalchemy.dialects import registry
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from ducklake_core.catalog.database.statements import Statements, shared_statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import LeaseRequest

_BROKEN = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""Errors after which the connection is replaced, because a new one may work."""

READ_BUSY_SECONDS = 10.0
WRITE_BUSY_SECONDS = 1.0


class FileConnection(sqlite3.Connection):
    """A connection that stores the identity of its file and tracks its cursors, because a cursor with remaining rows locks the file."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.path = ""
        self.file_id: tuple[int, int] | None = None
        self.left_as: tuple[int, int] | None = None
        self.definitions: tuple[int, int] | None = None
        self.may_be_kept = False
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Return a new cursor."""
        made = super().cursor(*args, **options)
        self._cursors.add(made)
        return made

    def close_cursors(self) -> None:
        """Close all cursors."""
        for cursor in list(self._cursors):
            cursor.close()

    def close(self) -> None:
        """Close the cursors and the connection. SQLite would keep the locks of a closed connection while a cursor has rows left."""
        try:
            self.close_cursors()
        finally:
            super().close()


def sqlite_engine(url: URL, *, pool_size: int) -> Engine:
    """Create an engine that keeps up to ``pool_size`` connections open between transactions. It never creates the file."""
    path = str(url.database)
    engine = create_engine(
        url,
        creator=lambda: _opened(path),
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=-1,
        # The connection that was used last has the newest definitions.
        pool_use_lifo=True,
        hide_parameters=True,
        execution_options=shared_statements(),
    )
    event.listen(engine, "begin", _begin)
    event.listen(engine, "checkout", _check_file)
    event.listen(engine, "reset", _end_everything)
    event.listen(engine, "checkin", _close_what_holds)
    event.listen(engine, "handle_error", _give_up_broken)
    return engine


def _opened(path: str) -> FileConnection:
    # Repeat if the file was replaced between stat and open, so that the id belongs to the opened file.
    while True:
        before = _file_id(path)
        # mode=rw: a mistyped path must fail instead of creating an empty database. isolation_level None: the engine sends BEGIN itself.
        connection = sqlite3.connect(
            Path(path).as_uri() + "?mode=rw", uri=True, isolation_level=None, check_same_thread=False, factory=FileConnection
        )
        if before == _file_id(path):
            connection.path, connection.file_id = path, before
            # A connection that was opened read-only stays so even if the file becomes writable later.
            connection.may_be_kept = os.access(path, os.W_OK)
            return connection
        connection.close()


def _file_id(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file, which are unique while it is open.

    By path and not by opening the file: closing any descriptor of a file drops all POSIX locks that the process holds on it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(options['ducklake_busy'] * 1000)}")
    # IMMEDIATE takes the write lock at once; a read transaction that upgrades later could fail with SQLITE_BUSY at any statement.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options["ducklake_write"] else "BEGIN")


def _check_file(opened: FileConnection, _record: ConnectionPoolEntry, _proxy: Any) -> None:
    if opened.file_id != _file_id(opened.path):
        raise DisconnectionError(f"{opened.path} is another file than the one that was opened, or was deleted")
    if opened.left_as is not None and opened.left_as != _content_mark(opened.path):
        _forget_content(opened)


def _forget_content(opened: FileConnection) -> None:
    """Drop everything that is cached of a file that another client has written.

    SQLite trusts cached pages and definitions while the change counter and the schema cookie in the file are unchanged. After a backup is
    copied over the file, both may reach the same numbers with other content. Definitions are parsed again only if they differ, because
    parsing is slow.
    """
    opened.execute("PRAGMA shrink_memory").close()
    try:
        (number,) = opened.execute("PRAGMA schema_version").fetchone()
        definitions = (number, hash(tuple(opened.execute("SELECT rootpage, sql FROM sqlite_master"))))
    except sqlite3.Error:
        # Another client has locked the file, so its content is unknown.
        definitions = None
    if definitions is None or definitions != opened.definitions:
        opened.execute("PRAGMA writable_schema = RESET").close()
    opened.definitions = definitions


def _content_mark(path: str) -> tuple[int, int] | None:
    """Return a mark that changes with every write: ctime and size. Programs can set mtime, but not ctime."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size


def _end_everything(opened: FileConnection, _record: ConnectionPoolEntry, _state: Any) -> None:
    opened.close_cursors()
    # A COMMIT that failed because of readers leaves the transaction open, although SQLAlchemy considers it ended.
    if opened.in_transaction:
        opened.rollback()


def _close_what_holds(opened: FileConnection | None, record: ConnectionPoolEntry) -> None:
    """Close a connection that would hold locks while it is idle.

    In WAL mode an open connection holds a lock on the file and uses its write-ahead log. A second SQLite library in this process, such as
    the one in DuckDB, does not see POSIX locks of its own process: when it closes the file, it would delete the log that this connection
    still uses.
    """
    if opened is None:
        return
    try:
        # Without waiting: a connection that could not read because of a lock would wait here once more.
        opened.execute("PRAGMA busy_timeout = 0")
        (mode,) = opened.execute("PRAGMA journal_mode").fetchone()
    except sqlite3.Error:
        mode = None
    opened.left_as = _content_mark(opened.path)
    if mode in (None, "wal") or not opened.may_be_kept:
        record.invalidate()


def _give_up_broken(context: ExceptionContext) -> None:
    code = getattr(context.original_exception, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _BROKEN:
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


registry.register("duckdb.ducklake", "ducklake_core.catalog.database.duckdb_catalog", "DuckDBDialect")


class SqliteAccess:
    """Transactions on SQLite files; see :class:`~ducklake_core.catalog.database.server_connections.Access`."""

    is_pipelined = False

    @property
    def read_options(self) -> Mapping[str, Any]:
        """Return the seconds to wait for other clients."""
        return {"ducklake_write": False, "ducklake_busy": READ_BUSY_SECONDS}

    @property
    def write_options(self) -> Mapping[str, Any]:
        """Return that the write lock is taken at the start, and the seconds to wait for it."""
        return {"ducklake_write": True, "ducklake_busy": WRITE_BUSY_SECONDS}

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:  # noqa: ARG002
        """Create an engine that keeps ``pool_size`` connections open."""
        return sqlite_engine(address.url, pool_size=pool_size)

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Do nothing: the transaction took its lock when it began."""

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Do nothing: a file has one writer at a time."""

    def take_lease(self, statements: Statements, tables: CatalogTables, lease: LeaseRequest) -> None:
        """Do nothing: the write lock of the file is the lease."""

    def copy_file(self, connection: Connection, path: str) -> None:
        """Copy the file with SQLite's backup, in one step."""
        own: Any = connection.connection.dbapi_connection
        target = sqlite3.connect(path)
        try:
            own.backup(target)
        finally:
            target.close()

    def clock(self) -> ColumnElement[Any]:
        """Return NULL: a file has no clock."""
        return null()


class DuckDBAccess(SqliteAccess):
    """Transactions on DuckDB files, which are attached only while a transaction runs."""

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:  # noqa: ARG002
        """Create an engine that keeps no connection open."""
        engine = create_engine(address.engine_url, poolclass=NullPool, hide_parameters=True, execution_options=shared_statements())
        event.listen(engine, "begin", _announce)
        return engine

    def copy_file(self, connection: Connection, path: str) -> None:
        """Copy the file with DuckDB's COPY FROM DATABASE."""
        own: Any = connection.connection.dbapi_connection
        own.copy_file(path)


def _announce(connection: Connection) -> None:
    options = connection.get_execution_options()
    own: Any = connection.connection.dbapi_connection
    own.intend(write=options["ducklake_write"], patience=options["ducklake_busy"])
