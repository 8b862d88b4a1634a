"""Checks of partitions by file statistics, for files that follow the partitions and files that do not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import (
    ColumnBounds,
    ColumnContract,
    ColumnSchemaChange,
    CompletePartitions,
    DuckLakeResource,
    Freshness,
    NullFraction,
    RowCount,
    RowCountAnomaly,
    RowCountChange,
    build_lake_checks,
)
from ducklake_dagster.assets.tables import AssetTable, asset_tables
from ducklake_dagster.checks.base import LakeCheck
from ducklake_dagster.checks.builders import Judge, read_lake
from tests.support.oracle import LakeAddress, attached

DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-04-03")
KEYS = DAYS.get_partition_keys()
GRID = dg.MultiPartitionsDefinition({"day": DAYS, "shop": dg.StaticPartitionsDefinition(["a", "b"])})


@pytest.fixture
def lake(lake_resource: DuckLakeResource) -> DuckLake:
    """A lake that writes files."""
    found = lake_resource.connect()
    found.set_option("data_inlining_row_limit", 0)
    return found


@pytest.fixture
def judged(lake: DuckLake, instance: dg.DagsterInstance) -> Callable[..., tuple[bool, str]]:
    """``judged(check, keys)`` of the asset ``t``."""

    def judge(check: LakeCheck, keys: list[str] | None = None, table: AssetTable | None = None) -> tuple[bool, str]:
        table = table or asset_tables([dg.AssetSpec("t", partitions_def=DAYS, metadata={"partition_expr": "day"})], None)[0]
        found = Judge(read_lake(lake, [table], [check]), instance).verdict(table, check, keys)
        return found.passed, found.description

    return judge


def rows(keys: list[str], each: int = 10, value: float | None = 1.0) -> pa.Table:
    days = [date.fromisoformat(key) for key in keys for _ in range(each)]
    return pa.table({"day": pa.array(days, pa.date32()), "v": pa.array([value] * len(days), pa.float64())})


@pytest.mark.parametrize("partition_by", [["day"], ["month(day)"], []], ids=["by day", "by month", "not at all"])
def test_each_partition_is_compared_with_itself_in_any_layout(
    partition_by: list[str], lake: DuckLake, judged: Callable[..., tuple[bool, str]]
) -> None:
    lake.write("t", rows(KEYS), partition_by=partition_by)
    lake.write("t", rows(KEYS[:1], 2), mode="overwrite", where=f"day = DATE '{KEYS[0]}'")
    change = RowCountChange(max_drop=0.5)
    assert judged(change, KEYS[:1]) == (False, f"{KEYS[0]}: 80.0% of the rows disappeared, more than 50.0%")
    lake.write("t", rows(KEYS[1:2], 9), mode="overwrite", where=f"day = DATE '{KEYS[1]}'")
    lake.set_comment("t", "changes no row")
    lake.merge_adjacent_files()
    assert judged(change, KEYS[1:2]) == (True, "9 rows in 1 partition, 10 before")
    assert judged(change)[0], "of the whole table nearly nothing is gone"
    assert judged(RowCount(minimum=10), KEYS[1:4]) == (False, f"{KEYS[1]}: a row count of 9 is less than 10")
    assert judged(RowCount(minimum=9, maximum=10), KEYS[1:4]) == (True, "29 rows in 3 partitions")
    assert judged(RowCount(minimum=50, whole_table=True), KEYS[1:2])[0]


def test_row_counts_are_compared_with_those_of_earlier_commits(lake: DuckLake, judged: Callable[..., tuple[bool, str]]) -> None:
    check = RowCountAnomaly(commits=4, min_commits=3, tolerance=0.0)

    def replace(key: str, each: int) -> tuple[bool, str]:
        lake.write("t", rows([key], each), mode="overwrite", where=f"day = DATE '{key}'")
        return judged(check, [key])

    lake.write("t", rows(KEYS[:2], 100), partition_by=["day"])
    assert replace(KEYS[0], 90) == (True, "90 rows in 1 partition, not compared: fewer than 3 commits")
    assert replace(KEYS[0], 110)[0]
    # 100, 90 and 110 have the mean 100 and the standard deviation 8.165.
    assert replace(KEYS[0], 124) == (True, "124 rows in 1 partition, as expected from up to 4 earlier commits")
    assert replace(KEYS[0], 200) == (False, f"{KEYS[0]}: 200 rows; 68 to 144 were expected from earlier commits")
    assert judged(check, KEYS[:2])[1] == f"{KEYS[0]}: 200 rows; 68 to 144 were expected from earlier commits"
    assert judged(RowCountAnomaly(tolerance=1.0), KEYS[:1])[0]
    for settings in ({"commits": 2}, {"min_commits": 0}, {"tolerance": -1}, {"max_deviations": "3"}):
        with pytest.raises(UsageError):
            RowCountAnomaly(**settings)  # type: ignore[arg-type]


def test_many_partitions_in_files_that_do_not_follow_them_are_compared_together(
    lake: DuckLake, judged: Callable[..., tuple[bool, str]]
) -> None:
    many = dg.DailyPartitionsDefinition("2025-01-01", end_date="2025-04-01")
    table = asset_tables([dg.AssetSpec("t", partitions_def=many, metadata={"partition_expr": "day"})], None)[0]
    keys = many.get_partition_keys()
    lake.write("t", rows(keys, 2))
    lake.write("t", rows(keys, 1), mode="overwrite")
    assert judged(RowCountChange(max_drop=0.1), keys, table) == (False, "90 partitions: 50.0% of the rows disappeared, more than 10.0%")


def test_rows_outside_of_partitions_are_not_counted(
    lake: DuckLake, judged: Callable[..., tuple[bool, str]], sqlite_address: LakeAddress
) -> None:
    """NULL, days before the first one, and unknown keys, written by other clients, in files and in the catalog."""
    lake.write("t", rows(KEYS[:2], 5), partition_by=["month(day)"])
    lake.unset_option("data_inlining_row_limit")
    with attached(sqlite_address) as duck:
        duck.run(f"INSERT INTO lake.t VALUES (NULL, 1), ('1969-12-31', 1), ('{KEYS[0]}', NULL)")
        duck.run(f"INSERT INTO lake.t SELECT CASE WHEN range < 50 THEN NULL ELSE DATE '{KEYS[1]}' END, 1 FROM range(100)")
    assert judged(RowCount(minimum=6, maximum=6), KEYS[:1]) == (True, "6 rows in 1 partition")
    assert judged(RowCount(minimum=55, maximum=55), KEYS[1:2])[0]
    assert judged(NullFraction(limits={"v": 0.1}), KEYS[:1]) == (False, f"{KEYS[0]}: 16.67% of 'v' is NULL, more than 10.00%")
    assert judged(NullFraction(limits={"v": 0.0}), KEYS[1:2])[0]
    assert judged(CompletePartitions(max_missing=4)) == (False, "; ".join(f"partition {key} has no rows" for key in KEYS[2:]))
    assert judged(CompletePartitions(max_missing=5))[0]
    assert judged(CompletePartitions(allowed=tuple(KEYS[2:])))[0]


def test_dimensions(lake: DuckLake, judged: Callable[..., tuple[bool, str]]) -> None:
    spec = dg.AssetSpec("t", partitions_def=GRID, metadata={"partition_expr": {"day": "day", "shop": "shop"}})
    (table,) = asset_tables([spec], None)
    filled = rows(KEYS[:2], 4).append_column("shop", pa.array(["a", "a", "b", "c"] * 2))
    lake.write("t", filled, partition_by=["day", "shop"])
    key = dg.MultiPartitionKey({"day": KEYS[0], "shop": "a"})
    assert judged(RowCount(minimum=2, maximum=2), [key], table)[0]
    passed, text = judged(CompletePartitions(), None, table)
    assert not passed
    assert f"partition {dg.MultiPartitionKey({'day': KEYS[2], 'shop': 'b'})} has no rows" in text
    assert judged(CompletePartitions(max_missing=2 * len(KEYS) - 4), None, table)[0], "shop c is nobody's"


def test_bounds_are_proven_by_files_and_else_by_rows(lake: DuckLake, judged: Callable[..., tuple[bool, str]]) -> None:
    from pathlib import Path

    lake.write("t", rows(KEYS[:1], value=5.0), partition_by=["day"])
    lake.write("t", rows(KEYS[1:2], value=-1.0))
    lake.write("t", rows(KEYS[2:3], value=float("nan")))
    for file in lake.table("t").list_files()[:1]:
        Path(file.path).unlink()
    assert judged(ColumnBounds(bounds={"V": (0, 5.0)}), KEYS[:1]) == (True, "values of V are within bounds")
    assert judged(ColumnBounds(bounds={"v": (0, None)}), KEYS[1:2]) == (False, "10 values of 'v' are outside of 0 to ...")
    assert judged(ColumnBounds(bounds={"v": (None, 10)}), KEYS[1:2])[0]
    assert judged(ColumnBounds(bounds={"v": (0, 10)}), KEYS[2:3])[0] is False, "NaN is within no bounds"
    assert judged(ColumnBounds(bounds={"day": (date(2026, 3, 28), None)}), KEYS[1:3])[0]
    lake.table("t").delete("v < 0")
    assert judged(ColumnBounds(bounds={"v": (0, None)}), KEYS[1:2])[0]
    assert judged(ColumnBounds(bounds={"v": ("a", "b")}), KEYS[:1])[1].startswith("column 'v' is float64 and cannot be compared")
    assert judged(ColumnBounds(bounds={"gone": (1, 2)}))[1] == "column 'gone' does not exist"


def test_freshness_is_that_of_the_partition(lake: DuckLake, judged: Callable[..., tuple[bool, str]], sqlite_address: LakeAddress) -> None:
    import sqlite3

    lake.write("t", rows(KEYS[:1]), partition_by=["day"])
    old = lake.snapshot().id
    lake.write("t", rows(KEYS[1:2]))
    with sqlite3.connect(sqlite_address.url.removeprefix("sqlite:///")) as catalog:
        catalog.execute("UPDATE ducklake_snapshot SET snapshot_time = '2026-01-01 00:00:00+00' WHERE snapshot_id <= ?", [old])
    fresh = Freshness(max_age=timedelta(days=1))
    assert [judged(fresh, keys)[0] for keys in (None, KEYS[:1], KEYS[1:2], KEYS[:2])] == [True, False, True, False]


def test_columns_with_dependents_are_checked(lake: DuckLake, judged: Callable[..., tuple[bool, str]]) -> None:
    lake.write("t", rows(KEYS[:1]))
    assert judged(ColumnContract(types={"DAY": "date", "v": "double"}, exactly=True))[0]
    assert judged(ColumnContract(types={"v": "varchar", "w": "int64"})) == (
        False,
        "column 'v' is float64, not varchar; column 'w' does not exist",
    )
    assert judged(ColumnContract(types={"v": "double"}, exactly=True)) == (False, "column 'day' is not declared")
    assert judged(ColumnContract())[1].startswith("the asset's metadata declares no columns")
    declared = dg.TableSchema(columns=[dg.TableColumn("v", "double"), dg.TableColumn("day", "date")])
    (table,) = asset_tables([dg.AssetSpec("t", metadata={"dagster/column_schema": declared})], None)
    assert judged(ColumnContract(exactly=True), None, table)[0]


def test_changes_of_columns_fail_until_the_next_commit(
    lake: DuckLake, judged: Callable[..., tuple[bool, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = ColumnSchemaChange()
    lake.write("t", pa.table({"n": pa.array([1], pa.int32()), "note": ["a"]}))
    assert judged(check)[0]
    lake.write("t", pa.table({"n": pa.array([2], pa.int32()), "note": ["b"]}), mode="append")
    before = lake.snapshot().id
    with monkeypatch.context() as patch:
        patch.setattr(DuckLake, "table", None)
        assert judged(check) == (True, f"the same 2 columns as at snapshot {before - 1}"), "no columns of the past are read"
    wider = pa.table({"n": pa.array([1 << 40], pa.int64()), "note": ["c"], "more": [1.5]})
    lake.write("t", wider, mode="append", schema_evolution="additive")
    lake.table("t").drop_column("note")
    expected = "column 'more' (float64) was added; column 'note' (varchar) was removed; column 'n' was int32 and is int64"
    assert judged(check) == (False, expected)
    lake.write("t", wider.drop_columns(["note"]), mode="append")
    assert judged(check)[0]


def test_columns_that_do_not_separate_partitions_fail_the_check(lake: DuckLake, judged: Callable[..., tuple[bool, str]]) -> None:
    lake.write("t", pa.table({"day": [1.5]}))
    passed, text = judged(RowCount(minimum=1), KEYS[:1])
    assert not passed
    assert "which does not support time partitions" in text


def test_a_blocking_check_of_the_partition_at_hand_stops_the_run(run: Callable[..., dg.ExecuteInProcessResult]) -> None:
    reached = []

    @dg.asset(name="t", partitions_def=DAYS, metadata={"partition_expr": "day", "partition_by": "day"})
    def build(context) -> pa.Table:
        return rows([context.partition_key], 1 if "few" in context.run.tags else 10)

    @dg.asset(partitions_def=DAYS)
    def after(t: pa.Table) -> None:
        reached.append(t.num_rows)

    change = RowCountChange(name="half", max_drop=0.5, severity=dg.AssetCheckSeverity.ERROR, blocking=True)
    assets = [build, after, *build_lake_checks(assets=[build], checks=[change, RowCount(minimum=1)])]
    run(assets, partition_key=KEYS[0])
    run(assets, partition_key=KEYS[1])
    run(assets, partition_key=KEYS[1], tags={"few": "yes"}, raise_on_error=False)
    assert reached == [10, 10]


@pytest.mark.parametrize(
    "make",
    [
        lambda: NullFraction(limits={}), lambda: NullFraction(limits={"n": 1.1}), lambda: ColumnBounds(bounds={}),
        lambda: ColumnBounds(bounds={"n": (None, None)}), lambda: RowCountChange(max_drop=-1), RowCountChange,
        lambda: Freshness(max_age="soon"), lambda: CompletePartitions(max_missing=-1),
    ],
)  # fmt: skip
def test_invalid_kinds_of_partitions_raise(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        make()
