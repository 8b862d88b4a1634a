"""`dagster dev` with a lake in local files: a run with a check, a backfill in one run, and the maintenance job.

Everything else is in the folder ``deployment``, over PostgreSQL and S3.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dagster_dev import DagsterServer
from tests.support.dagster_dev import dagster_dev as serve
from tests.support.oracle import LakeAddress, attached


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end_to_end")


@pytest.fixture(scope="module")
def dagster_dev(home: Path) -> Iterator[DagsterServer]:
    with serve("tests.dagster.project", home, {"LAKE_HOME": str(home)}) as server:
        yield server


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_with_a_check(dagster_dev: DagsterServer) -> None:
    server = dagster_dev
    check = {"assetKey": {"path": ["numbers"]}, "name": "row_count_change"}
    server.finish(server.materialize("numbers", tags={"dagster/partition": "2026-03-01"}, checks=[check]))
    assert server.latest("numbers")["dagster/row_count"] == 3
    asset = server.asset("numbers")
    assert (asset["kinds"], asset["partitionStats"]) == (["ducklake"], {"numMaterialized": 1, "numFailed": 0})
    (verdict,) = asset["assetChecksOrError"]["checks"]
    assert verdict["executionForLatestMaterialization"]["status"] == "SUCCEEDED"
    with urllib.request.urlopen(f"{server.url}/assets/numbers", timeout=30) as answer:
        assert b"Dagster" in answer.read()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_backfill_and_maintenance(dagster_dev: DagsterServer, home: Path) -> None:
    server = dagster_dev
    assert len(server.backfill("numbers", [f"2026-03-{day:02d}" for day in range(1, 7)])) == 1
    latest = server.latest("numbers")
    assert (latest["dagster/row_count"], latest["dagster/table_name"]) == (18, "main.numbers")
    assert server.asset("numbers")["partitionStats"] == {"numMaterialized": 6, "numFailed": 0}
    server.launch("ducklake_maintenance")
    address = LakeAddress("", f"ducklake:sqlite:{home}/catalog.sqlite", f"{home}/files/", "sqlite")
    with attached(address) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT day) FROM lake.numbers") == [(18, 6)]
        assert [row[0] for row in duck.rows("SELECT author FROM lake.snapshots() WHERE snapshot_id IN (1, 2)")] == ["dagster"] * 2
