"""Checks, sensors and maintenance read as much of a long history as they need."""

from __future__ import annotations

import sqlite3
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Snapshot
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_dagster import (
    ColumnSchemaChange,
    DuckLakeResource,
    Freshness,
    RowCountAnomaly,
    RowCountChange,
    build_check_sensor,
    build_commit_sensor,
)
from ducklake_dagster.assets.tables import asset_tables
from ducklake_dagster.maintenance.steps import table_observations
from ducklake_dagster.statistics import lake_state
from ducklake_dagster.statistics.lake_state import History
from tests.support.oracle import LakeAddress

ASSETS = [dg.AssetSpec("t")]
MANY = 3000


@pytest.fixture
def lake(lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> DuckLake:
    """A lake with thousands of earlier commits to another table, and three newer ones to ``t``."""
    lake = lake_resource.connect()
    lake.write("other", pa.table({"n": [1]}))
    with sqlite3.connect(sqlite_address.url.removeprefix("sqlite:///")) as connection:
        numbers = f"WITH RECURSIVE s(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM s WHERE i < {MANY}) "
        snapshot = "snapshot_time, schema_version, next_catalog_id, next_file_id FROM s, ducklake_snapshot WHERE snapshot_id = 1"
        connection.execute(f"{numbers} INSERT INTO ducklake_snapshot SELECT i, {snapshot}")
        log = "ducklake_snapshot_changes (snapshot_id, changes_made)"
        connection.execute(f"{numbers} INSERT INTO {log} SELECT i, 'inserted_into_table:1' FROM s")
    for _ in range(3):
        lake.write("t", pa.table({"n": [1]}))
    return lake


@pytest.fixture
def snapshots_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of snapshots that statements return."""
    found: list[int] = []
    real = CatalogReader.snapshots_of

    def count(self: CatalogReader, query: Any) -> list[Snapshot]:
        read = real(self, query)
        found.append(len(read))
        return read

    monkeypatch.setattr(CatalogReader, "snapshots_of", count)
    return found


def test_checks_of_recent_changes_read_the_newest_snapshots(
    lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, snapshots_read: list[int]
) -> None:
    checks = [Freshness(max_age="1 day"), RowCountChange(max_drop=0.5), ColumnSchemaChange(), RowCountAnomaly(commits=2, min_commits=2)]
    sensor = build_check_sensor(assets=ASSETS, checks=checks)
    first = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}))
    events = [event for event in first.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert {event.check_name: event.passed for event in events} == {check.name: True for check in checks}
    assert sum(snapshots_read) <= 2000
    snapshots_read.clear()
    context = dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}, cursor=first.cursor)
    assert not sensor.evaluate_tick(context).asset_events
    assert sum(snapshots_read) <= 2000


def test_the_first_evaluation_of_a_sensor_reads_one_snapshot(
    lake: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, snapshots_read: list[int]
) -> None:
    sensor = build_commit_sensor(assets=ASSETS, report_history=True, max_snapshots_per_tick=10)
    found = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}))
    assert found.cursor is not None
    assert sum(snapshots_read) <= 20


def test_observations_after_maintenance_count_snapshots_without_reading_them(lake: DuckLake, snapshots_read: list[int]) -> None:
    (event,) = table_observations(lake, asset_tables(ASSETS, None), "After a test")
    assert event.metadata["ducklake/lake_snapshots"].value == MANY + 1 + 3
    assert not snapshots_read


def test_a_history_is_read_page_by_page(
    lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch, snapshots_read: list[int]
) -> None:
    monkeypatch.setattr(lake_state, "_FIRST_PAGE", 2)
    monkeypatch.setattr(lake_state, "_GROWTH", 2)
    lake = lake_resource.connect()
    for number in range(9):
        lake.write(f"t{number % 3}", pa.table({"n": [number]}))
    lake.expire_snapshots(versions=[2, 5], min_age="0 seconds")
    table_id = lake.table("t1").state.id
    history = History(lake, 8)
    lake.write("t1", pa.table({"n": [9]}))
    assert history.before(8) == 7
    assert sum(snapshots_read[-2:]) <= 6
    assert [one.id for one in history.row_changes(table_id)] == [8]
    assert [one.id for one in history.since(4)] == [8, 7, 6]
    assert [history.before(number) for number in (9, 7, 6, 4, 1, 0)] == [8, 6, 4, 3, 0, None]
    fresh = History(lake, 8)
    read = len(snapshots_read)
    assert [one.id for one in fresh.row_changes(table_id, 7)] == [8]
    assert len(snapshots_read) == read + 2
    first = History(lake, 8).row_changes(lake.table("t0").state.id)
    assert [one.id for one in first] == [7, 4, 1]
