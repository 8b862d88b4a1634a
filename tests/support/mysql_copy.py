"""DuckDB at work on a MySQL catalog: on a copy of it in SQLite, which is written back afterwards.

DuckDB reads MySQL catalogs by its ``mysql`` extension, and cannot write them (an UPDATE that joins is none of the connector's). The layouts
are the same, so a lake can change its database: before DuckDB runs a statement it gets what is in MySQL, and before this library begins a
transaction it gets what DuckDB has made of it. The two cannot be in transactions at once.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pymysql
from sqlalchemy import Connection, make_url

from ducklake_core.catalog.database.abilities import MARIADB, MYSQL
from ducklake_core.catalog.database.connections import Database
from tests.support.oracle import Attachment, LakeAddress

_TYPES = {"bigint": "BIGINT", "longtext": "VARCHAR", "longblob": "BLOB"}
_ENDING = re.compile(r"(?<=_\d)_[0-9a-f]{12}$")
_KEYS = {"snapshot": "snapshot_id", "snapshot_changes": "snapshot_id", "schema": "schema_id"}
_KEYS |= {"data_file": "data_file_id", "delete_file": "delete_file_id"}
_copies: list[CopiedAttachment] = []


@dataclass
class CopiedAttachment(Attachment):
    """A lake in MySQL, attached by way of a copy.

    Attributes:
        socket: Of the server.
        database: That holds the catalog.
        file: The copy.
        mark: How the copy looked when both were the same.
        is_stale: Whether this library has begun a transaction since.
    """

    socket: str = ""
    database: str = ""
    file: Path = Path()
    mark: tuple[int, int] | None = None
    is_stale: bool = True

    def connection(self) -> duckdb.DuckDBPyConnection:
        if self.is_stale and self._tables():
            self.give_up()
            self._copy_in()
        self.is_stale = False
        return super().connection()

    def bring_back(self) -> None:
        """Let MySQL have what DuckDB has made of the copy."""
        mark = self._look()
        if mark is None or mark == self.mark:
            return
        with closing(sqlite3.connect(self.file)) as copy, self._session() as session, session.cursor() as cursor:
            there = self._tables()
            names = [row[0] for row in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in names:
                columns = copy.execute(f"SELECT name, type FROM pragma_table_info('{name}') ORDER BY cid").fetchall()
                if name not in there:
                    abilities = MARIADB if "mariadb" in session.get_server_info().lower() else MYSQL
                    cursor.execute(_definition(name, columns, abilities.binary_collation))
                cursor.execute(f"DELETE FROM {name}")
                rows = copy.execute(f"SELECT * FROM {name}").fetchall()
                if rows:
                    cursor.executemany(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(columns))})", rows)
            for name in there - set(names):
                cursor.execute(f"DROP TABLE {name}")
        self.mark = self._look()

    def end(self) -> None:
        self.bring_back()
        _copies.remove(self)

    def _copy_in(self) -> None:
        self.file.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.file)) as copy, self._session() as session, session.cursor() as cursor:
            for name in sorted(self._tables()):
                cursor.execute(
                    "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = database() AND table_name = %s "
                    "ORDER BY ordinal_position",
                    [name],
                )
                key = _KEYS.get(name.removeprefix("ducklake_"))
                columns = [(str(column), _TYPES[str(kind)]) for column, kind in cursor.fetchall()]
                own = (f"{_quoted(column)} {kind}{' PRIMARY KEY' if column == key else ''}" for column, kind in columns)
                copy.execute(f"CREATE TABLE {name} ({', '.join(own)})")
                cursor.execute(f"SELECT * FROM {name}")
                copy.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", cursor.fetchall())
            copy.commit()
        self.mark = self._look()

    def _shorten_names(self) -> None:
        """Tables of inlined rows under the names that those of other catalogs have; not every reader looks up how they are called."""
        with closing(sqlite3.connect(self.file)) as copy:
            for (name,) in copy.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall():
                short = _ENDING.sub("", name)
                if short != name:
                    copy.execute(f"ALTER TABLE {name} RENAME TO {short}")
                    copy.execute("UPDATE ducklake_inlined_data_tables SET table_name = ? WHERE table_name = ?", [short, name])
            copy.commit()
        self.mark = self._look()

    def _tables(self) -> set[str]:
        with self._session() as session, session.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            return {str(row[0]) for row in cursor.fetchall()}

    def _session(self) -> pymysql.Connection[Any]:
        return pymysql.connect(
            unix_socket=self.socket,
            user="root",
            database=self.database,
            charset="utf8mb4",
            autocommit=True,
            sql_mode="STRICT_ALL_TABLES",
            ssl_disabled=True,
        )

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self.file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _definition(name: str, columns: list[tuple[str, str]], collation: str) -> str:
    kinds = {"INTEGER": "bigint"} | {in_copy: in_mysql for in_mysql, in_copy in _TYPES.items()}
    key = _KEYS.get(name.removeprefix("ducklake_"))
    text = "{} {}{}"
    own = []
    for column, kind in columns:
        in_mysql = kinds[re.sub(r"\(.*", "", kind)]
        quoted = column.replace("`", "``")
        own.append(text.format(f"`{quoted}`", in_mysql, " PRIMARY KEY" if column == key else ""))
    return f"CREATE TABLE {name} ({', '.join(own)}) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def copied(connection: duckdb.DuckDBPyConnection, address: LakeAddress, options: str) -> CopiedAttachment:
    """A lake in MySQL for an instance of DuckDB."""
    url = make_url(address.url)
    file = Path(address.data_path).parent / f"{url.database}.{len(_copies)}.copy.sqlite"
    statement = f"ATTACH 'ducklake:sqlite:{file}' AS lake {address.options(options)}"
    made = CopiedAttachment(connection, statement, socket=str(url.query["unix_socket"]), database=str(url.database), file=file)
    _copies.append(made)
    return made


@contextmanager
def carried_from_mysql(address: LakeAddress) -> Iterator[LakeAddress]:
    """The lake with its catalog in SQLite, for programs that know no MySQL; what they make of it goes back."""
    with duckdb.connect() as connection:
        copy = copied(connection, address, "")
        try:
            if copy._tables():
                copy._copy_in()
                copy._shorten_names()
            copy.is_stale = False
            yield LakeAddress(url=f"sqlite:///{copy.file}", attach=f"sqlite:{copy.file}", data_path=address.data_path, backend="sqlite")
        finally:
            copy.end()


_transaction_alone = Database._transaction


@contextmanager
def _transaction(self: Database, options: Any) -> Iterator[Connection]:
    own = [copy for copy in _copies if copy.database == self.address.url.database]
    for copy in own:
        copy.bring_back()
    try:
        with _transaction_alone(self, options) as connection:
            yield connection
    finally:
        for copy in own:
            copy.is_stale = copy.is_stale or options is self._access.write_options


Database._transaction = _transaction  # type: ignore[method-assign]
