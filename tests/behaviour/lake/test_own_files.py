"""After a known failure no written file remains, whatever the transaction does next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from sqlalchemy import select

from ducklake_core import DuckLake
from ducklake_core.commit import committer
from ducklake_core.engines.arrow import positions
from ducklake_core.errors import CatalogUnavailableError, StorageError, UsageError
from ducklake_core.staging import execute
from ducklake_core.staging.publish import CommitCoordinator
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress

Attempt = Callable[[Any, int], Any]


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"x": list(range(10))}))
    return lake


def orphans(lake: DuckLake) -> set[str]:
    """Names of files that the catalog does not know."""
    tables = lake.database.tables
    with lake.database.read() as connection:
        known = [
            Path(path).name
            for table in ("data_file", "delete_file", "files_scheduled_for_deletion")
            for path in connection.scalars(select(tables[table].c.path))
        ]
    return {path.name for path in Path(lake.info.data_path).rglob("*.parquet")} - set(known)


def values(lake: DuckLake) -> list[int]:
    return sorted(lake.table("t").scan().to_arrow().column("x").to_pylist())


def test_files_of_a_call_whose_error_was_caught(lake: DuckLake) -> None:
    lake.table("t").delete("x = 0")
    with lake.transaction() as tx:
        tx.write("other", pa.table({"x": [1]}))
        with pytest.raises(UsageError, match="more than once"):
            tx.upsert("t", pa.table({"x": [1, 1]}), on=["x"])
        tx.delete("t", "x = 1")
    assert orphans(lake) == set()
    assert values(lake) == list(range(2, 10))
    assert lake.table("other").scan().to_arrow().num_rows == 1


def test_delete_files_of_a_search_that_broke_off(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write("t", pa.table({"x": list(range(10, 20))}))
    hide = positions.write_position_deletes
    calls: list[object] = []

    def second_fails(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise StorageError("the store is full")
        return hide(*given)

    monkeypatch.setattr(positions, "write_position_deletes", second_fails)
    with pytest.raises(StorageError, match="full"):
        lake.table("t").delete("x > 4 AND x < 15")
    assert len(calls) == 2
    assert orphans(lake) == set()


def test_half_a_delete_file(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_core.storage.filesystems import Storage

    class Full:
        def __init__(self, path: str) -> None:
            self._file = open(path, "wb")  # noqa: SIM115

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def close(self) -> None:
            self._file.close()

        def write(self, content: bytes) -> None:
            self._file.write(b"PAR")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Storage, "open_output", lambda _, path: Full(path))
    with pytest.raises(StorageError, match="No space left"):
        lake.table("t").delete("x = 4")
    assert orphans(lake) == set()


def test_delete_files_written_again_for_a_commit_that_then_conflicts(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.table("t").delete("x = 0")
    rewritten: list[str] = []
    rewrite, attempt = CommitCoordinator._rewrite, committer._Run.attempt

    def noted(self: CommitCoordinator, *given: Any) -> Any:
        written = rewrite(self, *given)
        rewritten.append(written.path)
        return written

    def busy(*_: object) -> None:
        raise CatalogUnavailableError("busy", failure="retry")

    def first_attempt_loses(self: Any, number: int) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(committer, "apply_changes", busy)
            with pytest.raises(CatalogUnavailableError) as lost:
                attempt(self, number)
        monkeypatch.setattr(committer._Run, "attempt", attempt)
        lake.table("t").delete("x = 2")
        raise lost.value

    monkeypatch.setattr(CommitCoordinator, "_rewrite", noted)
    with lake.transaction() as tx:
        tx.delete("t", "x = 1")
        lake.write("other", pa.table({"x": [1]}))
        monkeypatch.setattr(committer._Run, "attempt", first_attempt_loses)
    assert len(rewritten) == 1
    assert values(lake) == list(range(3, 10))
    assert orphans(lake) == set()


def test_planning_again_that_breaks_leaves_nothing(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the engine broke")

    def race() -> None:
        with lake.transaction() as tx:
            tx.overwrite("t", pa.table({"x": [1]}), where="x < 3")
            lake.table("t").delete("x = 0")
            monkeypatch.setattr(execute, "position_finder", lambda *_: broken)

    with pytest.raises(RuntimeError, match="engine broke"):
        race()
    assert orphans(lake) == set()
    assert values(lake) == list(range(1, 10))
