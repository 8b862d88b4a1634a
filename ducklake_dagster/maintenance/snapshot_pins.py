"""Keep snapshots that runs still need: those that unfinished runs may read, and those of runs that are tagged to be kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import NotFoundError
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.io.read_points import lake_identity, logged_pin

if TYPE_CHECKING:
    from ducklake_core import DuckLake, ExpiryResult, Snapshot


KEEP = "ducklake/keep"
"""Tag of a run, with the value ``true``, that keeps all of its snapshots."""
_UNFINISHED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
# Clocks of Dagster's storage and of the catalog may differ by this much.
_MARGIN = timedelta(minutes=5)
# Attempts to expire, when another process keeps expiring the same snapshots.
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Snapshots and files that runs need.

    Attributes:
        since: Start of the oldest unfinished run, None when there is none. The run may use every snapshot that was the newest one then or
            later, and every file that was not scheduled for deletion then.
        run_id: Id of that run.
        kept_runs: Ids of runs whose snapshots are all kept.
        reads: Snapshots that inputs of unfinished runs read, each with the run. They may be older than the run, if it resumes another.
        resumed: Runs that an unfinished run resumes, and whose commits it reads, each with the unfinished run.
    """

    since: datetime | None = None
    run_id: str | None = None
    kept_runs: Collection[str] = ()
    reads: Mapping[int, str] = field(default_factory=dict)
    resumed: Mapping[str, str] = field(default_factory=dict)

    def pinned(self, snapshots: Sequence[Snapshot]) -> dict[int, str]:
        """Return snapshots that must stay, with the reason.

        Args:
            snapshots: Snapshots of the lake, ascending.
        """
        # An unfinished run keeps what it may have read before it pins anything, which is only known by time:
        #
        #   snapshots     4     5     6     7     8
        #   run began              |
        #   kept                5     6     7     8        5 was the newest at the start
        #
        # In addition: pins in the event log, commits of the runs that it resumes, and commits of runs tagged ducklake/keep.
        found = {one.id: f"committed by run {run}, which is tagged {KEEP}" for one in snapshots if (run := _run_of(one)) in self.kept_runs}
        for one in snapshots:
            reader = self.reads.get(one.id) or self.resumed.get(_run_of(one) or "")
            if reader is not None:
                found[one.id] = f"run {reader}, which is unfinished, reads it"
        if self.since is not None:
            # Ids ascend with every commit, but times need not: a clock may have been set back. A time in the future proves nothing.
            now = datetime.now(UTC)
            later = next((one.id for one in snapshots if self.since < one.time <= now), None)
            older = [one for one in snapshots if one.time <= self.since and (later is None or one.id < later)]
            first = older[-1].id if older else -1
            found |= {one.id: f"run {self.run_id}, which is unfinished, may use it" for one in snapshots if one.id >= first}
        return found

    def latest(self, bound: datetime) -> datetime:
        """Return the bound, or the start of the oldest unfinished run when that is earlier: the run may need what became unneeded since."""
        return bound if self.since is None else min(bound, self.since)


def find_pins(lake: DuckLake, instance: dg.DagsterInstance, own_run: str, *, longest: timedelta) -> Pins:
    """Return the pins of unfinished runs and of runs that are to be kept, from Dagster's instance.

    Args:
        lake: The lake.
        instance: Instance that stores the runs.
        own_run: Id of the maintenance run itself, which needs no snapshots.
        longest: Age after which an unfinished run counts as lost, because it would otherwise protect all snapshots for ever.
    """
    kept = frozenset(instance.get_run_ids(filters=dg.RunsFilter(tags={KEEP: "true"})))
    oldest = datetime.now(UTC) - longest
    unfinished = []
    for record in instance.get_run_records(filters=dg.RunsFilter(statuses=[*_UNFINISHED, *_WAITING])):
        began = datetime.fromtimestamp(record.start_time, UTC) if record.start_time is not None else record.create_timestamp
        if record.dagster_run.run_id != own_run and began >= oldest:
            unfinished.append((began, record.dagster_run))
    reads: dict[int, str] = {}
    resumed: dict[str, str] = {}
    identity = lake_identity(lake) if unfinished else ""
    for _, run in unfinished:
        for one in _with_former(instance, run):
            pin = logged_pin(instance, one.run_id, identity)
            if pin is not None:
                reads[pin] = resumed[one.run_id] = run.run_id
    # A waiting run has read nothing yet, so only the runs that it resumes pin snapshots.
    running = [(began, run.run_id) for began, run in unfinished if run.status in _UNFINISHED]
    since, run_id = min(running, default=(None, None))
    return Pins(since=since - _MARGIN if since is not None else None, run_id=run_id, kept_runs=kept, reads=reads, resumed=resumed)


def _with_former(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[dg.DagsterRun]:
    """Yield the run, if it has begun, and the runs that it re-executes."""
    if run.status in _UNFINISHED:
        yield run
    while run.parent_run_id is not None:
        former = instance.get_run_by_id(run.parent_run_id)
        if former is None:
            return
        run = former
        yield run


def expire_unpinned(
    lake: DuckLake, pins: Pins, *, older_than: timedelta, keep_last: int, min_age: timedelta, dry_run: bool
) -> tuple[ExpiryResult, dict[int, str]]:
    """Expire snapshots except those that runs need.

    Args:
        lake: The lake.
        pins: Snapshots and runs to keep.
        older_than: Age at which snapshots expire.
        keep_last: Number of newest snapshots that never expire.
        min_age: Minimum age of snapshots that expire; younger ones may be in use.
        dry_run: Whether to only plan.

    Returns:
        The plan or result, and the snapshots that were kept only for a run, with the reason.

    Raises:
        NotFoundError: Another process expired the same snapshots in every attempt.
    """
    # Plan by age, remove the pinned ones from the plan, expire the rest by id. An id that another process expired in between is an error,
    # so plan again.
    how = {"older_than": older_than, "keep_last": keep_last, "min_age": min_age}
    for left in reversed(range(_TRIES)):
        plan = lake.expire_snapshots(**how, dry_run=True)  # type: ignore[arg-type]
        pinned = pins.pinned(lake.snapshots())
        spared = {number: pinned[number] for number in plan.snapshot_ids if number in pinned}
        if dry_run and not spared:
            return plan, {}
        chosen = [number for number in plan.snapshot_ids if number not in pinned]
        try:
            return lake.expire_snapshots(versions=chosen, min_age=min_age, dry_run=dry_run), spared
        except NotFoundError:
            # Another process expired some of them in the meantime.
            if not left:
                raise
    raise AssertionError


def _run_of(snapshot: Snapshot) -> str | None:
    found = dagster_facts(snapshot).get("run_id")
    return found if isinstance(found, str) else None
