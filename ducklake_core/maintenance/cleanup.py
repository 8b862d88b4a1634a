"""Delete files that were scheduled for deletion and have reached the minimum age (specification: Cleanup Of Files)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.options import check_same_lake, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.writing.expiry import ScheduledFile, forget_scheduled, named_by_any_row, scheduled_files, still_referenced
from ducklake_core.catalog.writing.writer import change_sweep_mark
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files import paths
from ducklake_core.format.files.paths import file_key, is_below
from ducklake_core.format.options import Options, option_age
from ducklake_core.format.state import LakeInfo, Snapshot, is_same_snapshot
from ducklake_core.format.types.text import BEGINNING, END, counted, in_utc, parse_age
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.request import (
    OUT_OF_FILES,
    OUT_OF_TIME,
    BudgetMeter,
    MaintenanceResult,
    MaintenanceStep,
    ProgressMeter,
    StepOutcome,
    also_left,
    left_text,
    listed,
    more_files,
)
from ducklake_core.storage.filesystems import Deletion, Storage, printable

_BATCH = 250
LOST = "it was deleted while another program added it to a table, so the catalog contains a missing file: restore it from a backup"

Age: TypeAlias = timedelta | str | datetime
AGE_FLOOR = timedelta(hours=1)
"""Default minimum age. A running query or write may still use a younger file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFile:
    """A scheduled file, and the time since which it is not needed."""

    path: str
    scheduled: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that is kept, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanupResult(MaintenanceResult):
    """The plan or outcome of a cleanup.

    Attributes:
        dry_run: Whether this is only the plan.
        files: Files to delete, or deleted files.
        missing: Paths of those that were already missing.
        kept: Scheduled files that must not be deleted. They stay scheduled.
        failed: Files that could not be deleted. They stay scheduled, and the next call tries again.
        too_young: Number of scheduled files that are too young.
        left: Number of files left to the next call, by reason.
    """

    dry_run: bool
    files: tuple[OldFile, ...] = ()
    missing: tuple[str, ...] = ()
    kept: tuple[LeftFile, ...] = ()
    failed: tuple[LeftFile, ...] = ()
    too_young: int = 0
    left: tuple[tuple[str, int], ...] = ()

    def lines(self) -> list[str]:
        """Return a line for each file, and a summary."""
        return self._lines(None)

    def _lines(self, most: int | None) -> list[str]:
        would = "would delete" if self.dry_run else "deleted"
        lines = listed(
            self.files, lambda file: f"{would} {file.path}: unneeded since {file.scheduled:%Y-%m-%d %H:%M:%S} UTC", most, more_files
        )
        lines += listed(self.kept, lambda file: f"kept {file.path}: {file.reason}", most, more_files)
        lines += listed(self.failed, lambda file: f"FAILED {file.path}: {file.reason}", most, more_files)
        counts = f"{len(self.kept):,} kept, {len(self.failed):,} failed, {self.too_young:,} too young{left_text(self.left)}"
        return [*lines, f"{would} {counted(len(self.files), 'file')} ({len(self.missing):,} already missing), {counts}"]

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each scheduled file, and one for all files that are too young."""
        done: StepOutcome = "planned" if self.dry_run else "done"
        steps = [_step(file.path, f"unneeded since {file.scheduled:%Y-%m-%d %H:%M:%S} UTC", done) for file in self.files]
        steps += [_step(file.path, file.reason, "skipped") for file in self.kept]
        steps += [_step(file.path, file.reason, "failed") for file in self.failed]
        steps += [_step("scheduled files", "too young", "skipped", self.too_young)] if self.too_young else []
        steps += [_step("scheduled files", reason, "skipped", count) for reason, count in self.left]
        return tuple(steps)


def _step(target: str, reason: str, outcome: StepOutcome, files: int = 1) -> MaintenanceStep:
    return MaintenanceStep(verb="cleanup_old_files", target=target, action="delete the file", reason=reason, outcome=outcome, files=files)


# The order of steps keeps files that a writer may still commit:
#
#   1. remember the newest snapshot, then read the schedule and the names of all files
#   2. batch by batch: lock out commits, read the names again if there was a commit since, delete the files, delete their rows
#
# A process that ends between the files and the rows leaves rows of missing files, which the next call counts as deleted.
def cleanup_old_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    *,
    older_than: Age | None = None,
    cleanup_all: bool = False,
    min_age: timedelta | str = AGE_FLOOR,
    dry_run: bool = False,
    progress: ProgressMeter | None = None,
    budget: BudgetMeter | None = None,
) -> CleanupResult:
    """Plan the deletion, and run it unless ``dry_run`` is set; see ``DuckLake.cleanup_old_files`` for the parameters."""
    with database.read() as connection:
        now = database.now(connection)
        check_same_lake(info, stored_options(connection, database.tables))
        reader = CatalogReader(connection, info, database.tables)
        options = Options.from_mapping(reader.options())
        limit = deletion_limit(older_than, options.delete_older_than, now, cleanup_all=cleanup_all, min_age=min_age)
        # Before the names are read, so that every later commit is detected.
        base = reader.latest_snapshot()
        bounds = budget or BudgetMeter()
        plan = _plan(reader, storage, limit, base).within(bounds)
    return plan.described() if dry_run else _delete(database, info, storage, plan, progress or ProgressMeter(), bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CleanupPlan:
    """Scheduled files to delete, to keep and to leave to the next call, at a snapshot.

    ``twins`` are further rows of files to delete, by path.
    """

    base: Snapshot
    doomed: tuple[ScheduledFile, ...]
    twins: Mapping[str, Sequence[ScheduledFile]]
    kept: tuple[LeftFile, ...]
    too_young: int
    left: tuple[tuple[str, int], ...] = ()

    def within(self, budget: BudgetMeter) -> _CleanupPlan:
        doomed = tuple(budget.first_deletions(self.doomed))
        beyond = len(self.doomed) - len(doomed)
        return replace(self, doomed=doomed, left=also_left(self.left, {OUT_OF_FILES: beyond})) if beyond else self

    def described(self) -> CleanupResult:
        files = tuple(map(_old, self.doomed))
        return CleanupResult(dry_run=True, files=files, kept=self.kept, too_young=self.too_young, left=self.left)


def _plan(reader: CatalogReader, storage: Storage, limit: datetime, base: Snapshot) -> _CleanupPlan:
    old: list[ScheduledFile] = []
    young: list[str] = []
    for file in scheduled_files(reader.connection, reader.catalog, reader.info):
        if file.scheduled < limit:
            old.append(file)
        else:
            young.append(file_key(file.path))
    # The age of a file that was in the lake twice counts from its later end.
    recent = frozenset(young)
    if recent:
        young += [key for file in old if (key := file_key(file.path)) in recent]
        old = [file for file in old if file_key(file.path) not in recent]
    once, twins = _each_once(old)
    every = [file.path for file in once]
    named = named_by_any_row(reader.connection, reader.catalog, reader.info, every, identity=storage.identity)
    doomed, kept = _split(once, reader.info, named)
    return _CleanupPlan(base=base, doomed=tuple(doomed), twins=twins, kept=tuple(kept), too_young=len(young))


def _split(files: Sequence[ScheduledFile], info: LakeInfo, named: Collection[str]) -> tuple[list[ScheduledFile], list[LeftFile]]:
    """Return files to delete, and files to keep with the reasons."""
    reasons = [(file, _obstacle(file, info, named)) for file in files]
    kept = [LeftFile(path=printable(file.path), reason=reason) for file, reason in reasons if reason is not None]
    return [file for file, reason in reasons if reason is None], kept


def _delete(
    database: Database, info: LakeInfo, storage: Storage, plan: _CleanupPlan, progress: ProgressMeter, budget: BudgetMeter
) -> CleanupResult:
    if plan.doomed:
        progress.begin("cleanup_old_files", "delete files", "files", len(plan.doomed))
    runs = []
    late = 0
    for batch in _batches(plan.doomed):
        if budget.is_out_of_time:
            late += len(batch)
            continue
        runs.append(_delete_batch(database, info, storage, batch, plan))
        progress.advance(len(batch))
    files = tuple(file for run in runs for file in run.files)
    return CleanupResult(
        dry_run=False,
        files=files,
        missing=tuple(path for run in runs for path in run.missing),
        kept=(*plan.kept, *(file for run in runs for file in run.kept)),
        failed=(*(file for run in runs for file in run.failed), *_lost(database, info, plan.base, files)),
        too_young=plan.too_young,
        left=also_left(plan.left, {OUT_OF_TIME: late}) if late else plan.left,
    )


def _lost(database: Database, info: LakeInfo, base: Snapshot, files: Sequence[OldFile]) -> list[LeftFile]:
    """Return deleted files that the catalog now contains. DuckDB does not notice if a file is deleted between reading it and the commit."""
    if not files:
        return []
    with database.read() as connection:
        if is_same_snapshot(CatalogReader(connection, info, database.tables).latest_snapshot(), base):
            return []
        named = still_referenced(connection, database.tables, info, [file.path for file in files])
    return [LeftFile(path=file.path, reason=LOST) for file in files if file.path in named]


def _each_once(files: Sequence[ScheduledFile]) -> tuple[list[ScheduledFile], dict[str, list[ScheduledFile]]]:
    """Return the newest row of each path, and the other rows by path, which may store it relative or absolute."""
    newest: dict[str, ScheduledFile] = {}
    others: dict[str, list[ScheduledFile]] = {}
    for file in sorted(files, key=lambda file: file.scheduled):
        if file.path in newest:
            others.setdefault(file.path, []).append(newest[file.path])
        newest[file.path] = file
    return list(newest.values()), others


def _batches(files: Sequence[ScheduledFile]) -> Iterator[Sequence[ScheduledFile]]:
    return (files[start : start + _BATCH] for start in range(0, len(files), _BATCH))


def _delete_batch(
    database: Database, info: LakeInfo, storage: Storage, batch: Sequence[ScheduledFile], plan: _CleanupPlan
) -> CleanupResult:
    def attempt() -> tuple[Sequence[LeftFile], list[ScheduledFile], Deletion]:
        # Between the check and the deletion no commit can name one of the files.
        with database.without_commits() as connection:
            doomed, kept = _judge_again(CatalogReader(connection, info, database.tables), batch, plan.base)
            if doomed:
                # Transactions that add existing files compare this mark when they commit, and check their files if it has changed.
                change_sweep_mark(connection, database.tables)
            deletion = storage.delete([file.path for file in doomed])
            failures = dict(deletion.failed)
            done = [file for file in doomed if file.path not in failures]
            rows = [*done, *(twin for file in done for twin in plan.twins.get(file.path, ()))]
            forget_scheduled(connection, database.tables, rows)
        return kept, done, deletion

    kept, done, deletion = run_write(attempt, "delete scheduled files")
    return CleanupResult(
        dry_run=False,
        files=tuple(_old(file) for file in done),
        missing=tuple(printable(path) for path in deletion.missing),
        kept=tuple(kept),
        failed=tuple(LeftFile(path=printable(path), reason=reason) for path, reason in deletion.failed),
    )


def _judge_again(
    reader: CatalogReader, batch: Sequence[ScheduledFile], base: Snapshot
) -> tuple[Sequence[ScheduledFile], Sequence[LeftFile]]:
    """Return files to delete and to keep, immediately before the deletion. A plan is valid only until another writer commits."""
    if is_same_snapshot(reader.latest_snapshot(), base):
        return batch, ()
    named = still_referenced(reader.connection, reader.catalog, reader.info, [file.path for file in batch])
    return _split(batch, reader.info, named)


def _obstacle(file: ScheduledFile, info: LakeInfo, referenced: Collection[str]) -> str | None:
    if file.path in referenced:
        return "the catalog still contains it"
    # A writer stores an absolute path for a file outside the data path; a relative path must stay inside.
    if file.is_relative and not paths.is_inside(info.data_path, file.path):
        return "its relative path leaves the data path"
    try:
        info.checked_location(file.path, "the file")
    except UnsupportedFeatureError:
        return "it is outside the data path, and not below allowed_paths"
    # Any client that can write to the catalog can schedule any file of the same store for deletion.
    if not any(is_below(file.path, place) for place in (info.data_path, *info.allowed_paths)) and not paths.has_writers_name(file.path):
        return "it is outside the data path and does not have a name of DuckLake's writers: add its directory to allowed_paths"
    return None


def _old(file: ScheduledFile) -> OldFile:
    return OldFile(path=printable(file.path), scheduled=file.scheduled)


def threshold(older_than: Age, now: datetime) -> datetime:
    """Return the time in UTC that is an age ago.

    Raises:
        UsageError: A time without a zone, a negative age, or a string that is not a duration.
    """
    if isinstance(older_than, datetime):
        return in_utc(older_than)
    return before(now, older_than, "older_than")


def deletion_limit(older_than: Age | None, option: str, now: datetime, *, cleanup_all: bool, min_age: timedelta | str) -> datetime:
    """Return the time before which files may be deleted; the end of the calendar for all files.

    Args:
        older_than: Argument of the caller.
        option: The option ``delete_older_than``, used when ``older_than`` is None.

    Raises:
        UsageError: The age is below the minimum, ``older_than`` is combined with ``cleanup_all``, or the option is not an age.
    """
    if not cleanup_all:
        limit = threshold(option_age("delete_older_than", option, now) if older_than is None else older_than, now)
        check_floor(option_text("delete_older_than", option) if older_than is None else "older_than", limit, now, min_age)
        return limit
    if older_than is not None:
        raise UsageError("older_than and cleanup_all cannot be combined. Remove one of them", parameter="cleanup_all")
    check_floor("cleanup_all", now, now, min_age)
    return END


def before(now: datetime, age: timedelta | str, argument: str) -> datetime:
    """Return a time minus an age, at least the beginning of the calendar.

    Raises:
        UsageError: A negative age, or a string that is not a duration.
    """
    span = parse_age(age, now) if isinstance(age, str) else age
    if span < timedelta(0):
        raise UsageError(f"{argument} is {span}, but must not be negative", parameter=argument)
    try:
        return now - span
    except OverflowError:
        return BEGINNING


def check_floor(argument: str, limit: datetime, now: datetime, min_age: timedelta | str) -> None:
    """Reject an age below the minimum.

    Args:
        argument: Name of the argument or option, for the error.

    Raises:
        UsageError: The age is below the minimum, or the minimum is not an age.
    """
    if limit > before(now, min_age, "min_age"):
        raise UsageError(
            f"{argument} selects items younger than min_age ({age_text(min_age)}), which running queries and writes may still use. "
            "Choose a longer age, or a smaller min_age if nothing else uses the lake",
            parameter="min_age",
        )


def option_text(name: str, age: str) -> str:
    """Return an option of the lake with its age, for errors about an age that comes from the option."""
    return f"the option {name} ({age})"


def age_text(age: timedelta | str) -> str:
    """Return an age in the form of options.

    >>> age_text(timedelta(hours=1)), age_text(timedelta(days=2, seconds=90)), age_text(timedelta(0)), age_text("7d")
    ('1 hour', '2 days 1 minute 30 seconds', '0 seconds', '7d')
    """
    if isinstance(age, str):
        return age
    seconds = age.total_seconds()
    parts = []
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count, seconds = divmod(seconds, length)
        parts += [f"{count:.0f} {unit}{'s' if count > 1 else ''}"] if count else []
    parts += [f"{seconds:g} second{'' if seconds == 1 else 's'}"] if seconds or not parts else []
    return " ".join(parts)
