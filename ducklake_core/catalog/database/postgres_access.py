"""Transactions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, event, func, select, true

from ducklake_core.catalog.database.pipelines import has_pipelines
from ducklake_core.catalog.database.postgres_session import set_in_transaction, settle
from ducklake_core.catalog.database.server_connections import may_pass, server_engine
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import Turn

_LONGEST_LOCK_SECONDS = 300
"""How long the server leaves the locks that keep commits out to a session that says nothing, because a store deletes files slowly."""


class PostgresAccess:
    """Transactions on PostgreSQL; see :class:`~ducklake_core.catalog.database.access.Access`."""

    read_options: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    write_options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED", "postgresql_readonly": False}

    @property
    def is_pipelined(self) -> bool:
        """Whether libpq is new enough."""
        return has_pipelines()

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """An engine whose sessions are opened with patience, and looked at before they are used again."""
        engine = server_engine(
            address.url,
            pool_size=pool_size,
            defaults={"connect_timeout": connect_timeout, "application_name": "ducklake-core", "client_encoding": "utf8"},
            may_pass=may_pass,
            file_number=lambda connection: None if connection.closed else connection.fileno(),
            ping=_ping,
            max_overflow=16,
            # JSON as it is written: DuckDB 1.4 inlined it in columns of that type.
            json_deserializer=bytes,
            use_native_hstore=False,
        )
        # Before SQLAlchemy's own questions, which limits of time may end.
        event.listen(engine, "connect", settle, insert=True)
        event.listen(engine, "begin", _set_behind_a_pooler)
        return engine

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """See :class:`~ducklake_core.catalog.database.access.Access`."""
        connection.execute(select(func.set_config("lock_timeout", f"{seconds * 1000:.0f}ms", true())))

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Lock the tables that every commit, also one of DuckDB, adds rows to. Snapshots come first, as they do in a commit."""
        connection.execute(select(func.set_config("idle_in_transaction_session_timeout", f"{_LONGEST_LOCK_SECONDS}s", true())))
        quote = connection.dialect.identifier_preparer.format_table
        for name in ("snapshot", "data_file", "delete_file", "files_scheduled_for_deletion", "metadata"):
            connection.exec_driver_sql(f"LOCK TABLE {quote(tables[name])} IN SHARE ROW EXCLUSIVE MODE")

    def take_turn(self, statements: Statements, tables: CatalogTables, turn: Turn) -> None:
        """Nothing: without pipelines a turn would be as long as all of its round trips."""

    def clock(self) -> ColumnElement[Any]:
        """The clock of the server, which goes on within a transaction."""
        return func.clock_timestamp()


def _set_behind_a_pooler(connection: Connection) -> None:
    set_in_transaction(connection.connection.driver_connection)


def _ping(connection: Any) -> None:
    connection.execute("SELECT 1")
    connection.rollback()
