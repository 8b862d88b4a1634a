"""Project of the deployment's code server: a lake on PostgreSQL and S3, and assets that fail on request."""

import os
import signal
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from ducklake_core import Scan
from ducklake_dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    NullFraction,
    PostgresCatalog,
    RowCount,
    S3Storage,
    Triggers,
    build_audit_checks,
    build_commit_sensor,
    build_lake_checks,
    build_maintenance_defs,
    ducklake_metadata,
    with_table_metadata,
)
from tests.dagster.deployment.names import GENERATION
from tests.support.forked_runs import fork_runs

if int(os.environ.get("DEPLOYMENT_RUNS", "32")) > 100:
    # What a run imports only when it writes is there too.
    fork_runs("dagster._cli", "dagster_postgres", "pyarrow.dataset", "s3fs", "sqlglot", "psycopg", __name__)
FAULTS = Path(os.environ["LAKE_FAULTS"])
# What Dagster plots begins with the newest partition, or, of partitions that ended, with today.
OPEN_DAYS = dg.DailyPartitionsDefinition("2025-01-01", timezone="Europe/Berlin")
DAYS = dg.DailyPartitionsDefinition("2025-01-01", end_date="2026-01-01", timezone="Europe/Berlin")
TEN_YEARS = dg.DailyPartitionsDefinition("2016-01-01", end_date="2025-12-29", timezone="Europe/Berlin")
REGIONS = dg.StaticPartitionsDefinition(["eu", "o'us", "asia"])
GRID = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
BY_DAY = ducklake_metadata(partition_expr="day", partition_by=["month(day)"])
APPENDS = ducklake_metadata(write_mode="append")


def strike(moment: str, asset: str) -> None:
    """Perform the fault that a file requests, once: lose the worker, or fail."""
    file = FAULTS / f"{moment}-{asset}"
    try:
        what = file.read_text()
        file.unlink()
    except FileNotFoundError:
        return
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ConnectionError(f"lost {moment} the commit")


def audit_lost(_rows: Scan) -> bool:
    """Comes when the rows are in files, and before the commit."""
    strike("within", "lost")
    return True


class StrikingIOManager(DuckLakeIOManager):
    """Fails before or after the commit on request."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output."""
        name = context.asset_key.path[-1]
        strike("before", name)
        super().handle_output(context, obj)
        strike("after", name)


def rows_of(keys: Sequence[str], generation: int) -> pa.Table:
    """Three rows of each day."""
    days = [date.fromisoformat(key) for key in keys for _ in range(3)]
    columns = {"day": pa.array(days, pa.date32()), "n": pa.array([0, 1, 2] * len(keys), pa.int32())}
    return pa.table({**columns, "generation": pa.array([generation] * len(days), pa.int32())})


def generation_of(context: dg.AssetExecutionContext) -> int:
    """Return the generation of rows that the run writes."""
    return int(context.run.tags.get(GENERATION, "1"))


@dg.asset(partitions_def=DAYS, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.multi_run(1))
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    """A run for each day."""
    return rows_of(context.partition_keys, generation_of(context))


COLUMNS = dg.TableSchema(columns=[dg.TableColumn("day", "date", "Day of the sale, in Berlin"), dg.TableColumn("n", "int", "Number")])


@dg.asset(
    partitions_def=DAYS,
    kinds={"ducklake"},
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={**BY_DAY, **ducklake_metadata(table="ranged"), "dagster/column_schema": COLUMNS},
)
def ranged(context: dg.AssetExecutionContext) -> pa.Table:
    """Three rows for each day; a run takes any number of days."""
    return rows_of(context.partition_keys, generation_of(context))


@dg.asset(partitions_def=TEN_YEARS, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
def decade(context: dg.AssetExecutionContext) -> pa.Table:
    """Three rows for each of 3,650 days."""
    return rows_of(context.partition_keys, generation_of(context))


@dg.asset(
    partitions_def=OPEN_DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata=ducklake_metadata(partition_expr="day", partition_by="day"),
)
def plotted(context: dg.AssetExecutionContext) -> pa.Table:
    """One row in the first day of the run, two in the second, and so on."""
    days = [date.fromisoformat(key) for number, key in enumerate(context.partition_keys, 1) for _ in range(number)]
    return pa.table({"day": pa.array(days, pa.date32()), "n": pa.array(range(len(days)), pa.int32())})


@dg.asset(partitions_def=DAYS, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
def copied(ranged: pa.Table) -> pa.Table:
    """The same days of another table."""
    return ranged


@dg.asset(
    partitions_def=GRID,
    metadata=ducklake_metadata(partition_expr={"day": "day", "region": "region"}),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def grid(context: dg.AssetExecutionContext) -> pa.Table:
    """A row for each day and region."""
    keys = [key.split("|") for key in context.partition_keys]
    columns = {"day": pa.array([date.fromisoformat(day) for day, _ in keys], pa.date32()), "region": [region for _, region in keys]}
    return pa.table({**columns, "generation": pa.array([generation_of(context)] * len(keys), pa.int32())})


@dg.asset(metadata=ducklake_metadata(write_mode="append", audits={"audited": audit_lost}))
def lost(context: dg.AssetExecutionContext) -> pa.Table:
    """Appends a row in a worker that may be lost."""
    strike("while", "lost")
    return pa.table({"generation": pa.array([generation_of(context)], pa.int32())})


@dg.asset(deps=[lost], metadata=APPENDS, retry_policy=dg.RetryPolicy(max_retries=2))
def retried(context: dg.AssetExecutionContext) -> pa.Table:
    """Appends a row in a step with retries."""
    return pa.table({"generation": pa.array([generation_of(context)], pa.int32())})


@dg.asset(metadata=APPENDS, retry_policy=dg.RetryPolicy(max_retries=20, delay=3))
def slowly(context: dg.AssetExecutionContext) -> pa.Table:
    """Waits for the lake to come back."""
    return pa.table({"generation": pa.array([generation_of(context)], pa.int32())})


@dg.asset
def misfit(context: dg.AssetExecutionContext) -> pa.Table:
    """Has a new column in each generation, which its table does not take."""
    return pa.table({f"generation_{number}": [1] for number in range(1, generation_of(context) + 1)})


@dg.asset
def judged(context: dg.AssetExecutionContext) -> pa.Table:
    """As many rows as its generation."""
    return pa.table({"n": pa.array(range(generation_of(context)), pa.int32())})


@dg.asset
def after_judged(judged: pa.Table) -> pa.Table:
    """Waits for the checks."""
    return judged


@dg.asset(partitions_def=DAYS, pool="ducklake_writer", metadata=ducklake_metadata(partition_expr="day"))
def pooled(context: dg.AssetExecutionContext) -> pa.Table:
    """When its step began and ended; the pool lets one in at a time."""
    began = time.time()
    time.sleep(1)
    day = pa.array([date.fromisoformat(context.partition_key)], pa.date32())
    return pa.table({"day": day, "began": [began], "ended": [time.time()]})


ASSETS = [daily, ranged, decade, plotted, copied, grid, lost, retried, slowly, misfit, judged, after_judged, pooled]
lake = DuckLakeResource(
    catalog=PostgresCatalog(
        host="127.0.0.1",
        port=int(os.environ["LAKE_PORT"]),
        database=os.environ["LAKE_DATABASE"],
        user=os.environ["LAKE_USER"],
        # In clear, as a user may give it: no page may show it.
        password=os.environ["LAKE_PASSWORD"],
    ),
    storage=S3Storage(
        data_path="s3://lake/deployment/",
        access_key_id=os.environ["LAKE_KEY"],
        secret_access_key=dg.EnvVar("LAKE_SECRET"),
        endpoint_url=os.environ["LAKE_ENDPOINT"],
        region="us-east-1",
        options={"config_kwargs": {"response_checksum_validation": "when_required", "retries": {"max_attempts": 1}}},
    ),
    create_if_missing=True,
)
CHECKS = [RowCount(minimum=2, blocking=True, severity=dg.AssetCheckSeverity.ERROR), NullFraction(limits={"n": 0.0})]
_WITHIN = timedelta(days=3650)

defs = dg.Definitions.merge(
    with_table_metadata(
        dg.Definitions(
            assets=ASSETS,
            asset_checks=[*build_lake_checks(assets=[judged, ranged], checks=CHECKS), *build_audit_checks(assets=[lost])],
            sensors=[build_commit_sensor(assets=ASSETS, minimum_interval_seconds=1)],
            resources={"io_manager": StrikingIOManager(lake=lake, default_frame="arrow"), "lake": lake},
            executor=dg.in_process_executor,
        )
    ),
    build_maintenance_defs(
        assets=ASSETS,
        cron_schedule="* * * * *",
        cleanup_older_than=_WITHIN,
        orphans_older_than=_WITHIN,
        triggers=Triggers(small_files=4, minimum_interval_seconds=1),
    ),
)
