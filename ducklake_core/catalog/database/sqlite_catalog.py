"""SQLite files as catalogs: connections that stay open between transactions, one writer at a time."""

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
from ducklake_core.catalog.database.writer_queue import Turn

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
"""Errors after which a new connection is not worse, and may be better."""

READ_BUSY_SECONDS = 10.0
WRITE_BUSY_SECONDS = 1.0


class FileConnection(sqlite3.Connection):
    """A connection that knows its file, and its cursors: one that has rows left keeps the file locked."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.path = ""
        self.file_id: tuple[int, int] | None = None
        self.left_as: tuple[int, int] | None = None
        self.definitions: tuple[int, int] | None = None
        self.may_be_kept = False
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def cursor(self, *args: Any, **options: Any) -> Any:
        """A new cursor."""
        made = super().cursor(*args, **options)
        self._cursors.add(made)
        return made

    def close_cursors(self) -> None:
        """Close all cursors."""
        for cursor in list(self._cursors):
            cursor.close()

    def close(self) -> None:
        """Close the connection, and its cursors before: SQLite keeps the locks of a closed one as long as a cursor has rows left."""
        try:
            self.close_cursors()
        finally:
            super().close()


def sqlite_engine(url: URL, *, pool_size: int) -> Engine:
    """An engine that keeps up to so many connections open between transactions. It never creates the file."""
    path = str(url.database)
    engine = create_engine(
        url,
        creator=lambda: _opened(path),
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=-1,
        # The one used last knows the newest definitions.
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
    while True:
        before = _file_id(path)
        # mode=rw: a mistyped path must fail instead of leaving an empty database behind. isolation_level None: BEGIN is ours.
        connection = sqlite3.connect(
            Path(path).as_uri() + "?mode=rw", uri=True, isolation_level=None, check_same_thread=False, factory=FileConnection
        )
        if before == _file_id(path):
            connection.path, connection.file_id = path, before
            # What was opened for reading stays so, even when the file may be written later.
            connection.may_be_kept = os.access(path, os.W_OK)
            return connection
        connection.close()


def _file_id(path: str) -> tuple[int, int] | None:
    """Which file a path leads to; no other has the same as long as it is open. Asked of the path, as closing the file ends locks."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(options['ducklake_busy'] * 1000)}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options["ducklake_write"] else "BEGIN")


def _check_file(opened: FileConnection, _record: ConnectionPoolEntry, _proxy: Any) -> None:
    if opened.file_id != _file_id(opened.path):
        raise DisconnectionError(f"{opened.path} is another file than the one that was opened, or is gone")
    if opened.left_as is not None and opened.left_as != _content_mark(opened.path):
        _forget_content(opened)


def _forget_content(opened: FileConnection) -> None:
    """Keep nothing of a file that somebody else has written to.

    Pages and definitions of the last transaction count as good for as long as two numbers in the file are what they were. After a backup
    was copied into the file, others come to the same numbers again. Pages that have another number are dropped by SQLite anyway;
    definitions are only parsed again when they are others.
    """
    opened.execute("PRAGMA shrink_memory").close()
    try:
        (number,) = opened.execute("PRAGMA schema_version").fetchone()
        definitions = (number, hash(tuple(opened.execute("SELECT rootpage, sql FROM sqlite_master"))))
    except sqlite3.Error:
        # Somebody has locked the file: what is in it is not known.
        definitions = None
    if definitions is None or definitions != opened.definitions:
        opened.execute("PRAGMA writable_schema = RESET").close()
    opened.definitions = definitions


def _content_mark(path: str) -> tuple[int, int] | None:
    """Moves with whatever is written to a file; unlike the time of its content, nobody can set the time of its last change."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size


def _end_everything(opened: FileConnection, _record: ConnectionPoolEntry, _state: Any) -> None:
    opened.close_cursors()
    # A COMMIT that had to wait for readers, and failed, leaves the transaction open; SQLAlchemy takes it for ended.
    if opened.in_transaction:
        opened.rollback()


def _close_what_holds(opened: FileConnection | None, record: ConnectionPoolEntry) -> None:
    """Close a connection that would hold something.

    Where there is a write-ahead log an open connection has a lock on the file and a part in the log. A second SQLite in this process,
    as DuckDB has one, does not see locks of the same process: it would delete the log when it closes, with this connection still in it.
    """
    if opened is None:
        return
    try:
        # Asked of a connection that has not read anything yet, because others had the file, it would wait for them once more.
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
        """How long others are waited for."""
        return {"ducklake_write": False, "ducklake_busy": READ_BUSY_SECONDS}

    @property
    def write_options(self) -> Mapping[str, Any]:
        """That the write lock is wanted from the start, and how long it is waited for."""
        return {"ducklake_write": True, "ducklake_busy": WRITE_BUSY_SECONDS}

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:  # noqa: ARG002
        """An engine that keeps so many connections open."""
        return sqlite_engine(address.url, pool_size=pool_size)

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Nothing: the lock was got when the transaction began."""

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Nothing: a file has one writer at a time."""

    def take_turn(self, statements: Statements, tables: CatalogTables, turn: Turn) -> None:
        """Nothing: whoever has the lock has the turn."""

    def clock(self) -> ColumnElement[Any]:
        """NULL: this machine's clock is the file's."""
        return null()


class DuckDBAccess(SqliteAccess):
    """Transactions on DuckDB files, which are open as long as one runs."""

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:  # noqa: ARG002
        """An engine that keeps nothing open."""
        engine = create_engine(address.engine_url, poolclass=NullPool, hide_parameters=True, execution_options=shared_statements())
        event.listen(engine, "begin", _announce)
        return engine


def _announce(connection: Connection) -> None:
    options = connection.get_execution_options()
    own: Any = connection.connection.dbapi_connection
    own.intend(write=options["ducklake_write"], patience=options["ducklake_busy"])
