"""Restored tables have the rows and row ids of the earlier snapshot, for ducklake_core and for DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core.errors import NotFoundError, UsageError
from tests.behaviour.row_changes.conftest import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_and_row_ids_come_back(twins: Twins) -> None:
    duck, lake = twins.own, twins.lake
    duck.run(
        "CREATE TABLE t (a INTEGER, s VARCHAR)",
        "CALL lake.set_option('data_inlining_row_limit', 5)",
        "INSERT INTO t SELECT i, 's' || i FROM range(50) r(i)",
        "INSERT INTO t VALUES (100, NULL), (101, 'inlined')",
        "DELETE FROM t WHERE a < 10",
        "UPDATE t SET s = 'changed' WHERE a IN (20, 101)",
        "INSERT INTO t SELECT i, 'late' FROM range(200, 230) r(i)",
        "DELETE FROM t WHERE a >= 40 AND a < 101",
        "CALL ducklake_flush_inlined_data('lake')",
        "DELETE FROM t WHERE a >= 200",
        "UPDATE t SET a = a + 1000",
        "CALL ducklake_merge_adjacent_files('lake')",
    )
    newest = lake.snapshot().id
    seen = {at: duck.rows(f"SELECT rowid, * FROM t AT (VERSION => {at}) ORDER BY ALL") for at in range(2, newest + 1)}
    table = lake.table("t")
    for at in (5, newest, 3, 9, 4, newest):
        before = duck.rows("SELECT rowid, * FROM t ORDER BY ALL")
        done = table.restore(at)
        assert duck.rows("SELECT rowid, * FROM t ORDER BY ALL") == seen[at]
        mine = lake.table("t").scan(columns=["rowid", "a", "s"]).to_arrow().to_pylist()
        assert sorted(repr(tuple(row.values())) for row in mine) == sorted(map(repr, seen[at]))
        feed = duck.rows(f"FROM ducklake_table_changes('lake', 'main', 't', {done.snapshot_id}, {done.snapshot_id})")
        # Rows of files that both snapshots have are left alone; other rows come back with their earlier values.
        old = {(row[1], *row[3:]) for row in feed if row[2] in ("update_preimage", "delete")}
        new = {(row[1], *row[3:]) for row in feed if row[2] in ("update_postimage", "insert")}
        assert (set(before) - old) | new == set(seen[at])
        assert old <= set(before)
    for at, rows in seen.items():
        assert duck.rows(f"SELECT rowid, * FROM t AT (VERSION => {at}) ORDER BY ALL") == rows
    assert not table.restore(lake.snapshot().id).committed


CHANGES = (
    "CREATE TABLE t (a INTEGER, b VARCHAR, s STRUCT(x INTEGER), d DECIMAL(4,2))",
    "CALL lake.set_option('data_inlining_row_limit', 3)",
    "INSERT INTO t SELECT i, 'b' || i, {'x': i}, i FROM range(20) r(i)",
    "INSERT INTO t VALUES (100, 'inlined', {'x': NULL}, 0.5), (101, NULL, NULL, NULL)",
    "DELETE FROM t WHERE a = 3",
    "ALTER TABLE t DROP COLUMN b",
    "ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5",
    "ALTER TABLE t ALTER a TYPE BIGINT",
    "ALTER TABLE t RENAME a TO k",
    "ALTER TABLE t ADD COLUMN s.y VARCHAR",
)


def changed(twins: Twins) -> None:
    """A table of other columns and rows than at snapshot 4."""
    twins.own.run(*CHANGES)
    # DuckDB itself forgets the bounds of older rows when it adds rows to such a table.
    types = pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("c", pa.int32())])
    late = [{"k": 3_000_000_000 + n, "s": {"x": n, "y": "new"}, "c": 7} for n in range(10)]
    twins.lake.table("t").append(pa.Table.from_pylist(late, schema=types), missing_columns="null")
    last = pa.Table.from_pylist([{"k": 99999999999, "s": None, "c": None}], schema=types)
    twins.lake.table("t").append(last, missing_columns="null")
    twins.own.run("DELETE FROM t WHERE k < 10 OR k = 100 OR k = 3000000001", "UPDATE t SET c = 9 WHERE k = 15")


def test_columns_come_back(twins: Twins) -> None:
    duck, lake = twins.own, twins.lake
    changed(twins)
    late = duck.rows("SELECT rowid, * FROM t ORDER BY ALL")
    newest = lake.snapshot().id
    then = duck.rows("SELECT rowid, * FROM t AT (VERSION => 4) ORDER BY ALL")
    assert len(then) == 21
    table = lake.table("t")
    assert table.restore(4, columns="then").rows_deleted > 0
    assert lake.table("t").schema.names == ("a", "b", "s", "d")

    def same(rows: list[tuple[object, ...]]) -> None:
        names = ["rowid", *lake.table("t").schema.names]
        assert duck.rows("SELECT rowid, * FROM t ORDER BY ALL") == rows
        mine = lake.table("t").scan(columns=names).to_arrow().to_pylist()
        assert sorted(repr(tuple(row.values())) for row in mine) == sorted(map(repr, rows))

    same(then)
    # Bounds of what came in between do not keep DuckDB from reading or adding.
    duck.run("INSERT INTO t VALUES (7, 'seven', {'x': 7}, 7)", "INSERT INTO t SELECT 8, 'b8', NULL, 8 FROM range(5)")
    assert duck.rows("SELECT count(*), count(b), sum(a) FROM t WHERE a BETWEEN 7 AND 8") == [(8, 8, 62)]
    assert duck.rows("SELECT count(*) FROM t WHERE b = 'b8' AND d = 8") == [(6,)]
    table.restore(4)
    same(then)
    table.restore(newest, columns="then")
    assert lake.table("t").schema.names == ("k", "s", "d", "c")
    same(late)


def test_rows_come_back_into_the_columns_of_today(twins: Twins) -> None:
    duck, lake = twins.own, twins.lake
    changed(twins)
    names = lake.table("t").schema.names
    lake.table("t").restore(4, columns="now")
    assert lake.table("t").schema.names == names
    duck.run("CREATE TABLE memory.wanted AS SELECT a AS k, s, d FROM t AT (VERSION => 4)")
    found = duck.rows("SELECT k, s.x, s.y, d, c FROM t ORDER BY k")
    assert found == duck.rows("SELECT k, s.x, NULL, d, 5 FROM memory.wanted ORDER BY k")


@pytest.mark.slow
def test_on_spark(twins: Twins, spark: SparkSession) -> None:
    duck, lake = twins.own, twins.lake
    changed(twins)
    then = duck.rows("SELECT rowid, * FROM t AT (VERSION => 4) ORDER BY ALL")
    late = duck.rows("SELECT rowid, * FROM t ORDER BY ALL")
    newest = lake.snapshot().id
    lake.table("t").restore(4, columns="then", spark=spark)
    assert duck.rows("SELECT rowid, * FROM t ORDER BY ALL") == then
    lake.table("t").restore(newest, columns="then", spark=spark)
    assert duck.rows("SELECT rowid, * FROM t ORDER BY ALL") == late


def test_impossible_restores_raise(twins: Twins) -> None:
    twins.own.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t FROM range(10)")
    twins.own.run("ALTER TABLE t ADD COLUMN b INTEGER", "INSERT INTO t VALUES (1, 2)")
    table = twins.lake.table("t")
    with pytest.raises(UsageError, match="were changed after snapshot 2"):
        table.restore(2)
    with pytest.raises(UsageError, match="'now' or 'then'"):
        table.restore(2, columns="both")  # type: ignore[arg-type]
    table.set_partitioned_by(["b"])
    with pytest.raises(UsageError, match="partitioned by 'b', which it did not have at that snapshot"):
        table.restore(2, columns="then")
    table.reset_partitioned_by()
    for missing in (0, 99):
        with pytest.raises(NotFoundError):
            table.restore(missing)
    assert table.restore(3, columns="now").rows_deleted == 1
    with twins.lake.transaction() as tx:
        tx.restore("t", at=4)
        twins.lake.table("t").append(pa.table({"a": pa.array([7], pa.int32())}), missing_columns="null")
    # As if it had begun after the other one.
    assert sorted(twins.own.rows("FROM t"), key=repr) == sorted([*((a, None) for a in range(10)), (1, 2)], key=repr)
