"""One call for all maintenance of a lake: every step, what runs pin, the sensor by statistics, and definitions that do not collide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, MaintenanceLimits, Triggers, build_maintenance_defs
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.io.read_points import lake_identity
from ducklake_dagster.maintenance.snapshot_pins import KEEP, Pins, find_pins
from tests.dagster.conftest import QUIET
from tests.support.oracle import LakeAddress, attached
from tests.support.statements import noted_statements

NOW = {"older_than_days": 0.0, "min_age_hours": 0.0}
ALL_NOW = dict.fromkeys(("expire_snapshots", "cleanup_old_files", "delete_orphaned_files"), NOW)


@pytest.fixture
def lake(lake_resource: DuckLakeResource) -> DuckLake:
    """Tables of small files, of deleted rows and of rows in the catalog, and an orphaned file."""
    made = lake_resource.connect()
    made.set_option("data_inlining_row_limit", 0)
    for number in range(5):
        made.write("small", pa.table({"n": [number]}))
    made.write("holes", pa.table({"n": range(100)}))
    made.table("holes").delete("n < 50")
    made.unset_option("data_inlining_row_limit")
    made.write("sales.inlined", pa.table({"n": [1, 2, 3]}))
    return made


def executed(
    defs: dg.Definitions, lake: DuckLakeResource, instance: dg.DagsterInstance, ops: dict[str, Any] | None = None, **how: Any
) -> dict[str, dict[str, Any]]:
    resources = {"lake": lake, "io_manager": DuckLakeIOManager(lake=lake), **how.pop("resources", {})}
    (job,) = defs.jobs
    found = dg.Definitions(jobs=[job], resources=resources).resolve_job_def(job.name)
    config = {**QUIET, "ops": {name: {"config": values} for name, values in (ops or {}).items()}}
    result = found.execute_in_process(instance=instance, run_config=config, **how)
    steps = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    return {str(event.step_key): {k: v.value for k, v in event.step_output_data.metadata.items()} for event in steps}


def test_all_steps_run_and_commits_carry_the_run(
    lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    orphan = Path(sqlite_address.data_path) / "main" / "small" / "ducklake-01890000-0000-7000-8000-000000000000.parquet"
    orphan.write_bytes(b"left")
    before = lake.snapshot().id
    steps = executed(build_maintenance_defs(delete_threshold=0.2), lake_resource, instance, ALL_NOW)
    assert list(steps) == [
        "flush_inlined_data", "expire_snapshots", "merge_adjacent_files", "rewrite_data_files", "cleanup_old_files",
        "delete_orphaned_files", "outcome",
    ]  # fmt: skip
    assert steps["flush_inlined_data"]["sales.inlined/rows"] == 3
    assert steps["merge_adjacent_files"]["main.small/files_merged"] == 5
    assert steps["rewrite_data_files"]["main.holes/files_rewritten"] == 1
    assert (steps["delete_orphaned_files"]["files"], orphan.exists()) == (1, False)
    health = lake.health()
    assert (health.table("holes").deleted_row_count, health.table("sales.inlined").inlined_row_count) == (0, 0)
    (run,) = instance.get_runs()
    made = [snapshot for snapshot in lake.snapshots() if snapshot.id > before]
    assert made
    assert {(one.author, dagster_facts(one)["run_id"]) for one in made} == {("dagster", run.run_id)}
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), min(n) FROM lake.holes") == [(50, 50)]


def test_patterns_limits_and_steps(lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    files = ["merge_adjacent_files", "flush_inlined_data"]
    executed(build_maintenance_defs(tables="sales.*", steps=files), lake_resource, instance)
    assert (lake.table_info("small").file_count, lake.table_info("sales.inlined").inlined_row_count) == (5, 0)
    executed(build_maintenance_defs(tables=["main.sm?ll"], limits=MaintenanceLimits(max_files=2)), lake_resource, instance)
    assert lake.table_info("small").file_count == 4
    steps = executed(build_maintenance_defs(dry_run=True), lake_resource, instance)
    assert all(step["dry_run"] for name, step in steps.items() if name != "outcome")
    assert lake.table_info("small").file_count == 4
    steps = executed(build_maintenance_defs(steps=files), lake_resource, instance, {"merge_adjacent_files": {"enabled": False}})
    assert steps["merge_adjacent_files"] == {"enabled": False}


def test_deletions_have_limits(
    lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    folder = Path(sqlite_address.data_path) / "main" / "small"
    for number in range(5):
        (folder / f"ducklake-01890000-0000-7000-8000-00000000000{number}.parquet").write_bytes(b"left")
    lake.merge_adjacent_files()
    lake.expire_snapshots(older_than="0 days", min_age="0 days")
    deletions = ["cleanup_old_files", "delete_orphaned_files"]
    limited = build_maintenance_defs(steps=deletions, limits=MaintenanceLimits(max_deleted_files=2, max_seconds=600))
    now = dict.fromkeys(deletions, NOW)
    for deleted, left in ((2, 3), (2, 1), (1, 0)):
        steps = executed(limited, lake_resource, instance, now)
        assert [(steps[step]["files"], steps[step]["left"]) for step in deletions] == [(deleted, left)] * 2
    with pytest.raises(UsageError, match="max_files: Input should be greater than or equal to 1"):
        build_maintenance_defs(limits=MaintenanceLimits(max_deleted_files=0))


class _Session:
    """Counts the requests for the session."""

    requested = 0

    @property
    def spark_session(self) -> Any:
        self.requested += 1
        raise UsageError("the session was asked for")


def test_spark_is_started_for_much_to_merge_alone(lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    spark = _Session()

    def run(above: int, **how: Any) -> dict[str, dict[str, Any]]:
        defs = build_maintenance_defs(spark_key="spark", spark_above_bytes=above, steps=["merge_adjacent_files"], **how)
        return executed(defs, lake_resource, instance, resources={"spark": spark}, raise_on_error=False)

    assert "the session was asked for" in run(1)["merge_adjacent_files"]["failures"][0]
    run(1, dry_run=True)
    assert spark.requested == 1
    assert run(10**9)["merge_adjacent_files"]["with_spark"] is False
    assert (spark.requested, lake.table_info("small").file_count) == (1, 1)


@contextmanager
def unfinished(instance: dg.DagsterInstance, began: datetime) -> Iterator[str]:
    """A run that is not over."""
    from dagster._core.test_utils import create_run_for_test

    run = create_run_for_test(instance, job_name="other", status=dg.DagsterRunStatus.NOT_STARTED)
    event = dg.DagsterEvent(event_type_value="PIPELINE_START", job_name="other")
    instance.report_dagster_event(event, run.run_id, timestamp=began.timestamp())
    yield run.run_id
    instance.report_run_canceled(instance.get_run_by_id(run.run_id))


def snapshot_times(address: LakeAddress, hours_ago: Sequence[float]) -> None:
    """Put back the times of snapshots, by id."""
    import sqlite3

    with sqlite3.connect(address.url.removeprefix("sqlite:///")) as catalog:
        for number, hours in enumerate(hours_ago):
            time = (datetime.now(UTC) - timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M:%S+00")
            catalog.execute("UPDATE ducklake_snapshot SET snapshot_time = ? WHERE snapshot_id = ?", [time, number])


def test_snapshots_of_unfinished_runs_stay(
    lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    lake = lake_resource.connect()
    lake.set_option("data_inlining_row_limit", 0)
    for number in range(5):
        lake.write("t", pa.table({"n": [number]}), mode="overwrite")
    snapshot_times(sqlite_address, [50, 40, 30, 20, 10, 1])
    expire: dict[str, Any] = {"expire_snapshots": NOW}
    both = {**expire, "cleanup_old_files": NOW}
    only = build_maintenance_defs(steps=["expire_snapshots"])
    defs = build_maintenance_defs(steps=["expire_snapshots", "cleanup_old_files"])
    with unfinished(instance, datetime.now(UTC) - timedelta(hours=25)) as run_id:
        planned = executed(build_maintenance_defs(steps=["expire_snapshots"], dry_run=True), lake_resource, instance, expire)
        assert (planned["expire_snapshots"]["snapshots"], planned["expire_snapshots"]["kept_for_runs"]) == (2, 3)
        steps = executed(defs, lake_resource, instance, both)
        assert [one.id for one in lake.snapshots()] == [2, 3, 4, 5]
        assert run_id in steps["expire_snapshots"]["kept_snapshots"]["2"]
        assert steps["expire_snapshots"]["files"] == 1, steps
        assert (steps["cleanup_old_files"]["files"], steps["cleanup_old_files"]["kept_for_run"]) == (0, run_id)
        lost = {"expire_snapshots": {**NOW, "longest_run_hours": 24}}
        executed(only, lake_resource, instance, lost)
        assert [one.id for one in lake.snapshots()] == [5], "a run that never ends keeps nothing for ever"
    steps = executed(defs, lake_resource, instance, both)
    assert steps["cleanup_old_files"]["files"] == 4
    assert "kept_for_run" not in steps["cleanup_old_files"]


def test_snapshots_of_resumed_runs_stay(lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress) -> None:
    """A run that resumes another one reads the snapshot that the former one pinned, and what that one committed, however old."""
    from dagster._core.events import EngineEventData
    from dagster._core.test_utils import create_run_for_test

    lake = lake_resource.connect()
    first = create_run_for_test(instance, job_name="other", status=dg.DagsterRunStatus.FAILURE)
    for number in range(6):
        facts = {"dagster": {"run_id": first.run_id}} if number == 3 else {}
        lake.write("t", pa.table({"n": [number]}), mode="overwrite", extra_info=facts)
    snapshot_times(sqlite_address, [70, 60, 50, 40, 30, 20, 10])
    metadata = {"ducklake/pinned_snapshot": 2, "ducklake/lake": lake_identity(lake)}
    instance.report_engine_event("read", dagster_run=first, engine_event_data=EngineEventData(metadata=metadata))
    others = {**metadata, "ducklake/pinned_snapshot": 1, "ducklake/lake": "another lake"}
    instance.report_engine_event("read", dagster_run=first, engine_event_data=EngineEventData(metadata=others))
    defs = build_maintenance_defs(steps=["expire_snapshots"])
    how = {"parent_run_id": first.run_id, "root_run_id": first.run_id}
    again = create_run_for_test(instance, job_name="other", status=dg.DagsterRunStatus.NOT_STARTED, **how)
    steps = executed(defs, lake_resource, instance, {"expire_snapshots": NOW})
    assert [one.id for one in lake.snapshots()] == [2, 4, 6]
    assert steps["expire_snapshots"]["kept_snapshots"] == dict.fromkeys(["2", "4"], f"run {again.run_id}, which is unfinished, reads it")
    instance.report_run_canceled(again)
    executed(defs, lake_resource, instance, {"expire_snapshots": NOW})
    assert [one.id for one in lake.snapshots()] == [6]


def test_snapshots_of_runs_that_are_kept_stay(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    @dg.asset
    def build() -> pa.Table:
        return pa.table({"n": [1]})

    for tags in ({}, {KEEP: "true"}, {}, {}):
        dg.materialize(
            [build], resources={"io_manager": DuckLakeIOManager(lake=lake_resource)}, instance=instance, tags=tags, run_config=QUIET
        )
    lake = lake_resource.connect()
    kept = [one.id for one in lake.snapshots() if dagster_facts(one)][1]
    lake.holds.add("release", lake.snapshots()[0].id)
    steps = executed(build_maintenance_defs(steps=["expire_snapshots"]), lake_resource, instance, {"expire_snapshots": NOW})
    assert [one.id for one in lake.snapshots()] == [0, kept, lake.snapshot().id]
    assert (steps["expire_snapshots"]["kept_for_runs"], steps["expire_snapshots"]["held"]) == (1, 0)
    executed(build_maintenance_defs(steps=["expire_snapshots"]), lake_resource, instance, {"expire_snapshots": NOW})
    assert len(lake.snapshots()) == 3, "and nothing more to do"


def test_a_run_keeps_the_snapshots_since_its_beginning(lake: DuckLake) -> None:
    snapshots = lake.snapshots()
    assert set(Pins(since=snapshots[2].time, run_id="r").pinned(snapshots)) == {one.id for one in snapshots[2:]}
    assert len(Pins(since=snapshots[0].time - timedelta(days=1), run_id="r").pinned(snapshots)) == len(snapshots)
    assert Pins().pinned(snapshots) == {}
    set_back = [*snapshots[:-1], replace(snapshots[-1], time=snapshots[0].time)]
    assert set(Pins(since=snapshots[1].time, run_id="r").pinned(set_back)) == {one.id for one in snapshots[1:]}
    with dg.DagsterInstance.ephemeral() as instance:
        assert find_pins(lake, instance, "own", longest=timedelta(days=1)) == Pins(kept_runs=frozenset())


class TestSensor:
    @pytest.fixture
    def ticks(self, lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> Any:
        """``ticks(triggers)`` gives a function that evaluates the sensor and gives its requests."""

        def make(triggers: Triggers, **how: Any) -> Any:
            defs = build_maintenance_defs(triggers=triggers, **how)
            (sensor,) = defs.sensors
            cursor = None

            def tick() -> list[dg.RunRequest]:
                nonlocal cursor
                context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}, cursor=cursor)
                found = sensor.evaluate_tick(context)
                cursor = found.cursor
                return list(found.run_requests or [])

            tick.defs = defs  # type: ignore[attr-defined]
            return tick

        return make

    def enabled(self, request: dg.RunRequest) -> set[str]:
        return {name for name, op in request.run_config["ops"].items() if op["config"]["enabled"]}

    def test_each_trigger_requests_its_steps(self, ticks: Any, lake: DuckLake, lake_resource: DuckLakeResource, instance: Any) -> None:
        tick = ticks(Triggers(small_files=5, delete_ratio=0.3, inlined_rows=3, snapshots=5))
        requests = {request.tags.get("ducklake/table", "the lake"): request for request in tick()}
        assert {table: self.enabled(request) for table, request in requests.items()} == {
            "main.small": {"merge_adjacent_files"},
            "main.holes": {"rewrite_data_files"},
            "sales.inlined": {"flush_inlined_data"},
            "the lake": {"expire_snapshots", "cleanup_old_files"},
        }
        assert [request.run_key for request in tick()] == [request.run_key for request in requests.values()], "the same states"
        (job,) = tick.defs.jobs
        found = dg.Definitions(jobs=[job], resources={"lake": lake_resource}).resolve_job_def(job.name)
        for table in ("main.small", "sales.inlined"):
            request = requests[table]
            assert found.execute_in_process(instance=instance, run_config=request.run_config, tags=request.tags).success
        assert {request.tags.get("ducklake/table") for request in tick()} == {"main.holes", None}

    def test_patterns(self, ticks: Any) -> None:
        (request,) = ticks(Triggers(delete_ratio=0.3, inlined_rows=1), tables="main.*")()
        assert request.tags["ducklake/table"] == "main.holes"
        assert ticks(Triggers(inlined_rows=1), steps=["expire_snapshots"])() == [], "a job without the step"

    def test_small_files_that_cannot_be_merged_are_checked_once(self, ticks: Any, lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
        lake.set_option("data_inlining_row_limit", 0)
        for number in range(7):
            lake.write(f"spread_{number}", pa.table({"n": range(9)}), partition_by=["n"])
        requested: list[str] = []
        original = DuckLake.merge_adjacent_files

        def planned(self: DuckLake, table: str | None = None, **how: Any) -> Any:
            requested.append(str(table))
            return original(self, table, **how)

        monkeypatch.setattr(DuckLake, "merge_adjacent_files", planned)
        tick = ticks(Triggers(small_files=5))
        counts = []
        for _ in range(4):
            tick()
            counts.append(len(requested))
        assert counts == [5, 8, 9, 10], "a few in a tick, those that cannot be merged once, and the one that can each time"
        lake.write("spread_3", pa.table({"n": range(9)}))
        (_, request) = sorted(tick(), key=lambda found: found.tags["ducklake/table"], reverse=True)
        assert request.tags["ducklake/table"] == "main.small"

    def test_the_number_of_statements_does_not_grow_with_tables(self, ticks: Any, lake: DuckLake) -> None:
        tick = ticks(Triggers(small_files=50, delete_ratio=0.9, inlined_rows=50, snapshots=1000, scheduled_files=1000))

        def statements() -> int:
            with noted_statements() as noted:
                assert tick() == []
            return len(noted)

        few = statements()
        for number in range(15):
            lake.write(f"more_{number}", pa.table({"n": [number]}))
        assert statements() == few

    def test_scheduled_files(self, ticks: Any, lake: DuckLake) -> None:
        tick = ticks(Triggers(scheduled_files=1))
        assert tick() == []
        lake.merge_adjacent_files("small")
        (request,) = tick()
        assert self.enabled(request) == {"cleanup_old_files"}

    def test_invalid_settings_raise(self) -> None:
        for make in (Triggers, lambda: Triggers(small_files=0)):
            with pytest.raises(UsageError):
                make()


def test_definitions_of_several_lakes_live_together_and_start_at_minutes_of_their_own(lake_resource: DuckLakeResource) -> None:
    names = [f"lake_{number}" for number in range(8)]
    defs = [
        build_maintenance_defs(name=name, lake_key=name, triggers=Triggers(snapshots=9), run_tags={"team": "a"}, pool=None)
        for name in names
    ]
    merged = dg.Definitions.merge(*defs, dg.Definitions(resources=dict.fromkeys(names, lake_resource)))
    dg.Definitions.validate_loadable(merged)
    minutes = [schedule.cron_schedule.split()[0] for one in defs for schedule in one.schedules]
    assert len(set(minutes)) > 5
    assert all(0 <= int(minute) < 60 for minute in minutes)
    assert minutes[0] == build_maintenance_defs(name=names[0], lake_key=names[0]).schedules[0].cron_schedule.split()[0], "for ever the same"
    for one in defs:
        (job,), (schedule,), (sensor,) = one.jobs, one.schedules, one.sensors
        assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
        assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
        assert job.run_tags["team"] == "a"
        assert all(part.description for part in (job, schedule, sensor))


def test_invalid_settings_raise() -> None:
    for how, text in (
        ({"steps": ["vacuum"]}, "steps must have names from"),
        ({"steps": []}, "steps must have names from"),
        ({"steps": ["expire_snapshots"] * 2}, "each at most once"),
        ({"expire_older_than": "soon"}, "expire_older_than must be a timedelta"),
        ({"spark_above_bytes": 1}, "needs spark_key"),
        ({"keep_last": 0}, "expire_snapshots: keep_last: .*greater than or equal to 1"),
        ({"delete_threshold": 2}, "rewrite_data_files: delete_threshold"),
        # The library takes none of them, so that a run would fail at night.
        ({"limits": MaintenanceLimits(max_files=0)}, "merge_adjacent_files: max_files"),
        ({"limits": MaintenanceLimits(max_input_bytes=0)}, "merge_adjacent_files: max_input_bytes"),
        ({"limits": MaintenanceLimits(max_rows=0)}, "flush_inlined_data: max_rows"),
    ):
        with pytest.raises(UsageError, match=text):
            build_maintenance_defs(**how)  # type: ignore[arg-type]


@pytest.mark.parametrize("cron", ["every day", "61 3 * * *", "H H * * *", "0 3 * *", "", None, 3])
def test_an_invalid_schedule_raises(cron: Any) -> None:
    with pytest.raises(UsageError, match="cron_schedule must be a cron schedule such as") as caught:
        build_maintenance_defs(cron_schedule=cron)
    assert caught.value.details["parameter"] == "cron_schedule"
    assert repr(cron) in str(caught.value)


@pytest.mark.parametrize("zone", ["Berlin", "", 1, "../etc"])
def test_an_invalid_time_zone_raises(zone: Any) -> None:
    with pytest.raises(UsageError, match="execution_timezone must be the name of a time zone"):
        build_maintenance_defs(execution_timezone=zone)
