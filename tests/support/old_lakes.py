"""Lakes of earlier catalog versions, made by the DuckDB of their time or derived from those, each in a folder of its own."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core import DuckLake
from ducklake_core.format.files.data_files import SNAPSHOT_ID_COLUMN
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_files import read_footer
from tests.support.oracle import LakeAddress, new_connection, sqlite_lake
from tests.support.postgres import PostgresServer

LAKES = Path(__file__).parent.parent / "fixtures" / "old_lakes"
VERSIONS = ("0.1", "0.2", "0.3-dev1", "0.3", "0.4-dev1")
_MADE_FROM = {"0.1": "0.2", "0.3-dev1": "0.2", "0.4-dev1": "0.3"}

_PLACES = (
    "UPDATE ducklake_partition_column AS k SET column_id = (SELECT count(*) FROM ducklake_column c, ducklake_column mine, "
    "ducklake_partition_info i WHERE i.partition_id = k.partition_id AND c.table_id = k.table_id AND mine.table_id = k.table_id "
    "AND mine.column_id = k.column_id AND c.parent_column IS NULL AND c.column_order < mine.column_order "
    "AND c.begin_snapshot <= i.begin_snapshot AND (c.end_snapshot IS NULL OR c.end_snapshot > i.begin_snapshot) "
    "AND mine.begin_snapshot <= i.begin_snapshot AND (mine.end_snapshot IS NULL OR mine.end_snapshot > i.begin_snapshot))"
)
# The step from 0.1 to 0.2 taken back: files below the data path itself, columns of partition keys by their place.
_TO_0_1 = (
    *(
        f"UPDATE ducklake_{file} AS f SET path = (SELECT min(s.path || t.path) FROM ducklake_table t JOIN ducklake_schema s "
        "ON s.schema_id = t.schema_id WHERE t.table_id = f.table_id) || path"
        for file in ("data_file", "delete_file")
    ),
    _PLACES,
    *(
        f"ALTER TABLE ducklake_{table} DROP COLUMN {column}"
        for table, columns in {
            "schema": ("path", "path_is_relative"),
            "table": ("path", "path_is_relative"),
            "metadata": ("scope", "scope_id"),
            "data_file": ("mapping_id",),
        }.items()
        for column in columns
    ),
    "DROP TABLE ducklake_column_mapping",
    "DROP TABLE ducklake_name_mapping",
)
# Some of the statements of DuckDB's migrations, as a development version between two releases may have had them.
_STATEMENTS = {
    "0.1": _TO_0_1,
    "0.3-dev1": (
        "ALTER TABLE ducklake_name_mapping ADD COLUMN is_partition {boolean} DEFAULT {false}",
        "ALTER TABLE ducklake_snapshot_changes ADD COLUMN author VARCHAR DEFAULT NULL",
        "ALTER TABLE ducklake_snapshot_changes ADD COLUMN commit_message VARCHAR DEFAULT NULL",
        "ALTER TABLE ducklake_snapshot_changes ADD COLUMN commit_extra_info VARCHAR DEFAULT NULL",
    ),
    "0.4-dev1": (
        "CREATE TABLE ducklake_macro(schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT)",
        "CREATE TABLE ducklake_macro_impl(macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR)",
        "ALTER TABLE ducklake_column ADD COLUMN default_value_type VARCHAR DEFAULT 'literal'",
        "ALTER TABLE ducklake_schema_versions ADD COLUMN table_id BIGINT",
        "ALTER TABLE ducklake_data_file ADD COLUMN partial_max BIGINT",
    ),
}


@dataclass(frozen=True)
class OldLake:
    """A copy of one lake, to be changed at will.

    Attributes:
        expected: Rows by table and snapshot, as the DuckDB that made the lake read them.
    """

    version: str
    address: LakeAddress
    folder: Path
    expected: Mapping[str, Mapping[int, ExpectedRows]]
    snapshots: tuple[int, ...]

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on the catalog database itself, in one transaction; rows of the last one, if any."""
        return _execute(self.address, statements)


@dataclass(frozen=True)
class ExpectedRows:
    """A table at a snapshot: column names, and rows as row id and cells in JSON."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def old_lake(version: str, backend: str, folder: Path, server: PostgresServer | None = None) -> OldLake:
    """A lake of an earlier version on a catalog database: ``sqlite``, ``postgresql`` or ``duckdb``."""
    made_from = _MADE_FROM.get(version, version)
    source = LAKES / f"{made_from}-{backend}"
    shutil.copytree(source, folder, dirs_exist_ok=True)
    address = _address(backend, folder, server)
    _execute(address, [f"UPDATE ducklake_metadata SET value = '{address.data_path}' WHERE key = 'data_path'"])
    if version != made_from:
        types = {"boolean": "BIGINT", "false": "0"} if backend == "sqlite" else {"boolean": "BOOLEAN", "false": "false"}
        set_version = f"UPDATE ducklake_metadata SET value = '{version}' WHERE key = 'version'"
        _execute(address, [*(statement.format(**types) for statement in _STATEMENTS[version]), set_version])
    stored = json.loads((folder / "expected.json").read_text())
    return OldLake(version, address, folder, {name: _expected(rows) for name, rows in stored["tables"].items()}, tuple(stored["snapshots"]))


def _address(backend: str, folder: Path, server: PostgresServer | None) -> LakeAddress:
    if backend == "sqlite":
        return sqlite_lake(folder)
    if backend == "duckdb":
        file = folder / "catalog.duckdb"
        file.write_bytes(gzip.decompress((folder / "catalog.duckdb.gz").read_bytes()))
        return LakeAddress(f"duckdb:///{file}", f"ducklake:{file}", f"{folder / 'files'}/", "duckdb")
    assert server is not None
    address = server.lake(folder)
    _execute(address, [(folder / "catalog.sql").read_text()])
    return address


def _execute(address: LakeAddress, statements: Iterable[str]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    if address.backend == "sqlite":
        database = sqlite3.connect(address.url.removeprefix("sqlite:///"))
        with database:
            for statement in statements:
                rows = database.execute(statement).fetchall()
        database.close()
        return rows
    if address.backend == "duckdb":
        import duckdb

        with duckdb.connect(address.url.removeprefix("duckdb:///")) as connection:
            for statement in statements:
                rows = connection.execute(statement).fetchall()
        return rows
    target = address.attach.removeprefix("ducklake:postgres:")
    with psycopg.connect(unquote(target)) as server:
        for statement in statements:
            cursor = server.execute(statement)  # type: ignore[arg-type]
            rows = cursor.fetchall() if cursor.description else []
    return rows


def _expected(stored: Mapping[str, Any]) -> dict[int, ExpectedRows]:
    found: dict[int, ExpectedRows] = {}
    for snapshot, value in stored.items():
        if "same_as" in value:
            found[int(snapshot)] = found[int(value["same_as"])]
        else:
            rows = tuple(sorted((tuple(row) for row in value["rows"]), key=repr))
            found[int(snapshot)] = ExpectedRows(tuple(value["columns"]), rows)
    return found


def changes(expected: Mapping[int, ExpectedRows]) -> Iterator[int]:
    """The snapshots at which a table is another one than before, and the last one."""
    before: ExpectedRows | None = None
    for snapshot, rows in sorted(expected.items()):
        if rows is not before:
            yield snapshot
        before = rows
    yield max(expected)


def rows_at(lake: DuckLake, name: str, snapshot: int) -> pa.Table:
    """All rows of a table at a snapshot, with their row ids."""
    table = lake.table(name, at=snapshot)
    return table.scan(columns=[*table.schema.names, "rowid"]).to_arrow()


def forget_embedded_snapshots(old: OldLake) -> Path:
    """Rewrite the merged file of a lake without the snapshot of each row, as if its writer had not stored it."""
    ((name,),) = old.execute("SELECT path FROM ducklake_data_file WHERE partial_file_info LIKE '2:%'")
    (path,) = (old.folder / "files").rglob(Path(name).name)
    held = pq.read_table(path, partitioning=None)
    pq.write_table(held.drop_columns([SNAPSHOT_ID_COLUMN]), path)
    size, footer = path.stat().st_size, read_footer(Storage(), str(path)).footer_size
    old.execute(f"UPDATE ducklake_data_file SET file_size_bytes = {size}, footer_size = {footer} WHERE path = '{name}'")
    return path


class JsonRows:
    """Rows in the form of :class:`ExpectedRows`, made by DuckDB from Arrow tables."""

    def __init__(self) -> None:
        self._connection = new_connection()
        self._connection.execute("SET TimeZone = 'UTC'")

    def of(self, table: pa.Table) -> ExpectedRows:
        """Rows of a table whose last column is ``rowid``."""
        columns = tuple(name for name in table.column_names if name != "rowid")
        cells = ", ".join(f'to_json("{column}")::VARCHAR' for column in columns)
        self._connection.register("read_rows", table)
        try:
            rows = self._connection.execute(f"SELECT rowid, {cells} FROM read_rows").fetchall()
        finally:
            self._connection.unregister("read_rows")
        return ExpectedRows(columns, tuple(sorted(rows, key=repr)))
