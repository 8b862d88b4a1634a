"""Use MySQL and MariaDB as catalogs: the SQLAlchemy dialect, sessions, transactions and streamed results."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.connections import Connection as PyMySQLConnection
from pymysql.constants import CLIENT
from pymysql.cursors import SSCursor
from sqlalchemy import ColumnElement, Connection, Engine, Executable, event, func, select
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.base import MySQLDDLCompiler, MySQLTypeCompiler
from sqlalchemy.dialects.mysql.mysqldb import MySQLCompiler_mysqldb
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import override

from ducklake_core.catalog.database.abilities import MARIADB, MYSQL, abilities_of
from ducklake_core.catalog.database.failures import BUSY_CODES, TOO_LONG_IN_MYSQL, code_of_mysql, may_be_about_length
from ducklake_core.catalog.database.server_connections import server_engine
from ducklake_core.catalog.database.statements import PlainStatements, Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import LEASE_SECONDS, LEASE_WAIT_SECONDS, LOCK_SECONDS, LeaseRequest
from ducklake_core.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.sql.functions import Function


_CHARSET = "utf8mb4"
_DEFINITION_SECONDS = 10
"""Seconds for which a DROP TABLE waits for transactions that use the table."""
_STREAM_SECONDS = 3600
"""Seconds for which the server waits while a client does not read more rows of a result."""
_NO_LIMIT = 18_446_744_073_709_551_615
_SESSION = {
    # Format and comparison of values.
    "time_zone": "'+00:00'",
    "timestamp": "DEFAULT",
    "sql_mode": "'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    "div_precision_increment": "4",
    "group_concat_max_len": "4294967295",
    "max_sort_length": "1024",
    "default_week_format": "0",
    "lc_time_names": "'en_US'",
    "sql_auto_is_null": "0",
    "sql_quote_show_create": "1",
    # Limits of rows and statements. The order matters: setting max_join_size clears sql_big_selects.
    "sql_select_limit": str(_NO_LIMIT),
    "max_join_size": str(_NO_LIMIT),
    "sql_big_selects": "1",
    "sql_safe_updates": "0",
    "foreign_key_checks": "1",
    "unique_checks": "1",
    # Begin and end of transactions.
    "autocommit": "0",
    "completion_type": "0",
    "lock_wait_timeout": str(_DEFINITION_SECONDS),
    "net_write_timeout": str(_STREAM_SECONDS),
}
"""Variables of every session. They override the defaults of the server and its ``init_connect``."""
_SESSION_OF_MYSQL = {
    "max_execution_time": "0",
    "transaction_read_only": "0",
    "windowing_use_high_precision": "1",
    "cte_max_recursion_depth": "1000",
}
_SESSION_OF_MARIADB = {
    "max_statement_time": "0",
    "tx_read_only": "0",
    "check_constraint_checks": "1",
    "max_recursive_iterations": "1000",
    "old_mode": "''",
}
# MySQL may add an invisible primary key to tables (``sql_generate_invisible_primary_key``), which must not be listed as a column.
_SINCE_8_0_30 = ("/*!80030", "show_gipk_in_create_table_and_information_schema = 0")
_SINCE_10_5_2 = ("/*M!100502", "sql_if_exists = 0")
_NOT_SETTABLE = frozenset({1193, 1227, 1238, 1290})
"""The variable is unknown, read-only, not permitted for this user, or disabled by an option of the server."""

_READ = {"isolation": "REPEATABLE-READ", "innodb_lock_wait_timeout": "1", "wait_timeout": "DEFAULT"}
_WRITE = _READ | {"isolation": "READ-COMMITTED"}
_SETTINGS = "ducklake_settings"
"""Key of ``Connection.info`` under which the current settings of the session are stored."""
_SMALL_PACKET = 1 << 20
"""Smallest limit, in bytes, that servers have for a statement."""
_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")


class _Types(MySQLTypeCompiler):
    @override
    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        collation = abilities_of(self.dialect).binary_collation
        return super().visit_VARCHAR(type_, **kw) if type_.length else f"LONGTEXT CHARACTER SET {_CHARSET} COLLATE {collation}"

    @override
    def visit_large_binary(self, type_: Any, **kw: Any) -> str:
        return "LONGBLOB"


class _Definitions(MySQLDDLCompiler):
    @override
    def post_create_table(self, table: Table) -> str:
        # The default engine of the server may not support transactions.
        return " ENGINE=InnoDB"


class _Statements(MySQLCompiler_mysqldb):
    def visit_rtrim_func(self, function: Function[Any], **kw: Any) -> str:
        """Compile RTRIM with a set of characters, as in other databases; MySQL's own RTRIM removes only blanks."""
        text, characters = (self.process(clause, **kw) for clause in function.clauses)
        return f"REGEXP_REPLACE({text}, CONCAT('[', {characters}, ']+$'), '')"


class MySQLDialect(MySQLDialect_pymysql):
    """SQLAlchemy's dialect for PyMySQL, as catalogs need it."""

    driver = "ducklake"
    supports_statement_cache = True
    type_compiler_cls = _Types
    ddl_compiler = _Definitions
    statement_compiler = _Statements
    supports_server_side_cursors = True

    @classmethod
    @override
    def import_dbapi(cls) -> ModuleType:
        return pymysql

    @property
    def _sscursor(self) -> type[Any]:
        return StreamingCursor

    @override
    def connect(self, *cargs: Any, **cparams: Any) -> Any:
        try:
            return StreamingConnection(*cargs, **cparams)
        except ValueError as error:
            # An invalid host name, for example one with an empty label.
            raise UsageError(f"The address of the MySQL catalog is invalid: {error}") from error

    @override
    def on_connect(self) -> Callable[[Any], None]:
        return settle

    @override
    def create_connect_args(self, url: URL, _translate_args: dict[str, Any] | None = None) -> Any:
        return [], connect_arguments(url)


def settle(connection: Any) -> None:
    """Make a new session independent of the settings of the server, in one statement.

    If the server does not let this user set one of the variables, each is set by itself, and those that cannot be set are skipped.
    """
    is_mariadb = "mariadb" in connection.get_server_info().lower()
    own = {"collation_connection": f"'{(MARIADB if is_mariadb else MYSQL).binary_collation}'"} | _SESSION
    own |= _SESSION_OF_MARIADB if is_mariadb else _SESSION_OF_MYSQL
    version, newer = _SINCE_10_5_2 if is_mariadb else _SINCE_8_0_30
    assignments = [f"SESSION {name} = {value}" for name, value in own.items()]
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"SET {', '.join(assignments)} {version} , SESSION {newer} */")
        except pymysql.MySQLError as error:
            if code_of_mysql(error) not in _NOT_SETTABLE:
                raise
            for assignment in (*assignments, f"SESSION {newer}"):
                _set_if_possible(cursor, assignment)


def _set_if_possible(cursor: Any, assignment: str) -> None:
    try:
        cursor.execute(f"SET {assignment}")
    except pymysql.MySQLError as error:
        if code_of_mysql(error) not in _NOT_SETTABLE:
            raise


def connect_arguments(url: URL) -> dict[str, Any]:
    """Return the arguments of PyMySQL for an address.

    >>> from sqlalchemy import make_url
    >>> found = connect_arguments(make_url("mysql://me@db:3307/lake?ssl_mode=verify_ca"))
    >>> found["port"], found["ssl"].verify_mode.name, found["ssl"].check_hostname
    (3307, 'CERT_REQUIRED', False)
    >>> connect_arguments(make_url("mysql:///lake?unix_socket=/run/s"))["ssl_disabled"]
    True

    Raises:
        UsageError: TLS cannot use a certificate file or a cipher.
    """
    query = {name: str(value) for name, value in url.query.items()}
    found: dict[str, Any] = {
        "host": url.host or "localhost",
        "port": url.port or 3306,
        "user": url.username,
        # As bytes: the driver encodes strings as Latin-1.
        "password": (url.password or "").encode(),
        "database": url.database,
        "charset": _CHARSET,
        # The row count of an UPDATE includes matched rows that did not change, as in other databases.
        "client_flag": CLIENT.FOUND_ROWS,
        "program_name": "ducklake-core",
    }
    if socket := query.pop("unix_socket", None):
        found["unix_socket"] = socket
    found |= {name: float(query.pop(name)) for name in ("connect_timeout", "read_timeout", "write_timeout") if name in query}
    mode = query.pop("ssl_mode", "preferred" if not query else "verify_ca").lower()
    # A Unix socket never leaves the machine; the clients of MySQL do not encrypt it by default either.
    if mode == "disabled" or (mode == "preferred" and socket):
        found["ssl_disabled"] = True
    elif mode != "preferred":
        found["ssl"] = _tls(mode, query)
    return found


def _tls(mode: str, given: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context of a session.

    PyMySQL's own options are not used: without ``ssl_ca`` it never compares host names.
    """
    if "ssl_key" in given and "ssl_cert" not in given:
        raise UsageError("ssl_key of a MySQL catalog needs the certificate ssl_cert. Pass both")
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca") or None, capath=given.get("ssl_capath") or None)
        # Certificates that MySQL generates lack extensions that OpenSSL's strict mode requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
        if "ssl_cert" in given:
            # Without a password argument OpenSSL would prompt on the terminal for an encrypted key.
            context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"), password="")
        if "ssl_cipher" in given:
            context.set_ciphers(given["ssl_cipher"])
    except (OSError, ValueError) as error:
        settings = ", ".join(f"{name}={given[name]}" for name in sorted(given))
        raise UsageError(f"TLS cannot be set up for the MySQL catalog with {settings}: {error}. Check these settings") from error
    return context


registry.register("mysql.ducklake", "ducklake_core.catalog.database.mysql_catalog", "MySQLDialect")


class MySQLAccess:
    """Transactions on MySQL and MariaDB; see :class:`~ducklake_core.catalog.database.server_connections.Access`."""

    is_pipelined = False
    read_options: Mapping[str, Any] = {_SETTINGS: _READ}
    write_options: Mapping[str, Any] = {_SETTINGS: _WRITE}

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """Create an engine whose sessions do not depend on the settings of the server and are checked before they are reused."""
        engine = server_engine(
            address.engine_url,
            pool_size=pool_size,
            defaults={"connect_timeout": connect_timeout},
            may_pass=_is_pool_full,
            file_number=_file_number,
            ping=lambda connection: connection.ping(reconnect=False),
            # No upper limit: a commit that creates a table needs a second session, and waiting for one could deadlock.
            max_overflow=-1,
            # SQLAlchemy would warn about joins ON true, which are intended here, as accidental cartesian products.
            enable_from_linting=False,
        )
        event.listen(engine, "begin", _announce)
        event.listen(engine, "handle_error", _note_too_long)
        return engine

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """See :class:`~ducklake_core.catalog.database.server_connections.Access`; the server accepts whole seconds only."""
        _apply_settings(connection, _WRITE | {"innodb_lock_wait_timeout": f"{max(seconds, 1):.0f}"})

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Take the writer lease, without which no writer of this library commits."""
        connection.execute(_version_row(tables)).all()

    def take_lease(self, statements: Statements, tables: CatalogTables, lease: LeaseRequest) -> None:
        """Wait for the writer lease: the lock of the row with the version, which one writer holds to the end of its transaction.

        From then on every wait is short, and the server ends the session of a silent writer. A timeout fails the attempt, unlike on
        PostgreSQL: a migration holds the same lock, and no writer may pass it.
        """
        assert isinstance(statements, PlainStatements)
        timeout = {"wait_timeout": f"{LEASE_SECONDS * lease.leases:.0f}"}
        _apply_settings(statements.connection, _WRITE | timeout | {"innodb_lock_wait_timeout": f"{LEASE_WAIT_SECONDS:.0f}"})
        statements.fetch("lease", lambda: _version_row(tables))
        _apply_settings(statements.connection, _WRITE | timeout | {"innodb_lock_wait_timeout": f"{max(LOCK_SECONDS, 1):.0f}"})

    def copy_file(self, connection: Connection, path: str) -> None:
        """Do nothing: a server has no file."""

    def clock(self) -> ColumnElement[Any]:
        """Return the clock of the server in UTC, independent of the time zone of the session."""
        return func.utc_timestamp(6)


def _version_row(tables: CatalogTables) -> Executable:
    metadata = tables["metadata"]
    return select(metadata.c.value).where(metadata.c.key == "version").with_for_update()


def _announce(connection: Connection) -> None:
    _apply_settings(connection, connection.get_execution_options().get(_SETTINGS, _WRITE))


def _apply_settings(connection: Connection, settings: Mapping[str, str]) -> None:
    """Set the variables that differ from the current settings of the session, which are remembered to save round trips."""
    known: dict[str, str] = connection.info.setdefault(_SETTINGS, {})
    changed = {name: value for name, value in settings.items() if known.get(name) != value}
    if changed:
        is_mariadb = getattr(connection.dialect, "is_mariadb", False)
        connection.exec_driver_sql(f"SET {', '.join(_assignment(name, value, is_mariadb) for name, value in changed.items())}")
        known.update(changed)


def _assignment(name: str, value: str, is_mariadb: bool) -> str:
    if name == "isolation":
        # MariaDB has the newer name only since 11.1.
        return f"SESSION {'tx_isolation' if is_mariadb else 'transaction_isolation'} = '{value}'"
    return f"SESSION {name} = {value}"


def _note_too_long(context: ExceptionContext) -> None:
    """Turn the error of a lost connection into that of a statement that is too long, if that is the cause.

    The server closes the session while the driver still sends, so the driver often misses the answer. The limit is read in another
    session, and only after a long statement has failed.
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
    """Return the values of each execution of a statement; long ones are sent one by one."""
    rows = parameters if isinstance(parameters, list) else [parameters]
    return (row.values() if isinstance(row, Mapping) else row or () for row in rows)


def _sent_bytes(row: Iterable[object]) -> int:
    """Return the bytes of a row's strings and blobs in SQL text, in which some characters are escaped."""
    cells = (cell.encode(errors="replace") if isinstance(cell, str) else cell for cell in row)
    return sum(len(cell) + sum(map(cell.count, _ESCAPED)) for cell in cells if isinstance(cell, bytes | bytearray))


def _is_pool_full(error: Exception) -> bool:
    return code_of_mysql(error) in BUSY_CODES


def _file_number(connection: Any) -> int | None:
    # The driver has no public access to its socket.
    socket = getattr(connection, "_sock", None)
    return None if socket is None else int(socket.fileno())


class StreamingCursor(SSCursor):
    """A cursor that reads rows from the server while they are fetched.

    MySQL sends one result at a time on a connection. If another statement is executed while rows are left, the connection first reads
    them into the memory of this cursor::

        cursor A: rows 1..10 fetched | statement B: A.keep_rest() reads 11..n into memory | B executes | A continues from memory
    """

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._kept: deque[Any] = deque()

    @override
    def read_next(self) -> Any:
        """Return the next row, None after the last one."""
        return self._kept.popleft() if self._kept else super().read_next()

    def _query(self, q: Any) -> Any:
        self._kept.clear()
        # A private method, missing in the stubs: every statement of a cursor goes through it.
        found = super()._query(q)  # type: ignore[misc]
        connection: Any = self.connection
        connection.streaming = self
        return found

    def keep_rest(self) -> None:
        """Read the remaining rows into memory, so that the connection is free for another statement."""
        while (row := super().read_next()) is not None:
            self._kept.append(row)


class StreamingConnection(PyMySQLConnection):
    """A connection that stores the rest of a streamed result before it executes another statement."""

    streaming: StreamingCursor | None = None
    """The cursor of the last statement, which may have rows left on the server."""

    def _execute_command(self, command: Any, sql: Any) -> Any:
        cursor, self.streaming = self.streaming, None
        # A closed cursor has read and discarded the remaining rows.
        if cursor is not None and cursor.connection is not None:
            cursor.keep_rest()
        return super()._execute_command(command, sql)  # type: ignore[misc]
