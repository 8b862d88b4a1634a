"""The orphan sweep deletes what no catalog row names, if it is old enough, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import StorageError, UsageError
from ducklake_core.format.files.paths import new_delete_file_name, new_file_name
from ducklake_core.maintenance.orphans import delete_orphaned_files
from ducklake_core.staging import publish
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.uploads import StoredFile
from tests.behaviour.maintenance.lakes import FILES_ONLY, files_on_disk
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached

NOW = timedelta(0)


def lived_in(address: LakeAddress) -> None:
    """A lake with live, ended, merged and deleted files, some of them scheduled."""
    with attached(address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER)",
            *["INSERT INTO t SELECT range FROM range(50)"] * 3,
            "DELETE FROM t WHERE a < 5",
            'CREATE TABLE "it\'s, a" (p INTEGER, a INTEGER)',
            'ALTER TABLE "it\'s, a" SET PARTITIONED BY (p)',
            'INSERT INTO "it\'s, a" SELECT range % 3, range FROM range(30)',
            "CREATE TABLE dropped (a INTEGER)",
            "INSERT INTO dropped SELECT range FROM range(50)",
            "DROP TABLE dropped",
            "INSERT INTO t SELECT range FROM range(50)",
            "CALL ducklake_merge_adjacent_files('lake')",
        )


def left_behind(folder: Path, name: str, *, days: float = 3) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(b"half a file")
    moment = file.stat().st_mtime - days * 86_400
    os.utime(file, (moment, moment))
    return file


def test_only_unreferenced_files_are_deleted(lake_address: LakeAddress) -> None:
    lived_in(lake_address)
    living = files_on_disk(lake_address)
    data = Path(lake_address.data_path)
    doomed = {
        left_behind(data / "main" / "t", new_file_name("0198c1f20000000000c0ffee")),
        left_behind(data / "main" / "t", new_delete_file_name("0198c1f20000000000c0ffee")),
        left_behind(data / "main" / "never" / "day=1", new_file_name("0198c1f20000000000c0ffee")),
        left_behind(data / "main" / "t", "ducklake-0198c1f2-0000-7000-8000-000000000000-delete.puffin"),
    }
    young = left_behind(data / "main" / "t", new_file_name("0198c1f20000000000c0ffee"), days=1)
    foreign, text = (left_behind(data / "main" / "t", name) for name in ("part-0.parquet", "notes.txt"))
    lake = DuckLake.connect(lake_address.url)
    plan = lake.delete_orphaned_files(dry_run=True)
    assert {Path(file.path) for file in plan.files} == doomed
    assert (plan.too_young, plan.bytes, plan.kept) == (1, 4 * 11, ())
    assert all(file.exists() for file in doomed)
    assert "would delete 4 orphaned files (44 B), 0 kept, 0 failed, 1 too young" in str(plan)
    done = lake.delete_orphaned_files()
    assert {Path(file.path) for file in done.files} == doomed
    assert files_on_disk(lake_address) == living | {str(file.relative_to(data)) for file in (young, foreign)}
    assert {Path(file.path).name for file in lake.delete_orphaned_files(every_parquet=True).files} == {"part-0.parquet"}
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 185
        assert duck.value('SELECT count(*) FROM "it\'s, a"') == 30
        # DuckDB finds no further orphan, apart from the young one.
        duck.run("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    assert files_on_disk(lake_address) == living
    assert text.exists()


def test_another_spelling_of_the_data_path_orphans_nothing(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    """DuckDB compares whole paths, and deletes live files here."""
    lived_in(sqlite_address)
    alias = tmp_path / "alias"
    alias.symlink_to(sqlite_address.data_path)
    for spelling in (f"{alias}/", f"{sqlite_address.data_path.rstrip('/')}//"):
        lake = DuckLake.connect(sqlite_address.url, data_path=spelling, override_data_path=True)
        assert lake.delete_orphaned_files(older_than=NOW, min_age=NOW).files == ()


def test_floor_and_option(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    assert lake.delete_orphaned_files().files == ()
    with pytest.raises(UsageError, match="min_age"):
        lake.delete_orphaned_files(older_than=timedelta(minutes=5))
    left_behind(Path(sqlite_address.data_path), new_file_name("0198c1f20000000000c0ffee"), days=8)
    lake.set_option("delete_older_than", "10 days")
    assert lake.delete_orphaned_files(dry_run=True).too_young == 1
    assert len(lake.delete_orphaned_files(older_than=timedelta(days=7)).files) == 1


@dataclass(frozen=True)
class _Meanwhile(Storage):
    """A store whose listing takes so long that another writer commits before it ends."""

    commit: Callable[[], object] = lambda: None
    knows_times: bool = True

    def list(self, prefix: str) -> Iterator[StoredFile]:
        self.commit()
        for file in super().list(prefix):
            yield file if self.knows_times else StoredFile(path=file.path, size=file.size, modified=None)
        self.commit()


def test_files_that_are_committed_meanwhile_stay(lake_address: LakeAddress) -> None:
    lake = lake_of_files(lake_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"a": [1]}))
    storage = _Meanwhile(commit=lambda: lake.write("t", pa.table({"a": [1]})))
    result = delete_orphaned_files(lake.database, lake.info, storage, older_than=NOW, min_age=NOW)
    assert (result.files, result.failed) == ((), ())
    assert lake.table("t").scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("is_swept", [False, True])
def test_a_long_write_whose_files_were_swept_commits_nothing(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, is_swept: bool
) -> None:
    monkeypatch.setattr(publish, "LONG_SECONDS", 0.0)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"n": range(100)}), inline=False)
    before = lake.snapshot().id

    def write() -> None:
        with lake.transaction() as tx:
            tx.append("t", pa.table({"n": range(50)}), inline=False)
            tx.delete("t", "n < 20")
            if is_swept:
                other = DuckLake.connect(sqlite_address.url)
                assert other.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files
                other.close()

    if is_swept:
        with pytest.raises(StorageError, match="disappeared before the commit"):
            write()
    else:
        write()
    assert lake.snapshot().id == before + (not is_swept)
    assert lake.table("t").scan().count() == (100 if is_swept else 110)
    assert lake.check(level="rows").findings == ()
    lake.close()


def test_a_file_of_unknown_age_stays(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    file = left_behind(Path(sqlite_address.data_path), new_file_name("0198c1f20000000000c0ffee"))
    result = delete_orphaned_files(lake.database, lake.info, _Meanwhile(knows_times=False), older_than=NOW, min_age=NOW)
    assert [left.path for left in result.kept] == [str(file)]
    assert file.exists()
