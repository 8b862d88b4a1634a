"""Checks that read rows: unique keys, references and conditions, in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeResource, Reference, RowCondition, UniqueKey
from ducklake_dagster.asset_tables import asset_tables
from ducklake_dagster.check_base import LakeCheck, Verdict
from ducklake_dagster.checks import Judge, read_lake

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


@pytest.mark.takes_seconds
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


def test_what_makes_no_sense_is_refused(judged: Judged) -> None:
    for make in (
        lambda: UniqueKey(key=[]),
        lambda: Reference(key="a", table="t", other_key=["a", "b"]),
        lambda: UniqueKey(key="a", sample=0),
    ):
        with pytest.raises(UsageError):
            make()


@pytest.mark.slow
def test_spark_finds_the_same(lake: DuckLake, instance: dg.DagsterInstance, spark) -> None:
    (table,) = asset_tables([dg.AssetSpec("orders", partitions_def=DAYS, metadata={"partition_expr": "day"})], None)
    checks = [UniqueKey(key=["day", "id"], max_rows=0), Reference(key="id", table="customers", other_key="number", max_rows=0),
              RowCondition(holds="amount >= 0", max_rows=0)]  # fmt: skip
    judge = Judge(read_lake(lake, [table], checks), instance, lambda: spark)
    assert [judge.verdict(table, check, None).metadata["ducklake/rows_wrong"] for check in checks] == [1, 3, 1]
    assert [judge.verdict(table, check, KEYS[1:2]).metadata["ducklake/rows_wrong"] for check in checks] == [0, 1, 0]
