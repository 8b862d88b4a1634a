"""Maintenance as a job, a schedule and a sensor: merge small files, expire snapshots, delete what nothing needs any more."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_dagster.asset_tables import asset_tables
from ducklake_dagster.maintenance_events import table_observations
from ducklake_dagster.naming import name_list

if TYPE_CHECKING:
    from ducklake_core import DuckLake, MergeResult

POOL = "ducklake_maintenance"
_MOST_LINES = 100
_FAILURES = "failures"
_STATE = "ducklake/table_state"
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_JOB_TEXT = """Merges small files, then expires snapshots, then deletes files that no snapshot needs.

What goes wrong with a table or a step does not stop the others; the last step fails and says what it was."""
_LONGEST_PAUSE = timedelta(days=1)


class MergeConfig(dg.Config):
    """The tables to merge."""

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
    tables: str | Sequence[str] = (),
    expire_older_than: timedelta | str = timedelta(days=7),
    keep_last: int = 1,
    cleanup_older_than: timedelta | str = timedelta(days=2),
    dry_run: bool = False,
    pool: str | None = POOL,
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec] = (),
    schema: str | None = None,
) -> dg.JobDefinition:
    """A job that merges small files, then expires snapshots, then deletes files that no snapshot needs, in this order.

    Every setting is run config, with the values given here as defaults.  What was done is metadata of each step.  What goes wrong with
    one table or one step does not stop the others: the last step, ``outcome``, fails then and says what it was, by step and table.

    Args:
        name: Name of the job.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        tables: Table or tables to merge files of; all when empty. Expiry and cleanup are about the whole lake.
        expire_older_than: Age from which snapshots are expired: a timedelta, or a text such as ``"7 days"``.
        keep_last: Newest snapshots that are kept whatever their age.
        cleanup_older_than: Time since a file became unneeded from which it is deleted, likewise. Readers of an expired snapshot need it.
        dry_run: Only report.
        pool: Dagster pool of the steps; limits live in the instance.
        assets: Assets that are tables of the lake: the job ends with an observation of each, with the numbers of its files.
        schema: The IO manager's ``schema``, by which tables of assets are named.
    """
    # A definition's name is unique in a project, which may have several of these jobs; the steps are called the same in all of them.
    merge = _merge_op(name, lake_key, pool).alias("merge_adjacent_files")
    expire = _expire_op(name, lake_key, pool).alias("expire_snapshots")
    cleanup = _cleanup_op(name, lake_key, pool).alias("cleanup_old_files")
    day = timedelta(days=1)
    expire_age, cleanup_age = _age("expire_older_than", expire_older_than), _age("cleanup_older_than", cleanup_older_than)
    config = dg.RunConfig(
        ops={
            "merge_adjacent_files": MergeConfig(tables=list(name_list("tables", tables)), dry_run=dry_run),
            "expire_snapshots": ExpireConfig(older_than_days=expire_age / day, keep_last=keep_last, dry_run=dry_run),
            "cleanup_old_files": CleanupConfig(older_than_days=cleanup_age / day, dry_run=dry_run),
        }
    )

    outcome = _outcome_op(name, lake_key, assets, schema).alias("outcome")

    @dg.job(name=name, config=config, description=_JOB_TEXT)
    def maintenance() -> None:
        outcome(after=cleanup(after=expire(after=merge())))

    return maintenance


def build_maintenance_schedule(
    job: dg.JobDefinition, *, cron_schedule: str = "0 3 * * *", execution_timezone: str | None = None
) -> dg.ScheduleDefinition:
    """A schedule for a maintenance job. Ships stopped."""
    return dg.ScheduleDefinition(
        job=job,
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Runs {job.name}: merges small files, expires snapshots and deletes unneeded files of a DuckLake.",
    )


def build_compaction_sensor(
    *,
    name: str = "ducklake_compaction",
    lake_key: str = "lake",
    min_files: int = 8,
    tables: str | Sequence[str] = (),
    minimum_interval_seconds: int = 300,
    pool: str | None = POOL,
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec] = (),
    schema: str | None = None,
) -> dg.SensorDefinition:
    """A sensor that merges the files of a table once enough of them can be merged. Ships stopped.

    It asks the very planner that the job runs, so a table whose small files cannot be merged (each in a partition of its own)
    asks for nothing.  A table asks once for each state of its files, and again, after a pause
    that doubles, when that run failed.

    Args:
        name: Name of the sensor; its job is called the same with ``_job``.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        min_files: Files that can be merged from which a run is worth it.
        tables: Table or tables to look after; all when empty.
        minimum_interval_seconds: Seconds between evaluations.
        pool: Dagster pool of the job's step.
        assets: Assets that are tables of the lake: a run ends with an observation of each, with the numbers of its files.
        schema: The IO manager's ``schema``, by which tables of assets are named.
    """
    tables = name_list("tables", tables)
    merge = _merge_op(f"{name}_job", lake_key, pool).alias("merge_adjacent_files")

    outcome = _outcome_op(f"{name}_job", lake_key, assets, schema).alias("outcome")

    @dg.job(
        name=f"{name}_job",
        config=dg.RunConfig(ops={"merge_adjacent_files": MergeConfig(tables=list(tables))}),
        description="Merges small files of the tables in its config. The sensor asks for it.",
    )
    def compaction() -> None:
        outcome(after=merge())

    @dg.sensor(
        name=name,
        job=compaction,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
        description=f"Asks for a run that merges files of a DuckLake table once {min_files} of them can be merged.",
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
            state_key = f"compact:{opened.state.id}:{state}"
            run_key = _next_run_key(context.instance, state_key, timedelta(seconds=minimum_interval_seconds))
            if run_key is None:
                continue
            asked = True
            yield dg.RunRequest(run_key=run_key, run_config=config, tags={"ducklake/table": table, _STATE: state_key})
        if not asked:
            yield dg.SkipReason(f"no table has {min_files} files that can be merged now")

    return sensor


def _merge_op(job: str, lake_key: str, pool: str | None) -> dg.OpDefinition:
    @dg.op(
        name=f"{job}__merge_adjacent_files",
        required_resource_keys={lake_key},
        pool=pool,
        ins={"after": dg.In(dg.Nothing)},
        description="Merges small files of tables into larger ones, a snapshot for each table.",
    )
    def merge(context: dg.OpExecutionContext, config: MergeConfig) -> None:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        tables: Sequence[str | None] = config.tables or [None]
        results: list[MergeResult] = []
        failures: list[str] = []
        for table in tables:
            with _noted(failures, table or "the lake"):
                results.append(lake.merge_adjacent_files(table, dry_run=config.dry_run))
        failures += [failure for result in results for failure in result.failures]
        metadata: dict[str, Any] = {"dry_run": config.dry_run, "report": _report(results)}
        for merged in (merged for result in results for merged in result.tables if merged.files_merged):
            metadata[f"{merged.table}/files_merged"] = merged.files_merged
            metadata[f"{merged.table}/files_created"] = merged.files_created
            metadata[f"{merged.table}/bytes_read"] = merged.bytes_read
        context.log.info("%s", metadata["report"])
        _finish(context, metadata, failures)

    return merge


def _expire_op(job: str, lake_key: str, pool: str | None) -> dg.OpDefinition:
    @dg.op(
        name=f"{job}__expire_snapshots",
        required_resource_keys={lake_key},
        pool=pool,
        ins={"after": dg.In(dg.Nothing)},
        description="Expires snapshots of the lake that are older than an age.",
    )
    def expire(context: dg.OpExecutionContext, config: ExpireConfig) -> None:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        metadata: dict[str, Any] = {}
        failures: list[str] = []
        with _noted(failures, "expiry of snapshots"):
            result = lake.expire_snapshots(
                older_than=timedelta(days=config.older_than_days),
                keep_last=config.keep_last,
                min_age=timedelta(hours=config.min_age_hours),
                dry_run=config.dry_run,
            )
            context.log.info("%s", result)
            metadata = _facts(result)
        _finish(context, metadata, failures)

    return expire


def _cleanup_op(job: str, lake_key: str, pool: str | None) -> dg.OpDefinition:
    @dg.op(
        name=f"{job}__cleanup_old_files",
        required_resource_keys={lake_key},
        pool=pool,
        ins={"after": dg.In(dg.Nothing)},
        description="Deletes files that no snapshot has needed for a time.",
    )
    def cleanup(context: dg.OpExecutionContext, config: CleanupConfig) -> None:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        metadata: dict[str, Any] = {}
        failures: list[str] = []
        with _noted(failures, "cleanup of files"):
            result = lake.cleanup_old_files(
                older_than=timedelta(days=config.older_than_days), min_age=timedelta(hours=config.min_age_hours), dry_run=config.dry_run
            )
            context.log.info("%s", result)
            metadata = _facts(result)
            if result.failed:
                failures.append(f"{len(result.failed)} files could not be deleted; they are tried again next time")
        _finish(context, metadata, failures)

    return cleanup


def _outcome_op(job: str, lake_key: str, assets: Iterable[dg.AssetsDefinition | dg.AssetSpec], schema: str | None) -> dg.OpDefinition:
    tables = asset_tables(assets, schema)

    @dg.op(
        name=f"{job}__outcome",
        required_resource_keys={lake_key},
        ins={"after": dg.In(dg.Nothing)},
        description="Observes the tables of assets, and fails with what went wrong in the steps before.",
    )
    def outcome(context: dg.OpExecutionContext) -> None:
        logs = context.instance.all_logs(context.run_id, of_type=dg.DagsterEventType.STEP_OUTPUT)
        failures: list[str] = []
        for log in logs:
            event = log.dagster_event
            found = event.step_output_data.metadata.get(_FAILURES) if event else None
            if event and found is not None:
                failures += [f"{event.step_key}: {failure}" for failure in found.value]  # type: ignore[union-attr]
        with _noted(failures, "observing the tables"):
            for observation in table_observations(getattr(context.resources, lake_key).connect(), tables, f"After {job}"):
                context.log_event(observation)
        if failures:
            raise dg.Failure("\n".join(failures), allow_retries=False)

    return outcome


@contextmanager
def _noted(failures: list[str], what: str) -> Iterator[None]:
    """What goes wrong with one thing does not stop the others."""
    try:
        yield
    except DuckLakeError as error:
        failures.append(f"{what}: {error}")


def _finish(context: dg.OpExecutionContext, metadata: dict[str, Any], failures: Sequence[str]) -> None:
    """Tell what was done; the job's last step fails with what went wrong, when all steps had their turn."""
    if failures:
        for failure in failures:
            context.log.error("%s", failure)
        metadata[_FAILURES] = dg.MetadataValue.json(list(failures))
    context.add_output_metadata(metadata)


def _age(name: str, value: timedelta | str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    from ducklake_core import parse_age

    try:
        return parse_age(value)
    except (UsageError, TypeError, AttributeError):
        raise UsageError(f"{name} must be a timedelta or a text such as '7 days', not {value!r}", parameter=name) from None


def _next_run_key(instance: dg.DagsterInstance, state_key: str, interval: timedelta) -> str | None:
    """The key of the run for a table's state: Dagster never launches a key twice, so that every failed run needs another one.

    None while the last run has not failed, or failed a short while ago.
    """
    records = instance.get_run_records(dg.RunsFilter(tags={_STATE: state_key}))
    failed = [record for record in records if record.dagster_run.status in _FAILED]
    if not records:
        return state_key
    if len(failed) < len(records):
        return None
    pause = min(interval * 2 ** min(len(failed), 20), _LONGEST_PAUSE)
    if datetime.now(UTC) < max(record.update_timestamp for record in failed) + pause:
        return None
    return f"{state_key}:{len(failed)}"


def _table_names(lake: "DuckLake", tables: Sequence[str]) -> Sequence[str]:
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
