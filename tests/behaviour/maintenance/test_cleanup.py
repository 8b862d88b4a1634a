"""Cleanup deletes exactly what is scheduled, old enough and unnamed; whatever goes wrong, nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_core.maintenance.cleanup import CleanupResult, cleanup_old_files
from ducklake_core.storage.filesystems import Deletion, Storage
from tests.behaviour.maintenance.lakes import FILES_ONLY, files_on_disk, opened
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql

NOW = timedelta(0)


@dataclass(frozen=True)
class Stubborn(Storage):
    """A store that rejects deletions of some files."""

    rejected: str = "nothing"

    def delete(self, paths: Any) -> Deletion:
        paths = list(paths)
        done = super().delete([path for path in paths if self.rejected not in path])
        return Deletion(deleted=done.deleted, missing=done.missing, failed=tuple((p, "denied") for p in paths if self.rejected in p))


def scheduled_lake(address: LakeAddress) -> list[str]:
    """Three dropped tables whose files are scheduled, and a table that lives; gives the scheduled paths."""
    with attached(address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE alive (a INTEGER)", "INSERT INTO alive SELECT range FROM range(5)")
        for name in ("a", "b", "c"):
            duck.run(f"CREATE TABLE {name} (x INTEGER)", f"INSERT INTO {name} SELECT range FROM range(5)", f"DROP TABLE {name}")
        duck.run("INSERT INTO alive SELECT range FROM range(5)", "CALL ducklake_expire_snapshots('lake', older_than => now())")
    return schedule(address)


def schedule(address: LakeAddress) -> list[str]:
    database, _ = opened(address)
    with database.read() as connection:
        found = sorted(connection.execute(select(database.tables["files_scheduled_for_deletion"].c.path)).scalars())
    database.close()
    return found


def change_schedule(address: LakeAddress, path: str, **values: object) -> None:
    database, _ = opened(address)
    table = database.tables["files_scheduled_for_deletion"]
    with database.write() as connection:
        connection.execute(update(table).where(table.c.path == path).values(**values))
    database.close()


def add_to_schedule(address: LakeAddress, path: str, *, is_relative: bool) -> None:
    database, _ = opened(address)
    row = {"data_file_id": 999, "path": path, "path_is_relative": is_relative, "schedule_start": datetime(2024, 1, 1, tzinfo=UTC)}
    with database.write() as connection:
        connection.execute(insert(database.tables["files_scheduled_for_deletion"]), [row])
    database.close()


def clean(address: LakeAddress, storage: Storage | None = None, **arguments: Any) -> CleanupResult:
    database, info = opened(address)
    try:
        return cleanup_old_files(database, info, storage or Storage(), **arguments)
    finally:
        database.close()


@on_postgresql
def test_default_age_is_two_days(lake_address: LakeAddress) -> None:
    paths = scheduled_lake(lake_address)
    assert len(paths) == 3
    untouched = clean(lake_address)
    assert (untouched.files, untouched.too_young) == ((), 3)
    change_schedule(lake_address, paths[0], schedule_start=datetime.now(UTC) - timedelta(days=3))
    change_schedule(lake_address, paths[1], schedule_start=datetime.now(UTC) - timedelta(hours=30))
    assert [file.path for file in clean(lake_address, dry_run=True).files] == [lake_address.data_path + paths[0]]
    with attached(lake_address) as duck:
        duck.run("CALL lake.set_option('delete_older_than', '1 day')")
    assert len(clean(lake_address, dry_run=True).files) == 2
    assert schedule(lake_address) == paths
    assert len(clean(lake_address).files) == 2
    assert schedule(lake_address) == paths[2:]
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM alive") == 10


def test_floor(sqlite_address: LakeAddress) -> None:
    scheduled_lake(sqlite_address)
    with pytest.raises(UsageError, match="min_age"):
        clean(sqlite_address, older_than=timedelta(minutes=5))
    assert len(clean(sqlite_address, older_than=NOW, min_age=NOW).files) == 3


@on_postgresql
def test_missing_files_are_done_with(lake_address: LakeAddress) -> None:
    paths = scheduled_lake(lake_address)
    Path(lake_address.data_path, paths[1]).unlink()
    result = clean(lake_address, older_than=NOW, min_age=NOW)
    assert result.missing == (lake_address.data_path + paths[1],)
    assert len(result.files) == 3
    assert schedule(lake_address) == []


def test_a_file_that_cannot_be_deleted_stays_scheduled(lake_address: LakeAddress) -> None:
    paths = scheduled_lake(lake_address)
    result = clean(lake_address, Stubborn(rejected="/main/b/"), older_than=NOW, min_age=NOW)
    assert [(file.path, file.reason) for file in result.failed] == [(lake_address.data_path + paths[1], "denied")]
    assert "FAILED" in str(result)
    assert schedule(lake_address) == [paths[1]]
    assert len(clean(lake_address, older_than=NOW, min_age=NOW).files) == 1
    assert schedule(lake_address) == []


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_file_that_is_still_named_is_kept(lake_address: LakeAddress, is_relative: bool) -> None:
    paths = scheduled_lake(lake_address)
    (alive, *_) = sorted(name for name in files_on_disk(lake_address) if "/alive/" in f"/{name}")
    add_to_schedule(lake_address, alive if is_relative else lake_address.data_path + alive, is_relative=is_relative)
    result = clean(lake_address, older_than=NOW, min_age=NOW)
    assert len(result.files) == len(paths)
    assert [file.path for file in result.kept] == [lake_address.data_path + alive]
    assert "still contains it" in result.kept[0].reason
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM alive") == 10


def test_outside_of_the_data_path_only_files_of_the_catalog(lake_address: LakeAddress, tmp_path: Path) -> None:
    scheduled_lake(lake_address)
    sneaky, external = tmp_path / "sneaky.parquet", tmp_path / "ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"
    for file in (sneaky, external):
        file.write_bytes(b"x")
    add_to_schedule(lake_address, "../sneaky.parquet", is_relative=True)
    add_to_schedule(lake_address, str(external), is_relative=False)
    result = clean(lake_address, older_than=NOW, min_age=NOW)
    assert sneaky.exists()
    assert not external.exists()
    assert [file.reason for file in result.kept] == ["its relative path leaves the data path"]


def test_outside_of_the_data_path_only_names_of_a_lake(lake_address: LakeAddress, tmp_path: Path) -> None:
    """Otherwise a writer of the catalog could make the cleanup of another client delete any file."""
    scheduled_lake(lake_address)
    outside = [tmp_path / name for name in ("id_rsa", "external.parquet", "ducklake-1.parquet")]
    for file in outside:
        file.write_bytes(b"x")
        add_to_schedule(lake_address, str(file), is_relative=False)
    plan = clean(lake_address, older_than=NOW, min_age=NOW, dry_run=True)
    result = clean(lake_address, older_than=NOW, min_age=NOW)
    for done in (plan, result):
        assert sorted(file.path for file in done.kept) == sorted(map(str, outside))
        assert all("add its directory to allowed_paths" in file.reason for file in done.kept)
        assert not {file.path for file in done.files} & set(map(str, outside))
    assert all(file.exists() for file in outside)
    allowed = DuckLake.connect(lake_address.url, allowed_paths=str(outside[1]))
    assert [file.path for file in allowed.cleanup_old_files(older_than=NOW, min_age=NOW).files] == [str(outside[1])]
    allowed.close()
    assert [file.exists() for file in outside] == [True, False, True]


def test_ages_as_options_take_them(lake_address: LakeAddress) -> None:
    paths = scheduled_lake(lake_address)
    lake = DuckLake.connect(lake_address.url)
    for long in ("7 days", timedelta.max, "2000000 years", datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))):
        assert lake.cleanup_old_files(older_than=long, min_age="1 hour").too_young == len(paths)
        assert not lake.delete_orphaned_files(older_than=long, min_age="1 hour").files
        assert not lake.expire_snapshots(older_than=long, min_age="1 hour").snapshots
    lake.set_option("delete_older_than", "2000000 years")
    assert lake.cleanup_old_files().too_young == len(paths)
    operations: list[Callable[..., Any]] = [lake.cleanup_old_files, lake.delete_orphaned_files, lake.expire_snapshots]
    for operation in operations:
        for wrong in (7, "soon", "9" * 5000 + " days", "9999999999 years", "", None if operation == lake.expire_snapshots else True):
            with pytest.raises(UsageError, match="older_than"):
                operation(older_than=wrong)
        with pytest.raises(UsageError, match="min_age must not be negative"):
            operation(older_than="7 days", min_age=timedelta(-1))
        with pytest.raises(UsageError, match="younger than"):
            operation(older_than="7 days", min_age=timedelta.max)
        with pytest.raises(UsageError, match="no zone"):
            operation(older_than=datetime(2020, 1, 1))  # noqa: DTZ001
    # A checkpoint checks ages before its first operation, whether or not an operation uses them.
    before = lake.snapshot().id
    with pytest.raises(UsageError, match="min_age must not be negative"):
        lake.checkpoint(min_age=timedelta(-1))
    assert lake.snapshot().id == before
    assert len(lake.cleanup_old_files(older_than="0 seconds", min_age="0 seconds").files) == len(paths)
    lake.close()


def test_two_rows_for_one_file(lake_address: LakeAddress) -> None:
    paths = scheduled_lake(lake_address)
    add_to_schedule(lake_address, paths[0], is_relative=True)
    assert len(clean(lake_address, older_than=NOW, min_age=NOW).files) == 3
    assert schedule(lake_address) == []
    file = Path(lake_address.data_path, "main", "alive", "ducklake-0198c1f2-0000-7000-8000-000000000001.parquet")
    file.touch()
    add_to_schedule(lake_address, f"main/alive/{file.name}", is_relative=True)
    add_to_schedule(lake_address, str(file), is_relative=False)
    assert [one.path for one in clean(lake_address, older_than=NOW, min_age=NOW).files] == [str(file)]
    assert schedule(lake_address) == [], "both rows name the deleted file"


def test_a_row_without_a_time_is_never_old_enough(lake_address: LakeAddress) -> None:
    """As in DuckDB, which compares it to a time."""
    paths = scheduled_lake(lake_address)
    change_schedule(lake_address, paths[0], schedule_start=None)
    done = clean(lake_address, older_than=NOW, min_age=NOW)
    assert (len(done.files), done.too_young) == (len(paths) - 1, 1)


def test_a_live_file_is_kept_whatever_its_path_is_made_of(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    """Two slashes at the beginning, a link to the directory of files, and a link to the file's own directory."""
    scheduled_lake(sqlite_address)
    (alive, *rest) = sorted(name for name in files_on_disk(sqlite_address) if "/alive/" in f"/{name}")
    file = Path(sqlite_address.data_path, alive)
    (tmp_path / "link").symlink_to(sqlite_address.data_path)
    (tmp_path / "near").symlink_to(file.parent)
    for path in (f"/{file}", f"{tmp_path}/link/{alive}", f"{tmp_path}/near/{file.name}", f"file://localhost{file}"):
        add_to_schedule(sqlite_address, path, is_relative=False)
        plan = clean(sqlite_address, older_than=NOW, min_age=NOW, dry_run=True)
        assert [(one.path, "still contains it" in one.reason) for one in plan.kept] == [(path, True)]
        assert [one.path for one in clean(sqlite_address, older_than=NOW, min_age=NOW).kept] == [path]
        assert file.exists()
        forgotten, _ = opened(sqlite_address)
        with forgotten.write() as connection:
            connection.execute(delete(forgotten.tables["files_scheduled_for_deletion"]))
        forgotten.close()
    assert all(Path(sqlite_address.data_path, name).exists() for name in rest)


def test_an_invalid_path_fails_alone(sqlite_address: LakeAddress) -> None:
    paths = scheduled_lake(sqlite_address)
    add_to_schedule(sqlite_address, "main/a\0b/ducklake-0198c1f2-0000-7000-8000-000000000001.parquet", is_relative=True)
    add_to_schedule(sqlite_address, "main/alive", is_relative=True)
    result = clean(sqlite_address, older_than=NOW, min_age=NOW)
    assert (len(result.files), len(result.failed)) == (len(paths), 2)
    assert Path(sqlite_address.data_path, "main", "alive").is_dir()
