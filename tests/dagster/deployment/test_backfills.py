"""Backfills of a deployment against a plain model: a run for each day, eight at a time; ranges, gaps and rectangles in few runs."""

from __future__ import annotations

import itertools
import os
from datetime import date, timedelta

import pytest

from tests.dagster.deployment.conftest import Deployment
from tests.dagster.deployment.names import GENERATION, RANGE_END, RANGE_START

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
DAYS = [(date(2025, 1, 1) + timedelta(days=day)).isoformat() for day in range(365)]
# Each run is a process; DEPLOYMENT_RUNS=365 is a whole year of forks (tests/support/forked_runs.py), which took eleven minutes.
RUNS = int(os.environ.get("DEPLOYMENT_RUNS", "32"))


def of_days(deployment: Deployment, table: str) -> dict[str, list[int]]:
    """Generations of the rows of each day."""
    found: dict[str, list[int]] = {}
    for day, generation in deployment.rows(f"SELECT day, generation FROM lake.{table} ORDER BY ALL"):
        found.setdefault(day.isoformat(), []).append(generation)
    return found


def test_a_run_for_each_day_half_of_them_replacing(deployment: Deployment) -> None:
    dagster, days = deployment.dagster, DAYS[:RUNS]
    dagster.finish(dagster.materialize("daily", tags={RANGE_START: days[0], RANGE_END: days[RUNS // 2 - 1], GENERATION: "1"}))
    assert of_days(deployment, "daily") == {day: [1] * 3 for day in days[: RUNS // 2]}
    runs = dagster.backfill("daily", days, {GENERATION: "2"})
    assert len(runs) == RUNS
    assert of_days(deployment, "daily") == {day: [2] * 3 for day in days}
    assert dagster.asset("daily")["partitionStats"] == {"numMaterialized": RUNS, "numFailed": 0}
    at_once = max(sum(one["startTime"] <= other["startTime"] < one["endTime"] for one in runs) for other in runs)
    assert 1 < at_once <= 8, "runs overlap, so commits did"
    authors = deployment.rows("SELECT count(*) FROM lake.snapshots() WHERE commit_message LIKE 'daily [%'")
    assert authors == [(RUNS + 1,)], "each run is one snapshot"


def test_days_with_gaps_are_a_run_for_each_range(deployment: Deployment) -> None:
    dagster = deployment.dagster
    everything = DAYS[:20]
    dagster.backfill("ranged", everything, {GENERATION: "1"})
    chosen = [*DAYS[2:5], DAYS[8], *DAYS[11:14]]
    assert len(dagster.backfill("ranged", chosen, {GENERATION: "2"})) == 3
    expected = {day: [2 if day in chosen else 1] * 3 for day in everything}
    # Other tests write other months.
    found = of_days(deployment, "ranged")
    assert {day: found.get(day) for day in everything} == expected
    dagster.backfill("copied", [DAYS[1], *DAYS[4:9]])
    assert of_days(deployment, "copied") == {day: expected[day] for day in (DAYS[1], *DAYS[4:9])}
    of_partition = {event["partition"]: event for event in dagster.asset("ranged")["assetMaterializations"]}
    labels = {entry["label"]: entry.get("intValue") for entry in of_partition[DAYS[3]]["metadataEntries"]}
    assert labels["dagster/partition_row_count"] == labels["ducklake/rows_added"] == 3


def test_rectangles_of_two_dimensions(deployment: Deployment) -> None:
    dagster = deployment.dagster
    regions = ["eu", "o'us", "asia"]

    def keys(days: list[str], regions: list[str]) -> list[str]:
        return [f"{day}|{region}" for day, region in itertools.product(days, regions)]

    everything, chosen = keys(DAYS[:4], regions), [*keys(DAYS[1:3], ["o'us", "asia"]), *keys(DAYS[3:4], ["eu"])]
    dagster.backfill("grid", everything, {GENERATION: "1"})
    dagster.backfill("grid", chosen, {GENERATION: "2"})

    def of_keys() -> dict[str, int]:
        # Other tests write other months.
        found = deployment.rows(f"SELECT * FROM lake.grid WHERE day <= DATE '{DAYS[3]}'")
        return {f"{day}|{region}": generation for day, region, generation in found}

    assert of_keys() == {key: 2 if key in chosen else 1 for key in everything}
    # A range of two dimensions by tags is one run with gaps in between.
    dagster.finish(dagster.materialize("grid", tags={RANGE_START: f"{DAYS[0]}|eu", RANGE_END: f"{DAYS[1]}|eu", GENERATION: "3"}))
    found = of_keys()
    assert {key for key, generation in found.items() if generation == 3} == {f"{day}|eu" for day in DAYS[:2]}
    assert len(found) == 12
