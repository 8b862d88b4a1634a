"""Report commits of other writers as materializations and observations, and request runs of downstream assets."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import dropwhile, islice
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.assets.tables import AssetTable, asset_tables, other_schemas_text
from ducklake_dagster.config.values import is_count, is_number, reject_no_text
from ducklake_dagster.io.read_points import lake_identity
from ducklake_dagster.statistics.commit_metadata import table_schema
from ducklake_dagster.statistics.partitions import Box, PartitionKeys, TouchedPartitions, changed_values, partition_columns

if TYPE_CHECKING:
    from ducklake_core import ChangedRows, ChangedTable, DuckLake, LakeChanges, Snapshot, ValueRange


_CURSOR_VERSION = 2
_PREFIX = "ducklake_commits"

Event: TypeAlias = "dg.AssetMaterialization | dg.AssetObservation"
# Maximum length of a string in an event: other writers choose messages, and a thousand events may contain the same one.
_LONGEST_TEXT = 500
_MAX_TABLES_READ = 5
# Maximum number of assets that the text of a tick names.
_MAX_NAMED = 5
_ACTIONS = {
    "created_table": "created",
    "dropped_table": "dropped",
    "altered_table": "altered",
    "inserted_into_table": "added rows to",
    "inlined_insert": "added rows to",
    "deleted_from_table": "deleted rows of",
    "inlined_delete": "deleted rows of",
    "inline_flush": "wrote inlined rows to files of",
    "merge_adjacent": "merged files of",
    "rewrite_delete": "rewrote files of",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """The point up to which the lake has been reported.

    Attributes:
        catalog: The catalog's identity.
        snapshot: Everything up to this snapshot was reported.
        committed: Commit time of that snapshot, which reveals a catalog that was restored from a backup; empty when unknown.
        until: The snapshot up to which several ticks report events; None when no events are left.
        place: The last event that was reported before that snapshot.
        lost: Reason why all rows of all tables may have changed; empty without one.
    """

    catalog: str
    snapshot: int
    committed: str = ""
    until: int | None = None
    place: Place | None = None
    lost: str = ""

    def text(self) -> str:
        fields = {"v": _CURSOR_VERSION, "catalog": self.catalog, "snapshot": self.snapshot, "committed": self.committed}
        if self.place is not None:
            fields |= {"until": self.until, "place": list(self.place.order), "lost": self.lost}
        return json.dumps(fields)

    @classmethod
    def parse(cls, text: str | None) -> _Cursor | None:
        """Return the cursor; None without one, or when a later version of this library wrote it."""
        try:
            fields = json.loads(text or "null")
            if fields["v"] not in (1, _CURSOR_VERSION):
                return None
            cursor = cls(catalog=str(fields["catalog"]), snapshot=int(fields["snapshot"]), committed=str(fields.get("committed", "")))
            if "place" not in fields:
                return cursor
            asset, partition, kind = map(str, fields["place"])
            place = Place(asset=asset, partition=partition, kind=kind)
            return replace(cursor, until=int(fields["until"]), place=place, lost=str(fields.get("lost", "")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Limits of one evaluation, and the start of the first one."""

    snapshots: int
    events: int
    seconds: float
    report_history: bool


def build_commit_sensor(
    *,
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
    name: str = "ducklake_commits",
    lake_key: str = "lake",
    schema: str | None = None,
    max_snapshots_per_tick: int = 1000,
    max_events_per_tick: int = 1000,
    max_seconds_per_tick: float = 15,
    report_history: bool = False,
    minimum_interval_seconds: int = 30,
    request_runs: dg.AssetSelection | str | Sequence[dg.AssetKey | str | dg.AssetsDefinition] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that reports changes that were not made by a run of this Dagster instance.

    Each evaluation compares the rows of the last reported snapshot with those of the newest one. Every partition whose rows may differ
    becomes one ``AssetMaterialization`` (an asset without partitions gets one), however many commits changed it, so that freshness policies
    and automation conditions see it. If files have rows of several partitions and at most 20,000 rows of a table changed, the sensor reads
    these rows, for at most five tables, and reports their partitions; otherwise it reports every partition within the bounds of a changed
    file. It never leaves out a changed partition. A dropped or replaced table changes all partitions that it had or has rows of. Commits
    that changed only columns or files, such as a flush or a compaction, become an ``AssetObservation``, and so do rows outside of all
    partitions.

    Commits that were expired before an evaluation are listed in the events. When the catalog has lost the earlier state of a table, the
    sensor reports every partition of it, and the events give the reason. Keep snapshots for longer than the sensor may be stopped.

    The number of catalog statements of an evaluation depends on neither commits nor tables nor partitions. The sensor is stopped by
    default.

    Args:
        assets: Assets that are DuckLake tables; commits to other tables are ignored.
        name: Name of the sensor.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The ``schema`` setting of the IO manager.
        max_snapshots_per_tick: Maximum number of commits in one evaluation; the next one continues there. 1,000 by default.
        max_events_per_tick: Maximum number of events of one evaluation; the next one reports the others. 1,000 by default.
        max_seconds_per_tick: Seconds after which an evaluation ends with the current commit, 15 by default; the next one continues there.
            Dagster stops an evaluation after 60 seconds.
        report_history: Whether the first evaluation starts at the oldest snapshot instead of the newest; False by default.
        minimum_interval_seconds: Seconds between evaluations, 30 by default.
        request_runs: Assets, or a selection such as ``"group:daily"``, to run when a table that they read has changed: one run for each
            of their partitions that reads a changed partition, directly or through a view. Assets downstream of those are left to
            automation conditions. Without it the sensor only reports events, to which ``AutomationCondition.eager()`` reacts.
    """
    tables = asset_tables(assets, schema)
    reject_no_text("name", name)
    if minimum_interval_seconds != 0 and not is_count(minimum_interval_seconds):
        raise UsageError(
            f"sensor {name}: minimum_interval_seconds must be a whole number of seconds, not {minimum_interval_seconds!r}",
            parameter="minimum_interval_seconds",
        )
    selection = _selection(request_runs)
    limits = _Limits(
        snapshots=max_snapshots_per_tick, events=max_events_per_tick, seconds=max_seconds_per_tick, report_history=report_history
    )
    _reject_nothing(name, tables, limits)

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
        asset_selection=selection,
        description="Reports DuckLake commits made outside of this Dagster instance as asset events.",
    )
    def commits(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _evaluate(context, getattr(context.resources, lake_key).connect(), tables, limits, selection)

    return commits


def _reject_nothing(name: str, tables: Sequence[AssetTable], limits: _Limits) -> None:
    if not tables:
        raise UsageError(f"sensor {name} has no assets to report on. Pass assets=")
    for setting, count in (("max_snapshots_per_tick", limits.snapshots), ("max_events_per_tick", limits.events)):
        if not is_count(count):
            raise UsageError(f"sensor {name}: {setting} must be a whole number of at least 1, not {count!r}", parameter=setting)
    if not is_number(limits.seconds) or limits.seconds < 0:
        raise UsageError(
            f"sensor {name}: max_seconds_per_tick must be a number of seconds, not {limits.seconds!r}", parameter="max_seconds_per_tick"
        )


def _evaluate(
    context: dg.SensorEvaluationContext, lake: DuckLake, tables: Sequence[AssetTable], limits: _Limits, selection: dg.AssetSelection | None
) -> dg.SensorResult:
    """Evaluate the sensor once; with a selection, also request runs of its assets."""
    # cursor: everything up to snapshot n is reported
    #   changes    the net difference of each table between n and m, however many commits lie between
    #   foreign    without the changes of commits that a run of this instance made
    #   events     one for each partition that may differ, in the order of their Place
    #   batch      the events after cursor.place, max_events at most
    # new cursor: m; or, when events are left over, still n with until=m and the place of the last event. The next tick then computes the
    # same events again and skips those up to the place, so the order must not depend on anything but the two snapshots.
    deadline = time.monotonic() + limits.seconds
    changes, cursor = _changes_since(lake, _Cursor.parse(context.cursor), tables, limits)
    found = commit_events(lake, context.instance, tables, changes, deadline=deadline, everything=cursor.lost or None)
    left = dropwhile(lambda event: cursor.place is not None and event[0].order <= cursor.place.order, found.events)
    # One more than fits, to know whether any are left over.
    batch = list(islice(left, limits.events + 1))
    reported = batch[: limits.events]
    if len(batch) > limits.events:
        reached = replace(cursor, until=found.until, place=reported[-1][0])
    else:
        reached = _Cursor(catalog=cursor.catalog, snapshot=found.until, committed=_committed(changes, found.until))
    events = [make() for _, make in reported]
    requests: list[dg.RunRequest] = []
    if selection is not None:
        changed = [(event.asset_key, event.partition) for event in events if isinstance(event, dg.AssetMaterialization)]
        # A catalog that is restored from a backup uses the ids of lost snapshots again; the time of the commit differs.
        requests = run_requests(context, changed, selection, f"{cursor.catalog}:{found.until}:{_committed(changes, found.until)}")
    # Dagster does not allow a reason together with run requests.
    reason = None if requests else _summary(changes, found, events, reached)
    if reason is not None and found.foreign and not reported and (elsewhere := other_schemas_text(lake, tables)):
        context.log.warning("%s", elsewhere)
        reason = f"{reason}; {elsewhere}"
    return dg.SensorResult(asset_events=events, run_requests=requests, cursor=reached.text(), skip_reason=reason)


def _changes_since(lake: DuckLake, cursor: _Cursor | None, tables: Sequence[AssetTable], limits: _Limits) -> tuple[LakeChanges, _Cursor]:
    """Return the changes to report, and the cursor they begin at: the last evaluation's, if it belongs to this catalog and history."""
    catalog = lake_identity(lake)
    if cursor is None or cursor.catalog != catalog:
        cursor = _start(lake, catalog, report_history=limits.report_history)
    changes, cursor = _changes(lake, cursor, tables, limits.snapshots)
    lost = _put_back(changes, cursor)
    if not lost:
        return changes, cursor
    # The reported state is not in this history, so a comparison is not possible: report the whole lake as changed.
    return lake.changed_tables(-1, tables=wanted_columns(tables)), _Cursor(catalog=catalog, snapshot=-1, lost=lost)


def _selection(
    request_runs: dg.AssetSelection | str | Sequence[dg.AssetKey | str | dg.AssetsDefinition] | None,
) -> dg.AssetSelection | None:
    if request_runs is None or isinstance(request_runs, dg.AssetSelection):
        return request_runs
    if isinstance(request_runs, str):
        reject_no_text("request_runs", request_runs)
        return dg.AssetSelection.from_string(request_runs)
    keys = [
        key
        for one in request_runs
        for key in (
            one.keys if isinstance(one, dg.AssetsDefinition) else [dg.AssetKey.from_user_string(one) if isinstance(one, str) else one]
        )
    ]
    return dg.AssetSelection.assets(*keys)


def _start(lake: DuckLake, catalog: str, *, report_history: bool) -> _Cursor:
    if report_history:
        oldest = lake.changed_tables(-1, tables={}, most_snapshots=1).until
        return _Cursor(catalog=catalog, snapshot=oldest - 1)
    newest = lake.snapshot()
    return _Cursor(catalog=catalog, snapshot=newest.id, committed=newest.time.isoformat())


def _changes(lake: DuckLake, cursor: _Cursor, tables: Sequence[AssetTable], most: int) -> tuple[LakeChanges, _Cursor]:
    """Return the changes since the cursor; a range that is reported over several ticks is read again as it was."""
    wanted = wanted_columns(tables)
    if cursor.until is not None:
        try:
            return lake.changed_tables(cursor.snapshot, cursor.until, tables=wanted), cursor
        except NotFoundError:
            # The last snapshot of the range was expired. Another end means other events, so the range starts over.
            cursor = replace(cursor, until=None, place=None)
    return lake.changed_tables(cursor.snapshot, tables=wanted, most_snapshots=most), cursor


def _put_back(changes: LakeChanges, cursor: _Cursor) -> str:
    """Return the reason to report everything when the catalog was restored to a state before the cursor; empty otherwise."""
    # After a restore, new commits reuse ids of lost commits. Only the commit time of the cursor's snapshot shows this.
    before = changes.before
    is_restored = not changes.snapshots if before is None else bool(cursor.committed) and before.time.isoformat() != cursor.committed
    return f"the catalog was restored to a state before snapshot {cursor.snapshot}, which was already reported" if is_restored else ""


def _committed(changes: LakeChanges, snapshot_id: int) -> str:
    known = (changes.before, *changes.snapshots)
    return next((snapshot.time.isoformat() for snapshot in known if snapshot is not None and snapshot.id == snapshot_id), "")


def _summary(changes: LakeChanges, found: CommitEvents, events: Sequence[Event], reached: _Cursor) -> str:
    # Dagster shows a tick that only reports events as skipped, so its reason describes what was done.
    if not changes.snapshots:
        return f"no commit after snapshot {reached.snapshot}"
    seen = sorted(snapshot.id for snapshot in changes.snapshots if snapshot.id <= found.until)
    span = f"snapshot {seen[0]}" if len(seen) == 1 else f"snapshots {seen[0]}-{seen[-1]}"
    if events:
        text = f"{_changed_text(events)} by another writer ({span})"
    elif found.foreign:
        text = f"another writer changed no rows or columns of these assets ({span})"
    else:
        text = f"no commits of other writers ({span})"
    if reached.place is not None:
        text += "; the next tick reports more events of these commits"
    if changes.expired:
        gaps = ", ".join(f"{first} to {last}" for first, last in changes.expired)
        text += f"; snapshots {gaps} were expired before this sensor saw them"
    return text


def _changed_text(events: Sequence[Event]) -> str:
    """Return the assets and numbers of partitions of events as the start of a sentence."""
    partitions: dict[str, int] = {}
    for event in events:
        name = event.asset_key.to_user_string()
        is_of_rows = isinstance(event, dg.AssetMaterialization)
        partitions[name] = partitions.get(name, 0) + (is_of_rows and event.partition is not None)
    parts = [f"{count} partition{'s' if count > 1 else ''} of {name}" if count else name for name, count in partitions.items()]
    more = [f"{len(parts) - _MAX_NAMED} more assets"] if len(parts) > _MAX_NAMED else []
    return f"{', '.join([*parts[:_MAX_NAMED], *more])} changed"


def run_requests(
    context: dg.SensorEvaluationContext, changed: Iterable[tuple[dg.AssetKey, str | None]], selection: dg.AssetSelection, state: str
) -> list[dg.RunRequest]:
    """Return a run for each partition of the selected assets that reads a change, with all assets that have the partition.

    Args:
        context: Context of the sensor, whose definitions contain the dependencies. Dependencies are followed through virtual assets
            (views).
        changed: Assets and partitions that changed; a partition of None means the whole asset.
        selection: Assets to run.
        state: The state of the lake, which is part of the run key: Dagster never launches a run key twice.

    Raises:
        UsageError: The sensor was evaluated without the project's definitions.
    """
    if context.repository_def is None:
        raise UsageError("request_runs needs the project's definitions. Pass definitions= to build_sensor_context")
    graph = context.repository_def.asset_graph
    wanted = selection.resolve(graph)
    partitions: dict[str, set[dg.AssetKey]] = {}
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        for key, partition in _readers(graph, set(changed)):
            if key in wanted:
                partitions.setdefault(partition or "", set()).add(key)
    return [_request(partition, keys, state) for partition, keys in sorted(partitions.items())]


def _readers(graph: dg.AssetGraph, changed: AbstractSet[tuple[dg.AssetKey, str | None]]) -> Iterator[tuple[dg.AssetKey, str | None]]:
    """Yield assets and partitions that read one of these, directly or through views."""
    seen: set[tuple[dg.AssetKey, str | None]] = set()
    waiting = list(changed)
    while waiting:
        key, partition = waiting.pop()
        if not graph.has(key):
            continue
        for child in graph.get_children_partitions(key, partition):
            found = (child.asset_key, child.partition_key)
            if found in seen:
                continue
            seen.add(found)
            if graph.get(child.asset_key).is_virtual:
                waiting.append(found)
            else:
                yield found


def _request(partition: str, keys: AbstractSet[dg.AssetKey], state: str) -> dg.RunRequest:
    names = sorted(key.to_user_string() for key in keys)
    assets = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return dg.RunRequest(
        run_key=f"{_PREFIX}:{state}:{partition}:{assets}",
        partition_key=partition or None,
        asset_selection=sorted(keys),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The position of an event in the order of reports: by asset, then by partition."""

    asset: str
    partition: str = ""
    kind: str = ""

    @property
    def order(self) -> tuple[str, str, str]:
        """Return the sort key."""
        return self.asset, self.partition, self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvents:
    """Events of a range of commits.

    Attributes:
        until: The last snapshot that they cover; earlier than requested when time ran out.
        foreign: Number of commits that were not made by a run of this instance.
        events: Functions that make the events, in the order of their places. Making an event is slow, and most
            events of a large change wait for a later tick.
    """

    until: int
    foreign: int
    events: Sequence[tuple[Place, Callable[[], Event]]]


def wanted_columns(tables: Sequence[AssetTable]) -> dict[str, list[str]]:
    """Return the partition columns of the assets of each table, by folded table name."""
    wanted: dict[str, list[str]] = {}
    for table in tables:
        columns = wanted.setdefault(folded(table.address.sql), [])
        columns += [column for column in partition_columns(table) if column not in columns]
    return wanted


def commit_events(
    lake: DuckLake,
    instance: dg.DagsterInstance,
    tables: Sequence[AssetTable],
    changes: LakeChanges,
    *,
    deadline: float,
    everything: str | None = None,
) -> CommitEvents:
    """Return the events of commits that were not made by a run of this instance.

    Args:
        lake: The lake.
        instance: Instance that knows its own runs.
        tables: Assets.
        changes: Changes of the tables of :func:`wanted_columns`.
        deadline: Monotonic time after which later commits are left for the next tick; the first commit is always covered.
        everything: Reason why every row of every table may have changed; None without one.
    """
    foreign = _foreign(instance, changes.snapshots)
    by_name = {folded(found.name): found for found in changes.tables}
    columns = wanted_columns(tables)
    assets, keys = [], PartitionKeys(instance)
    for table in tables:
        name = folded(table.address.sql)
        found = by_name.get(name)
        if found is None and everything is not None:
            found = _unseen(table)
        if found is not None and _exists(instance, table, found):
            places = [columns[name].index(column) for column in partition_columns(table)]
            assets.append(_AssetChanges(keys=keys, table=table, changed=found, columns=places, unknown=found.unknown or everything))
    until = _collect(assets, changes, foreign, deadline)
    _settle(lake, assets, foreign, until, deadline)
    commits = _Commits(table_names(changes))
    events = [
        event for asset in assets for event in asset.events(_Facts(changes=changes, asset=asset, until=until, commits=commits), foreign)
    ]
    events.sort(key=lambda event: event[0].order)
    return CommitEvents(until=until, foreign=sum(number <= until for number in foreign), events=events)


def _exists(instance: dg.DagsterInstance, table: AssetTable, found: ChangedTable) -> bool:
    """Return whether the table exists or existed. The catalog alone does not show whether expired commits dropped it or it never was."""
    if found.id_before is not None or found.id_after is not None:
        return True
    return instance.get_latest_materialization_event(table.key) is not None


def _unseen(table: AssetTable) -> ChangedTable:
    """Return the change of a table without details."""
    from ducklake_core import ChangedTable, Schema

    return ChangedTable(name=table.address.sql, id_before=None, id_after=None, schema=Schema(columns=()))


def _foreign(instance: dg.DagsterInstance, snapshots: Sequence[Snapshot]) -> dict[int, Snapshot]:
    """Return snapshots that were not made by a run of the instance, with one query of the instance."""
    runs = {snapshot.id: run for snapshot in snapshots if (run := _run_id(snapshot)) is not None}
    own = set(instance.get_run_ids(filters=dg.RunsFilter(run_ids=sorted(set(runs.values()))))) if runs else set()
    return {snapshot.id: snapshot for snapshot in snapshots if runs.get(snapshot.id) not in own}


def _run_id(snapshot: Snapshot) -> str | None:
    """Return the run id in a commit. Any client may store any string there, so a string that is not an id is ignored."""
    run = dagster_facts(snapshot).get("run_id")
    return run if isinstance(run, str) and run.isprintable() and 0 < len(run) <= _LONGEST_TEXT else None


@dataclass(kw_only=True, slots=True)
class _AssetChanges:
    """Collects the changes of one asset."""

    keys: PartitionKeys
    table: AssetTable
    changed: ChangedTable
    columns: list[int]
    unknown: str | None
    touched: TouchedPartitions | None = None
    pending: list[tuple[int, ChangedRows]] = field(default_factory=list)
    newest: int = -1
    by: set[int] = field(default_factory=set)
    rows_added: int = 0
    rows_removed: int = 0
    files_added: int = 0
    files_removed: int = 0

    def touch(self, rows: ChangedRows, snapshot_id: int) -> None:
        """Note that rows changed at a snapshot; snapshots come in ascending order."""
        self.newest = snapshot_id
        in_file = rows.data_file_id is not None
        if rows.change == "added":
            self.rows_added += rows.row_count
            self.files_added += in_file
        else:
            self.rows_removed += rows.row_count
            self.files_removed += in_file
        if self.table.partitions_def is not None:
            self.pending.append((snapshot_id, rows))

    def is_vague(self) -> bool:
        """Return whether rows changed in files whose bounds allow several partitions."""
        return any(_width(self._at(rows).box(self._ranges(rows))) > 1 for _, rows in self.pending)

    def settle(self, points: Sequence[tuple[int, Sequence[ValueRange]]] | None) -> None:
        """Find the partitions: those of the points; without points, all that overlap the bounds of changed files."""
        if points is not None:
            touched = self._partitions()
            touched.use(self.changed.schema)
            for snapshot_id, ranges in points:
                touched.touch(ranges, snapshot_id)
            return
        for snapshot_id, rows in self.pending:
            self._at(rows).touch(self._ranges(rows), snapshot_id)

    def _at(self, rows: ChangedRows) -> TouchedPartitions:
        touched = self._partitions()
        # A removed file belongs to the former table, whose columns may have had other types.
        touched.use((self.changed.schema_before if rows.change == "removed" else None) or self.changed.schema)
        return touched

    def _ranges(self, rows: ChangedRows) -> list[ValueRange]:
        return [rows.ranges[place] for place in self.columns]

    def touch_all(self, snapshot_id: int) -> None:
        """Note that any row may have changed at a snapshot."""
        self.newest = snapshot_id
        if self.table.partitions_def is not None:
            self._partitions().touch_all(snapshot_id)

    def _partitions(self) -> TouchedPartitions:
        if self.touched is None:
            self.touched = TouchedPartitions(self.table, self.changed.schema, self.keys)
        return self.touched

    def events(self, common: _Facts, foreign: dict[int, Snapshot]) -> Iterator[tuple[Place, Callable[[], Event]]]:
        """Yield the asset's events up to the snapshot of the facts, each with its position."""
        asset = self.table.key.to_user_string()
        if self.newest >= 0:
            keys: list[tuple[str | None, int]] = [(None, self.newest)] if self.touched is None else [*sorted(self.touched.found())]
            for position, (partition, snapshot_id) in enumerate(keys):
                place = Place(asset=asset, partition=partition or "", kind="rows")
                yield place, _Materialization(common, partition, foreign.get(snapshot_id), last=position == len(keys) - 1)
            if not keys:
                outside = "the changed rows belong to no partition of the asset"
                yield Place(asset=asset, kind="outside"), _Observation(common, foreign.get(self.newest), outside)
        other = [number for number in self.changed.other_snapshots if number in foreign and number <= common.until]
        dropped = self.changed.change == "dropped" and self.newest < 0 and self.unknown is None
        if other or dropped:
            snapshot = foreign[other[-1]] if other else None
            note = "the table was dropped; it had no rows" if dropped else None
            yield Place(asset=asset, kind="files"), _Observation(common, snapshot, note)


def _collect(assets: Sequence[_AssetChanges], changes: LakeChanges, foreign: dict[int, Snapshot], deadline: float) -> int:
    """Pass every foreign change to its asset, in the order of commits, and return the last snapshot that was passed on completely."""
    # Work is cut by time and by whole commits: a commit that changed many tables is reported for all of them, or for none yet. The first
    # commit is always passed on; otherwise a commit that takes longer than the limit would block the sensor for ever.
    pieces: list[tuple[int, int, _AssetChanges, ChangedRows, Sequence[int]]] = []
    all_foreign = len(foreign) == len(changes.snapshots)
    for asset in assets:
        if asset.unknown is not None:
            asset.touch_all(changes.until)
            continue
        for rows in asset.changed.rows:
            by: Sequence[int] = rows.snapshots if all_foreign else [number for number in rows.snapshots if number in foreign]
            if by or not rows.snapshots:
                pieces.append((rows.first_snapshot, by[-1] if by else rows.last_snapshot, asset, rows, by))
    pieces.sort(key=itemgetter(0, 1))
    begun = pieces[0][0] if pieces else 0
    for position, (first, newest, asset, rows, by) in enumerate(pieces):
        if first > begun and time.monotonic() > deadline:
            # Every change of the commits before this one was passed on.
            reached = [snapshot.id for snapshot in changes.snapshots if snapshot.id < first]
            if reached and position:
                return reached[-1]
        asset.touch(rows, newest)
        asset.by.update(by)
    return changes.until


def _settle(lake: DuckLake, assets: Sequence[_AssetChanges], foreign: dict[int, Snapshot], until: int, deadline: float) -> None:
    """Find the partitions of all changes. Read rows if bounds of files allow several partitions, for a few tables at most."""
    left = _MAX_TABLES_READ
    for asset in assets:
        points = None
        if left and asset.pending and time.monotonic() < deadline and asset.is_vague():
            left -= 1
            points = changed_values(lake, asset.table, asset.changed, until, foreign)
        asset.settle(points)


def _width(box: Box | None) -> int:
    return prod(max(last - first, 0) for first, last in box) if box is not None else 0


@lru_cache(maxsize=4096)
def _number(value: int) -> dg.IntMetadataValue:
    """Return a metadata value, cached: many events have the same numbers, and Dagster validates each value slowly."""
    return dg.MetadataValue.int(value)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """The metadata that all events of one asset share."""

    changes: LakeChanges
    asset: _AssetChanges
    until: int
    commits: _Commits

    def metadata(self, snapshot: Snapshot | None) -> dict[str, Any]:
        return {**self._common, **(self.commits.metadata(snapshot) if snapshot else {})}

    @cached_property
    def _common(self) -> Mapping[str, Any]:
        changed = self.asset.changed
        facts: dict[str, Any] = {"ducklake/reported_until": self.until, "dagster/table_name": str(self.asset.table.address)}
        if self.asset.unknown is None:
            # Include zeros, so that Dagster plots every point.
            facts |= {"ducklake/rows_added": self.asset.rows_added, "ducklake/rows_removed": self.asset.rows_removed}
            files = {"ducklake/files_with_rows_added": self.asset.files_added, "ducklake/files_with_rows_removed": self.asset.files_removed}
            facts |= {name: count for name, count in files.items() if count}
        if self.until == self.changes.until and changed.id_after is not None:
            facts |= {"dagster/row_count": changed.row_count, "dagster/size_bytes": changed.file_size_bytes}
        if changed.change != "changed" and self.asset.unknown is None:
            facts["ducklake/table"] = changed.change
        if self.changes.expired:
            facts["ducklake/expired_snapshots"] = ", ".join(f"{first}-{last}" for first, last in self.changes.expired)
        return {name: _number(fact) if isinstance(fact, int) else fact for name, fact in facts.items() if fact is not None}


class _Commits:
    """Metadata about commits, made once for each commit: it may have changed a thousand tables.

    Args:
        names: Names of tables by id.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._reported: dict[int, dict[str, Any]] = {}

    def metadata(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """Return metadata about a commit for its events; long strings are cut."""
        if snapshot.id not in self._reported:
            facts = {
                "ducklake/snapshot_id": _number(snapshot.id),
                "ducklake/committed_at": dg.MetadataValue.timestamp(snapshot.time),
                "ducklake/changes": changes_text(snapshot, self._names)[:_LONGEST_TEXT],
                "ducklake/author": snapshot.author and snapshot.author[:_LONGEST_TEXT],
                "ducklake/message": snapshot.message and snapshot.message[:_LONGEST_TEXT],
            }
            self._reported[snapshot.id] = {name: fact for name, fact in facts.items() if fact is not None}
        return self._reported[snapshot.id]

    def text(self, snapshot: Snapshot) -> str:
        """Return the changes of a commit, in words."""
        return str(self.metadata(snapshot)["ducklake/changes"])


@dataclass(frozen=True, slots=True)
class _Materialization:
    """Make the event of one partition, or of an asset without partitions."""

    facts: _Facts
    partition: str | None
    snapshot: Snapshot | None
    last: bool

    def __call__(self) -> dg.AssetMaterialization:
        asset = self.facts.asset
        metadata = self.facts.metadata(self.snapshot)
        reason = asset.unknown or (asset.touched.problem if asset.touched is not None else None)
        if reason is not None:
            metadata["ducklake/partitions"] = f"all partitions, because the changed ones are unknown: {reason}"[:_LONGEST_TEXT]
        if asset.by:
            metadata["ducklake/commits"] = _number(len(asset.by))
        if self.last and asset.changed.schema.columns:
            # Dagster shows the schema of the last event only; on thousands of events it would take megabytes.
            changed = asset.changed
            metadata["dagster/column_schema"] = table_schema(changed.schema, changed.column_comments, changed.partition_by)
        if self.snapshot is not None:
            # Dagster's freshness checks then use the time of the commit rather than that of the tick.
            metadata["dagster/last_updated_timestamp"] = metadata["ducklake/committed_at"]
        message = self.snapshot.message if self.snapshot is not None else None
        return dg.AssetMaterialization(
            asset_key=asset.table.key, partition=self.partition, description=message and message[:_LONGEST_TEXT], metadata=metadata
        )


@dataclass(frozen=True, slots=True)
class _Observation:
    """Make the event of commits that changed no partition of the asset."""

    facts: _Facts
    snapshot: Snapshot | None
    note: str | None = None

    def __call__(self) -> dg.AssetObservation:
        description = self.facts.commits.text(self.snapshot) if self.snapshot is not None else None
        return dg.AssetObservation(
            asset_key=self.facts.asset.table.key, description=self.note or description, metadata=self.facts.metadata(self.snapshot)
        )


def changes_text(snapshot: Snapshot, names: Mapping[int, str]) -> str:
    """Return a sentence about a commit; a table without a known name is shown by its id.

    Args:
        snapshot: The commit.
        names: Names of tables by id.
    """
    try:
        changes = snapshot.change_set
    except DuckLakeError:
        # Another writer stored changes that this library cannot parse: show them as they are.
        return snapshot.changes
    done: dict[str, list[str]] = {}
    for kind, action in _ACTIONS.items():
        tables = getattr(changes, kind)
        if not tables:
            continue
        found = done.setdefault(action, [])
        for table in tables:
            name = names.get(table, f"table {table}") if isinstance(table, int) else f"{table.schema}.{table.name}"
            if name not in found:
                found.append(name)
    return "; ".join(f"{action} {', '.join(found)}" for action, found in done.items()) or snapshot.changes


def table_names(changes: LakeChanges) -> dict[int, str]:
    """Return names of the changed tables by id."""
    return {number: table.name for table in changes.tables for number in (table.id_before, table.id_after) if number is not None}
