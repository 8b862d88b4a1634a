"""`dagster dev` (web server, daemon and code server) as a user sees it: through GraphQL."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from tests.support import servers
from tests.support.postgres import PostgresServer

LOCATION = "lake-project"
LAUNCH = """mutation L($e: ExecutionParams!) { launchRun(executionParams: $e) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } } } }"""
REEXECUTE = """mutation R($p: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $p) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
BACKFILL = """mutation B($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename
  ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL_STATE = """query B($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status error { message } } } }"""
BACKFILL_RUNS = """query B($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  runs(limit: 2000) { runId status startTime endTime } } } }"""
RUN_STATE = "query R($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
RUN = """query R($id: ID!) { runOrError(runId: $id) { ... on Run { status startTime endTime
  stepStats { stepKey status attempts { startTime } } eventConnection { events { __typename ... on MessageEvent { message }
    ... on ExecutionStepFailureEvent { error { message causes { message } } failureMetadata { description
      metadataEntries { label ... on TextMetadataEntry { text } } } } } } } } }"""
START_SENSOR = """mutation S($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename
  ... on Sensor { sensorState { id status } } ... on PythonError { message } } }"""
STOP_SENSOR = "mutation S($id: String!) { stopSensor(id: $id) { ... on StopSensorMutationResult { instigationState { status } } } }"
SENSOR = """query S($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState { status
  typeSpecificData { ... on SensorData { lastCursor } } ticks(limit: 20) { status skipReason error { message } } } } } }"""
START_SCHEDULE = """mutation S($s: ScheduleSelector!) { startSchedule(scheduleSelector: $s) { __typename
  ... on ScheduleStateResult { scheduleState { id status } } ... on PythonError { message } } }"""
STOP_SCHEDULE = """mutation S($id: String!) { stopRunningSchedule(id: $id) {
  ... on ScheduleStateResult { scheduleState { status } } } }"""
RUNS = "query R($job: String!) { runsOrError(filter: {pipelineName: $job}) { ... on Runs { results { runId status } } } }"
RETRIES = """query R($id: String!) { runsOrError(filter: {tags: [{key: "dagster/parent_run_id", value: $id}]}) {
  ... on Runs { results { runId status } } } }"""
ASSET = """query A($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { kinds
  partitionStats { numMaterialized numFailed }
  assetMaterializations(limit: 1000) { runId partition metadataEntries { label ... on IntMetadataEntry { intValue }
    ... on TextMetadataEntry { text } ... on BoolMetadataEntry { boolValue } } }
  assetObservations(limit: 5) { runId metadataEntries { label ... on IntMetadataEntry { intValue } } }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status
    evaluation { success description } } } } } } } }"""
PARTITIONS = """query P($k: AssetKeyInput!, $limit: Int!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
  partitionKeyConnection(limit: $limit, ascending: false) { results } } } }"""
ENDED = ("SUCCESS", "FAILURE", "CANCELED")

# A shell in the background starts its children with SIGINT ignored, and then nothing could stop what the server itself starts.
_WITH_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
# At two in a second, or as many as a loaded machine answers.
_QUERIES_WITHOUT_EVENTS = 600
_CALM = 8
_SETTINGS = "telemetry:\n  enabled: false\n"
_ON_POSTGRES = """
telemetry: {enabled: false}
storage: {postgres: {postgres_url: "%s"}}
concurrency:
  runs: {max_concurrent_runs: 8}
  pools: {default_limit: %s, granularity: op}
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config: {dequeue_use_threads: true, dequeue_num_workers: 8}
run_retries: {enabled: true, max_retries: %s}
"""
_HAPPENED = """SELECT (SELECT max(id) FROM event_logs), (SELECT max(update_timestamp) FROM runs),
  (SELECT max(id) FROM job_ticks), (SELECT max(update_timestamp) FROM job_ticks)"""


@dataclass(frozen=True, kw_only=True)
class DagsterServer:
    """A running `dagster dev` and its GraphQL.

    Attributes:
        happened: Something that differs after each event of a run and each tick.
        secrets: What no answer may hold.
        location: Name of the code location.
    """

    running: servers.Server
    happened: Callable[[], object]
    secrets: Sequence[str] = field(default=())
    location: str = LOCATION

    @property
    def selector(self) -> dict[str, str]:
        """Return what queries name the code location by."""
        return {"repositoryLocationName": self.location, "repositoryName": "__repository__"}

    @property
    def url(self) -> str:
        """Return the address of the pages."""
        return f"http://127.0.0.1:{self.running.port}"

    def query(self, query: str, **variables: Any) -> Any:
        """Return the one field of a query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=900) as answer:
            text = answer.read().decode()
        assert not [secret for secret in self.secrets if secret in text], "an answer holds a secret"
        found = json.loads(text)
        assert "errors" not in found, found
        (data,) = found["data"].values()
        return data

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Return the first true result of a condition; raise once nothing has happened for many queries.

        A time limit would depend on the load of the machine: a run of six seconds was seen to take five minutes. Events of runs, and ticks
        of sensors and schedules, count as progress; the test's own limit ends endless progress.
        """
        happened, quiet = self.happened(), 0
        while quiet < _QUERIES_WITHOUT_EVENTS:
            if found := condition():
                return found
            time.sleep(0.5)
            before, happened = happened, self.happened()
            quiet = quiet + 1 if happened == before else 0
        raise TimeoutError(f"nothing happens any more, and {what} is not there:\n{self.running.last_words()}")

    def end_of(self, run_id: str) -> str:
        """The status with which a run ends."""

        def ended() -> str | None:
            status = self.query(RUN_STATE, id=run_id)["status"]
            return status if status in ENDED else None

        found: str = self.wait_for(ended, f"the end of run {run_id}")
        return found

    def finish(self, run_id: str) -> None:
        """Wait for a run's success."""
        assert self.end_of(run_id) == "SUCCESS", f"{self.run(run_id)}\n{self.running.last_words()}"

    def run(self, run_id: str) -> dict[str, Any]:
        """A run with its steps and events."""
        found: dict[str, Any] = self.query(RUN, id=run_id)
        return found

    def begin(self, job: str, tags: Mapping[str, str] | None = None, **selector: Any) -> str:
        """The id of a run that was launched."""
        found = self.query(
            LAUNCH,
            e={
                "selector": {**self.selector, "jobName": job, **selector},
                "mode": "default",
                "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]},
            },
        )
        assert found["__typename"] == "LaunchRunSuccess", found
        run_id: str = found["run"]["runId"]
        return run_id

    def launch(self, job: str, tags: Mapping[str, str] | None = None, **selector: Any) -> None:
        """Run a job to its successful end."""
        self.finish(self.begin(job, tags, **selector))

    def materialize(self, *assets: str, tags: Mapping[str, str] | None = None, checks: Sequence[Mapping[str, Any]] = ()) -> str:
        """The id of a launched run of assets, and of some of their checks."""
        selection = [{"path": [name]} for name in assets]
        return self.begin("__ASSET_JOB", tags, assetSelection=selection, assetCheckSelection=list(checks))

    def reexecute(self, run_id: str, strategy: str) -> str:
        """The id of the run that repeats another: ``FROM_FAILURE`` or ``ALL_STEPS``."""
        found = self.query(REEXECUTE, p={"parentRunId": run_id, "strategy": strategy})
        assert found["__typename"] == "LaunchRunSuccess", found
        again: str = found["run"]["runId"]
        return again

    def backfill(self, asset: str, partitions: Sequence[str], tags: Mapping[str, str] | None = None) -> list[Any]:
        """The runs of a backfill that succeeded."""
        pairs = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        wanted = {"assetSelection": [{"path": [asset]}], "partitionNames": list(partitions), "tags": pairs}
        started = self.query(BACKFILL, p=wanted)
        assert started["__typename"] == "LaunchBackfillSuccess", started

        def runs() -> list[Any]:
            found: list[Any] = self.query(BACKFILL_RUNS, id=started["backfillId"])["runs"]
            return found

        def completed() -> bool:
            state = self.query(BACKFILL_STATE, id=started["backfillId"])
            assert state["status"] not in ("COMPLETED_FAILED", "FAILED"), (state, runs())
            return state["status"] in ("COMPLETED_SUCCESS", "COMPLETED")

        self.wait_for(completed, "the end of the backfill")
        return runs()

    def asset(self, name: str) -> Any:
        """Return the data of an asset's page."""
        return self.query(ASSET, k={"path": [name]})

    def latest(self, name: str) -> dict[str, Any]:
        """Metadata of an asset's latest materialization."""
        return metadata_of(self.asset(name)["assetMaterializations"][0])

    def newest_partitions(self, name: str, count: int) -> list[str]:
        """The partitions of an asset that its page plots, in ascending order; of more than so many the newest."""
        found: list[str] = self.query(PARTITIONS, k={"path": [name]}, limit=count)["partitionKeyConnection"]["results"]
        return found[::-1]

    def sensor(self, name: str) -> Any:
        """State of a sensor with its last ticks."""
        return self.query(SENSOR, s={**self.selector, "sensorName": name})["sensorState"]

    def start_sensor(self, name: str) -> str:
        """Start a sensor; gives what stops it."""
        state = self.query(START_SENSOR, s={**self.selector, "sensorName": name})["sensorState"]
        assert state["status"] == "RUNNING"
        started: str = state["id"]
        return started

    def stop_sensor(self, name: str, started: str) -> None:
        """Stop a sensor until it stays so: a daemon that is about to evaluate it writes back the state that it has read before."""
        stopped = 0
        while stopped < _CALM:
            if self.sensor(name)["status"] == "STOPPED":
                stopped += 1
                time.sleep(0.5)
            else:
                self.query(STOP_SENSOR, id=started)
                stopped = 0

    @contextmanager
    def schedule(self, name: str) -> Iterator[None]:
        """A schedule that runs until the end of the block."""
        state = self.query(START_SCHEDULE, s={**self.selector, "scheduleName": name})["scheduleState"]
        assert state["status"] == "RUNNING"
        yield
        assert self.query(STOP_SCHEDULE, id=state["id"])["scheduleState"]["status"] == "STOPPED"


def metadata_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an event by label; values of kinds outside of the query are None."""
    values = ("intValue", "text", "boolValue")
    return {
        entry["label"]: next((entry[name] for name in values if entry.get(name) is not None), None) for entry in event["metadataEntries"]
    }


@contextmanager
def dagster_dev(
    module: str,
    home: Path,
    environment: Mapping[str, str],
    settings: str = _SETTINGS,
    secrets: Sequence[str] = (),
    happened: Callable[[], object] | None = None,
) -> Iterator[DagsterServer]:
    """Serve a module's definitions until the end of the block.

    Args:
        module: The module.
        home: Where Dagster keeps what it stores.
        environment: Further variables of the servers and runs.
        settings: Content of ``dagster.yaml``.
        secrets: What no answer may hold.
        happened: Something that differs after each event of a run and each tick; by default the state of Dagster's own SQLite files,
            which these settings may replace.
    """
    dagster_home = home / "dagster_home"
    dagster_home.mkdir()
    (dagster_home / "dagster.yaml").write_text(settings)
    workspace = home / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - python_module: {{module_name: {module}, location_name: {LOCATION}}}\n")
    program = [sys.executable, "-c", _WITH_SIGNALS, "-m", "dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p"]
    # A loaded machine needs many times what an idle one does until a run has begun, or a tick has ended.
    patience = dict.fromkeys(
        (
            "DAGSTER_GRPC_TIMEOUT_SECONDS",
            "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS",
            # A code server whose caller got no processor for 30 seconds ended itself; runs whose workers it watched never ended.
            "DAGSTER_PROXY_SERVER_HEARTBEAT_TIMEOUT",
            "DAGSTER_GRPC_PROXY_HEARTBEAT_TTL_SECONDS",
        ),
        "900",
    )
    own = {"DAGSTER_HOME": str(dagster_home), "DAGSTER_DISABLE_TELEMETRY": "1"}
    variables = {**os.environ, **own, **patience, **environment}
    root = Path(__file__).parents[2]
    with servers.serving(
        "dagster dev", lambda port: [*program, str(port)], answers=_has_a_page, environment=variables, folder=root
    ) as running:
        yield DagsterServer(running=running, happened=happened or partial(_state_of_files, dagster_home), secrets=secrets)


@contextmanager
def dagster_on_postgres(
    module: str,
    home: Path,
    environment: Mapping[str, str],
    postgres: PostgresServer,
    *,
    pool_limit: int,
    max_retries: int,
    secrets: Sequence[str] = (),
    keep: bool = False,
) -> Iterator[DagsterServer]:
    """Serve a module's definitions with Dagster's own storage on PostgreSQL, eight runs at a time.

    Its SQLite files were locked for longer than it waits when eight runs began at a time on a loaded machine, and such runs never began.

    Args:
        module: The module.
        home: Where Dagster keeps what it stores in files.
        environment: Further variables of the servers and runs.
        postgres: The server of the storage.
        pool_limit: Maximum number of steps of a pool at a time.
        max_retries: Maximum number of repetitions of a run that failed.
        secrets: What no answer may hold.
        keep: Whether the database of the storage stays until the server ends.
    """
    own = f"{postgres.user}@/{postgres.new_database(keep=keep)}?host={quote(postgres.socket, safe='')}"
    # dagster-postgres is written for this driver, which is not SQLAlchemy's own choice any more.
    settings = _ON_POSTGRES % (f"postgresql+psycopg2://{own}", pool_limit, max_retries)
    happened = partial(_state_of_postgres, f"postgresql://{own}")
    with dagster_dev(module, home, environment, settings, secrets=secrets, happened=happened) as server:
        yield server


def _state_of_postgres(url: str) -> object:
    with psycopg.connect(url) as connection:
        return connection.execute(_HAPPENED).fetchone()


def _state_of_files(home: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for file in (*home.glob("history/runs/*"), *home.glob("schedules/*")):
        with suppress(FileNotFoundError):
            state = file.stat()
            found[file.name] = (state.st_mtime_ns, state.st_size)
    return found


def _has_a_page(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
