"""A sensor that requests maintenance when the gauges of a lake exceed thresholds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.config.values import is_count, is_number

if TYPE_CHECKING:
    from ducklake_core import DuckLake, LakeHealth, TableHealth
    from ducklake_dagster.maintenance.steps import MaintenanceVerb


_STATE = "ducklake/table_state"
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_LONGEST_PAUSE = timedelta(days=1)
# The planner, which knows whether small files can be merged, is asked about so many tables in one evaluation.
_MOST_PLANNED = 5
_ANY_SIZE = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """From when on a run of maintenance is worth it; None for never.

    Attributes:
        small_files: Files of a table that can be merged.
        delete_ratio: Part of the rows in files that deletes hide, with a delete file at least.
        inlined_rows: Rows of a table that the catalog itself holds.
        snapshots: Snapshots of the lake.
        scheduled_files: Files that wait for their deletion.
        small_file_bytes: Size below which a file is small; any file that can be merged for None.
        minimum_interval_seconds: Seconds between evaluations.
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
            raise UsageError(f"Triggers: delete_ratio is a part of the rows, at most 1, not {self.delete_ratio!r}: no table could reach it")
        if self.small_file_bytes is not None and not is_count(self.small_file_bytes):
            raise UsageError(f"Triggers: small_file_bytes must be bytes from 1 on, or None, not {self.small_file_bytes!r}")
        if self.minimum_interval_seconds != 0 and not is_count(self.minimum_interval_seconds):
            raise UsageError(f"Triggers: minimum_interval_seconds must be whole seconds, not {self.minimum_interval_seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is worth doing about one table, or about the lake.

    Attributes:
        name: Prefix of the run key.
        state: Digest of what the run is to mend: it is asked for once for each.
        tables: The table, or none for the lake.
    """

    name: str
    state: str
    steps: frozenset[MaintenanceVerb]
    tables: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Cursor:
    """Tables whose small files cannot be merged, by id, each with the state in which the planner said so."""

    settled: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps({"v": 1, "settled": self.settled})

    @classmethod
    def parse(cls, text: str | None) -> _Cursor:
        """An empty one for none, or for one that cannot be read."""
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
    """Build the sensor. A table asks once for each state of its files, and again, after a pause that doubles, when that run failed.

    Args:
        name: Name of the sensor.
        job: The job that it asks for.
        triggers: When.
        run_config: Gives the run config for some steps and tables.
        steps: Steps of the job.
        lake_key: Resource key of the lake.
        tables: Patterns of tables to look after; all when empty.
    """
    from ducklake_core import TablePattern

    patterns = [TablePattern.parse(text) for text in tables]

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=triggers.minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
        description=f"Asks for {job.name} where small files, deletes, inlined rows or snapshots of a DuckLake make it worth it.",
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
        reason = None if runs else f"nothing to do for {len(wanted)} tables at snapshot {health.snapshot_id}, or it was asked for"
        return dg.SensorResult(run_requests=runs, skip_reason=reason, cursor=cursor.text())

    return sensor


def _runs(
    instance: dg.DagsterInstance,
    requests: Iterable[_Request],
    pause: timedelta,
    run_config: Callable[[Collection[MaintenanceVerb], Sequence[str]], dg.RunConfig],
) -> Iterator[dg.RunRequest]:
    """Runs of what was not asked for yet, or failed long enough ago."""
    for request in requests:
        state_key = f"{request.name}:{request.state}"
        run_key = next_run_key(instance, state_key, pause)
        if run_key is not None:
            tags = {_STATE: state_key, **({"ducklake/table": request.tables[0]} if request.tables else {})}
            yield dg.RunRequest(run_key=run_key, run_config=run_config(request.steps, request.tables), tags=tags)


def _of_tables(lake: DuckLake, tables: Sequence[TableHealth], triggers: Triggers, cursor: _Cursor) -> Iterator[_Request]:
    planned = 0
    cursor.settled = {key: state for key, state in cursor.settled.items() if key in {str(one.table_id) for one in tables}}
    # Those with most small files first, so that tables that cannot be planned this time are those that can wait.
    for one in sorted(tables, key=lambda table: (-table.small_file_count, table.table_id)):
        state, steps = _state(one), set(_steps_of(one, triggers))
        if triggers.small_files is not None and one.small_file_count >= triggers.small_files:
            settled = cursor.settled.get(str(one.table_id)) == state
            if not settled and planned < _MOST_PLANNED:
                planned += 1
                mergeable = lake.merge_adjacent_files(one.table, max_file_size=triggers.small_file_bytes, dry_run=True).files_merged
                if mergeable >= triggers.small_files:
                    steps.add("merge_adjacent_files")
                else:
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
        # Once a day for as long as the oldest one cannot go.
        state = f"{health.oldest_snapshot.isoformat()}:{health.at:%Y-%m-%d}"
        yield _Request(name="expire", state=state, steps=frozenset({"expire_snapshots", "cleanup_old_files"}))
    elif triggers.scheduled_files is not None and health.scheduled_file_count >= triggers.scheduled_files:
        oldest = health.oldest_scheduled.isoformat() if health.oldest_scheduled is not None else ""
        yield _Request(name="cleanup", state=f"{health.scheduled_file_count}:{oldest}", steps=frozenset({"cleanup_old_files"}))


def _state(table: TableHealth) -> str:
    """A digest of all that maintenance of a table goes by."""
    numbers = (
        table.file_count, table.file_size_bytes, table.small_file_count, table.record_count, table.delete_file_count,
        table.deleted_row_count, table.inlined_row_count, table.inlined_delete_count,
    )  # fmt: skip
    return hashlib.sha256(repr(numbers).encode()).hexdigest()[:12]


def next_run_key(instance: dg.DagsterInstance, state_key: str, interval: timedelta) -> str | None:
    """The key of the run for a state: Dagster never launches a key twice, so that every failed run needs another one.

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
