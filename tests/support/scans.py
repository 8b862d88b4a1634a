"""Scans of a test's lake straight through catalog and planner, and their rows compared with the oracle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.catalog.database.bootstrap import open_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.types.names import join_name
from ducklake_core.scan import Scan
from ducklake_core.storage.filesystems import Storage
from tests.support.lakes import held_open
from tests.support.oracle import LakeAddress, Oracle
from tests.support.variants import comparable

STORAGE = Storage()
# DuckDB's EXCEPT ALL loses some NaNs, so floats are compared as exact strings.
_FLOATS = ("FLOAT", "DOUBLE")


@dataclass
class OpenLake:
    """A lake of the oracle, open for scans of the library."""

    database: Database
    info: Any

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        with self.database.read() as connection:
            yield CatalogReader(connection, self.info, self.database.tables)

    def scan(self, name: str, at: int | None = None, **scan: Any) -> Scan:
        with self.reader() as reader:
            state = reader.table("main", name, reader.latest_snapshot().id if at is None else at)
        return Scan(table=state, reader=self.reader, storage=STORAGE, **scan)

    def snapshots(self) -> list[int]:
        with self.reader() as reader:
            return [snapshot.id for snapshot in reader.snapshots()]


def open_lake(address: LakeAddress) -> OpenLake:
    database = Database(parse_catalog_url(address.url))
    return OpenLake(database, open_catalog(database))


def assert_same_rows(duck: Oracle, by_library: pa.Table, query: str) -> None:
    """Assert that rows and those of a query are the same multiset, by columns of the same name, as the oracle compares them."""
    by_duckdb = duck.connection.execute(f"SELECT * FROM ({query}) LIMIT 0").description
    names = [column[0] for column in by_duckdb]
    assert by_library.column_names == names
    duck.connection.register("read_rows", _for_duckdb(by_library))
    held = [column[1] for column in duck.connection.execute("SELECT * FROM read_rows LIMIT 0").description]
    wanted = [column[1] for column in duck.connection.execute(f"SELECT * FROM ({query}) LIMIT 0").description]
    columns = ", ".join(
        _comparable(name, alike=str(mine) == str(other) not in _FLOATS) for name, mine, other in zip(names, held, wanted, strict=True)
    )
    try:
        mine, others = f"SELECT {columns} FROM read_rows", f"SELECT {columns} FROM ({query})"
        assert duck.rows(f"{mine} EXCEPT ALL {others}") == [], "rows that only we have"
        assert duck.rows(f"{others} EXCEPT ALL {mine}") == [], "rows that we miss"
    finally:
        duck.connection.unregister("read_rows")


def _for_duckdb(table: pa.Table) -> pa.Table:
    # DuckDB does not read decimals of 39 digits from Arrow.
    for index, field in enumerate(table.schema):
        if pa.types.is_decimal256(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
    return table


def _comparable(name: str, *, alike: bool) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    return quoted if alike else f"CAST({quoted} AS VARCHAR)"


def counted(rows: pa.Table) -> Counter[str]:
    """Return rows as strings; dates and times as numbers, as Python has no infinite ones, and variants decoded."""
    columns = [
        comparable(column) if _is_variant(column.type) else column.cast(_countable(column.type)).to_pylist() for column in rows.columns
    ]
    return Counter(map(repr, zip(*columns, strict=True)))


Shown = dict[tuple[int, str], Counter[str]]
"""Rows as strings, by snapshot and table."""


def shown(lake: DuckLake, known: Shown | None = None) -> Shown:
    """Return the rows of every table at every remaining snapshot, with row ids; known snapshots are not read again."""
    left = {snapshot.id for snapshot in lake.snapshots()}
    found: Shown = {key: rows for key, rows in (known or {}).items() if key[0] in left}
    read = {number for number, _ in found}
    with held_open(lake):
        for number in sorted(left - read):
            with lake.reader() as reader:
                names = [join_name(*name) for name in reader.table_names(number).values()]
            for name in names:
                table = lake.table(name, at=number)
                found[number, name] = counted(table.scan(columns=[*table.schema.names, "rowid"]).to_arrow())
    return found


def change_feed(lake: DuckLake, until: int) -> dict[str, Counter[str]]:
    """The change feed of every table up to a snapshot, of those that have one."""
    found: dict[str, Counter[str]] = {}
    with held_open(lake):
        first = lake.snapshots()[0].id
        for info in lake.tables(at=until):
            with suppress(DuckLakeError):
                found[info.table] = counted(lake.table(info.table, at=until).changes(first, until).to_arrow())
    return found


def _is_variant(data_type: Any) -> bool:
    return pa.types.is_struct(data_type) and [field.name for field in data_type] == ["metadata", "value"]


def _countable(data_type: Any) -> Any:
    if pa.types.is_date(data_type):
        return pa.int32()
    if pa.types.is_timestamp(data_type):
        return pa.int64()
    if pa.types.is_list(data_type):
        return pa.list_(_countable(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_countable(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(_countable(data_type.key_type), _countable(data_type.item_type))
    return data_type
