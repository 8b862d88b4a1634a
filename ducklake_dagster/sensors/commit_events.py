"""Report commits of other writers as events of the assets behind their tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError
from ducklake_dagster.assets.asset_tables import AssetTable
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.statistics.commit_metadata import table_schema
from ducklake_dagster.statistics.touched_partitions import Box, PartitionKeys, TouchedPartitions, changed_values, partition_columns

if TYPE_CHECKING:
    from ducklake_core import ChangedRows, ChangedTable, DuckLake, LakeChanges, Snapshot, ValueRange


Event: TypeAlias = "dg.AssetMaterialization | dg.AssetObservation"
_LONGEST_TEXT = 500
_MOST_TABLES_READ = 5

_VERBS = {
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
class Place:
    """An event's place in the order in which events are reported: asset by asset, partition by partition."""

    asset: str
    partition: str = ""
    kind: str = ""

    @property
    def order(self) -> tuple[str, str, str]:
        """Sorts like the places."""
        return self.asset, self.partition, self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvents:
    """Events of a range of commits.

    Attributes:
        until: The last snapshot that they cover: an earlier one than asked for when time ran out.
        foreign: How many commits no run of this instance made.
        events: In the order of their places; making one costs more than knowing that there is one.
    """

    until: int
    foreign: int
    events: Sequence[tuple[Place, Callable[[], Event]]]


def wanted_columns(tables: Sequence[AssetTable]) -> dict[str, list[str]]:
    """For every table the columns that partition keys of its assets are about."""
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
    """The events of commits that no run of this instance made.

    Args:
        lake: The lake.
        instance: Knows its own runs.
        tables: Assets.
        changes: Of the tables of :func:`wanted_columns`.
        deadline: Monotonic time after which later commits are left for the next time; the first commit is always covered.
        everything: Why every row of every table may have changed, if so.
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
    """Whether the table is, or was, there: what expired commits may have dropped is not told from what never was."""
    if found.id_before is not None or found.id_after is not None:
        return True
    return instance.get_latest_materialization_event(table.key) is not None


def _unseen(table: AssetTable) -> ChangedTable:
    """A table of which nothing is known."""
    from ducklake_core import ChangedTable, Schema

    return ChangedTable(name=table.address.sql, id_before=None, id_after=None, schema=Schema(columns=()))


def _foreign(instance: dg.DagsterInstance, snapshots: Sequence[Snapshot]) -> dict[int, Snapshot]:
    """Snapshots that no run of the instance made, which is asked once for all of them."""
    runs = {snapshot.id: run for snapshot in snapshots if (run := _run_id(snapshot)) is not None}
    own = set(instance.get_run_ids(filters=dg.RunsFilter(run_ids=sorted(set(runs.values()))))) if runs else set()
    return {snapshot.id: snapshot for snapshot in snapshots if runs.get(snapshot.id) not in own}


def _run_id(snapshot: Snapshot) -> str | None:
    """The run that a commit names; anybody may write anything there, so what cannot be an id is none."""
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
        """Rows changed at a snapshot; snapshots come in ascending order."""
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
        """Whether rows changed of which their files do not say the one partition that they belong to."""
        return any(_width(self._at(rows).box(self._ranges(rows))) > 1 for _, rows in self.pending)

    def settle(self, points: Sequence[tuple[int, Sequence[ValueRange]]] | None) -> None:
        """Find the partitions: those of the points, or without points all that rows within the bounds of changed files may belong to."""
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
        touched.use((self.changed.schema_before if rows.change == "removed" else None) or self.changed.schema)
        return touched

    def _ranges(self, rows: ChangedRows) -> list[ValueRange]:
        return [rows.ranges[place] for place in self.columns]

    def touch_all(self, snapshot_id: int) -> None:
        """Any row may have changed."""
        self.newest = snapshot_id
        if self.table.partitions_def is not None:
            self._partitions().touch_all(snapshot_id)

    def _partitions(self) -> TouchedPartitions:
        if self.touched is None:
            self.touched = TouchedPartitions(self.table, self.changed.schema, self.keys)
        return self.touched

    def events(self, common: _Facts, foreign: dict[int, Snapshot]) -> Iterator[tuple[Place, Callable[[], Event]]]:
        """The asset's events up to the snapshot that the facts are of."""
        asset = self.table.key.to_user_string()
        if self.newest >= 0:
            keys: list[tuple[str | None, int]] = [(None, self.newest)] if self.touched is None else [*sorted(self.touched.found())]
            for position, (partition, snapshot_id) in enumerate(keys):
                place = Place(asset=asset, partition=partition or "", kind="rows")
                yield place, _Materialization(common, partition, foreign.get(snapshot_id), last=position == len(keys) - 1)
            if not keys:
                outside = "rows changed that belong to none of the asset's partitions"
                yield Place(asset=asset, kind="outside"), _Observation(common, foreign.get(self.newest), outside)
        other = [number for number in self.changed.other_snapshots if number in foreign and number <= common.until]
        dropped = self.changed.change == "dropped" and self.newest < 0 and self.unknown is None
        if other or dropped:
            snapshot = foreign[other[-1]] if other else None
            note = "the table was dropped; it had no rows" if dropped else None
            yield Place(asset=asset, kind="files"), _Observation(common, snapshot, note)


def _collect(assets: Sequence[_AssetChanges], changes: LakeChanges, foreign: dict[int, Snapshot], deadline: float) -> int:
    """Hand every foreign change to its asset, in the order of commits; the last snapshot of which all changes were handed over."""
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
            # Whole commits only: those before this change, of which every change was handed over.
            reached = [snapshot.id for snapshot in changes.snapshots if snapshot.id < first]
            if reached and position:
                return reached[-1]
        asset.touch(rows, newest)
        asset.by.update(by)
    return changes.until


def _settle(lake: DuckLake, assets: Sequence[_AssetChanges], foreign: dict[int, Snapshot], until: int, deadline: float) -> None:
    """Find the partitions of all changes; of a few tables by reading rows where files do not tell, so that a tick stays short."""
    left = _MOST_TABLES_READ
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
    """Most numbers of many events are the same, and Dagster takes a while to look at each."""
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
            # Zeros too, so that the numbers make a line.
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
    """What events say about commits, made once for each commit: it may have changed a thousand tables.

    Args:
        names: Tables by id.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._told: dict[int, dict[str, Any]] = {}

    def metadata(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """Metadata about a commit for its events; long texts are cut."""
        if snapshot.id not in self._told:
            facts = {
                "ducklake/snapshot_id": _number(snapshot.id),
                "ducklake/committed_at": dg.MetadataValue.timestamp(snapshot.time),
                "ducklake/changes": changes_text(snapshot, self._names)[:_LONGEST_TEXT],
                "ducklake/author": snapshot.author and snapshot.author[:_LONGEST_TEXT],
                "ducklake/message": snapshot.message and snapshot.message[:_LONGEST_TEXT],
            }
            self._told[snapshot.id] = {name: fact for name, fact in facts.items() if fact is not None}
        return self._told[snapshot.id]

    def text(self, snapshot: Snapshot) -> str:
        """What a commit did, in words."""
        return str(self.metadata(snapshot)["ducklake/changes"])


@dataclass(frozen=True, slots=True)
class _Materialization:
    """Makes the event of one partition, or of an asset without partitions."""

    facts: _Facts
    partition: str | None
    snapshot: Snapshot | None
    last: bool

    def __call__(self) -> dg.AssetMaterialization:
        asset = self.facts.asset
        metadata = self.facts.metadata(self.snapshot)
        reason = asset.unknown or (asset.touched.problem if asset.touched is not None else None)
        if reason is not None:
            metadata["ducklake/partitions"] = f"all of them, because which ones changed is unknown: {reason}"[:_LONGEST_TEXT]
        if asset.by:
            metadata["ducklake/commits"] = _number(len(asset.by))
        if self.last and asset.changed.schema.columns:
            # Dagster shows that of the last event; on thousands of them it would be megabytes.
            changed = asset.changed
            metadata["dagster/column_schema"] = table_schema(changed.schema, changed.column_comments, changed.partition_by)
        message = self.snapshot.message if self.snapshot is not None else None
        return dg.AssetMaterialization(
            asset_key=asset.table.key, partition=self.partition, description=message and message[:_LONGEST_TEXT], metadata=metadata
        )


@dataclass(frozen=True, slots=True)
class _Observation:
    """Makes the event of commits that changed no partition of the asset."""

    facts: _Facts
    snapshot: Snapshot | None
    note: str | None = None

    def __call__(self) -> dg.AssetObservation:
        told = self.facts.commits.text(self.snapshot) if self.snapshot is not None else None
        return dg.AssetObservation(
            asset_key=self.facts.asset.table.key, description=self.note or told, metadata=self.facts.metadata(self.snapshot)
        )


def changes_text(snapshot: Snapshot, names: Mapping[int, str]) -> str:
    """A sentence about a commit; tables without a known name have their id.

    Args:
        snapshot: The commit.
        names: Tables by id.
    """
    try:
        changes = snapshot.change_set
    except DuckLakeError:
        # Another writer may have stored what nobody can read.
        return snapshot.changes
    done: dict[str, list[str]] = {}
    for kind, verb in _VERBS.items():
        tables = getattr(changes, kind)
        if not tables:
            continue
        found = done.setdefault(verb, [])
        for table in tables:
            name = names.get(table, f"table {table}") if isinstance(table, int) else f"{table.schema}.{table.name}"
            if name not in found:
                found.append(name)
    return "; ".join(f"{verb} {', '.join(found)}" for verb, found in done.items()) or snapshot.changes


def table_names(changes: LakeChanges) -> dict[int, str]:
    """Names of the changed tables by id."""
    return {number: table.name for table in changes.tables for number in (table.id_before, table.id_after) if number is not None}
