"""Re-executed runs: steps that committed before their worker was lost do not commit again, selected steps do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, SqliteCatalog, io_manager, pipes_extras
from tests.dagster.conftest import QUIET


def lake_of(file: str, files: str) -> DuckLakeResource:
    return DuckLakeResource(catalog=SqliteCatalog(path=file), storage=LocalStorage(data_path=files), create_if_missing=True)


def events_job() -> dg.JobDefinition:
    """Two assets that append; the second depends on the first."""

    @dg.asset(metadata={"write_mode": "append"})
    def first() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.asset(metadata={"write_mode": "append"}, deps=[first])
    def events() -> pa.Table:
        return pa.table({"n": [1, 2]})

    manager = DuckLakeIOManager(lake=lake_of(dg.EnvVar("LAKE_FILE"), dg.EnvVar("LAKE_FILES")), default_frame="arrow")
    job = dg.define_asset_job("events_job", selection="*", executor_def=dg.in_process_executor)
    return dg.Definitions(assets=[first, events], jobs=[job], resources={"io_manager": manager}).resolve_job_def("events_job")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Dagster makes a job that can be made again only once in a process.
    monkeypatch.setenv("LAKE_FILE", f"{tmp_path}/lake.sqlite")
    monkeypatch.setenv("LAKE_FILES", f"{tmp_path}/files/")
    return str(tmp_path)


@pytest.fixture
def stored() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """``lost.append(True)``: the next commit of ``events`` is the last thing that its worker does."""
    real, lose = io_manager.commit_metadata, []

    def describe(lake: Any, output: Any, *args: Any, **how: Any) -> Any:
        if output.subject == "events" and lose and lose.pop():
            raise ConnectionError("lost after the commit")
        return real(lake, output, *args, **how)

    monkeypatch.setattr(io_manager, "commit_metadata", describe)
    return lose


def execute(instance: dg.DagsterInstance, **how: Any) -> dg.JobExecutionResult:
    return dg.execute_job(dg.reconstructable(events_job), instance=instance, run_config=QUIET, **how)


def counts(home: str) -> tuple[int, int]:
    lake = lake_of(f"{home}/lake.sqlite", f"{home}/files/").connect()
    return lake.table_info("first").row_count, lake.table_info("events").row_count


RESUMED = {"dagster/is_resume_retry": "true"}


def from_failure(instance: dg.DagsterInstance, run: dg.JobExecutionResult, **tags: str) -> dg.JobExecutionResult:
    options = dg.ReexecutionOptions.from_failure(run.run_id, instance)
    return execute(instance, reexecution_options=options, tags={**RESUMED, **tags})


def test_resuming_a_run_that_was_lost_after_its_commit_adds_nothing(stored: dg.DagsterInstance, home: str, lost: list[bool]) -> None:
    lost.append(True)
    first = execute(stored)
    assert not first.success
    assert counts(home) == (1, 2)
    lost.append(True)
    second = from_failure(stored, first)
    assert not second.success
    third = from_failure(stored, second)
    assert third.success
    assert counts(home) == (1, 2)
    (event,) = third.asset_materializations_for_node("events")
    assert event.metadata["ducklake/repeated"].value is True


def test_reexecuting_all_steps_is_a_new_materialisation_also_when_it_is_retried(
    stored: dg.DagsterInstance, home: str, lost: list[bool]
) -> None:
    first = execute(stored)
    lost.append(True)
    again = execute(stored, reexecution_options=dg.ReexecutionOptions(parent_run_id=first.run_id))
    assert not again.success
    assert counts(home) == (2, 4)
    assert from_failure(stored, again, **{"dagster/retry_number": "1"}).success
    assert counts(home) == (2, 4), "the retry is one of the second materialisation, not of the first"


def test_a_step_that_succeeded_and_is_selected_again_is_a_new_materialisation(stored: dg.DagsterInstance, home: str) -> None:
    first = execute(stored)
    options = dg.ReexecutionOptions(parent_run_id=first.run_id, step_selection=["events"])
    assert execute(stored, reexecution_options=options).success
    assert counts(home) == (1, 4)


FAR_SIDE = """
import os, sys
from pathlib import Path
import pyarrow as pa
from dagster_pipes import open_dagster_pipes
from ducklake_core import DuckLake
from ducklake_dagster import pipes_commit

with open_dagster_pipes() as pipes:
    lake = DuckLake.connect("sqlite:///" + os.environ["LAKE_FILE"])
    lake.write("external", pa.table({"n": [1, 2]}), **pipes_commit(pipes))
    lost = Path(os.environ["LAKE_FILE"] + ".lost")
    if lost.exists():
        lost.unlink()
        os._exit(1)
"""


def process_job() -> dg.JobDefinition:
    """One asset, whose rows a process appends that Dagster starts."""

    @dg.asset
    def external(context, client: dg.PipesSubprocessClient) -> dg.MaterializeResult:
        environment = {name: os.environ[name] for name in ("LAKE_FILE", "LAKE_FILES")} | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", FAR_SIDE]
        return client.run(command=command, context=context, env=environment, extras=pipes_extras(context)).get_materialize_result()

    job = dg.define_asset_job("process_job", selection="*", executor_def=dg.in_process_executor)
    client = dg.PipesSubprocessClient()
    return dg.Definitions(assets=[external], jobs=[job], resources={"client": client}).resolve_job_def("process_job")


@pytest.mark.filterwarnings("ignore:AssetExecutionContext:DeprecationWarning")  # in Dagster's client
@pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning")
@pytest.mark.slow
def test_a_process_behind_pipes_that_was_lost_after_its_commit(instance: dg.DagsterInstance, home: str) -> None:
    lake = lake_of(f"{home}/lake.sqlite", f"{home}/files/").connect()
    Path(f"{home}/lake.sqlite.lost").touch()
    job = dg.reconstructable(process_job)
    first = dg.execute_job(job, instance=instance, run_config=QUIET)
    assert not first.success
    assert not Path(f"{home}/lake.sqlite.lost").exists(), "it was lost before its commit: see its stderr"
    assert lake.table("external").scan().count() == 2
    options = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    assert dg.execute_job(job, instance=instance, run_config=QUIET, reexecution_options=options, tags=RESUMED).success
    assert lake.table("external").scan().count() == 2
    assert dg.execute_job(job, instance=instance, run_config=QUIET).success
    assert lake.table("external").scan().count() == 4
