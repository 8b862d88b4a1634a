"""Transactions on MySQL and MariaDB.

Reads see the state of their first statement (REPEATABLE READ); writes see what others have committed meanwhile (READ COMMITTED), as they
do on PostgreSQL. InnoDB's primary key of the snapshots keeps two commits apart; that writers wait for one another before, by the lock of
one row, keeps them from losing their work against each other. The server ends the session of a writer that says nothing for too long.

Settings belong to sessions and are only said when they change, all in one statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Executable, event, func, select
from sqlalchemy.dialects import registry
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import SQLAlchemyError

from ducklake_core.catalog.database.failures import BUSY_CODES, TOO_LONG_IN_MYSQL, code_of_mysql, may_be_about_length
from ducklake_core.catalog.database.server_connections import server_engine
from ducklake_core.catalog.database.statements import PlainStatements, Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import LEASE_SECONDS, LOCK_SECONDS, TURN_SECONDS, Turn

registry.register("mysql.ducklake", "ducklake_core.catalog.database.mysql_dialect", "MySQLDialect")

_READ = {"isolation": "REPEATABLE-READ", "innodb_lock_wait_timeout": "1", "wait_timeout": "DEFAULT"}
_WRITE = _READ | {"isolation": "READ-COMMITTED"}
_SAID = "ducklake_settings"
"""Where a connection keeps what its session was told last."""
_SMALL_PACKET = 1 << 20
"""Bytes of a statement that a server accepts by default."""
_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")


class MySQLAccess:
    """Transactions on MySQL and MariaDB; see :class:`~ducklake_core.catalog.database.access.Access`."""

    is_pipelined = False
    read_options: Mapping[str, Any] = {_SAID: _READ}
    write_options: Mapping[str, Any] = {_SAID: _WRITE}

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """An engine whose sessions do not depend on the settings of the server, and are looked at before they are used again."""
        engine = server_engine(
            address.engine_url,
            pool_size=pool_size,
            defaults={"connect_timeout": connect_timeout},
            may_pass=_has_no_room,
            file_number=_file_number,
            ping=lambda connection: connection.ping(reconnect=False),
            # A commit that makes a table needs a second session for it: to wait for one could be for ever.
            max_overflow=-1,
            # SQLAlchemy's compiler for MySQL takes joins that are always true for products that nobody meant.
            enable_from_linting=False,
        )
        event.listen(engine, "begin", _announce)
        event.listen(engine, "handle_error", _note_too_long)
        return engine

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """See :class:`~ducklake_core.catalog.database.access.Access`; the server knows whole seconds alone."""
        _say(connection, _WRITE | {"innodb_lock_wait_timeout": f"{max(seconds, 1):.0f}"})

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Take the turn of writers, without which nothing is committed."""
        connection.execute(_version_row(tables)).all()

    def take_turn(self, statements: Statements, tables: CatalogTables, turn: Turn) -> None:
        """Wait for the lock of the row that says the version, which one writer holds to the end of its transaction, though not for ever.

        From then on nothing is waited for longer than a moment, and the server ends the session when it hears nothing more. Nobody goes
        without a turn: whoever migrates the catalog has that lock, too.
        """
        assert isinstance(statements, PlainStatements)
        lease = {"wait_timeout": f"{LEASE_SECONDS * turn.leases:.0f}"}
        _say(statements.connection, _WRITE | lease | {"innodb_lock_wait_timeout": f"{TURN_SECONDS:.0f}"})
        statements.ask("turn", lambda: _version_row(tables))
        _say(statements.connection, _WRITE | lease | {"innodb_lock_wait_timeout": f"{max(LOCK_SECONDS, 1):.0f}"})

    def clock(self) -> ColumnElement[Any]:
        """The clock of the server in UTC, whatever the session's time zone is."""
        return func.utc_timestamp(6)


def _version_row(tables: CatalogTables) -> Executable:
    metadata = tables["metadata"]
    return select(metadata.c.value).where(metadata.c.key == "version").with_for_update()


def _announce(connection: Connection) -> None:
    _say(connection, connection.get_execution_options().get(_SAID, _WRITE))


def _say(connection: Connection, settings: Mapping[str, str]) -> None:
    """Tell the server what is not yet so in this session."""
    known: dict[str, str] = connection.info.setdefault(_SAID, {})
    changed = {name: value for name, value in settings.items() if known.get(name) != value}
    if changed:
        is_mariadb = getattr(connection.dialect, "is_mariadb", False)
        connection.exec_driver_sql(f"SET {', '.join(_assignment(name, value, is_mariadb) for name, value in changed.items())}")
        known.update(changed)


def _assignment(name: str, value: str, is_mariadb: bool) -> str:
    if name == "isolation":
        # MariaDB knows the newer name since 11.1.
        return f"SESSION {'tx_isolation' if is_mariadb else 'transaction_isolation'} = '{value}'"
    return f"SESSION {name} = {value}"


def _note_too_long(context: ExceptionContext) -> None:
    """Replace the arguments of a lost connection by those of a statement that is too long, if that is the cause.

    The server closes the session while the driver still sends, so that the driver often misses the answer. The limit is only read,
    in another session, after a long statement has failed.
    """
    error = context.original_exception
    if context.engine is None or not may_be_about_length(error):
        return
    size = len(context.statement or "") + max(map(_sent_bytes, _rows_of(context.parameters)), default=0)
    if size < _SMALL_PACKET:
        return
    try:
        with context.engine.connect() as connection:
            limit = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    except SQLAlchemyError:
        return
    if size > limit:
        error.args = (TOO_LONG_IN_MYSQL, f"a statement has {size:,} bytes; max_allowed_packet of the server is {limit:,} bytes")


def _rows_of(parameters: Any) -> Iterable[Iterable[object]]:
    """Return the values of each execution of a statement: long ones are sent one by one."""
    rows = parameters if isinstance(parameters, list) else [parameters]
    return (row.values() if isinstance(row, Mapping) else row or () for row in rows)


def _sent_bytes(row: Iterable[object]) -> int:
    """Return the bytes of a row's strings and blobs in SQL text, in which some characters are escaped."""
    cells = (cell.encode(errors="replace") if isinstance(cell, str) else cell for cell in row)
    return sum(len(cell) + sum(map(cell.count, _ESCAPED)) for cell in cells if isinstance(cell, bytes | bytearray))


def _has_no_room(error: Exception) -> bool:
    return code_of_mysql(error) in BUSY_CODES


def _file_number(connection: Any) -> int | None:
    # The driver has no public way to its socket.
    socket = getattr(connection, "_sock", None)
    return None if socket is None else int(socket.fileno())
