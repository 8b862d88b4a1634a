"""Row counts of every snapshot from the catalog's statistics, compared with the rows that each snapshot shows."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.results import TableStatistics
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread


def compare(lake: DuckLake, found: TableStatistics) -> int:
    """Check every snapshot that has the table; return the number of those with a known count."""
    reported = 0
    for snapshot in lake.snapshots():
        if not lake.has_table("t", at=snapshot.id):
            continue
        counts = [one.rows_at(snapshot.id) for one in found.rows]
        if None not in counts:
            reported += 1
            assert sum(count for count in counts if count is not None) == lake.table("t", at=snapshot.id).scan([]).count(), snapshot
    return reported


@pytest.mark.parametrize("seed", spread([1, 2], 1))
def test_rows_of_every_snapshot_after_a_random_history(seed: int, small: DuckLake, sqlite_address: LakeAddress) -> None:
    """Counts from the catalog equal the rows that each snapshot shows."""
    random_history(seed, small, sqlite_address)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_the_same_on_every_catalog(seed: int, lake: DuckLake, lake_address: LakeAddress) -> None:
    """More of them."""
    random_history(seed, lake, lake_address)


def random_history(seed: int, lake: DuckLake, address: LakeAddress) -> None:
    """Inserts, deletes, updates, flushes, merges and rewrites of both writers, rows in files and in the catalog."""
    rng = random.Random(seed)
    lake.write("t", pa.table({"i": range(20), "k": [number % 3 for number in range(20)]}), partition_by=["k"])

    def duckdb(statement: str) -> None:
        with attached(address) as duck:
            duck.run(statement)

    for step in range(30):
        key, low = rng.randrange(3), rng.randrange(200)
        match rng.randrange(8):
            case 0 | 1:
                duckdb(f"INSERT INTO lake.t SELECT range, {key} FROM range({low}, {low + rng.choice([2, 30])})")
            case 2:
                lake.write("t", pa.table({"i": range(low, low + 20), "k": [key] * 20}))
            case 3:
                duckdb(f"DELETE FROM lake.t WHERE i BETWEEN {low} AND {low + 5}")
            case 4:
                lake.table("t").delete(f"i = {low} OR i = {low // 2}")
            case 5:
                duckdb(f"UPDATE lake.t SET i = i + 1 WHERE i = {low} AND k = {key}")
            case 6:
                lake.flush_inlined_data()
            case 7 if step > 15:
                duckdb("CALL ducklake_merge_adjacent_files('lake')")
            case _:
                lake.rewrite_data_files(delete_threshold=0.2)
    found = lake.statistics({"T": ["k", "i"]})
    assert found.snapshot_id == lake.snapshot().id
    (table,) = found.tables
    assert compare(lake, table) >= 2
    assert None not in [one.rows_at(found.snapshot_id) for one in table.rows], "the newest snapshot always has a count"
    now = [one for one in table.rows if one.is_visible_at(found.snapshot_id)]
    assert all(one.ranges[0].low == one.ranges[0].high for one in now), "each file is of one partition"
    rows = lake.table("t").scan(["i"]).to_arrow().column("i").to_pylist()
    assert min(one.ranges[1].low for one in now) <= min(rows) <= max(rows) <= max(one.ranges[1].high for one in now)


def test_column_summaries(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", pa.table({"F": [1.5, None, -2.0], "s": ["a", "b", None]}))
    lake.write("t", pa.table({"F": [float("nan"), 1.0], "s": [None, None]}, schema=pa.schema({"F": pa.float64(), "s": pa.string()})))
    lake.unset_option("data_inlining_row_limit")
    with attached(lake_address) as duck:
        duck.run("INSERT INTO lake.t VALUES (9.5, 'z'), (NULL, NULL)")
    (table,) = lake.statistics({"t": ["f", "S", "missing"], "nowhere": ["f"]}).tables
    assert table.column_names == ("F", "s", None)
    plain, with_nan, *inlined = table.rows
    assert [(one.low, one.high) for one in plain.ranges[:2]] == [(-2.0, 1.5), ("a", "b")]
    assert plain.null_counts == (1, 1, None)
    assert (with_nan.ranges[0].low, with_nan.ranges[0].high) == (None, None), "NaN is between no bounds"
    assert not with_nan.ranges[1].has_values
    assert sorted(one.null_counts[0] for one in inlined) == [0, 1]
    assert sum(one.row_count for one in inlined) == 2


def test_expired_history_is_not_counted(lake: DuckLake) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    for _ in range(2):
        lake.write("t", pa.table({"n": [1, 2, 3]}), mode="overwrite")
    lake.expire_snapshots(older_than=timedelta(0), min_age=timedelta(0))
    (table,) = lake.statistics({"t": []}).tables
    assert [one.row_count for one in table.rows] == [3]
    assert lake.statistics({}).tables == ()
