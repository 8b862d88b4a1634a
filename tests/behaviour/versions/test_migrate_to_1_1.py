"""Lakes of version 1.0 become lakes of 1.1 in which ducklake_core and a second implementation read the same snapshots."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import select, text

from ducklake_core import DuckLake
from ducklake_core.catalog.database import sqlite_catalog
from ducklake_core.catalog.migrations import run
from ducklake_core.errors import CatalogError, CatalogUnavailableError, CatalogVersionError, DuckLakeError, UnsupportedFeatureError
from tests.support.ducklakepy_lake import BACKENDS, faults, rows_of, second_implementation, sorted_rows
from tests.support.old_lakes import JsonRows, changes, old_lake, rows_at
from tests.support.oracle import READS, LakeAddress, attached, file_lake
from tests.support.parameters import slow, spread
from tests.unit.catalog.database.test_bootstrap import layout, primary_keys

HISTORY = (
    "CREATE TABLE t (a BIGINT, s VARCHAR, p STRUCT(x INTEGER, y VARCHAR))",
    "INSERT INTO t VALUES (1, 'one', {'x': 1, 'y': 'a'}), (2, NULL, NULL), (3, 'drei', {'x': NULL, 'y': NULL})",
    "INSERT INTO t SELECT range, 'r' || range, {'x': range, 'y': 'q'} FROM range(10, 60)",
    "UPDATE t SET s = 'zwei' WHERE a = 2",
    "DELETE FROM t WHERE a IN (3, 20, 30)",
    "ALTER TABLE t ADD COLUMN d DOUBLE DEFAULT 1.5",
    "INSERT INTO t VALUES (100, 'late', NULL, 2.5)",
    "ALTER TABLE t RENAME COLUMN s TO text",
    "CREATE VIEW v AS SELECT a FROM t",
    "CREATE SCHEMA more",
    "CREATE TABLE more.u AS SELECT range AS n FROM range(5)",
)


def everything(lake: DuckLake) -> dict[tuple[int, str], list[tuple[Any, ...]]]:
    """The rows of all tables at all snapshots."""
    found = {}
    for snapshot in lake.snapshots():
        for table in lake.tables(at=snapshot.id):
            name = table.table
            found[snapshot.id, name] = sorted_rows(lake.table(name, at=snapshot.id).scan().to_arrow())
    return found


def catalog_rows(lake: DuckLake) -> dict[str, list[Any]]:
    """All rows of all tables of a catalog."""
    found = {}
    with lake.database.read() as connection:
        for name in sorted(layout(lake.database)):
            source = text(lake.database.dialect.identifier_preparer.quote(name))
            found[name] = sorted((tuple(row) for row in connection.execute(select(text("*")).select_from(source))), key=repr)
    return found


def column_names(lake: DuckLake) -> dict[str, list[str]]:
    """Names of columns in order, by table; the order of added ones follows from the order of tables here and there."""
    return {name: sorted(column for column, _ in columns) for name, columns in layout(lake.database).items()}


def made_by_duckdb(address: LakeAddress) -> DuckLake:
    with attached(address) as duck:
        duck.run(*HISTORY)
    return DuckLake.connect(address.url)


@pytest.mark.slow
def test_every_snapshot_shows_the_same_afterwards(lake_address: LakeAddress) -> None:
    lake = made_by_duckdb(lake_address)
    before, rows = everything(lake), catalog_rows(lake)
    assert lake.migrate().steps == ()
    assert lake.info.version == "1.0"
    plan = lake.migrate("1.1", dry_run=True)
    assert catalog_rows(lake) == rows
    assert "rename ducklake_inlined_data_1_1.row_id to _ducklake_row_id" in plan.steps
    assert plan.steps[-1] == "set the version from 1.0 to 1.1"
    done = lake.migrate("1.1")
    assert (done.steps, done.former, done.version) == (plan.steps, "1.0", "1.1")
    assert lake.migrate("1.1").steps == ()
    assert everything(lake) == everything(DuckLake.connect(lake_address.url)) == before
    with pytest.raises(UnsupportedFeatureError, match="cannot be migrated back"):
        lake.migrate("1.0")
    lake.write("t", pa.table({"a": [7], "text": ["x"]}), missing_columns="null")
    assert lake.table("t").scan(where="a = 7").count() == 1
    lake.flush_inlined_data()
    assert {key: found for key, found in everything(lake).items() if key in before} == before
    assert faults(lake) == []
    if "1.1" not in READS:
        with pytest.raises(duckdb.Error, match=r"catalog version is 1\.1"), attached(lake_address) as duck:
            duck.rows("FROM t")


@pytest.mark.parametrize("backend", spread(BACKENDS, 1))
def test_the_second_implementation_makes_the_same_catalog(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    addresses = []
    for name in ("own", "second"):
        (tmp_path / name).mkdir()
        postgres = request.getfixturevalue("postgres") if backend == "postgresql" else None
        addresses.append(postgres.lake(tmp_path / name) if postgres else file_lake("sqlite", tmp_path / name))
    own, by_second = addresses
    lake = made_by_duckdb(own)
    other = made_by_duckdb(by_second)
    before = everything(lake)
    lake.migrate("1.1")
    with second_implementation(by_second, migrate=True):
        pass
    other = DuckLake.connect(by_second.url)
    assert other.info.version == "1.1"
    assert column_names(lake) == column_names(other)
    assert primary_keys(lake.database) == primary_keys(other.database)
    assert everything(other) == before
    tables = ("schema_versions", "column", "inlined_data_tables", "inlined_data_1_1", "table_column_stats")
    same = [f"ducklake_{name}" for name in tables]
    by_own, by_other = catalog_rows(lake), catalog_rows(other)
    assert {name: by_own[name] for name in same} == {name: by_other[name] for name in same}
    with second_implementation(own) as catalog:
        for (snapshot, name), rows in before.items():
            assert rows_of(catalog, name, snapshot) == rows


@pytest.mark.parametrize(("version", "to"), spread([("0.1", "1.1"), ("0.3", "1.1"), ("0.2", "1.0")], 1))
def test_earlier_versions_migrate_to_the_requested_version(version: str, to: Any, tmp_path: Path) -> None:
    old, json_rows = old_lake(version, "sqlite", tmp_path), JsonRows()
    lake = DuckLake.connect(old.address.url)
    plan = lake.migrate(to, dry_run=True)
    assert lake.migrate(to).steps == plan.steps
    assert lake.info.version == DuckLake.connect(old.address.url).info.version == to
    fresh = DuckLake.create(f"sqlite:///{tmp_path / 'fresh.sqlite'}", data_path=str(tmp_path / "none"), version=to)
    found, wanted = layout(lake.database), layout(fresh.database)
    assert {name: found[name] for name in wanted} == wanted
    for name, expected in old.expected.items():
        for snapshot in changes(expected):
            assert json_rows.of(rows_at(lake, name, snapshot)) == expected[snapshot], (name, snapshot)
    if to == "1.1":
        with second_implementation(old.address) as catalog:
            assert len(rows_of(catalog, "main.numbers")) == lake.table("numbers").scan().count()


@pytest.mark.slow
def test_the_development_version_becomes_1_1(lake_address: LakeAddress) -> None:
    """It lacks what came last: exact bounds and nested schemas."""
    lake = made_by_duckdb(lake_address)
    before = everything(lake)
    lake.migrate("1.1")
    with lake.database.write() as connection:
        for table in ("file_column_stats", "table_column_stats"):
            for column in ("min_is_exact", "max_is_exact"):
                connection.execute(text(f"ALTER TABLE ducklake_{table} DROP COLUMN {column}"))
        connection.execute(text("ALTER TABLE ducklake_schema DROP COLUMN parent_schema_id"))
        metadata = lake.database.tables["metadata"]
        connection.execute(metadata.update().where(metadata.c.key == "version").values(value="1.1-dev1"))
    lake = DuckLake.connect(lake_address.url)
    assert lake.info.version == "1.1-dev1"
    assert everything(lake) == before
    with pytest.raises(CatalogVersionError, match=r"migrate it to version 1\.1"):
        lake.write("t", pa.table({"a": [1]}))
    lake.migrate()
    assert lake.info.version == "1.1"
    assert everything(lake) == before
    lake.write("t", pa.table({"a": [1]}), missing_columns="null")


def test_a_reserved_name_raises_before_any_change(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE fine (a INTEGER)", "INSERT INTO fine VALUES (1)")
        duck.run('CREATE TABLE t ("_ducklake_row_id" INTEGER, b INTEGER)', "INSERT INTO t VALUES (1, 2)")
    lake = DuckLake.connect(lake_address.url)
    before = catalog_rows(lake)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedFeatureError, match="'_ducklake_row_id', which is reserved"):
            lake.migrate("1.1", dry_run=dry_run)
    assert catalog_rows(lake) == before
    assert lake.info.version == "1.0"
    lake.table("t").rename_column("_ducklake_row_id", "a")
    lake.flush_inlined_data()
    lake.migrate("1.1")
    assert sorted_rows(lake.table("t").scan().to_arrow()) == [(1, 2)]


def test_a_missing_table_of_inlined_rows_raises(lake_address: LakeAddress) -> None:
    lake = made_by_duckdb(lake_address)
    with lake.database.write() as connection:
        connection.execute(text("DROP TABLE ducklake_inlined_data_1_1"))
    before = catalog_rows(lake)
    with pytest.raises(UnsupportedFeatureError, match="registered, but does not exist"):
        lake.migrate("1.1")
    assert catalog_rows(lake) == before


@pytest.mark.parametrize("lake_address", ["sqlite", slow("postgresql"), slow("duckdb")], indirect=True)
def test_an_error_leaves_everything_as_it_was(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made_by_duckdb(lake_address)
    before, done = catalog_rows(lake), []
    whole = run.run_step

    def fails_late(*arguments: Any) -> None:
        whole(*arguments)
        done.append(arguments)
        if len(done) == 6:
            raise CatalogError("stop")

    monkeypatch.setattr(run, "run_step", fails_late)
    with pytest.raises(DuckLakeError, match="stop"):
        lake.migrate("1.1")
    monkeypatch.undo()
    assert catalog_rows(lake) == before
    lake.migrate("1.1")


@pytest.mark.slow
@pytest.mark.parametrize("lake_address", ["mysql"], indirect=True)
@pytest.mark.parametrize("failing", range(1, 14))
def test_an_interrupted_migration_goes_on(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """On MySQL a migration cannot be rolled back: writes are blocked, and the next call completes it."""
    made_by_duckdb(lake_address).close()
    lake, other = DuckLake.connect(lake_address.url), DuckLake.connect(lake_address.url)
    before, done = everything(lake), []
    whole = run.run_step

    def fails(*arguments: Any) -> None:
        done.append(arguments)
        if len(done) == failing:
            raise CatalogError("stop")
        whole(*arguments)

    monkeypatch.setattr(run, "run_step", fails)
    with pytest.raises(DuckLakeError, match="stop"):
        lake.migrate("1.1")
    monkeypatch.undo()
    with pytest.raises(CatalogVersionError, match=r"1\.0-to-1\.1"):
        other.create_schema("s")
    found = DuckLake.connect(lake_address.url)
    with pytest.raises(CatalogVersionError, match=r"migrate it to version 1\.1 with lake\.migrate\(\); a dry run"):
        found.create_schema("s")
    assert found.migrate().version == "1.1"
    assert everything(found) == before
    assert DuckLake.connect(lake_address.url).migrate("1.1").steps == ()
    assert found.check().findings == ()


def test_remains_of_earlier_writers_are_repaired(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INTEGER, p STRUCT(x INTEGER))", "INSERT INTO t VALUES (1, {'x': 1})")
        duck.run("ALTER TABLE t ADD COLUMN p.y INTEGER DEFAULT 5", "INSERT INTO t VALUES (2, {'x': 2, 'y': 3})")
        duck.run("ALTER TABLE t RENAME COLUMN p.y TO z", "INSERT INTO t VALUES (3, {'x': 3, 'z': 4})")
        duck.run("INSERT INTO t SELECT range, NULL FROM range(100, 200)", "ALTER TABLE t ALTER COLUMN a SET DATA TYPE BIGINT")
    lake = DuckLake.connect(sqlite_address.url)
    with lake.database.write() as connection:
        field = connection.execute(text("SELECT column_id FROM ducklake_column WHERE column_name = 'z'")).scalar_one()
        connection.execute(text("UPDATE ducklake_column SET initial_default = '5' WHERE column_name = 'y'"))
        connection.execute(text("UPDATE ducklake_column SET initial_default = NULL WHERE column_name = 'z'"))
        newest = connection.execute(text("SELECT max(schema_version) FROM ducklake_inlined_data_tables")).scalar_one()
        connection.execute(text("DELETE FROM ducklake_schema_versions WHERE schema_version = :newest"), {"newest": newest})
        connection.execute(text("UPDATE ducklake_file_column_stats SET min_value = 'abc' WHERE column_id = 1"))
        connection.execute(text("UPDATE ducklake_table_column_stats SET max_value = '' WHERE column_id = 1"))
    plan = lake.migrate("1.1", dry_run=True)
    assert [step.split(",")[0] for step in plan.steps if step.startswith(("add schema version", "restore", "clear"))] == [
        f"add schema version {newest} of table 1",
        f"restore the default of field {field} of table 1 from snapshot {_begin(lake, 'z')} on",
        "clear the bounds of column 1 of table 1 in 1 files and of the whole table: of another type",
    ]
    lake.migrate("1.1")
    assert lake.migrate("1.1").steps == ()
    with lake.database.read() as connection:
        assert connection.execute(text("SELECT initial_default FROM ducklake_column WHERE column_name = 'z'")).scalars().all() == ["5"]
        assert connection.execute(text("SELECT min_value FROM ducklake_file_column_stats WHERE column_id = 1")).scalars().all() == [None]
        assert not connection.execute(text("SELECT 1 FROM ducklake_table_column_stats WHERE column_id = 1")).all()
    assert lake.table("t").scan(where="a = 150").count() == 1


def _begin(lake: DuckLake, column: str) -> int:
    with lake.database.read() as connection:
        query = text("SELECT begin_snapshot FROM ducklake_column WHERE column_name = :name")
        return int(connection.execute(query, {"name": column}).scalar_one())


def test_clients_of_the_earlier_version_raise_and_lose_nothing(lake_address: LakeAddress) -> None:
    made_by_duckdb(lake_address)
    old, migrating = DuckLake.connect(lake_address.url), DuckLake.connect(lake_address.url)
    table = old.table("t")
    migrating.migrate("1.1")
    before = everything(migrating)
    calls: list[Callable[[], Any]] = [
        lambda: old.table("t"),
        lambda: old.write("t", pa.table({"a": [1]}), missing_columns="null"),
        lambda: table.append(pa.table({"a": [1]}), missing_columns="null"),
        lambda: table.delete("a = 1"),
        lambda: old.create_schema("new"),
        lambda: old.set_option("parquet_compression", "zstd"),
        old.flush_inlined_data,
        lambda: old.expire_snapshots(versions=[1], min_age="0 days"),
        old.snapshots,
    ]
    for call in calls:
        with pytest.raises(CatalogVersionError, match=r"had version 1\.0 when it was opened, but another client has migrated it to 1\.1"):
            call()
    assert everything(migrating) == before
    again = old.reopen()
    again.write("t", pa.table({"a": [77]}), missing_columns="null")
    assert migrating.table("t").scan(where="a = 77").count() == 1
    result = DuckLake.connect(lake_address.url).migrate("1.1")
    assert result.steps == ()


def test_a_second_migration_finds_it_done(lake_address: LakeAddress) -> None:
    made_by_duckdb(lake_address)
    first, second = DuckLake.connect(lake_address.url), DuckLake.connect(lake_address.url)
    first.migrate("1.1")
    assert second.migrate("1.1").done_before
    assert second.info.version == "1.1"
    second.write("t", pa.table({"a": [5]}), missing_columns="null")


@pytest.mark.parametrize("backend", spread(BACKENDS, 1))
def test_a_session_of_duckdb_that_is_open_meanwhile_loses_nothing(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue("postgres").lake(tmp_path) if backend == "postgresql" else file_lake("sqlite", tmp_path)
    lake = made_by_duckdb(address)
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        assert duck.value("SELECT count(*) FROM t") == 51
        lake.migrate("1.1")
        before = everything(lake)
        added = "INSERT INTO t SELECT range, 'x', NULL, 1 FROM range(5000, 5050)"
        if backend == "postgresql":
            # PostgreSQL accepts rows that lack the last columns, whose values are unknown then.
            duck.run(added)
        else:
            with pytest.raises(duckdb.Error, match="columns but"):
                duck.run(added)
            with pytest.raises(duckdb.Error, match=r"row_id|begin_snapshot"):
                duck.run("UPDATE t SET d = 9 WHERE a = 1")
    assert {key: rows for key, rows in everything(lake).items() if key in before} == before
    assert lake.table("t").scan(where="a >= 5000").count() == (50 if backend == "postgresql" else 0)
    assert faults(lake) == []


_HOLD = """
import sys
from duckdb_extensions import import_extension
import duckdb
connection = duckdb.connect(config={"threads": 1})
import_extension("ducklake", con=connection)
connection.execute("LOAD ducklake")
connection.execute(sys.argv[1])
print(connection.execute("SELECT count(*) FROM lake.t").fetchall(), flush=True)
sys.stdin.readline()
connection.execute("INSERT INTO lake.t SELECT range, 'x', NULL, 1 FROM range(5000, 5050)")
print("written", flush=True)
"""


@pytest.mark.slow
def test_a_process_of_duckdb_that_has_the_file_keeps_a_migration_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB has a file alone: it goes on in the lake of 1.0, and meets the new version when it opens the file again."""
    address = file_lake("duckdb", tmp_path)
    lake = made_by_duckdb(address)
    before = everything(lake)
    monkeypatch.setattr(sqlite_catalog, "WRITE_BUSY_SECONDS", 0.3)
    monkeypatch.setattr(sqlite_catalog, "READ_BUSY_SECONDS", 0.3)
    attach = f"ATTACH '{address.attach}' AS lake {address.options()}"
    with subprocess.Popen([sys.executable, "-c", _HOLD, attach], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[(51,)]\n"
        for dry_run in (True, False):
            with pytest.raises(CatalogUnavailableError, match=f"PID {process.pid}"):
                lake.migrate("1.1", dry_run=dry_run)
        assert process.communicate("go on\n", timeout=240)[0] == "written\n"
    lake.migrate("1.1")
    found = everything(lake)
    assert {key: rows for key, rows in found.items() if key in before} == before
    assert lake.table("t").scan(where="a >= 5000").count() == 50
    if "1.1" not in READS:
        with subprocess.Popen([sys.executable, "-c", _HOLD, attach], stderr=subprocess.PIPE, text=True) as process:
            assert "catalog version is 1.1" in process.communicate(timeout=240)[1]
    assert everything(lake) == found
    assert faults(lake) == []
