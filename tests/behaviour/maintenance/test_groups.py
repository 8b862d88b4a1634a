"""Groups of files: committed one by one or together, on one thread or several, and carried on after an interruption."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core.commit.committer import Committer
from ducklake_core.commit.request import CommitRequest
from ducklake_core.errors import CommitRetriesExhaustedError, UsageError
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import merge, rewrite
from tests.behaviour.maintenance.lakes import NOW, change_feeds, files_on_disk, readings
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow

PARTS = 4


def partitioned(address: LakeAddress) -> DuckLake:
    """Small files in four partitions. Every other row of the first append is deleted."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for start in (0, 100, 200):
        rows = pa.table({"part": [n % PARTS for n in range(40)], "n": [start + n for n in range(40)]})
        lake.write("t", rows, partition_by=["part"], inline=False)
    return lake


def delete_some(lake: DuckLake) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    lake.table("t").delete("n < 40 AND n % 8 < 4")


def rows_of(lake: DuckLake) -> list[int]:
    return sorted(lake.table("t").scan(columns=["n"]).to_arrow()["n"].to_pylist())


@pytest.mark.parametrize(
    ("operation", "concurrency"),
    [
        ("merge_adjacent_files", None),
        ("rewrite_data_files", 3),
        slow("merge_adjacent_files", 3),
        slow("rewrite_data_files", None),
    ],
)
def test_each_group_is_a_snapshot_of_its_own(sqlite_address: LakeAddress, operation: str, concurrency: int | None) -> None:
    lake = partitioned(sqlite_address)
    how: dict[str, Any] = {"max_concurrency": concurrency}
    if operation == "rewrite_data_files":
        delete_some(lake)
        how["delete_threshold"] = 0.0
    before, reported, newest = readings(sqlite_address), change_feeds(sqlite_address), lake.snapshot().id
    (done,) = getattr(lake, operation)("t", partial_progress=True, **how).tables
    assert [snapshot.id for snapshot in done.snapshots] == list(range(newest + 1, newest + 1 + PARTS))
    assert (done.snapshot, done.files_created, len(done.groups)) == (done.snapshots[-1], PARTS, PARTS)
    assert all(group.failure is None for group in done.groups) if operation == "rewrite_data_files" else done.failures == ()
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert after[lake.snapshot().id, '"main"."t"'] == before[newest, '"main"."t"']
    assert change_feeds(sqlite_address) == reported
    assert lake.check(level="rows").findings == ()
    lake.close()


def test_groups_run_at_the_same_time(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for two more, and would wait forever if there were fewer."""
    lake = partitioned(sqlite_address)
    meeting = threading.Barrier(2, timeout=30)
    real = merge.merge_files

    def together(task: Any, **how: Any) -> Any:
        meeting.wait()
        return real(task, **how)

    monkeypatch.setattr(merge, "merge_files", together)
    done = lake.merge_adjacent_files("t", max_concurrency=2)
    assert (done.files_created, done.failures) == (PARTS, ())
    assert len({table.snapshot for table in done.tables}) == 1, "together they are one snapshot"
    with pytest.raises(UsageError, match="max_concurrency"):
        lake.merge_adjacent_files("t", max_concurrency=0)
    lake.close()


@pytest.mark.parametrize("operation", ["merge_adjacent_files", "rewrite_data_files"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_interrupted_run_is_carried_on(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, operation: str, concurrency: int
) -> None:
    """Committed groups stay, no file is left behind, and the next run plans only the rest."""
    lake = partitioned(sqlite_address)
    how: dict[str, Any] = {}
    if operation == "rewrite_data_files":
        delete_some(lake)
        how["delete_threshold"] = 0.0
    module: Any = merge if operation == "merge_adjacent_files" else rewrite
    name = "merge_files" if operation == "merge_adjacent_files" else "rewrite_files"
    expected, on_disk = rows_of(lake), files_on_disk(sqlite_address)
    real, calls = getattr(module, name), []

    def interrupted(task: Any, **more: Any) -> Any:
        calls.append(task)
        written = real(task, **more)
        if len(calls) == PARTS:
            raise KeyboardInterrupt
        return written

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(lake, operation)("t", partial_progress=True, max_concurrency=concurrency, **how)
    monkeypatch.undo()
    done_before = len([s for s in lake.snapshots() if s.message and s.message.startswith(operation)])
    assert done_before == PARTS - 1 if concurrency == 1 else 0 < done_before < PARTS
    new = {path for path in files_on_disk(sqlite_address) - on_disk if "-delete" not in path}
    assert len(new) == done_before, "of a group that was not committed nothing is left"
    assert rows_of(lake) == expected
    (rest,) = getattr(lake, operation)("t", **how).tables
    assert len(rest.groups) == PARTS - done_before
    assert rows_of(lake) == expected
    lake.close()


@pytest.mark.parametrize("by", ["ducklake_core", "DuckDB"])
def test_a_concurrent_delete_is_kept_and_stops_one_group_at_most(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The merge of the affected files gives way; other groups and new rows are no conflict."""
    lake, other = partitioned(sqlite_address), DuckLake.connect(sqlite_address.url)
    real, calls = merge.merge_files, []

    def meanwhile(task: Any, **how: Any) -> Any:
        written = real(task, **how)
        calls.append(task)
        if len(calls) == 1 and by == "ducklake_core":
            other.table("t").append(pa.table({"part": [0], "n": [1000]}))
            other.table("t").delete("n = 105")
        elif len(calls) == 1:
            with attached(sqlite_address) as duck:
                duck.run("INSERT INTO t VALUES (0, 1000)", "DELETE FROM t WHERE n = 105")
        return written

    monkeypatch.setattr(merge, "merge_files", meanwhile)
    (done,) = lake.merge_adjacent_files("t", partial_progress=True).tables
    monkeypatch.undo()
    assert (len(done.snapshots), len(done.failures), done.files_created) == (PARTS - 1, 1, PARTS - 1)
    assert "commit-conflict" in done.failures[0]
    assert [step.outcome for step in done.steps[:PARTS]].count("failed") == 1
    expected = [n for start in (0, 100, 200) for n in range(start, start + 40) if n != 105] + [1000]
    assert rows_of(lake) == expected
    assert lake.check(level="rows").findings == ()
    lake.close()
    other.close()
    with attached(sqlite_address) as duck:
        assert [row[0] for row in duck.rows("SELECT n FROM t ORDER BY n")] == expected


def test_a_merge_plans_a_table_again_after_concurrent_changes(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """All groups are merged again, with their share of the budget and under the new name of the table; the first files are deleted."""
    lake, other = partitioned(sqlite_address), DuckLake.connect(sqlite_address.url)
    real, calls, progress, on_disk = merge.merge_files, [], [], files_on_disk(sqlite_address)

    def meanwhile(task: Any, **how: Any) -> Any:
        written = real(task, **how)
        calls.append(task)
        if len(calls) == 1:
            other.table("t").delete("n = 105")
            other.rename_table("t", "renamed")
        return written

    monkeypatch.setattr(merge, "merge_files", meanwhile)
    (done,) = lake.merge_adjacent_files("t", max_files=3 * PARTS, progress=progress.append).tables
    assert (done.table, done.failures, done.files_created, len(done.snapshots)) == ("main.renamed", (), PARTS, 1)
    assert [step.outcome for step in done.steps] == ["done"] * PARTS
    assert (len(calls), progress[-1].done, progress[-1].total) == (2 * PARTS, 2 * PARTS, 2 * PARTS)
    new = {path for path in files_on_disk(sqlite_address) - on_disk if "-delete" not in path}
    assert len(new) == PARTS, "of the first attempt nothing is left"
    found = lake.table("renamed").scan(columns=["n"]).to_arrow()["n"].to_pylist()
    assert sorted(found) == [n for start in (0, 100, 200) for n in range(start, start + 40) if n != 105]
    assert lake.check(level="rows").findings == ()
    lake.close()
    other.close()


@pytest.mark.parametrize(("change", "failures"), [("merge_adjacent_files", 0), ("drop_table", 1)])
def test_a_merge_whose_files_another_writer_replaces_has_nothing_to_do(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, change: str, failures: int
) -> None:
    lake, other = small_tables(sqlite_address), DuckLake.connect(sqlite_address.url)
    real = merge.merge_files

    def meanwhile(task: Any, **how: Any) -> Any:
        written = real(task, **how)
        if task.state.table == "main.b":
            monkeypatch.undo()
            getattr(other, change)("b")
        return written

    monkeypatch.setattr(merge, "merge_files", meanwhile)
    a, b, c = lake.merge_adjacent_files(max_concurrency=1).tables
    assert (a.files_created, b.files_created, c.files_created) == (1, 0, 1)
    assert (len(a.failures), len(b.failures), len(c.failures)) == (0, failures, 0)
    assert {step.outcome for step in b.steps} == {"failed" if failures else "skipped"}
    assert all("dropped" in failure and "[commit-conflict]" in failure for failure in b.failures)
    assert lake.check(level="rows").findings == ()
    lake.close()
    other.close()


def test_a_rewrite_plans_again_after_concurrent_changes(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """One group of four is changed meanwhile: three are committed at once, the fourth with the delete of the other."""
    lake, other = partitioned(sqlite_address), DuckLake.connect(sqlite_address.url)
    delete_some(lake)
    real, calls = rewrite.rewrite_files, []

    def meanwhile(task: Any, **how: Any) -> Any:
        written = real(task, **how)
        calls.append(task)
        if len(calls) == 1:
            other.table("t").delete("n = 4")
        return written

    monkeypatch.setattr(rewrite, "rewrite_files", meanwhile)
    (done,) = lake.rewrite_data_files("t", delete_threshold=0.0, partial_progress=True).tables
    monkeypatch.undo()
    assert (done.failure, len(calls), len(done.snapshots), done.files_created) == (None, PARTS + 1, PARTS, PARTS)
    assert [group.failure for group in done.groups] == [None] * PARTS
    assert rows_of(lake) == [n for start in (0, 100, 200) for n in range(start, start + 40) if start or (n % 8 > 3 and n != 4)]
    assert lake.check(level="rows").findings == ()
    lake.close()
    other.close()


def test_small_neighbours_join_a_rewrite(sqlite_address: LakeAddress) -> None:
    """Files of the same partition next to one with deletes, up to the target size; rows, row ids and the feed stay."""
    lake = partitioned(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.table("t").delete("part = 1 AND n BETWEEN 100 AND 120")
    before, reported, newest = readings(sqlite_address), change_feeds(sqlite_address), lake.snapshot().id
    plan = lake.rewrite_data_files("t", delete_threshold=0.5, dry_run=True)
    assert [(group.files, group.neighbours, group.deleted_rows, group.live_rows) for group in plan.tables[0].groups] == [(3, 2, 5, 25)]
    assert "2 adjacent small files" in plan.steps[0].reason
    lake.set_option("target_file_size", 100, table="t")
    (full,) = lake.rewrite_data_files("t", delete_threshold=0.5, dry_run=True).tables
    assert [(group.files, group.neighbours) for group in full.groups] == [(1, 0)], "the group is full"
    lake.unset_option("target_file_size", table="t")
    (done,) = lake.rewrite_data_files("t", delete_threshold=0.5).tables
    assert (done.files_rewritten, done.files_created, done.failure) == (3, 1, None)
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert after[lake.snapshot().id, '"main"."t"'] == before[newest, '"main"."t"']
    assert change_feeds(sqlite_address) == reported
    lake.expire_snapshots(older_than=NOW, min_age=NOW)
    lake.cleanup_old_files(older_than=NOW, min_age=NOW)
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(sqlite_address) as duck:
        duck.run("DELETE FROM t WHERE n = 201", "CALL ducklake_merge_adjacent_files('lake')")
        assert duck.value("SELECT count(*) FROM t") == 114


def test_neighbours_are_of_the_same_columns_and_next_to_it(sqlite_address: LakeAddress) -> None:
    """A file of other columns, one beyond a large one, and one with deletes of its own do not join."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER)",
            "INSERT INTO t SELECT range FROM range(10)",
            "INSERT INTO t SELECT range FROM range(10, 3000)",
            "INSERT INTO t SELECT range FROM range(3000, 3010)",
            "INSERT INTO t SELECT range FROM range(3010, 3020)",
            "ALTER TABLE t ADD COLUMN b INTEGER",
            "INSERT INTO t SELECT range, 1 FROM range(3020, 3030)",
            "DELETE FROM t WHERE a BETWEEN 3010 AND 3018",
            "DELETE FROM t WHERE a = 3025",
        )
    before = readings(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    lake.set_option("target_file_size", 2_000, table="t")
    (done,) = lake.rewrite_data_files("t", delete_threshold=0.5).tables
    assert [(group.files, group.neighbours) for group in done.groups] == [(2, 1)]
    lake.close()
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before


def small_tables(address: LakeAddress) -> DuckLake:
    """Three tables of four small files each, made by DuckDB."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        for name in ("a", "b", "c"):
            duck.run(f"CREATE TABLE {name} AS SELECT 0 AS n", *(f"INSERT INTO {name} VALUES ({n})" for n in range(1, 4)))
    return DuckLake.connect(address.url)


def test_small_tables_are_merged_in_one_commit(sqlite_address: LakeAddress) -> None:
    lake = small_tables(sqlite_address)
    before, reported, newest = readings(sqlite_address), change_feeds(sqlite_address), lake.snapshot().id
    done = lake.merge_adjacent_files()
    assert lake.snapshot().id == newest + 1
    assert [(one.table, one.snapshot, one.files_created) for one in done.tables] == [
        (f"main.{name}", lake.snapshot(), 1) for name in ("a", "b", "c")
    ]
    assert lake.snapshot().message == "merge_adjacent_files: 12 files of 3 tables into 3"
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert change_feeds(sqlite_address) == reported
    assert lake.check(level="rows").findings == ()
    lake.close()


def test_a_table_with_concurrent_changes_stops_no_other(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer deletes rows of one table during each of three attempts."""
    deleted = itertools.count(1)
    lake, other = small_tables(sqlite_address), DuckLake.connect(sqlite_address.url)
    real, on_disk = merge.merge_files, files_on_disk(sqlite_address)

    def meanwhile(task: Any, **how: Any) -> Any:
        if task.state.table == "main.b":
            other.table("b").delete(f"n = {next(deleted)}")
        return real(task, **how)

    monkeypatch.setattr(merge, "merge_files", meanwhile)
    a, b, c = lake.merge_adjacent_files().tables
    assert [one.files_created for one in (a, b, c)] == [1, 0, 1]
    assert (len(b.failures), b.snapshot, a.failures, c.failures) == (1, None, (), ())
    assert a.snapshot != c.snapshot, "each was committed by itself"
    made = {path for path in files_on_disk(sqlite_address) - on_disk if "-delete" not in path}
    assert len(made) == 2, "the file of the table that gave way is deleted"
    assert lake.table("b").scan().to_arrow()["n"].to_pylist() == [0]
    assert lake.check(level="rows").findings == ()
    lake.close()
    other.close()


def test_an_interrupted_commit_of_several_tables_leaves_no_file(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = small_tables(sqlite_address)
    on_disk, newest = files_on_disk(sqlite_address), lake.snapshot()

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Committer, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.merge_adjacent_files()
    monkeypatch.undo()
    assert (files_on_disk(sqlite_address), lake.snapshot()) == (on_disk, newest)
    lake.close()


def test_after_exhausted_attempts_no_table_is_retried_alone(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, commits = small_tables(sqlite_address), []
    on_disk = files_on_disk(sqlite_address)

    def lost(_committer: Committer, request: CommitRequest) -> None:
        commits.append(request)
        raise CommitRetriesExhaustedError("lost")

    monkeypatch.setattr(Committer, "commit", lost)
    done = lake.merge_adjacent_files()
    monkeypatch.undo()
    assert (len(commits), len(done.failures), files_on_disk(sqlite_address)) == (1, 3, on_disk)
    lake.close()
