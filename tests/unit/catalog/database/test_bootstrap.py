"""New catalogs equal DuckDB's, and opening the wrong thing changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, select, text

from ducklake_core.catalog.database.bootstrap import create_catalog, create_file, open_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.errors import AlreadyExistsError, CatalogCorruptError, CatalogVersionError, NotALakeError, UsageError
from ducklake_core.format.versions import V1_0
from tests.support.oracle import LakeAddress, attached


def database_of(address: LakeAddress) -> Database:
    return Database(parse_catalog_url(address.url))


def layout(database: Database) -> dict[str, list[tuple[str, str]]]:
    """Table names with their columns in order and their physical types."""
    with database.read() as connection:
        inspector = inspect(connection)
        return {
            name: [(column["name"], str(column["type"])) for column in inspector.get_columns(name)] for name in inspector.get_table_names()
        }


def primary_keys(database: Database) -> dict[str, list[str]]:
    with database.read() as connection:
        inspector = inspect(connection)
        found = {name: list(inspector.get_pk_constraint(name)["constrained_columns"]) for name in inspector.get_table_names()}
    return {name: columns for name, columns in found.items() if columns}


def rows(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows but what must differ: the uuid of main (random), the time, and who created the lake."""
    random = {"schema_uuid", "snapshot_time"}
    with database.read() as connection:
        found = {
            name: [tuple(row) for row in connection.execute(select(*(c for c in database.tables[name].c if c.name not in random)))]
            for name in CatalogTables(None, V1_0)
        }
    found["metadata"] = [row for row in found["metadata"] if row[0] != "created_by"]
    return found


def second_place(address: LakeAddress, request: pytest.FixtureRequest, folder: Path) -> LakeAddress:
    """Another empty place of the same kind with the same data path."""
    from dataclasses import replace

    from tests.support.parameters import new_address

    second = folder / "second"
    second.mkdir()
    return replace(new_address(request, address.backend, second), data_path=address.data_path)


def test_a_new_catalog_equals_one_of_duckdb(lake_address: LakeAddress, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    by_duckdb = second_place(lake_address, request, tmp_path)
    with attached(by_duckdb):
        pass
    by_library, reference = database_of(lake_address), database_of(by_duckdb)
    info = create_catalog(by_library, lake_address.data_path)
    assert layout(by_library) == layout(reference)
    assert primary_keys(by_library) == primary_keys(reference)
    assert rows(by_library) == rows(reference)
    assert open_catalog(by_library) == info
    assert open_catalog(reference).data_path == info.data_path
    assert info.created_by is not None
    assert info.created_by.startswith("ducklake-core")


def test_a_second_creation_raises_and_changes_nothing(lake_address: LakeAddress) -> None:
    database = database_of(lake_address)
    create_catalog(database, lake_address.data_path)
    before = rows(database)
    with pytest.raises(AlreadyExistsError):
        create_catalog(database, "/elsewhere")
    assert rows(database) == before


def test_a_lake_without_data_path_raises(lake_address: LakeAddress) -> None:
    database = database_of(lake_address)
    with pytest.raises(UsageError):
        create_catalog(database, " ")
    with pytest.raises(NotALakeError):
        open_catalog(database)


def test_a_missing_file_is_no_lake_and_is_not_created(sqlite_address: LakeAddress) -> None:
    database = database_of(sqlite_address)
    file = Path(str(database.address.url.database))
    with pytest.raises(NotALakeError, match=r"catalog\.sqlite"):
        open_catalog(database)
    assert not file.exists()


def test_other_databases_and_files_are_no_lakes(lake_address: LakeAddress, tmp_path: Path) -> None:
    database = database_of(lake_address)
    if database.abilities.is_file:
        create_file(database)
    with database.write(creating=True) as connection:
        connection.execute(text("CREATE TABLE unrelated (a BIGINT)"))
    before = layout(database)
    with pytest.raises(NotALakeError):
        open_catalog(database)
    assert layout(database) == before
    other = tmp_path / "letter.txt"
    other.write_text("Dear database,\n" * 100)
    with pytest.raises(NotALakeError):
        open_catalog(Database(parse_catalog_url(f"sqlite:{other}")))
    assert other.read_text() == "Dear database,\n" * 100


@pytest.mark.parametrize("version", ["0.5", "1.1-dev2", "2.0"])
def test_unknown_versions_raise(lake_address: LakeAddress, version: str) -> None:
    database = database_of(lake_address)
    create_catalog(database, lake_address.data_path)
    metadata = database.tables["metadata"]
    with database.write() as connection:
        connection.execute(metadata.update().where(metadata.c.key == "version").values(value=version))
    before = rows(database)
    with pytest.raises(CatalogVersionError, match="newer release") as caught:
        open_catalog(database)
    assert version in caught.value.message
    assert "1.0" in caught.value.message
    assert rows(database) == before


def test_a_version_that_is_bytes_is_no_version(sqlite_address: LakeAddress) -> None:
    database = database_of(sqlite_address)
    create_catalog(database, sqlite_address.data_path)
    with database.write() as connection:
        connection.execute(text("UPDATE ducklake_metadata SET value = x'312e31' WHERE key = 'version'"))
    with pytest.raises(CatalogVersionError):
        open_catalog(database)


def test_a_catalog_from_before_scopes_that_lost_its_tables(lake_address: LakeAddress) -> None:
    database = database_of(lake_address)
    if database.abilities.is_file:
        create_file(database)
    with database.write(creating=True) as connection:
        names = "(`key` LONGTEXT, value LONGTEXT)" if lake_address.backend == "mysql" else "(key VARCHAR NOT NULL, value VARCHAR NOT NULL)"
        connection.execute(text(f"CREATE TABLE ducklake_metadata {names}"))
        connection.execute(text("INSERT INTO ducklake_metadata VALUES ('version', '0.1'), ('data_path', '/x/')"))
    with pytest.raises(CatalogCorruptError, match="lacks tables that every version has: ducklake_snapshot"):
        open_catalog(database)


def test_a_catalog_without_version_is_read_as_1_0(lake_address: LakeAddress) -> None:
    database = database_of(lake_address)
    create_catalog(database, lake_address.data_path)
    metadata = database.tables["metadata"]
    with database.write() as connection:
        connection.execute(metadata.delete().where(metadata.c.key == "version"))
    with attached(lake_address) as duck:
        assert duck.rows("SELECT snapshot_id FROM ducklake_snapshots('lake')") == [(0,)]
    assert open_catalog(database).version == "1.0"
    with database.write() as connection:
        connection.execute(text("ALTER TABLE ducklake_data_file DROP COLUMN partial_max"))
    with pytest.raises(CatalogVersionError, match="ducklake_data_file has the columns"):
        open_catalog(database)


def test_data_path_must_be_the_stored_one_unless_overridden(lake_address: LakeAddress) -> None:
    database = database_of(lake_address)
    create_catalog(database, lake_address.data_path)
    assert open_catalog(database, lake_address.data_path.rstrip("/")).data_path == lake_address.data_path
    with pytest.raises(UsageError) as caught:
        open_catalog(database, "/elsewhere")
    assert "/elsewhere/" in caught.value.message
    assert lake_address.data_path in caught.value.message
    assert open_catalog(database, "/elsewhere", override=True).data_path == "/elsewhere/"
    assert open_catalog(database).data_path == lake_address.data_path


def test_a_failed_creation_leaves_no_file(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    database = database_of(sqlite_address)

    def fail(*_: object) -> None:
        raise RuntimeError("stop")

    monkeypatch.setattr(Database, "now", fail)
    with pytest.raises(RuntimeError):
        create_catalog(database, "files")
    assert not list(Path(str(database.address.url.database)).parent.iterdir())
