"""Transactions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, func, select, true

from ducklake_core.catalog.database.compiled import shared_texts
from ducklake_core.catalog.database.pipelines import has_pipelines
from ducklake_core.catalog.database.server_connections import (
    check_alive,
    may_pass,
    note_idle,
    open_patiently,
    prepare_nothing_behind_a_pooler,
)
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import Turn


class PostgresAccess:
    """Transactions on PostgreSQL; see :class:`~ducklake_core.catalog.database.access.Access`."""

    read_options: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    write_options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}

    @property
    def is_pipelined(self) -> bool:
        """Whether libpq is new enough."""
        return has_pipelines()

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """An engine whose sessions are opened with patience, and looked at before they are used again."""
        defaults = {"connect_timeout": connect_timeout, "application_name": "ducklake-core"}
        engine = create_engine(
            address.url,
            pool_size=pool_size,
            max_overflow=16,
            pool_use_lifo=True,
            hide_parameters=True,
            # JSON as it is written: DuckDB 1.4 inlined it in columns of that type.
            json_deserializer=bytes,
            execution_options=shared_texts(),
            connect_args={key: value for key, value in defaults.items() if key not in address.url.query},
        )
        open_patiently(engine, may_pass)
        event.listen(engine, "connect", prepare_nothing_behind_a_pooler)
        event.listen(engine, "checkin", note_idle)
        event.listen(engine, "checkout", check_alive)
        return engine

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """See :class:`~ducklake_core.catalog.database.access.Access`."""
        connection.execute(select(func.set_config("lock_timeout", f"{seconds * 1000:.0f}ms", true())))

    def take_turn(self, statements: Statements, tables: CatalogTables, turn: Turn) -> None:
        """Nothing: without pipelines a turn would be as long as all of its round trips."""

    def clock(self) -> ColumnElement[Any]:
        """The clock of the server, which goes on within a transaction."""
        return func.clock_timestamp()
