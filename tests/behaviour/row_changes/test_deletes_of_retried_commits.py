"""Deletes of a DuckDB commit that other commits overtook: the delete file claims the snapshot of the first attempt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow

# DuckDB works on a copy of catalogs in MySQL, where a transaction cannot stay open during other commits.
pytestmark = pytest.mark.parametrize("lake_address", [slow("sqlite"), "postgresql"], indirect=True)


@pytest.fixture
def overtaken(lake_address: LakeAddress) -> tuple[DuckLake, int]:
    """A table of rows 0 to 9 without row 0, and without row 1 from the snapshot after the one that the delete file claims."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    lake.write("other", pa.table({"y": [0]}))
    lake.write("t", pa.table({"x": list(range(10))}), inline=False)
    lake.set_option("data_inlining_row_limit", 0)
    with attached(lake_address) as duck:
        duck.run("DELETE FROM lake.t WHERE x = 0")
        duck.run("BEGIN", "DELETE FROM lake.t WHERE x = 1")
        lake.table("other").append(pa.table({"y": [1]}), inline=False)
        duck.run("COMMIT")
    return lake, lake.snapshot().id - 1


def _rows(lake: DuckLake, at: int) -> list[int]:
    return sorted(lake.table("t", at=at).scan().to_arrow().column("x").to_pylist())


def test_reads_follow_the_commit_that_deleted(overtaken: tuple[DuckLake, int]) -> None:
    lake, claimed = overtaken
    assert _rows(lake, claimed) == list(range(1, 10))
    assert _rows(lake, claimed + 1) == list(range(2, 10))
    assert lake.table("t", at=claimed).count() == lake.at(claimed).table_info("t").row_count == 9
    feed = lake.table("t").deletions(claimed - 1, claimed + 1).to_arrow().to_pylist()
    assert sorted((row["x"], row["snapshot_id"]) for row in feed) == [(0, claimed - 1), (1, claimed + 1)]
    assert lake.table("t").deletions(claimed, claimed).to_arrow().num_rows == 0
    assert lake.table("t").deletions(claimed + 1, claimed + 1).to_arrow()["x"].to_pylist() == [1]
    lake.table("t").restore(claimed)
    assert _rows(lake, lake.snapshot().id) == list(range(1, 10))


@pytest.mark.parametrize("change", ["delete", "flush", "rewrite"])
def test_later_changes_keep_the_snapshot_of_the_commit(overtaken: tuple[DuckLake, int], change: str) -> None:
    """Operations that copy the deletes into another file write the snapshot that committed them."""
    lake, claimed = overtaken
    if change == "delete":
        lake.table("t").delete("x = 2")
    elif change == "flush":
        lake.unset_option("data_inlining_row_limit")
        lake.table("t").delete("x = 2")
        lake.flush_inlined_data()
    else:
        lake.rewrite_data_files(delete_threshold=0)
    assert _rows(lake, claimed) == list(range(1, 10))
    assert _rows(lake, claimed + 1) == list(range(2, 10))


def test_a_flush_of_duckdb_keeps_the_snapshot_of_the_commit(lake: DuckLake, lake_address: LakeAddress) -> None:
    """The flush copies the deletes of the file, whose newest ones claim a snapshot that deleted nothing, with older inlined ones."""
    lake.write("other", pa.table({"y": [0]}))
    lake.write("t", pa.table({"x": list(range(10))}), inline=False)
    with attached(lake_address) as duck:
        for limit, row in ((0, 0), (10, 3), (0, 1)):
            duck.run(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "BEGIN", f"DELETE FROM lake.t WHERE x = {row}")
            if row == 1:
                lake.table("other").append(pa.table({"y": [1]}), inline=False)
            duck.run("COMMIT")
        claimed = lake.snapshot().id - 1
        duck.run("CALL ducklake_flush_inlined_data('lake')")
    assert _rows(lake, claimed) == [1, 2, *range(4, 10)]
    assert _rows(lake, claimed + 1) == [2, *range(4, 10)]
    assert lake.snapshot().id > claimed + 1
    assert _rows(lake, lake.snapshot().id) == [2, *range(4, 10)]


def test_a_delete_planned_on_the_claimed_snapshot_is_a_conflict_or_planned_again(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("other", pa.table({"y": [0]}))
    lake.write("t", pa.table({"x": list(range(10))}), inline=False)
    lake.set_option("data_inlining_row_limit", 0)
    with attached(lake_address) as duck:
        duck.run("DELETE FROM lake.t WHERE x = 0")
        duck.run("BEGIN", "DELETE FROM lake.t WHERE x = 1")
        lake.table("other").append(pa.table({"y": [1]}), inline=False)
        with lake.transaction() as tx:
            tx.delete("t", "x = 2")
            duck.run("COMMIT")
    assert _rows(lake, lake.snapshot().id) == list(range(3, 10))
