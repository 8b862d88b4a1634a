"""What maintenance must leave alone because a run needs it: snapshots of runs that are not over, and of runs that are to be kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import NotFoundError
from ducklake_dagster.provenance import dagster_facts

if TYPE_CHECKING:
    from ducklake_core import DuckLake, ExpiryResult, Snapshot

KEEP = "ducklake/keep"
"""Tag of a run of which all snapshots are kept, with the value ``true``."""
_UNFINISHED = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
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
    """

    since: datetime | None = None
    run_id: str | None = None
    kept_runs: Collection[str] = ()

    def pinned(self, snapshots: Sequence[Snapshot]) -> dict[int, str]:
        """Snapshots that must stay, with the reason.

        Args:
            snapshots: Of the lake, ascending.
        """
        found = {one.id: f"committed by run {run}, which is tagged {KEEP}" for one in snapshots if (run := _run_of(one)) in self.kept_runs}
        if self.since is not None:
            older = [one for one in snapshots if one.time <= self.since]
            first = older[-1].id if older else -1
            found |= {one.id: f"run {self.run_id}, which is not over, may use it" for one in snapshots if one.id >= first}
        return found

    def latest(self, bound: datetime) -> datetime:
        """The same point in time, or the one from which a run may need what became unneeded since."""
        return bound if self.since is None else min(bound, self.since)


def find_pins(instance: dg.DagsterInstance, own_run: str, *, longest: timedelta) -> Pins:
    """Ask Dagster which runs are not over, and which are to be kept.

    Args:
        instance: Holds the runs.
        own_run: The run that asks, which needs nothing.
        longest: Runs that began longer ago count as lost: they would keep everything for ever.
    """
    kept = instance.get_run_ids(filters=dg.RunsFilter(tags={KEEP: "true"}))
    oldest = datetime.now(UTC) - longest
    running = []
    for record in instance.get_run_records(filters=dg.RunsFilter(statuses=list(_UNFINISHED))):
        began = datetime.fromtimestamp(record.start_time, UTC) if record.start_time is not None else record.create_timestamp
        if record.dagster_run.run_id != own_run and began >= oldest:
            running.append((began, record.dagster_run.run_id))
    if not running:
        return Pins(kept_runs=frozenset(kept))
    began, run_id = min(running)
    return Pins(since=began - _MARGIN, run_id=run_id, kept_runs=frozenset(kept))


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
            return lake.expire_snapshots(versions=chosen, dry_run=dry_run), spared
        except NotFoundError:
            # Somebody else expired some of them in the meantime.
            if not left:
                raise
    raise AssertionError


def _run_of(snapshot: Snapshot) -> str | None:
    found = dagster_facts(snapshot).get("run_id")
    return found if isinstance(found, str) else None
