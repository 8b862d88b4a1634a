"""A small project for the end-to-end test, loaded by `dagster dev`; its lake is in the folder of ``LAKE_HOME``."""

import os
from datetime import date

import dagster as dg
import pyarrow as pa

from ducklake_dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    LocalStorage,
    SqliteCatalog,
    build_maintenance_job,
    build_row_count_change_checks,
    ducklake_metadata,
)

HOME = os.environ["LAKE_HOME"]
DAYS = dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-03-11", timezone="Europe/Berlin")


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    kinds={"ducklake"},
    metadata=ducklake_metadata(table="numbers", partition_expr="day", partition_by=["month(day)"]),
)
def numbers(context: dg.AssetExecutionContext) -> pa.Table:
    """Three rows for each day."""
    days = [date.fromisoformat(key) for key in context.partition_keys for _ in range(3)]
    return pa.table({"day": pa.array(days, pa.date32()), "n": pa.array(range(len(days)), pa.int32())})


lake = DuckLakeResource(
    catalog=SqliteCatalog(path=f"{HOME}/catalog.sqlite"), storage=LocalStorage(data_path=f"{HOME}/files/"), create_if_missing=True
)

defs = dg.Definitions(
    assets=[numbers],
    asset_checks=build_row_count_change_checks(assets=[numbers], max_drop=0.5),
    jobs=[build_maintenance_job(assets=[numbers])],
    resources={"io_manager": DuckLakeIOManager(lake=lake, default_frame="arrow"), "lake": lake},
    executor=dg.in_process_executor,
)
