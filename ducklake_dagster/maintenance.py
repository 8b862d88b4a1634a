"""Maintenance as a job, a schedule and a sensor: merge small files, expire snapshots, delete what nothing needs any more."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from ducklake_core import DuckLake

POOL = "ducklake_maintenance"
_MOST_LINES = 100


class MergeConfig(dg.Config):
    """What to merge."""

    tables: list[str] = Field(default_factory=list, description="Tables as table or schema.table; all tables when empty.")
    dry_run: bool = Field(default=False, description="Only report what would be merged.")


class ExpireConfig(dg.Config):
    """Which snapshots to expire."""

    older_than_days: float = Field(default=7.0, ge=0, description="Age from which snapshots are expired, in days.")
    keep_last: int = Field(default=1, ge=1, description="Newest snapshots that are kept whatever their age.")
    min_age_hours: float = Field(default=1.0, ge=0, description="Floor of the age: younger snapshots may be in use.")
    dry_run: bool = Field(default=False, description="Only report what would be expired.")


class CleanupConfig(dg.Config):
    """Which files to delete."""

    older_than_days: float = Field(default=2.0, ge=0, description="Time since a file became unneeded, in days.")
    min_age_hours: float = Field(default=1.0, ge=0, description="Floor of the age: younger files may be in use.")
    dry_run: bool = Field(default=False, description="Only report what would be deleted.")


def build_maintenance_job(
    *,
    name: str = "ducklake_maintenance",
    lake_key: str = "lake",
    tables: Sequence[str] = (),
    expire_older_than: timedelta = timedelta(days=7),
    keep_last: int = 1,
    cleanup_older_than: timedelta = timedelta(days=2),
    dry_run: bool = False,
    pool: str | None = POOL,
) -> dg.JobDefinition:
    """A job that merges small files, then expires snapshots, then deletes files that no snapshot needs, in this order.

    Every setting is run config, with the values given here as defaults.  What was done is metadata of each step.  A table that
    cannot be merged does not stop the others; the step fails at its end and says what went wrong, and the steps after it wait for
    the next run.

    Args:
        name: Name of the job.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        tables: Tables to merge files of; all when empty. Expiry and cleanup are about the whole lake.
        expire_older_than: Age from which snapshots are expired.
        keep_last: Newest snapshots that are kept whatever their age.
        cleanup_older_than: Time since a file became unneeded from which it is deleted. Readers of an expired snapshot need it.
        dry_run: Only report.
        pool: Dagster pool of the steps; limits live in the instance.
    """
    # A definition's name is unique in a project, which may have several of these jobs; the steps are called the same in all of them.
    merge = _merge_op(name, lake_key, pool).alias("merge_adjacent_files")
    expire = _expire_op(name, lake_key, pool).alias("expire_snapshots")
    cleanup = _cleanup_op(name, lake_key, pool).alias("cleanup_old_files")
    day = timedelta(days=1)
    config = dg.RunConfig(
        ops={
            "merge_adjacent_files": MergeConfig(tables=list(tables), dry_run=dry_run),
            "expire_snapshots": ExpireConfig(older_than_days=expire_older_than / day, keep_last=keep_last, dry_run=dry_run),
            "cleanup_old_files": CleanupConfig(older_than_days=cleanup_older_than / day, dry_run=dry_run),
        }
    )

    @dg.job(name=name, config=config, description="Merge small files, expire snapshots, delete unneeded files.")
    def maintenance() -> None:
        cleanup(after=expire(after=merge()))

    return maintenance


def build_maintenance_schedule(
    job: dg.JobDefinition, *, cron_schedule: str = "0 3 * * *", execution_timezone: str | None = None
) -> dg.ScheduleDefinition:
    """A schedule for a maintenance job. Ships stopped."""
    return dg.ScheduleDefinition(
        job=job, cron_schedule=cron_schedule, execution_timezone=execution_timezone, default_status=dg.DefaultScheduleStatus.STOPPED
    )


def build_compaction_sensor(
    *,
    name: str = "ducklake_compaction",
    lake_key: str = "lake",
    min_files: int = 8,
    tables: Sequence[str] = (),
    minimum_interval_seconds: int = 300,
    pool: str | None = POOL,
) -> dg.SensorDefinition:
    """A sensor that merges the files of a table once enough of them can be merged. Ships stopped.

    It asks the very planner that the job runs, so a table whose small files cannot be merged (each in a partition of its own)
    asks for nothing.  A table asks at most once for each state of its files.

    Args:
        name: Name of the sensor; its job is called the same with ``_job``.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        min_files: Files that can be merged from which a run is worth it.
        tables: Tables to look after; all when empty.
        minimum_interval_seconds: Seconds between evaluations.
        pool: Dagster pool of the job's step.
    """
    merge = _merge_op(f"{name}_job", lake_key, pool).alias("merge_adjacent_files")

    @dg.job(name=f"{name}_job", config=dg.RunConfig(ops={"merge_adjacent_files": MergeConfig(tables=list(tables))}))
    def compaction() -> None:
        merge()

    @dg.sensor(
        name=name,
        job=compaction,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
    )
    def sensor(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        asked = False
        for table in _table_names(lake, tables):
            mergeable = lake.merge_adjacent_files(table, dry_run=True).files_merged
            if mergeable < min_files:
                continue
            opened = lake.table(table)
            history = opened.snapshots()
            state = history[-1].id if history else opened.snapshot_id
            config = dg.RunConfig(ops={"merge_adjacent_files": MergeConfig(tables=[table])})
            asked = True
            yield dg.RunRequest(run_key=f"compact:{opened.state.id}:{state}", run_config=config, tags={"ducklake/table": table})
        if not asked:
            yield dg.SkipReason(f"no table has {min_files} files that can be merged")

    return sensor


def _merge_op(job: str, lake_key: str, pool: str | None) -> dg.OpDefinition:
    @dg.op(name=f"{job}__merge_adjacent_files", required_resource_keys={lake_key}, pool=pool, ins={"after": dg.In(dg.Nothing)})
    def merge(context: dg.OpExecutionContext, config: MergeConfig) -> None:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        tables: Sequence[str | None] = config.tables or [None]
        results = [lake.merge_adjacent_files(table, dry_run=config.dry_run) for table in tables]
        failures = [failure for result in results for failure in result.failures]
        metadata: dict[str, Any] = {"dry_run": config.dry_run, "report": _report(results)}
        for merged in (merged for result in results for merged in result.tables if merged.files_merged):
            metadata[f"{merged.table}/files_merged"] = merged.files_merged
            metadata[f"{merged.table}/files_created"] = merged.files_created
            metadata[f"{merged.table}/bytes_read"] = merged.bytes_read
        context.log.info("%s", metadata["report"])
        context.add_output_metadata(metadata)
        if failures:
            # Every table had its turn by now.
            raise dg.Failure("; ".join(failures), allow_retries=False)

    return merge


def _expire_op(job: str, lake_key: str, pool: str | None) -> dg.OpDefinition:
    @dg.op(name=f"{job}__expire_snapshots", required_resource_keys={lake_key}, pool=pool, ins={"after": dg.In(dg.Nothing)})
    def expire(context: dg.OpExecutionContext, config: ExpireConfig) -> None:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        result = lake.expire_snapshots(
            older_than=timedelta(days=config.older_than_days),
            keep_last=config.keep_last,
            min_age=timedelta(hours=config.min_age_hours),
            dry_run=config.dry_run,
        )
        context.log.info("%s", result)
        context.add_output_metadata(_facts(result))

    return expire


def _cleanup_op(job: str, lake_key: str, pool: str | None) -> dg.OpDefinition:
    @dg.op(name=f"{job}__cleanup_old_files", required_resource_keys={lake_key}, pool=pool, ins={"after": dg.In(dg.Nothing)})
    def cleanup(context: dg.OpExecutionContext, config: CleanupConfig) -> None:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        result = lake.cleanup_old_files(
            older_than=timedelta(days=config.older_than_days), min_age=timedelta(hours=config.min_age_hours), dry_run=config.dry_run
        )
        context.log.info("%s", result)
        context.add_output_metadata(_facts(result))
        if result.failed:
            raise dg.Failure(f"{len(result.failed)} files could not be deleted; they are tried again next time", allow_retries=False)

    return cleanup


def _table_names(lake: DuckLake, tables: Sequence[str]) -> Sequence[str]:
    return tables or [info.table for info in lake.tables()]


def _facts(result: Any) -> dict[str, Any]:
    """A result's counts, and what it says about itself."""
    facts: dict[str, Any] = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, bool | int | float | str):
            facts[field.name] = value
        elif isinstance(value, tuple):
            facts[field.name] = len(value)
    facts["report"] = _report([result])
    return facts


def _report(results: Sequence[object]) -> str:
    lines = [line for result in results for line in str(result).splitlines()]
    return "\n".join([*lines[:_MOST_LINES], f"... and {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else lines)
