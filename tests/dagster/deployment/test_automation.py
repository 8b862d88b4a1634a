"""The daemon: sensor and schedule ticks, pool queues, blocking checks, and maintenance despite failures."""

from __future__ import annotations

import itertools
from datetime import date, timedelta

import pytest

from tests.dagster.deployment.conftest import Deployment
from tests.dagster.deployment.names import GENERATION, RANGE_END, RANGE_START
from tests.support.dagster_dev import RUNS, metadata_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def test_commits_of_duckdb_become_materializations_of_their_partitions(deployment: Deployment) -> None:
    dagster = deployment.dagster
    dagster.finish(dagster.materialize("ranged", tags={RANGE_START: "2025-03-01", RANGE_END: "2025-03-10"}))
    with deployment.commits_reported():
        with deployment.duckdb() as duck:
            duck.run(
                "INSERT INTO lake.ranged VALUES (DATE '2025-03-20', 1, 9)",
                "DELETE FROM lake.ranged WHERE day = DATE '2025-03-02' AND n = 0",
                "DELETE FROM lake.ranged WHERE day = DATE '2025-03-02' AND n = 1",
                "UPDATE lake.ranged SET n = 5 WHERE day = DATE '2025-03-04' AND n = 2",
            )
            newest = int(str(duck.value("SELECT max(snapshot_id) FROM lake.snapshots()")))
        dagster.wait_for(lambda: (deployment.cursor() or 0) >= newest, "the cursor")
        # What a run commits is no news.
        dagster.finish(dagster.materialize("ranged", tags={"dagster/partition": "2025-03-05"}))
        (latest,) = deployment.rows("SELECT max(snapshot_id) FROM lake.snapshots()")
        dagster.wait_for(lambda: (deployment.cursor() or 0) >= latest[0], "the cursor")
    events = [event for event in dagster.asset("ranged")["assetMaterializations"] if not event["runId"]]
    mine = [event for event in events if str(event["partition"]).startswith("2025-03")]
    # A tick may come between two commits of one day, and then reports each of them.
    reported = [(event["partition"], metadata_of(event)["ducklake/snapshot_id"]) for event in mine]
    assert {day for day, _ in reported} == {"2025-03-02", "2025-03-04", "2025-03-20"}
    assert len(set(reported)) == len(reported), reported
    assert {snapshot for _, snapshot in reported} <= set(range(newest + 1))


def test_a_thousand_commits_that_waited_are_reported(deployment: Deployment) -> None:
    """The asset has 3,650 days, and every third gets rows."""
    dagster = deployment.dagster
    dagster.finish(dagster.materialize("decade", tags={"dagster/partition": "2016-01-01"}))
    with deployment.commits_reported():
        begun = deployment.cursor()
    days = [date(2016, 1, 1) + timedelta(days=3 * number) for number in range(1000)]
    with deployment.duckdb("DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run(*[f"INSERT INTO lake.decade VALUES (DATE '{day}', {number}, 8)" for number, day in enumerate(days)])
        newest = int(str(duck.value("SELECT max(snapshot_id) FROM lake.snapshots()")))
    with deployment.commits_reported():
        # Every GraphQL answer in between shows that the tick does not block the servers.
        dagster.wait_for(lambda: (deployment.cursor() or 0) >= newest, "the cursor")
    assert begun is not None
    assert newest - begun >= 1000
    reported = [event["partition"] for event in dagster.asset("decade")["assetMaterializations"] if not event["runId"]]
    assert set(reported) == set(map(str, days))


def test_a_check_that_fails_stops_what_comes_after(deployment: Deployment) -> None:
    dagster = deployment.dagster
    checks = [{"assetKey": {"path": ["judged"]}, "name": name} for name in ("row_count", "null_fraction")]

    def outcomes() -> dict[str, bool]:
        found = dagster.asset("judged")["assetChecksOrError"]["checks"]
        return {one["name"]: one["executionForLatestMaterialization"]["evaluation"]["success"] for one in found}

    dagster.finish(dagster.materialize("judged", "after_judged", tags={GENERATION: "3"}, checks=checks))
    assert outcomes() == {"row_count": True, "null_fraction": True}
    run = dagster.materialize("judged", "after_judged", tags={GENERATION: "1"}, checks=checks)
    assert dagster.end_of(run) == "FAILURE"
    assert outcomes() == {"row_count": False, "null_fraction": True}
    assert deployment.rows("SELECT (SELECT count(*) FROM lake.judged), (SELECT count(*) FROM lake.after_judged)") == [(1, 3)]


def test_a_pool_lets_one_step_in_at_a_time(deployment: Deployment) -> None:
    deployment.dagster.backfill("pooled", [f"2025-01-{day:02d}" for day in range(1, 5)])
    spans = deployment.rows("SELECT began, ended FROM lake.pooled ORDER BY began")
    assert len(spans) == 4
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))


def test_maintenance_continues_and_reports_a_broken_table(deployment: Deployment) -> None:
    dagster = deployment.dagster
    with deployment.duckdb() as duck:
        for table in ("broken", "whole"):
            duck.run(f"CREATE TABLE lake.{table} (n INTEGER)", *[f"INSERT INTO lake.{table} VALUES ({n})" for n in range(5)])
        files = [str(path) for (path,) in duck.rows("SELECT data_file FROM ducklake_list_files('lake', 'broken')")]
    lost = deployment.s3.on_disk(files[0])
    text = lost.read_bytes()
    lost.unlink()
    run = dagster.begin("ducklake_maintenance")
    assert dagster.end_of(run) == "FAILURE"
    (failure,) = [event for event in dagster.run(run)["eventConnection"]["events"] if event["__typename"] == "ExecutionStepFailureEvent"]
    assert "main.broken" in failure["failureMetadata"]["description"]
    assert {step["stepKey"]: step["status"] for step in dagster.run(run)["stepStats"]} == {
        **dict.fromkeys(
            ("flush_inlined_data", "expire_snapshots", "merge_adjacent_files", "rewrite_data_files", "cleanup_old_files"), "SUCCESS"
        ),
        "delete_orphaned_files": "SUCCESS",
        "outcome": "FAILURE",
    }
    sizes = dict(deployment.rows("SELECT table_name, file_count FROM ducklake_table_info('lake')"))
    assert (sizes["broken"], sizes["whole"]) == (5, 1)
    lost.write_bytes(text)
    dagster.launch("ducklake_maintenance")
    assert dict(deployment.rows("SELECT table_name, file_count FROM ducklake_table_info('lake')"))["broken"] == 1


def test_the_schedule_starts_a_run_that_observes_the_assets(deployment: Deployment) -> None:
    dagster = deployment.dagster
    dagster.finish(dagster.materialize("ranged", tags={"dagster/partition": "2025-08-01"}))
    known = {run["runId"] for run in dagster.query(RUNS, job="ducklake_maintenance")["results"]}
    with dagster.schedule("ducklake_maintenance_schedule"):
        new = dagster.wait_for(
            lambda: [run["runId"] for run in dagster.query(RUNS, job="ducklake_maintenance")["results"] if run["runId"] not in known],
            "the schedule's run",
        )
    dagster.finish(new[0])
    observed = dagster.asset("ranged")["assetObservations"][0]
    assert observed["runId"] == new[0]
    assert metadata_of(observed)["ducklake/table_files"] >= 1


def test_the_maintenance_sensor_requests_a_run(deployment: Deployment) -> None:
    dagster = deployment.dagster
    with deployment.duckdb() as duck:
        duck.run("CREATE TABLE lake.many (n INTEGER)", *[f"INSERT INTO lake.many VALUES ({n})" for n in range(6)])
    started = dagster.start_sensor("ducklake_maintenance_sensor")

    def merged() -> bool:
        return dict(deployment.rows("SELECT table_name, file_count FROM ducklake_table_info('lake')"))["many"] == 1

    dagster.wait_for(merged, "the merge of small files")
    dagster.stop_sensor("ducklake_maintenance_sensor", started)
    assert deployment.rows("SELECT count(*) FROM lake.many") == [(6,)]
