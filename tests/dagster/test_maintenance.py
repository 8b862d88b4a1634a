"""Maintenance under Dagster: order, dry run, isolation, one request for each state of a table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    build_compaction_sensor,
    build_maintenance_job,
    build_maintenance_schedule,
)
from tests.dagster.conftest import QUIET
from tests.support.oracle import LakeAddress

NOW = {"older_than_days": 0.0, "min_age_hours": 0.0}


@pytest.fixture
def filled(lake_resource: DuckLakeResource) -> DuckLakeResource:
    """A lake with a table of five small files and one of one file."""
    lake = lake_resource.connect()
    lake.set_option("data_inlining_row_limit", 0)
    for number in range(5):
        lake.write("small", pa.table({"n": [number]}))
    lake.write('"odd.na""me"', pa.table({"n": [1]}))
    return lake_resource


def resources(lake: DuckLakeResource) -> dict[str, Any]:
    # Bound to "io_manager" on purpose: no maintenance step may ever hand it an output.
    return {"lake": lake, "io_manager": DuckLakeIOManager(lake=lake)}


def execute(
    job: dg.JobDefinition, lake: DuckLakeResource, instance: dg.DagsterInstance, ops: dict[str, Any] | None = None
) -> dict[str, Any]:
    found = dg.Definitions(jobs=[job], resources=resources(lake)).resolve_job_def(job.name)
    config = {**QUIET, "ops": {name: {"config": values} for name, values in ops.items()}} if ops else None
    result = found.execute_in_process(instance=instance, run_config=config)
    steps = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    return {str(event.step_key): {k: v.value for k, v in event.step_output_data.metadata.items()} for event in steps}


def test_the_job_merges_expires_and_cleans_up_in_this_order(
    filled: DuckLakeResource, instance: dg.DagsterInstance, oracle: Callable[..., Any], sqlite_address: LakeAddress
) -> None:
    lake = filled.connect()
    steps = execute(
        build_maintenance_job(), filled, instance, {"merge_adjacent_files": {}, "expire_snapshots": NOW, "cleanup_old_files": NOW}
    )
    assert list(steps) == ["merge_adjacent_files", "expire_snapshots", "cleanup_old_files"]
    assert (steps["merge_adjacent_files"]["main.small/files_merged"], steps["merge_adjacent_files"]["main.small/files_created"]) == (5, 1)
    assert steps["expire_snapshots"]["snapshots"] == 7
    assert steps["cleanup_old_files"]["files"] == 5
    assert (lake.table_info("small").file_count, len(lake.snapshots())) == (1, 1)
    with oracle(sqlite_address) as duck:
        assert duck.rows("SELECT n FROM lake.small ORDER BY n") == [(number,) for number in range(5)]


def test_a_dry_run_changes_nothing_and_says_what_it_would_do(filled: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = filled.connect()
    before = lake.snapshots()
    job = build_maintenance_job(expire_older_than=timedelta(hours=2), cleanup_older_than=timedelta(hours=2), dry_run=True)
    steps = execute(job, filled, instance)
    assert all(step["dry_run"] for step in steps.values())
    assert "would merge" in steps["merge_adjacent_files"]["report"]
    assert (lake.snapshots(), lake.table_info("small").file_count) == (before, 5)


def test_only_the_named_tables_are_merged(filled: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    filled.connect().write("other", pa.table({"n": [1]}))
    filled.connect().write("other", pa.table({"n": [2]}))
    execute(build_maintenance_job(tables=["main.other"]), filled, instance)
    assert [filled.connect().table_info(name).file_count for name in ("small", "other")] == [5, 1]


def test_several_jobs_and_lakes_live_in_one_project(filled: DuckLakeResource) -> None:
    jobs = [
        build_maintenance_job(),
        build_maintenance_job(name="nightly", pool=None),
        build_maintenance_job(name="of_another", lake_key="b"),
    ]
    sensors = [build_compaction_sensor(), build_compaction_sensor(name="other", lake_key="b")]
    dg.Definitions.validate_loadable(dg.Definitions(jobs=jobs, sensors=sensors, resources={**resources(filled), "b": filled}))


def test_the_demo_project_loads() -> None:
    from ducklake_dagster.demo.definitions import defs

    dg.Definitions.validate_loadable(defs)


def test_everything_ships_stopped() -> None:
    job = build_maintenance_job()
    assert build_maintenance_schedule(job).default_status is dg.DefaultScheduleStatus.STOPPED
    assert build_compaction_sensor().default_status is dg.DefaultSensorStatus.STOPPED


def test_the_sensor_asks_once_for_each_state_and_for_what_can_be_merged_only(
    filled: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    sensor = build_compaction_sensor(min_files=5)

    def requests() -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=instance, resources={"lake": filled})
        return list(sensor.evaluate_tick(context).run_requests or [])

    (first,) = requests()
    table_id = filled.connect().table("small").state.id
    assert first.run_key == f"compact:{table_id}:5"
    assert first.run_config["ops"]["merge_adjacent_files"]["config"]["tables"] == ["main.small"]
    assert [request.run_key for request in requests()] == [first.run_key]
    job = dg.Definitions(sensors=[sensor], resources=resources(filled)).resolve_job_def("ducklake_compaction_job")
    assert job.execute_in_process(instance=instance, run_config=first.run_config).success
    assert filled.connect().table_info("small").file_count == 1
    assert requests() == []
