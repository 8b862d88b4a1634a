"""Expire snapshots, and hold named snapshots back (specification: Expire Snapshots)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import uuid4

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.options import Hold, delete_hold, read_holds, store_hold
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.expiry import (
    DeadTable,
    NeededSnapshots,
    Unneeded,
    UnneededFile,
    drop_superseded,
    expire,
    lock_snapshots,
    needed_by_transactions,
    superseded_tables,
    unneeded,
)
from ducklake_core.errors import AlreadyExistsError, CatalogError, DuckLakeError, NotFoundError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.options import Options, option_age
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.names import folded, storable
from ducklake_core.format.types.text import END, counted
from ducklake_core.maintenance.cleanup import AGE_FLOOR, Age, age_text, before, check_floor, option_text, threshold
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.request import MaintenanceResult, MaintenanceStep, ProgressMeter, StepOutcome, id_ranges, listed

SnapshotTime: TypeAlias = tuple[int, datetime | None]
"""Id and time of a snapshot, as ``CatalogReader.snapshot_times`` gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringSnapshot:
    """A snapshot to forget, and why; the time is None where it is missing in a catalog that was edited."""

    id: int
    time: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSnapshot:
    """A snapshot that is old enough to be forgotten, and what keeps it.

    Attributes:
        holds: Names of holds.
        transaction: Description of an open transaction of another program that needs the snapshot.
    """

    id: int
    time: datetime | None
    holds: tuple[str, ...] = ()
    transaction: str | None = None

    @property
    def reason(self) -> str:
        """Return in words why the snapshot stays."""
        held = [f"held as {', '.join(map(repr, self.holds))}"] if self.holds else []
        return "; ".join([*held, *([f"{self.transaction} needs it"] if self.transaction else [])])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExpiryResult(MaintenanceResult):
    """The plan or the outcome of expiring snapshots.

    Attributes:
        dry_run: Whether this is only the plan.
        snapshots: Snapshots to forget, by id.
        files: Files that thereby lose their last reader, to be scheduled for deletion.
        tables: Dropped tables that are forgotten with them.
        held: Snapshots that would have expired but for a hold or an open transaction.
    """

    dry_run: bool
    snapshots: tuple[ExpiringSnapshot, ...]
    files: tuple[UnneededFile, ...]
    tables: tuple[DeadTable, ...]
    held: tuple[HeldSnapshot, ...] = ()

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """Ids of the snapshots."""
        return tuple(snapshot.id for snapshot in self.snapshots)

    @property
    def bytes_scheduled(self) -> int:
        """Bytes of the files."""
        return sum(file.file_size_bytes for file in self.files)

    def lines(self) -> list[str]:
        """Return the plan in words: one line per snapshot, table and file, then the sum."""
        return self._lines(None)

    def _lines(self, most: int | None) -> list[str]:
        would = "would expire" if self.dry_run else "expired"
        lines = listed(self.snapshots, lambda s: f"{would} snapshot {s.id} of {_time_text(s.time)}: {s.reason}", most, _left_out)
        lines += listed(
            self.held,
            lambda s: f"kept snapshot {s.id} of {_time_text(s.time)}: {s.reason}",
            most,
            lambda rest: f"{_left_out(rest)}, kept too",
        )
        lines += listed(
            self.tables, lambda one: f"  forget dropped table {one.name}", most, lambda rest: f"{counted(len(rest), 'more dropped table')}"
        )
        lines += listed(
            self.files,
            lambda f: f"  schedule {f.kind} file {f.path} ({format_bytes(f.file_size_bytes)}) of {f.table}: {f.reason}",
            most,
            lambda rest: f"{counted(len(rest), 'more file')} ({format_bytes(sum(f.file_size_bytes for f in rest))})",
        )
        size = format_bytes(self.bytes_scheduled)
        would_be = "would be" if self.dry_run else "was" if len(self.files) == 1 else "were"
        files = f"{counted(len(self.files), 'file')} ({size}) {would_be} scheduled for deletion"
        return [*lines, f"{would} {counted(len(self.snapshots), 'snapshot')}; {files}"]

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each snapshot, dropped table and file."""
        done: StepOutcome = "planned" if self.dry_run else "done"

        def step(target: str, action: str, reason: str, outcome: StepOutcome = done, files: int = 0, size: int = 0) -> MaintenanceStep:
            return MaintenanceStep(
                verb="expire_snapshots", target=target, action=action, reason=reason, outcome=outcome, files=files, bytes=size
            )

        steps = [step(f"snapshot {one.id}", "forget it", one.reason) for one in self.snapshots]
        steps += [step(f"snapshot {s.id}", "forget it", s.reason, "skipped") for s in self.held]
        steps += [step(table.name, "forget the dropped table", "no snapshot shows it any more") for table in self.tables]
        return (
            *steps,
            *(step(f.path, f"schedule the {f.kind} file for deletion", f.reason, done, 1, f.file_size_bytes) for f in self.files),
        )


def _left_out(snapshots: Sequence[ExpiringSnapshot | HeldSnapshot]) -> str:
    times = [one.time for one in snapshots if one.time is not None]
    span = f", of {_time_text(min(times))} to {_time_text(max(times))}" if times else ""
    return f"{counted(len(snapshots), 'more snapshot')}: {id_ranges(one.id for one in snapshots)}{span}"


def _time_text(time: datetime | None) -> str:
    return "an unknown time" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def expire_snapshots(
    database: Database,
    info: LakeInfo,
    *,
    older_than: Age | None = None,
    versions: Iterable[int] | None = None,
    keep_last: int | None = None,
    min_age: timedelta | str = AGE_FLOOR,
    dry_run: bool = False,
    progress: ProgressMeter | None = None,
) -> ExpiryResult:
    """Plan, and unless ``dry_run`` carry out, the expiry of snapshots. See ``DuckLake.expire_snapshots`` for the arguments."""
    check_keep_last(keep_last)
    wanted = None if versions is None else frozenset(versions)
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        snapshots = reader.snapshot_times()
        now = database.now(connection)
        if wanted is not None:
            if older_than is not None or keep_last is not None:
                raise UsageError("give either versions, or older_than and keep_last", parameter="versions")
            chosen = _by_version(snapshots, wanted, min_age, now)
        else:
            option = Options.from_mapping(reader.options()).expire_older_than if older_than is None else None
            setting = option_text("expire_older_than", option) if option is not None else "older_than"
            age = older_than if option is None else option_age("expire_older_than", option, now)
            chosen = _by_age(snapshots, age, keep_last, min_age, now, setting=setting)
        chosen, held = _split(chosen, _holders(reader, now), needed_by_transactions(connection, database))
        planned = unneeded(connection, database.tables, info, {snapshot.id for snapshot in chosen}) if dry_run and chosen else Unneeded()
    if dry_run or not chosen:
        return _result(chosen, planned, held, dry_run=dry_run)

    def attempt() -> ExpiryResult:
        with database.write() as connection:
            if database.abilities.concurrent_writers:
                # A new hold locks its snapshot too, so a hold and an expiry of one snapshot cannot both succeed.
                lock_snapshots(connection, database, [snapshot.id for snapshot in chosen])
            # Read after the lock: a hold that was added meanwhile counts, and none can be added from here on.
            holders = _holders(CatalogReader(connection, info, database.tables), database.now(connection))
            free, late = _split(chosen, holders, needed_by_transactions(connection, database))
            gone, found = expire(connection, database, info, [snapshot.id for snapshot in free])
        expired = frozenset(gone)
        return _result([s for s in free if s.id in expired], found, (*held, *late), dry_run=False)

    meter = progress or ProgressMeter()
    meter.begin("expire_snapshots", "forget snapshots", "snapshots", len(chosen))
    done = run_write(attempt, "expire snapshots")
    meter.advance(len(chosen), size=done.bytes_scheduled)
    _drop_superseded(database)
    return done


def _drop_superseded(database: Database) -> None:
    """Drop tables of inlined rows that no snapshot needs. A table that another transaction uses stays until the next expiry."""
    if database.abilities.commits_at_ddl:
        return
    names: list[str] = []
    # The expiry itself has been committed.
    with suppress(CatalogError), database.read() as connection:
        names = superseded_tables(connection, database)
    for name in names:
        with suppress(CatalogError), database.write() as connection:
            drop_superseded(connection, database, name)


def check_keep_last(keep_last: int | None) -> None:
    """Check that at least one snapshot stays; None means that the caller gave no number.

    Raises:
        UsageError: No snapshot would stay.
    """
    if keep_last is not None and keep_last < 1:
        raise UsageError("keep_last must be at least 1: the newest snapshot is the lake itself", parameter="keep_last")


def _by_version(
    snapshots: Sequence[SnapshotTime], wanted: Collection[int], min_age: timedelta | str, now: datetime
) -> list[ExpiringSnapshot]:
    newest, _ = snapshots[-1]
    if newest in wanted:
        raise UsageError(f"snapshot {newest} is the newest and cannot be expired", snapshot_id=newest)
    missing = sorted(set(wanted).difference(number for number, _ in snapshots))
    if missing:
        raise NotFoundError(f"there are no snapshots {missing}: never committed, or expired already", snapshot_ids=tuple(missing))
    dated = [
        (number, time, earliest) for (number, time), earliest in zip(snapshots, _earliest(snapshots, now), strict=True) if number in wanted
    ]
    limit = before(now, min_age, "min_age")
    # No floor is no question: the clock of who committed may be ahead of the catalog's.
    young = [number for number, _, earliest in dated if limit < now and (earliest is None or earliest > limit)]
    if young:
        raise UsageError(
            f"of versions, snapshots {young} are younger than {age_text(min_age)}, or nobody knows how old, and running queries may still "
            "read them; leave them out, or give a smaller min_age when you know that nothing runs",
            parameter="versions",
        )
    return [ExpiringSnapshot(id=number, time=time, reason="asked for by its id") for number, time, _ in dated]


def _by_age(
    snapshots: Sequence[SnapshotTime],
    older_than: Age | None,
    keep_last: int | None,
    min_age: timedelta | str,
    now: datetime,
    *,
    setting: str,
) -> list[ExpiringSnapshot]:
    if older_than is None and keep_last is None:
        raise UsageError(
            "nothing says which snapshots to expire: give older_than, versions or keep_last, or set the option expire_older_than"
        )
    # The newest snapshot is the lake itself.
    kept = 1 if keep_last is None else keep_last
    if older_than is not None:
        limit = threshold(older_than, now)
        check_floor(setting, limit, now, min_age)
        reason = f"older than {limit:%Y-%m-%d %H:%M:%S} UTC"
    else:
        limit = before(now, min_age, "min_age")
        reason = f"not among the last {kept}, and older than {age_text(min_age)}"
    # A slice up to a negative place would take what is to be kept, of a lake with fewer snapshots.
    candidates = zip(snapshots[: max(len(snapshots) - kept, 0)], _earliest(snapshots, now), strict=False)
    # One without a time, in a catalog that was edited, is not known to be so old.
    return [
        ExpiringSnapshot(id=number, time=time, reason=reason)
        for (number, time), earliest in candidates
        if earliest is not None and earliest < limit
    ]


def _earliest(snapshots: Sequence[SnapshotTime], now: datetime) -> list[datetime | None]:
    """Return the earliest time of each commit: not before that of a smaller id, even if a clock was set back.

    A time that is still to come is wrong itself, and says nothing about later snapshots.

    >>> [time.hour for time in _earliest([(0, datetime(2026, 1, 1, 8)), (1, datetime(2026, 1, 1, 3))], datetime(2026, 1, 1, 9))]
    [8, 8]
    """
    found: list[datetime | None] = []
    latest: datetime | None = None
    for _, time in snapshots:
        if time is not None and time <= now:
            latest = time if latest is None else max(latest, time)
        found.append(time if time is None or latest is None else max(latest, time))
    return found


def _holders(reader: CatalogReader, now: datetime) -> dict[int, tuple[str, ...]]:
    """Return names of the holds that are not over, by snapshot."""
    found: dict[int, tuple[str, ...]] = {}
    for hold in read_holds(reader.connection, reader.catalog):
        if not hold.is_over(now):
            found[hold.snapshot_id] = (*found.get(hold.snapshot_id, ()), hold.name)
    return found


def _split(
    chosen: Sequence[ExpiringSnapshot], holders: Mapping[int, tuple[str, ...]], needed: NeededSnapshots | None
) -> tuple[list[ExpiringSnapshot], tuple[HeldSnapshot, ...]]:
    """Return the snapshots that may go, and those that a hold or an open transaction keeps."""
    free, held = [], []
    for snapshot in chosen:
        transaction = needed.transaction if needed is not None and snapshot.id >= needed.first else None
        if snapshot.id in holders or transaction is not None:
            held.append(HeldSnapshot(id=snapshot.id, time=snapshot.time, holds=holders.get(snapshot.id, ()), transaction=transaction))
        else:
            free.append(snapshot)
    return free, tuple(held)


def _result(snapshots: Sequence[ExpiringSnapshot], found: Unneeded, held: Sequence[HeldSnapshot] = (), *, dry_run: bool) -> ExpiryResult:
    return ExpiryResult(dry_run=dry_run, snapshots=tuple(snapshots), files=found.files, tables=found.tables, held=tuple(held))


class Holds:
    """Names on snapshots of a lake that must not expire. Made by :attr:`DuckLake.holds`.

    :meth:`DuckLake.expire_snapshots` keeps a held snapshot, with every file and definition that it needs, whatever the other arguments are.
    **DuckDB knows no holds**: its ``ducklake_expire_snapshots`` expires held snapshots as well. Holds are rows of ``ducklake_metadata``,
    which DuckDB lists among the options of the lake. They have no history and make no snapshot.
    """

    def __init__(self, database: Database, info: LakeInfo) -> None:
        self._database = database
        self._info = info

    def __repr__(self) -> str:
        return f"<Holds of {self._database.address}>"

    def list(self) -> list[Hold]:
        """Return all holds by name, including those that have ended (:attr:`Hold.has_ended`)."""
        with self._database.read() as connection:
            found = read_holds(connection, self._database.tables)
            now = self._database.now(connection) if any(hold.until is not None for hold in found) else None
        return [hold if now is None else replace(hold, has_ended=hold.is_over(now)) for hold in found]

    def add(self, name: str, snapshot: int | datetime | None = None, *, until: datetime | None = None, replace: bool = False) -> Hold:
        """Hold a snapshot under a name.

        Args:
            name: Any text; names are compared without regard to case.
            snapshot: Id of the snapshot, or a time with a zone, which means the last snapshot at or before it; the newest when None.
            until: When the hold ends by itself: a time with a zone. It stays until it is removed when None.
            replace: Whether a hold of that name is moved to this snapshot.

        Raises:
            AlreadyExistsError: There is a hold of that name on another snapshot or until another time, and it is not to be replaced.
            NotFoundError: There is no such snapshot, or it was expired.
            UsageError: No name, or an end that is over already.
        """
        self._database.check_writable()
        arguments.filled("name", name)
        arguments.check_flags(replace=replace)
        end = arguments.optional(arguments.time, "until", until)

        def attempt() -> Hold:
            with self._database.write() as connection:
                found = self._snapshot_id(CatalogReader(connection, self._info, self._database.tables), snapshot)
                if end is not None and end <= self._database.now(connection):
                    raise UsageError(f"until is {end.isoformat()}, which is over already: the hold would hold nothing", parameter="until")
                hold = Hold(name=name, snapshot_id=found, until=end)
                other = _find(read_holds(connection, self._database.tables), name)
                if other is not None and not replace and (other.snapshot_id, other.until) != (found, end):
                    raise AlreadyExistsError(
                        f"there is a hold {other.name!r} on snapshot {other.snapshot_id} already; "
                        "choose another name, or move it with replace",
                        parameter="replace",
                        hold=other.name,
                        snapshot_id=other.snapshot_id,
                    )
                store_hold(connection, self._database.tables, hold)
                return hold

        return run_write(attempt, f"hold a snapshot as {name!r}")

    def remove(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a hold; its snapshot may expire from then on.

        Raises:
            NotFoundError: There is no hold of that name.
        """
        self._database.check_writable()
        storable("name", name)
        removed: set[str] = set()

        def attempt() -> None:
            with self._database.write() as connection:
                found = _find(read_holds(connection, self._database.tables), name)
                if found is not None:
                    removed.add(name)
                    delete_hold(connection, self._database.tables, found)
                elif not (if_exists or removed):
                    raise NotFoundError(f"there is no hold {name!r}; lake.holds.list() gives all", hold=name)

        run_write(attempt, f"remove the hold {name!r}")

    def pinned(
        self, snapshot: int | datetime | None = None, *, reader: str = "reader", at_most: timedelta | str = timedelta(days=1)
    ) -> AbstractContextManager[Hold]:
        """Hold a snapshot as long as something reads it: a hold of a name of its own, which is removed at the end.

        Any number of readers may pin one snapshot. A reader that is killed keeps it until ``at_most`` is over.

        Args:
            snapshot: As in :meth:`add`; the newest when None.
            reader: The beginning of the hold's name, for those who list them.
            at_most: Longest time that the snapshot stays: a timedelta, or a string such as ``"3 hours"``.

        Returns:
            A context manager of the hold, whose ``snapshot_id`` is what to read at.

        Raises:
            NotFoundError: There is no such snapshot, or it was expired.
            UsageError: ``at_most`` is no span of time, or none above zero.
        """
        span = arguments.age("at_most", at_most)
        storable("reader", reader)
        if span <= timedelta(0):
            raise UsageError(f"at_most must be above zero, not {span}", parameter="at_most")
        return self._pinned(snapshot, reader, span)

    @contextmanager
    def _pinned(self, snapshot: int | datetime | None, reader: str, at_most: timedelta) -> Iterator[Hold]:
        with self._database.read() as connection:
            now = self._database.now(connection)
        # For ever where the calendar ends before.
        until = now + at_most if at_most < END - now else None
        hold = self.add(f"{reader} {uuid4()}", snapshot, until=until)
        try:
            yield hold
        except BaseException as error:
            # Why the reader failed is what its caller has to know.
            try:
                self.remove(hold.name, if_exists=True)
            except DuckLakeError as problem:
                error.add_note(f"the hold {hold.name!r} is still there, as it could not be removed: {problem.message}")
            raise
        self.remove(hold.name, if_exists=True)

    def _snapshot_id(self, reader: CatalogReader, wanted: int | datetime | None) -> int:
        """Return the snapshot that is meant, which cannot expire before the transaction ends."""
        if wanted is None:
            number = reader.latest_snapshot().id
        else:
            at = arguments.snapshot("snapshot", wanted)
            number = (reader.snapshot(timestamp=at) if isinstance(at, datetime) else reader.snapshot(version=at)).id
        # An expiry that was faster has deleted the row by the time that it can be locked.
        if not lock_snapshots(reader.connection, self._database, [number]):
            raise NotFoundError(f"snapshot {number} was expired just now", snapshot_id=number)
        return number


def _find(holds: list[Hold], name: str) -> Hold | None:
    return next((hold for hold in holds if folded(hold.name) == folded(name)), None)
