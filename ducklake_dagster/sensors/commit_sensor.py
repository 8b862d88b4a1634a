"""A sensor for commits of other writers: their changes become events of assets, and runs of the assets downstream."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.assets.asset_tables import AssetTable, asset_tables, other_schemas_text
from ducklake_dagster.config.values import is_count, is_number, refuse_no_text
from ducklake_dagster.io.read_points import lake_identity
from ducklake_dagster.sensors.commit_events import CommitEvents, Place, commit_events, wanted_columns

if TYPE_CHECKING:
    from ducklake_core import DuckLake, LakeChanges


_CURSOR_VERSION = 2

_PREFIX = "ducklake_commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """How far the lake has been reported.

    Attributes:
        catalog: The catalog's identity.
        snapshot: Everything up to this snapshot was reported.
        committed: When that snapshot was committed, by which a catalog put back from a backup is known; empty when unknown.
        until: The snapshot up to which events are being reported over several ticks; None when none are left over.
        place: The last event of those that was reported.
        lost: Why all rows of all tables may have changed, empty if that is not so.
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
        """None for no cursor, or one of a later version of this library."""
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
    """How much one evaluation does at most, and where the first one begins."""

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
    """Build a sensor that reports changes which no run of this Dagster instance made.

    Each evaluation compares what is visible at the last snapshot reported and at the newest one. Every partition whose rows may differ
    becomes one ``AssetMaterialization`` (an asset without partitions one in all), whatever number of commits changed it, so that
    freshness policies and automation conditions see it. Where files hold rows of several partitions and few rows changed (20,000 of a
    table), these are read, of five tables at most, and their partitions reported; otherwise every partition within the bounds of a changed
    file is. None is left out. A dropped or replaced table changes all partitions that it had or has rows of. Commits that changed only
    columns or files, such as a flush or a compaction, become an ``AssetObservation``, and so do rows outside of all partitions.

    Commits that were expired before the sensor saw them are named in the events; of a table of which the catalog has forgotten the
    earlier state every partition is reported, and the events say why. Keep snapshots for longer than the sensor may be off.

    The number of catalog statements of an evaluation depends on neither commits nor tables nor partitions. Ships stopped.

    Args:
        assets: Assets that are DuckLake tables; commits to other tables are passed over.
        name: Name of the sensor.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The IO manager's ``schema``.
        max_snapshots_per_tick: Most commits looked at in one evaluation; the next goes on from there.
        max_events_per_tick: Most events of one evaluation; the next goes on with the others.
        max_seconds_per_tick: After this time an evaluation ends with the commit at hand; the next goes on from there. Dagster gives up
            on an evaluation after 60 seconds.
        report_history: Whether the first evaluation starts at the oldest snapshot instead of the newest.
        minimum_interval_seconds: Seconds between evaluations.
        request_runs: Assets, or a selection such as ``"group:daily"``, that a run is requested of when what they read has changed: one
            for each of their partitions that reads a changed partition, directly or through a view. Runs of assets after those are for
            automation conditions. Without it the events alone are reported, which ``AutomationCondition.eager()`` answers to.
    """
    tables = asset_tables(assets, schema)
    refuse_no_text("name", name)
    if minimum_interval_seconds != 0 and not is_count(minimum_interval_seconds):
        raise UsageError(
            f"sensor {name}: minimum_interval_seconds must be whole seconds, not {minimum_interval_seconds!r}",
            parameter="minimum_interval_seconds",
        )
    selection = _selection(request_runs)
    limits = _Limits(
        snapshots=max_snapshots_per_tick, events=max_events_per_tick, seconds=max_seconds_per_tick, report_history=report_history
    )
    _refuse_nothing(name, tables, limits)

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


def _refuse_nothing(name: str, tables: Sequence[AssetTable], limits: _Limits) -> None:
    if not tables:
        raise UsageError(f"sensor {name} has no assets to report on")
    for setting, count in (("max_snapshots_per_tick", limits.snapshots), ("max_events_per_tick", limits.events)):
        if not is_count(count):
            raise UsageError(f"sensor {name}: {setting} must be a whole number from 1 on, not {count!r}", parameter=setting)
    if not is_number(limits.seconds) or limits.seconds < 0:
        raise UsageError(f"sensor {name}: max_seconds_per_tick must be seconds, not {limits.seconds!r}", parameter="max_seconds_per_tick")


def _evaluate(
    context: dg.SensorEvaluationContext, lake: DuckLake, tables: Sequence[AssetTable], limits: _Limits, selection: dg.AssetSelection | None
) -> dg.SensorResult:
    """One evaluation; with a selection, runs of its assets are requested."""
    deadline = time.monotonic() + limits.seconds
    changes, cursor = _changes_since(lake, _Cursor.parse(context.cursor), tables, limits)
    found = commit_events(lake, context.instance, tables, changes, deadline=deadline, everything=cursor.lost or None)
    left = dropwhile(lambda event: cursor.place is not None and event[0].order <= cursor.place.order, found.events)
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
        requests = run_requests(context, changed, selection, f"{cursor.catalog}:{found.until}")
    # Dagster allows no reason where runs are requested.
    reason = None if requests else _summary(changes, found, len(reported), reached)
    if reason is not None and found.foreign and not reported and (elsewhere := other_schemas_text(lake, tables)):
        context.log.warning("%s", elsewhere)
        reason = f"{reason}; {elsewhere}"
    return dg.SensorResult(asset_events=events, run_requests=requests, cursor=reached.text(), skip_reason=reason)


def _changes_since(lake: DuckLake, cursor: _Cursor | None, tables: Sequence[AssetTable], limits: _Limits) -> tuple[LakeChanges, _Cursor]:
    """The changes to report, and the cursor they begin at: that of the last evaluation, if it is about this catalog and its history."""
    catalog = lake_identity(lake)
    if cursor is None or cursor.catalog != catalog:
        cursor = _start(lake, catalog, report_history=limits.report_history)
    changes, cursor = _changes(lake, cursor, tables, limits.snapshots)
    lost = _put_back(changes, cursor)
    if not lost:
        return changes, cursor
    # What was reported is no part of this history: compare nothing with what there is.
    return lake.changed_tables(-1, tables=wanted_columns(tables)), _Cursor(catalog=catalog, snapshot=-1, lost=lost)


def _selection(
    request_runs: dg.AssetSelection | str | Sequence[dg.AssetKey | str | dg.AssetsDefinition] | None,
) -> dg.AssetSelection | None:
    if request_runs is None or isinstance(request_runs, dg.AssetSelection):
        return request_runs
    if isinstance(request_runs, str):
        refuse_no_text("request_runs", request_runs)
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
        return _Cursor(catalog=catalog, snapshot=lake.snapshots()[0].id - 1)
    newest = lake.snapshot()
    return _Cursor(catalog=catalog, snapshot=newest.id, committed=newest.time.isoformat())


def _changes(lake: DuckLake, cursor: _Cursor, tables: Sequence[AssetTable], most: int) -> tuple[LakeChanges, _Cursor]:
    """Get the changes since the cursor; a range that is being reported over several ticks is asked for again as it was."""
    wanted = wanted_columns(tables)
    if cursor.until is not None:
        try:
            return lake.changed_tables(cursor.snapshot, cursor.until, tables=wanted), cursor
        except NotFoundError:
            # The last snapshot of the range was expired: with another one everything is to be reported again.
            cursor = replace(cursor, until=None, place=None)
    return lake.changed_tables(cursor.snapshot, tables=wanted, most_snapshots=most), cursor


def _put_back(changes: LakeChanges, cursor: _Cursor) -> str:
    """Why nothing is certain, if the catalog was put back to an earlier state: what the cursor saw is no part of it."""
    before = changes.before
    gone = not changes.snapshots if before is None else bool(cursor.committed) and before.time.isoformat() != cursor.committed
    return f"the catalog was put back to a state before snapshot {cursor.snapshot}, which was reported" if gone else ""


def _committed(changes: LakeChanges, snapshot_id: int) -> str:
    known = (changes.before, *changes.snapshots)
    return next((snapshot.time.isoformat() for snapshot in known if snapshot is not None and snapshot.id == snapshot_id), "")


def _summary(changes: LakeChanges, found: CommitEvents, reported: int, reached: _Cursor) -> str:
    # A tick that only reports events counts as skipped in Dagster, so its reason is where the page says what was done.
    if not changes.snapshots:
        return f"no commit after snapshot {reached.snapshot}"
    commits = sum(snapshot.id <= found.until for snapshot in changes.snapshots)
    text = f"reported {reported} events of {found.foreign} foreign commits among {commits}, up to snapshot {found.until}"
    if reached.place is not None:
        text += "; more events of them follow"
    if changes.expired:
        gaps = ", ".join(f"{first} to {last}" for first, last in changes.expired)
        text += f"; snapshots {gaps} were expired before this sensor saw them"
    return text


def run_requests(
    context: dg.SensorEvaluationContext, changed: Iterable[tuple[dg.AssetKey, str | None]], selection: dg.AssetSelection, state: str
) -> list[dg.RunRequest]:
    """A run for each partition of the selected assets that reads what changed, with all assets that have the partition.

    Args:
        context: Of the sensor, whose definitions say what depends on what. Virtual assets, which are views, are looked through.
        changed: Assets and partitions that changed, None for all of an asset.
        selection: Assets that runs are requested of.
        state: What changed; the same run is never requested twice for it.

    Raises:
        UsageError: The sensor was evaluated without the project's definitions.
    """
    if context.repository_def is None:
        raise UsageError("request_runs needs the project's definitions: pass definitions= to build_sensor_context")
    graph = context.repository_def.asset_graph
    wanted = selection.resolve(graph)
    partitions: dict[str, set[dg.AssetKey]] = {}
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        for key, partition in _readers(graph, set(changed)):
            if key in wanted:
                partitions.setdefault(partition or "", set()).add(key)
    return [_request(partition, keys, state) for partition, keys in sorted(partitions.items())]


def _readers(graph: dg.AssetGraph, changed: AbstractSet[tuple[dg.AssetKey, str | None]]) -> Iterator[tuple[dg.AssetKey, str | None]]:
    """Assets and partitions that read one of these, views looked through."""
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
