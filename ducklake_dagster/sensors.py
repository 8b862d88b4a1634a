"""A sensor for commits that others made: what DuckDB, another engine or another deployment writes becomes events of the asset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.changes import parse_changes
from ducklake_dagster.asset_tables import AssetTable, asset_tables
from ducklake_dagster.metadata import column_schema
from ducklake_dagster.provenance import dagster_facts
from ducklake_dagster.touched_partitions import touched_partitions

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Snapshot, TableInfo

_CURSOR_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """How far the lake has been reported: the catalog's identity and the last snapshot seen."""

    catalog: str
    snapshot: int

    def text(self) -> str:
        return json.dumps({"v": _CURSOR_VERSION, "catalog": self.catalog, "snapshot": self.snapshot})

    @classmethod
    def parse(cls, text: str | None) -> _Cursor | None:
        """None for no cursor, or one of another version of this library."""
        try:
            fields = json.loads(text or "null")
            return cls(catalog=str(fields["catalog"]), snapshot=int(fields["snapshot"])) if fields["v"] == _CURSOR_VERSION else None
        except (ValueError, TypeError, KeyError):
            return None


def build_commit_sensor(
    *,
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
    name: str = "ducklake_commits",
    lake_key: str = "lake",
    schema: str | None = None,
    max_snapshots_per_tick: int = 100,
    max_partitions_per_commit: int = 50,
    report_history: bool = False,
    minimum_interval_seconds: int = 30,
) -> dg.SensorDefinition:
    """A sensor that reports commits which no run of this Dagster instance made.

    A commit that changed rows becomes an ``AssetMaterialization`` of each asset concerned, of each partition where files and
    their statistics tell (a partition next to the changed rows may be reported too, none is left out); so freshness policies and
    automation conditions see it.  A commit that changed only columns or files, such as compaction, becomes an
    ``AssetObservation``.  Ships stopped.

    Args:
        assets: Assets that are DuckLake tables; commits to other tables are passed over.
        name: Name of the sensor.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The IO manager's ``schema``.
        max_snapshots_per_tick: Most commits looked at in one evaluation; the next goes on from there.
        max_partitions_per_commit: A commit that touches more partitions is reported for the asset as a whole.
        report_history: Whether the first evaluation starts at the oldest snapshot instead of the newest.
        minimum_interval_seconds: Seconds between evaluations.
    """
    tables = asset_tables(assets, schema)
    if not tables:
        raise UsageError(f"sensor {name} has no assets to report on")

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
        description="Reports DuckLake commits made outside of this Dagster instance as asset events.",
    )
    def commits(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        catalog = _identity(lake)
        cursor = _Cursor.parse(context.cursor)
        snapshots = lake.snapshots()
        newest = snapshots[-1].id
        if cursor is None or cursor.catalog != catalog or cursor.snapshot > newest:
            start = snapshots[0].id - 1 if report_history else newest
            cursor = _Cursor(catalog=catalog, snapshot=start)
        batch = [snapshot for snapshot in snapshots if snapshot.id > cursor.snapshot][:max_snapshots_per_tick]
        foreign = [snapshot for snapshot in batch if not _is_own(context.instance, snapshot)]
        events = [event for snapshot in foreign for event in _events(context, lake, tables, snapshot, max_partitions_per_commit)]
        reached = _Cursor(catalog=catalog, snapshot=batch[-1].id if batch else cursor.snapshot)
        return dg.SensorResult(asset_events=events, cursor=reached.text(), skip_reason=_summary(batch, foreign, events, reached))

    return commits


def _identity(lake: DuckLake) -> str:
    # A catalog has no id of its own; the uuid of its first schema, main, is made with it and is never given again.
    return min(lake.schemas(), key=lambda schema: schema.id).uuid


def _is_own(instance: dg.DagsterInstance, snapshot: Snapshot) -> bool:
    run_id = dagster_facts(snapshot).get("run_id")
    return bool(run_id) and instance.has_run(str(run_id))


def _summary(batch: Sequence[Snapshot], foreign: Sequence[Snapshot], events: Sequence[Any], reached: _Cursor) -> str:
    # A tick that only reports events counts as skipped in Dagster, so its reason is where the page says what was done.
    if not batch:
        return f"no commit after snapshot {reached.snapshot}"
    return f"reported {len(events)} events of {len(foreign)} foreign commits among {len(batch)}, up to snapshot {reached.snapshot}"


def _events(
    context: dg.SensorEvaluationContext, lake: DuckLake, tables: Sequence[AssetTable], snapshot: Snapshot, most: int
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    changes = parse_changes(snapshot.changes)
    with_rows = {
        *changes.inserted_into_table,
        *changes.deleted_from_table,
        *changes.inlined_insert,
        *changes.inlined_delete,
    }
    otherwise = {*changes.altered_table, *changes.merge_adjacent, *changes.rewrite_delete, *changes.inline_flush}
    for table in tables if with_rows or otherwise else ():
        try:
            info = lake.table_info(table.address.sql, at=snapshot.id)
        except NotFoundError:
            continue
        if info.table_id in with_rows:
            yield from _materializations(context, lake, table, snapshot, info, most)
        elif info.table_id in otherwise:
            yield dg.AssetObservation(asset_key=table.key, description=snapshot.changes, metadata=_metadata(snapshot))


def _materializations(
    context: dg.SensorEvaluationContext, lake: DuckLake, table: AssetTable, snapshot: Snapshot, info: TableInfo, most: int
) -> Iterator[dg.AssetMaterialization]:
    metadata = _metadata(snapshot)
    metadata["dagster/row_count"] = info.row_count
    metadata["dagster/size_bytes"] = info.file_size_bytes
    metadata["dagster/column_schema"] = column_schema(lake.table(table.address.sql, at=snapshot.id), info)
    partitions: list[str] | None = None
    if table.partitions_def is not None:
        keys = table.partitions_def.get_partition_keys(dynamic_partitions_store=context.instance)
        partitions = touched_partitions(lake, table, snapshot, keys, most=most)
        if not partitions:
            metadata["ducklake/partitions"] = "unknown" if partitions is None else "none of the asset's"
    whole_asset: list[str | None] = [None]
    for partition in partitions or whole_asset:
        yield dg.AssetMaterialization(asset_key=table.key, partition=partition, description=snapshot.message, metadata=metadata)


def _metadata(snapshot: Snapshot) -> dict[str, Any]:
    facts = {
        "ducklake/snapshot_id": snapshot.id,
        "ducklake/committed_at": dg.MetadataValue.timestamp(snapshot.time),
        "ducklake/changes": snapshot.changes,
        "ducklake/author": snapshot.author,
        "ducklake/message": snapshot.message,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}
