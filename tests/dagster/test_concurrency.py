"""Two processes materialise partitions of one table at once: both succeed, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from ducklake_dagster import DuckLakeResource, LocalStorage, SqliteCatalog

PROGRAM = """
import sys
from datetime import date
import dagster as dg
import pyarrow as pa
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, SqliteCatalog

folder, keys = sys.argv[1], sys.argv[2:]
storage = LocalStorage(data_path=f"{folder}/files/")
lake = DuckLakeResource(catalog=SqliteCatalog(path=f"{folder}/lake.sqlite"), storage=storage, create_if_missing=True)

@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-03-01"), metadata={"partition_expr": "day"})
def numbers(context) -> pa.Table:
    return pa.table({"day": pa.array([date.fromisoformat(context.partition_key)] * 3, pa.date32()), "n": [1, 2, 3]})

for key in keys * 2:
    dg.materialize([numbers], partition_key=key, resources={"io_manager": DuckLakeIOManager(lake=lake)},
                   run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}})
"""


def test_two_processes_write_different_partitions_of_one_table(tmp_path: Path) -> None:
    days = [f"2026-03-{day:02d}" for day in range(1, 5)]
    # Both begin by creating the lake and the table.
    workers = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), *days[part::2]], stderr=subprocess.PIPE, text=True)
        for part in (0, 1)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 0, errors
    resource = DuckLakeResource(catalog=SqliteCatalog(path=f"{tmp_path}/lake.sqlite"), storage=LocalStorage(data_path=f"{tmp_path}/files/"))
    lake = resource.connect()
    rows = lake.table("numbers").scan(["day", "n"]).to_arrow().to_pylist()
    assert sorted((row["day"].isoformat(), row["n"]) for row in rows) == [(day, n) for day in days for n in (1, 2, 3)]
    assert [snapshot.id for snapshot in lake.snapshots()] == list(range(len(days) * 2 + 1))


def test_runs_at_once_that_all_bring_new_keys_and_comments(run: Callable[..., Any], lake_resource: DuckLakeResource) -> None:
    keys = [str(number) for number in range(6)]

    def asset(text: str | None, **metadata: Any) -> dg.AssetsDefinition:
        partitions = dg.StaticPartitionsDefinition(keys)

        @dg.asset(name="things", partitions_def=partitions, description=text, metadata={"partition_expr": "k", **metadata})
        def build(context) -> pa.Table:
            return pa.table({"k": [context.partition_key] * 50, "n": range(50)})

        return build

    run([asset(None)], partition_key="0")
    changed = asset("described", partition_by="k")

    def materialized(key: str) -> bool:
        # Dagster's own database in memory is not made for several runs at once.
        with dg.DagsterInstance.ephemeral() as own:
            return bool(run([changed], partition_key=key, instance=own).success)

    with ThreadPoolExecutor(len(keys)) as threads:
        assert all(threads.map(materialized, keys))
    lake = lake_resource.connect()
    assert (lake.table("things").comment, lake.table_info("things").partition_by) == ("described", ("k",))
    assert lake.table_info("things").row_count == 50 * len(keys)
