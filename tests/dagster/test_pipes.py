"""A process outside of Dagster commits for a run, and the run shows what it committed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_pipes import PipesContext, open_dagster_pipes

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeResource, build_commit_sensor, pipes_commit, pipes_extras, report_ducklake_write

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-03-30")
PROGRAM = """
import sys
import pyarrow as pa
from dagster_pipes import open_dagster_pipes
from ducklake_core import DuckLake
from ducklake_dagster import pipes_commit, report_ducklake_write

with open_dagster_pipes() as pipes:
    lake = DuckLake.connect(sys.argv[1])
    for _ in range(2):
        result = lake.write("external", pa.table({"day": [pipes.partition_key], "n": [1]}), **pipes_commit(pipes))
    assert result.repeated
    report_ducklake_write(pipes, lake, result, metadata={"mine": 7, "ducklake/files_added": 5})
"""


@pytest.mark.filterwarnings("ignore:AssetExecutionContext:DeprecationWarning")  # in Dagster's client
@pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning")
def test_a_process_reports_its_commit(run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    lake = lake_resource.connect()
    address = lake_resource.catalog.url()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    @dg.asset(partitions_def=DAYS)
    def external(context, client: dg.PipesSubprocessClient) -> dg.MaterializeResult:
        command = [sys.executable, str(program), address]
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        return client.run(command=command, context=context, env=environment).get_materialize_result()

    sensor = build_commit_sensor(assets=[external], report_history=True)
    result = run([external], partition_key="2026-03-28", resources={"client": dg.PipesSubprocessClient()})
    (event,) = result.get_asset_materialization_events()
    metadata = {key: value.value for key, value in event.materialization.metadata.items()}
    assert lake.table("external").scan().count() == 1
    assert metadata["dagster/row_count"] == 1
    assert metadata["dagster/table_name"] == "main.external"
    assert metadata["ducklake/snapshot_id"] == lake.snapshot().id
    assert metadata["ducklake/repeated"] is True
    assert (metadata["mine"], metadata["ducklake/files_added"]) == (7, 5)
    assert [column.name for column in metadata["dagster/column_schema"].columns] == ["day", "n"]
    snapshot = lake.snapshot()
    assert (snapshot.author, snapshot.message) == ("dagster", "external [2026-03-28]")
    # The sensor takes the commit for what it is.
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}))
    assert list(tick.asset_events) == []


def context(*assets: str, **more: Any) -> PipesContext:
    """Context of a process behind Pipes; its reports are kept as ``sent``."""
    made = PipesContext.__new__(PipesContext)
    unknown = dict.fromkeys(("code_version_by_asset_key", "provenance_by_asset_key", "partition_key", "partition_key_range"))
    made._data = {**unknown, "asset_keys": list(assets) or None, "run_id": "run", "job_name": "job", "extras": {}, **more}  # type: ignore[typeddict-item]
    made._materialized_assets = set()
    sent: list[Any] = []
    made._write_message = lambda *message: sent.append(message)  # type: ignore[method-assign,assignment]
    made.sent = sent  # type: ignore[attr-defined]
    return made


def test_a_commit_is_for_an_asset_of_the_step() -> None:
    assert pipes_commit(context("a/b", "c"), asset_key="a/b")["message"] == "a/b"
    assert pipes_commit(context(), asset_key="of/an/op")["message"] == "of/an/op"
    wrong: list[tuple[Any, str]] = [
        ("d", "The step does not make asset d: asset_key must be one of a/b, c"),
        (dg.AssetKey(["a", "b"]), "asset_key must be a string such as 'sales/orders'"),
        (["a", "b"], "asset_key must be a string"),
        ("", "asset_key must be a string"),
    ]
    for key, message in wrong:
        with pytest.raises(UsageError, match=message):
            pipes_commit(context("a/b", "c"), asset_key=key)
    for pipes in (None, dg.build_asset_context()):
        with pytest.raises(UsageError, match=r"pipes must be the PipesContext that open_dagster_pipes\(\) returns"):
            pipes_commit(pipes)  # type: ignore[arg-type]


def test_only_a_commit_of_the_lake_is_reported(lake_resource: DuckLakeResource, tmp_path: Path) -> None:
    lake, other = lake_resource.connect(), DuckLake.create(f"sqlite:///{tmp_path}/other.sqlite", data_path=f"{tmp_path}/other/")
    with lake.transaction() as tx:
        tx.write("t", pa.table({"n": [1]}))
    result = lake.write("t", pa.table({"n": [2]}), mode="append")
    wrong: list[tuple[Any, Any, Any, str]] = [
        (None, result, None, "lake must be the DuckLake that was written to, not None"),
        (lake_resource, result, None, "lake must be the DuckLake"),
        (lake, None, None, r"result must be .* one of tx\.result\.writes of a transaction, not None"),
        (lake, tx.result, None, r"result must be .* one of tx\.result\.writes"),
        (result, lake, None, "lake must be the DuckLake"),
        (lake, result, ["x"], r"metadata must be a mapping, not \['x'\]"),
        (other, result, None, "the commit of main.t is not snapshot 2 of this lake"),
    ]
    for given, written, metadata, message in wrong:
        with pytest.raises(UsageError, match=message):
            report_ducklake_write(context("t"), given, written, metadata=metadata)
    other.write("t", pa.table({"n": [1]}))
    other.write("t", pa.table({"n": [1]}), mode="append")
    with pytest.raises(UsageError, match="is not snapshot 2 of this lake"):
        report_ducklake_write(context("t"), other, result)
    good = context("t")
    report_ducklake_write(good, lake, result)
    assert len(good.sent) == 1  # type: ignore[attr-defined]
    lake.write("t", pa.table({"n": [3]}), mode="append")
    lake.expire_snapshots(versions=[result.snapshot_id], min_age="0 days")
    report_ducklake_write(context("t"), lake, result)


def test_extras_are_of_the_context_of_a_step() -> None:
    for given in (None, dg.build_output_context(step_key="step", name="result"), context("t")):
        with pytest.raises(UsageError, match="context must be the context of the asset or op that starts the process"):
            pipes_extras(given)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:This process was not launched by a Dagster orchestration process")
def test_outside_of_a_run_nothing_is_reported(lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    with open_dagster_pipes() as pipes:
        result = lake.write("t", pa.table({"n": [1]}), **pipes_commit(pipes))
        report_ducklake_write(pipes, lake, result)
        with pytest.raises(UsageError, match="result must be"):
            report_ducklake_write(pipes, lake, None)  # type: ignore[arg-type]
    assert result.snapshot.author is None
