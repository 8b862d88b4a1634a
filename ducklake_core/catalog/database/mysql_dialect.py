"""MySQL and MariaDB for SQLAlchemy, with the types and the session that catalogs need whatever the server's own settings are.

Names and paths differ by case and by trailing blanks, so that text is compared by its bytes alone: the usual collations of both servers
take ``A`` for ``a`` and ``a`` for ``a ``. Texts and binaries are of any length; a VARCHAR of MySQL would have to name one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects.mysql.base import MySQLDDLCompiler, MySQLTypeCompiler
from sqlalchemy.dialects.mysql.mysqldb import MySQLCompiler_mysqldb
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.engine import URL
from typing_extensions import override

from ducklake_core.catalog.database.abilities import MARIADB, MYSQL, abilities_of
from ducklake_core.catalog.database.drivers import driver_module
from ducklake_core.catalog.database.failures import code_of_mysql
from ducklake_core.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.sql.functions import Function

_CHARSET = "utf8mb4"
_DEFINITION_SECONDS = 10
"""How long a table that others are using is waited for, before it is dropped."""
_STREAM_SECONDS = 3600
"""How long the server waits for somebody who reads rows to want more of them."""

_NO_LIMIT = 18_446_744_073_709_551_615
_SESSION = {
    # How values are sent, read and compared.
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
    # Which rows a statement gives or changes, and which statements there are at all. The order matters: a limit of joins is a wish for one.
    "sql_select_limit": str(_NO_LIMIT),
    "max_join_size": str(_NO_LIMIT),
    "sql_big_selects": "1",
    "sql_safe_updates": "0",
    "foreign_key_checks": "1",
    "unique_checks": "1",
    # How transactions begin and end.
    "autocommit": "0",
    "completion_type": "0",
    "lock_wait_timeout": str(_DEFINITION_SECONDS),
    "net_write_timeout": str(_STREAM_SECONDS),
}
"""Variables of every session, whatever the server's defaults and its ``init_connect`` are."""
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
# A server of MySQL may give tables without a primary key one of its own (``sql_generate_invisible_primary_key``): no column of the format.
_SINCE_8_0_30 = ("/*!80030", "show_gipk_in_create_table_and_information_schema = 0")
_SINCE_10_5_2 = ("/*M!100502", "sql_if_exists = 0")
_NOT_SETTABLE = frozenset({1193, 1227, 1238, 1290})
"""The server does not know a variable, keeps it from this user, does not let it be set, or was started with an option against it."""


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
        # The server's own engine may have no transactions.
        return " ENGINE=InnoDB"


class _Statements(MySQLCompiler_mysqldb):
    def visit_rtrim_func(self, function: Function[Any], **kw: Any) -> str:
        """The RTRIM of other databases, which takes any of some characters away; MySQL's own knows blanks alone."""
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
        return driver_module("pymysql", "a catalog in a MySQL or MariaDB database", "mysql")

    @property
    def _sscursor(self) -> type[Any]:
        from ducklake_core.catalog.database.mysql_streams import StreamingCursor

        return StreamingCursor

    @override
    def connect(self, *cargs: Any, **cparams: Any) -> Any:
        from ducklake_core.catalog.database.mysql_streams import StreamingConnection

        try:
            return StreamingConnection(*cargs, **cparams)
        except ValueError as error:
            # Of a host's name, such as one with an empty part.
            raise UsageError(f"the address of the MySQL catalog cannot be used: {error}") from error

    @override
    def on_connect(self) -> Callable[[Any], None]:
        return settle

    @override
    def create_connect_args(self, url: URL, _translate_args: dict[str, Any] | None = None) -> Any:
        return [], connect_arguments(url)


def settle(connection: Any) -> None:
    """Make a new session independent of the server's settings, in one statement.

    A server that does not let this user set one of the variables gets them one by one, without those.
    """
    import pymysql

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
    import pymysql

    try:
        cursor.execute(f"SET {assignment}")
    except pymysql.MySQLError as error:
        if code_of_mysql(error) not in _NOT_SETTABLE:
            raise


def connect_arguments(url: URL) -> dict[str, Any]:
    """What PyMySQL is to be called with for an address.

    >>> from sqlalchemy import make_url
    >>> found = connect_arguments(make_url("mysql://me@db:3307/lake?ssl_mode=verify_ca"))
    >>> found["port"], found["ssl"].verify_mode.name, found["ssl"].check_hostname
    (3307, 'CERT_REQUIRED', False)
    >>> connect_arguments(make_url("mysql:///lake?unix_socket=/run/s"))["ssl_disabled"]
    True

    Raises:
        UsageError: A file of certificates or a cipher that TLS cannot use.
    """
    from pymysql.constants import CLIENT

    query = {name: str(value) for name, value in url.query.items()}
    found: dict[str, Any] = {
        "host": url.host or "localhost",
        "port": url.port or 3306,
        "user": url.username,
        # The driver would only know Latin letters.
        "password": (url.password or "").encode(),
        "database": url.database,
        "charset": _CHARSET,
        # An UPDATE counts the rows that it found, not those that it changed.
        "client_flag": CLIENT.FOUND_ROWS,
        "program_name": "ducklake-core",
    }
    if socket := query.pop("unix_socket", None):
        found["unix_socket"] = socket
    found |= {name: float(query.pop(name)) for name in ("connect_timeout", "read_timeout", "write_timeout") if name in query}
    mode = query.pop("ssl_mode", "preferred" if not query else "verify_ca").lower()
    # Nothing leaves the machine through a Unix socket: MySQL's own clients encrypt it only when they must, too.
    if mode == "disabled" or (mode == "preferred" and socket):
        found["ssl_disabled"] = True
    elif mode != "preferred":
        found["ssl"] = _tls(mode, query)
    return found


def _tls(mode: str, given: Mapping[str, str]) -> ssl.SSLContext:
    """How a session is encrypted, and what is asked of the server's certificate.

    Left to itself PyMySQL compares no names unless there is ``ssl_ca``, whatever it is told.
    """
    if "ssl_key" in given and "ssl_cert" not in given:
        raise UsageError("ssl_key of a MySQL catalog is for the certificate ssl_cert: give both")
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca") or None, capath=given.get("ssl_capath") or None)
        # Certificates that MySQL makes for itself are not strict.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
        if "ssl_cert" in given:
            # Without a password OpenSSL would ask the terminal for that of a key.
            context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"), password="")
        if "ssl_cipher" in given:
            context.set_ciphers(given["ssl_cipher"])
    except (OSError, ValueError) as error:
        told = ", ".join(f"{name}={given[name]}" for name in sorted(given))
        raise UsageError(f"TLS cannot be set up for the MySQL catalog with {told}: {error}") from error
    return context
