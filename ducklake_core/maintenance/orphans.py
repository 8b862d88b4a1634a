"""Delete files that the catalog does not contain, such as files of killed writers (specification: Cleanup Of Files).

The store is listed before the catalog is read. Files are deleted in batches, each in a transaction that blocks commits and reads the
catalog again: a file that was committed meanwhile is kept, and no commit can add one until the batch is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.options import check_same_lake, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.running_writes import FilesOfWrites, read_running_writes
from ducklake_core.catalog.writing.expiry import every_file_name
from ducklake_core.catalog.writing.writer import change_sweep_mark, forget_lost_writes
from ducklake_core.errors import DuckLakeError, StorageError
from ducklake_core.format.files.paths import file_name, has_writers_name, is_below
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot, is_same_snapshot
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.cleanup import AGE_FLOOR, LOST, Age, LeftFile, deletion_limit
from ducklake_core.maintenance.groups import run_write
from ducklake_core.maintenance.health import format_bytes
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
    listed_with_progress,
    more_files,
)
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.unfinished import UnfinishedUpload, abort_upload, unfinished_uploads
from ducklake_core.storage.uploads import StoredFile

_BATCH = 250
_OPERATION = "delete_orphaned_files"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedFile:
    """A file that the catalog does not contain, with its size in bytes and the time of its last change (UTC)."""

    path: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OrphansResult(MaintenanceResult):
    """The plan or outcome of a sweep of orphaned files.

    Attributes:
        dry_run: Whether this is only the plan.
        files: Orphaned files to delete, or deleted files.
        failed: Files that could not be deleted.
        kept: Files that are kept because their age is unknown, a running write may commit them, or they were committed meanwhile.
        too_young: Number of orphaned files that are too young; they may belong to a running write.
        uploads: Unfinished uploads to S3 to abort, or aborted uploads.
        uploads_unknown: Reason why unfinished uploads are unknown, for example because the user may not list them; None if they are known.
        left: Number of files and uploads left to the next call, by reason.
    """

    dry_run: bool
    files: tuple[OrphanedFile, ...] = ()
    failed: tuple[LeftFile, ...] = ()
    kept: tuple[LeftFile, ...] = ()
    too_young: int = 0
    uploads: tuple[UnfinishedUpload, ...] = ()
    uploads_unknown: str | None = None
    left: tuple[tuple[str, int], ...] = ()

    @property
    def bytes(self) -> int:
        """Total size of ``files``."""
        return sum(file.size for file in self.files)

    def lines(self) -> list[str]:
        """Return the plan in words: one line per file, then the sum."""
        return self._lines(None)

    def _lines(self, most: int | None) -> list[str]:
        would = "would delete" if self.dry_run else "deleted"
        lines = listed(
            self.files,
            lambda file: f"{would} {file.path}: {format_bytes(file.size)}, last changed {file.modified:%Y-%m-%d %H:%M:%S} UTC",
            most,
            lambda rest: f"{more_files(rest)} ({format_bytes(sum(file.size for file in rest))})",
        )
        lines += listed(self.kept, lambda file: f"kept {file.path}: {file.reason}", most, more_files)
        abort = "would abort" if self.dry_run else "aborted"
        lines += listed(
            self.uploads,
            lambda upload: f"{abort} the upload of {upload.path}, begun {upload.started:%Y-%m-%d %H:%M:%S} UTC",
            most,
            lambda rest: f"{counted(len(rest), 'more upload')}",
        )
        lines += listed(self.failed, lambda file: f"FAILED {file.path}: {file.reason}", most, more_files)
        if self.uploads_unknown:
            lines.append(f"unfinished uploads could not be listed: {self.uploads_unknown}")
        counts = f"{len(self.kept)} kept, {len(self.failed)} failed, {self.too_young:,} too young{left_text(self.left)}"
        return [*lines, f"{would} {counted(len(self.files), 'orphaned file')} ({format_bytes(self.bytes)}), {counts}"]

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """One step for each file and upload, and one for all files that are too young."""
        done: StepOutcome = "planned" if self.dry_run else "done"
        unnamed = "not in the catalog, last changed {:%Y-%m-%d %H:%M:%S} UTC"
        steps = [_step(file.path, unnamed.format(file.modified), done, size=file.size) for file in self.files]
        steps += [_step(one.path, f"unfinished upload, started {one.started:%Y-%m-%d %H:%M:%S} UTC", done) for one in self.uploads]
        steps += [_step(file.path, file.reason, "skipped") for file in self.kept]
        steps += [_step(file.path, file.reason, "failed") for file in self.failed]
        steps += [_step("orphaned files", "too young", "skipped", self.too_young)] if self.too_young else []
        steps += [_step("orphaned files", reason, "skipped", count) for reason, count in self.left]
        steps += [_step("unfinished uploads", self.uploads_unknown, "skipped", 0)] if self.uploads_unknown else []
        return tuple(steps)


def _step(target: str, reason: str, outcome: StepOutcome, files: int = 1, size: int = 0) -> MaintenanceStep:
    return MaintenanceStep(
        verb=_OPERATION,
        target=target,
        action="delete the file",
        reason=reason,
        outcome=outcome,
        files=files,
        bytes=size,
    )


def delete_orphaned_files(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    *,
    older_than: Age | None = None,
    cleanup_all: bool = False,
    min_age: timedelta | str = AGE_FLOOR,
    every_parquet: bool = False,
    dry_run: bool = False,
    progress: ProgressMeter | None = None,
    budget: BudgetMeter | None = None,
) -> OrphansResult:
    """Plan the sweep, and run it unless ``dry_run`` is set; see ``DuckLake.delete_orphaned_files`` for the parameters."""
    names = _Names(database, info)
    with database.read() as connection:
        now = database.now(connection)
        options = Options.from_mapping(CatalogReader(connection, info, database.tables).options())
    limit = deletion_limit(older_than, options.delete_older_than, now, cleanup_all=cleanup_all, min_age=min_age)
    meter = progress or ProgressMeter()
    bounds = budget or BudgetMeter()
    plan = _plan(info, storage, names, limit, meter, every_parquet=every_parquet).within(bounds)
    if dry_run:
        return plan.described()
    done = _delete(plan, storage, names, meter, bounds)
    names.forget_lost_writes()
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _SweepPlan:
    """Files that a sweep deletes, and files that it keeps; the fields are those of the result, with the store's paths."""

    files: tuple[OrphanedFile, ...]
    kept: tuple[LeftFile, ...]
    too_young: int
    uploads: tuple[UnfinishedUpload, ...]
    uploads_unknown: str | None
    left: tuple[tuple[str, int], ...] = ()

    def within(self, budget: BudgetMeter) -> _SweepPlan:
        files = tuple(budget.first_deletions(self.files))
        beyond = len(self.files) - len(files)
        return replace(self, files=files, left=also_left(self.left, {OUT_OF_FILES: beyond})) if beyond else self

    def described(self) -> OrphansResult:
        return OrphansResult(
            dry_run=True,
            files=tuple(_printable(file) for file in self.files),
            kept=self.kept,
            too_young=self.too_young,
            uploads=self.uploads,
            uploads_unknown=self.uploads_unknown,
            left=self.left,
        )


def _plan(info: LakeInfo, storage: Storage, names: _Names, limit: datetime, progress: ProgressMeter, *, every_parquet: bool) -> _SweepPlan:
    """List the store, then read the catalog. Deletes nothing."""
    # Most files are live: known files need not be kept in memory until everything is listed.
    names.refresh()
    listed = listed_with_progress(_below(info.data_path, storage.list(info.data_path)), _OPERATION, progress)
    found = [file for file in listed if _is_candidate(file.path, every_parquet=every_parquet) and not names.has(file.path)]
    uploads, uploads_unknown = _uploads(storage, info.data_path, limit, every_parquet=every_parquet)
    # Again: files that were committed while the store was listed are not orphans.
    names.refresh()
    orphans = [file for file in found if not names.has(file.path)]
    is_old = [file for file in orphans if not file.modified or file.modified < limit]
    kept = tuple(LeftFile(path=printable(file.path), reason=reason) for file in is_old if (reason := _reason_to_keep(file, names)))
    return _SweepPlan(
        files=tuple(_orphan(file, file.modified) for file in is_old if file.modified and not names.writer(file.path)),
        kept=kept,
        too_young=len(orphans) - len(is_old),
        uploads=tuple(upload for upload in uploads if not names.writer(upload.path)),
        uploads_unknown=uploads_unknown,
    )


def _reason_to_keep(file: StoredFile, names: _Names) -> str | None:
    return names.writer(file.path) or (None if file.modified else "the store does not report the time of its last change")


def _below(data_path: str, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Yield the files, and raise an error for one outside the data path, because the store may use other paths than this library."""
    for file in files:
        if not is_below(file.path, data_path):
            raise StorageError(
                f"Nothing was deleted: the store lists {printable(file.path)}, which is not below the data path {printable(data_path)}. "
                "Connect with the data path in the store's own spelling",
                path=printable(file.path),
            )
        yield file


def _delete(plan: _SweepPlan, storage: Storage, names: _Names, progress: ProgressMeter, budget: BudgetMeter) -> OrphansResult:
    """Delete the planned files, except those that were committed since."""
    deleted: list[OrphanedFile] = []
    failed: list[LeftFile] = []
    named: list[LeftFile] = []
    late = 0
    if plan.files:
        progress.begin(_OPERATION, "delete files", "files", len(plan.files))
    for start in range(0, len(plan.files), _BATCH):
        batch = plan.files[start : start + _BATCH]
        # The first batch is deleted even if listing took all the time, so that every call makes progress.
        if budget.is_out_of_time and start > 0:
            late += len(batch)
            continue
        doomed, failures = run_write(lambda batch=batch: names.delete(storage, batch), "delete orphaned files")  # type: ignore[misc]
        named += [LeftFile(path=printable(file.path), reason=reason) for file in batch if (reason := names.claim(file.path))]
        deleted += [_printable(file) for file in doomed if file.path not in failures]
        failed += [LeftFile(path=printable(path), reason=reason) for path, reason in failures.items()]
        progress.advance(len(batch), size=sum(file.size for file in doomed if file.path not in failures))
    failed += _lost(names, deleted)
    aborted, unaborted, running = _abort(plan.uploads, storage, names, budget)
    late += len(plan.uploads) - len(aborted) - len(unaborted) - len(running)
    return OrphansResult(
        dry_run=False,
        files=tuple(deleted),
        failed=(*failed, *unaborted),
        kept=(*plan.kept, *named, *running),
        too_young=plan.too_young,
        uploads=tuple(aborted),
        uploads_unknown=plan.uploads_unknown,
        left=also_left(plan.left, {OUT_OF_TIME: late}) if late else plan.left,
    )


def _lost(names: _Names, deleted: Sequence[OrphanedFile]) -> list[LeftFile]:
    """Return deleted files that the catalog now contains. DuckDB does not notice if a file is deleted between reading it and the commit."""
    if not deleted:
        return []
    names.refresh()
    return [LeftFile(path=file.path, reason=LOST) for file in deleted if names.has(file.path)]


def _abort(
    uploads: Sequence[UnfinishedUpload], storage: Storage, names: _Names, budget: BudgetMeter
) -> tuple[list[UnfinishedUpload], list[LeftFile], list[LeftFile]]:
    """Abort uploads, at least the first. Return aborted uploads, failures, and uploads of running writes."""
    aborted: list[UnfinishedUpload] = []
    failed: list[LeftFile] = []
    running: list[LeftFile] = []
    if uploads:
        names.refresh()
    for place, upload in enumerate(uploads):
        if budget.is_out_of_time and place > 0:
            break
        if writer := names.writer(upload.path):
            running.append(LeftFile(path=printable(upload.path), reason=writer))
        elif reason := abort_upload(storage, upload):
            failed.append(LeftFile(path=printable(upload.path), reason=reason))
        else:
            aborted.append(upload)
    return aborted, failed, running


def _uploads(storage: Storage, data_path: str, limit: datetime, *, every_parquet: bool) -> tuple[tuple[UnfinishedUpload, ...], str | None]:
    """Return the uploads to abort, or the reason why they are unknown. An unfinished upload is not a file, so the catalog cannot contain
    it."""
    try:
        found = [upload for upload in unfinished_uploads(storage, data_path) if _is_candidate(upload.path, every_parquet=every_parquet)]
    except StorageError as error:
        return (), error.message
    return tuple(upload for upload in found if upload.started < limit), None


class _Names:
    """Names of files in the catalog, and running writes that may still commit files.

    Names are stored as hashes, because a lake may have millions of files.
    """

    def __init__(self, database: Database, info: LakeInfo) -> None:
        self._database = database
        self._info = info
        self._snapshot: Snapshot | None = None
        self._hashes: frozenset[int] = frozenset()
        self._running = FilesOfWrites(())
        self._has_lost_writes = False

    def delete(self, storage: Storage, batch: Sequence[OrphanedFile]) -> tuple[list[OrphanedFile], dict[str, str]]:
        """Delete files that are still orphaned. Return these files, and errors by path."""
        # Most of the reading is done before commits are blocked.
        self.refresh()
        with self._database.without_commits() as connection:
            self._refresh(CatalogReader(connection, self._info, self._database.tables))
            doomed = [file for file in batch if self.claim(file.path) is None]
            if doomed:
                # Transactions that add existing files compare this mark when they commit, and check their files if it has changed.
                change_sweep_mark(connection, self._database.tables)
            return doomed, dict(storage.delete([file.path for file in doomed]).failed)

    def refresh(self) -> None:
        """Read running writes again, and the names if another writer has committed since."""
        with self._database.read() as connection:
            self._refresh(CatalogReader(connection, self._info, self._database.tables))

    def _refresh(self, reader: CatalogReader) -> None:
        connection = reader.connection
        check_same_lake(self._info, stored_options(connection, self._database.tables))
        now, writes = self._database.now(connection), read_running_writes(connection, self._database.tables)
        running = [write for write in writes if not write.is_lost(now)]
        self._running, self._has_lost_writes = FilesOfWrites(running), len(running) < len(writes)
        newest = reader.latest_snapshot()
        # An id alone is not unique: a restored backup of the catalog assigns it again.
        if self._snapshot is None or not is_same_snapshot(newest, self._snapshot):
            self._hashes = frozenset(map(hash, every_file_name(connection, self._database.tables)))
            self._snapshot = newest

    def has(self, path: str) -> bool:
        """Return whether the catalog contains a file name. A collision of hashes (1 in 10^12 for a million files) keeps the file."""
        return hash(file_name(path)) in self._hashes

    def writer(self, path: str) -> str | None:
        """Return the reason to keep a file of a running write, None for other files."""
        write = self._running.write_of(path)
        return None if write is None else f"a running write may commit it, last renewed {write.heard:%Y-%m-%d %H:%M:%S} UTC"

    def claim(self, path: str) -> str | None:
        """Return the reason why a file is not orphaned; None if it is."""
        return "the catalog contains it now" if self.has(path) else self.writer(path)

    def forget_lost_writes(self) -> None:
        """Delete the rows of killed writes. If this fails, a later sweep tries again."""
        if not self._has_lost_writes:
            return
        try:
            with self._database.write() as connection:
                forget_lost_writes(connection, self._database.tables, self._database.now(connection))
        except DuckLakeError as error:
            _log.info("Rows of killed writes could not be deleted in %s: %s", self._database.address, error)


def _is_candidate(path: str, *, every_parquet: bool) -> bool:
    return has_writers_name(path) or (every_parquet and path.endswith(".parquet"))


def _orphan(file: StoredFile, modified: datetime) -> OrphanedFile:
    return OrphanedFile(path=file.path, size=file.size, modified=modified)


def _printable(file: OrphanedFile) -> OrphanedFile:
    return OrphanedFile(path=printable(file.path), size=file.size, modified=file.modified)
