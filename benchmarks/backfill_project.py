"""Define the project of bench_backfill: an asset that a single run fills, and one with a run for each day, on PostgreSQL and S3."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.

import os
import signal
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pyarrow as pa

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, S3Storage, ducklake_metadata

HOME = Path(os.environ["BENCH_HOME"])
START = date(2016, 1, 1)
DAYS = int(os.environ["BENCH_DAYS"])
RUNS = int(os.environ["BENCH_RUNS"])
BY_DAY = ducklake_metadata(partition_expr="day", partition_by=["month(day)"])


def count_statements() -> None:
    """Append a byte to a file for each statement: SQLAlchemy and pipelined commits both go through psycopg's cursors."""
    counter, real = os.open(HOME / "statements", os.O_WRONLY | os.O_APPEND | os.O_CREAT), psycopg.Cursor.execute

    def execute(self: Any, *args: Any, **named: Any) -> Any:
        os.write(counter, b".")
        return real(self, *args, **named)

    psycopg.Cursor.execute = execute  # type: ignore[method-assign]


def struck(what: str) -> bool:
    """Return True for the one process that takes a fault."""
    try:
        (HOME / what).unlink()
    except FileNotFoundError:
        return False
    return True


class LosingIOManager(DuckLakeIOManager):
    """Loses the worker of one run after its commit, so that Dagster repeats the run."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write, and perhaps be killed."""
        super().handle_output(context, obj)
        if struck("kill"):
            os.kill(os.getpid(), signal.SIGKILL)


def rows(keys: list[str]) -> pa.Table:
    """Return a hundred rows for each day."""
    days = [date.fromisoformat(key) for key in keys for _ in range(100)]
    return pa.table({"day": pa.array(days, pa.date32()), "n": pa.array(range(len(days)), pa.int64())})


def _days(count: int) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition(START.isoformat(), end_date=(START + timedelta(days=count)).isoformat())


@dg.asset(partitions_def=_days(DAYS), metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
def single(context: dg.AssetExecutionContext) -> pa.Table:
    """All days in one run."""
    return rows(list(context.partition_keys))


@dg.asset(partitions_def=_days(RUNS), metadata=BY_DAY, pool="lake_writes", retry_policy=dg.RetryPolicy(max_retries=2))
def many(context: dg.AssetExecutionContext) -> pa.Table:
    """A run for each day; one of them fails once."""
    if struck("fail"):
        raise ConnectionError("lost before the rows were made")
    return rows(list(context.partition_keys))


count_statements()
lake = DuckLakeResource(
    catalog=os.environ["BENCH_CATALOG"],
    storage=S3Storage(
        data_path="s3://lake/backfill/",
        access_key_id=dg.EnvVar("BENCH_KEY"),
        secret_access_key=dg.EnvVar("BENCH_SECRET"),
        region="us-east-1",
        endpoint_url=os.environ["BENCH_ENDPOINT"],
        options={"config_kwargs": {"response_checksum_validation": "when_required"}},
    ),
    create_if_missing=True,
)
defs = dg.Definitions(
    assets=[single, many],
    resources={"io_manager": LosingIOManager(lake=lake, default_frame="arrow")},
    executor=dg.in_process_executor,
)
