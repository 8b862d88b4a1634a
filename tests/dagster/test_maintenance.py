"""Maintenance under Dagster: order, dry run, isolation, one request for each state of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_module

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, build_compaction_sensor, build_maintenance_job, build_maintenance_schedule
from tests.dagster.conftest import QUIET
from tests.support.oracle import LakeAddress, attached

ROOT = Path(__file__).parents[2]
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
    filled: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    lake = filled.connect()
    steps = execute(
        build_maintenance_job(), filled, instance, {"merge_adjacent_files": {}, "expire_snapshots": NOW, "cleanup_old_files": NOW}
    )
    assert list(steps) == ["merge_adjacent_files", "expire_snapshots", "cleanup_old_files", "outcome"]
    assert (steps["merge_adjacent_files"]["main.small/files_merged"], steps["merge_adjacent_files"]["main.small/files_created"]) == (5, 1)
    assert steps["expire_snapshots"]["snapshots"] == 7
    assert steps["cleanup_old_files"]["files"] == 5
    assert (lake.table_info("small").file_count, len(lake.snapshots())) == (1, 1)
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT n FROM lake.small ORDER BY n") == [(number,) for number in range(5)]


def test_several_jobs_and_lakes_live_in_one_project(filled: DuckLakeResource) -> None:
    jobs = [
        build_maintenance_job(),
        build_maintenance_job(name="nightly", pool=None),
        build_maintenance_job(name="of_another", lake_key="b"),
    ]
    sensors = [build_compaction_sensor(), build_compaction_sensor(name="other", lake_key="b")]
    dg.Definitions.validate_loadable(dg.Definitions(jobs=jobs, sensors=sensors, resources={**resources(filled), "b": filled}))


def test_the_demo_project_loads_as_the_workspace_names_it() -> None:
    (entry,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    (target,) = loadable_targets_from_python_module(entry["python_module"]["module_name"], working_directory=str(ROOT))
    dg.Definitions.validate_loadable(target.target_definition)


def test_everything_ships_stopped() -> None:
    job = build_maintenance_job()
    assert build_maintenance_schedule(job).default_status is dg.DefaultScheduleStatus.STOPPED
    assert build_compaction_sensor().default_status is dg.DefaultSensorStatus.STOPPED


def test_the_sensor_requests_one_run_for_each_state_with_mergeable_files(filled: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    sensor = build_compaction_sensor(min_files=5)

    def requests() -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=instance, resources={"lake": filled})
        return list(sensor.evaluate_tick(context).run_requests or [])

    (first,) = requests()
    table_id = filled.connect().table("small").state.id
    assert first.run_key.startswith(f"compact:{table_id}:")
    assert first.run_config["ops"]["merge_adjacent_files"]["config"]["tables"] == ["main.small"]
    assert [request.run_key for request in requests()] == [first.run_key]
    job = dg.Definitions(sensors=[sensor], resources=resources(filled)).resolve_job_def("ducklake_compaction_job")
    assert job.execute_in_process(instance=instance, run_config=first.run_config).success
    assert filled.connect().table_info("small").file_count == 1
    assert requests() == []


def test_one_broken_table_does_not_stop_maintenance(
    filled: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    lake = filled.connect()
    for number in range(3):
        lake.write("broken", pa.table({"n": [number]}))
    next(Path(sqlite_address.data_path).glob("main/broken/*.parquet")).unlink()
    found = dg.Definitions(jobs=[build_maintenance_job()], resources=resources(filled)).resolve_job_def("ducklake_maintenance")
    config = {**QUIET, "ops": {name: {"config": NOW} for name in ("expire_snapshots", "cleanup_old_files")}}
    result = found.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert failure.step_key == "outcome"
    assert "merge_adjacent_files: main.broken" in failure.step_failure_data.user_failure_data.description
    assert lake.table_info("small").file_count == 1
    assert len(lake.snapshots()) == 1, "expiry had its turn"


def test_remaining_work_is_observed_on_the_assets(filled: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    filled.connect().table("small").delete("n = 0")
    job = build_maintenance_job(assets=[dg.AssetSpec("small"), dg.AssetSpec("unmade"), dg.AssetSpec(["a", 'odd.na"me'])], schema="main")
    execute(job, filled, instance)
    (event,) = instance.fetch_observations(dg.AssetKey("small"), limit=10).records
    numbers = {name: value.value for name, value in event.asset_observation.metadata.items()}
    lake = filled.connect()
    info = lake.table_info("small")
    assert numbers["ducklake/table_files"] == info.file_count < 5
    assert (numbers["dagster/row_count"], numbers["dagster/size_bytes"]) == (4, info.file_size_bytes)
    assert numbers["ducklake/lake_snapshots"] == len(lake.snapshots())
    assert 0 <= numbers["ducklake/delete_ratio"] < 1
    assert all(isinstance(value, int | float) for value in numbers.values()), "plotted"
    assert event.run_id, "the page links to the run"
    assert len(instance.fetch_observations(dg.AssetKey(["a", 'odd.na"me']), limit=10).records) == 1
    assert not instance.fetch_observations(dg.AssetKey("unmade"), limit=10).records


def test_everything_is_described() -> None:
    job, sensor = build_maintenance_job(), build_compaction_sensor()
    described = [job, build_maintenance_schedule(job), sensor, sensor.job, *job.nodes, *sensor.job.nodes]
    descriptions = [(one.definition if hasattr(one, "definition") else one).description or "" for one in described]
    assert all(descriptions)
    assert not any(mark in text for text in descriptions for mark in (":class:", "``", "Args:"))


def test_a_missing_table_does_not_stop_the_others(filled: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    job = build_maintenance_job(tables=["nowhere", "small"])
    found = dg.Definitions(jobs=[job], resources=resources(filled)).resolve_job_def(job.name)
    result = found.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
    assert not result.success
    assert filled.connect().table_info("small").file_count == 1


def test_a_failed_compaction_is_requested_again_after_a_pause(filled: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    sensor = build_compaction_sensor(min_files=5, minimum_interval_seconds=0)

    def requests() -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=instance, resources={"lake": filled})
        return list(sensor.evaluate_tick(context).run_requests or [])

    job = dg.Definitions(sensors=[sensor], resources=resources(filled)).resolve_job_def("ducklake_compaction_job")
    (first,) = requests()
    broken = {"ops": {"merge_adjacent_files": {"config": {"tables": ["nowhere"]}}}, **QUIET}
    assert not job.execute_in_process(instance=instance, run_config=broken, tags=first.tags, raise_on_error=False).success
    (second,) = requests()
    assert second.run_key != first.run_key
    sensor = build_compaction_sensor(min_files=5, minimum_interval_seconds=300)
    assert requests() == []
    assert job.execute_in_process(instance=instance, run_config=second.run_config, tags=second.tags).success
    assert filled.connect().table_info("small").file_count == 1
