"""Use PostgreSQL as a catalog: settings of sessions, and transactions.

Statements and values depend on settings, which the server, the database, the role and the address may choose. Who sets them depends on
whether a pooler (such as PgBouncer) is in front of the server::

    direct session     all settings once, when the session is opened; statements are prepared
    behind a pooler    all settings in every transaction, because the server session changes; no statement is prepared
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, event, func, select, text, true

from ducklake_core.catalog.database.server_connections import has_pipelines, may_pass, server_engine
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import LeaseRequest

_APPLICATION = "ducklake-core"
_LONGEST_LOCK_SECONDS = 300
"""Seconds after which the server ends a silent session that keeps commits out. Long, because a store may delete files slowly."""

SETTINGS = {
    # Text format of values.
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "timezone": "UTC",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "xmloption": "content",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    # Name resolution and visible rows. PostgreSQL searches pg_catalog first if the path does not contain it.
    "search_path": "public",
    "gin_fuzzy_search_limit": "0",
    "default_with_oids": "off",
    "restrict_nonsystem_relation_kind": "",
    # Isolation, and the end of transactions and sessions.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "exit_on_error": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
}
"""Values by the names of settings in lower case. Settings that the server does not have are skipped."""
_TIMEOUTS = ("statement_timeout", "lock_timeout", "transaction_timeout")
"""Settings that the address or ``PGOPTIONS`` may choose, because they only end statements and change no value."""


class PostgresAccess:
    """Transactions on PostgreSQL; see :class:`~ducklake_core.catalog.database.server_connections.Access`."""

    read_options: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    write_options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED", "postgresql_readonly": False}

    @property
    def is_pipelined(self) -> bool:
        """Return whether libpq supports pipelines."""
        return has_pipelines()

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """Create an engine that retries to open sessions and checks them before they are reused."""
        engine = server_engine(
            address.url,
            pool_size=pool_size,
            defaults={"connect_timeout": connect_timeout, "application_name": _APPLICATION, "client_encoding": "utf8"},
            may_pass=may_pass,
            file_number=lambda connection: None if connection.closed else connection.fileno(),
            ping=_ping,
            max_overflow=16,
            # JSON as it is stored: DuckDB 1.4 inlined it in columns of type JSON.
            json_deserializer=bytes,
            use_native_hstore=False,
        )
        # Before the first queries of SQLAlchemy, which a statement timeout of the server could end.
        event.listen(engine, "connect", settle, insert=True)
        event.listen(engine, "begin", _set_behind_a_pooler)
        return engine

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """See :class:`~ducklake_core.catalog.database.server_connections.Access`."""
        connection.execute(select(func.set_config("lock_timeout", f"{seconds * 1000:.0f}ms", true())))

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Lock the tables into which every commit, also one of DuckDB, inserts rows.

        The snapshot table is locked first, as in a commit, because another order could deadlock.
        """
        connection.execute(select(func.set_config("idle_in_transaction_session_timeout", f"{_LONGEST_LOCK_SECONDS}s", true())))
        quote = connection.dialect.identifier_preparer.format_table
        for name in ("snapshot", "data_file", "delete_file", "files_scheduled_for_deletion", "metadata"):
            connection.exec_driver_sql(f"LOCK TABLE {quote(tables[name])} IN SHARE ROW EXCLUSIVE MODE")

    def take_lease(self, statements: Statements, tables: CatalogTables, lease: LeaseRequest) -> None:
        """Do nothing: without pipelines a writer would hold the lease for many round trips."""

    def copy_file(self, connection: Connection, path: str) -> None:
        """Do nothing: a server has no file."""

    def clock(self) -> ColumnElement[Any]:
        """Return the clock of the server, which advances within a transaction (unlike ``now()``)."""
        return func.clock_timestamp()


def _set_behind_a_pooler(connection: Connection) -> None:
    set_in_transaction(connection.connection.driver_connection)


def _ping(connection: Any) -> None:
    connection.execute("SELECT 1")
    connection.rollback()


def _set_all(*, is_local: bool) -> str:
    # Every function and operator is qualified with pg_catalog, because search_path is not set yet when this runs.
    values = ", ".join(f"('{name}', '{value}')" for name, value in SETTINGS.items())
    timeouts = ", ".join(f"'{name}'" for name in _TIMEOUTS)
    is_chosen = f"known.source OPERATOR(pg_catalog.=) 'client' AND known.name IN ({timeouts})"
    return (
        f"SELECT pg_catalog.count(pg_catalog.set_config(known.name, chosen.setting, {str(is_local).lower()})) "  # noqa: S608 - constants
        f"FROM (VALUES {values}) AS chosen (name, setting) "
        "JOIN pg_catalog.pg_settings AS known ON pg_catalog.lower(known.name) OPERATOR(pg_catalog.=) chosen.name "
        f"WHERE NOT ({is_chosen})"
    )


_OF_SESSION, _OF_TRANSACTION = _set_all(is_local=False), _set_all(is_local=True)


def settle(connection: Any, _record: object) -> None:
    """Set up a new connection, in one round trip.

    A pooler is recognized by its process id: the id that it reports at login is not that of the server process that answers. Behind a
    pooler nothing is set here, and statements are never prepared.
    """
    connection.autocommit = True
    named = int(connection.info.backend_pid)
    own = f"{_OF_SESSION} AND pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {named}"
    (process, _) = connection.execute(f"SELECT pg_catalog.pg_backend_pid(), ({own})").fetchone()
    connection.autocommit = False
    if process != named:
        connection.prepare_threshold = None


def is_behind_a_pooler(connection: Any) -> bool:
    """Return whether :func:`settle` found a pooler in front of the server."""
    return connection.prepare_threshold is None


def set_in_transaction(connection: Any, pipeline: Any = None) -> None:
    """Set up the transaction that has just begun, if the server is behind a pooler.

    Args:
        connection: psycopg's connection.
        pipeline: Its pipeline, in pipeline mode; None otherwise. The driver formats and parses values by the settings that the server has
            reported, so this waits for the server if those differ.
    """
    if not is_behind_a_pooler(connection):
        return
    connection.execute(_OF_TRANSACTION)
    known = (connection.pgconn.parameter_status(name) for name in (b"client_encoding", b"DateStyle", b"IntervalStyle"))
    if pipeline is not None and tuple(known) != (b"UTF8", b"ISO, MDY", b"postgres"):
        pipeline.sync()


def has_older_transactions(connection: Connection, since: datetime) -> bool:
    """Return whether another session of the database may have a transaction that began before a time.

    Transactions of other roles count as older if this role may not see when they began.
    """
    query = text(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND (xact_start < :since OR query = '<insufficient privilege>'))"
    )
    return bool(connection.execute(query, {"since": since}).scalar())


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The open transaction of another program that sees the oldest rows.

    Attributes:
        process: Id of the server process.
        began: Start of the transaction; None if this role may not see it.
        age: Number of transaction ids that were given out since the oldest one whose rows the transaction may not see.
    """

    process: int
    began: datetime | None
    age: int

    def __str__(self) -> str:
        since = "" if self.began is None else f", open since {self.began:%Y-%m-%d %H:%M:%S} UTC"
        return f"a transaction of another program (PostgreSQL process {self.process}{since})"


def oldest_transaction(connection: Connection) -> OpenTransaction | None:
    """Return the transaction of another program in this database that sees the oldest rows, None if there is none.

    Transactions of this library are left out. A role may see what this needs of the transactions of other roles too, but not their
    application, so that transactions of the library with another role count.
    """
    query = text(
        "SELECT pid, xact_start, age(backend_xmin) FROM pg_catalog.pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND usesysid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend' "
        "AND backend_xmin IS NOT NULL AND coalesce(application_name, '') <> :library ORDER BY 3 DESC LIMIT 1"
    )
    row = connection.execute(query, {"library": _APPLICATION}).one_or_none()
    return None if row is None else OpenTransaction(process=row[0], began=row[1], age=row[2])
