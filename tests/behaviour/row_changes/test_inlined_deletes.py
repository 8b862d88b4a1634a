"""Few rows of a data file are deleted through the catalog, as DuckDB does it, and it carries on from there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError
from tests.behaviour.row_changes.conftest import Twins
from tests.support.oracle import LakeAddress, Oracle, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = (
    "CALL lake.set_option('data_inlining_row_limit', 10)",
    "CREATE TABLE t (a INTEGER, g VARCHAR)",
    "INSERT INTO t SELECT i, 'g' || i % 5 FROM range(100) r(i)",
    "INSERT INTO t SELECT i, NULL FROM range(100, 160) r(i)",
)
# ducklake_core logs two entries: DuckDB's compaction checks only one of them, and would bring the rows back.
CHANGES = {"snapshot_changes": ["changes_made"]}
POSITIONS = "SELECT file_id, row_id, begin_snapshot FROM __ducklake_metadata_lake.ducklake_inlined_delete_1"


def test_deletes_of_few_rows_equal_those_of_duckdb(twins: Twins) -> None:
    twins.both(*TABLE)
    statements = (
        "a < 4 OR a BETWEEN 100 AND 109",  # two files, ten rows of one of them
        "a BETWEEN 20 AND 30",  # a delete file: eleven rows
        "a BETWEEN 3 AND 6 OR a = 31 OR a BETWEEN 110 AND 125",  # both, one file each
        "a = 1",  # nothing: no snapshot
        "a BETWEEN 40 AND 60",  # the delete file grows; what the catalog hides stays out of it
    )
    deleted = []
    for where in statements:
        deleted.append(twins.lake.table("t").delete(where).rows_deleted)
        if where != "a = 1":
            twins.by_duckdb.run(f"DELETE FROM t WHERE {where}")
        twins.same("t")
    assert deleted == [14, 11, 20, 0, 21]
    twins.rows(POSITIONS)
    twins.same_changes("t")
    twins.same_catalog(apart_from=CHANGES)
    assert twins.lake.table_info("t").row_count == 160 - sum(deleted)
    twins.both("CALL ducklake_flush_inlined_data('lake')")
    twins.same("t")
    twins.same_changes("t", end=7)
    for version in range(2, 8):
        twins.rows(f"SELECT * FROM t AT (VERSION => {version})")
    assert twins.rows(POSITIONS) == []
    # And on from delete files that flushing has made.
    twins.lake.table("t").delete("a IN (99, 159)")
    twins.by_duckdb.run("DELETE FROM t WHERE a IN (99, 159)")
    twins.both("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)", "CALL ducklake_merge_adjacent_files('lake')")
    twins.same("t")


def test_updates_of_few_rows_write_no_file(twins: Twins) -> None:
    twins.both(*TABLE)
    before = set(twins.lake.storage.list(twins.own.address.data_path))
    done = twins.lake.table("t").update({"g": "'new'"}, where="a < 5 OR a IN (100, 159)")
    twins.by_duckdb.run("UPDATE t SET g = 'new' WHERE a < 5 OR a IN (100, 159)")
    assert (done.rows_updated, done.rows_deleted, done.delete_files_added, done.files_added) == (7, 0, 0, 0)
    assert set(twins.lake.storage.list(twins.own.address.data_path)) == before
    twins.rows(POSITIONS)
    twins.same("t")
    twins.same_changes("t")
    twins.same_catalog(apart_from=CHANGES)
    source = pa.table({"a": pa.array([3, 50, 500], pa.int32()), "g": ["m3", "m50", "m500"]})
    twins.lake.table("t").merge(source, on=["a"]).when_matched_update("all").when_not_matched_insert("all").execute()
    listed = "VALUES (3, 'm3'), (50, 'm50'), (500, 'm500')"
    twins.by_duckdb.run(
        f"MERGE INTO t USING ({listed}) s(a, g) ON t.a = s.a WHEN MATCHED THEN UPDATE SET g = s.g WHEN NOT MATCHED THEN INSERT"
    )
    twins.rows(POSITIONS)
    twins.rows("SELECT * FROM t")


def test_the_option_of_the_table_decides(twins: Twins) -> None:
    twins.both(*TABLE, "CALL lake.set_option('data_inlining_row_limit', 0, table_name => 't')")
    assert twins.lake.table("t").delete("a = 1").delete_files_added == 1
    twins.both("CALL lake.set_option('data_inlining_row_limit', 2, table_name => 't')")
    assert twins.lake.table("t").delete("a IN (2, 3)").delete_files_added == 0
    assert twins.lake.table("t").delete("a IN (4, 5, 6)").delete_files_added == 1
    assert twins.own.value("SELECT count(*) FROM t") == 154


def test_a_file_of_which_no_row_is_left_ends(twins: Twins) -> None:
    """DuckDB keeps it, with all of its rows deleted."""
    twins.both(*TABLE)
    lake, table = twins.lake, twins.lake.table("t")
    table.delete("a < 8")
    done = table.delete("a < 100")
    assert (done.files_removed, done.delete_files_added, done.rows_deleted) == (1, 0, 92)
    twins.own.run("CALL ducklake_flush_inlined_data('lake')")
    found = [twins.own.value(f"SELECT count(*) FROM t AT (VERSION => {n})") for n in range(3, 7)]
    assert found == [160, 152, 60, 60] == [lake.table("t", at=n).scan().count() for n in range(3, 7)]


@pytest.mark.parametrize("own_first", [True, False])
@pytest.mark.parametrize("own_inlined", [True, False])
def test_two_deletes_meet_in_one_file(twins: Twins, own_first: bool, own_inlined: bool) -> None:
    """In one file, the second delete plans again or fails; in two files both commit."""
    twins.both(*TABLE)
    lake = twins.lake
    where = "a IN (1, 2)" if own_inlined else "a IN (1, 2) OR a BETWEEN 50 AND 80"
    mine = 2 if own_inlined else 33
    if own_first:
        with _other_session(twins) as second:
            second.run("BEGIN", "DELETE FROM t WHERE a IN (2, 3)")
            lake.table("t").delete(where)
            with pytest.raises(duckdb.Error, match="conflict"):
                second.run("COMMIT")
    else:
        with lake.transaction() as tx:
            tx.delete("t", where)
            twins.own.run("DELETE FROM t WHERE a IN (2, 3)", "DELETE FROM t WHERE a = 101")
        assert tx.result.writes[0].rows_deleted == mine - 1
        assert tx.result.writes[0].attempts == 2
    removed = mine + (0 if own_first else 2)
    assert twins.own.rows("SELECT count(rowid), count(DISTINCT rowid) FROM t") == [(160 - removed, 160 - removed)]
    assert lake.table_info("t").row_count == lake.table("t").scan().count() == 160 - removed


def test_deletes_of_other_files_are_no_conflict(twins: Twins) -> None:
    twins.both(*TABLE)
    lake = twins.lake
    with lake.transaction() as tx:
        tx.delete("t", "a = 1")
        # Both were planned and checked already: only the commit is repeated.
        before = set(lake.storage.list(twins.own.address.data_path))
        twins.own.run("DELETE FROM t WHERE a = 101")
        lake.table("t").delete("a BETWEEN 110 AND 150")
    assert tx.result.writes[0].rows_deleted == 1
    assert len(set(lake.storage.list(twins.own.address.data_path)) - before) == 1
    assert twins.own.value("SELECT count(*) FROM t") == 160 - 43


# On SQLite an open transaction of DuckDB locks the file.
@pytest.mark.parametrize("twins", ["postgresql"], indirect=True)
@pytest.mark.parametrize("call", ["ducklake_merge_adjacent_files", "ducklake_rewrite_data_files"])
def test_compaction_by_duckdb_brings_no_rows_back(twins: Twins, call: str) -> None:
    """Between deletes of its own it does."""
    twins.both(*TABLE)
    twins.own.run("DELETE FROM t WHERE a < 99" if "rewrite" in call else "SELECT 1")
    before = twins.own.value("SELECT count(*) FROM t")
    with _other_session(twins) as second:
        second.run("BEGIN", f"CALL {call}('lake')")
        twins.lake.table("t").delete("a IN (99, 100)")
        with pytest.raises(duckdb.Error, match="conflict"):
            second.run("COMMIT")
    assert twins.own.value("SELECT count(*) FROM t") == before - 2
    # In the other order the delete is planned again, on the new files.
    with twins.lake.transaction() as tx:
        tx.delete("t", "a = 101")
        twins.own.run(f"CALL {call}('lake')")
    assert twins.own.value("SELECT count(*) FROM t") == before - 3 == twins.lake.table("t").scan().count()


def test_a_plan_that_compaction_makes_void(twins: Twins) -> None:
    twins.both(*TABLE)
    lake = twins.lake
    tx = lake.transaction()
    tx.__enter__()
    tx.delete("t", "a = 1")
    lake.drop_table("t")
    with pytest.raises(CommitConflictError, match="dropped it"):
        tx.__exit__(None, None, None)
    assert "t" not in [table.name for table in lake.tables()]


@pytest.mark.slow
def test_on_spark(small: DuckLake, sqlite_address: LakeAddress, spark: SparkSession) -> None:
    for start in (0, 100, 200):
        small.write("t", pa.table({"k": list(range(start, start + 100)), "v": ["x"] * 100}))
    table = small.table("t")
    files = table.delete("k IN (1, 2, 101) OR k BETWEEN 210 AND 250", spark=spark)
    assert (files.rows_deleted, files.delete_files_added) == (44, 1)
    table.update({"v": "reverse(concat(v, 'y'))"}, where="k IN (3, 103)", spark=spark)
    merge = table.merge(spark.createDataFrame([(4, "s4"), (900, "s900")], "k long, v string"), on=["k"])
    merged = merge.when_matched_update("all").when_not_matched_insert("all").execute()
    assert (merged.rows_updated, merged.rows_added, merged.delete_files_added) == (1, 1, 0)
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM t") == [(257, 257)]
        assert duck.rows("SELECT k, v FROM t WHERE v <> 'x' ORDER BY k") == [(3, "yx"), (4, "s4"), (103, "yx"), (900, "s900")]
        assert duck.value(f"SELECT count(*) FROM ({POSITIONS})") == 6
    read = small.table("t").scan(columns=["k"]).to_spark(spark).collect()
    assert {row["k"] for row in read} == set(range(300)) - {1, 2, 101} - set(range(210, 251)) | {900}


def _other_session(twins: Twins) -> AbstractContextManager[Oracle]:

    return attached(twins.own.address)
