"""The second implementation of version 1.1, ducklakepy, on the lakes of tests: it stands in for DuckDB 2.0 until that can be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pyarrow as pa
from ducklakepy import DuckLakeCatalog
from ducklakepy.exceptions import DuckLakeError as TheirError
from sqlalchemy import select

from ducklake_core import DuckLake
from tests.support.carried_catalogs import carried
from tests.support.mysql_copy import carried_from_mysql
from tests.support.oracle import LakeAddress
from tests.support.scans import counted

BACKENDS = ("sqlite", "postgresql")
"""Catalog databases that it knows, makes lakes in and migrates. Those in DuckDB files and MySQL it gets in SQLite, and back they go."""


@contextmanager
def second_implementation(address: LakeAddress, *, create: bool = False, migrate: bool = False) -> Iterator[DuckLakeCatalog]:
    """Open a lake with it; a lake that is made, or migrated, gets version 1.1."""
    version = "1.1" if create or migrate else None
    assert address.backend in BACKENDS or not version, "there it can neither make nor migrate a lake"
    with (
        _where_it_can(address) as index,
        DuckLakeCatalog("lake", url=index.url, data_path=index.data_path, spec_version=version, automatic_migration=migrate) as catalog,
    ):
        if create:
            catalog.initialize()
        # It opens, and migrates, a lake only on request.
        assert catalog.spec_version() in ("1.0", "1.1")
        yield catalog


def _where_it_can(address: LakeAddress) -> AbstractContextManager[LakeAddress]:
    match address.backend:
        case "duckdb":
            return carried(address)
        case "mysql":
            return carried_from_mysql(address)
        case _:
            return nullcontext(address)


def new_lake(address: LakeAddress) -> DuckLake:
    """Create a lake of version 1.1 by this library."""
    return DuckLake.create(address.url, data_path=address.data_path, version="1.1")


def stored(lake: DuckLake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Cells of all rows of a metadata table, in order."""
    source = lake.database.tables[table]
    with lake.database.read() as connection:
        return [tuple(row) for row in connection.execute(select(*(source.c[c] for c in columns)).order_by(*(source.c[c] for c in columns)))]


def rows_of(catalog: DuckLakeCatalog, name: str, snapshot: int | None = None) -> list[tuple[object, ...]]:
    """The rows of a table at a snapshot, sorted."""
    table = catalog.load_table(name) if snapshot is None else catalog.load_table(name, snapshot=catalog.snapshot_by_id(snapshot))
    return sorted_rows(table.to_arrow())


def sorted_rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows as tuples, in an order that does not depend on how they were read."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def faults(lake: DuckLake) -> list[str]:
    """Return the findings of a check of all rows; flushes leave empty tables of inlined rows behind (decision 64)."""
    return [str(finding) for finding in lake.check(level="rows").findings if finding.code != "inlined-table-dead"]


def compare_all(lake: DuckLake, address: LakeAddress) -> tuple[int, dict[str, str]]:
    """Compare what both read of every table at every snapshot.

    Columns that it gives in another Arrow type are compared by their names alone. It reads fewer types and forms of inlined values than
    DuckDB writes.

    Returns:
        How many tables of snapshots have been compared, and the others with its reason: the caller knows what to expect.
    """
    compared: int = 0
    rejected: dict[str, str] = {}
    with second_implementation(address) as catalog:
        for snapshot in lake.snapshots():
            for info in lake.tables(at=snapshot.id):
                found = lake.table(info.table, at=snapshot.id).scan().to_arrow()
                try:
                    expected = catalog.load_table(info.table, snapshot=catalog.snapshot_by_id(snapshot.id)).to_arrow()
                except TheirError as error:
                    rejected[f"{info.table} at {snapshot.id}"] = str(error)
                    continue
                assert expected.column_names == found.column_names, (info.table, snapshot.id)
                indexes = [
                    index for index, (one, two) in enumerate(zip(found.columns, expected.columns, strict=True)) if one.type == two.type
                ]
                assert counted(expected.select(indexes)) == counted(found.select(indexes)), (info.table, snapshot.id)
                assert expected.num_rows == found.num_rows, (info.table, snapshot.id)
                compared += bool(indexes)
    return compared, rejected
