"""Catalogs in DuckDB files for the second implementation, which knows none: carried into SQLite as DuckDB casts their cells, and back.

So the second implementation reads what this library writes into a DuckDB file, and its commits are in the file for this library.
"""

from __future__ import annotations

import atexit
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.catalog.database.duckdb_catalog import ALIAS
from tests.support.oracle import LakeAddress, file_lake, give_up_all, open_file, quoted, sql_type

_INTEGERS = frozenset({'"NULL"', "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_BYTES = frozenset({"BLOB", "VARIANT"})
_INLINED = re.compile(r"ducklake_inlined_data_(\d+)_(\d+)$")
_DELETES = "ducklake_inlined_delete_"

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class _Column:
    """A column of a metadata table in a DuckDB file."""

    name: str
    type: str

    @property
    def declared(self) -> str:
        """Its type in SQLite."""
        return "BIGINT" if self.type in _INTEGERS else "BLOB" if self.type in _BYTES else "VARCHAR"

    @property
    def exported(self) -> str:
        """Return the cells as SQLite stores them."""
        name = quoted(self.name)
        if self.type == "VARIANT":
            parts = f"CAST(variant_to_parquet_variant({name}) AS STRUCT(metadata BLOB, value BLOB))"
            return f"CASE WHEN {name} IS NOT NULL THEN {parts}.metadata || {parts}.value END"
        return name if self.type == "BLOB" else f"CAST({name} AS {self.declared})"

    @property
    def imported(self) -> str:
        """Return the cells of SQLite as the DuckDB file stores them."""
        name = quoted(self.name)
        return f"variant_bytes_to_variant({name})" if self.type == "VARIANT" else f"CAST({name} AS {self.type})"


@dataclass(kw_only=True)
class _Copy:
    """A catalog in SQLite.

    Attributes:
        mark: How the DuckDB file looked when both were the same.
        columns: Of each table, as the DuckDB file has them.
        held: Rows of each table, as the copy has them.
    """

    sqlite_copy: LakeAddress
    mark: bytes
    columns: dict[str, list[_Column]]
    held: dict[str, Rows]

    def remove(self) -> None:
        """Remove the copy at the end of its use."""
        shutil.rmtree(Path(_file(self.sqlite_copy)).parent)


_last: dict[str, _Copy] = {}
"""The catalog that was carried last, as most calls follow before another client has changed it."""
_HEADERS = 3 * 4096
"""Bytes at the begin of a DuckDB file that every checkpoint changes."""


@contextmanager
def carried(address: LakeAddress) -> Iterator[LakeAddress]:
    """The catalog in SQLite for the time of the block. What is changed there is in the DuckDB file afterwards."""
    give_up_all()
    copy = _last.pop(address.url, None)
    if copy is not None and copy.mark != _mark(address):
        copy.remove()
        copy = None
    copy = copy or _carry(address, _new_folder())
    sqlite_copy = replace(copy.sqlite_copy, data_path=address.data_path)
    yield sqlite_copy
    after = _tables(sqlite_copy)
    if after != copy.held:
        _bring_back(address, sqlite_copy, copy.columns, copy.held, after)
        copy.held, copy.mark = after, _mark(address)
        copy.columns = {name: columns for name, columns in copy.columns.items() if name in after}
    for former in _last.values():
        former.remove()
    _last.clear()
    _last[address.url] = copy


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_all_copies()))


@cache
def _all_copies() -> str:
    """Return the folder of the copies of this process, which is removed at its end."""
    folder = tempfile.mkdtemp(prefix="carried-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _mark(address: LakeAddress) -> bytes:
    with Path(_file(address)).open("rb") as file:
        start = file.read(_HEADERS)
    log = Path(_file(address) + ".wal")
    return start + (log.read_bytes() if log.exists() else b"")


def _carry(address: LakeAddress, folder: Path) -> _Copy:
    sqlite_copy = file_lake("sqlite", folder)
    with _opened(address, "READ_ONLY") as file:
        columns = _columns(file)
        held = {name: _held(file, name, columns[name]) for name in columns}
    _fill(sqlite_copy, columns, held)
    return _Copy(sqlite_copy=sqlite_copy, mark=_mark(address), columns=columns, held=_tables(sqlite_copy))


@contextmanager
def _opened(address: LakeAddress, option: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(open_file(_file(address), option)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"USE {ALIAS}")
        yield connection
        connection.execute("USE memory")
        connection.execute(f"DETACH {ALIAS}")


def _file(address: LakeAddress) -> str:
    return address.url.partition(":///")[2]


def _columns(file: duckdb.DuckDBPyConnection) -> dict[str, list[_Column]]:
    query = (
        f"SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = '{ALIAS}' ORDER BY table_name, column_index"
    )
    found: dict[str, list[_Column]] = {}
    for table, name, data_type in file.execute(query).fetchall():
        found.setdefault(table, []).append(_Column(name, data_type))
    return found


def _held(file: duckdb.DuckDBPyConnection, name: str, columns: list[_Column]) -> Rows:
    return file.execute(f"SELECT {', '.join(c.exported for c in columns)} FROM {quoted(name)} ORDER BY rowid").fetchall()


@cache
def _empty_catalog(version: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="carried-") as folder:
        sqlite_copy = file_lake("sqlite", Path(folder))
        DuckLake.create(sqlite_copy.url, data_path=sqlite_copy.data_path, version=version).close()  # type: ignore[arg-type]
        return Path(_file(sqlite_copy)).read_bytes()


def _fill(copy: LakeAddress, columns: dict[str, list[_Column]], rows: dict[str, Rows]) -> None:
    version = next(row[1] for row in rows["ducklake_metadata"] if row[0] == "version")
    Path(_file(copy)).write_bytes(_empty_catalog(version))
    there = _tables(copy)
    with closing(sqlite3.connect(_file(copy))) as lite, lite:
        for name, held in rows.items():
            if name not in there:
                listed = ", ".join(f"{quoted(c.name)} {c.declared}" for c in columns[name])
                lite.execute(f"CREATE TABLE {quoted(name)} ({listed})")
            lite.execute(f"DELETE FROM {quoted(name)}")
            names = ", ".join(quoted(c.name) for c in columns[name])
            lite.executemany(f"INSERT INTO {quoted(name)} ({names}) VALUES ({', '.join('?' * len(columns[name]))})", held)
    assert there.keys() <= rows.keys()


def _tables(copy: LakeAddress) -> dict[str, Rows]:
    with closing(sqlite3.connect(_file(copy))) as lite:
        names = [name for (name,) in lite.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ducklake_%'")]
        return {name: lite.execute(f"SELECT * FROM {quoted(name)} ORDER BY rowid").fetchall() for name in names}


def _bring_back(
    address: LakeAddress, copy: LakeAddress, columns: dict[str, list[_Column]], before: dict[str, Rows], after: dict[str, Rows]
) -> None:
    new = {name: _new_columns(copy, name) for name in after if name not in before}
    with _opened(address, "READ_WRITE") as file:
        for name in before.keys() - after.keys():
            file.execute(f"DROP TABLE {quoted(name)}")
        for name, found in new.items():
            file.execute(f"CREATE TABLE {quoted(name)} ({', '.join(f'{quoted(c.name)} {c.type}' for c in found)})")
        for name, rows in after.items():
            held = before.get(name, [])
            if rows[: len(held)] != held:
                file.execute(f"DELETE FROM {quoted(name)}")
                held = []
            if len(rows) > len(held):
                _insert(file, name, columns.get(name) or new[name], rows[len(held) :])
    columns.update(new)


def _insert(file: duckdb.DuckDBPyConnection, name: str, columns: list[_Column], rows: Rows) -> None:
    arrays = [_array(column, cells) for column, cells in zip(columns, zip(*rows, strict=True), strict=True)]
    file.register("brought", pa.Table.from_arrays(arrays, names=[c.name for c in columns]))
    file.execute(f"INSERT INTO {quoted(name)} SELECT {', '.join(c.imported for c in columns)} FROM brought")
    file.unregister("brought")


def _array(column: _Column, cells: Sequence[Any]) -> pa.Array:
    """Cells of SQLite in the one type that the column has there."""
    if column.declared == "VARCHAR":
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    return pa.array(cells, pa.int64() if column.declared == "BIGINT" else pa.binary())


def _new_columns(copy: LakeAddress, name: str) -> list[_Column]:
    """Columns of a table of inlined rows that the DuckDB file lacks, as they were at the schema version that it is for."""
    with closing(sqlite3.connect(_file(copy))) as lite:
        system = [_Column(row[1], "BIGINT") for row in lite.execute(f"PRAGMA table_info({quoted(name)})")][:3]
        if name.startswith(_DELETES):
            return system
        found = _INLINED.match(name)
        assert found is not None, name
        table_id, version = map(int, found.groups())
        (at,) = lite.execute(
            "SELECT min(snapshot_id) FROM ducklake_snapshot WHERE snapshot_id >= "
            "(SELECT max(begin_snapshot) FROM ducklake_schema_versions WHERE table_id = ? AND schema_version = ?)",
            [table_id, version],
        ).fetchone()
    with DuckLake.connect(copy.url) as lake:
        states = (lake.table(info.table, at=at).state for info in lake.tables(at=at))
        schema = next(state.schema for state in states if state.id == table_id)
    return [*system, *(_Column(field.name, sql_type(field.type)) for field in schema)]
