"""Commits of other clients become events, those of the instance do not; the cursor survives changes of the lake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource, build_commit_sensor, sensors
from ducklake_dagster.io.read_points import lake_identity
from tests.support.oracle import LakeAddress, attached

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
        self.metadata: list[Any] = []
        self.metadata_of_all: list[Any] = []

    def tick(self) -> list[tuple[str, str, str | None]]:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, resources={"lake": self.resource})
        result = self.sensor.evaluate_tick(context)
        self.cursor, self.reason = result.cursor, result.skip_message or ""
        self.metadata = [event.metadata for event in result.asset_events]
        self.metadata_of_all += self.metadata
        return [
            (type(event).__name__.removeprefix("Asset"), event.asset_key.to_user_string(), event.partition) for event in result.asset_events
        ]


def test_foreign_commits_are_reported_with_the_partitions_they_touch(
    run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    ticks = Ticks(lake_resource, instance)
    run([plain])
    assert ticks.tick() == []
    run([numbers], partition_key="2026-03-28")
    run([plain])
    assert ticks.tick() == []
    assert re.fullmatch(r"no commits of other writers \(snapshots \d+-\d+\)", ticks.reason)

    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("INSERT INTO lake.numbers VALUES (DATE '2026-03-29', 5), (DATE '2026-03-30', 6)", "INSERT INTO lake.plain VALUES (9)")
    assert ticks.tick() == [
        ("Materialization", "numbers", "2026-03-29"),
        ("Materialization", "numbers", "2026-03-30"),
        ("Materialization", "plain", None),
    ]
    newest = lake_resource.connect().snapshot().id
    assert ticks.reason == f"2 partitions of numbers, plain changed by another writer (snapshots {newest - 1}-{newest})"
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("DELETE FROM lake.numbers WHERE n = 1")
    assert ticks.tick() == [("Materialization", "numbers", "2026-03-28")]
    with attached(sqlite_address) as duck:
        duck.run("INSERT INTO lake.numbers VALUES (DATE '2026-03-31', 7)")
        duck.run("DELETE FROM lake.numbers WHERE n = 7")
    # Rows that came and went between two ticks were never seen by anybody who waits for events.
    assert ticks.tick() == []
    assert "another writer changed no rows or columns of these assets (snapshots " in ticks.reason
    with attached(sqlite_address) as duck:
        duck.run("ALTER TABLE lake.plain ADD COLUMN note VARCHAR", "CREATE TABLE lake.other AS SELECT 1 AS x")
    assert ticks.tick() == [("Observation", "plain", None)]
    assert ticks.tick() == []
    assert "no commit after snapshot" in ticks.reason


def test_events_of_foreign_commits_list_their_changes(
    run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    run([plain])
    ticks = Ticks(lake_resource, instance)
    ticks.tick()

    def seen(*statements: str, inline: int = 0) -> dict[str, Any]:
        with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {inline}") as duck:
            duck.run(*statements)
        ticks.tick()
        (metadata,) = ticks.metadata
        names = ("ducklake/changes", "ducklake/rows_added", "ducklake/rows_removed", "dagster/table_name")
        return {name: metadata[name].value for name in names}

    common = {"dagster/table_name": "main.plain"}
    added = {"ducklake/changes": "added rows to main.plain", "ducklake/rows_added": 2, "ducklake/rows_removed": 0}
    assert seen("INSERT INTO lake.plain VALUES (7), (8)") == {**added, **common}
    assert ticks.metadata[0]["ducklake/files_with_rows_added"].value == 1
    assert ticks.metadata[0]["dagster/last_updated_timestamp"].value == lake_resource.connect().snapshot().time.timestamp()
    assert seen("INSERT INTO lake.plain VALUES (10), (11)", inline=10) == {**added, **common}
    reported = seen("DELETE FROM lake.plain WHERE n = 7")
    assert (reported["ducklake/changes"], reported["ducklake/rows_added"]) == ("deleted rows of main.plain", 0)
    assert reported["ducklake/rows_removed"] >= 1
    reported = seen("ALTER TABLE lake.plain ADD COLUMN more INTEGER")
    assert reported["ducklake/changes"] == "altered main.plain"
    assert "dagster/last_updated_timestamp" not in ticks.metadata[0], "no row was updated"


def test_an_unknown_schema_is_reported(run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    ticks = Ticks(lake_resource, instance)
    run([plain], io={"schema": "raw"})
    assert ticks.tick() == []
    assert "schema=" not in ticks.reason
    lake_resource.connect().write("raw.plain", pa.table({"n": [3]}))
    assert ticks.tick() == []
    assert "asset plain is read from main.plain, but the lake has raw.plain. Set schema= to the schema of the IO manager" in ticks.reason
    lake_resource.connect().write("main.plain", pa.table({"n": [3]}))
    assert ticks.tick() == [("Materialization", "plain", None)]


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
    reached = []
    for _ in range(3):
        events = ticks.tick()
        reached.append((events, json.loads(ticks.cursor or "")["snapshot"]))
    event = [("Materialization", "plain", None)]
    assert reached == [(event, 3), (event, 5), ([], 5)]


def test_many_partitions_are_reported_over_several_ticks(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    days = [date(2026, 3, day) for day in (27, 28, 29)]
    lake = lake_resource.connect()
    lake.write("numbers", pa.table({"day": pa.array(days, pa.date32()), "n": [1, 2, 3]}))
    everything = [("Materialization", "numbers", f"2026-03-{d}") for d in (27, 28, 29)]
    assert Ticks(lake_resource, instance, report_history=True).tick() == everything
    few = Ticks(lake_resource, instance, report_history=True, max_events_per_tick=2)
    assert few.tick() == everything[:2]
    assert "the next tick reports more events of these commits" in few.reason
    # What comes meanwhile is reported when the commits at hand are done.
    lake.write("numbers", pa.table({"day": pa.array([date(2026, 3, 27)], pa.date32()), "n": [9]}))
    assert [few.tick(), few.tick(), few.tick()] == [everything[2:], everything[:1], []]


def test_an_invalid_cursor_starts_over(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake_resource.connect().write("plain", pa.table({"n": [1]}))
    future, other = {"v": 99, "catalog": "x", "snapshot": 0}, {"v": 1, "catalog": "x", "snapshot": 0}
    for cursor in ("nonsense", "[]", json.dumps(future), json.dumps(other)):
        ticks = Ticks(lake_resource, instance)
        ticks.cursor = cursor  # type: ignore[assignment]
        assert ticks.tick() == []
        assert json.loads(ticks.cursor or "")["snapshot"] == 1


def test_json_nested_deeper_than_the_parser_goes(
    lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    lake_resource.connect().write("plain", pa.table({"n": [1]}))
    ticks = Ticks(lake_resource, instance)
    ticks.tick()
    with attached(sqlite_address) as duck:
        for text in ('{"dagster": ' + "[" * 100_000, '{"dagster": {"run_id": "\\u0000"}}', '{"dagster": {"run_id": {"a": 1}}}'):
            duck.run(
                "BEGIN", "INSERT INTO lake.plain VALUES (2)", f"CALL lake.set_commit_message('x', 'y', extra_info => '{text}')", "COMMIT"
            )
    assert ticks.tick() == [("Materialization", "plain", None)]
    assert ticks.tick() == []


def test_tables_swapped_dropped_and_moved(
    run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    ticks = Ticks(lake_resource, instance)
    run([numbers], partition_key="2026-03-28")
    run([plain])
    ticks.tick()
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE lake.next AS SELECT DATE '2026-03-30' AS day, 5 AS n")
        duck.run("BEGIN", "ALTER TABLE lake.numbers RENAME TO before", "ALTER TABLE lake.next RENAME TO numbers", "COMMIT")
        assert ticks.tick() == [("Materialization", "numbers", f"2026-03-{day}") for day in (28, 30)]
        duck.run("CALL ducklake_flush_inlined_data('lake')", "UPDATE lake.numbers SET n = 6")
        assert ticks.tick() == [
            ("Observation", "numbers", None),
            ("Materialization", "numbers", "2026-03-30"),
            ("Observation", "plain", None),
        ]
        duck.run("DROP TABLE lake.numbers", "DROP TABLE lake.plain")
        assert ticks.tick() == [("Materialization", "numbers", "2026-03-30"), ("Materialization", "plain", None)]
        assert ticks.metadata[-1]["ducklake/table"].value == "dropped"
        duck.run("CREATE TABLE lake.plain (n INTEGER)")
        assert ticks.tick() == []


def test_commits_of_the_instance_between_foreign_ones(run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    run([numbers], partition_key="2026-03-27")
    ticks = Ticks(lake_resource, instance)
    ticks.tick()
    lake = lake_resource.connect()
    run([numbers], partition_key="2026-03-28")
    lake.write("numbers", pa.table({"day": pa.array([date(2026, 3, 29)], pa.date32()), "n": [9]}), author="Ann")
    run([numbers], partition_key="2026-03-30")
    assert ticks.tick() == [("Materialization", "numbers", "2026-03-29")]
    assert ticks.metadata[0]["ducklake/author"].value == "Ann"
    assert ticks.metadata[0]["ducklake/snapshot_id"].value == lake.snapshot().id - 1


def test_rows_outside_of_all_partitions_are_observed(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake_resource.connect().write("numbers", pa.table({"day": pa.array([date(1999, 1, 1), None], pa.date32()), "n": [1, 2]}))
    ticks = Ticks(lake_resource, instance, report_history=True)
    assert ticks.tick() == [("Observation", "numbers", None)]


def test_commits_expired_before_a_tick_report_all_partitions(
    run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    run([numbers], partition_key="2026-03-28")
    run([plain])
    ticks = Ticks(lake_resource, instance)
    ticks.tick()
    with attached(sqlite_address) as duck:
        duck.run("DELETE FROM lake.numbers", "INSERT INTO lake.plain VALUES (5)", "DROP TABLE lake.plain")
        duck.run("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 2 DAY)")
    days = [f"2026-03-{day}" for day in (27, 28, 29, 30, 31)]
    assert ticks.tick() == [*(("Materialization", "numbers", day) for day in days), ("Materialization", "plain", None)]
    assert "were expired before this sensor saw them" in ticks.reason
    assert all("expired" in str(event["ducklake/partitions"].value) for event in ticks.metadata)
    assert ticks.tick() == []


def test_a_catalog_put_back_from_a_backup(
    run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    path = Path(sqlite_address.url.removeprefix("sqlite:///"))
    run([numbers], partition_key="2026-03-28")
    run([plain])
    lake_resource.connect().close()
    backup = path.read_bytes()
    ticks = Ticks(lake_resource, instance, max_events_per_tick=4)
    ticks.tick()
    run([numbers], partition_key="2026-03-29")
    ticks.tick()
    lake_resource.connect().close()
    path.write_bytes(backup)
    days = [("Materialization", "numbers", f"2026-03-{day}") for day in (27, 28, 29, 30, 31)]
    assert [ticks.tick(), ticks.tick(), ticks.tick()] == [days[:4], [*days[4:], ("Materialization", "plain", None)], []]
    assert "was restored to a state" in str(ticks.metadata_of_all[0]["ducklake/partitions"].value)


def test_when_time_runs_out_a_tick_ends_with_a_whole_commit(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    for day in (27, 28, 29):
        rows = pa.table({"day": pa.array([date(2026, 3, day)] * 2, pa.date32()), "n": [1, 2]})
        with lake.transaction() as tx:
            tx.write("numbers", rows)
            tx.write("plain", pa.table({"n": [day]}))
    ticks = Ticks(lake_resource, instance, report_history=True, max_seconds_per_tick=0)
    seen = [(ticks.tick(), json.loads(ticks.cursor or "")["snapshot"]) for _ in range(4)]
    assert seen == [
        ([("Materialization", "numbers", "2026-03-27"), ("Materialization", "plain", None)], 1),
        ([("Materialization", "numbers", "2026-03-28"), ("Materialization", "plain", None)], 2),
        ([("Materialization", "numbers", "2026-03-29"), ("Materialization", "plain", None)], 3),
        ([], 3),
    ]


TWO = dg.MultiPartitionsDefinition({"day": DAYS, "kind": dg.StaticPartitionsDefinition(["b", "a"])})


def test_two_dimensions_and_columns_that_do_not_separate_partitions(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    specs = [
        dg.AssetSpec("pairs", partitions_def=TWO, metadata={"partition_expr": {"day": "at", "kind": "kind"}}),
        dg.AssetSpec("vague", partitions_def=dg.StaticPartitionsDefinition(["1", "2"]), metadata={"partition_expr": "x"}),
        dg.AssetSpec("numbered", partitions_def=dg.StaticPartitionsDefinition(["10", "9"]), metadata={"partition_expr": "x"}),
    ]
    sensor = build_commit_sensor(assets=specs, report_history=True)
    # 23:30 UTC is the next day in Berlin.
    moments = pa.array([1774740600000000], pa.timestamp("us", tz="UTC"))
    lake.write("pairs", pa.table({"at": moments, "kind": ["a"]}))
    lake.write("vague", pa.table({"x": [1.5]}))
    lake.write("numbered", pa.table({"x": [9]}))
    result = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}))
    assert [(event.asset_key.to_user_string(), event.partition) for event in result.asset_events] == [
        ("numbered", "9"),
        ("pairs", "2026-03-29|a"),
        ("vague", "1"),
        ("vague", "2"),
    ]
    assert "float64" in str(result.asset_events[-1].metadata["ducklake/partitions"].value)


def test_a_commit_of_many_tables_is_described_once(
    lake_resource: DuckLakeResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[int] = []
    real = sensors.changes_text
    monkeypatch.setattr(sensors, "changes_text", lambda snapshot, names: reported.append(snapshot.id) or real(snapshot, names))
    specs = [dg.AssetSpec(f"t{number}") for number in range(30)]
    lake = lake_resource.connect()
    before = lake.snapshot().id
    with lake.transaction() as tx:
        for spec in specs:
            tx.write(spec.key.path[-1], pa.table({"n": [1]}))
    cursor = json.dumps({"v": 2, "catalog": lake_identity(lake), "snapshot": before})
    context = dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake_resource})
    found = build_commit_sensor(assets=specs).evaluate_tick(context).asset_events
    assert len(found) == 30
    assert reported == [lake.snapshot().id]
