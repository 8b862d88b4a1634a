"""Few changed rows in files of several partitions are reported by the partitions that they are in, many by the bounds of the files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource, build_commit_sensor
from ducklake_dagster.statistics import partitions
from tests.dagster.conftest import QUIET
from tests.support.oracle import LakeAddress, attached

DAYS = dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-04-01")
REGIONS = dg.StaticPartitionsDefinition(["a", "b"])
GRID = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
DAILY = dg.AssetSpec("daily", partitions_def=DAYS, metadata={"partition_expr": "day"})
BOTH = dg.AssetSpec("both", partitions_def=GRID, metadata={"partition_expr": {"day": "day", "region": "region"}})


@dg.asset
def anything() -> None: ...


def month(days: range = range(1, 32)) -> pa.Table:
    """Two rows of each day, in one file."""
    columns = {"day": pa.array([date(2026, 3, day) for day in days for _ in "ab"], pa.date32()), "region": ["a", "b"] * len(days)}
    return pa.table({**columns, "n": list(range(2 * len(days)))})


@pytest.fixture
def tick(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> Callable[[], list[str]]:
    """Gives the partitions that a tick reports."""
    lake = lake_resource.connect()
    lake.set_option("data_inlining_row_limit", 0)
    for name in ("daily", "both"):
        lake.write(name, month())
    sensor = build_commit_sensor(assets=[DAILY, BOTH])
    cursor: list[str | None] = [None]

    def evaluate() -> list[str]:
        result = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, cursor=cursor[0], resources={"lake": lake_resource}))
        cursor[0] = result.cursor
        return [str(event.partition) for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]

    assert evaluate() == []
    return evaluate


def test_a_delete_of_one_day_in_the_file_of_a_month(tick: Callable[[], list[str]], sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("DELETE FROM lake.daily WHERE day = DATE '2026-03-09' AND region = 'a'")
        # The second one replaces the delete file of the first.
        duck.run("DELETE FROM lake.daily WHERE day = DATE '2026-03-11'", "UPDATE lake.daily SET n = 0 WHERE day = DATE '2026-03-20'")
        assert tick() == ["2026-03-09", "2026-03-11", "2026-03-20"]
        duck.run("DELETE FROM lake.both WHERE day = DATE '2026-03-09' AND region = 'b'")
        assert tick() == ["2026-03-09|b"]
        duck.run("UPDATE lake.daily SET day = DATE '2026-03-02' WHERE day = DATE '2026-03-05' AND region = 'b'")
        assert tick() == ["2026-03-02", "2026-03-05"], "where the row was, and where it is"


def test_changes_of_runs_of_this_instance_are_left_out(
    tick: Callable[[], list[str]], lake_resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    lake = lake_resource.connect()
    own = dg.materialize([anything], instance=instance, run_config=QUIET)
    lake.table("daily").delete("day = DATE '2026-03-03'", author="dagster", extra_info={"dagster": {"run_id": own.run_id}})
    lake.table("daily").delete("day = DATE '2026-03-04'")
    assert tick() == ["2026-03-04"]


def test_many_rows_and_deleted_files_are_reported_by_bounds(
    tick: Callable[[], list[str]], lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_day = [(date(2026, 3, 1) + timedelta(days=day)).isoformat() for day in range(31)]
    lake = lake_resource.connect()
    table = lake.table("daily")
    with monkeypatch.context() as patched:
        patched.setattr(partitions, "_MAX_ROWS", 0)
        table.delete("day = DATE '2026-03-09'")
        assert tick() == every_day
    table.delete("day = DATE '2026-03-10'")
    lake.storage.delete([file.path for file in lake.table("daily").list_files()])
    assert tick() == every_day
