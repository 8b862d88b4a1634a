"""A process outside of Dagster commits for a run, and the run shows what it committed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from ducklake_dagster import DuckLakeResource, build_commit_sensor

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
@pytest.mark.takes_seconds
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
