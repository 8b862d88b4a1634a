"""Rewriting removes deleted rows from files, and changes no snapshot and no change feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import select

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.lake import DuckLake
from tests.behaviour.maintenance.lakes import FILES_ONLY, NOW, change_feeds, files_on_disk, readings
from tests.support.oracle import LakeAddress, attached


def write_deleted(address: LakeAddress, options: str = "") -> None:
    """Rows deleted in every way: cumulative delete files, deletes in the catalog, both; updates, partitions, altered columns."""
    with attached(address, options) as duck:
        duck.run(
            "CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR, part INTEGER)",
            "INSERT INTO t SELECT range, 'n' || range, range % 2 FROM range(60)",
            "DELETE FROM t WHERE id < 20",
            "DELETE FROM t WHERE id BETWEEN 20 AND 39",
            "DELETE FROM t WHERE id = 45",
            "UPDATE t SET name = 'u' WHERE id > 50",
            "ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7",
            "ALTER TABLE t SET PARTITIONED BY (part)",
            "INSERT INTO t SELECT range, 'm', range % 2, range FROM range(100, 160)",
            "DELETE FROM t WHERE id BETWEEN 100 AND 125",
            "DELETE FROM t WHERE id = 130",
            "ALTER TABLE t RENAME COLUMN name TO label",
            "ALTER TABLE t ALTER COLUMN id TYPE BIGINT",
            "CREATE TABLE emptied (id INTEGER)",
            "INSERT INTO emptied SELECT range FROM range(20)",
            "DELETE FROM emptied WHERE id < 15",
            "DELETE FROM emptied WHERE id < 18",
            "DELETE FROM emptied",
            "CREATE TABLE flushed (id INTEGER, v INTEGER)",
            "INSERT INTO flushed VALUES (1, 1), (2, 2), (3, 3)",
            "DELETE FROM flushed WHERE id = 2",
            "CALL ducklake_flush_inlined_data('lake', table_name => 'flushed')",
            "CREATE TABLE sorted (k INTEGER, v VARCHAR)",
            "ALTER TABLE sorted SET SORTED BY (k DESC)",
            "INSERT INTO sorted SELECT range, 'a' FROM range(30)",
            "INSERT INTO sorted SELECT range, 'b' FROM range(10, 40)",
            "DELETE FROM sorted WHERE k % 3 = 0",
        )


def test_every_snapshot_and_the_feed_are_as_before(lake_address: LakeAddress) -> None:
    _all_is_as_before(lake_address, "")


@pytest.mark.slow
def test_every_snapshot_and_the_feed_are_as_before_in_an_encrypted_lake(sqlite_address: LakeAddress) -> None:
    _all_is_as_before(sqlite_address, "ENCRYPTED")


def _all_is_as_before(lake_address: LakeAddress, options: str) -> None:
    write_deleted(lake_address, options)
    before, reported = readings(lake_address), change_feeds(lake_address)
    lake = DuckLake.connect(lake_address.url)
    newest = lake.snapshot().id
    plan = lake.rewrite_data_files(delete_threshold=0.0, dry_run=True)
    done = lake.rewrite_data_files(delete_threshold=0.0)
    assert done.failed_steps == ()
    assert [(s.target, s.files, s.rows, s.bytes, s.reason) for s in done.steps] == [
        (s.target, s.files, s.rows, s.bytes, s.reason) for s in plan.steps
    ]
    assert {t.table: t.files_rewritten for t in done.tables} == {"main.t": 3, "main.emptied": 1, "main.flushed": 1, "main.sorted": 2}
    assert change_feeds(lake_address) == reported
    after = readings(lake_address)
    assert {key: rows for key, rows in after.items() if key in before} == before
    last = lake.snapshot().id
    assert {name: after[last, name] for number, name in before if number == newest} == {
        name: rows for (number, name), rows in before.items() if number == newest
    }
    assert lake.rewrite_data_files(delete_threshold=0.0).files_rewritten == 0
    with lake.reader() as reader:
        files = reader.catalog["data_file"]
        live = reader.connection.execute(select(files.c.path).where(files.c.end_snapshot.is_(None), files.c.begin_snapshot > newest)).all()
    assert len(live) == sum(t.files_created for t in done.tables)
    keys = lake.table("sorted").scan(columns=["k"]).to_arrow()["k"].to_pylist()
    assert keys == sorted(keys, reverse=True)
    # The old files go with the snapshots that read them, and nothing else does.
    expired = lake.expire_snapshots(older_than=NOW, min_age=NOW)
    lake.cleanup_old_files(older_than=NOW, min_age=NOW)
    assert {file.kind for file in expired.files} == {"data", "delete"}
    lake.close()
    final = readings(lake_address)
    assert {name: rows for (_, name), rows in final.items()} == {name: after[last, name] for number, name in before if number == newest}
    with attached(lake_address, options) as duck:
        duck.run("UPDATE t SET extra = 0 WHERE id = 141", "DELETE FROM sorted WHERE k = 4", "CALL ducklake_flush_inlined_data('lake')")
        if not options:  # DuckDB cannot compact encrypted partitions: "Files have different hive partition path".
            duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)", "CALL ducklake_merge_adjacent_files('lake')")
        assert duck.value("SELECT count(*) FROM t") == len(final[last, '"main"."t"'])


def test_thresholds_and_scopes(sqlite_address: LakeAddress) -> None:
    write_deleted(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.rewrite_data_files("emptied", dry_run=True).files_rewritten == lake.rewrite_data_files(dry_run=True).files_rewritten == 1
    lake.set_option("rewrite_delete_threshold", 0.5, table="t")
    plan = {t.table: t for t in lake.rewrite_data_files(dry_run=True).tables}
    assert (plan["main.t"].files_rewritten, plan["main.t"].left) == (1, (("less than 50% of the rows are deleted", 2),))
    assert plan["main.sorted"].left == (("less than 95% of the rows are deleted", 2),)
    assert [t.table for t in lake.rewrite_data_files("sorted", delete_threshold=0.3, dry_run=True).tables] == ["main.sorted"]
    lake.set_option("auto_compact", False, schema="main")
    assert {t.skipped for t in lake.rewrite_data_files(delete_threshold=0).tables} == {"option auto_compact is false"}
    with pytest.raises(UsageError, match="delete_threshold"):
        lake.rewrite_data_files(delete_threshold=1.5)
    with pytest.raises(NotFoundError):
        lake.rewrite_data_files(schema="nothing")
    lake.close()


@pytest.mark.parametrize(("by", "deleted", "plans"), [("ducklake_core", 40, 1), ("ducklake_core", 25, 2), ("DuckDB", 25, 2)])
def test_concurrent_changes_are_kept(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, by: str, deleted: int, plans: int) -> None:
    """New rows and deletes from other files are no conflict; a delete from the same file makes the rewrite plan again."""
    from ducklake_core.maintenance import rewrite

    with attached(lake_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (id INTEGER)", "INSERT INTO t SELECT range FROM range(30)", "INSERT INTO t SELECT range FROM range(30, 60)"
        )
        duck.run("DELETE FROM t WHERE id < 20")
    lake, other = DuckLake.connect(lake_address.url), DuckLake.connect(lake_address.url)
    lake.set_option("target_file_size", 100, table="t")  # Too small for the other file to join.
    real, calls = rewrite.rewrite_files, []

    def meanwhile(task: Any) -> Any:
        written = real(task)
        calls.append(task)
        if len(calls) == 1 and by == "ducklake_core":
            other.table("t").append(pa.table({"id": pa.array([101], pa.int32())}))
            other.table("t").delete(f"id = {deleted}")
        elif len(calls) == 1:
            with attached(lake_address) as duck:
                duck.run("INSERT INTO t VALUES (101)", f"DELETE FROM t WHERE id = {deleted}")
        return written

    monkeypatch.setattr(rewrite, "rewrite_files", meanwhile)
    on_disk = files_on_disk(lake_address)
    (done,) = lake.rewrite_data_files("t", delete_threshold=0.5).tables
    monkeypatch.undo()
    assert (done.failure, done.files_rewritten, len(calls)) == (None, 1, plans)
    expected = [number for number in (*range(20, 60), 101) if number != deleted]
    assert sorted(lake.table("t").scan().to_arrow()["id"].to_pylist()) == expected
    known = {name for name in files_on_disk(lake_address) - on_disk if "-delete" not in name}
    assert len(known) == done.files_created, "files of the first plan are deleted"
    lake.close()
    other.close()
    with attached(lake_address) as duck:
        assert [row[0] for row in duck.rows("SELECT id FROM t ORDER BY id")] == expected


def test_a_group_that_fails_leaves_no_delete_file(small: DuckLake, sqlite_address: LakeAddress) -> None:
    """Its deletes are gathered before its rows are read; other groups are committed without it."""
    small.write("t", pa.table({"part": [1] * 50 + [2] * 50, "n": range(100)}), partition_by=["part"])
    small.table("t").delete("n % 2 = 0")
    small.set_option("data_inlining_row_limit", 5)
    small.table("t").delete("n IN (1, 51)")
    (bad,) = (path for path in Path(sqlite_address.data_path).rglob("part=1/*.parquet"))
    bad.write_bytes(b"PAR1 is no footer PAR1")
    before = {path for path in files_on_disk(sqlite_address) if path.endswith("-delete.parquet")}
    done = small.rewrite_data_files(delete_threshold=0.0)
    assert [step.outcome for step in done.steps] == ["failed", "done"]
    made = {path for path in files_on_disk(sqlite_address) if path.endswith("-delete.parquet")} - before
    assert len(made) == 1
    assert small.table("t").scan(where="part = 2").count() == 24
