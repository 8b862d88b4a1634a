"""Choose the snapshot that an input reads, or the changes since the last one that its asset read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.assets.provenance import materialising_run

if TYPE_CHECKING:
    from ducklake_core import ChangeFeed, Condition, DuckLake, Table
    from ducklake_dagster.io.initial_rows import AllRowsAsInserts


# The snapshot that an input reads; the first row that applies (see TableInput._moment):
#
#   ducklake/run_id               the snapshot that this run's materialisation became    from the event log
#   ducklake/snapshot or as_of    as given
#   pin_reads, ducklake/changes   the pin: the newest snapshot when the run first read    from the event log
#   otherwise                     the newest snapshot
#
# ducklake/changes also has a lower end, the ReadPoint in the metadata of the asset's last materialisation. Pins and read points live in
# Dagster's event log because the steps of a run are separate processes, and because a retry must read what the failed attempt read.

PINNED = "ducklake/pinned_snapshot"
SNAPSHOT = "ducklake/snapshot_id"
BRANCH = "ducklake/branch"
_LAKE = "ducklake/lake"
_READ = "ducklake/read/"
# Number of materialisations that one query of the event log returns.
_EVENTS_AT_ONCE = 200

_FEED = ("snapshot_id", "rowid", "change_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPoint:
    """The point up to which a materialisation has read a table.

    Attributes:
        table_id: Id of the table, because another table may have its name now.
        snapshot: The last snapshot that was read.
        lake: Identity of the lake. Ids are not valid in another lake, such as the lake of a branch.
    """

    table_id: int
    snapshot: int
    lake: str


def lake_identity(lake: DuckLake) -> str:
    """Return the identity of a catalog: the uuid of its first schema, main, which is created with it and never used again."""
    return min(lake.schemas(), key=lambda schema: schema.id).uuid


def step_of(context: dg.InputContext) -> Any:
    """Return the step that loads an input; None outside of a run."""
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        return None


def pinned_snapshot(context: dg.InputContext, lake: DuckLake, branch: str | None = None) -> int | None:
    """Return the snapshot that all inputs of the run read: the newest one when the first of them was loaded.

    It is an event in the log of the run, the first one of its kind, so that steps in several processes agree on it, and so do runs that
    resume the run after a failure. An asset that the run itself has materialised is read as its commit left it.

    Args:
        context: The input.
        lake: The lake that is read.
        branch: The branch that the table belongs to, None for production's.

    Returns:
        None outside of a run.
    """
    step = step_of(context)
    if step is None:
        return None
    run = _first_run(step)
    identity = lake_identity(lake)
    found = logged_pin(step.instance, run.run_id, identity)
    if found is None:
        newest = lake.snapshot().id
        from dagster._core.events import EngineEventData

        step.instance.report_engine_event(
            f"Inputs of this run read snapshot {newest} of the lake",
            dagster_run=run,
            engine_event_data=EngineEventData(metadata={PINNED: newest, _LAKE: identity}),
        )
        # Two processes may have found no pin and reported one each: both read the log again, and its first entry wins.
        found = logged_pin(step.instance, run.run_id, identity)
    assert found is not None
    if not context.has_asset_key:
        return found
    # A table that the run has written is read as its commit left it, also by a run that resumes this one.
    runs = _resumed_runs(step)
    own = [number for one in runs for number in _snapshots_of(step.instance, one.run_id, context.asset_key, branch)]
    return max([found, *own])


def materialized_snapshot(context: dg.InputContext, run_id: str, branch: str | None = None) -> int:
    """Return the snapshot that a run's materialisation of the upstream asset became; the last one, if it became several.

    Args:
        context: The input.
        run_id: The run.
        branch: The branch that the table belongs to, None for production's.

    Raises:
        NotFoundError: The run did not materialise the asset there, or not all of the partitions that are loaded.
    """
    asset = context.asset_key.to_user_string()
    wanted = set(context.asset_partition_keys) if context.has_asset_partitions else set()
    found: list[int] = []
    for event in _materializations(context.instance, run_id, context.asset_key):
        snapshot = event.metadata.get(SNAPSHOT)
        if snapshot is not None and isinstance(snapshot.value, int) and _branch_of(event) == branch:
            found.append(snapshot.value)
            wanted.discard(event.partition or "")
    if not found or wanted:
        some = f"partitions {', '.join(sorted(wanted))} of {asset}" if found else asset
        where = "in a lake" if branch is None else f"in branch {branch}"
        raise NotFoundError(
            f"run {run_id} did not materialise {some} {where}, or its events were deleted from the instance. Choose another run_id",
            run_id=run_id,
        )
    return max(found)


def last_read(context: dg.InputContext, reader_branch: str | None = None) -> ReadPoint | None:
    """Return the point up to which the last materialisation of the asset has read this input; None when no event records it.

    Args:
        context: The input.
        reader_branch: The branch that the asset is materialised in, None for production. Each branch has its own read point.

    Raises:
        UsageError: The step makes several assets or partitions, which may have different read points.
    """
    step = step_of(context)
    if step is None:
        return None
    for materialization in _materializations_of(step.instance, *_reader(context, step)):
        found = materialization.metadata.get(_READ + context.asset_key.to_user_string())
        if found is not None and isinstance(found.value, dict) and found.value.get("branch") == reader_branch:
            return ReadPoint(
                table_id=int(found.value["table_id"]), snapshot=int(found.value["snapshot"]), lake=str(found.value.get("lake"))
            )
    return None


def _materializations_of(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None) -> Iterator[dg.AssetMaterialization]:
    """Yield the materialisations of an asset, or of one of its partitions, the newest first."""
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition else None)
    cursor, has_more = None, True
    while has_more:
        found = instance.fetch_materializations(wanted, limit=_EVENTS_AT_ONCE, cursor=cursor)
        yield from (record.asset_materialization for record in found.records if record.asset_materialization is not None)
        cursor, has_more = found.cursor, found.has_more


def note_read(context: dg.InputContext, point: ReadPoint, reader_branch: str | None = None) -> None:
    """Record the read point in the materialisation that this step ends with; a step that fails records nothing."""
    step = step_of(context)
    if step is None or step.assets_def is None or not context.has_asset_key:
        return
    branch = {} if reader_branch is None else {"branch": reader_branch}
    value = dg.MetadataValue.json({"snapshot": point.snapshot, "table_id": point.table_id, "lake": point.lake, **branch})
    for key in step.assets_def.keys:
        step.add_asset_metadata({_READ + context.asset_key.to_user_string(): value}, asset_key=key)


def _reader(context: dg.InputContext, step: Any) -> tuple[dg.AssetKey, str | None]:
    """Return the asset that takes the input, and its partition."""
    subject = context.asset_key.to_user_string()
    keys = step.assets_def.keys if step.assets_def is not None else set()
    if len(keys) != 1:
        raise UsageError(
            f"input {subject}: ducklake/changes needs a step with one asset, but this step makes {len(keys)}. Split the step into single "
            "assets",
            input=subject,
        )
    if step.assets_def.partitions_def is None:
        return next(iter(keys)), None
    keys_in_run = {step.partition_key_range.start, step.partition_key_range.end}
    if len(keys_in_run) > 1:
        raise UsageError(
            f"input {subject}: ducklake/changes needs a run with one partition, because each partition has its own read point. Set "
            "backfill_policy=dg.BackfillPolicy.multi_run()",
            input=subject,
        )
    return next(iter(keys)), keys_in_run.pop()


def _first_run(step: Any) -> dg.DagsterRun:
    """Return the run whose materialisation the step completes. It may have been lost after it had read, or after its commit."""
    run_id = materialising_run(step.instance, step.dagster_run, step.step.key)
    found: dg.DagsterRun = step.instance.get_run_by_id(run_id) or step.dagster_run
    return found


def _resumed_runs(step: Any) -> Iterator[dg.DagsterRun]:
    """Yield the run, and those that it resumes up to the first one."""
    first = _first_run(step).run_id
    run: dg.DagsterRun | None = step.dagster_run
    while run is not None:
        yield run
        run = step.instance.get_run_by_id(run.parent_run_id) if run.run_id != first and run.parent_run_id else None


def logged_pin(instance: dg.DagsterInstance, run_id: str, identity: str) -> int | None:
    """Return the snapshot that the inputs of a run read according to its log, None when it has no pin.

    Args:
        instance: Holds the log.
        run_id: The run.
        identity: The lake, by :func:`lake_identity`.
    """
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = entry.dagster_event
        metadata = event.engine_event_data.metadata if event is not None and event.event_specific_data is not None else {}
        if PINNED in metadata and metadata[_LAKE].value == identity:
            return int(str(metadata[PINNED].value))
    return None


def _materializations(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey) -> Iterator[dg.AssetMaterialization]:
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        event = entry.dagster_event
        if event is not None and event.asset_key == key:
            yield event.step_materialization_data.materialization


def _branch_of(event: dg.AssetMaterialization) -> str | None:
    found = event.metadata.get(BRANCH)
    return str(found.value) if found is not None else None


def _snapshots_of(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey, branch: str | None) -> Iterator[int]:
    for event in _materializations(instance, run_id, key):
        found = event.metadata.get(SNAPSHOT)
        if found is not None and isinstance(found.value, int) and _branch_of(event) == branch:
            yield found.value


def changed_rows(
    table: Table, since: ReadPoint | None, columns: tuple[str, ...] | None, where: Condition | str | None, subject: str
) -> ChangeFeed | AllRowsAsInserts:
    """Return the changes after a snapshot up to the snapshot of the table; all rows without a read point.

    Args:
        table: The table at the snapshot to read.
        since: The point up to which the input was read; None without one.
        columns: The table's columns to load, None for all.
        where: Condition on rows.
        subject: The input, for messages.

    Raises:
        UsageError: The table was dropped and created again since it was read.
        NotFoundError: Snapshots after the one that was read last were expired, so changes would be missing.
    """
    from ducklake_dagster.io.initial_rows import AllRowsAsInserts

    names = list(columns) if columns is not None else [column.name for column in table.schema]
    if since is None:
        return AllRowsAsInserts(table.scan([*_FEED[:2], *names], where))
    again = "Materialise the asset once with ducklake_input(changes='beginning') on its input"
    if since.table_id != table.state.id:
        raise UsageError(f"input {subject}: {table.name} was dropped and re-created since it was last read. {again}", table=table.name)
    if since.snapshot >= table.snapshot_id:
        # No commit was made since then, so a feed has no first snapshot.
        return AllRowsAsInserts(table.scan([*_FEED[:2], *names], "FALSE"))
    feed = table.changes(since.snapshot + 1, columns=[*_FEED, *columns] if columns is not None else None, where=where)
    try:
        # The feed is lazy, and a Spark frame would fail after this step: plan it here, where the error can name the remedy.
        feed.plan()
    except NotFoundError as error:
        raise NotFoundError(
            f"input {subject}: {table.name} was last read at snapshot {since.snapshot}, and later snapshots were expired: "
            f"{error.message}. {again}",
            table=table.name,
            snapshot_id=since.snapshot,
        ) from error
    return feed
