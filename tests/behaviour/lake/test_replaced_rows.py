"""Overwrites of slices, deletes and upserts, judged by DuckDB."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import (
    UnsupportedFeatureError,
    UsageError,
)
from tests.behaviour.lake.days import files_of, keys, rows
from tests.support.oracle import LakeAddress, attached


def test_overwrite_of_a_slice_touches_nothing_else(lake: DuckLake, lake_address: LakeAddress) -> None:
    first = lake.write("t", rows(0, 30), partition_by=["day"])
    assert (first.created_table, first.rows_added, first.files_added) == (True, 30, 3)
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run("INSERT INTO t VALUES (100, DATE '2013-01-01', 'inlined'), (101, DATE '2013-01-02', 'inlined')")
        done = lake.table("t").overwrite(rows(200, 201, date(2012, 12, 30)), where="day = DATE '2013-01-01'")
        assert (done.rows_deleted, done.rows_added, done.files_removed, done.delete_files_added) == (11, 1, 1, 0)
        assert keys(duck) == sorted([k for k in range(30) if k % 3] + [101, 200])
        assert duck.value(f"SELECT count(*) FROM t AT (VERSION => {first.snapshot_id})") == 30


def test_a_cumulative_delete_that_lands_later_is_written_again(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", rows(0, 30))
    lake.write("other", rows(0, 3))
    lake.table("t").delete("k < 5")
    with lake.transaction() as tx:
        tx.delete("t", "k = 7")
        between = lake.table("other").append(rows(3, 4))
    assert tx.result.snapshot is not None
    assert tx.result.snapshot.id == between.snapshot_id + 1
    with attached(lake_address) as duck:
        assert 7 in keys(duck, f"t AT (VERSION => {between.snapshot_id})")
        assert keys(duck) == [k for k in range(5, 30) if k != 7]
    named = {row["path"] for row in _live_delete_files(lake)}
    on_disk = {path.name for path in files_of(lake_address) if path.name.endswith("-delete.parquet")}
    scheduled = 1
    assert named < on_disk
    assert len(on_disk) == len(named) + scheduled


def _live_delete_files(lake: DuckLake) -> list[Any]:
    from sqlalchemy import select

    with lake.database.read() as connection:
        return list(connection.execute(select(lake.database.tables["delete_file"])).mappings())


@pytest.mark.parametrize(
    ("bad", "match"),
    [({"k": [1, 1]}, "more than once"), ({"k": [1, None]}, "NULL")],
)
def test_keys_of_an_upsert_must_be_unique_and_known(small: DuckLake, sqlite_address: LakeAddress, bad: dict[str, Any], match: str) -> None:
    small.write("t", rows(0, 3))
    before = files_of(sqlite_address)
    data = pa.table({"k": pa.array(bad["k"], pa.int64()), "day": [date(2020, 1, 1)] * 2, "s": ["x"] * 2})
    with pytest.raises(UsageError, match=match):
        small.table("t").upsert(data, on=["k"])
    assert files_of(sqlite_address) == before
    with pytest.raises(UsageError, match="key columns"):
        small.table("t").upsert(data, on=[])


def test_intervals_are_no_keys(small: DuckLake) -> None:
    data = pa.table({"k": pa.array([pa.MonthDayNano([1, 0, 0])]), "v": [1]})
    with pytest.raises(UnsupportedFeatureError, match="column 'k' of type interval cannot be a key"):
        small.write("t", data, mode="upsert", on=["k"])


def test_rows_outside_the_slice_raise_and_leave_nothing(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", rows(0, 9))
    before, snapshot = files_of(sqlite_address), small.snapshot()
    with pytest.raises(UsageError, match=r"2013-01-02 does not satisfy"):
        small.table("t").overwrite(rows(0, 9), where="day = DATE '2013-01-01'")
    assert files_of(sqlite_address) == before
    assert small.snapshot() == snapshot


def test_overwriting_with_no_rows_empties_the_slice(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", rows(0, 9))
    done = lake.table("t").overwrite(rows(0, 0), where="day = DATE '2013-01-01'")
    assert (done.rows_deleted, done.committed) == (3, True)
    with attached(lake_address) as duck:
        assert keys(duck) == [1, 2, 4, 5, 7, 8]
