"""Transactions on catalogs that are a file: one writer at a time, which the file's own lock sees to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, null
from sqlalchemy.dialects import registry
from sqlalchemy.pool import NullPool

from ducklake_core.catalog.database.compiled import shared_texts
from ducklake_core.catalog.database.sqlite_file import sqlite_engine
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import Turn

READ_BUSY_SECONDS = 10.0
WRITE_BUSY_SECONDS = 1.0

registry.register("duckdb.ducklake", "ducklake_core.catalog.database.duckdb_dialect", "DuckDBDialect")


class SqliteAccess:
    """Transactions on SQLite files; see :class:`~ducklake_core.catalog.database.access.Access`."""

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
        engine = create_engine(address.engine_url, poolclass=NullPool, hide_parameters=True, execution_options=shared_texts())
        event.listen(engine, "begin", _announce)
        return engine


def _announce(connection: Connection) -> None:
    options = connection.get_execution_options()
    own: Any = connection.connection.dbapi_connection
    own.intend(write=options["ducklake_write"], patience=options["ducklake_busy"])
