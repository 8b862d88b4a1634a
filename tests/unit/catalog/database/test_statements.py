"""Compiled statements that all engines of a process share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Executable, select
from sqlalchemy.engine.interfaces import CacheStats

from ducklake_core.catalog.database.bootstrap import create_catalog
from ducklake_core.catalog.database.statements import CompiledStatements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.format.versions import V1_0, V1_1
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.unit.catalog.catalog_access import database_of


def _was_known(connection: Connection, statement: Executable) -> bool:
    return bool(connection.execute(statement).context.cache_hit is CacheStats.CACHE_HIT)


def test_a_reopened_lake_reuses_statements(lake_address: LakeAddress) -> None:
    first, again = database_of(lake_address), database_of(lake_address)
    create_catalog(first, lake_address.data_path)
    snapshot = first.tables["snapshot"]
    known = []
    for database in (first, again):
        with database.read() as connection:
            known.append(_was_known(connection, select(snapshot.c.snapshot_id, snapshot.c.next_file_id + 41)))
        database.close()
    # The first may have been compiled in another test, for another lake.
    assert known[1]


def test_tables_of_other_versions_and_schemas_are_not_taken_for_one_another(tmp_path: Path) -> None:
    database = database_of(sqlite_lake(tmp_path))
    create_catalog(database, str(tmp_path / "files"))
    compiled = {version: select(CatalogTables(None, version)["file_column_stats"]) for version in (V1_0, V1_1, V1_0)}
    with database.read() as connection:
        assert "min_is_exact" not in tuple(connection.execute(compiled[V1_0]).keys())
    with pytest.raises(Exception, match="min_is_exact"), database.read() as connection:
        connection.execute(compiled[V1_1])
    with database.read() as connection:
        assert connection.execute(select(CatalogTables("main")["snapshot"].c.snapshot_id)).scalars().all() == [0]
    with pytest.raises(Exception, match="elsewhere"), database.read() as connection:
        connection.execute(select(CatalogTables("elsewhere")["snapshot"].c.snapshot_id))
    database.close()


def test_statements_differ_by_database(lake_address: LakeAddress, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = database_of(sqlite_lake(tmp_path / "other"))
    create_catalog(other, str(tmp_path / "other" / "files"))
    with other.read() as connection:
        connection.execute(select(other.tables["snapshot"]).where(other.tables["snapshot"].c.snapshot_id == 0)).one()
    database = database_of(lake_address)
    create_catalog(database, lake_address.data_path)
    with database.read() as connection:
        # PostgreSQL does not accept SQLite's question marks.
        row = connection.execute(select(other.tables["snapshot"]).where(other.tables["snapshot"].c.snapshot_id == 0)).one()
    assert row.snapshot_time.tzinfo is not None
    other.close()
    database.close()


def test_threads_that_fill_it_at_once_keep_it_small(sqlite_address: LakeAddress) -> None:
    statements = CompiledStatements(10)
    database = database_of(sqlite_address)
    create_catalog(database, sqlite_address.data_path)

    def fill(thread: int) -> None:
        for number in range(500):
            key = (database.dialect, (thread, number % 100))
            statements[key] = key
            assert statements.get(key) in (key, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))
    statements[database.dialect, "last"] = 0
    kept = [number for thread in range(4) for number in range(100) if statements.get((database.dialect, (thread, number)))]
    assert len(kept) == 9
    database.close()
