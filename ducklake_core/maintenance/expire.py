"""Expire snapshots, and hold snapshots so that they do not expire (specification: Expire Snapshots)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import uuid4

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.options import Hold, delete_hold, find_hold, read_holds, resolve_bound, store_hold
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
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.text import END, counted, shown
from ducklake_core.maintenance.cleanup import AGE_FLOOR, Age, age_text, before, check_floor, option_text, threshold
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.request import MaintenanceResult, MaintenanceStep, ProgressMeter, StepOutcome, id_ranges, listed

SnapshotTime: TypeAlias = tuple[int, datetime | None]
"""Id and time of a snapshot, as returned by ``CatalogReader.snapshot_times``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringSnapshot:
    """A snapshot to expire, and the reason. The time is None if an edited catalog lacks it."""

    id: int
    time: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSnapshot:
    """A snapshot that is old enough to expire, but is kept.

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
        """Return the reason why the snapshot is kept."""
        held = [f"held by {', '.join(map(repr, self.holds))}"] if self.holds else []
        return "; ".join([*held, *([f"{self.transaction} needs it"] if self.transaction else [])])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExpiryResult(MaintenanceResult):
    """The plan or outcome of expiring snapshots.

    Attributes:
        dry_run: Whether this is only the plan.
        snapshots: Expired snapshots, by id.
        files: Files that only they used, and that are scheduled for deletion.
        tables: Dropped tables that only they contained, and that are removed from the catalog.
        held: Snapshots that are kept because of a hold or an open transaction.
    """

    dry_run: bool
    snapshots: tuple[ExpiringSnapshot, ...]
    files: tuple[UnneededFile, ...]
    tables: tuple[DeadTable, ...]
    held: tuple[HeldSnapshot, ...] = ()

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """Ids of the expired snapshots."""
        return tuple(snapshot.id for snapshot in self.snapshots)

    @property
    def bytes_scheduled(self) -> int:
        """Bytes of the scheduled files."""
        return sum(file.file_size_bytes for file in self.files)

    def lines(self) -> list[str]:
        """Return a line for each snapshot, table and file, and a summary."""
        return self._lines(None)

    def _lines(self, most: int | None) -> list[str]:
        would = "would expire" if self.dry_run else "expired"
        lines = listed(self.snapshots, lambda s: f"{would} snapshot {s.id} of {_time_text(s.time)}: {s.reason}", most, _left_out)
        lines += listed(
            self.held,
            lambda s: f"kept snapshot {s.id} of {_time_text(s.time)}: {s.reason}",
            most,
            lambda rest: f"{_left_out(rest)}, kept",
        )
        lines += listed(
            self.tables, lambda one: f"  remove dropped table {one.name}", most, lambda rest: f"{len(rest):,} more dropped tables"
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
        steps += [step(table.name, "remove the dropped table", "no snapshot contains it") for table in self.tables]
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
    """Plan the expiry of snapshots, and run it unless ``dry_run`` is set; see ``DuckLake.expire_snapshots`` for the parameters."""
    check_keep_last(keep_last)
    wanted = None if versions is None else frozenset(versions)
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        snapshots = reader.snapshot_times()
        now = database.now(connection)
        if wanted is not None:
            if older_than is not None or keep_last is not None:
                raise UsageError("versions cannot be combined with older_than or keep_last. Remove one of them", parameter="versions")
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
                # A new hold locks its snapshot, too, so a hold and an expiry of one snapshot cannot both succeed.
                lock_snapshots(connection, database, [snapshot.id for snapshot in chosen])
            # Read after the lock: this includes holds that were added meanwhile, and none can be added from here on.
            holders = _holders(CatalogReader(connection, info, database.tables), database.now(connection))
            free, late = _split(chosen, holders, needed_by_transactions(connection, database))
            expired_ids, found = expire(connection, database, info, [snapshot.id for snapshot in free])
        expired = frozenset(expired_ids)
        return _result([s for s in free if s.id in expired], found, (*held, *late), dry_run=False)

    meter = progress or ProgressMeter()
    meter.begin("expire_snapshots", "forget snapshots", "snapshots", len(chosen))
    done = run_write(attempt, "expire snapshots")
    meter.advance(len(chosen), size=done.bytes_scheduled)
    _drop_superseded(database)
    return done


def _drop_superseded(database: Database) -> None:
    """Drop tables of inlined rows that no snapshot needs. A table that another transaction uses is kept until the next expiry."""
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
    """Check that at least one snapshot is kept.

    Args:
        keep_last: The argument; None if the caller did not pass it.

    Raises:
        UsageError: No snapshot would be kept.
    """
    if keep_last is not None and keep_last < 1:
        raise UsageError("keep_last must be at least 1, because the newest snapshot cannot expire", parameter="keep_last")


def _by_version(
    snapshots: Sequence[SnapshotTime], wanted: Collection[int], min_age: timedelta | str, now: datetime
) -> list[ExpiringSnapshot]:
    newest, _ = snapshots[-1]
    if newest in wanted:
        raise UsageError(f"Snapshot {newest} cannot expire, because it is the newest. Remove it from versions", snapshot_id=newest)
    missing = sorted(set(wanted).difference(number for number, _ in snapshots))
    if missing:
        raise NotFoundError(
            f"Snapshots {missing} do not exist or have already expired. Remove them from versions", snapshot_ids=tuple(missing)
        )
    dated = [
        (number, time, earliest) for (number, time), earliest in zip(snapshots, _earliest(snapshots, now), strict=True) if number in wanted
    ]
    limit = before(now, min_age, "min_age")
    # Without a minimum age, times are not compared: the clock of a writer may be ahead of the catalog's.
    young = [number for number, _, earliest in dated if limit < now and (earliest is None or earliest > limit)]
    if young:
        raise UsageError(
            f"Snapshots {young} of versions are younger than min_age ({age_text(min_age)}) or have no time, and running queries may still "
            "read them. Remove them from versions, or choose a smaller min_age if nothing else uses the lake",
            parameter="versions",
        )
    return [ExpiringSnapshot(id=number, time=time, reason="requested by id") for number, time, _ in dated]


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
        raise UsageError("No snapshots are selected. Pass older_than, versions or keep_last, or set the option expire_older_than")
    # The newest snapshot cannot expire.
    kept = 1 if keep_last is None else keep_last
    if older_than is not None:
        limit = threshold(older_than, now)
        check_floor(setting, limit, now, min_age)
        reason = f"older than {limit:%Y-%m-%d %H:%M:%S} UTC"
    else:
        limit = before(now, min_age, "min_age")
        reason = f"not one of the last {kept}, and older than {age_text(min_age)}"
    # A negative end of the slice would select snapshots to keep, if the lake has fewer snapshots.
    candidates = zip(snapshots[: max(len(snapshots) - kept, 0)], _earliest(snapshots, now), strict=False)
    # The age of a snapshot without a time, in an edited catalog, is unknown.
    return [
        ExpiringSnapshot(id=number, time=time, reason=reason)
        for (number, time), earliest in candidates
        if earliest is not None and earliest < limit
    ]


def _earliest(snapshots: Sequence[SnapshotTime], now: datetime) -> list[datetime | None]:
    """Return the earliest possible time of each commit: not before that of a smaller id, even if a clock was set back.

    A time in the future is wrong, and is not used for later snapshots.

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
    """Return names of the holds that have not ended, by snapshot."""
    found: dict[int, tuple[str, ...]] = {}
    for hold in read_holds(reader.connection, reader.catalog):
        if not hold.is_over(now):
            found[hold.snapshot_id] = (*found.get(hold.snapshot_id, ()), hold.name)
    return found


def _split(
    chosen: Sequence[ExpiringSnapshot], holders: Mapping[int, tuple[str, ...]], needed: NeededSnapshots | None
) -> tuple[list[ExpiringSnapshot], tuple[HeldSnapshot, ...]]:
    """Return the snapshots that may expire, and those that a hold or an open transaction keeps."""
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


@arguments.none_means_default
class Holds:
    """Named holds on snapshots, which are tags: returned by :attr:`DuckLake.holds`. A held snapshot does not expire.

    Read it by name: ``lake.table("t", at="month end")``, or ``FROM t AT (VERSION => 'month end')`` in :meth:`DuckLake.sql`.

    :meth:`DuckLake.expire_snapshots` always keeps a held snapshot, with every file and definition that it needs. **DuckDB does not support
    holds**: its ``ducklake_expire_snapshots`` expires held snapshots, too. Holds are stored in ``ducklake_metadata``, so that DuckDB lists
    them as options of the lake. They have no history and create no snapshot.
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

    def add(self, name: str, snapshot: int | datetime | str | None = None, *, until: datetime | None = None, replace: bool = False) -> Hold:
        """Hold a snapshot under a name.

        Args:
            name: Name of the hold, any string that is not a number or a time. Names are case-insensitive.
            snapshot: Snapshot id, a time with a zone for the last snapshot at or before it, or the name of another hold. Default: the
                newest.
            until: Time, with a zone, at which the hold ends. Default: it lasts until it is removed.
            replace: Whether to move an existing hold with this name. Default: False, which raises an error.

        Returns:
            The hold.

        Raises:
            AlreadyExistsError: A hold with this name has another snapshot or end, and ``replace`` is False.
            NotFoundError: The snapshot does not exist or has expired.
            UsageError: The name is empty, a number or a time, or ``until`` is in the past.
        """
        self._database.check_writable()
        if not arguments.names_hold(arguments.filled("name", name)):
            raise UsageError(
                f"A hold cannot be named {shown(name)}, because at={shown(name)} would read another snapshot. Choose a name that is not a "
                "number or a time",
                parameter="name",
            )
        arguments.check_flags(replace=replace)
        end = arguments.optional(arguments.time, "until", until)

        def attempt() -> Hold:
            with self._database.write() as connection:
                found = self._snapshot_id(CatalogReader(connection, self._info, self._database.tables), snapshot)
                if end is not None and end <= self._database.now(connection):
                    raise UsageError(
                        f"until is {end.isoformat()}, which is in the past. Pass a future time, or remove until", parameter="until"
                    )
                hold = Hold(name=name, snapshot_id=found, until=end)
                other = find_hold(connection, self._database.tables, name)
                if other is not None and not replace and (other.snapshot_id, other.until) != (found, end):
                    raise AlreadyExistsError(
                        f"Hold {other.name!r} already exists, on snapshot {other.snapshot_id}. Choose another name, or "
                        "move it with replace",
                        parameter="replace",
                        hold=other.name,
                        snapshot_id=other.snapshot_id,
                    )
                store_hold(connection, self._database.tables, hold)
                return hold

        return run_write(attempt, f"hold a snapshot as {name!r}")

    def remove(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a hold, so that its snapshot may expire.

        Args:
            name: Name of the hold.
            if_exists: Whether to do nothing if the hold does not exist. Default: False, which raises an error.

        Raises:
            NotFoundError: There is no hold with this name.
        """
        self._database.check_writable()
        storable("name", name)
        removed: set[str] = set()

        def attempt() -> None:
            with self._database.write() as connection:
                found = find_hold(connection, self._database.tables, name)
                if found is not None:
                    removed.add(name)
                    delete_hold(connection, self._database.tables, found)
                elif not (if_exists or removed):
                    raise NotFoundError(f"Hold {name!r} does not exist. List all holds with lake.holds.list()", hold=name)

        run_write(attempt, f"remove the hold {name!r}")

    def pinned(
        self, snapshot: int | datetime | str | None = None, *, reader: str = "reader", at_most: timedelta | str = timedelta(days=1)
    ) -> AbstractContextManager[Hold]:
        """Hold a snapshot while a block reads it. The hold has a unique name, and is removed at the end of the block.

        Any number of readers may pin the same snapshot. If a reader is killed, its hold ends after ``at_most``.

        Args:
            snapshot: Snapshot, as in :meth:`add`. Default: the newest.
            reader: Prefix of the name of the hold, shown in lists. Default: ``reader``.
            at_most: Maximum duration of the hold, a timedelta or a string such as ``"3 hours"``. Default: 1 day.

        Returns:
            A context manager that returns the hold. Read at its ``snapshot_id``.

        Raises:
            NotFoundError: The snapshot does not exist or has expired.
            UsageError: ``at_most`` is not a positive duration.
        """
        span = arguments.age("at_most", at_most)
        storable("reader", reader)
        if span <= timedelta(0):
            raise UsageError(f"at_most is {span}, but must be positive", parameter="at_most")
        return self._pinned(snapshot, reader, span)

    @contextmanager
    def _pinned(self, snapshot: int | datetime | str | None, reader: str, at_most: timedelta) -> Iterator[Hold]:
        with self._database.read() as connection:
            now = self._database.now(connection)
        # No end if it would be after the end of the calendar.
        until = now + at_most if at_most < END - now else None
        hold = self.add(f"{reader} {uuid4()}", snapshot, until=until)
        try:
            yield hold
        except BaseException as error:
            # The caller needs the error of the reader.
            try:
                self.remove(hold.name, if_exists=True)
            except DuckLakeError as problem:
                error.add_note(f"Hold {hold.name!r} could not be removed and still exists: {problem.message}")
            raise
        self.remove(hold.name, if_exists=True)

    def _snapshot_id(self, reader: CatalogReader, wanted: int | datetime | str | None) -> int:
        """Return the requested snapshot. It cannot expire before the transaction ends."""
        if wanted is None:
            number = reader.latest_snapshot().id
        else:
            at = resolve_bound(reader, "snapshot", wanted)
            number = (reader.snapshot(timestamp=at) if isinstance(at, datetime) else reader.snapshot(version=at)).id
        # A concurrent expiry may have deleted the row before it is locked.
        if not lock_snapshots(reader.connection, self._database, [number]):
            raise NotFoundError(f"Snapshot {number} has expired meanwhile. Choose another one", snapshot_id=number)
        return number
