"""Merges in this process: the rows and changes of DuckDB's own MERGE INTO on the same data."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from tests.behaviour.row_changes.conftest import Twins
from tests.support.parameters import slow

on_postgresql = pytest.mark.parametrize("twins", ["postgresql", slow("sqlite")], indirect=True)


TABLE = (
    "CREATE TABLE t (k INTEGER, g VARCHAR, v DOUBLE, day DATE DEFAULT '1969-07-20')",
    "INSERT INTO t SELECT i, 'g' || i % 3, i, DATE '1969-12-30' + i::INTEGER FROM range(20) r(i)",
    "INSERT INTO t VALUES (NULL, 'null', 0, NULL), (100, 'a,''b\"', 'nan', NULL), (101, 'x', -0.0, NULL)",
)
SOURCE = pa.table(
    {
        "k": pa.array([1, 2, 3, 50, None, 100, 4_000_000_000], pa.int64()),
        "g": ["g1", "new", None, "fifty", "null", "it's", "big"],
        "v": pa.array([10.0, float("nan"), None, 5.0, 6.0, 7.0, 8.0]),
    }
)


@on_postgresql
def test_branches_equal_those_of_duckdb(twins: Twins) -> None:
    twins.both(*TABLE)
    source = SOURCE.slice(0, 6)
    plain_table(twins, source)
    done = (
        twins.lake.table("t")
        .merge(source, on="t.k = s.k")
        .when_matched_delete(where="s.v IS NULL")
        .when_matched_update({"v": "s.v + t.v", "g": "coalesce(s.g, t.g) || '!'"}, where="s.v > t.v")
        .when_matched_update("all", where="s.k = 100")
        .when_not_matched_insert({"k": "s.k", "g": "upper(s.g)"}, where="s.g <> 'null'")
        .execute()
    )
    twins.by_duckdb.run(
        "MERGE INTO plain.t USING s ON (t.k = s.k) WHEN MATCHED AND s.v IS NULL THEN DELETE "
        "WHEN MATCHED AND s.v > t.v THEN UPDATE SET v = s.v + t.v, g = coalesce(s.g, t.g) || '!' "
        "WHEN MATCHED AND s.k = 100 THEN UPDATE SET k = s.k, g = s.g, v = s.v "
        "WHEN NOT MATCHED AND s.g <> 'null' THEN INSERT (k, g) VALUES (s.k, upper(s.g))"
    )
    assert (done.rows_updated, done.rows_deleted, done.rows_added) == (3, 1, 1)
    same_as_plain(twins)
    assert twins.own.rows("SELECT day FROM t WHERE k = 50") == [(date(1969, 7, 20),)]
    feed = f"ducklake_table_changes('lake', 'main', 't', {done.snapshot_id}, {done.snapshot_id})"
    assert dict(twins.own.rows(f"SELECT change_type, count(*) FROM {feed} GROUP BY ALL")) == {
        "update_preimage": 3,
        "update_postimage": 3,
        "delete": 1,
        "insert": 1,
    }


def plain_table(twins: Twins, source: pa.Table) -> None:
    """The table once more outside of any lake, where DuckDB allows several branches."""
    twins.by_duckdb.connection.register("s", source)
    twins.by_duckdb.run(
        "ATTACH ':memory:' AS plain",
        "CREATE TABLE plain.t AS SELECT rowid AS id, * FROM t",
        "ALTER TABLE plain.t ALTER day SET DEFAULT '1969-07-20'",
    )


def same_as_plain(twins: Twins) -> None:
    """The rows of the plain table, and row ids that are the same for the rows that were there before."""
    expected = twins.by_duckdb.rows("FROM plain.t")
    found = twins.own.rows("SELECT CASE WHEN rowid < 23 THEN rowid END, * FROM t")
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    mine = twins.lake.table("t").scan().to_arrow().to_pylist()
    assert sorted(repr(tuple(row.values())) for row in mine) == sorted(repr(row[1:]) for row in expected)


def test_one_branch_makes_the_catalog_of_duckdb(twins: Twins) -> None:
    twins.both(*TABLE)
    source = SOURCE.slice(0, 4)
    twins.by_duckdb.connection.register("s", source)
    twins.lake.table("t").merge(source, on=["k"]).when_matched_update({"v": "s.v", "g": "s.g"}).execute()
    twins.by_duckdb.run("MERGE INTO t USING s ON (t.k = s.k) WHEN MATCHED THEN UPDATE SET v = s.v, g = s.g")
    twins.same("t")
    twins.same_changes("t")


def test_rows_without_a_source(twins: Twins) -> None:
    twins.both(*TABLE)
    source = pa.table({"key": [5, 6, 7], "name": ["g2", "g0", "other"]})
    plain_table(twins, source)
    merge = (
        twins.lake.table("t")
        .merge(source, on="t.k = s.key AND t.g = s.name AND s.key + 1 < t.v + 2")
        .when_matched_update({"v": "s.key * 100"})
        .when_not_matched_by_source_delete(where="k < 5")
        .when_not_matched_by_source_update({"g": "'left'"}, where="k < 10 OR k IS NULL")
        .when_not_matched_insert({"k": "s.key + 1000", "g": "s.name", "v": 0.5, "day": "DATE '2020-01-01'"})
    )
    done = merge.execute()
    twins.by_duckdb.run(
        "MERGE INTO plain.t USING s ON (t.k = s.key AND t.g = s.name AND s.key + 1 < t.v + 2) WHEN MATCHED THEN UPDATE SET v = s.key * 100 "
        "WHEN NOT MATCHED BY SOURCE AND k < 5 THEN DELETE WHEN NOT MATCHED BY SOURCE AND (k < 10 OR k IS NULL) THEN UPDATE SET g = 'left' "
        "WHEN NOT MATCHED THEN INSERT (k, g, v, day) VALUES (s.key + 1000, s.name, 0.5, DATE '2020-01-01')"
    )
    assert (done.rows_deleted, done.rows_added, done.files_removed) == (5, 1, 0)
    same_as_plain(twins)
    with pytest.raises(UsageError, match="has already run"):
        merge.execute()


def test_keys_match_as_sql_compares(twins: Twins) -> None:
    twins.both(*TABLE)
    source = pa.table({"v": [float("nan"), 0.0, None], "n": ["nan", "zero", "null"]})
    twins.both("DELETE FROM t WHERE g = 'null' OR k = 0")
    twins.lake.table("t").merge(source, on=["v"]).when_matched_update({"g": "n"}).execute()
    assert sorted(twins.own.rows("SELECT k, g FROM t WHERE g IN ('nan', 'zero', 'null')")) == [(100, "nan"), (101, "zero")]
    before = twins.lake.snapshot().id
    empty = twins.lake.table("t").merge(source.slice(0, 0), on=["v"]).when_matched_delete().when_not_matched_insert({"v": "s.v"}).execute()
    assert (empty.committed, twins.lake.snapshot().id) == (False, before)


@pytest.mark.parametrize(
    ("on", "branch", "error", "message"),
    [
        (["k"], lambda m: m, UsageError, "has no action"),
        ("t.v < s.v", lambda m: m.when_matched_delete(), UnsupportedFeatureError, "equality"),
        (["missing"], lambda m: m.when_matched_delete(), NotFoundError, "missing"),
        (
            "t.g = s.k",
            lambda m: m.when_matched_delete(),
            UnsupportedFeatureError,
            r"column .g. of type varchar cannot be compared with column .k. of type int64 of the source",
        ),
        (["k"], lambda m: m.when_matched_update({"v": "v"}), UsageError, "is ambiguous"),
        (["k"], lambda m: m.when_matched_delete().when_matched_update(), UsageError, "never used"),
        (["k"], lambda m: m.when_not_matched_insert(), SchemaError, "k"),
        (["g"], lambda m: m.when_not_matched_insert({"g": "s.g"}, where="s.g = '-'"), UsageError, "more than one row"),
    ],
)
def test_rejected_merges_leave_nothing(twins: Twins, on: object, branch: object, error: type[Exception], message: str) -> None:
    twins.both(*TABLE, "INSERT INTO t VALUES (1000, 'dup', 1, NULL)")
    source = pa.concat_tables([SOURCE, pa.table({"k": [2001, 2002], "g": ["dup", "dup"], "v": [0.0, 0.0]})])
    before, files = twins.lake.snapshot().id, set(twins.lake.storage.list(twins.own.address.data_path))
    with pytest.raises(error, match=message):
        branch(twins.lake.table("t").merge(source, on=on)).execute()  # type: ignore[operator]
    assert twins.lake.snapshot().id == before
    assert set(twins.lake.storage.list(twins.own.address.data_path)) == files


def test_a_merge_meets_other_writers(twins: Twins) -> None:
    twins.both(*TABLE)
    lake = twins.lake
    source = pa.table({"k": pa.array([1, 500], pa.int32()), "g": ["one", "five hundred"]})
    with lake.transaction() as tx:
        tx.merge("t", source, on=["k"], missing_columns="null").when_matched_update().when_not_matched_insert().execute()
        lake.table("t").append(pa.table({"k": pa.array([500], pa.int32()), "g": ["duckdb"]}), missing_columns="null")
    assert (tx.result.writes[0].rows_updated, tx.result.writes[0].rows_added) == (2, 0)
    assert twins.own.rows("SELECT k, g FROM t WHERE k IN (1, 500) ORDER BY k") == [(1, "one"), (500, "five hundred")]
    live = {file.path for file in lake.table("t").list_files()} | {d.path for f in lake.table("t").list_files() for d in f.delete_files}
    stored = {file.path for file in lake.storage.list(twins.own.address.data_path)}
    # Nothing is left of the first plan; the file that the other one appended has ended.
    assert live <= stored
    assert len(stored - live) == tx.result.writes[0].files_removed == 1


def test_few_rows_go_into_the_catalog(twins: Twins) -> None:
    twins.both(*TABLE, "CALL lake.set_option('data_inlining_row_limit', 3)")
    source = pa.table({"k": pa.array([1, 2, 500, 501], pa.int32()), "g": ["a", "b", "c", "d"]})
    twins.by_duckdb.connection.register("s", source)
    merge = twins.lake.table("t").merge(source, on=["k"], missing_columns="null")
    done = merge.when_matched_update().when_not_matched_insert().execute()
    assert (done.rows_updated, done.rows_added, done.rows_inlined, done.files_added) == (2, 2, 4, 0)
    twins.by_duckdb.run(
        "MERGE INTO t USING s ON (t.k = s.k) WHEN MATCHED THEN UPDATE SET g = s.g WHEN NOT MATCHED THEN INSERT (k, g) VALUES (k, g)"
    )
    twins.rows("FROM t")
    twins.rows("SELECT rowid, * FROM t WHERE rowid < 23")
    done = twins.lake.table("t").update({"v": "k * 1000"}, where="k IN (1, 3, 500)")
    twins.by_duckdb.run("UPDATE t SET v = k * 1000 WHERE k IN (1, 3, 500)")
    assert (done.rows_updated, done.rows_inlined) == (3, 3)
    done = twins.lake.table("t").update({"v": "0"}, where="k < 10")
    twins.by_duckdb.run("UPDATE t SET v = 0 WHERE k < 10")
    assert (done.rows_inlined, done.files_added) == (0, 1)
    twins.rows("SELECT rowid, * FROM t WHERE rowid < 23")
    twins.rows("SELECT snapshot_id, change_type, k, g, v FROM ducklake_table_changes('lake', 'main', 't', 1, 6)")
    twins.both("CALL ducklake_flush_inlined_data('lake')")
    twins.rows("SELECT rowid, * FROM t WHERE rowid < 23")
    mine = twins.lake.table("t").scan().to_arrow().to_pylist()
    assert sorted(repr(tuple(row.values())) for row in mine) == sorted(map(repr, twins.own.rows("FROM t")))
