"""Checks that a sensor makes without a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import (
    DuckLakeResource,
    Freshness,
    InlinedRows,
    RowCountChange,
    UniqueKey,
    build_check_sensor,
    build_commit_sensor,
    build_lake_checks,
    build_maintenance_defs,
)

DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-04-03")
KEYS = DAYS.get_partition_keys()
ASSETS = [dg.AssetSpec("days", partitions_def=DAYS, metadata={"partition_expr": "day"}), dg.AssetSpec("plain")]


def rows(keys: list[str], each: int) -> pa.Table:
    return pa.table({"day": pa.array([date.fromisoformat(key) for key in keys for _ in range(each)], pa.date32())})


def test_changed_partitions_are_checked(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    lake.set_option("data_inlining_row_limit", 0)
    checks = [RowCountChange(max_drop=0.5), InlinedRows(maximum=5)]
    sensor = build_check_sensor(assets=ASSETS, checks=checks)
    cursor = None

    def tick() -> dict[tuple[str, str], tuple[bool, str]]:
        nonlocal cursor
        context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}, cursor=cursor)
        found = sensor.evaluate_tick(context)
        cursor = found.cursor
        assert not found.run_requests
        assert found.skip_message
        return {(one.asset_key.to_user_string(), one.check_name): (one.passed, one.description) for one in found.asset_events}

    lake.write("days", rows(KEYS, 100), partition_by=["day"])
    first = tick()
    assert first["days", "row_count_change"] == (True, "700 rows in 7 partitions, none known before")
    assert first["plain", "row_count_change"] == (False, "table main.plain does not exist. Materialise plain first")
    assert tick() == {}
    lake.write("days", rows(KEYS[1:2], 1), mode="overwrite", where=f"day = DATE '{KEYS[1]}'")
    lake.set_comment("days", "changes no row")
    reported = tick()
    assert reported["days", "row_count_change"] == (False, f"{KEYS[1]}: 99.0% of the rows disappeared, more than 50.0%")
    assert ("plain", "row_count_change") not in reported
    lake.set_comment("days", "changes no row either")
    assert tick() == {}, "what failed has not passed because nothing happened"
    lake.unset_option("data_inlining_row_limit")
    lake.write("plain", pa.table({"n": range(6)}))
    assert tick() == {
        ("plain", "row_count_change"): (True, "6 rows, none known before"),
        ("plain", "inlined_rows"): (False, "6 rows are in the catalog"),
    }
    cursor = "of another version"
    assert len(tick()) == 4


def test_age_alone_changes_a_verdict(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake_resource.connect().write("plain", pa.table({"n": [1]}))
    stale = build_check_sensor(assets=ASSETS[1:], checks=[Freshness(max_age="0 seconds")])
    fresh = build_check_sensor(assets=ASSETS[1:], checks=[Freshness(max_age="1 day")])
    context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource})
    cursor = fresh.evaluate_tick(context).cursor
    context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}, cursor=cursor)
    (event,) = stale.evaluate_tick(context).asset_events
    assert event.passed is False


def test_dagster_keeps_what_is_reported(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake_resource.connect().write("plain", pa.table({"n": range(6)}))
    checks = [InlinedRows(maximum=5)]
    sensor = build_check_sensor(assets=ASSETS[1:], checks=checks)
    defs = dg.Definitions(
        assets=ASSETS[1:],
        asset_checks=build_lake_checks(assets=ASSETS[1:], checks=checks),
        sensors=[sensor],
        resources={"lake": lake_resource},
    )
    dg.Definitions.validate_loadable(defs)
    for event in sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake_resource})).asset_events:
        instance.report_runless_asset_event(event)
    key = dg.AssetCheckKey(dg.AssetKey("plain"), "inlined_rows")
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
    evaluation = record.event.dagster_event.asset_check_evaluation_data
    assert evaluation.passed is False
    assert evaluation.metadata["ducklake/inlined_rows"].value == 6


def test_it_ships_stopped_and_rejects_what_reads_rows() -> None:
    make: Callable[..., dg.SensorDefinition] = lambda checks: build_check_sensor(assets=ASSETS, checks=checks)  # noqa: E731
    assert make([Freshness(max_age="1 day")]).default_status is dg.DefaultSensorStatus.STOPPED
    with pytest.raises(UsageError, match="these checks read rows: unique_key"):
        make([UniqueKey(key="id")])
    with pytest.raises(UsageError, match="has no assets"):
        build_check_sensor(assets=[], checks=[Freshness(max_age="1 day")])


def test_maintenance_has_checks_of_its_assets_and_their_sensor(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    lake.write("plain", pa.table({"n": range(6)}))
    checks = [InlinedRows(maximum=5), UniqueKey(key="n")]
    defs = build_maintenance_defs(name="care", assets=ASSETS[1:], checks=checks)
    (sensor,) = defs.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert (sensor.name, sensor.default_status) == ("care_checks", dg.DefaultSensorStatus.STOPPED)
    context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource})
    found = sensor.evaluate_tick(context)
    assert [event.check_name for event in found.asset_events] == ["inlined_rows"], "the sensor opens no files"
    assert found.skip_message == f"reported 1 check (1 failed) at snapshot {lake.snapshot().id}"
    (built,) = defs.asset_checks or ()
    assert {key.name for key in built.check_keys} == {"inlined_rows", "unique_key"}
    assert not build_maintenance_defs(assets=ASSETS[1:]).sensors
    assert not build_maintenance_defs(assets=ASSETS[1:], checks=[UniqueKey(key="n")]).sensors
    with pytest.raises(UsageError, match="assets is empty"):
        build_maintenance_defs(checks=checks)
    with pytest.raises(UsageError, match="assets must be a list of asset definitions"):
        build_maintenance_defs(assets=None)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*currently in beta")
@pytest.mark.filterwarnings("ignore:.*is superseded")
def test_dagsters_own_checks_use_what_is_reported(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    lake.write("plain", pa.table({"n": [1]}))
    commits = build_commit_sensor(assets=ASSETS[1:], report_history=True)
    cursor = None
    for more in ({}, {"m": [2]}):
        if more:
            lake.write("plain", pa.table({"n": [2], **more}), mode="append", schema_evolution="additive")
        context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}, cursor=cursor)
        found = commits.evaluate_tick(context)
        cursor = found.cursor
        for event in found.asset_events:
            instance.report_runless_asset_event(event)
    (columns,) = dg.build_column_schema_change_checks(assets=["plain"])
    (fresh,) = dg.build_last_update_freshness_checks(assets=[dg.AssetKey("plain")], lower_bound_delta=timedelta(hours=1))
    result = dg.materialize([ASSETS[1], columns, fresh], instance=instance, selection=dg.AssetSelection.all_asset_checks())
    verdicts = {one.check_name: one for one in result.get_asset_check_evaluations()}
    assert "Added columns: m" in str(verdicts["column_schema_change"].description)
    assert verdicts["freshness_check"].passed
    updated = verdicts["freshness_check"].metadata["dagster/last_updated_timestamp"].value
    assert updated == lake.snapshot().time.timestamp()
