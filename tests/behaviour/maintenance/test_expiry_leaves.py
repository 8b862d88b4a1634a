"""Expiry and merging keep snapshots that are younger than their time, and files that another row references."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.behaviour.maintenance.lakes import FILES_ONLY
from tests.behaviour.maintenance.test_expire import NOW, backdate, expire
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress, attached


def test_a_clock_that_was_set_back_makes_no_snapshot_older(sqlite_address: LakeAddress) -> None:
    """Ids ascend with every commit, so that no snapshot is older than the one before it; times in the future prove nothing."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", *(f"INSERT INTO t VALUES ({i})" for i in range(6)))
    now = datetime.now(UTC)
    hours = [900, -1000, 800, 0.5, 700, 0.2, 0.1]
    backdate(sqlite_address, {place: now - timedelta(hours=hour) for place, hour in enumerate(hours)})
    assert expire(sqlite_address, older_than="7 days", dry_run=True).snapshot_ids == (0, 2)
    assert expire(sqlite_address, keep_last=2, dry_run=True).snapshot_ids == (0, 2)
    with pytest.raises(UsageError, match=r"Snapshots \[4\] of versions are younger"):
        expire(sqlite_address, versions=[2, 4])
    assert expire(sqlite_address, versions=[4], min_age=NOW, dry_run=True).snapshots[0].time == now - timedelta(hours=700)


def test_a_file_that_was_added_twice_goes_with_its_last_entry(lake_address: LakeAddress, tmp_path: Path) -> None:
    """DuckDB's cleanup deletes whatever is scheduled; one table has the file by its name in its folder, the other by its whole path."""
    file = Path(lake_address.data_path) / "main" / "t" / "x.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": pa.array([7], pa.int32())}), file)
    with attached(lake_address, FILES_ONLY) as duck:
        duck.run(*(f"CREATE TABLE {table} (a INT)" for table in "tu"))
        duck.run(*(f"CALL ducklake_add_data_files('lake', '{table}', '{file}')" for table in "tutu"))
        duck.run("DROP TABLE t", "CREATE TABLE v (a INT)")
    lake = DuckLake.connect(lake_address.url)
    planned = lake.expire_snapshots(older_than=NOW, min_age=NOW, dry_run=True)
    done = lake.expire_snapshots(older_than=NOW, min_age=NOW)
    assert ([table.name for table in done.tables], done.files, planned.files) == (["main.t"], (), ())
    assert lake.check(level="rows").errors == ()
    with attached(lake_address) as duck:
        assert duck.rows("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)") == []
        assert duck.rows("SELECT a FROM u") == [(7,), (7,)]
        duck.run("DROP TABLE u")
    assert {one.path for one in lake.expire_snapshots(older_than=NOW, min_age=NOW).files} == {str(file)}
    lake.cleanup_old_files(cleanup_all=True, min_age=NOW)
    assert not file.exists()
    lake.close()


def test_delete_files_of_no_data_file_go_with_the_next_expiry(sqlite_address: LakeAddress) -> None:
    """One of them names the file of a live one, which stays; where nothing expires, the plan has none of them either."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (a INT)", "INSERT INTO t SELECT range FROM range(9)", "DELETE FROM t WHERE a < 4", "INSERT INTO t VALUES (9)"
        )
    copied = (
        "INSERT INTO ducklake_delete_file SELECT {id}, table_id, begin_snapshot, end_snapshot, 888, {path}, path_is_relative, format, "
        "delete_count, file_size_bytes, footer_size, encryption_key, partial_max FROM ducklake_delete_file LIMIT 1"
    )
    DamagedLake(sqlite_address).edit(copied.format(id=901, path="path"), copied.format(id=902, path="'alone-delete.parquet'"))
    with DuckLake.connect(sqlite_address.url) as lake:
        newest = lake.snapshot().id
        assert lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=newest + 1, dry_run=True).files == ()
        assert lake.check().by_code["delete-file-orphaned"] == 2
        planned = lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=2, dry_run=True)
        done = lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=2)
        assert planned.files == done.files
        assert [Path(one.path).name for one in done.files] == ["alone-delete.parquet"]
        assert lake.check(level="rows").by_code == {}
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 6


def test_a_file_added_to_another_table_during_a_merge_stays(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_core.maintenance import merge

    real = merge.merge_files
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake, DuckLake.connect(sqlite_address.url) as other:
        for number in range(3):
            lake.write("t", pa.table({"a": [number]}), inline=False)
        lake.create_table("copy", {"a": "bigint"})
        (first, *_) = (file.path for file in lake.table("t").list_files())

        def meanwhile(*task: Any, **how: Any) -> Any:
            other.table("copy").add_data_files([first], allow_duplicates=True)
            return real(*task, **how)

        monkeypatch.setattr(merge, "merge_files", meanwhile)
        assert lake.merge_adjacent_files("t").failed_steps == ()
        assert lake.check(level="rows").errors == ()
    with attached(sqlite_address) as duck:
        assert len(duck.rows("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")) == 2
        assert duck.rows("SELECT a FROM copy") == [(0,)]


def test_files_that_are_in_two_tables_stay_when_one_is_merged(sqlite_address: LakeAddress) -> None:
    """Adding the files of a table to another one copies it without a byte."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", *(f"INSERT INTO t VALUES ({number})" for number in range(3)), "CREATE TABLE copy (a INT)")
        files = [str(path) for (path,) in duck.rows("SELECT data_file FROM ducklake_list_files('lake', 't')")]
        duck.run(*(f"CALL ducklake_add_data_files('lake', 'copy', '{file}')" for file in files[1:]))
    with DuckLake.connect(sqlite_address.url) as lake:
        assert lake.merge_adjacent_files("t").failed_steps == ()
        assert lake.check(level="rows").errors == ()
        with attached(sqlite_address) as duck:
            assert duck.rows("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)") == [(files[0],)]
            assert duck.rows("SELECT a FROM t ORDER BY a") == [(0,), (1,), (2,)]
            assert duck.rows("SELECT a FROM copy ORDER BY a") == [(1,), (2,)]
        lake.drop_table("copy")
        lake.expire_snapshots(older_than=NOW, min_age=NOW)
        assert [one.path for one in lake.cleanup_old_files(cleanup_all=True, min_age=NOW).files] == files[1:]
