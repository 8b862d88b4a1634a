"""Plan tables one by one, run groups of files as work units, and commit them with retries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.failures import MAINTENANCE_RETRIES, RetryPolicy
from ducklake_core.catalog.reading.bulk_reader import ManyTablesReader
from ducklake_core.catalog.reading.options import check_same_lake, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import Action
from ducklake_core.commit.committer import Committer, check_encrypted
from ducklake_core.commit.request import CommitMessage, CommitRequest, new_commit_id, stored_extra_info
from ducklake_core.engines.arrow.work import Work
from ducklake_core.errors import (
    CatalogUnavailableError,
    CatalogVersionError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    DuckLakeError,
    NotFoundError,
    StorageError,
)
from ducklake_core.format.arguments import optional, whole_number
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.format.types.names import join_name
from ducklake_core.maintenance.request import BudgetMeter, TableRequest
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.uploads import wait_briefly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")
R = TypeVar("R")

_PARALLEL_REQUESTS = 16
REPLANS = RetryPolicy(max_attempts=3)
"""Plans of one table, which is planned again at once after another writer has committed in between."""


# How an operation that rewrites files runs:
#
#   plan_tables      plan each table at the newest snapshot; a table that fails becomes a FailedTable
#   Execution        carry out the groups of files: one by one, on threads, in one job of Spark or in several
#   TableWork        commit all groups together, or each group at once with partial_progress
#   sweep            delete what lost task attempts have left, or all files of the write after an interruption
#
# Files may be deleted only when no snapshot can name them. While a commit runs, and after one whose outcome is unknown, its groups are
# in ``_TableRun._uncertain``, and sweeps keep their files.
@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Settings for running groups: the place, the number at a time, and the time of the commit.

    Attributes:
        spark: Session whose executors do the work; this process does when None.
        max_concurrency: Maximum number of groups at a time. When None, one in this process, whose columns are decoded in parallel then,
            and on Spark as many as it has cores.
        partial_progress: Whether each group is committed as soon as it is done, instead of all groups of a table together.
    """

    spark: SparkSession | None = None
    max_concurrency: int | None = None
    partial_progress: bool = False

    def __post_init__(self) -> None:
        optional(partial(whole_number, least=1), "max_concurrency", self.max_concurrency)

    def outcomes(self, work: Work[T, R], tasks: Sequence[T], meter: BudgetMeter) -> Generator[tuple[int, R | DuckLakeError, bool]]:
        """Carry out tasks.

        Yields:
            As they end: the number of a task, what became of it or why nothing did, and whether files of it may have been left behind.
            Tasks that were not begun when time was up are left out.
        """
        if meter.is_out_of_time:
            return
        if self.spark is None:
            count = min(len(tasks), self.max_concurrency or 1)
            yield from _on_threads(work, tasks, count, meter) if count > 1 else _in_turn(work, tasks, meter)
            return
        from ducklake_core.engines.spark.work_units import run_in_jobs, run_in_one_job

        # A job for each group reports the group when it ends. One job for all of them has less overhead, and reports at its end.
        if self.partial_progress or self.max_concurrency is not None:
            yield from run_in_jobs(work, tasks, self.spark, self.max_concurrency, lambda: meter.is_out_of_time)
            return
        results, lost = run_in_one_job(work, tasks, self.spark)
        yield from ((number, result, lost) for number, result in enumerate(results))


def _in_turn(work: Work[T, R], tasks: Sequence[T], meter: BudgetMeter) -> Generator[tuple[int, R | DuckLakeError, bool]]:
    for number, task in enumerate(tasks):
        if meter.is_out_of_time:
            return
        try:
            result: R | DuckLakeError = work(task)
        except DuckLakeError as error:
            result = error
        yield number, result, False


def _on_threads(work: Work[T, R], tasks: Sequence[T], count: int, meter: BudgetMeter) -> Generator[tuple[int, R | DuckLakeError, bool]]:
    ended = threading.Event()

    def attempt(task: T) -> R | DuckLakeError | None:
        if meter.is_out_of_time:
            return None
        try:
            # Several groups at a time keep the cores busy; none of them decodes its columns in parallel as well.
            return work(task, threads=False, stopped=ended.is_set)
        except DuckLakeError as error:
            return error

    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="ducklake-group")
    try:
        numbers = {pool.submit(attempt, task): number for number, task in enumerate(tasks)}
        for future in as_completed(numbers):
            result = future.result()
            if result is not None:
                yield numbers[future], result, False
    finally:
        # Threads that still work stop at their next batch, and delete what they have written.
        ended.set()
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut(Generic[R]):
    """Results of groups, by their numbers.

    Attributes:
        done: What was committed, ``committed`` the snapshot that it is part of.
        failed: Why a group was not; its files are as they were.
        late: Numbers of the groups that were not begun when time was up.
        rejections: Why commits failed.
    """

    done: Mapping[int, R]
    committed: Mapping[int, Snapshot]
    failed: Mapping[int, DuckLakeError]
    late: frozenset[int] = frozenset()
    rejections: tuple[DuckLakeError, ...] = ()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots of the commits, each once, by id."""
        return tuple(sorted(set(self.committed.values()), key=lambda snapshot: snapshot.id))

    @property
    def rejection(self) -> DuckLakeError | None:
        """Return the error for which the commit of all groups of a table together failed."""
        return self.rejections[0] if self.rejections else None

    def part(self, numbers: range) -> CarriedOut[R]:
        """Return the results of some groups, renumbered from 0 on."""
        failed = {number - numbers.start: error for number, error in self.failed.items() if number in numbers}
        return CarriedOut(
            done={number - numbers.start: result for number, result in self.done.items() if number in numbers},
            committed={number - numbers.start: snapshot for number, snapshot in self.committed.items() if number in numbers},
            failed=failed,
            late=frozenset(number - numbers.start for number in self.late if number in numbers),
            rejections=tuple(error for error in self.rejections if any(error is other for other in failed.values())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWork(Generic[T, R]):
    """The groups of one table, or of several that are committed together.

    Attributes:
        work: Carries out a task.
        tasks: One for each group.
        commit: Commits what became of some groups, by their numbers; when it fails surely it deletes their files, except where they may
            be committed table by table (:func:`may_commit_apart`).
        sweep: Deletes all files of the write that the catalog does not name, except those of some results.
        ended: Called with the number of each group that has ended.
        tables: Of each task, the number of its table. Those of several tables are committed together, and table by table when that fails;
            None when all are of one.
    """

    work: Work[T, R]
    tasks: Sequence[T]
    commit: Callable[[Mapping[int, R]], Snapshot]
    sweep: Callable[[Sequence[R]], None]
    ended: Callable[[int], None]
    tables: Sequence[int] | None = None

    def run(self, execution: Execution, meter: BudgetMeter) -> CarriedOut[R]:
        """Carry out and commit the groups. What is committed when something interrupts it stays; all other files are deleted."""
        return _TableRun(self).run(execution, meter)

    def by_table(self, results: dict[int, R]) -> list[dict[int, R]]:
        """Return results apart for each table."""
        found: dict[int, dict[int, R]] = {}
        for number, result in results.items():
            found.setdefault(0 if self.tables is None else self.tables[number], {})[number] = result
        return list(found.values())


class _TableRun(Generic[T, R]):
    """One run of the groups of a table."""

    def __init__(self, work: TableWork[T, R]) -> None:
        self._work = work
        self._done: dict[int, R] = {}
        self._committed: dict[int, Snapshot] = {}
        self._failed: dict[int, DuckLakeError] = {}
        self._rejections: list[DuckLakeError] = []
        self._uncertain: list[R] = []

    def run(self, execution: Execution, meter: BudgetMeter) -> CarriedOut[R]:
        written: dict[int, R] = {}
        any_lost = False
        try:
            with closing(execution.outcomes(self._work.work, self._work.tasks, meter)) as outcomes:
                for number, result, lost in outcomes:
                    any_lost |= lost
                    if isinstance(result, DuckLakeError):
                        self._failed[number] = result
                    elif execution.partial_progress:
                        self._commit({number: result})
                    else:
                        written[number] = result
                    self._work.ended(number)
            if written:
                # In the order of the groups, in which they need not have ended.
                self._commit(dict(sorted(written.items())))
        except BaseException:
            wait_briefly(partial(self._work.sweep, self._uncertain))
            raise
        if any_lost:
            self._work.sweep(self._uncertain)
        late = frozenset(range(len(self._work.tasks))) - self._done.keys() - self._failed.keys()
        rejections = () if execution.partial_progress else tuple(self._rejections)
        return CarriedOut(done=self._done, committed=self._committed, failed=self._failed, late=late, rejections=rejections)

    def _commit(self, results: dict[int, R]) -> None:
        """Commit some groups, or note why they are not committed."""
        known = len(self._uncertain)
        # Until it is known what became of them, their files must not be deleted: a commit that was interrupted may yet be carried out.
        self._uncertain += results.values()
        try:
            snapshot = self._work.commit(results)
        except DuckLakeError as error:
            if isinstance(error, CommitOutcomeUnknownError):
                self._reject(results, error)
                return
            del self._uncertain[known:]
            if is_about_lake(error):
                raise
            apart = self._work.by_table(results)
            if len(apart) == 1 or not may_commit_apart(error):
                self._reject(results, error)
                return
            # What is in the way of one table need not be in the way of the others.
            for of_table in apart:
                self._commit(of_table)
            return
        del self._uncertain[known:]
        self._committed.update(dict.fromkeys(results, snapshot))
        self._done.update(results)

    def _reject(self, results: dict[int, R], error: DuckLakeError) -> None:
        self._failed.update(dict.fromkeys(results, error))
        self._rejections.append(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTable:
    """A table that could not be planned, and why."""

    table: str
    error: DuckLakeError


@dataclass(frozen=True, slots=True)
class PlannedTables(Generic[T]):
    """The plans of tables, in the order of their names, and the patterns that no table matches."""

    plans: list[T | FailedTable]
    unmatched: tuple[str, ...] = ()


def plan_tables(
    database: Database, info: LakeInfo, request: TableRequest, plan: Callable[[CatalogReader, TableState, Snapshot], T]
) -> PlannedTables[T]:
    """Plan tables at the newest snapshot.

    Args:
        request: Which tables.
        plan: Plans one of them.

    Raises:
        NotFoundError: The table or schema does not exist.
        CatalogUnavailableError: The catalog cannot be reached.
        CatalogVersionError: It was migrated since it was opened.
    """
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        base = reader.latest_snapshot()
        selected = request.scope.select(reader, base.id)
        ids = selected.names
        many = request.reading.reader(reader, base, ids) if request.reading else ManyTablesReader(connection, info, database.tables, ids)
        found = {number: _attempt(database, many, number, name, base, plan) for number, name in selected.names.items()}
    # One that failed may have spoiled the transaction, or the statement, for others: each is tried by itself.
    for number, name in selected.names.items():
        if isinstance(found[number], FailedTable):
            found[number] = _plan_alone(database, info, number, name, plan)
    return PlannedTables(list(found.values()), selected.unmatched)


def _attempt(
    database: Database,
    reader: CatalogReader,
    number: int,
    name: str,
    base: Snapshot,
    plan: Callable[[CatalogReader, TableState, Snapshot], T],
) -> T | FailedTable:
    try:
        with database.reporting():
            return plan(reader, reader.table_by_id(number, base.id), base)
    except DuckLakeError as error:
        if classify(error) == "unavailable" or is_about_lake(error):
            raise
        return FailedTable(table=name, error=error)


def _plan_alone(
    database: Database, info: LakeInfo, number: int, name: str, plan: Callable[[CatalogReader, TableState, Snapshot], T]
) -> T | FailedTable:
    try:
        with database.read() as connection:
            reader = CatalogReader(connection, info, database.tables)
            base = reader.latest_snapshot()
            return plan(reader, reader.table_by_id(number, base.id), base)
    except DuckLakeError as error:
        if classify(error) == "unavailable" or is_about_lake(error):
            raise
        return FailedTable(table=name, error=error)


def is_about_lake(error: DuckLakeError) -> bool:
    """Return whether all other tables would fail with the same error: the catalog was migrated since it was opened."""
    return isinstance(error, CatalogVersionError)


def name_of(table: TableState) -> str:
    """Return ``schema.table``, quoted where it has to be."""
    return join_name(table.schema_name, table.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one table, ready to be committed.

    Attributes:
        table: The table.
        base: The snapshot that it was planned at.
        action: The change.
        message: Stored with the snapshot, unless ``commit`` has one.
        commit: Author, message and extra information of the snapshot.
        facts: What is stored with it, where the caller does not use the same keys.
        files: Full paths and bytes of the files that were made for it.
    """

    table: TableState
    base: Snapshot
    action: Action
    message: str
    commit: CommitMessage = field(default_factory=CommitMessage)
    facts: Mapping[str, object] = field(default_factory=dict)
    files: tuple[tuple[str, int], ...] = ()


def _extra_info(commit_id: str, change: Change) -> str:
    stored = stored_extra_info(commit_id, change.commit.get("extra_info"))
    return json.dumps({**change.facts, **json.loads(stored)}) if change.facts else stored


def check_made(storage: Storage, files: Sequence[tuple[str, int]]) -> None:
    """Check that the store has the files that are about to replace others, with the sizes that were written.

    Raises:
        StorageError: A file is not there, or has another size.
    """

    def problem(file: tuple[str, int]) -> str | None:
        path, size = file
        try:
            found = storage.size(path)
        except NotFoundError:
            return f"{printable(path)} was written, and is not there"
        return None if found == size else f"{printable(path)} was written with {size} bytes, and has {found}"

    with ThreadPoolExecutor(max_workers=max(1, min(len(files), _PARALLEL_REQUESTS)), thread_name_prefix="made") as pool:
        problems = [one for one in pool.map(problem, files) if one is not None]
    if problems:
        raise StorageError(f"{problems[0]}: the store lost what it had taken; the files that it was made of are left as they are")


def commit_table(database: Database, info: LakeInfo, storage: Storage, change: Change) -> Snapshot:
    """Commit what became of one table. Where there surely is no snapshot with its files they are deleted.

    Raises:
        CommitError: It did not become a snapshot.
        StorageError: The store does not have the files.
    """
    return commit_together(database, info, storage, [change])


def commit_together(
    database: Database, info: LakeInfo, storage: Storage, changes: Sequence[Change], *, message: str | None = None
) -> Snapshot:
    """Commit what became of several tables, planned at one snapshot, as one snapshot.

    Where there surely is no snapshot with their files they are deleted, unless the changes may be committed one by one
    (:func:`may_commit_apart`).

    Args:
        message: Stored with the snapshot, in place of that of the first change.

    Raises:
        CommitError: They did not become a snapshot.
        CatalogError: The catalog is that of a lake with other settings.
        StorageError: The store does not have the files.
    """
    first, commit_id = changes[0], new_commit_id()
    files = [file for change in changes for file in change.files]
    request = CommitRequest(
        base=first.base,
        actions=tuple(change.action for change in changes),
        commit_id=commit_id,
        names={change.table.id: name_of(change.table) for change in changes},
        author=first.commit.get("author"),
        message=first.commit.get("message") or message or first.message,
        extra_info=_extra_info(commit_id, first),
    )
    committer = Committer(database)
    try:
        with database.read() as connection:
            # If the catalog was replaced by that of a lake with other settings, its readers would not find the files, or not decrypt them.
            check_same_lake(info, stored_options(connection, database.tables))
        if info.encrypted:
            check_encrypted(request.actions)
        # This commit schedules the sources for deletion, so their replacements must be in the store before.
        check_made(storage, files)
        return committer.commit(request).snapshot
    except CommitOutcomeUnknownError:
        # The files may be part of the lake by now.
        raise
    except BaseException as error:
        # Interrupted: the files are not needed, unless their snapshot may be there.
        if isinstance(error, DuckLakeError) or not committer.may_have_committed:
            discard_made(storage, [path for path, _ in files], error, tables=len(changes))
        raise


def discard_made(storage: Storage, files: Sequence[str], error: BaseException, *, tables: int) -> None:
    """Delete files of changes that surely were not committed, unless the changes may be committed table by table.

    Args:
        storage: How to reach the files.
        files: Full paths.
        error: Why the changes were not committed.
        tables: Number of tables that the changes are of.
    """
    if tables == 1 or not isinstance(error, DuckLakeError) or not may_commit_apart(error):
        storage.discard(files)


def may_commit_apart(error: DuckLakeError) -> bool:
    """Return whether changes that failed together may be committed one by one: not for errors that would hit each of them too."""
    return not (isinstance(error, CommitRetriesExhaustedError | CatalogUnavailableError) or is_about_lake(error))


def run_write(attempt: Callable[[], T], what: str) -> T:
    """Run a transaction that may be repeated as a whole, until it commits.

    Only for transactions that find nothing left to do when an earlier attempt did commit. The pauses between the attempts take at most
    15 seconds together; open read transactions of a SQLite file are waited for 10 seconds.

    Raises:
        CommitRetriesExhaustedError: Other writers were in the way every time.
    """
    attempts = MAINTENANCE_RETRIES.attempts()
    while True:
        try:
            return attempt()
        except DuckLakeError as error:
            if classify(error) == "fatal":
                raise
            if not attempts.again(error):
                number = attempts.number
                raise CommitRetriesExhaustedError(f"could not {what} in {number} attempts ({error.message}); try again later") from error
