"""A catalog that is restored from a backup, or re-created, under an open lake object: ids and snapshots are reused."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogError, CommitConflictError, DuckLakeError, NotFoundError, SchemaError
from ducklake_core.staging import context
from tests.support.backups import Backup, remove_catalog
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import new_address, slow, spread

ROW = pa.table({"a": pa.array([1], pa.int32())})
OTHER = pa.table({"a": pa.array([2], pa.int32())})
MANY = pa.table({"a": pa.array(range(40), pa.int32())})


@pytest.fixture(autouse=True)
def _long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that was read stays recent, however slow the machine is."""
    monkeypatch.setattr(context, "RECENT_SECONDS", 3600.0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Files are put back in place or as another file; a server's database in place only."""
    if "moved" in metafunc.fixturenames:
        further = [slow("sqlite", "moved"), slow("duckdb", "copied"), slow("postgresql", "copied")]
        metafunc.parametrize(("lake_address", "moved"), [("sqlite", "copied"), ("duckdb", "moved"), *further], indirect=True)
    else:
        metafunc.parametrize("lake_address", ["sqlite", slow("postgresql"), slow("duckdb")], indirect=True)


@pytest.fixture
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """The address of a new lake, of the kinds above."""
    return new_address(request, request.param, tmp_path)


@pytest.fixture
def moved(request: pytest.FixtureRequest) -> bool:
    """Restore a file as another file or in place."""
    return bool(request.param == "moved")


@pytest.fixture
def backup(lake: DuckLake, lake_address: LakeAddress, *, moved: bool) -> Backup:
    """A backup of a lake with one table, which the object has read and written."""
    lake.create_table("t", ROW.schema)
    lake.write("t", ROW)
    lake.write("t", ROW)
    return Backup(address=lake_address, moved=moved)


def _by_duckdb(address: LakeAddress, *statements: str) -> None:
    with attached(address) as duck:
        duck.run(*statements)


@pytest.mark.parametrize("rows", [OTHER, MANY], ids=["inlined", "file"])
def test_the_id_of_a_lost_table_is_reused(lake: DuckLake, backup: Backup, lake_address: LakeAddress, rows: pa.Table) -> None:
    lake.write("mine", ROW)
    lake.write("mine", ROW)
    backup.restore()
    _by_duckdb(lake_address, "CREATE TABLE by_duckdb (a INTEGER)", "INSERT INTO by_duckdb VALUES (7)")
    assert lake.write("mine", rows).created_table
    _agree(lake, lake_address, mine=rows["a"].to_pylist(), by_duckdb=[7], t=[1, 1])


def test_a_lost_column(lake: DuckLake, backup: Backup, lake_address: LakeAddress) -> None:
    """The schema version is the same in both histories, and so is the table; its columns are not."""
    lake.table("t").add_column("b", "varchar")
    both = ROW.append_column("b", pa.array(["lost"]))
    lake.write("t", both)
    backup.restore()
    _by_duckdb(lake_address, "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5", "INSERT INTO t VALUES (3, 3)")
    with pytest.raises(SchemaError, match="'b'"):
        lake.write("t", both)
    lake.write("t", OTHER)
    _agree(lake, lake_address, t=[1, 1, 2, 3])
    assert sorted(lake.table("t").scan(columns=["c"]).to_arrow()["c"].to_pylist()) == [3, 5, 5, 5]


@pytest.mark.parametrize("by_duckdb", spread([0, 1, 2, 3], 2))
def test_as_many_commits_of_another_writer(lake: DuckLake, backup: Backup, lake_address: LakeAddress, by_duckdb: int) -> None:
    """A connection that stayed open sees what is in the file now, whatever number the last change has."""
    lake.write("t", OTHER)
    lake.write("t", OTHER)
    backup.restore()
    _by_duckdb(lake_address, *["INSERT INTO t VALUES (5)"] * by_duckdb)
    assert lake.snapshot().id == 3 + by_duckdb
    lake.write("t", OTHER)
    _agree(lake, lake_address, t=sorted([1, 1, 2, *[5] * by_duckdb]))


def test_a_backup_of_before_a_transaction(lake: DuckLake, backup: Backup, lake_address: LakeAddress) -> None:
    """Its base snapshot no longer exists; it applies to the restored state."""
    lake.write("t", OTHER)
    with lake.transaction() as tx:
        tx.delete("t", "a = 2")
        tx.append("t", MANY)
        backup.restore()
    _agree(lake, lake_address, t=sorted([1, 1, *range(40)]))
    assert tx.result.writes[0].rows_deleted == 0


def test_reads_of_a_lost_snapshot_decide_nothing(lake: DuckLake, backup: Backup, lake_address: LakeAddress) -> None:
    lake.write("t", OTHER)

    def read_and_write() -> None:
        with lake.transaction() as tx:
            tx.append("t", pa.table({"a": pa.array([tx.table("t").count()], pa.int32())}))
            backup.restore()
            _by_duckdb(lake_address, "INSERT INTO t VALUES (5)")

    with pytest.raises(CommitConflictError, match="has read rows"):
        read_and_write()
    _agree(lake, lake_address, t=[1, 1, 5])


def test_a_table_object_of_a_lost_snapshot(lake: DuckLake, backup: Backup, lake_address: LakeAddress) -> None:
    lake.write("mine", ROW)
    opened, known = lake.table("mine"), lake.table("t")
    backup.restore()
    _by_duckdb(lake_address, "CREATE TABLE by_duckdb (a INTEGER)", "INSERT INTO by_duckdb VALUES (7)")
    for read in (
        lambda: opened.scan().to_arrow(),
        lambda: opened.scan().count(),
        lambda: opened.changes(0).to_arrow(),
        opened.info,
        opened.list_files,
        opened.refresh,
        lambda: known.scan().to_arrow(),
    ):
        with pytest.raises(NotFoundError, match=r"catalog was replaced|no table"):
            read()
    assert known.refresh().scan().count() == 2


@pytest.mark.parametrize("rows", [OTHER, MANY], ids=["inlined", "file"])
def test_a_recreated_lake(lake: DuckLake, lake_address: LakeAddress, rows: pa.Table) -> None:
    lake.create_table("t", ROW.schema)
    lake.write("t", ROW)
    lake.write("t", ROW)
    remove_catalog(lake_address)
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE other (a INTEGER)", "CREATE TABLE t (a INTEGER)", "INSERT INTO other VALUES (7)")
    lake.write("t", rows)
    _agree(lake, lake_address, t=rows["a"].to_pylist(), other=[7])


@pytest.mark.parametrize("then", ["append", "append after a look", "open transaction"])
def test_a_recreated_lake_with_another_data_path(lake: DuckLake, lake_address: LakeAddress, then: str) -> None:
    lake.create_table("t", ROW.schema)
    lake.write("t", ROW)

    def recreated() -> DuckLake:
        remove_catalog(lake_address)
        made = DuckLake.create(lake_address.url, data_path=lake_address.data_path.removesuffix("/") + "2")
        made.create_table("t", ROW.schema)
        return made

    made: list[DuckLake] = []

    def write() -> None:
        if then == "append":
            made.append(recreated())
            lake.write("t", OTHER)
        elif then == "append after a look":
            made.append(recreated())
            with suppress(DuckLakeError):
                lake.table("t")
            lake.write("t", OTHER)
        else:
            with lake.transaction() as tx:
                tx.append("t", MANY)
                made.append(recreated())

    with pytest.raises(CatalogError, match="another lake"):
        write()
    assert made[0].table("t").scan().count() == 0
    made[0].close()


def test_maintenance_of_a_recreated_lake_with_another_data_path(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.create_table("t", ROW.schema)
    remove_catalog(lake_address)
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path.removesuffix("/") + "2")
    made.write("t", ROW, inline=True)
    assert "another lake" in lake.flush_inlined_data().failures[0]
    assert not [*Path(lake_address.data_path).rglob("*.parquet")]
    assert made.table("t").scan().to_arrow()["a"].to_pylist() == [1]
    made.close()


def _agree(lake: DuckLake, address: LakeAddress, **tables: list[int]) -> None:
    """Both engines read these rows of column ``a``."""
    with attached(address) as duck:
        for name, values in tables.items():
            assert sorted(duck.rows(f"SELECT a FROM {name}")) == [(value,) for value in values], f"DuckDB, {name}"
    for name, values in tables.items():
        assert sorted(lake.table(name).scan(columns=["a"]).to_arrow()["a"].to_pylist()) == values, f"ducklake_core, {name}"


def test_merging_files_of_a_lost_table(lake: DuckLake, backup: Backup, lake_address: LakeAddress) -> None:
    """A plan that was made before holds for the snapshot that it was made on alone."""
    from ducklake_core.commit.committer import Committer

    lake.set_option("data_inlining_row_limit", 0)
    for _ in range(3):
        lake.write("t", OTHER)
    commit = Committer.commit

    def late(committer: Any, transaction: Any) -> Any:
        backup.restore()
        _by_duckdb(lake_address, *["INSERT INTO t VALUES (5)"] * 5)
        return commit(committer, transaction)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Committer, "commit", late)
        outcome: object = None
        try:
            outcome = lake.merge_adjacent_files()
        except DuckLakeError as error:
            outcome = error
    assert outcome is not None
    _agree(lake, lake_address, t=[1, 1, 5, 5, 5, 5, 5])


def test_orphans_are_kept_while_a_backup_is_restored(lake: DuckLake, lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest snapshot has the same id before and after; what it names is something else."""
    from ducklake_core.maintenance import orphans

    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", ROW.schema)
    lake.write("t", OTHER)
    saved, listed = Backup(address=lake_address), orphans._Names.has
    saved_newest = lake.snapshot().id
    with lake.transaction() as tx:
        tx.drop_table("t")
    lake.expire_snapshots(versions=[saved_newest], min_age=timedelta(0))
    lake.cleanup_old_files(dry_run=True)
    _forget_files(lake)
    restored: list[bool] = []

    def put_back(names: Any, path: str) -> bool:
        found = listed(names, path)
        if not restored:
            restored.append(True)
            saved.restore()
            # As many commits as were lost.
            other = DuckLake.connect(lake_address.url)
            other.write("u", ROW)
            other.close()
        return found

    monkeypatch.setattr(orphans._Names, "has", put_back)
    lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0))
    assert restored
    assert lake.snapshot().id == saved_newest + 1
    _agree(lake, lake_address, t=[2], u=[1])


def _forget_files(lake: DuckLake) -> None:
    """Take the files out of the catalog, as a cleanup does that could not delete them."""
    with lake.database.write() as connection:
        for name in ("files_scheduled_for_deletion", "data_file"):
            connection.execute(lake.database.tables[name].delete())
