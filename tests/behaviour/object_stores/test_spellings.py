"""A file has many names: s3, s3a and s3n, file:// and none, doubled slashes. None of them makes it another file, or lets it be deleted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import insert, update

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError, CommitConflictError
from tests.behaviour.maintenance.lakes import files_on_disk, opened
from tests.support.azure import ACCOUNT
from tests.support.lakes import lake_of_files
from tests.support.object_stores import ObjectStore
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

_NOW = timedelta(0)
DATA = pa.table({"a": [1, 2, 3]})
OLD = datetime(2024, 1, 1, tzinfo=UTC)


def schedule(address: LakeAddress, path: str, *, when: datetime = OLD) -> None:
    database, _ = opened(address)
    row = {"data_file_id": 999, "path": path, "path_is_relative": False, "schedule_start": when}
    with database.write() as connection:
        connection.execute(insert(database.tables["files_scheduled_for_deletion"]), [row])
    database.close()


def respell(address: LakeAddress, path: str) -> None:
    """The one data file of the lake gets another path in the catalog."""
    database, _ = opened(address)
    with database.write() as connection:
        connection.execute(update(database.tables["data_file"]).values(path=path, path_is_relative=False))
    database.close()


def the_file(address: LakeAddress) -> str:
    (path,) = files_on_disk(address)
    return address.data_path + path


def local_spellings(path: str) -> list[str]:
    parent, _, name = path.rpartition("/")
    return [f"file://{path}", f"file:{path}", f"{parent}//{name}", f"{parent}/../t/{name}", os.path.relpath(path), f"local://{path}"]


@pytest.mark.parametrize("number", spread(range(6), 2))
def test_cleanup_keeps_a_live_file(sqlite_address: LakeAddress, number: int) -> None:
    lake = lake_of_files(sqlite_address)
    lake.write("t", DATA)
    path = the_file(sqlite_address)
    other = local_spellings(path)[number]
    schedule(sqlite_address, other)
    kept = lake.cleanup_old_files(older_than=_NOW, min_age=_NOW)
    assert [file.path for file in kept.kept] == [other]
    respell(sqlite_address, other)
    schedule(sqlite_address, path)
    kept = lake.cleanup_old_files(older_than=_NOW, min_age=_NOW)
    assert {file.path for file in kept.kept} == {path, other}
    assert not lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW, every_parquet=True).files
    assert lake.table("t").scan().to_arrow().sort_by("a").equals(DATA)
    lake.close()


def test_cleanup_waits_for_the_later_end_of_a_file_that_was_there_twice(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    lake.write("t", DATA)
    path = the_file(sqlite_address)
    lake.drop_table("t")
    lake.expire_snapshots(versions=[snapshot.id for snapshot in lake.snapshots()][:-1], min_age=_NOW)
    schedule(sqlite_address, f"file://{path}")
    assert lake.cleanup_old_files(older_than=timedelta(hours=1), min_age=_NOW).too_young == 2
    assert the_file(sqlite_address) == path
    assert lake.cleanup_old_files(older_than=_NOW, min_age=_NOW).files
    assert not files_on_disk(sqlite_address)
    lake.close()


def test_in_a_bucket(sqlite_address: LakeAddress, store: ObjectStore) -> None:
    address = store.lake(sqlite_address, "spellings")
    lake = store.create(address)
    lake.create_table("t", DATA.schema)
    lake.create_table("u", DATA.schema)
    names = [f"{scheme}://lake/elsewhere/" for scheme in store.schemes]
    if store.name == "azure":
        names += [f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/elsewhere/", f"az://{ACCOUNT}.blob.core.windows.net/lake/elsewhere/"]
    with lake.storage.open_output(names[-1] + "x.parquet") as sink:
        pq.write_table(DATA, sink)
    allowed = DuckLake.connect(address.url, storage_options=store.options, allowed_paths=names)
    assert allowed.add_data_files("t", [names[-1] + "x.parquet", names[0] + "x.parquet", names[1]]).files_added == 1
    for again in (*names, *(f"{name}x.parquet" for name in names)):
        with pytest.raises(AlreadyExistsError, match=r"a data file of table main\.t"):
            allowed.add_data_files("u", again)
    if store.name == "azure":
        names.append(f"https://{ACCOUNT}.blob.core.windows.net/lake/elsewhere/")
    for spelling in names:
        schedule(address, f"{spelling}x.parquet")
    assert len(allowed.cleanup_old_files(older_than=_NOW, min_age=_NOW).kept) == len(names)
    assert allowed.table("t").scan().to_arrow().equals(DATA)
    allowed.close()
    lake.close()
    # The same lake under another spelling of its data path.
    for other in (address.data_path.replace(store.schemes[0], store.schemes[1], 1), names[-2].replace("elsewhere", "spellings")):
        lake = DuckLake.connect(address.url, data_path=other, override_data_path=True, storage_options=store.options, allowed_paths=names)
        lake.set_option("data_inlining_row_limit", 0)
        lake.write("u", DATA, mode="overwrite")
        assert not lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW, every_parquet=True).files
        assert len(lake.cleanup_old_files(older_than=_NOW, min_age=_NOW).kept) == len(names)
        assert lake.table("u").scan().to_arrow().equals(DATA)
        assert all(file.path.startswith(other) for file in lake.storage.list(other))
        lake.close()


@contextmanager
def _meanwhile(lake: DuckLake, path: str, table: str, other_path: str) -> Iterator[None]:
    """Another writer adds a file after this transaction began and before it commits."""
    with lake.transaction() as tx:
        tx.add_data_files("t", path)
        other = DuckLake.connect(lake.database.address.url.render_as_string(hide_password=False))
        thread = threading.Thread(target=lambda: other.add_data_files(table, other_path))
        thread.start()
        thread.join()
        other.close()
        yield


def test_two_add_one_file_to_two_tables(sqlite_address: LakeAddress) -> None:
    """In the directory of one of them, so that the catalog has it once relative and once whole."""
    lake = lake_of_files(sqlite_address)
    for name in ("t", "u"):
        lake.create_table(name, DATA.schema)
    folder = Path(sqlite_address.data_path) / "main" / "t"
    folder.mkdir(parents=True)
    pq.write_table(DATA, folder / "x.parquet")
    with (
        pytest.raises(CommitConflictError, match=r"x\.parquet"),
        _meanwhile(lake, f"{folder}/x.parquet", "u", f"file://{folder}/x.parquet"),
    ):
        pass
    assert lake.table("t").scan().to_arrow().num_rows == 0
    pq.write_table(DATA, folder / "y.parquet")
    (folder / "p=1").mkdir()
    pq.write_table(DATA, folder / "p=1" / "y.parquet")
    with _meanwhile(lake, f"{folder}/y.parquet", "u", f"{folder}/p=1/y.parquet"):
        pass
    assert [lake.table(name).scan().to_arrow().num_rows for name in ("t", "u")] == [3, 6]
    lake.close()
