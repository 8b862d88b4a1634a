"""How transactions are made on one kind of database; :class:`~ducklake_core.catalog.database.connections.Database` does what all share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Engine

from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import Turn


class Access(Protocol):
    """One kind of database."""

    @property
    def is_pipelined(self) -> bool:
        """Whether statements go through psycopg's pipeline mode."""

    @property
    def read_options(self) -> Mapping[str, Any]:
        """SQLAlchemy's execution options of transactions that only read, and see one state in all of their statements."""

    @property
    def write_options(self) -> Mapping[str, Any]:
        """Those of transactions that write."""

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """A new engine; its connections are made when they are needed."""

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Let a transaction wait so long for the locks of others."""

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Block commits until the transaction ends, after waiting for commits that have begun."""

    def take_turn(self, statements: Statements, tables: CatalogTables, turn: Turn) -> None:
        """Wait for the turn of a commit whose statements go one after another."""

    def clock(self) -> ColumnElement[Any]:
        """The database's clock as a part of a statement."""
