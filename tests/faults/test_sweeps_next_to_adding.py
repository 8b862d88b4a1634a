"""Files that are added while a sweep or a cleanup deletes files are either kept, or are not added."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from ducklake_core import DuckLake
from ducklake_core import transaction as adding
from ducklake_core.errors import DuckLakeError, NotFoundError
from ducklake_core.storage.filesystems import Storage
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql

NOW = timedelta(0)
ALL: dict[str, Any] = {"cleanup_all": True, "min_age": NOW}
LONG_AGO = datetime.now(UTC) - timedelta(days=90)
DELETIONS: dict[str, Callable[[DuckLake], Any]] = {
    "orphans": lambda lake: lake.delete_orphaned_files(**ALL),
    "cleanup": lambda lake: lake.cleanup_old_files(**ALL),
}


def prepared(address: LakeAddress, deletion: str) -> tuple[DuckLake, Path]:
    """A lake, and a file that the deletion would take."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", pa.table({"n": [1]}), inline=False)
    if deletion == "orphans":
        path = Path(address.data_path) / "main" / "t" / "ducklake-0198c1f2-0000-7000-8000-00c0ffee0001.parquet"
        pq.write_table(pa.table({"n": [7]}), path)
        os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
        return lake, path
    lake.write("old", pa.table({"n": [7]}), inline=False)
    (file,) = lake.table("old").list_files()
    lake.drop_table("old")
    lake.expire_snapshots(older_than=NOW, min_age=NOW)
    schedule = lake.database.tables["files_scheduled_for_deletion"]
    with lake.database.write() as connection:
        connection.execute(update(schedule).values(schedule_start=LONG_AGO))
    return lake, Path(file.path)


def numbers(lake: DuckLake) -> list[int]:
    return sorted(lake.table("t").scan().to_arrow()["n"].to_pylist())


@on_postgresql
@pytest.mark.parametrize("deletion", DELETIONS)
def test_files_added_right_before_their_deletion_are_kept_or_not_added(
    lake_address: LakeAddress, deletion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog was read for the last time when another session begins to add the file that is about to be deleted."""
    lake, path = prepared(lake_address, deletion)
    failures: list[BaseException] = []
    real, threads = Storage.delete, []

    def add() -> None:
        try:
            with DuckLake.connect(lake_address.url) as other:
                other.add_data_files("t", [str(path)], allow_duplicates=True)
        except DuckLakeError as error:
            failures.append(error)

    def delete(self: Storage, paths: Any) -> Any:
        doomed = list(paths)
        if str(path) in doomed and not threads:
            threads.append(threading.Thread(target=add))
            threads[0].start()
            # It has read the footer by then, and waits to commit.
            time.sleep(0.7)
        return real(self, doomed)

    monkeypatch.setattr(Storage, "delete", delete)
    DELETIONS[deletion](lake)
    for thread in threads:
        thread.join()
    assert threads
    assert not path.exists()
    assert [type(error) for error in failures] == [NotFoundError]
    assert "deleted while it was being added" in str(failures[0])
    assert numbers(lake) == [1]
    assert lake.check(level="rows").is_sound
    lake.close()


@on_postgresql
@pytest.mark.parametrize("deletion", DELETIONS)
def test_files_deleted_after_their_footer_was_read_are_not_added(
    lake_address: LakeAddress, deletion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, path = prepared(lake_address, deletion)
    real = adding.inspect_files

    def inspect(*arguments: Any) -> Any:
        found = real(*arguments)
        DELETIONS[deletion](lake)
        return found

    monkeypatch.setattr(adding, "inspect_files", inspect)
    with DuckLake.connect(lake_address.url) as other, pytest.raises(NotFoundError, match="deleted while it was being added"):
        other.add_data_files("t", [str(path)], allow_duplicates=True)
    assert not path.exists()
    assert numbers(lake) == [1]
    lake.close()


@on_postgresql
@pytest.mark.parametrize("deletion", DELETIONS)
def test_files_added_while_other_files_are_deleted_are_added(
    lake_address: LakeAddress, deletion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = prepared(lake_address, deletion)
    foreign = Path(lake_address.data_path) / "foreign.parquet"
    pq.write_table(pa.table({"n": [9]}), foreign)
    real = adding.inspect_files

    def inspect(*arguments: Any) -> Any:
        found = real(*arguments)
        DELETIONS[deletion](lake)
        return found

    monkeypatch.setattr(adding, "inspect_files", inspect)
    with DuckLake.connect(lake_address.url) as other:
        other.add_data_files("t", [str(foreign)])
    assert numbers(lake) == [1, 9]
    lake.close()


@on_postgresql
@pytest.mark.parametrize("deletion", DELETIONS)
def test_files_committed_before_the_last_look_are_kept(lake_address: LakeAddress, deletion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, path = prepared(lake_address, deletion)
    real = type(lake.database).without_commits
    added: list[bool] = []

    def late(self: Any) -> Any:
        if not added:
            added.append(True)
            with DuckLake.connect(lake_address.url) as other:
                other.add_data_files("t", [str(path)], allow_duplicates=True)
        return real(self)

    monkeypatch.setattr(type(lake.database), "without_commits", late)
    done = DELETIONS[deletion](lake)
    assert [Path(file.path) for file in done.kept] == [path]
    assert path.exists()
    assert numbers(lake) == [1, 7]
    lake.close()


def test_files_that_duckdb_adds_meanwhile_are_reported(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB reads the footer before the deletion and commits after it: the result names the file."""
    lake, path = prepared(sqlite_address, "orphans")
    real = Storage.delete
    kept = path.read_bytes()

    def delete(self: Storage, paths: Any) -> Any:
        return real(self, list(paths))

    monkeypatch.setattr(Storage, "delete", delete)
    forget = type(lake.database).without_commits

    class Late:
        """Adds the file with DuckDB after the transaction of the deletion, as if its footer had been read before."""

        def __init__(self, database: Any) -> None:
            self._own = forget(database)

        def __enter__(self) -> Any:
            return self._own.__enter__()

        def __exit__(self, *how: object) -> Any:
            found = self._own.__exit__(*how)
            lake.database.close()
            path.write_bytes(kept)
            with attached(sqlite_address) as oracle:
                oracle.run(f"CALL ducklake_add_data_files('lake', 't', '{path}')")
            path.unlink()
            return found

    monkeypatch.setattr(type(lake.database), "without_commits", property(lambda database: lambda: Late(database)))
    done = lake.delete_orphaned_files(**ALL)
    assert [Path(file.path) for file in done.failed] == [path]
    assert "the catalog contains a missing file" in done.failed[0].reason
    lake.close()
