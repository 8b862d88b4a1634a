"""Differences from DuckDB's change feed, where that is wrong or incomplete; every test shows DuckDB's answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from tests.support.oracle import LakeAddress, attached

_FILE = ("CREATE TABLE t (a INTEGER)", "INSERT INTO t SELECT i FROM range(20) r(i)")


def _deleted(table: Any, start: int, end: int | None = None) -> list[tuple[int, int]]:
    feed = table.deletions(start, end, columns=["snapshot_id", "a"]).to_arrow()
    return sorted((row["snapshot_id"], row["a"]) for row in feed.to_pylist())


def test_a_rewrite_changes_nothing(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(*_FILE, "DELETE FROM t WHERE a < 12", "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)")
        by_duckdb = duck.rows("SELECT DISTINCT change_type FROM ducklake_table_changes('lake', 'main', 't', 4, 4)")
        assert sorted(by_duckdb) == [("update_postimage",), ("update_preimage",)]
    assert DuckLake.connect(lake_address.url).table("t").changes(4).to_arrow().num_rows == 0


def test_every_row_is_deleted_once(lake_address: LakeAddress) -> None:
    """DuckDB rewrites a file that has deletes in a delete file and in the catalog, and reports the latter twice."""
    with attached(lake_address) as duck:
        duck.run(*_FILE, "DELETE FROM t WHERE a < 12", "DELETE FROM t WHERE a = 15")
        duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)")
        by_duckdb = duck.rows("SELECT snapshot_id, a FROM ducklake_table_deletions('lake', 'main', 't', 4, 5)")
        assert by_duckdb == [(4, 15), (4, 15)]
    table = DuckLake.connect(lake_address.url).table("t")
    assert _deleted(table, 4) == [(4, 15)]
    assert _deleted(table, 3) == [*((3, a) for a in range(12)), (4, 15)]


def test_rows_that_go_with_a_file_of_which_some_went_before(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(*_FILE, "DELETE FROM t WHERE a = 5", "TRUNCATE t")
    table = DuckLake.connect(lake_address.url).table("t")
    assert _deleted(table, 3) == [(3, 5), *((4, a) for a in range(20) if a != 5)]
    assert _deleted(table, 4) == [(4, a) for a in range(20) if a != 5]


def test_expired_history_raises(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(*_FILE, "INSERT INTO t SELECT i FROM range(20, 40) r(i)", "DELETE FROM t WHERE a < 20", "INSERT INTO t VALUES (99)")
        duck.run("CALL ducklake_expire_snapshots('lake', versions => [3])")
        assert duck.rows("SELECT a FROM ducklake_table_deletions('lake', 'main', 't', 4, 4)"), "snapshot 2 still needs the file"
        table = DuckLake.connect(lake_address.url).table("t")
        for start in (2, datetime(2000, 1, 1, tzinfo=UTC)):
            with pytest.raises(NotFoundError, match=r"snapshot 3 has expired\. Begin at snapshot 4"):
                table.changes(start).to_arrow()
        with pytest.raises(NotFoundError, match="there is no snapshot 3"):
            table.changes(3).to_arrow()
        duck.run("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2])")
        assert duck.rows("SELECT a FROM ducklake_table_deletions('lake', 'main', 't', 4, 4)") == [], "lost without an error"
    with pytest.raises(NotFoundError, match=r"needed to find the deletes of snapshot 4, has expired\. Begin at snapshot 5"):
        table.changes(4).to_arrow()
    assert table.insertions(4).to_arrow().column("a").to_pylist() == [99]
    assert table.changes(5).to_arrow().column("change_type").to_pylist() == ["insert"]


def test_times(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(*_FILE, "INSERT INTO t SELECT i FROM range(20, 40) r(i)")
        future = "now() + INTERVAL 1 DAY"
        by_duckdb = duck.rows(f"SELECT count(*) FROM ducklake_table_insertions('lake', 'main', 't', {future}, {future})")
        assert by_duckdb == [(20,)], "DuckDB begins at the newest snapshot when none is late enough"
    lake = DuckLake.connect(lake_address.url)
    table, (second, third) = lake.table("t"), [found.time for found in lake.snapshots()[2:]]
    assert set(table.insertions(second, second).to_arrow().column("snapshot_id").to_pylist()) == {2}
    assert set(table.insertions(second + timedelta(microseconds=1), third).to_arrow().column("snapshot_id").to_pylist()) == {3}
    assert table.insertions(third + timedelta(days=1)).to_arrow().num_rows == 0
    assert table.changes(3, 2).to_arrow().num_rows == 0
    with pytest.raises(UsageError, match="no zone"):
        table.changes(datetime(2000, 1, 1)).to_arrow()  # noqa: DTZ001 - the point of the test


def test_columns_of_the_feed_keep_their_names(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INTEGER, RowId INTEGER)", "INSERT INTO t VALUES (1, 77)")
        assert duck.rows("SELECT rowid FROM ducklake_table_insertions('lake', 'main', 't', 2, 2)") == [(77,)]
    with pytest.raises(UnsupportedFeatureError, match="adds columns with names that the table already has"):
        DuckLake.connect(sqlite_address.url).table("t").insertions(2).to_arrow()


def test_the_plan_prints_itself(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*_FILE, "UPDATE t SET a = a + 100 WHERE a = 3", "INSERT INTO t SELECT i FROM range(20) r(i)")
    text = str(DuckLake.connect(sqlite_address.url).table("t").changes(2).plan())
    assert "changes of main.t from snapshot 2 to 4" in text
    assert "inlined:  1 row added" in text
    assert "updates:  may be in 1 of 3 files" in text


def test_rows_that_were_something_else_within_the_transaction(sqlite_address: LakeAddress) -> None:
    """Both list what was in between where a file of the snapshot has lost rows in it again, DuckDB twice; not so in the catalog."""
    many = ", ".join(f"({number})" for number in range(100, 120))
    few_again = (
        ["UPDATE t SET a = a + 1000 WHERE a < 15", "DELETE FROM t WHERE a = 1000"],
        [f"INSERT INTO t VALUES {many}", "DELETE FROM t WHERE a = 100"],
    )
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*_FILE)
        for statements in few_again:
            duck.run("BEGIN", *statements, "COMMIT")
        lake = DuckLake.connect(sqlite_address.url)
        with lake.transaction() as tx:
            tx.update("t", {"a": "a - 1000"}, where="a > 1000")
            tx.delete("t", "a = 1")
        lake.set_option("data_inlining_row_limit", 10)
        with lake.transaction() as tx:
            tx.update("t", {"a": "-a"}, where="a BETWEEN 2 AND 5")
            tx.delete("t", "a = -2")
        table, seen = lake.table("t"), {}
        for snapshot in range(3, 7):
            by_duckdb = duck.rows(f"FROM ducklake_table_changes('lake', 'main', 't', {snapshot}, {snapshot})")
            own = [tuple(row.values()) for row in table.changes(snapshot, snapshot).to_arrow().to_pylist()]
            assert sorted(set(by_duckdb)) == sorted(own)
            assert len(own) == len(set(own))
            assert (len(by_duckdb) > len(own)) == (snapshot in (3, 5)), snapshot
            seen[snapshot] = sorted(row[1:] for row in own if row[1] in (0, 2))
        assert seen[3][:1] + seen[3][3:] == [(0, "update_postimage", 1000), (2, "update_postimage", 1002), (2, "update_preimage", 2)]
        assert seen[3][1:3] == [(0, "update_preimage", 0), (0, "update_preimage", 1000)]
        assert seen[6] == [(2, "delete", 2)]
        lake.close()
