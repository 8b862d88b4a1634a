"""Files that a rewrite made, merged with rows that came after it, or that are older and were flushed after it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from ducklake_core.format.files.data_files import SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD_ID
from ducklake_core.lake import DuckLake
from tests.behaviour.maintenance.lakes import FILES_ONLY, change_feeds, readings
from tests.support.oracle import LakeAddress, attached


def _write(address: LakeAddress) -> None:
    """A file that a rewrite made of rows of several snapshots, and one of a row that was inlined before the rewrite."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 4") as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER)",
            "INSERT INTO t SELECT range FROM range(8)",
            "INSERT INTO t VALUES (100)",
            "INSERT INTO t VALUES (101)",
            "CALL ducklake_flush_inlined_data('lake')",
            "DELETE FROM t WHERE a < 5",
            "DELETE FROM t WHERE a = 100",
            "INSERT INTO t VALUES (102)",
        )
    lake = DuckLake.connect(address.url)
    assert lake.rewrite_data_files(delete_threshold=0.1).files_rewritten == 2
    assert lake.flush_inlined_data().rows_flushed == 1
    lake.close()


def _store_snapshots(address: LakeAddress) -> None:
    """Makes the rewritten file what this library wrote before: with the snapshots that its rows were of."""
    lake = DuckLake.connect(address.url)
    files = lake.database.tables["data_file"]
    with lake.database.write() as connection:
        made = connection.execute(select(files).where(files.c.partial_max.is_(None), files.c.end_snapshot.is_(None))).one()
        path = Path(address.data_path) / "main" / "t" / made.path
        rows = pq.read_table(path)
        added = pa.field(SNAPSHOT_ID_COLUMN, pa.int64(), metadata={"PARQUET:field_id": str(SNAPSHOT_ID_FIELD_ID)})
        pq.write_table(rows.append_column(added, pa.array([2] * (len(rows) - 1) + [4], pa.int64())), path)
        footer = int.from_bytes(path.read_bytes()[-8:-4], "little")
        sizes = {"file_size_bytes": path.stat().st_size, "footer_size": footer}
        connection.execute(files.update().where(files.c.data_file_id == made.data_file_id).values(sizes))
    lake.close()


@pytest.mark.parametrize("merger", ["own", "DuckDB's"])
def test_the_rows_are_of_the_rewrite(sqlite_address: LakeAddress, merger: str) -> None:
    _write(sqlite_address)
    before, reported = readings(sqlite_address), change_feeds(sqlite_address)
    _merge(sqlite_address, merger)
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert change_feeds(sqlite_address) == reported


def test_so_they_are_where_an_earlier_version_has_stored_other_snapshots(sqlite_address: LakeAddress) -> None:
    _write(sqlite_address)
    _store_snapshots(sqlite_address)
    before, reported = readings(sqlite_address), change_feeds(sqlite_address)
    _merge(sqlite_address)
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert change_feeds(sqlite_address) == reported


@pytest.mark.parametrize("merger", ["own", "DuckDB's"])
def test_rows_added_after_the_rewrite_are_reported(sqlite_address: LakeAddress, merger: str) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t SELECT range FROM range(20)", "DELETE FROM t WHERE a < 10")
    lake = DuckLake.connect(sqlite_address.url)
    seen = lake.snapshot().id
    lake.rewrite_data_files(delete_threshold=0.1)
    lake.table("t").append(pa.table({"a": [100, 101]}), inline=False)
    newest = lake.snapshot().id
    reported = change_feeds(sqlite_address)
    lake.close()
    _merge(sqlite_address, merger)
    assert change_feeds(sqlite_address) == reported
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.table("t").changes(seen + 1, newest).to_arrow()["a"].to_pylist() == [100, 101]
    (changed,) = lake.changed_tables(seen).tables
    assert [(rows.change, rows.first_snapshot, rows.last_snapshot) for rows in changed.rows] == [("added", newest, newest)]
    lake.close()


@pytest.mark.parametrize("merger", ["own", "DuckDB's"])
def test_rows_from_before_the_rewrite_are_not_reported(sqlite_address: LakeAddress, merger: str) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1), (2)", "INSERT INTO t SELECT range FROM range(20)")
        duck.run("DELETE FROM t WHERE a > 9")
    lake = DuckLake.connect(sqlite_address.url)
    seen = lake.snapshot().id
    # With a budget the other file does not join.
    assert lake.rewrite_data_files(delete_threshold=0.1, max_files=5).files_rewritten == 1
    lake.close()
    _merge(sqlite_address, merger)
    lake = DuckLake.connect(sqlite_address.url)
    assert len(lake.table("t").list_files()) == 1
    assert lake.table("t").changes(seen + 1).to_arrow().num_rows == 0
    assert [changed.rows for changed in lake.changed_tables(seen).tables] == [()]
    lake.close()


@pytest.mark.parametrize("merger", ["own", "DuckDB's"])
@pytest.mark.parametrize("written", ["t", "other"])
def test_the_log_distinguishes_rows_between_older_ones_and_a_rewrite(sqlite_address: LakeAddress, merger: str, written: str) -> None:
    """After a merge one file has all rows, and the catalog has only its first snapshot before the range and that of the rewrite."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1), (2)", "INSERT INTO t SELECT range FROM range(20)")
        duck.run("DELETE FROM t WHERE a > 9", "CREATE TABLE other (a INTEGER)")
    lake = DuckLake.connect(sqlite_address.url)
    seen = lake.snapshot().id
    lake.table(written).append(pa.table({"a": [100, 101]}), inline=False)
    newest = lake.snapshot().id
    assert lake.rewrite_data_files("t", delete_threshold=0.1, max_files=5).files_rewritten == 1
    lake.close()
    _merge(sqlite_address, merger)
    lake = DuckLake.connect(sqlite_address.url)
    assert len(lake.table("t").list_files()) == 1
    changed = {found.name: found.rows for found in lake.changed_tables(seen).tables}
    reported = [(rows.change, rows.first_snapshot, rows.last_snapshot) for rows in changed.get("main.t", ())]
    assert reported == ([("added", newest, newest)] if written == "t" else [])
    assert lake.table("t").changes(seen + 1).to_arrow().num_rows == (2 if written == "t" else 0)
    lake.close()


def _merge(address: LakeAddress, merger: str = "own") -> None:
    if merger != "own":
        with attached(address) as duck:
            duck.run("CALL ducklake_merge_adjacent_files('lake')")
        return
    with DuckLake.connect(address.url) as lake:
        assert lake.merge_adjacent_files().files_merged >= 2


def test_clustered_files_with_which_later_rows_were_merged_are_clustered_again(sqlite_address: LakeAddress) -> None:
    rows = "SELECT (range * 7919) % 1000 AS a, md5(range::VARCHAR) AS s"
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER, s VARCHAR)", "CALL lake.set_option('target_file_size', '20KB')")
        duck.run(*(f"INSERT INTO t {rows} FROM range({n}, {n + 450})" for n in (0, 500, 1000, 1500)))
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.rewrite_data_files("t", cluster_by=["a"]).files_rewritten == 4
    assert lake.rewrite_data_files("t", cluster_by=["a"], dry_run=True).files_rewritten == 0
    lake.close()
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run(*(f"INSERT INTO t {rows} FROM range({n}, {n + 100})" for n in (0, 500, 1000)))
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.merge_adjacent_files().files_merged == 4
    assert lake.rewrite_data_files("t", cluster_by=["a"], dry_run=True).files_rewritten == 2
    lake.close()
