"""Options, flushes and compaction in one transaction: what DuckDB writes for the same BEGIN ... COMMIT, and what is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, NotFoundError, StorageError, UnsupportedFeatureError, UsageError
from ducklake_core.maintenance import merge
from ducklake_core.transaction import Transaction
from tests.behaviour.row_changes.conftest import Twins
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

Step = tuple[Callable[[Transaction], Any], str]
# Intended differences from DuckDB: the order of ids.
APART = {
    **dict.fromkeys(("data_file", "delete_file", "file_column_stats"), ("data_file_id", "delete_file_id")),
    "snapshot_changes": ("changes_made",),
    # Tables of inlined rows with former columns are dropped by the next flush and expiry, not at once.
    "ducklake_inlined_data_1_1": (),
    "inlined_data_tables": (),
}
FLUSH: Step = (lambda tx: tx.flush_inlined_data("t")), "CALL ducklake_flush_inlined_data('lake')"


def sql(text: str) -> Step:
    return (lambda tx: tx.sql(text)), text


def rows(lake: DuckLake, at: int | None = None) -> list[tuple[int, int]]:
    found = lake.table("t", at=at).scan(columns=["rowid", "a"]).to_arrow().to_pylist()
    return sorted((row["rowid"], row["a"]) for row in found)


def files(address: LakeAddress) -> set[str]:
    return {path.name for path in Path(address.data_path).rglob("*.parquet")}


SEQUENCES: dict[str, tuple[Step, ...]] = {
    "an insert and a flush": (sql("INSERT INTO t VALUES (9)"), FLUSH),
    "a flush and an insert": (FLUSH, sql("INSERT INTO t VALUES (9)")),
    "a flush and a file": (FLUSH, sql("INSERT INTO t SELECT 100 + i FROM range(30) r(i)")),
    "two flushes": (FLUSH, FLUSH),
    "a flush and new columns": (FLUSH, sql("ALTER TABLE t ADD COLUMN b INTEGER"), sql("INSERT INTO t VALUES (9, 9)")),
    "new keys and a flush": (sql("ALTER TABLE t SET PARTITIONED BY (a)"), FLUSH),
    "another table": (sql("CREATE TABLE u (a INTEGER)"), FLUSH),
}


@pytest.mark.parametrize("sequence", spread(SEQUENCES, 3))
def test_flushes_equal_those_of_duckdb(twins: Twins, sequence: str) -> None:
    twins.both(
        "CALL lake.set_option('data_inlining_row_limit', 10)", "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1), (2)",
        "INSERT INTO t VALUES (3)",
    )  # fmt: skip
    twins.by_duckdb.run("BEGIN")
    with twins.lake.transaction() as tx:
        for own, by_duckdb in SEQUENCES[sequence]:
            own(tx)
            twins.by_duckdb.run(by_duckdb)
            expected = sorted(twins.by_duckdb.rows("SELECT a FROM t"))
            assert sorted((row["a"],) for row in tx.table("t").to_arrow().to_pylist()) == expected
    twins.by_duckdb.run("COMMIT")
    twins.same("t")
    twins.same_catalog(apart_from=APART)
    for snapshot in (2, 3):
        assert rows(twins.lake, snapshot) == sorted(twins.own.rows(f"SELECT rowid, a FROM t AT (VERSION => {snapshot})"))
    assert not twins.lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files


CHANGES = ("DELETE FROM t WHERE a IN (1, 20)", "UPDATE t SET a = 50 WHERE a IN (1, 20)", "DELETE FROM t", "DELETE FROM t WHERE a > 25")


@pytest.mark.parametrize(("change", "flush_first"), spread([(change, first) for first in (False, True) for change in CHANGES], 2))
def test_flushed_rows_that_the_transaction_changes_keep_their_history(
    lake: DuckLake, lake_address: LakeAddress, change: str, flush_first: bool
) -> None:
    """DuckDB loses such rows from earlier snapshots if it flushes after the change."""
    lake.set_option("data_inlining_row_limit", 10)
    lake.write("t", pa.table({"a": pa.array(range(20, 50), pa.int32())}), create=True)
    lake.write("t", pa.table({"a": pa.array([1, 2, 3], pa.int32())}))
    lake.table("t").delete("a = 3 OR a = 21")
    before = {snapshot.id: rows(lake, snapshot.id) for snapshot in lake.snapshots()[1:]}
    with lake.transaction() as tx:
        for statement in ("CALL ducklake_flush_inlined_data('lake')", change)[:: 1 if flush_first else -1]:
            tx.sql(statement)
        after = sorted(row["a"] for row in tx.table("t").to_arrow().to_pylist())
    newest = lake.snapshot().id
    assert newest == max(before) + 1
    assert [a for _, a in sorted(rows(lake), key=lambda row: row[1])] == after
    with attached(lake_address) as duck:
        for snapshot, expected in (before | {newest: rows(lake)}).items():
            assert rows(lake, snapshot) == expected == sorted(duck.rows(f"SELECT rowid, a FROM t AT (VERSION => {snapshot})"))
    assert not lake.check(level="rows").findings
    lake.flush_inlined_data()
    for snapshot, expected in before.items():
        assert rows(lake, snapshot) == expected
    assert not lake.check(level="rows").findings


def test_changes_next_to_a_flush_are_in_the_change_feed(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.set_option("data_inlining_row_limit", 10)
    lake.write("t", pa.table({"a": pa.array(range(20, 50), pa.int32())}), create=True)
    table = lake.table("t")
    table.delete("a = 21")
    table.append([{"a": 1}, {"a": 2}])
    with lake.transaction() as tx:
        tx.append("t", pa.table({"a": pa.array(range(60, 90), pa.int32())}))
        tx.delete("t", "a IN (2, 22)")
        tx.flush_inlined_data("t")
    at = lake.snapshot().id
    feed = {kind: sorted(row["a"] for row in rows.to_arrow().to_pylist()) for kind, rows in _feeds(lake, at)}
    assert feed == {"insertions": list(range(60, 90)), "deletions": [2, 22]}
    with attached(lake_address) as duck:
        for kind, expected in feed.items():
            assert duck.rows(f"SELECT a FROM lake.table_{kind}('t', {at}, {at}) ORDER BY a") == [(a,) for a in expected]


def _feeds(lake: DuckLake, at: int) -> list[tuple[str, Any]]:
    table = lake.table("t")
    return [("insertions", table.insertions(at, at)), ("deletions", table.deletions(at, at))]


def test_a_failed_block_leaves_nothing(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", [{"a": 1}], create=True)
    before = small.snapshot().id
    with suppress(ZeroDivisionError), small.transaction() as tx:
        tx.set_option("data_inlining_row_limit", 0)
        tx.append("t", [{"a": 2}])
        tx.flush_inlined_data()
        raise ZeroDivisionError
    assert (small.snapshot().id, files(sqlite_address), small.options()) == (before, set(), small.reopen().options())
    assert "data_inlining_row_limit" not in small.options()


def test_a_flush_is_planned_again_after_other_commits(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", [{"a": 1}, {"a": 2}], create=True)
    with small.transaction() as tx:
        tx.flush_inlined_data("t")
        tx.append("t", [{"a": 9}])
        with attached(sqlite_address) as duck:
            duck.run("DELETE FROM t WHERE a = 1", "INSERT INTO t VALUES (5)")
    assert [a for _, a in rows(small)] == [2, 5, 9]
    assert rows(small, 1) == [(0, 1), (1, 2)]
    assert len(files(sqlite_address)) == 2  # The flushed rows and the delete of one of them.
    assert not small.check(level="rows").findings


def test_a_flush_of_a_table_that_another_writer_flushed_makes_no_snapshot(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", [{"a": 1}], create=True)
    with small.transaction() as tx:
        assert [(one.table, one.rows) for one in tx.flush_inlined_data().tables] == [("main.t", 1)]
        small.flush_inlined_data()
    assert (tx.result.snapshot, small.snapshot().id, len(files(sqlite_address))) == (None, 2, 1)


def test_a_flush_of_a_table_that_another_writer_dropped_is_a_conflict(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", [{"a": 1}], create=True)
    tx = small.transaction().__enter__()
    tx.flush_inlined_data()
    DuckLake.open(sqlite_address.url).drop_table("t")
    with pytest.raises(CommitConflictError, match=r"Another writer has dropped main\.t, "):
        tx.__exit__(None, None, None)
    assert not files(sqlite_address)


def test_tables_that_a_flush_skips(small: DuckLake) -> None:
    for name in ("dropped", "renamed", "kept"):
        small.write(name, [{"a": 1}], create=True)
    with small.transaction() as tx:
        tx.sql("DROP TABLE dropped")
        tx.rename_table("renamed", "other")
        tx.create_table("made", {"a": "int32"})
        tx.append("made", [{"a": 1}])
        tx.set_option("auto_compact", False, table="kept")
        assert {one.table: one.skipped for one in tx.flush_inlined_data().tables} == {
            "main.renamed": None,
            "main.kept": "option auto_compact is false",
        }
        assert tx.flush_inlined_data("made").tables == ()
        assert [one.table for one in tx.flush_inlined_data("other").tables] == ["main.renamed"]
        with pytest.raises(NotFoundError):
            tx.flush_inlined_data("dropped")
    assert [small.table_info(name).file_count for name in ("other", "made", "kept")] == [1, 0, 0]


# Options


def test_options_equal_those_of_duckdb(twins: Twins) -> None:
    twins.both("CALL lake.set_option('data_inlining_row_limit', 10)", "CREATE TABLE t (a INTEGER)", "CREATE TABLE u (a INTEGER)")
    twins.by_duckdb.run("BEGIN")
    with twins.lake.transaction() as tx:
        for statement in (
            "CALL lake.set_option('data_inlining_row_limit', '0', table_name => 't')",
            "CALL lake.set_option('target_file_size', '1MB')",
            "CALL lake.set_option('target_file_size', '2MB')",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO u VALUES (1)",
        ):
            tx.sql(statement)
            twins.by_duckdb.run(statement)
        options = "SELECT option_name, value, scope, scope_entry FROM lake.options() WHERE option_name LIKE '%i%' ORDER BY ALL"
        assert [tuple(row.values()) for row in tx.sql(options).to_arrow().to_pylist()] == twins.by_duckdb.rows(options)
    twins.by_duckdb.run("COMMIT")
    # File ids of DuckDB have gaps.
    twins.same_catalog(apart_from=APART | {"snapshot": ("next_file_id",)})
    assert (twins.lake.table_info("t").file_count, twins.lake.table_info("u").file_count) == (1, 0)


def test_options_alone_make_no_snapshot(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with small.transaction() as tx:
        tx.set_option("target_file_size", "1MB")
        tx.set_option("auto_compact", False, schema="main")
        assert tx.unset_option("auto_compact", schema="main")
        assert not tx.unset_option("parquet_compression")
    assert (tx.result.snapshot, small.snapshot().id, small.options()["target_file_size"]) == (None, 0, "1000000")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT option_name, value FROM lake.options() WHERE option_name IN ('target_file_size', 'auto_compact')") == [
            ("target_file_size", "1000000")
        ]


def test_options_of_objects_that_the_transaction_makes(lake: DuckLake, lake_address: LakeAddress) -> None:
    """DuckDB sets options of committed tables and schemas only."""
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.set_option("data_inlining_row_limit", 0, schema="s")
        tx.create_table("s.t", {"a": "int32"})
        tx.create_table("u", {"a": "int32"})
        tx.set_option("data_inlining_row_limit", 0, table="u")
        tx.create_table("v", {"a": "int32"})
        for name in ("s.t", "u", "v"):
            tx.append(name, [{"a": 1}])
    assert [lake.table_info(name).file_count for name in ("s.t", "u", "v")] == [1, 1, 0]
    found = {(one.name, one.value, one.scope, one.entry) for one in lake.scoped_options() if one.scope != "global"}
    assert found == {("data_inlining_row_limit", "0", "schema", "s"), ("data_inlining_row_limit", "0", "table", "main.u")}
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM lake.options() WHERE option_name = 'data_inlining_row_limit' AND scope <> 'GLOBAL'") == 2
        duck.run("INSERT INTO u VALUES (2)")
    assert lake.table_info("u").file_count == 2


def test_options_are_followed_after_a_new_plan(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", [{"a": 1}], create=True)
    with small.transaction() as tx:
        tx.set_option("data_inlining_row_limit", 0, table="t")
        tx.update("t", {"a": "a + 1"})
        small.write("t", [{"a": 5}])
    assert (sorted(a for _, a in rows(small)), small.table_info("t").file_count) == ([2, 6], 1)


def test_a_failed_call_leaves_options(small: DuckLake) -> None:
    with small.transaction() as tx:
        with pytest.raises(UsageError):
            tx.set_option("no_option", 1)
        with pytest.raises(NotFoundError):
            tx.set_option("auto_compact", False, table="none")
        with pytest.raises(UsageError, match="cannot be combined"):
            tx.set_option("auto_compact", False, table="t", schema="main")
    assert tx.result.snapshot is None


def test_a_restored_table_with_other_options(small: DuckLake) -> None:
    small.write("t", [{"a": 1}], create=True)
    small.set_option("data_inlining_row_limit", 3, table="t")
    small.drop_table("t")
    with small.transaction() as tx:
        tx.undrop_table("t")
        tx.set_option("data_inlining_row_limit", 0, table="t")
        tx.append("t", [{"a": 2}])
    assert [(one.name, one.value) for one in small.scoped_options() if one.entry == "main.t"] == [("data_inlining_row_limit", "0")]


# Merging and rewriting


def in_files(lake: DuckLake) -> None:
    """Make a table of three files, and one with a file of deleted rows."""
    lake.set_option("data_inlining_row_limit", 0)
    for first in (0, 10, 20):
        lake.write("t", pa.table({"a": pa.array(range(first, first + 10), pa.int32())}), mode="append")
    lake.write("u", pa.table({"a": pa.array(range(100), pa.int32())}))
    lake.table("u").delete("a < 98")


COMPACTION = ("CALL ducklake_merge_adjacent_files('lake', 't')", "CALL ducklake_rewrite_data_files('lake', 'u')")


def test_merges_and_rewrites_equal_those_of_duckdb(twins: Twins) -> None:
    twins.both(
        "CREATE TABLE t (a INTEGER)", *(f"INSERT INTO t SELECT {first} + i FROM range(10) r(i)" for first in (0, 10, 20)),
        "CREATE TABLE u (a INTEGER)", "INSERT INTO u FROM range(100)", "DELETE FROM u WHERE a < 98",
    )  # fmt: skip
    twins.by_duckdb.run("BEGIN")
    with twins.lake.transaction() as tx:
        for statement in COMPACTION:
            found = tx.sql(statement)
            assert found is not None
            assert [tuple(row.values()) for row in found.to_arrow().to_pylist()] == twins.by_duckdb.rows(statement)
            assert sorted(row["a"] for row in tx.table("t").to_arrow().to_pylist()) == list(range(30))
    twins.by_duckdb.run("COMMIT")
    for table in ("t", "u"):
        twins.same(table)
    # DuckDB's feed of a table that it has rewritten has wrong values.
    twins.same_changes("t")
    # Figures of tables are not reduced by a rewrite, because earlier snapshots show the deleted rows.
    twins.same_catalog(apart_from=APART | {"table_stats": (), "table_column_stats": ()})


@pytest.mark.parametrize("change", ["DELETE FROM t WHERE a = 1", "CREATE TABLE v (a INTEGER)", "CALL ducklake_flush_inlined_data('lake')"])
def test_a_transaction_that_merges_makes_no_other_change(small: DuckLake, sqlite_address: LakeAddress, change: str) -> None:
    small.write("inlined", [{"a": 1}], create=True)
    in_files(small)
    before = files(sqlite_address)
    with suppress(ZeroDivisionError), small.transaction() as tx:
        tx.sql(change)
        for statement in COMPACTION:
            with pytest.raises(UsageError, match="cannot contain other changes, except of options"):
                tx.sql(statement)
        raise ZeroDivisionError
    tx = small.transaction().__enter__()
    for statement in (*COMPACTION[::-1], "CALL lake.set_option('target_file_size', '1MB')", change):
        tx.sql(statement)
    assert files(sqlite_address) > before
    with pytest.raises(UsageError, match="cannot contain other changes"):
        tx.__exit__(None, None, None)
    assert files(sqlite_address) == before


def test_a_failed_merge_leaves_the_transaction(small: DuckLake, sqlite_address: LakeAddress) -> None:
    in_files(small)
    with small.transaction() as tx:
        tx.rewrite_data_files("u")
        with pytest.raises(UsageError, match=r"files of main\.u already"):
            tx.merge_adjacent_files()
    assert (tx.result.snapshot, [small.table_info(name).file_count for name in "tu"]) == (small.snapshot(), [3, 1])
    with suppress(ZeroDivisionError), small.transaction() as tx:
        tx.merge_adjacent_files("t")
        raise ZeroDivisionError
    assert not small.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files
    assert not small.check(level="rows").findings


def test_a_merge_and_another_writer(small: DuckLake, sqlite_address: LakeAddress) -> None:
    in_files(small)
    with small.transaction() as tx:
        tx.merge_adjacent_files("t")
        small.write("t", [{"a": 30}])
    assert (sorted(a for _, a in rows(small)), small.table_info("t").file_count) == ([*range(31)], 2)
    small.write("t", [{"a": 31}])
    before = files(sqlite_address)
    tx = small.transaction().__enter__()
    tx.merge_adjacent_files("t")
    with attached(sqlite_address) as duck:
        duck.run("DELETE FROM t WHERE a = 31")
    with pytest.raises(CommitConflictError, match=r"attempting to compact table main\.t"):
        tx.__exit__(None, None, None)
    assert files(sqlite_address) - before <= {path for path in files(sqlite_address) if "delete" in path}
    assert not small.check(level="rows").findings


def test_merged_files_that_are_deleted_before_the_commit(small: DuckLake, sqlite_address: LakeAddress) -> None:
    in_files(small)
    tx = small.transaction().__enter__()
    (merged,) = tx.merge_adjacent_files("t").tables
    assert (merged.files_created, merged.snapshot, merged.snapshots) == (1, None, ())
    small.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0))
    with pytest.raises(StorageError, match="was written, but is missing"):
        tx.__exit__(None, None, None)
    assert len(rows(small)) == 30


@pytest.mark.parametrize("place", ["_change", "_commit"])
def test_an_interrupted_merge_leaves_no_file(
    small: DuckLake, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    in_files(small)
    before = files(sqlite_address)
    monkeypatch.setattr(merge._Merger, place, interrupted)
    with pytest.raises(KeyboardInterrupt), small.transaction() as tx:
        tx.merge_adjacent_files("t")
    assert files(sqlite_address) == before


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_merge_follows_options_of_the_transaction(small: DuckLake) -> None:
    in_files(small)
    with small.transaction() as tx:
        tx.set_option("auto_compact", False, table="t")
        assert [(one.table, one.skipped) for one in tx.merge_adjacent_files("t").tables] == [("main.t", "option auto_compact is false")]
    assert tx.result.snapshot is None


# What is rejected


@pytest.mark.parametrize(
    "statement",
    [
        "CALL ducklake_expire_snapshots('lake', versions => [1])",
        "CHECKPOINT",
        "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    ],
)
def test_what_commits_by_itself_is_rejected(small: DuckLake, statement: str) -> None:
    with small.transaction() as tx, pytest.raises(UnsupportedFeatureError, match=r"commits by itself.*Call it with lake\.sql"):
        tx.sql(statement)


def test_a_repeated_transaction_does_nothing(small: DuckLake) -> None:
    small.write("t", [{"a": 1}], create=True)
    for _ in range(2):
        with small.transaction(commit_id="nightly") as tx:
            tx.append("t", [{"a": 2}])
            tx.flush_inlined_data("t")
            tx.set_option("auto_compact", False, table="t")
    assert (tx.result.repeated, [a for _, a in rows(small)]) == (True, [1, 2])
    in_files(small)
    for _ in range(2):
        with small.transaction(commit_id="compaction") as tx:
            assert len(tx.merge_adjacent_files("t").tables) + len(tx.rewrite_data_files("u").tables) == (0 if tx.repeated else 2)
    assert tx.result.repeated
