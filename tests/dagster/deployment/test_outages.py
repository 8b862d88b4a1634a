"""Outages of the catalog or the store: no run is half done, and the sensor continues from its cursor."""

from __future__ import annotations

import pytest

from tests.dagster.deployment.conftest import Deployment
from tests.dagster.deployment.names import GENERATION, RANGE_END, RANGE_START
from tests.support.outages import Line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def line_of(deployment: Deployment, what: str) -> Line:
    return deployment.catalog if what == "catalog" else deployment.store


@pytest.mark.parametrize("what", ["catalog", "store"])
def test_a_run_fails_during_an_outage_and_succeeds_afterwards(deployment: Deployment, what: str) -> None:
    dagster, generation = deployment.dagster, {"catalog": 30, "store": 31}[what]
    query = f"SELECT count(*) FROM lake.ranged WHERE generation = {generation}"
    # More rows than the catalog takes for itself.
    days = {RANGE_START: "2025-06-01", RANGE_END: "2025-06-20", GENERATION: str(generation)}
    dagster.finish(dagster.materialize("ranged", tags={**days, GENERATION: "1"}))
    with line_of(deployment, what).outage():
        run = dagster.materialize("ranged", tags=days)
        assert dagster.end_of(run) == "FAILURE"
    (failure,) = [event for event in dagster.run(run)["eventConnection"]["events"] if event["__typename"] == "ExecutionStepFailureEvent"]
    messages = [failure["error"]["message"], *(cause["message"] for cause in failure["error"]["causes"])]
    assert any(f"[{what}-unavailable]" in text for text in messages), messages
    assert deployment.rows(query) == [(0,)]
    again = dagster.reexecute(run, "FROM_FAILURE")
    dagster.finish(again)
    assert deployment.rows(query) == [(60,)]


def test_the_catalog_comes_back_before_a_retry(deployment: Deployment) -> None:
    dagster = deployment.dagster
    with deployment.catalog.outage():
        run = dagster.materialize("slowly", tags={GENERATION: "32"})

        def failed_once() -> bool:
            return any(event["__typename"] == "ExecutionStepUpForRetryEvent" for event in dagster.run(run)["eventConnection"]["events"])

        dagster.wait_for(failed_once, "the first failure")
    dagster.finish(run)
    assert deployment.rows("SELECT count(*) FROM lake.slowly WHERE generation = 32") == [(1,)]


def test_the_sensor_keeps_its_cursor(deployment: Deployment) -> None:
    dagster = deployment.dagster
    dagster.finish(dagster.materialize("ranged", tags={"dagster/partition": "2025-07-01"}))
    with deployment.commits_reported():
        with deployment.catalog.outage():
            with deployment.duckdb() as duck:
                duck.run("INSERT INTO lake.ranged VALUES (DATE '2025-07-02', 7, 33)")

            def has_failed() -> bool:
                return any(tick["status"] == "FAILURE" for tick in dagster.sensor("ducklake_commits")["ticks"])

            dagster.wait_for(has_failed, "a tick that fails")
            before = deployment.cursor()
        (newest,) = deployment.rows("SELECT max(snapshot_id) FROM lake.snapshots()")
        dagster.wait_for(lambda: (deployment.cursor() or 0) >= newest[0], "the cursor")
        assert before is not None
        assert before < newest[0]
    reported = [event["partition"] for event in dagster.asset("ranged")["assetMaterializations"] if not event["runId"]]
    assert reported.count("2025-07-02") == 1
