"""Rewrites, flushes and merges on executors: the same rows, ids and history as in this process, and nothing of the catalog in a task."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core.engines.arrow.compaction import RewriteTask, rewrite_files
from ducklake_core.engines.spark import work_units
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import flush
from tests.behaviour.maintenance.lakes import FILES_ONLY, NOW, change_feeds, files_on_disk, readings, write_inlined
from tests.behaviour.maintenance.test_clustering import assert_sorted, flushed_merged_and_rewritten, sorted_by_expressions
from tests.behaviour.maintenance.test_rewrite import write_deleted
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_vectors(address: LakeAddress) -> None:
    """Rows deleted by deletion vectors, and more of them by the catalog."""
    with attached(address) as duck:
        duck.run(
            "CALL lake.set_option('write_deletion_vectors', 'true')",
            "CREATE TABLE vectors (id INTEGER, part INTEGER)",
            "ALTER TABLE vectors SET PARTITIONED BY (part)",
            "INSERT INTO vectors SELECT range, range % 2 FROM range(200)",
            "DELETE FROM vectors WHERE id < 120",
            "DELETE FROM vectors WHERE id IN (130, 131)",
        )


@pytest.fixture
def tasks_seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the work that is sent to executors."""
    seen: list[Any] = []
    real = work_units._job

    def noted(work: Any, tasks: Any, session: Any) -> Any:
        seen.extend(tasks)
        return real(work, tasks, session)

    monkeypatch.setattr(work_units, "_job", noted)
    return seen


def check_tasks(seen: list[Any], address: LakeAddress) -> None:
    secret = address.url.split("://")[1].encode()
    assert seen
    assert not any(secret in pickle.dumps(task) for task in seen)


@pytest.mark.parametrize("options", ["", slow("ENCRYPTED")])
def test_rewrites(sqlite_address: LakeAddress, spark: SparkSession, tasks_seen: list[Any], options: str) -> None:
    write_deleted(sqlite_address, options)
    if not options:
        write_vectors(sqlite_address)
    before, feed = readings(sqlite_address), change_feeds(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    newest = lake.snapshot().id
    plan = lake.rewrite_data_files(delete_threshold=0.0, dry_run=True)
    done = lake.rewrite_data_files(delete_threshold=0.0, spark=spark)
    assert done.failed_steps == ()
    assert [(s.target, s.files, s.rows) for s in done.steps] == [(s.target, s.files, s.rows) for s in plan.steps]
    assert all(isinstance(task, RewriteTask) for task in tasks_seen)
    check_tasks(tasks_seen, sqlite_address)
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    last = lake.snapshot().id
    assert {name: after[last, name] for number, name in before if number == newest} == {
        name: rows for (number, name), rows in before.items() if number == newest
    }
    assert change_feeds(sqlite_address) == feed
    keys = lake.table("sorted").scan(columns=["k"]).to_arrow()["k"].to_pylist()
    assert keys == sorted(keys, reverse=True)
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(sqlite_address, options) as duck:
        duck.run("UPDATE t SET extra = 0 WHERE id = 141", "DELETE FROM sorted WHERE k = 4", "CALL ducklake_flush_inlined_data('lake')")


@pytest.mark.parametrize("options", [slow(""), "ENCRYPTED"])
def test_flushes(
    sqlite_address: LakeAddress, spark: SparkSession, tasks_seen: list[Any], monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    write_inlined(sqlite_address, options)
    before, feed = readings(sqlite_address), change_feeds(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    newest = lake.snapshot().id
    (few,) = lake.flush_inlined_data("p", spark=spark).tables
    assert (few.failure, tasks_seen) == (None, []), "so few rows are flushed in this process"
    monkeypatch.setattr(flush, "EXECUTOR_ROWS", 1)
    monkeypatch.setattr(flush, "TASK_ROWS", 3)
    done = lake.flush_inlined_data(spark=spark)
    assert done.failures == ()
    assert len(tasks_seen) > 3
    check_tasks(tasks_seen, sqlite_address)
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    last = lake.snapshot().id
    assert {name: after[last, name] for number, name in before if number == newest} == {
        name: rows for (number, name), rows in before.items() if number == newest
    }
    assert change_feeds(sqlite_address) == feed
    assert lake.check(level="rows").is_sound
    assert lake.flush_inlined_data(dry_run=True).rows_flushed == 0
    lake.close()


def test_groups_as_jobs(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    """Each group is a job and a snapshot; one that fails stops no other; sorted tables and clusters are written there as well."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, b VARCHAR)",
            "ALTER TABLE t SET PARTITIONED BY (b)",
            "ALTER TABLE t SET SORTED BY (a DESC)",
            *(f"INSERT INTO t SELECT range, 'p' || range % 3 FROM range({n}, {n + 20})" for n in range(0, 60, 20)),
            "CREATE TABLE c (x INTEGER, y INTEGER)",
            *(
                f"INSERT INTO c SELECT (range * 7919) % 1000, (range * 104729) % 1000 FROM range({n * 300}, {n * 300 + 300})"
                for n in range(9)
            ),
        )
    before, feed = readings(sqlite_address), change_feeds(sqlite_address)
    lost = next(path for path in sorted(Path(sqlite_address.data_path).rglob("*.parquet")) if "b=p1" in str(path))
    content = lost.read_bytes()
    lost.unlink()
    lake = DuckLake.connect(sqlite_address.url)
    (done,) = lake.merge_adjacent_files("t", spark=spark, partial_progress=True, max_concurrency=2).tables
    lost.write_bytes(content)
    assert (len(done.snapshots), done.files_created, len(done.failures)) == (2, 2, 1)
    assert "not-found" in done.failures[0]
    assert lake.merge_adjacent_files("t", spark=spark, max_concurrency=2).files_created == 1
    with attached(sqlite_address) as duck:
        for part in ("p0", "p1", "p2"):
            keys = [row[0] for row in duck.rows(f"SELECT a FROM t WHERE b = '{part}' ORDER BY file_row_number")]
            assert keys == sorted(keys, reverse=True)  # type: ignore[type-var]
    lake.set_option("target_file_size", 5_000, table="c")
    (clustered,) = lake.rewrite_data_files("c", cluster_by=["x", "y"], spark=spark, partial_progress=True).tables
    assert clustered.groups[0].gain is not None
    assert clustered.groups[0].gain.touched_after < clustered.groups[0].gain.touched / 2
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert change_feeds(sqlite_address) == feed
    assert lake.check(level="rows").findings == ()
    lake.close()


@pytest.mark.parametrize("concurrency", [None, slow(2)])
def test_a_job_that_fails_is_a_failure_of_its_groups(
    sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, concurrency: int | None
) -> None:
    """Lost executors or a cancelled job fail the groups of that job, naming table and group."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER, p INTEGER)", "ALTER TABLE t SET PARTITIONED BY (p)")
        duck.run(*["INSERT INTO t SELECT range, range % 2 FROM range(20)"] * 2)
    on_disk, lake = files_on_disk(sqlite_address), DuckLake.connect(sqlite_address.url)
    monkeypatch.setattr(work_units, "_runner", lambda *_: lambda batches: ((_ for _ in ()).throw(MemoryError(len(b))) for b in batches))
    (done,) = lake.merge_adjacent_files("t", spark=spark, max_concurrency=concurrency).tables
    monkeypatch.undo()
    assert (done.files_created, done.snapshot, len(done.failures)) == (0, None, 2)
    for part, failure in enumerate(done.failures):
        assert f"2 files of partition ('{part}',) of main.t" in failure
        assert failure.endswith("[job-failed]")
    assert files_on_disk(sqlite_address) == on_disk
    assert lake.merge_adjacent_files("t", spark=spark).files_created == 2
    lake.close()


def test_an_interrupted_run_leaves_no_file(sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of a first group is interrupted before it begins: jobs are cancelled, their files go, and the next run does the rest."""
    from ducklake_core.maintenance import groups

    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"part": [n % 4 for n in range(80)], "n": list(range(80))}), partition_by=["part"])
    lake.table("t").delete("n < 40")
    on_disk, real, commits = files_on_disk(sqlite_address), groups.commit_together, []

    def interrupted(*how: Any, **options: Any) -> Any:
        commits.append(how)
        if len(commits) == 2:
            raise KeyboardInterrupt
        return real(*how, **options)

    monkeypatch.setattr(groups, "commit_together", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.rewrite_data_files("t", delete_threshold=0.0, spark=spark, partial_progress=True, max_concurrency=1)
    monkeypatch.undo()
    # The outcome of the interrupted commit is unknown: its files stay for the sweep of orphaned files.
    assert len(files_on_disk(sqlite_address) - on_disk) == 2
    (rest,) = lake.rewrite_data_files("t", delete_threshold=0.0, spark=spark, partial_progress=True).tables
    assert (len(rest.groups), rest.files_created) == (3, 3)
    assert len(lake.delete_orphaned_files(older_than=NOW, min_age=NOW).files) == 1
    assert sorted(lake.table("t").scan().to_arrow()["n"].to_pylist()) == list(range(40, 80))
    lake.close()


def test_attempts_that_were_given_up_leave_no_file(
    sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncommitted files are swept after the commit where Spark may have run a task twice."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"n": list(range(80))}))
    lake.table("t").delete("n < 40")
    on_disk = files_on_disk(sqlite_address)
    real = work_units._job

    def twice(work: Any, tasks: Any, session: Any) -> Any:
        if work is rewrite_files:
            for task in tasks:
                work(task, threads=False)
        results, _ = real(work, tasks, session)
        return results, True

    monkeypatch.setattr(work_units, "_job", twice)
    (done,) = lake.rewrite_data_files("t", delete_threshold=0.0, spark=spark).tables
    assert done.failure is None
    assert len(files_on_disk(sqlite_address) - on_disk) == done.files_created == 1
    lake.close()


@pytest.mark.slow
def test_executors_follow_expressions(sqlite_address: LakeAddress, spark: SparkSession, tasks_seen: list[Any]) -> None:
    lake = sorted_by_expressions(sqlite_address)
    before = readings(sqlite_address)
    flushed_merged_and_rewritten(lake, spark=spark)
    lake.close()
    check_tasks(tasks_seen, sqlite_address)
    after = readings(sqlite_address)
    assert {key: sorted(map(str, after[key])) for key in before} == {key: sorted(map(str, before[key])) for key in before}
    assert assert_sorted(sqlite_address) <= 2
