"""Run all recommended maintenance, in DuckDB's order. The options of the lake and its tables control each operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.bulk_reader import SharedReading
from ducklake_core.catalog.reading.options import stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo
from ducklake_core.maintenance.cleanup import AGE_FLOOR, cleanup_old_files
from ducklake_core.maintenance.expire import check_keep_last, expire_snapshots
from ducklake_core.maintenance.flush import flush_inlined_data
from ducklake_core.maintenance.groups import Execution, is_about_lake
from ducklake_core.maintenance.merge import merge_adjacent_files
from ducklake_core.maintenance.orphans import delete_orphaned_files
from ducklake_core.maintenance.request import OUT_OF_TIME, THE_LAKE, MaintenanceResult, MaintenanceStep, TableRequest
from ducklake_core.maintenance.rewrite import rewrite_data_files
from ducklake_core.storage.filesystems import Storage


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
