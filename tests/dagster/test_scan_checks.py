"""Checks that read rows: unique keys, references and conditions, in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import (
    ColumnBounds,
    DeleteRatio,
    DuckLakeResource,
    Freshness,
    NullFraction,
    Reference,
    RowCondition,
    RowCount,
    RowCountChange,
    SmallFiles,
    Triggers,
    UniqueKey,
    build_audit_checks,
    build_commit_sensor,
    build_lake_checks,
    ducklake_metadata,
)
from ducklake_dagster.assets.tables import AssetTable, asset_tables
from ducklake_dagster.checks.base import LakeCheck, Verdict
from ducklake_dagster.checks.builders import Judge, read_lake

DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-03-31")
KEYS = DAYS.get_partition_keys()
Judged = Callable[..., Verdict]


@pytest.fixture
def lake(lake_resource: DuckLakeResource) -> DuckLake:
    """Orders of four days: the first day has an id twice and one of no customer, ids come again on other days, the last one is NULL."""
    found = lake_resource.connect()
    found.set_option("data_inlining_row_limit", 0)
    days = [date.fromisoformat(key) for key in KEYS for _ in range(3)]
    ids = [1, 1, 2, 1, 2, 3, 1, 2, 3, 1, None, None]
    amounts = [5, -5, 5, 5, 5, 5, 5, 5, 5, 5, 5, None]
    table = pa.table({"day": pa.array(days, pa.date32()), "id": pa.array(ids, pa.int32()), "amount": amounts})
    found.write("orders", table, partition_by=["day"])
    found.write("customers", pa.table({"Number": pa.array([1, 3, None, 3], pa.int64())}))
    return found


@pytest.fixture
def judged(lake: DuckLake, instance: dg.DagsterInstance) -> Judged:
    """``judged(check, keys)`` of the orders."""
    (table,) = asset_tables([dg.AssetSpec("orders", partitions_def=DAYS, metadata={"partition_expr": "day"})], None)

    def judge(check: LakeCheck, keys: list[str] | None = None) -> Verdict:
        return Judge(read_lake(lake, [table], [check]), instance).verdict(table, check, keys)

    return judge


def test_unique_keys(judged: Judged) -> None:
    found = judged(UniqueKey(key="ID"), KEYS[:1])
    assert (found.passed, found.description) == (False, "1 values of ID occur more than once")
    assert found.metadata["ducklake/examples"].value == [{"id": "1"}]
    assert judged(UniqueKey(key="id"), KEYS[1:2]).passed
    assert judged(UniqueKey(key="id"), KEYS[3:]).passed, "NULL is like nothing else"
    assert judged(UniqueKey(key="id")).metadata["ducklake/rows_wrong"] == 3
    assert judged(UniqueKey(key=["day", "id"])).metadata["ducklake/rows_wrong"] == 1
    assert judged(UniqueKey(key="gone")).passed is False


NAMES = ["count", "count_all", "_rows", "key_1", 'we"ird, é']
NAN = float("nan")
SPEC = dg.AssetSpec("orders")


def checks_of_odd_keys(lake: DuckLake, name: str) -> tuple[AssetTable, list[LakeCheck]]:
    """A table with a key of this name, in which NaN comes twice, and all values in another table, whose key is called otherwise."""
    lake.write("odd", pa.table({name: [1, 1, 2], "key_0": [NAN, NAN, 1.0]}))
    lake.write("others", pa.table({"a": [1, 2], "count": [NAN, 1.0]}))
    (table,) = asset_tables([dg.AssetSpec("odd")], None)
    return table, [UniqueKey(key=[name, "key_0"]), Reference(key=[name, "key_0"], table="others", other_key=["a", "count"])]


@pytest.mark.parametrize("name", NAMES)
def test_keys_of_any_name(lake: DuckLake, instance: dg.DagsterInstance, name: str) -> None:
    table, (unique, reference) = checks_of_odd_keys(lake, name)
    judge = Judge(read_lake(lake, [table], [unique, reference]), instance)
    found = judge.verdict(table, unique, None)
    assert found.metadata["ducklake/examples"].value == [{name: "1", "key_0": "nan"}]
    assert judge.verdict(table, reference, None).passed


def test_keys_that_no_engine_compares_do_not_pass(judged: Judged, lake: DuckLake, instance: dg.DagsterInstance) -> None:
    lake.write("lists", pa.table({"id": [[1], [1]], "text": ["a", "b"]}))
    (table,) = asset_tables([dg.AssetSpec("lists")], None)
    unique, lists = UniqueKey(key="id"), Reference(key="id", table="lists")
    strings = Reference(key="text", table="customers", other_key="number")
    judge = Judge(read_lake(lake, [table], [unique, lists, strings]), instance)
    expected = {
        unique: "does not support these columns",
        lists: "does not support these columns",
        strings: "column 'text' of main.lists is varchar, but 'number' of main.customers is int64",
    }
    for check, text in expected.items():
        found = judge.verdict(table, check, None)
        assert not found.passed
        assert text in found.description


def test_references(judged: Judged) -> None:
    check = Reference(key="id", table="customers", other_key="number")
    found = judged(check)
    assert (found.passed, found.description) == (False, "3 rows have a id that customers lacks")
    assert found.metadata["ducklake/examples"].value == [{"id": "2"}] * 3
    assert judged(check, KEYS[3:]).passed
    assert "nowhere" in judged(Reference(key="id", table="nowhere")).description


def test_conditions_of_rows(judged: Judged, lake: DuckLake) -> None:
    assert judged(RowCondition(holds="amount >= 0"), KEYS[1:]).passed, "NULL counts as held"
    found = judged(RowCondition(holds="amount >= 0"))
    assert found.description == "1 rows do not satisfy: amount >= 0"
    assert judged(RowCondition(holds="amount >= 0", max_rows_wrong=1)).passed
    assert judged(RowCondition(holds="amount >> 'x'")).passed is False


def test_more_rows_than_fit_are_not_read(judged: Judged) -> None:
    found = judged(UniqueKey(key="id", max_rows=11))
    assert not found.passed
    assert found.description.startswith("12 rows are more than max_rows=11")
    assert judged(UniqueKey(key="id", max_rows=3), KEYS[1:2]).passed
    assert "customers has 4 rows" in judged(Reference(key="id", table="customers", other_key="number", max_rows=3), KEYS[1:2]).description


def test_a_sample_is_of_whole_partitions_and_the_same_for_a_snapshot(judged: Judged, lake: DuckLake) -> None:
    check = UniqueKey(key="id", sample=2)
    first, again = judged(check), judged(check)
    assert first.metadata["ducklake/partitions_checked"] == again.metadata["ducklake/partitions_checked"]
    assert first.metadata["ducklake/rows_checked"] == 6
    seen = set()
    for number in range(8):
        lake.set_comment("orders", str(number))
        seen |= set(judged(check).metadata["ducklake/partitions_checked"].value)
    assert seen == set(KEYS), "by turns all of them"
    assert judged(check, KEYS[:1]).metadata["ducklake/rows_checked"] == 3, "a run's partitions are looked at whole"


def test_invalid_settings_raise(judged: Judged) -> None:
    for make in (
        lambda: UniqueKey(key=[]),
        lambda: Reference(key="a", table="t", other_key=["a", "b"]),
        lambda: UniqueKey(key="a", sample=0),
        lambda: RowCondition(holds=" "),
        lambda: RowCondition(holds=5),  # type: ignore[arg-type]
        lambda: Reference(key="a", table=""),
        lambda: RowCount(minimum="5"),  # type: ignore[arg-type]
        lambda: RowCountChange(max_drop=NAN),
        lambda: RowCountChange(max_drop=30),
        lambda: RowCount(minimum=5, maximum=1),
        lambda: ColumnBounds(bounds={"a": (5, 1)}),
        lambda: SmallFiles(max_ratio=50),
        lambda: DeleteRatio(maximum=50),
        lambda: build_lake_checks(assets=[SPEC], checks=UniqueKey(key="a")),  # type: ignore[arg-type]
        lambda: build_lake_checks(assets=[SPEC], checks=["row_count"]),  # type: ignore[list-item]
        lambda: NullFraction(limits={"a": None}),  # type: ignore[dict-item]
        lambda: NullFraction(limits=["a"]),  # type: ignore[arg-type]
        lambda: ColumnBounds(bounds={"a": 1}),  # type: ignore[dict-item]
        lambda: ColumnBounds(bounds={"a": (1,)}),  # type: ignore[dict-item]
        lambda: ColumnBounds(bounds={"a": (NAN, 1)}),
        lambda: Freshness(max_age=5),  # type: ignore[arg-type]
        lambda: Triggers(delete_ratio=NAN),
        lambda: Triggers(small_files=8, small_file_bytes=0),
        lambda: Triggers(small_files=8, minimum_interval_seconds=0.5),  # type: ignore[arg-type]
        lambda: build_commit_sensor(assets=[SPEC], max_snapshots_per_tick=1.5),  # type: ignore[arg-type]
        lambda: build_commit_sensor(assets=[SPEC], max_events_per_tick=0),
        lambda: build_commit_sensor(assets=[SPEC], minimum_interval_seconds=-5),
        lambda: build_commit_sensor(assets=[SPEC], name=""),
        lambda: build_commit_sensor(assets=[SPEC], request_runs=" "),
        lambda: Triggers(delete_ratio=7),
        lambda: build_commit_sensor(assets=[SPEC], max_events_per_tick="5"),  # type: ignore[arg-type]
        lambda: build_commit_sensor(assets=[SPEC], max_seconds_per_tick=-1),
        lambda: build_lake_checks(assets=[], checks=[UniqueKey(key="a")]),
        lambda: build_lake_checks(assets=SPEC, checks=[UniqueKey(key="a")]),  # type: ignore[arg-type]
        lambda: build_audit_checks(assets=["orders"]),  # type: ignore[list-item]
        lambda: ducklake_metadata(write_mode="replace"),  # type: ignore[arg-type]
        lambda: ducklake_metadata(shared="yes"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError):
            make()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_spark_counts_keys_of_any_name(lake: DuckLake, instance: dg.DagsterInstance, spark, name: str) -> None:
    table, (unique, reference) = checks_of_odd_keys(lake, name)
    judge = Judge(read_lake(lake, [table], [unique, reference]), instance, lambda: spark)
    assert judge.verdict(table, unique, None).metadata["ducklake/rows_wrong"] == 1
    assert judge.verdict(table, reference, None).passed


@pytest.mark.slow
def test_spark_finds_the_same(lake: DuckLake, instance: dg.DagsterInstance, spark) -> None:
    (table,) = asset_tables([dg.AssetSpec("orders", partitions_def=DAYS, metadata={"partition_expr": "day"})], None)
    checks = [UniqueKey(key=["day", "id"], max_rows=0), Reference(key="id", table="customers", other_key="number", max_rows=0),
              RowCondition(holds="amount >= 0", max_rows=0)]  # fmt: skip
    judge = Judge(read_lake(lake, [table], checks), instance, lambda: spark)
    assert [judge.verdict(table, check, None).metadata["ducklake/rows_wrong"] for check in checks] == [1, 3, 1]
    assert [judge.verdict(table, check, KEYS[1:2]).metadata["ducklake/rows_wrong"] for check in checks] == [0, 1, 0]
