"""Run several maintenance operations in one call: all recommended ones, or those that erase rows for good.

:func:`checkpoint` runs everything in DuckDB's order; the options of the lake and its tables control each operation. :func:`purge` follows a
delete, and removes the deleted rows from every file, snapshot and statistic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.bulk_reader import SharedReading
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.integrity_scan import EveryRow, statistics_of_files
from ducklake_core.catalog.reading.maintenance import inlined_deletes_of, inlined_row_counts
from ducklake_core.catalog.reading.options import read_holds, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.request import CommitMessage
from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_core.format.files.paths import is_below
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, TableState
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.check.repair import carry_out
from ducklake_core.maintenance.check.statistics import exact_bounds
from ducklake_core.maintenance.cleanup import AGE_FLOOR, CleanupResult, cleanup_old_files
from ducklake_core.maintenance.expire import ExpiryResult, check_keep_last, expire_snapshots
from ducklake_core.maintenance.flush import flush_inlined_data
from ducklake_core.maintenance.groups import Execution, is_about_lake, name_of
from ducklake_core.maintenance.merge import merge_adjacent_files
from ducklake_core.maintenance.orphans import OrphansResult, delete_orphaned_files
from ducklake_core.maintenance.request import OUT_OF_TIME, THE_LAKE, MaintenanceResult, MaintenanceStep, TableRequest
from ducklake_core.maintenance.rewrite import RewriteLimits, RewriteResult, rewrite_data_files
from ducklake_core.storage.filesystems import Storage

_FILES_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointVerb:
    """The plan or outcome of one operation of a checkpoint.

    Attributes:
        verb: Name of the operation.
        result: Its plan or outcome, None if it was skipped or failed.
        skipped: Reason for skipping it, None if it was not skipped.
        failure: Error, None if it did not fail.
    """

    verb: str
    result: MaintenanceResult | None = None
    skipped: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckpointResult(MaintenanceResult):
    """The plan or outcome of a checkpoint, operation by operation.

    Attributes:
        dry_run: Whether this is only the plan. Each operation is planned for the current lake, without the changes of the others.
        verbs: One entry per operation, in order.
    """

    dry_run: bool
    verbs: tuple[CheckpointVerb, ...]

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """The steps of all operations. A skipped or failed operation has one step."""
        return tuple(step for one in self.verbs for step in _steps(one))


def _steps(one: CheckpointVerb) -> tuple[MaintenanceStep, ...]:
    if one.result is not None:
        return one.result.steps
    if one.failure is not None:
        return (MaintenanceStep(verb=one.verb, target=THE_LAKE, action="run it", reason=one.failure, outcome="failed"),)
    return (MaintenanceStep(verb=one.verb, target=THE_LAKE, action="run it", reason=one.skipped or "", outcome="skipped"),)


def checkpoint(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    *,
    keep_last: int | None = None,
    min_age: timedelta | str = AGE_FLOOR,
    execution: Execution | None = None,
) -> CheckpointResult:
    """Plan all operations, and run them unless it is a dry run; see ``DuckLake.checkpoint`` for the parameters."""
    check_keep_last(keep_last)
    dry_run, progress = request.dry_run, request.progress
    if dry_run:
        # Nothing changes between the operations of a dry run, so they share what they read.
        request = replace(request, reading=SharedReading())
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        never_expires = _why_never(reader) if keep_last is None else None
        # A name that does not exist is an error of the caller, not a failure of an operation.
        request.scope.select(reader, reader.latest_snapshot().id)
    execution = execution or Execution()
    # The limits of bytes and files to read do not apply to deletions.
    time = request.meter.of_time()
    # The order lets operations use the results of those before: flushed files are merged in the same round. Files that this round
    # schedules for deletion are usually left to a later one, because queries may still read them.
    operations: dict[str, Callable[[], MaintenanceResult]] = {
        "flush_inlined_data": lambda: flush_inlined_data(database, info, storage, request, execution=execution),
        "expire_snapshots": lambda: expire_snapshots(
            database, info, keep_last=keep_last, min_age=min_age, dry_run=dry_run, progress=progress
        ),
        "merge_adjacent_files": lambda: merge_adjacent_files(database, info, storage, request, execution=execution),
        "rewrite_data_files": lambda: rewrite_data_files(database, info, storage, request, execution=execution),
        "cleanup_old_files": lambda: cleanup_old_files(
            database, info, storage, min_age=min_age, dry_run=dry_run, progress=progress, budget=time
        ),
        "delete_orphaned_files": lambda: delete_orphaned_files(
            database, info, storage, min_age=min_age, dry_run=dry_run, progress=progress, budget=time
        ),
    }

    def carried_out(operation: str) -> CheckpointVerb:
        if operation == "expire_snapshots" and never_expires:
            return CheckpointVerb(verb=operation, skipped=never_expires)
        if request.meter.is_out_of_time and not dry_run:
            return CheckpointVerb(verb=operation, skipped=OUT_OF_TIME)
        return _run(operation, operations[operation])

    return CheckpointResult(dry_run=dry_run, verbs=tuple(map(carried_out, operations)))


def _why_never(reader: CatalogReader) -> str | None:
    """Return the reason why no snapshot expires; None when an option sets an age."""
    if Options.from_mapping(reader.options()).expire_older_than is not None:
        return None
    if any(key == "expire_older_than" for key, _, _, _ in stored_options(reader.connection, reader.catalog).rows):
        return (
            "option expire_older_than is set only for schemas or tables, where it has no effect, because snapshots belong to the whole lake"
        )
    return "option expire_older_than is not set"


def _run(operation: str, run: Callable[[], MaintenanceResult]) -> CheckpointVerb:
    try:
        return CheckpointVerb(verb=operation, result=run())
    except DuckLakeError as error:
        if is_about_lake(error):
            raise
        return CheckpointVerb(verb=operation, failure=str(error))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PurgeResult(MaintenanceResult):
    """The plan or outcome of a purge, operation by operation.

    Attributes:
        dry_run: Whether this is only the plan: ``rows_deleted`` is the number of rows to delete, and ``remains`` lists holds.
        table: ``schema.table``.
        rows_deleted: Number of rows that were deleted by this call.
        verbs: One entry per operation, in order.
        bounds: Names of columns whose smallest and largest values in the statistics of the table were changed or deleted.
        snapshots: Ids of the remaining snapshots.
        remains: What may still contain the rows, with the reason; empty if nothing does.
    """

    dry_run: bool
    table: str
    rows_deleted: int
    verbs: tuple[CheckpointVerb, ...] = ()
    bounds: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()
    remains: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether the rows are in no file, snapshot and statistic of the lake."""
        return not self.dry_run and not self.remains

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """The steps of all operations, and a failed step for each thing that remains."""
        failed = (MaintenanceStep(verb="purge", target=self.table, action="check", reason=one, outcome="failed") for one in self.remains)
        return (*(step for one in self.verbs for step in _steps(one)), *failed)

    def _lines(self, most: int | None) -> list[str]:
        if self.dry_run:
            rows = f"{counted(self.rows_deleted, 'row')} of {self.table}"
            plan = f"would delete {rows}, expire all snapshots but the newest, and delete all files that contain the rows"
            return [*self.remains, plan]
        lines = [f"deleted {counted(self.rows_deleted, 'row')} of {self.table}"]
        for one in self.verbs:
            if one.result is None:
                lines.append(f"{one.verb}: FAILED, {one.failure}")
                continue
            found = one.result.lines() if most is None else one.result.brief_lines()
            lines += [line for line in found if not line.startswith("steps: ")]
        if self.bounds:
            lines.append(f"corrected the smallest and largest values of {', '.join(self.bounds)} in the statistics of the table")
        lines += [f"REMAINS: {one}" for one in self.remains]
        if self.is_complete:
            lines.append("the rows are in no snapshot, file, inlined row and statistic of the lake")
        return lines


def holds_in_the_way(database: Database) -> UsageError | None:
    """Return the error about holds that keep snapshots; None if there are none."""
    with database.read() as connection:
        holds = read_holds(connection, database.tables)
        now = database.now(connection)
    kept = [hold for hold in holds if not hold.is_over(now)]
    if not kept:
        return None
    names = ", ".join(f"{hold.name!r} (snapshot {hold.snapshot_id})" for hold in kept)
    return UsageError(
        f"Nothing was purged, because holds keep snapshots that may contain the rows: {names}. Remove them with "
        "lake.holds.remove(name), or wait until they end",
        holds=", ".join(hold.name for hold in kept),
    )


def purge(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    request: TableRequest,
    table: TableState,
    *,
    rows_deleted: int,
    min_age: timedelta,
    matching: Callable[[], int],
) -> PurgeResult:
    """Remove deleted rows of a table for good; see ``DuckLake.purge`` for the parameters.

    Args:
        database: The catalog.
        info: Settings of the lake.
        storage: Its files.
        request: Commit options and progress.
        table: The table.
        rows_deleted: Number of rows that the caller has deleted.
        min_age: Minimum age of snapshots to expire and files to delete.
        matching: Returns the number of rows that match the condition now.
    """
    progress, bounds, base = request.progress, list[str](), 0
    found: list[CheckpointVerb] = []
    # Each operation finds what is left to do, so that a call after an interruption completes the former one.
    operations: dict[str, Callable[[], MaintenanceResult]] = {
        "flush_inlined_data": lambda: flush_inlined_data(database, info, storage, request),
        "rewrite_data_files": lambda: rewrite_data_files(database, info, storage, request, limits=RewriteLimits(delete_threshold=0.0)),
        "expire_snapshots": lambda: expire_snapshots(database, info, keep_last=1, min_age=min_age, progress=progress),
        "cleanup_old_files": lambda: cleanup_old_files(
            database, info, storage, older_than=min_age or None, cleanup_all=not min_age, min_age=min_age, progress=progress
        ),
        "delete_orphaned_files": lambda: delete_orphaned_files(database, info, storage, progress=progress),
    }
    for operation, run in operations.items():
        if operation == "expire_snapshots":
            # Before the expiry, because the correction is a snapshot, too.
            bounds, base = _correct_bounds(database, info, table, request.commit)
        found.append(_run(operation, run))
        if found[-1].failure is not None or (operation in _MOVES_ROWS and found[-1].result and found[-1].result.failed_steps):
            break
    if any(is_below(table.path, place) for place in (info.data_path, *info.allowed_paths)):
        # Their names contain partition values.
        storage.remove_empty_directories(table.path)
    with database.read() as connection:
        snapshots = tuple(number for number, _ in CatalogReader(connection, info, database.tables).snapshot_times())
    return PurgeResult(
        dry_run=False,
        table=name_of(table),
        rows_deleted=rows_deleted,
        verbs=tuple(found),
        bounds=tuple(bounds),
        snapshots=snapshots,
        remains=tuple(_remains(found, [number for number in snapshots if number < base], matching())),
    )


_MOVES_ROWS = ("flush_inlined_data", "rewrite_data_files")


def _correct_bounds(database: Database, info: LakeInfo, table: TableState, commit: CommitMessage) -> tuple[list[str], int]:
    """Reduce the bounds of a table to those of its files, and return the names of the columns and the newest snapshot."""
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        newest = reader.latest_snapshot().id
        state = reader.table_by_id(table.id, newest)
        files = [file.id for file, _ in data_files(reader, state)]
        rows = EveryRow(connection=connection, tables=database.tables, required={})
        bounds = [row for row in rows.stream("table_column_stats") if row.table_id == table.id]
        history = [row for row, _ in reader.column_history(table.id)]
        names = {row.column_id: row.column_name for row in history}
        types = Counter(number for number, _ in {(row.column_id, row.column_type.lower()) for row in history})
        statistics = (
            row
            for start in range(0, len(files), _FILES_AT_ONCE)
            for found in statistics_of_files(connection, database.tables, files[start : start + _FILES_AT_ONCE]).values()
            for row in found
        )
        has_inlined = any(one.rows for one in inlined_row_counts(reader, state).values()) or any(inlined_deletes_of(reader, state).values())
        due = exact_bounds(
            table.id,
            bounds,
            () if has_inlined else statistics,
            files=-1 if has_inlined else len(files),
            leaves={node.id: node for node in state.schema.walk() if node.is_leaf},
            promoted={number for number, count in types.items() if count > 1},
        )
    if due:
        message: CommitMessage = {**commit, "message": commit.get("message") or f"purge: correct the statistics of {name_of(table)}"}
        _, newest = carry_out(database, info, due, newest, message)
    return [names.get(one.column_id, str(one.column_id)) for one in due], newest


def _remains(operations: Sequence[CheckpointVerb], old_snapshots: Sequence[int], matching: int) -> Iterator[str]:
    """Yield what may still contain the rows."""
    if matching:
        yield f"{counted(matching, 'row')} of the table that match the condition, which other writers have written meanwhile"
    for operation in operations:
        if operation.failure is not None:
            yield f"{operation.verb} failed: {operation.failure}"
            return
        result = operation.result
        yield from (f"{step.target}: {step.reason}" for step in result.failed_steps) if result is not None else ()
        match result:
            case RewriteResult():
                for table in result.tables:
                    for reason, count in table.left:
                        yield f"{counted(count, 'file')} of {table.table} with deleted rows, not rewritten: {reason}"
            case ExpiryResult():
                held = {one.id: one.reason for one in result.held}
                yield from (f"snapshot {number}: {held.get(number, 'younger than min_age')}" for number in old_snapshots)
            case CleanupResult():
                yield from (f"file {file.path}: {file.reason}" for file in result.kept)
                if result.too_young:
                    yield f"{counted(result.too_young, 'file')} scheduled for deletion, younger than min_age"
            case OrphansResult() if result.too_young:
                files = counted(result.too_young, "orphaned file")
                yield f"{files}, too young to delete: they belong to running or killed writes. Call lake.delete_orphaned_files() later"
