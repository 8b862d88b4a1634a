"""GraphQL answers about a real code location contain no secret: resources, launchpad, runs, logs and sensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster._core.test_utils import instance_for_test
from dagster_graphql.test.utils import (
    define_out_of_process_context,
    execute_dagster_graphql,
    execute_dagster_graphql_and_finish_runs,
    infer_job_selector,
    infer_repository_selector,
    infer_sensor_selector,
)

from tests.dagster.test_secrets import SECRET
from tests.support.parameters import spread

RESOURCES = """query R($s: RepositorySelector!) { allTopLevelResourceDetailsOrError(repositorySelector: $s) {
  ... on ResourceDetailsList { results { name description configFields { name description defaultValueAsJson configTypeKey }
    configuredValues { key value type } nestedResources { name type resource { configuredValues { key value type } } } } } } }"""
LAUNCHPAD = """query L($s: PipelineSelector!) { runConfigSchemaOrError(selector: $s) { ... on RunConfigSchema { rootDefaultYaml
  allConfigTypes { key description ... on CompositeConfigType { fields { name description defaultValueAsJson } } } } } }"""
LAUNCH = """mutation L($e: ExecutionParams!) { launchRun(executionParams: $e) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on RunConfigValidationInvalid { errors { message } } } }"""
RUN = """query R($id: ID!) { runOrError(runId: $id) { ... on Run { status runConfigYaml runConfig tags { key value }
  eventConnection { events { __typename ... on MessageEvent { message }
    ... on ExecutionStepFailureEvent { error { message stack causes { message stack } } failureMetadata { description } }
    ... on RunFailureEvent { error { message stack causes { message stack } } } } } } } }"""
SENSOR = """mutation S($s: SensorSelector!) { sensorDryRun(selectorData: $s, cursor: null) {
  ... on DryRunInstigationTick { evaluationResult { cursor skipReason error { message stack causes { message stack } } } }
  ... on PythonError { message } } }"""


# Without a daemon nothing would take runs off a queue.
AT_ONCE = {"run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"}}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    home = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKE_SECRET", SECRET)
        patch.setenv("LAKE_ADDRESS", f"postgresql://u:{SECRET}@127.0.0.1:1/d")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        with (
            instance_for_test(overrides=AT_ONCE, temp_dir=str(home)) as instance,
            define_out_of_process_context(str(Path(__file__).with_name("secret_project.py")), "defs", instance) as found,
        ):
            yield found


def run_query(context: Any, query: str, **variables: Any) -> tuple[Any, str]:
    """Return the answer, and assert that it contains no secret."""
    run = execute_dagster_graphql_and_finish_runs if query is LAUNCH else execute_dagster_graphql
    data = run(context, query, variables=variables).data
    text = json.dumps(data)
    assert SECRET not in text
    return data, text


def test_the_pages_of_resources(context: Any) -> None:
    data, text = run_query(context, RESOURCES, s=infer_repository_selector(context))
    found = data["allTopLevelResourceDetailsOrError"]["results"]
    assert len([one for one in found if one["name"].startswith("manager_")]) == 18
    assert "********" in text
    assert "LAKE_SECRET" in text, "which variable it is may be known"
    types = {(field["name"], field["configTypeKey"]) for one in found if one["name"] == "lake" for field in one["configFields"]}
    assert {("catalog", "one of sqlite, duckdb, postgres, mysql, address"), ("storage", "one of local, s3, gcs, azure")} <= types


@pytest.mark.parametrize("job", ["ducklake_maintenance", "launched", "__ASSET_JOB"])
def test_the_launchpad(context: Any, job: str) -> None:
    data, _ = run_query(context, LAUNCHPAD, s=infer_job_selector(context, job))
    assert data["runConfigSchemaOrError"]["rootDefaultYaml"]


@pytest.mark.parametrize("job", spread(["__ASSET_JOB", "ducklake_maintenance", "launched"], 1))
def test_runs_that_fail_and_their_logs(context: Any, job: str) -> None:
    config: dict[str, Any] = {}
    if job == "launched":
        catalog = {"postgres": {"host": "127.0.0.1", "port": 1, "database": "d", "user": "u", "password": {"env": "LAKE_SECRET"}}}
        storage = {"s3": {"data_path": "s3://b/", "secret_access_key": {"env": "LAKE_SECRET"}}}
        config = {"resources": {"at_launch": {"config": {"catalog": catalog, "storage": storage}}}}
    data, _ = run_query(context, LAUNCH, e={"selector": infer_job_selector(context, job), "mode": "default", "runConfigData": config})
    launched = data["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    data, text = run_query(context, RUN, id=launched["run"]["runId"])
    assert data["runOrError"]["status"] == "FAILURE"
    assert "127.0.0.1" in text, "the failure is the one that is meant"


def test_a_tick_of_a_sensor_that_fails(context: Any) -> None:
    _, text = run_query(context, SENSOR, s=infer_sensor_selector(context, "ducklake_commits"))
    assert "127.0.0.1" in text
