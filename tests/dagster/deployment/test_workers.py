"""Workers that are lost before, within and after their commit; retries of steps and runs; re-execution both ways."""

from __future__ import annotations

import pytest

from tests.dagster.deployment.conftest import Deployment
from tests.dagster.deployment.names import GENERATION
from tests.support.dagster_dev import RETRIES, metadata_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def count(deployment: Deployment, table: str, generation: int) -> int:
    with deployment.duckdb() as duck:
        there = duck.value(f"SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = '{table}'")
        return int(str(duck.value(f"SELECT count(*) FROM lake.{table} WHERE generation = {generation}"))) if there else 0


@pytest.mark.parametrize(("moment", "generation"), [("while", 1), ("before", 2), ("within", 3), ("after", 4)])
def test_commits_of_a_lost_worker_are_not_repeated(deployment: Deployment, moment: str, generation: int) -> None:
    dagster = deployment.dagster
    deployment.strike(moment, "lost")
    first = dagster.materialize("lost", "retried", tags={GENERATION: str(generation)})
    assert dagster.end_of(first) == "FAILURE"
    assert deployment.has_struck(moment, "lost")
    committed = moment == "after"
    assert count(deployment, "lost", generation) == committed
    again = dagster.reexecute(first, "FROM_FAILURE")
    dagster.finish(again)
    assert (count(deployment, "lost", generation), count(deployment, "retried", generation)) == (1, 1)
    event = next(event for event in dagster.asset("lost")["assetMaterializations"] if event["runId"] == again)
    assert metadata_of(event).get("ducklake/repeated") is (True if committed else None)
    # All steps again is a new materialisation.
    dagster.finish(dagster.reexecute(again, "ALL_STEPS"))
    assert (count(deployment, "lost", generation), count(deployment, "retried", generation)) == (2, 2)


def test_a_retried_step_adds_nothing(deployment: Deployment) -> None:
    dagster = deployment.dagster
    deployment.strike("after", "retried", "fail")
    run = dagster.materialize("retried", tags={GENERATION: "10"})
    dagster.finish(run)
    (step,) = dagster.run(run)["stepStats"]
    assert len(step["attempts"]) == 2
    assert count(deployment, "retried", 10) == 1
    assert dagster.latest("retried")["ducklake/repeated"] is True


def test_dagster_retries_a_run(deployment: Deployment) -> None:
    dagster = deployment.dagster
    deployment.strike("after", "lost")
    first = dagster.materialize("lost", "retried", tags={GENERATION: "20", "dagster/max_retries": "1"})
    assert dagster.end_of(first) == "FAILURE"
    (again,) = dagster.wait_for(lambda: dagster.query(RETRIES, id=first)["results"], "the run that Dagster repeats")
    dagster.finish(again["runId"])
    assert (count(deployment, "lost", 20), count(deployment, "retried", 20)) == (1, 1)
