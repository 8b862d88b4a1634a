"""Budgets of the operations that delete files, and the settings that a checkpoint passes to its operations."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ducklake_core.errors import UsageError
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import cleanup, orphans
from ducklake_core.maintenance.request import BudgetMeter
from ducklake_core.storage.unfinished import UnfinishedUpload
from tests.support.oracle import LakeAddress, attached

ANY_AGE: dict[str, Any] = {"older_than": timedelta(0), "min_age": timedelta(0)}


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    """Six scheduled files of DuckDB's merge, and six orphans."""
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (id INTEGER)", *(f"INSERT INTO t SELECT range FROM range({n * 20}, {n * 20 + 20})" for n in range(6)))
        duck.run("CALL ducklake_merge_adjacent_files('lake')")
    folder = Path(sqlite_address.data_path) / "main" / "t"
    for number in range(6):
        (folder / f"ducklake-0195a5e4-0000-7000-8000-00000000000{number}.parquet").write_bytes(b"orphan")
    return DuckLake.connect(sqlite_address.url)


def test_files_to_delete_are_bounded(lake: DuckLake) -> None:
    for operation in (lake.cleanup_old_files, lake.delete_orphaned_files):
        for left in (2, 0):
            plan = operation(**ANY_AGE, max_files=4, dry_run=True)
            done = operation(**ANY_AGE, max_files=4)
            for result in (plan, done):
                assert len(result.files) == (4 if left else 2)
                assert result.left == ((("beyond max_files", left),) if left else ())
                assert [(step.reason, step.files) for step in result.skipped_steps] == [*result.left]
                assert result.lines()[-1].endswith("2 beyond max_files" if left else "0 too young")
            assert [step.target for step in done.steps] == [step.target for step in plan.steps]
        with pytest.raises(UsageError, match="max_files must be at least 1"):
            operation(**ANY_AGE, max_files=0)
    assert lake.table("t").scan().count() == 120
    assert lake.check(level="footers").findings == ()
    lake.close()


def test_a_deadline_ends_between_batches(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_BATCH", 2)
    monkeypatch.setattr(orphans, "_BATCH", 2)
    for operation in (lake.cleanup_old_files, lake.delete_orphaned_files):
        with monkeypatch.context() as patch:
            checks = count()
            patch.setattr(BudgetMeter, "is_out_of_time", property(lambda _, checks=checks: next(checks) >= 2))
            done = operation(**ANY_AGE, max_seconds=3)
        assert len(done.files) == 4
        assert done.left == (("beyond max_seconds", 2),)
        assert len(operation(**ANY_AGE).files) == 2
    lake.close()


def test_a_deadline_leaves_unfinished_uploads(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = [UnfinishedUpload(path=f"file:///{n}", upload_id=str(n), started=datetime(2026, 1, 1, tzinfo=UTC)) for n in range(3)]
    aborted: list[UnfinishedUpload] = []
    monkeypatch.setattr(orphans, "_uploads", lambda *_, **__: (tuple(uploads), None))
    monkeypatch.setattr(orphans, "abort_upload", lambda _, upload: aborted.append(upload))
    checks = count()
    monkeypatch.setattr(BudgetMeter, "is_out_of_time", property(lambda _: next(checks) >= 2))
    done = lake.delete_orphaned_files(**ANY_AGE, max_seconds=3)
    assert (len(done.files), list(done.uploads), aborted) == (6, uploads[:1], uploads[:1])
    assert done.left == (("beyond max_seconds", 2),)
    lake.close()


def test_a_checkpoint_hands_on(lake: DuckLake) -> None:
    lake.set_option("delete_older_than", "0 seconds")
    last = lake.snapshot().id
    with pytest.raises(UsageError, match="keep_last"):
        lake.checkpoint(keep_last=0)
    with pytest.raises(UsageError, match="max_concurrency"):
        lake.checkpoint(max_concurrency=0)
    assert lake.checkpoint(dry_run=True).verbs[1].skipped == "option expire_older_than is not set"
    planned = lake.checkpoint(keep_last=1, min_age="0 seconds", dry_run=True).verbs[1].result
    assert planned is not None
    assert len(planned.steps) >= last
    done = lake.checkpoint(keep_last=2, min_age="0 seconds", max_concurrency=2, partial_progress=True)
    assert done.failed_steps == ()
    assert [one.id for one in lake.snapshots()] == [last - 1, last]
    assert sum(step.verb == "delete_orphaned_files" and step.outcome == "done" for step in done.steps) == 6
    assert not [name for name in os.listdir(Path(lake.info.data_path) / "main" / "t") if "0195a5e4" in name]
    lake.close()
