"""Files that a failed write leaves behind, and files that a sweep must never delete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.writer_queue import LeaseRequest
from ducklake_core.errors import StorageError
from ducklake_core.format.files import paths
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_writer import FileWriter
from ducklake_core.storage.unfinished import sweep
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

ROWS = pa.table({"k": pa.array(range(100), pa.int64()), "p": pa.array([k % 4 for k in range(100)], pa.int32())})


def made(address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", ROWS.schema, partition_by=["p"])
    lake.write("t", ROWS)
    return lake


def files_of(address: LakeAddress) -> set[Path]:
    return set(Path(address.data_path).rglob("*.parquet"))


def test_files_that_the_catalog_names_are_never_swept(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are called: here a write has the very id of an earlier one, whose files are younger than it."""
    lake = made(lake_address)
    lake.table("t").delete("k < 10")
    live = files_of(lake_address)
    name = next(path.name for path in live if "delete" not in path.name)
    identity = f"{int(time.time() - 3600) * 1000:012x}{name.removesuffix('.parquet')[-12:]}"
    assert sum(paths.is_of_write(str(path), identity) for path in live) == 4

    def fails(*_: Any, **__: Any) -> Any:
        # One of its own files is there already.
        (Path(lake_address.data_path) / "main" / "t" / paths.new_delete_file_name(identity)).touch()
        raise StorageError("the store does not answer")

    monkeypatch.setattr("ducklake_core.staging.execute.paths.write_id", lambda: identity)
    monkeypatch.setattr("ducklake_core.staging.execute.position_finder", lambda *_: fails)
    with pytest.raises(StorageError):
        lake.table("t").delete("k > 90")
    assert files_of(lake_address) == live
    with attached(lake_address) as duck:
        assert duck.rows("SELECT count(*), min(k), max(k) FROM t") == [(90, 10, 99)]


def test_files_older_than_the_write_are_never_swept(tmp_path: Path) -> None:
    write = paths.write_id()
    earlier = f"{int(write[:12], 16) - 60_000:012x}{write[12:]}"
    mine, old = tmp_path / paths.new_file_name(write), tmp_path / paths.new_file_name(write).replace(write[:8], earlier[:8])
    old = tmp_path / f"ducklake-{earlier[:8]}-{earlier[8:12]}-7000-8000-{write[12:]}.parquet"
    for path in (mine, old):
        path.touch()
    sweep(Storage(), f"{tmp_path}/", write)
    assert list(tmp_path.iterdir()) == [old]


def test_nothing_is_swept_while_the_catalog_is_unreachable(tmp_path: Path) -> None:
    write = paths.write_id()
    mine = tmp_path / paths.new_file_name(write)
    mine.touch()

    def away(_: Any) -> Any:
        raise StorageError("away")

    sweep(Storage(), f"{tmp_path}/", write, named=away)
    assert mine.exists()


def run(lake: DuckLake, operation: str, base: int) -> None:
    match operation:
        case "write":
            lake.write("t", ROWS)
        case "update":
            lake.table("t").update({"k": "k + 1"})
        case "restore":
            lake.table("t").restore(base)
        case "merge":
            lake.table("t").merge(ROWS, on=["k"]).when_matched_update().execute()
        case _:
            lake.merge_adjacent_files("t")


@pytest.mark.parametrize("operation", spread(["write", "update", "restore", "merge", "compact"], 2))
@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupted_call_leaves_no_file(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, operation: str, count: int
) -> None:
    """Ctrl-C while a file is finished: at first, or when others are there already."""
    lake = made(sqlite_address)
    lake.write("t", ROWS)
    base = lake.snapshots()[-1].id
    lake.table("t").delete("k % 3 = 0")
    for _ in range(2):
        lake.write("t", ROWS)
    before = files_of(sqlite_address)
    finish, calls = FileWriter._finish, 0

    def interrupted(self: FileWriter) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            raise KeyboardInterrupt
        return finish(self)

    monkeypatch.setattr(FileWriter, "_finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(lake, operation, base)
    assert calls == count
    assert files_of(sqlite_address) == before


def test_a_commit_that_is_interrupted_before_it_is_sent_leaves_no_file(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(lake_address)
    lake.write("t", ROWS)
    before = files_of(lake_address)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("ducklake_core.commit.committer.apply_changes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.write("t", ROWS)
    with pytest.raises(KeyboardInterrupt):
        lake.merge_adjacent_files("t")
    assert files_of(lake_address) == before
    monkeypatch.undo()
    assert lake.write("t", ROWS).rows_added == 100


def test_a_commit_that_is_interrupted_when_it_was_sent_keeps_its_files(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(lake_address)
    commit = Database.commit

    @contextmanager
    def interrupted(self: Database, lease: LeaseRequest) -> Iterator[Any]:
        with commit(self, lease) as statements:
            yield statements
        raise KeyboardInterrupt

    monkeypatch.setattr(Database, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.write("t", ROWS)
    with attached(lake_address) as duck:
        assert duck.rows("SELECT count(*), sum(k) FROM t") == [(200, 9900)]
