"""Commits by others become events; our own do not; the cursor survives what happens to a lake."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa

from ducklake_dagster import DuckLakeResource, build_commit_sensor
from tests.support.oracle import LakeAddress

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", timezone="Europe/Berlin", end_date="2026-04-01")


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def numbers(context) -> pa.Table:
    return pa.table({"day": pa.array([date.fromisoformat(key) for key in context.partition_keys], pa.date32()), "n": [1]})


@dg.asset
def plain() -> pa.Table:
    return pa.table({"n": [1, 2]})


class Ticks:
    """Evaluates the sensor again and again, keeping its cursor."""

    def __init__(self, resource: DuckLakeResource, instance: dg.DagsterInstance, **how: Any) -> None:
        self.sensor = build_commit_sensor(assets=[numbers, plain], **how)
        self.resource, self.instance, self.cursor = resource, instance, None

    def tick(self) -> list[tuple[str, str, str | None]]:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, resources={"lake": self.resource})
        result = self.sensor.evaluate_tick(context)
        self.cursor, self.reason = result.cursor, result.skip_message or ""
        return [
            (type(event).__name__.removeprefix("Asset"), event.asset_key.to_user_string(), event.partition) for event in result.asset_events
        ]


def test_foreign_commits_are_reported_with_the_partitions_they_touch(
    run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, oracle: Callable[..., Any], sqlite_address: LakeAddress
) -> None:
    ticks = Ticks(lake_resource, instance)
    run([plain])
    assert ticks.tick() == []
    run([numbers], partition_key="2026-03-28")
    run([plain])
    assert ticks.tick() == []
    assert "0 foreign commits among 2" in ticks.reason

    with oracle(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("INSERT INTO lake.numbers VALUES (DATE '2026-03-29', 5), (DATE '2026-03-30', 6)", "INSERT INTO lake.plain VALUES (9)")
    assert ticks.tick() == [
        ("Materialization", "numbers", "2026-03-29"),
        ("Materialization", "numbers", "2026-03-30"),
        ("Materialization", "plain", None),
    ]
    with oracle(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("DELETE FROM lake.numbers WHERE n = 1")
    assert ticks.tick() == [("Materialization", "numbers", "2026-03-28")]
    with oracle(sqlite_address) as duck:
        duck.run("INSERT INTO lake.numbers VALUES (DATE '2026-03-31', 7)")
        duck.run("DELETE FROM lake.numbers WHERE n = 7")
    assert ticks.tick() == [("Materialization", "numbers", "2026-03-31")] * 2
    with oracle(sqlite_address) as duck:
        duck.run("ALTER TABLE lake.plain ADD COLUMN note VARCHAR", "CREATE TABLE lake.other AS SELECT 1 AS x")
    assert ticks.tick() == [("Observation", "plain", None)]
    assert ticks.tick() == []
    assert "no commit after snapshot" in ticks.reason


def test_a_foreign_dagster_is_foreign(run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    run([plain])
    ticks = Ticks(lake_resource, instance)
    ticks.tick()
    lake_resource.connect().table("plain").append(pa.table({"n": [3]}), extra_info={"dagster": {"run_id": "of another instance"}})
    assert ticks.tick() == [("Materialization", "plain", None)]


def test_ticks_are_bounded_and_go_on_where_they_stopped(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    for number in range(5):
        lake.write("plain", pa.table({"n": [number]}))
    ticks = Ticks(lake_resource, instance, max_snapshots_per_tick=4, report_history=True)
    assert [len(ticks.tick()), len(ticks.tick()), len(ticks.tick())] == [3, 2, 0]


def test_too_many_partitions_become_one_event(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    days = [date(2026, 3, day) for day in (27, 28, 29)]
    lake_resource.connect().write("numbers", pa.table({"day": pa.array(days, pa.date32()), "n": [1, 2, 3]}))
    assert Ticks(lake_resource, instance, report_history=True).tick() == [
        ("Materialization", "numbers", f"2026-03-{d}") for d in (27, 28, 29)
    ]
    few = Ticks(lake_resource, instance, report_history=True, max_partitions_per_commit=2)
    assert few.tick() == [("Materialization", "numbers", None)]


def test_a_cursor_of_another_lake_or_of_no_meaning_starts_anew(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake_resource.connect().write("plain", pa.table({"n": [1]}))
    future, other = {"v": 99, "catalog": "x", "snapshot": 0}, {"v": 1, "catalog": "x", "snapshot": 0}
    for cursor in ("nonsense", "[]", json.dumps(future), json.dumps(other)):
        ticks = Ticks(lake_resource, instance)
        ticks.cursor = cursor  # type: ignore[assignment]
        assert ticks.tick() == []
        assert json.loads(ticks.cursor or "")["snapshot"] == 1
