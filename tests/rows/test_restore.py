"""Going back to an earlier snapshot: its rows with their row ids, for this library and for the reference, whatever happened in between."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError
from tests.rows.conftest import Twins


def test_rows_and_row_ids_come_back(twins: Twins) -> None:
    duck, lake = twins.ours, twins.lake
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
        # Rows of files that both snapshots have are left alone; others may come back with the values that they had.
        old = {(row[1], *row[3:]) for row in feed if row[2] in ("update_preimage", "delete")}
        new = {(row[1], *row[3:]) for row in feed if row[2] in ("update_postimage", "insert")}
        assert (set(before) - old) | new == set(seen[at])
        assert old <= set(before)
    for at, rows in seen.items():
        assert duck.rows(f"SELECT rowid, * FROM t AT (VERSION => {at}) ORDER BY ALL") == rows
    assert not table.restore(lake.snapshot().id).committed


def test_what_cannot_be_restored_is_refused(twins: Twins) -> None:
    twins.ours.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t FROM range(10)")
    twins.ours.run("ALTER TABLE t ADD COLUMN b INTEGER", "INSERT INTO t VALUES (1, 2)")
    table = twins.lake.table("t")
    with pytest.raises(UnsupportedFeatureError, match="were changed after snapshot 2"):
        table.restore(2)
    for missing in (0, 99):
        with pytest.raises(NotFoundError):
            table.restore(missing)
    assert table.restore(3).rows_deleted == 1
    with twins.lake.transaction() as tx:
        tx.restore("t", at=4)
        twins.lake.table("t").append(pa.table({"a": pa.array([7], pa.int32())}))
    # As if it had begun after the other one.
    assert sorted(twins.ours.rows("FROM t"), key=repr) == sorted([*((a, None) for a in range(10)), (1, 2)], key=repr)
