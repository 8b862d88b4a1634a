"""Keep snapshots that runs still need: those of unfinished runs and of runs that are to be kept."""

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
"""Tag of a run of which all snapshots are kept, with the value ``true``."""
_UNFINISHED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
# Clocks of Dagster's storage and of the catalog may differ.
_MARGIN = timedelta(minutes=5)
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What runs need.

    Attributes:
        since: When the oldest run began that is not over; None when there is none. It may use every snapshot that was the newest one
            then or later, and every file that was not to be deleted by then.
        run_id: Of that run.
        kept_runs: Runs of which all snapshots are kept.
        reads: Snapshots that inputs of runs read which are not over, each with the run. They may be older than the run, if it resumes
            another one.
        resumed: Runs that such a run resumes, whose commits it reads as they were, each with the run.
    """

    since: datetime | None = None
    run_id: str | None = None
    kept_runs: Collection[str] = ()
    reads: Mapping[int, str] = field(default_factory=dict)
    resumed: Mapping[str, str] = field(default_factory=dict)

    def pinned(self, snapshots: Sequence[Snapshot]) -> dict[int, str]:
        """Snapshots that must stay, with the reason.

        Args:
            snapshots: Of the lake, ascending.
        """
        found = {one.id: f"committed by run {run}, which is tagged {KEEP}" for one in snapshots if (run := _run_of(one)) in self.kept_runs}
        for one in snapshots:
            reader = self.reads.get(one.id) or self.resumed.get(_run_of(one) or "")
            if reader is not None:
                found[one.id] = f"run {reader}, which is not over, reads it"
        if self.since is not None:
            # Ids ascend with every commit, times need not: a clock may have been set back since. Times still to come tell nothing.
            now = datetime.now(UTC)
            later = next((one.id for one in snapshots if self.since < one.time <= now), None)
            older = [one for one in snapshots if one.time <= self.since and (later is None or one.id < later)]
            first = older[-1].id if older else -1
            found |= {one.id: f"run {self.run_id}, which is not over, may use it" for one in snapshots if one.id >= first}
        return found

    def latest(self, bound: datetime) -> datetime:
        """The same point in time, or the one from which a run may need what became unneeded since."""
        return bound if self.since is None else min(bound, self.since)


def find_pins(lake: DuckLake, instance: dg.DagsterInstance, own_run: str, *, longest: timedelta) -> Pins:
    """Ask Dagster which runs are not over, what their inputs read, and which runs are to be kept.

    Args:
        lake: The lake.
        instance: Holds the runs.
        own_run: The run that asks, which needs nothing.
        longest: Runs that began longer ago count as lost: they would keep everything for ever.
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
    running = [(began, run.run_id) for began, run in unfinished if run.status in _UNFINISHED]
    since, run_id = min(running, default=(None, None))
    return Pins(since=since - _MARGIN if since is not None else None, run_id=run_id, kept_runs=kept, reads=reads, resumed=resumed)


def _with_former(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[dg.DagsterRun]:
    """The run, if it has begun, and those that it executes again."""
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
    """Expire snapshots but those that runs need.

    Returns:
        The plan or outcome, and the snapshots that would have gone but for a run, with the reason.

    Raises:
        NotFoundError: Others kept expiring the same snapshots.
    """
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
            # Somebody else expired some of them in the meantime.
            if not left:
                raise
    raise AssertionError


def _run_of(snapshot: Snapshot) -> str | None:
    found = dagster_facts(snapshot).get("run_id")
    return found if isinstance(found, str) else None
