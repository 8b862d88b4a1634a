"""Build jobs, schedules and sensors for the maintenance of a lake."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import ValidationError

from ducklake_core.errors import UsageError
from ducklake_dagster.assets.settings import name_list
from ducklake_dagster.assets.tables import listed_assets
from ducklake_dagster.checks.sensor import checks_with_sensor
from ducklake_dagster.config.values import age_of, is_count, is_number, reject_no_text
from ducklake_dagster.maintenance.steps import STEPS, Assets, MaintenanceVerb, outcome_op, step_op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ducklake_core import DuckLake, LakeHealth, TableHealth
    from ducklake_dagster.checks.base import LakeCheck


POOL = "ducklake_maintenance"
_JOB_TEXT = """{steps}, in this order.

A table or step that fails does not stop the others; the last step fails and reports the errors."""
# Each step works on the result of the steps before it: inlined rows become files before small files are merged, and files
# are cleaned up after the snapshots that needed them expired.
_ALL_STEPS: tuple[MaintenanceVerb, ...] = get_args(MaintenanceVerb)
_FILE_STEPS = ("flush_inlined_data", "merge_adjacent_files", "rewrite_data_files")
_DAY = timedelta(days=1)
_CRON = "a cron schedule such as '0 3 * * *' (minute, hour, day of the month, month, day of the week), whose minute may be H"

_STATE = "ducklake/table_state"
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_LONGEST_PAUSE = timedelta(days=1)
# Only the planner, which reads the list of files, finds out whether small files can be merged. Tables that it checks in one evaluation:
_MAX_PLANNED = 5
_ANY_SIZE = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceLimits:
    """Limits of one run of maintenance; None for no limit, which is the default.

    Attributes:
        max_input_bytes: Maximum size in bytes of the files that each of merging and rewriting reads.
        max_files: Maximum number of files that each of merging and rewriting reads.
        max_rows: Number of inlined rows after which flushing begins no other table.
        max_deleted_files: Maximum number of files that each of the two deletion steps deletes; the next run deletes the others.
        max_seconds: Seconds after which a step begins no other work. The limit applies to each step separately; expiry has none.
    """

    max_input_bytes: int | None = None
    max_files: int | None = None
    max_rows: int | None = None
    max_deleted_files: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The defaults of a job's run config."""

    steps: Sequence[MaintenanceVerb]
    tables: Sequence[str] = ()
    expire_older_than: timedelta = timedelta(days=7)
    keep_last: int = 1
    cleanup_older_than: timedelta = timedelta(days=2)
    orphans_older_than: timedelta = timedelta(days=7)
    delete_threshold: float | None = None
    spark_above_bytes: int | None = None
    limits: MaintenanceLimits = field(default_factory=MaintenanceLimits)
    dry_run: bool = False

    def settings(
        self, *, enabled: Sequence[MaintenanceVerb] | None = None, tables: Sequence[str] | None = None
    ) -> dict[MaintenanceVerb, dict[str, Any]]:
        """Return settings of each step, with only some of them enabled, or for other tables."""
        on, names = self.steps if enabled is None else enabled, self.tables if tables is None else tables
        deletions = {"max_files": self.limits.max_deleted_files, "max_seconds": self.limits.max_seconds}
        of_files = {"max_input_bytes": self.limits.max_input_bytes, "max_files": self.limits.max_files}
        settings: Mapping[MaintenanceVerb, dict[str, Any]] = {
            "flush_inlined_data": {"max_rows": self.limits.max_rows},
            "expire_snapshots": {"older_than_days": self.expire_older_than / _DAY, "keep_last": self.keep_last},
            "merge_adjacent_files": {**of_files, "spark_above_bytes": self.spark_above_bytes},
            "rewrite_data_files": {**of_files, "delete_threshold": self.delete_threshold},
            "cleanup_old_files": {"older_than_days": self.cleanup_older_than / _DAY, **deletions},
            "delete_orphaned_files": {"older_than_days": self.orphans_older_than / _DAY, **deletions},
        }
        return {
            step: {
                **settings[step],
                **({"tables": list(names), "max_seconds": self.limits.max_seconds} if step in _FILE_STEPS else {}),
                "enabled": step in on,
                "dry_run": self.dry_run,
            }
            for step in self.steps
        }

    def config(self, *, enabled: Sequence[MaintenanceVerb] | None = None, tables: Sequence[str] | None = None) -> dg.RunConfig:
        """Return run config of a job with these steps."""
        ops: dict[str, Any] = {}
        for step, how in self.settings(enabled=enabled, tables=tables).items():
            try:
                ops[step] = STEPS[step].config(**how)
            except ValidationError as error:
                faults = "; ".join(
                    f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}, not {fault['input']!r}" for fault in error.errors()
                )
                raise UsageError(f"{step}: {faults}", parameter=step) from None
        return dg.RunConfig(ops=ops)


def build_maintenance_defs(  # noqa: PLR0913 - one call configures everything for one lake
    *,
    name: str = "ducklake_maintenance",
    lake_key: str = "lake",
    tables: str | Sequence[str] = (),
    steps: Sequence[MaintenanceVerb] = _ALL_STEPS,
    cron_schedule: str = "H 3 * * *",
    execution_timezone: str | None = None,
    expire_older_than: timedelta | str = timedelta(days=7),
    keep_last: int = 1,
    cleanup_older_than: timedelta | str = timedelta(days=2),
    orphans_older_than: timedelta | str = timedelta(days=7),
    delete_threshold: float | None = None,
    limits: MaintenanceLimits | None = None,
    triggers: Triggers | None = None,
    spark_key: str | None = None,
    spark_above_bytes: int | None = None,
    dry_run: bool = False,
    pool: str | None = POOL,
    run_tags: Mapping[str, str] | None = None,
    assets: Assets = (),
    checks: Sequence[LakeCheck] = (),
    schema: str | None = None,
) -> dg.Definitions:
    """Build a job that does all maintenance of a lake, a schedule for it, and with ``triggers`` a sensor that requests runs when needed.

    With ``checks``, the result also has these checks of the assets and a sensor that evaluates them without a run, after commits of any
    client and after maintenance.

    The job flushes inlined rows, expires snapshots, merges and rewrites files, and deletes unneeded files, in this order. Every setting is
    run config, with the values given here as defaults. An error in a table or a step does not stop the others: the last step, ``outcome``,
    then fails and reports it. Snapshots do not expire while an unfinished run may use them, when a run tagged ``ducklake/keep`` committed
    them, or when they have a hold (``lake.holds``); files that an unfinished run may need are not deleted. Commits record the run. Merge
    the result with a project's definitions: ``dg.Definitions.merge(build_maintenance_defs(), ...)``.

    Args:
        name: Name of the job, also of its schedule and sensor, with ``_schedule`` and ``_sensor`` appended.
        lake_key: Resource key of the :class:`DuckLakeResource`, ``lake`` by default.
        tables: Tables to flush, merge and rewrite, such as ``["sales.*", "main.order_?"]``; all when empty. Expiry and deletion apply to
            the whole lake.
        steps: Operations of the lake, in the order in which they run; all of them by default.
        cron_schedule: Cron schedule. ``H`` as its minute stands for a minute that depends only on ``name`` and ``lake_key``, so that the
            schedules of several lakes do not all begin at once.
        execution_timezone: Time zone of the schedule, UTC when None.
        expire_older_than: Age at which snapshots expire, as a timedelta or a string; ``"7 days"`` by default.
        keep_last: Number of newest snapshots that never expire, 1 by default.
        cleanup_older_than: Time after which a file that became unneeded is deleted, as a timedelta or a string; ``"2 days"`` by default.
            Readers of an expired snapshot still need it.
        orphans_older_than: Time since the last change of a file that the catalog does not contain, from which it is deleted, as a
            timedelta or a string; ``"7 days"`` by default. It must be longer than any write takes.
        delete_threshold: Fraction of a file's rows that must be deleted for it to be rewritten; the lake's option when None.
        limits: Limits of one run; none by default.
        triggers: Conditions under which the sensor requests a run; no sensor when None.
        spark_key: Resource key of a resource with a ``spark_session``; no Spark by default.
        spark_above_bytes: Size in bytes to merge from which Spark does the work, if there is a ``spark_key``.
        dry_run: Whether to only report what a run would do, False by default.
        pool: Dagster pool of the steps; its limit is configured in the instance.
        run_tags: Tags of the runs, for instance for run queues.
        assets: Assets that are tables of the lake: a run ends with an observation of each, with the numbers of its files.
        checks: Checks of each of the assets, such as ``[SmallFiles(), SnapshotBacklog(maximum=1000)]``; none by default. The sensor that
            evaluates them has the name of the job with ``_checks`` appended, and leaves out kinds that read rows.
        schema: The ``schema`` setting of the IO manager, which is part of the tables' names.

    Raises:
        UsageError: A step is unknown or occurs twice, an age is invalid, a limit of Spark has no ``spark_key``, or there are checks and
            no assets.
    """
    reject_no_text("name", name)
    _reject_others("limits", limits, MaintenanceLimits)
    _reject_others("triggers", triggers, Triggers)
    ages = {"expire_older_than": expire_older_than, "cleanup_older_than": cleanup_older_than, "orphans_older_than": orphans_older_than}
    plan = _plan(
        steps,
        tables,
        ages,
        keep_last=keep_last,
        delete_threshold=delete_threshold,
        spark_above_bytes=_spark_limit(spark_key, spark_above_bytes),
        limits=limits or MaintenanceLimits(),
        dry_run=dry_run,
    )
    assets = listed_assets(assets)
    job = _job(name, plan, lake_key=lake_key, spark_key=spark_key, pool=pool, assets=assets, schema=schema, run_tags=run_tags)
    schedule = _schedule(job, cron_schedule, execution_timezone, minute_of=f"{name}:{lake_key}")
    sensors = [] if triggers is None else [_sensor(f"{name}_sensor", job, triggers, plan, lake_key)]
    own = dg.Definitions(jobs=[job], schedules=[schedule], sensors=sensors)
    return dg.Definitions.merge(own, checks_with_sensor(assets, checks, name=f"{name}_checks", lake_key=lake_key, schema=schema))


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
    assets: Assets = (),
    schema: str | None = None,
) -> dg.JobDefinition:
    """Build a job that merges small files, then expires snapshots, then deletes files that no snapshot needs.

    :func:`build_maintenance_defs` has all operations, a schedule and a sensor.

    Args:
        name: Name of the job.
        lake_key: Resource key of the :class:`DuckLakeResource`, ``lake`` by default.
        tables: Tables to merge, such as ``["sales.*", "main.order_?"]``; all when empty.
        expire_older_than: Age at which snapshots expire, as a timedelta or a string; 7 days by default.
        keep_last: Number of newest snapshots that never expire, 1 by default.
        cleanup_older_than: Time after which a file that became unneeded is deleted, as a timedelta or a string; 2 days by default.
        dry_run: Whether to only report what a run would do, False by default.
        pool: Dagster pool of the steps; its limit is configured in the instance.
        assets: Assets that are tables of the lake: a run ends with an observation of each, with the numbers of its files.
        schema: The ``schema`` setting of the IO manager, which is part of the tables' names.

    Raises:
        UsageError: An age is invalid.
    """
    steps: Sequence[MaintenanceVerb] = ("merge_adjacent_files", "expire_snapshots", "cleanup_old_files")
    ages = {"expire_older_than": expire_older_than, "cleanup_older_than": cleanup_older_than}
    plan = _plan(steps, tables, ages, keep_last=keep_last, dry_run=dry_run)
    return _job(name, plan, lake_key=lake_key, pool=pool, assets=assets, schema=schema)


def build_maintenance_schedule(
    job: dg.JobDefinition, *, cron_schedule: str = "0 3 * * *", execution_timezone: str | None = None
) -> dg.ScheduleDefinition:
    """Build a schedule for a maintenance job. It is stopped by default.

    Args:
        job: The job.
        cron_schedule: Cron schedule; ``H`` as its minute stands for a minute that depends only on the name of the job.
        execution_timezone: Time zone of the schedule, UTC when None.

    Raises:
        UsageError: The string is not a cron schedule, or the time zone does not exist.
    """
    return _schedule(job, cron_schedule, execution_timezone, minute_of=job.name)


def build_compaction_sensor(
    *,
    name: str = "ducklake_compaction",
    lake_key: str = "lake",
    min_files: int = 8,
    tables: str | Sequence[str] = (),
    minimum_interval_seconds: int = 300,
    pool: str | None = POOL,
    assets: Assets = (),
    schema: str | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that merges the files of a table once enough of them can be merged. It is stopped by default.

    :func:`build_maintenance_defs` with ``triggers`` also watches deletes, inlined rows and snapshots.

    Args:
        name: Name of the sensor, also of its job, with ``_job`` appended.
        lake_key: Resource key of the :class:`DuckLakeResource`, ``lake`` by default.
        min_files: Minimum number of files of a table that can be merged, 8 by default.
        tables: Tables to watch, with wildcards; all when empty.
        minimum_interval_seconds: Seconds between evaluations, 300 by default.
        pool: Dagster pool of the job's step.
        assets: Assets that are tables of the lake: a run ends with an observation of each, with the numbers of its files.
        schema: The ``schema`` setting of the IO manager, which is part of the tables' names.
    """
    plan = _Plan(steps=("merge_adjacent_files",), tables=name_list("tables", tables))
    job = _job(f"{name}_job", plan, lake_key=lake_key, pool=pool, assets=assets, schema=schema)
    return _sensor(name, job, Triggers(small_files=min_files, minimum_interval_seconds=minimum_interval_seconds), plan, lake_key)


def fixed_minute(cron_schedule: str, name: str) -> str:
    """Return a cron schedule with a minute in place of ``H``, always the same minute for a name.

    >>> fixed_minute("H 3 * * *", "sales"), fixed_minute("5 3 * * *", "sales")
    ('24 3 * * *', '5 3 * * *')

    Raises:
        UsageError: The schedule is not a string.
    """
    if not isinstance(cron_schedule, str):
        raise _no_schedule("cron_schedule", cron_schedule, _CRON)
    minute = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 60
    return re.sub(r"^\s*H(?=\s)", str(minute), cron_schedule)


def _schedule(job: dg.JobDefinition, cron_schedule: str, execution_timezone: str | None, minute_of: str) -> dg.ScheduleDefinition:
    _reject_zone(execution_timezone)
    try:
        return dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=fixed_minute(cron_schedule, minute_of),
            execution_timezone=execution_timezone,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=f"Runs {job.name}, which maintains a DuckLake.",
        )
    except dg.DagsterInvalidDefinitionError:
        raise _no_schedule("cron_schedule", cron_schedule, _CRON) from None


def _sensor(name: str, job: dg.JobDefinition, triggers: Triggers, plan: _Plan, lake_key: str) -> dg.SensorDefinition:
    """Build a sensor that requests those steps of a plan that are needed."""
    return statistics_sensor(
        name,
        job,
        triggers,
        lambda steps, names: plan.config(enabled=[step for step in plan.steps if step in steps], tables=names),
        steps=plan.steps,
        lake_key=lake_key,
        tables=plan.tables,
    )


def _job(
    name: str,
    plan: _Plan,
    *,
    lake_key: str,
    pool: str | None,
    assets: Assets,
    schema: str | None,
    spark_key: str | None = None,
    run_tags: Mapping[str, str] | None = None,
) -> dg.JobDefinition:
    resources: Mapping[str, Any] = {"lake_key": lake_key, "spark_key": spark_key, "pool": pool}
    ops = [step_op(name, step, settings, **resources).alias(step) for step, settings in plan.settings().items()]
    outcome = outcome_op(name, lake_key, assets, schema).alias("outcome")
    text = ", ".join(step.replace("_", " ") for step in plan.steps)

    @dg.job(name=name, config=plan.config(), description=_JOB_TEXT.format(steps=text.capitalize()), run_tags=dict(run_tags or {}))
    def maintenance() -> None:
        # A chain without data: the order must hold, and a step must run although one before it had nothing to do.
        first, *others = ops
        done = first()
        for op in others:
            done = op(after=done)
        outcome(after=done)

    return maintenance


def _plan(steps: Sequence[MaintenanceVerb], tables: str | Sequence[str], ages: Mapping[str, timedelta | str], **others: Any) -> _Plan:
    """Return a plan with the user's settings, and reject invalid ones."""
    spans: dict[str, Any] = {name: age_of(value, name) for name, value in ages.items()}
    return _Plan(steps=_checked_steps(steps), tables=name_list("tables", tables), **spans, **others)


def _spark_limit(spark_key: str | None, spark_above_bytes: int | None) -> int | None:
    """Return the bytes to merge from which Spark does the work; None for never."""
    if spark_above_bytes is not None and spark_key is None:
        raise UsageError("spark_above_bytes needs spark_key, the resource key of a resource with a spark_session", parameter="spark_key")
    return 0 if spark_above_bytes is None and spark_key is not None else spark_above_bytes


def _checked_steps(steps: Sequence[MaintenanceVerb]) -> tuple[MaintenanceVerb, ...]:
    unknown = [step for step in steps if step not in STEPS]
    if isinstance(steps, str) or unknown or not steps or len(set(steps)) != len(steps):
        raise UsageError(f"steps must have names from {', '.join(STEPS)}, each at most once, not {steps!r}", parameter="steps")
    return tuple(steps)


def _reject_others(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name} must be {kind.__name__}(...), not {value!r}", parameter=name)


def _reject_zone(zone: object) -> None:
    try:
        if zone is not None:
            ZoneInfo(zone)  # type: ignore[arg-type]
    except (KeyError, OSError, ValueError, TypeError):
        raise _no_schedule("execution_timezone", zone, "the name of a time zone such as 'Europe/Berlin'") from None


def _no_schedule(name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {value!r}", parameter=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """Minimum values at which the sensor requests a maintenance run; None for never.

    Attributes:
        small_files: Number of files of a table that can be merged.
        delete_ratio: Fraction of deleted rows in the files of a table.
        inlined_rows: Number of rows of a table that are inlined in the catalog.
        snapshots: Number of snapshots of the lake.
        scheduled_files: Number of files that are scheduled for deletion.
        small_file_bytes: Size in bytes below which a file is small; None for any file that can be merged.
        minimum_interval_seconds: Seconds between evaluations, 300 by default.
    """

    small_files: int | None = None
    delete_ratio: float | None = None
    inlined_rows: int | None = None
    snapshots: int | None = None
    scheduled_files: int | None = None
    small_file_bytes: int | None = None
    minimum_interval_seconds: int = 300

    def __post_init__(self) -> None:
        numbers = (self.small_files, self.delete_ratio, self.inlined_rows, self.snapshots, self.scheduled_files)
        if all(number is None for number in numbers):
            raise UsageError("Triggers need at least one of small_files, delete_ratio, inlined_rows, snapshots, scheduled_files")
        if not all(number is None or (is_number(number) and number > 0) for number in numbers):
            raise UsageError("Triggers must be numbers above 0, or None for never")
        if self.delete_ratio is not None and self.delete_ratio > 1:
            raise UsageError(f"Triggers: delete_ratio must be a fraction of the rows, at most 1, not {self.delete_ratio!r}")
        if self.small_file_bytes is not None and not is_count(self.small_file_bytes):
            raise UsageError(f"Triggers: small_file_bytes must be a positive number of bytes or None, not {self.small_file_bytes!r}")
        if self.minimum_interval_seconds != 0 and not is_count(self.minimum_interval_seconds):
            raise UsageError(f"Triggers: minimum_interval_seconds must be a whole number of seconds, not {self.minimum_interval_seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The maintenance that one table, or the lake, needs.

    Attributes:
        name: Prefix of the run key.
        state: Digest of the state that the run is to improve: a run is requested once for each state.
        steps: The steps to run.
        tables: The table, or none for the lake.
    """

    name: str
    state: str
    steps: frozenset[MaintenanceVerb]
    tables: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Cursor:
    """Ids of tables whose small files cannot be merged, each with the digest of the state that the planner has checked."""

    settled: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps({"v": 1, "settled": self.settled})

    @classmethod
    def parse(cls, text: str | None) -> _Cursor:
        """Return the cursor; an empty one when there is none, or it cannot be read."""
        try:
            fields = json.loads(text or "null")
            return cls(settled={str(key): str(value) for key, value in fields["settled"].items()}) if fields["v"] == 1 else cls()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return cls()


def statistics_sensor(
    name: str,
    job: dg.JobDefinition,
    triggers: Triggers,
    run_config: Callable[[Collection[MaintenanceVerb], Sequence[str]], dg.RunConfig],
    *,
    steps: Sequence[MaintenanceVerb],
    lake_key: str,
    tables: Sequence[str],
) -> dg.SensorDefinition:
    """Build the sensor. It requests one run for each state of a table's files, and another after a pause when that run failed.

    Args:
        name: Name of the sensor.
        job: The job that it requests.
        triggers: Minimum values at which a run is requested.
        run_config: Returns the run config for some steps and tables.
        steps: Steps of the job.
        lake_key: Resource key of the lake.
        tables: Patterns of tables to watch; all when empty.
    """
    from ducklake_core import TablePattern

    patterns = [TablePattern.parse(text) for text in tables]

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=triggers.minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
        description=f"Requests {job.name} when a DuckLake has many small files, deleted rows, inlined rows or snapshots.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        health = lake.health(small_file_size=triggers.small_file_bytes or _ANY_SIZE)
        cursor = _Cursor.parse(context.cursor)
        wanted = [one for one in health.tables if not patterns or any(pattern.matches(one.schema, one.name) for pattern in patterns)]
        requests = [*_of_tables(lake, wanted, triggers, cursor), *_of_lake(health, triggers)]
        possible = [replace(request, steps=request.steps & set(steps)) for request in requests]
        pause = timedelta(seconds=triggers.minimum_interval_seconds)
        runs = list(_runs(context.instance, [request for request in possible if request.steps], pause, run_config))
        seen = f"{len(wanted)} table{'' if len(wanted) == 1 else 's'}"
        none = f"no maintenance is needed by {seen} at snapshot {health.snapshot_id}, or a run was requested already"
        return dg.SensorResult(run_requests=runs, skip_reason=None if runs else none, cursor=cursor.text())

    return sensor


def _runs(
    instance: dg.DagsterInstance,
    requests: Iterable[_Request],
    pause: timedelta,
    run_config: Callable[[Collection[MaintenanceVerb], Sequence[str]], dg.RunConfig],
) -> Iterator[dg.RunRequest]:
    """Yield runs for requests that had no run yet, or whose last run failed before the pause."""
    for request in requests:
        state_key = f"{request.name}:{request.state}"
        run_key = next_run_key(instance, state_key, pause)
        if run_key is not None:
            tags = {_STATE: state_key, **({"ducklake/table": request.tables[0]} if request.tables else {})}
            yield dg.RunRequest(run_key=run_key, run_config=run_config(request.steps, request.tables), tags=tags)


def _of_tables(lake: DuckLake, tables: Sequence[TableHealth], triggers: Triggers, cursor: _Cursor) -> Iterator[_Request]:
    planned = 0
    cursor.settled = {key: state for key, state in cursor.settled.items() if key in {str(one.table_id) for one in tables}}
    # Tables with the most small files first: those beyond _MAX_PLANNED wait for the next evaluation.
    for one in sorted(tables, key=lambda table: (-table.small_file_count, table.table_id)):
        state, steps = _state(one), set(_steps_of(one, triggers))
        if triggers.small_files is not None and one.small_file_count >= triggers.small_files:
            settled = cursor.settled.get(str(one.table_id)) == state
            if not settled and planned < _MAX_PLANNED:
                planned += 1
                mergeable = lake.merge_adjacent_files(one.table, max_file_size=triggers.small_file_bytes, dry_run=True).files_merged
                if mergeable >= triggers.small_files:
                    steps.add("merge_adjacent_files")
                else:
                    # Small files of different partitions or schemas cannot be merged: do not plan again until the table changes.
                    cursor.settled[str(one.table_id)] = state
        if steps:
            yield _Request(name=f"compact:{one.table_id}", state=state, steps=frozenset(steps), tables=(one.table,))


def _steps_of(table: TableHealth, triggers: Triggers) -> Iterator[MaintenanceVerb]:
    if triggers.inlined_rows is not None and table.inlined_row_count + table.inlined_delete_count >= triggers.inlined_rows:
        yield "flush_inlined_data"
    if triggers.delete_ratio is not None and table.deleted_row_count and table.delete_ratio >= triggers.delete_ratio:
        yield "rewrite_data_files"


def _of_lake(health: LakeHealth, triggers: Triggers) -> Iterator[_Request]:
    if triggers.snapshots is not None and health.snapshot_count >= triggers.snapshots:
        # The date is part of the state: a snapshot that may not expire yet causes one run a day, not one in every evaluation.
        state = f"{health.oldest_snapshot.isoformat()}:{health.at:%Y-%m-%d}"
        yield _Request(name="expire", state=state, steps=frozenset({"expire_snapshots", "cleanup_old_files"}))
    elif triggers.scheduled_files is not None and health.scheduled_file_count >= triggers.scheduled_files:
        oldest = health.oldest_scheduled.isoformat() if health.oldest_scheduled is not None else ""
        yield _Request(name="cleanup", state=f"{health.scheduled_file_count}:{oldest}", steps=frozenset({"cleanup_old_files"}))


def _state(table: TableHealth) -> str:
    """Return a digest of all numbers on which maintenance of a table depends."""
    numbers = (
        table.file_count, table.file_size_bytes, table.small_file_count, table.record_count, table.delete_file_count,
        table.deleted_row_count, table.inlined_row_count, table.inlined_delete_count,
    )  # fmt: skip
    return hashlib.sha256(repr(numbers).encode()).hexdigest()[:12]


def next_run_key(instance: dg.DagsterInstance, state_key: str, interval: timedelta) -> str | None:
    """Return the run key for a state; None while the last run for it has not failed, or failed a short while ago."""
    # Dagster never launches a run key twice, which keeps a state from being requested twice. A failed run needs a key of its own:
    #
    #   compact:7:ab12       first run
    #   compact:7:ab12:1     after one failed run, two intervals later
    #   compact:7:ab12:2     after two failed runs, four intervals later; then eight, and so on, up to a day
    records = instance.get_run_records(dg.RunsFilter(tags={_STATE: state_key}))
    failed = [record for record in records if record.dagster_run.status in _FAILED]
    if not records:
        return state_key
    if len(failed) < len(records):
        return None
    # The exponent is bounded because timedelta overflows.
    pause = min(interval * 2 ** min(len(failed), 20), _LONGEST_PAUSE)
    if datetime.now(UTC) < max(record.update_timestamp for record in failed) + pause:
        return None
    return f"{state_key}:{len(failed)}"
