"""Lakes of version 1.1 in the form of 1.0 for as long as DuckDB 1.5 works on them, which knows no other.

What 1.1 added is set aside and put back afterwards: columns at the ends of metadata tables, and the names of the leading columns of tables
of inlined rows. Everything else about the two versions is the same, so that DuckDB and this library read each other's rows. Rows that
it has added, and bounds that it has moved, know nothing of what was added, as after a migration. A lake that it makes is one of 1.1 then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import unquote

import duckdb
import psycopg
import pytest
from sqlalchemy import Connection

from ducklake_core.catalog.database import duckdb_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.format.versions import V1_0, V1_1
from tests.support import oracle
from tests.support.oracle import Attachment, LakeAddress, quoted

_ADDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "data_file": (("data_file_id",), ("row_group_count",)),
    "delete_file": (("delete_file_id",), ("row_group_count",)),
    "file_column_stats": (("data_file_id", "column_id", "min_value", "max_value"), ("min_is_exact", "max_is_exact")),
    "table_column_stats": (("table_id", "column_id", "min_value", "max_value"), ("min_is_exact", "max_is_exact")),
    "schema": (("schema_id",), ("parent_schema_id",)),
}
"""Columns that 1.1 added, each with the columns that identify the row of a cell."""
_BOOLEANS = ("min_is_exact", "max_is_exact")
_VERSION = "UPDATE ducklake_metadata SET value = '{}' WHERE key = 'version' AND (scope IS NULL OR scope = '')"

Columns = Callable[[str], list[tuple[str, str]]]
"""Gives the columns of a table with their types, in order."""

_forms: list[EarlierForm] = []


class Catalog(Protocol):
    """A connection to the database of a catalog, in a transaction of its own."""

    def run_statement(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, if it has any."""

    def each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement, with ``?`` for values, for each row."""


@dataclass
class _Connection:
    connection: Any
    parameter: str = "?"

    def run_statement(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []

    def each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            source = self.connection.cursor() if self.parameter == "%s" else self.connection
            source.executemany(statement.replace("?", self.parameter), rows)


@contextmanager
def _opened(address: LakeAddress) -> Iterator[tuple[Catalog, Columns]]:
    """A catalog's database, and what gives the columns of a table of it with their types, in order."""
    target = address.url.partition(":///")[2]
    if address.backend == "sqlite":
        with closing(sqlite3.connect(target, timeout=20)) as lite, lite:
            found = _Connection(lite)
            yield found, lambda name: [(row[1], row[2]) for row in found.run_statement(f"PRAGMA table_info({quoted(name)})")]
        return
    query = (
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{}' AND table_schema = '{}' "
        "ORDER BY ordinal_position"
    )
    if address.backend == "postgresql":
        with psycopg.connect(unquote(address.attach.removeprefix("ducklake:postgres:")), options="-c lock_timeout=20s") as server:
            found = _Connection(server, "%s")
            yield found, lambda name: [(str(a), str(b)) for a, b in found.run_statement(query.format(name, "public"))]
        return
    with closing(duckdb.connect(target)) as file:
        found = _Connection(file)
        file.execute("BEGIN")
        yield found, lambda name: [(str(a), str(b)) for a, b in found.run_statement(query.format(name, "main"))]
        file.execute("COMMIT")


@dataclass
class EarlierForm(Attachment):
    """A lake of version 1.1, attached in the form of 1.0.

    Attributes:
        address: Of the lake.
        is_new: Whether DuckDB makes it.
        is_lent: Whether it has that form now.
    """

    address: LakeAddress | None = None
    is_new: bool = False
    is_lent: bool = False
    _set_aside: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=dict)
    _types: dict[tuple[str, str], str] = field(default_factory=dict)

    def connection(self) -> duckdb.DuckDBPyConnection:
        if not self.is_lent and not self.is_new:
            self._lend()
        self.is_lent = True
        return super().connection()

    def rest(self) -> None:
        if self.is_lent and self._backend != "duckdb" and not self._in_transaction():
            self._take_back()

    def give_up(self) -> None:
        super().give_up()
        if self.is_lent:
            self._take_back()

    def end(self) -> None:
        self.give_up()
        _forms.remove(self)

    @property
    def _backend(self) -> str:
        assert self.address is not None
        return self.address.backend

    def _in_transaction(self) -> bool:
        try:
            self.own.execute("BEGIN")
        except duckdb.TransactionException:
            return True
        self.own.execute("ROLLBACK")
        return False

    def _lend(self) -> None:
        assert self.address is not None
        with _opened(self.address) as (catalog, columns):
            _check_form(catalog, columns)
            for table, (keys, added) in _ADDED.items():
                name = f"ducklake_{table}"
                types = dict(columns(name))
                self._types |= {(table, column): types[column] for column in added}
                rows = catalog.run_statement(f"SELECT {', '.join((*keys, *added))} FROM {name}")
                self._set_aside[table] = {row[: len(keys)]: row[len(keys) :] for row in rows}
                for column in added:
                    catalog.run_statement(f"ALTER TABLE {name} DROP COLUMN {column}")
            _rename_leading(catalog, columns, V1_0.inlined_columns.names)
            catalog.run_statement(_VERSION.format("1.0"))

    def _take_back(self) -> None:
        assert self.address is not None
        self.is_lent = False
        with _opened(self.address) as (catalog, columns):
            if not columns("ducklake_metadata"):
                return
            for table, (keys, added) in _ADDED.items():
                name = f"ducklake_{table}"
                for column in added:
                    default = "BOOLEAN" if column in _BOOLEANS else "BIGINT"
                    catalog.run_statement(f"ALTER TABLE {name} ADD COLUMN {column} {self._types.get((table, column), default)}")
                there = " AND ".join(f"{key} {_SAME[self._backend]} ?" for key in keys)
                rows = [(*cells, *key) for key, cells in self._set_aside.get(table, {}).items() if any(cell is not None for cell in cells)]
                catalog.each(f"UPDATE {name} SET {', '.join(f'{column} = ?' for column in added)} WHERE {there}", rows)
            if not columns("ducklake_view_column_tag"):
                text = "VARCHAR"
                catalog.run_statement(
                    f"CREATE TABLE ducklake_view_column_tag (view_id BIGINT, column_name {text}, begin_snapshot BIGINT, "
                    f"end_snapshot BIGINT, key {text}, value {text})"
                )
            _rename_leading(catalog, columns, V1_1.inlined_columns.names)
            catalog.run_statement(_VERSION.format("1.1"))
        self.is_new = False


_SAME = {"sqlite": "IS", "postgresql": "IS NOT DISTINCT FROM", "duckdb": "IS NOT DISTINCT FROM"}


def _check_form(catalog: Catalog, columns: Columns) -> None:
    """End the test where a lake has no form of 1.0."""
    if any(row[0] is not None for row in catalog.run_statement("SELECT parent_schema_id FROM ducklake_schema WHERE end_snapshot IS NULL")):
        pytest.skip("DuckDB 1.5 has no schemas in schemas; all before this has passed")
    for (table,) in catalog.run_statement("SELECT DISTINCT table_name FROM ducklake_inlined_data_tables"):
        if {name for name, _ in columns(table)[3:]} & set(V1_0.inlined_columns.names):
            pytest.skip("DuckDB 1.5 has no such names among inlined rows; all before this has passed")


def _rename_leading(catalog: Catalog, columns: Columns, names: tuple[str, str, str]) -> None:
    for (table,) in catalog.run_statement("SELECT DISTINCT table_name FROM ducklake_inlined_data_tables"):
        for (former, _), name in zip(columns(table)[:3], names, strict=False):
            if former != name:
                catalog.run_statement(f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(former)} TO {name}")


def _version(address: LakeAddress) -> str | None:
    """The version of a lake; None when there is none yet."""
    with suppress(Exception), _opened(address) as (catalog, columns):
        if columns("ducklake_metadata"):
            return str(catalog.run_statement("SELECT value FROM ducklake_metadata WHERE key = 'version'")[0][0])
    return None


_attachment_alone = oracle._attachment


def _attachment(connection: duckdb.DuckDBPyConnection, address: LakeAddress, options: str) -> Attachment:
    for other in _forms:
        other.give_up()
    there = _version(address)
    if there not in (None, "1.1"):
        return _attachment_alone(connection, address, options)
    plain = _attachment_alone(connection, address, options)
    made = EarlierForm(plain.own, plain.statement, address=replace(address), is_new=there is None)
    _forms.append(made)
    return made


_transaction_alone = Database._transaction


@contextmanager
def _transaction(self: Database, options: Any) -> Iterator[Connection]:
    for form in _forms:
        if form.is_lent and form._backend != "duckdb":
            if form._in_transaction():
                pytest.skip("DuckDB is in a transaction, for which the lake has the form of 1.0; all before this has passed")
            form._take_back()
    with _transaction_alone(self, options) as connection:
        yield connection


def use() -> None:
    """Lend lakes of 1.1 to DuckDB in the form of 1.0 from now on."""
    oracle._attachment = _attachment
    Database._transaction = _transaction  # type: ignore[method-assign]
    assert duckdb_catalog._attached is oracle.open_file
