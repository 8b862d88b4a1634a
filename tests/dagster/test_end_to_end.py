"""`dagster dev` as a user sees it: a run, a backfill in one run, a check, the maintenance job, and the asset's page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import servers
from tests.support.oracle import LakeAddress

LOCATION = "lake-project"
SELECTOR = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__"}
LAUNCH = """mutation L($e: ExecutionParams!) { launchRun(executionParams: $e) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } } } }"""
BACKFILL = """mutation B($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename
  ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL_STATE = """query B($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status error { message }
  runs(limit: 20) { runId status } } } }"""
RUN_STATE = "query R($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
ASSET = """query A($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { kinds partitionStats { numMaterialized }
  assetMaterializations(limit: 1) { metadataEntries { label ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } } }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } } }"""
START_SENSOR = """mutation S($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename
  ... on Sensor { sensorState { id status } } ... on PythonError { message } } }"""
STOP_SENSOR = "mutation S($id: String!) { stopSensor(id: $id) { ... on StopSensorMutationResult { instigationState { status } } } }"
SENSOR = """query S($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState {
  typeSpecificData { ... on SensorData { lastCursor } } ticks(limit: 1) { status error { message } } } } } }"""
START_SCHEDULE = """mutation S($s: ScheduleSelector!) { startSchedule(scheduleSelector: $s) { __typename
  ... on ScheduleStateResult { scheduleState { id status } } ... on PythonError { message } } }"""
STOP_SCHEDULE = """mutation S($id: String!) { stopRunningSchedule(id: $id) {
  ... on ScheduleStateResult { scheduleState { status } } } }"""
RUNS = "query R($job: String!) { runsOrError(filter: {pipelineName: $job}) { ... on Runs { results { runId status } } } }"
EVENTS = """query A($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
  assetMaterializations(limit: 5) { runId partition metadataEntries { label ... on TextMetadataEntry { text } } } } } }"""


# A shell in the background starts its children with SIGINT ignored, and then nothing could stop what the server itself starts.
WITH_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def has_a_page(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@dataclass(frozen=True)
class Server:
    """A running `dagster dev` and its GraphQL."""

    running: servers.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.running.port}"

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        (data,) = found["data"].values()
        return data

    def wait_for(self, condition: Callable[[], Any], what: str, seconds: int = 300) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := condition():
                return found
            time.sleep(0.5)
        raise TimeoutError(f"{what} took too long:\n{self.running.last_words()}")

    def finish(self, run_id: str) -> None:
        def ended() -> str | None:
            status = self.ask(RUN_STATE, id=run_id)["status"]
            return status if status in ("SUCCESS", "FAILURE", "CANCELED") else None

        assert self.wait_for(ended, f"run {run_id}") == "SUCCESS", self.running.last_words()

    def launch(self, job: str, tags: dict[str, str] | None = None, **selector: Any) -> None:
        found = self.ask(
            LAUNCH,
            e={
                "selector": {**SELECTOR, "jobName": job, **selector},
                "mode": "default",
                "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]},
            },
        )
        assert found["__typename"] == "LaunchRunSuccess", found
        self.finish(found["run"]["runId"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end_to_end")


@pytest.fixture(scope="module")
def dagster_dev(home: Path) -> Iterator[Server]:
    dagster_home = home / "dagster_home"
    dagster_home.mkdir()
    (dagster_home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    workspace = home / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - python_module: {{module_name: tests.dagster.project, location_name: {LOCATION}}}\n")
    program = [sys.executable, "-c", WITH_SIGNALS, "-m", "dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p"]
    environment = {**os.environ, "DAGSTER_HOME": str(dagster_home), "LAKE_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1"}
    root = Path(__file__).parents[2]
    with servers.serving(
        "dagster dev", lambda port: [*program, str(port)], answers=has_a_page, environment=environment, folder=root
    ) as running:
        yield Server(running)


def numbers_of(server: Server) -> dict[str, Any]:
    (latest,) = server.ask(ASSET, k={"path": ["numbers"]})["assetMaterializations"]
    return {entry["label"]: entry.get("intValue") or entry.get("text") for entry in latest["metadataEntries"]}


@pytest.mark.timeout(1800)
def test_a_run_a_backfill_maintenance_and_the_page(dagster_dev: Server, home: Path, oracle: Callable[..., Any]) -> None:
    server = dagster_dev
    check = [{"assetKey": {"path": ["numbers"]}, "name": "row_count_change"}]
    selection = {"assetSelection": [{"path": ["numbers"]}], "assetCheckSelection": check}
    server.launch("__ASSET_JOB", {"dagster/partition": "2026-03-01"}, **selection)
    assert numbers_of(server)["dagster/row_count"] == 3

    days = [f"2026-03-{day:02d}" for day in range(1, 7)]
    started = server.ask(BACKFILL, p={"assetSelection": [{"path": ["numbers"]}], "partitionNames": days})
    assert started["__typename"] == "LaunchBackfillSuccess", started

    def completed() -> Any:
        state = server.ask(BACKFILL_STATE, id=started["backfillId"])
        assert state["status"] not in ("COMPLETED_FAILED", "FAILED"), state
        return state if state["status"] in ("COMPLETED_SUCCESS", "COMPLETED") else None

    state = server.wait_for(completed, "the backfill")
    assert len(state["runs"]) == 1
    assert numbers_of(server)["dagster/row_count"] == 18
    asset = server.ask(ASSET, k={"path": ["numbers"]})
    assert (asset["kinds"], asset["partitionStats"]) == (["ducklake"], {"numMaterialized": 6})
    (verdict,) = asset["assetChecksOrError"]["checks"]
    assert verdict["executionForLatestMaterialization"]["status"] == "SUCCEEDED"

    address = LakeAddress("", f"ducklake:sqlite:{home}/catalog.sqlite", f"{home}/files/", "sqlite")
    see_the_page(server, home)
    see_the_sensors(server, address, oracle)
    server.launch("ducklake_maintenance")
    with oracle(address) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT day) FROM lake.numbers") == [(19, 7)]
        assert [row[0] for row in duck.rows("SELECT author FROM lake.snapshots() WHERE snapshot_id IN (1, 2)")] == ["dagster"] * 2


def see_the_sensors(server: Server, address: LakeAddress, oracle: Callable[..., Any]) -> None:
    """A commit of DuckDB becomes a materialization, and two small files a compaction; the schedule starts and stops."""
    commits, compaction = ({**SELECTOR, "sensorName": name} for name in ("ducklake_commits", "ducklake_compaction"))
    started = server.ask(START_SENSOR, s=commits)["sensorState"]
    server.wait_for(lambda: server.ask(SENSOR, s=commits)["sensorState"]["typeSpecificData"]["lastCursor"], "the sensor's first tick")
    with oracle(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("INSERT INTO lake.numbers VALUES (DATE '2026-03-09', 1)")

    def reported() -> list[Any]:
        events = server.ask(EVENTS, k={"path": ["numbers"]})["assetMaterializations"]
        return [event for event in events if not event["runId"]]

    (event,) = server.wait_for(reported, "the sensor's report")
    assert event["partition"] == "2026-03-09"
    assert {"label": "ducklake/changes", "text": "added rows to main.numbers"} in event["metadataEntries"]
    assert server.ask(STOP_SENSOR, id=started["id"])["instigationState"]["status"] == "STOPPED"

    started = server.ask(START_SENSOR, s=compaction)["sensorState"]
    (launched,) = server.wait_for(lambda: server.ask(RUNS, job="ducklake_compaction_job")["results"], "the run that compaction asks for")
    server.finish(launched["runId"])
    assert server.ask(STOP_SENSOR, id=started["id"])["instigationState"]["status"] == "STOPPED"
    with oracle(address) as duck:
        assert duck.rows("SELECT file_count FROM ducklake_table_info('lake')") == [(1,)]

    schedule = server.ask(START_SCHEDULE, s={**SELECTOR, "scheduleName": "ducklake_maintenance_schedule"})["scheduleState"]
    assert schedule["status"] == "RUNNING"
    assert server.ask(STOP_SCHEDULE, id=schedule["id"])["scheduleState"]["status"] == "STOPPED"


def see_the_page(server: Server, home: Path) -> None:
    """With a browser what it renders, without one what the server serves."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    page = f"{server.url}/assets/numbers"
    if browser is None:
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert b"Dagster" in answer.read()
        assert numbers_of(server)["dagster/table_name"] == "main.numbers"
        return
    server.ask("mutation { setNuxSeen }")
    options = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
    common = [browser, *options.split(), f"--user-data-dir={home / 'browser'}", "--window-size=1600,1300", "--virtual-time-budget=30000"]
    picture = home / "numbers.png"
    subprocess.run([*common, "--hide-scrollbars", f"--screenshot={picture}", page], check=True, capture_output=True, timeout=300)
    assert picture.stat().st_size > 20_000
    text = subprocess.run([*common, "--dump-dom", page], check=True, capture_output=True, text=True, timeout=300).stdout
    for expected in ("main.numbers", "ducklake/snapshot_id", "Three rows for each day", "partitioned by month(day)"):
        assert expected in text
