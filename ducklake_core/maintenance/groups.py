"""Plan tables one by one, run groups of files as work units, and commit them with retries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.failures import MAINTENANCE_RETRIES, RetryPolicy
from ducklake_core.catalog.reading.bulk_reader import ManyTablesReader
from ducklake_core.catalog.reading.options import check_same_lake, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import Action
from ducklake_core.commit.committer import Committer, check_encrypted
from ducklake_core.commit.registration import registered
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
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.request import BudgetMeter, TableRequest
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.uploads import wait_briefly
from ducklake_core.storage.waiting import as_completed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")
R = TypeVar("R")

_PARALLEL_REQUESTS = 16
REPLANS = RetryPolicy(max_attempts=3)
"""Attempts to plan one table, which is planned again after another writer commits meanwhile."""


class EnclosingTransaction(Protocol):
    """A transaction that maintenance is part of."""

    @property
    def base(self) -> Snapshot:
        """The snapshot that the transaction reads."""

    def register(self, write_id: str) -> None:
        """Protect the files of a write until the transaction ends."""

    def seen(self, table: TableState) -> TableState:
        """Return a table with the options that the transaction has set.

        Raises:
            UsageError: It has other changes, or has replaced files of the table already.
        """

    def take(self, changes: Sequence[Change]) -> None:
        """Let the commit make changes."""


# Steps of an operation that rewrites files:
#
#   plan_tables      plan each table at the newest snapshot; a table that fails becomes a FailedTable
#   Execution        run the groups of files: one by one, on threads, in one Spark job or in several
#   TableWork        commit all groups together, or each group at once with partial_progress
#   sweep            delete files of lost task attempts, or all files of the write after an interruption
#
# Files may be deleted only if no snapshot can contain them. While a commit runs, and after one with an unknown outcome, its groups are in
# ``_TableRun._uncertain``, and sweeps keep their files.
@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Settings for running groups.

    Attributes:
        spark: Spark session whose executors do the work; None for this process.
        max_concurrency: Maximum number of groups at the same time. Default: one in this process, with columns decoded in parallel, and on
            Spark the number of cores.
        partial_progress: Whether to commit each group as soon as it is done, instead of all groups of a table together.
        transaction: The transaction whose commit includes the changes; None to commit them at once.
    """

    spark: SparkSession | None = None
    max_concurrency: int | None = None
    partial_progress: bool = False
    transaction: EnclosingTransaction | None = None

    def __post_init__(self) -> None:
        optional(partial(whole_number, least=1), "max_concurrency", self.max_concurrency)

    def base(self, reader: CatalogReader) -> Snapshot:
        """Return the snapshot to plan at: the base of the transaction, or the newest."""
        return reader.latest_snapshot() if self.transaction is None else self.transaction.base

    def registered(self, database: Database, write_id: str) -> AbstractContextManager[None]:
        """Protect the files of a write from sweeps of other processes, until the block or the transaction ends."""
        if self.transaction is None:
            return registered(database, write_id)
        self.transaction.register(write_id)
        return nullcontext()

    def commit(
        self, database: Database, info: LakeInfo, storage: Storage, changes: Sequence[Change], *, message: str | None = None
    ) -> Snapshot:
        """Commit changes, as :func:`commit_together` does, or add them to the transaction.

        Returns:
            The snapshot of the commit; the base of the transaction if there is one.
        """
        if self.transaction is None:
            return commit_together(database, info, storage, changes, message=message)
        self.transaction.take(changes)
        return self.transaction.base

    def outcomes(self, work: Work[T, R], tasks: Sequence[T], meter: BudgetMeter) -> Generator[tuple[int, R | DuckLakeError, bool]]:
        """Run tasks.

        Yields:
            For each finished task: its number, its result or error, and whether it may have left files behind. Tasks that were not started
            in time are missing.
        """
        if meter.is_out_of_time:
            return
        if self.spark is None:
            count = min(len(tasks), self.max_concurrency or 1)
            yield from _on_threads(work, tasks, count, meter) if count > 1 else _one_by_one(work, tasks, meter)
            return
        from ducklake_core.engines.spark.work_units import run_in_jobs, run_in_one_job

        # A job for each group reports the group when it ends. One job for all of them has less overhead, and reports at its end.
        if self.partial_progress or self.max_concurrency is not None:
            yield from run_in_jobs(work, tasks, self.spark, self.max_concurrency, lambda: meter.is_out_of_time)
            return
        results, lost = run_in_one_job(work, tasks, self.spark)
        yield from ((number, result, lost) for number, result in enumerate(results))


def _one_by_one(work: Work[T, R], tasks: Sequence[T], meter: BudgetMeter) -> Generator[tuple[int, R | DuckLakeError, bool]]:
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
            # Several groups keep the cores busy, so none of them decodes its columns in parallel.
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
        # Running threads stop at their next batch, and delete the files that they have written.
        ended.set()
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut(Generic[R]):
    """Results of groups, by number.

    Attributes:
        done: Results of committed groups.
        committed: Snapshots of these groups.
        failed: Errors of failed groups, whose files are unchanged.
        late: Numbers of the groups that were not started in time.
        rejections: Errors of commits.
    """

    done: Mapping[int, R]
    committed: Mapping[int, Snapshot]
    failed: Mapping[int, DuckLakeError]
    late: frozenset[int] = frozenset()
    rejections: tuple[DuckLakeError, ...] = ()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots of the commits, by id."""
        return tuple(sorted(set(self.committed.values()), key=lambda snapshot: snapshot.id))

    @property
    def rejection(self) -> DuckLakeError | None:
        """Return the error of the commit of all groups of a table."""
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
        work: Runs a task.
        tasks: One task for each group.
        commit: Commits the results of some groups, by number. If it certainly fails, it deletes their files, unless they may be committed
            table by table (:func:`may_commit_apart`).
        sweep: Deletes all files of the write that the catalog does not contain, except those of some results.
        ended: Called with the number of each finished group.
        tables: Number of the table of each task. Groups of several tables are committed together, and table by table if that fails;
            None if all belong to one table.
    """

    work: Work[T, R]
    tasks: Sequence[T]
    commit: Callable[[Mapping[int, R]], Snapshot]
    sweep: Callable[[Sequence[R]], None]
    ended: Callable[[int], None]
    tables: Sequence[int] | None = None

    def run(self, execution: Execution, meter: BudgetMeter) -> CarriedOut[R]:
        """Run and commit the groups. After an interruption, committed groups are kept, and all other files are deleted."""
        return _TableRun(self).run(execution, meter)

    def by_table(self, results: dict[int, R]) -> list[dict[int, R]]:
        """Return the results of each table separately."""
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
        self._commits = True

    def run(self, execution: Execution, meter: BudgetMeter) -> CarriedOut[R]:
        self._commits = execution.transaction is None
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
                # In the order of the groups, which may have finished in another order.
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
        """Commit some groups, or record the error."""
        known = len(self._uncertain)
        # Until it is known what became of them, their files must not be deleted: a commit that was interrupted may yet be carried out.
        # In a transaction, this commits nothing.
        self._uncertain += results.values() if self._commits else ()
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
            # An obstacle of one table need not affect the others.
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
    """A table that could not be planned, with the error."""

    table: str
    error: DuckLakeError


@dataclass(frozen=True, slots=True)
class PlannedTables(Generic[T]):
    """The plans of tables, by name, and the patterns that match no table."""

    plans: list[T | FailedTable]
    unmatched: tuple[str, ...] = ()


def plan_tables(
    database: Database,
    info: LakeInfo,
    request: TableRequest,
    plan: Callable[[CatalogReader, TableState, Snapshot], T],
    *,
    execution: Execution | None = None,
) -> PlannedTables[T]:
    """Plan tables at the newest snapshot, or at that of the transaction of ``execution``.

    Args:
        database: The catalog's database.
        info: Settings of the lake.
        request: Request with the tables.
        plan: Plans one table.
        execution: Settings of the run. Default: no transaction.

    Raises:
        NotFoundError: The table or schema does not exist.
        CatalogUnavailableError: The catalog cannot be reached.
        CatalogVersionError: It was migrated since it was opened.
        DuckLakeError: A table of a transaction cannot be planned.
    """
    execution = execution or Execution()

    def seen(reader: CatalogReader, table: TableState, base: Snapshot) -> T:
        return plan(reader, table if execution.transaction is None else execution.transaction.seen(table), base)

    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        base = execution.base(reader)
        selected = request.scope.select(reader, base.id)
        ids = selected.names
        many = request.reading.reader(reader, base, ids) if request.reading else ManyTablesReader(connection, info, database.tables, ids)
        found = {number: _attempt(database, many, number, name, base, seen) for number, name in selected.names.items()}
    # A failed table may have aborted the transaction or the query of the others, so each is planned separately.
    for number, name in selected.names.items():
        if isinstance(found[number], FailedTable):
            found[number] = _plan_alone(database, info, number, name, seen, execution)
    failed = next((plan for plan in found.values() if isinstance(plan, FailedTable)), None)
    if failed is not None and execution.transaction is not None:
        raise failed.error
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
    database: Database,
    info: LakeInfo,
    number: int,
    name: str,
    plan: Callable[[CatalogReader, TableState, Snapshot], T],
    execution: Execution,
) -> T | FailedTable:
    try:
        return replan(database, info, number, plan, execution)
    except DuckLakeError as error:
        if classify(error) == "unavailable" or is_about_lake(error):
            raise
        return FailedTable(table=name, error=error)


def replan(
    database: Database, info: LakeInfo, number: int, plan: Callable[[CatalogReader, TableState, Snapshot], T], execution: Execution
) -> T:
    """Plan one table, by id, at the newest snapshot, or at that of the transaction of ``execution``."""
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        base = execution.base(reader)
        return plan(reader, reader.table_by_id(number, base.id), base)


def is_about_lake(error: DuckLakeError) -> bool:
    """Return whether all other tables would fail with the same error: the catalog was migrated since it was opened."""
    return isinstance(error, CatalogVersionError)


def name_of(table: TableState) -> str:
    """Return ``schema.table``, quoted where necessary."""
    return join_name(table.schema_name, table.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one table, ready to be committed.

    Attributes:
        table: The table.
        base: The snapshot at which it was planned.
        action: The change.
        message: Message of the snapshot, unless ``commit`` has one.
        commit: Author, message and extra information of the snapshot.
        facts: Further information to store, unless the caller uses the same keys.
        files: Full paths and bytes of the new files.
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
    """Check that the store has the new files, with the sizes that were written, before they replace others.

    Raises:
        StorageError: A file is missing, or has another size.
    """

    def problem(file: tuple[str, int]) -> str | None:
        path, size = file
        try:
            found = storage.size(path)
        except NotFoundError:
            return f"{printable(path)} was written, but is missing"
        return None if found == size else f"{printable(path)} was written with {size:,} bytes, but has {found:,}"

    with ThreadPoolExecutor(max_workers=max(1, min(len(files), _PARALLEL_REQUESTS)), thread_name_prefix="made") as pool:
        problems = [one for one in pool.map(problem, files) if one is not None]
    if problems:
        raise StorageError(
            f"{problems[0]}. Nothing was committed, and the original files are kept. Check the store, and run the operation again"
        )


def commit_together(
    database: Database, info: LakeInfo, storage: Storage, changes: Sequence[Change], *, message: str | None = None
) -> Snapshot:
    """Commit the changes of several tables, planned at one snapshot, as one snapshot.

    If the commit certainly fails, the files are deleted, unless the changes may be committed one by one (:func:`may_commit_apart`).

    Args:
        database: The catalog's database.
        info: Settings of the lake.
        storage: Opens the store.
        changes: The changes.
        message: Message of the snapshot. Default: the message of the first change.

    Raises:
        CommitError: The changes were not committed.
        CatalogError: The catalog belongs to a lake with other settings.
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
            # If the catalog was replaced by one of a lake with other settings, its readers would not find or decrypt the files.
            check_same_lake(info, stored_options(connection, database.tables))
        if info.encrypted:
            check_encrypted(request.actions)
        # This commit schedules the sources for deletion, so their replacements must be in the store before.
        check_made(storage, files)
        return committer.commit(request).snapshot
    except CommitOutcomeUnknownError:
        # The files may be part of the lake now.
        raise
    except BaseException as error:
        # Interrupted: the files are not needed, unless their snapshot may exist.
        if isinstance(error, DuckLakeError) or not committer.may_have_committed:
            discard_made(storage, [path for path, _ in files], error, tables=len(changes))
        raise


def discard_made(storage: Storage, files: Sequence[str], error: BaseException, *, tables: int) -> None:
    """Delete files of changes that were certainly not committed, unless the changes may be committed table by table.

    Args:
        storage: Opens the store.
        files: Full paths.
        error: Error of the commit.
        tables: Number of changed tables.
    """
    if tables == 1 or not isinstance(error, DuckLakeError) or not may_commit_apart(error):
        storage.discard(files)


def may_commit_apart(error: DuckLakeError) -> bool:
    """Return whether changes that failed together may be committed one by one, because the error need not affect each of them."""
    return not (isinstance(error, CommitRetriesExhaustedError | CatalogUnavailableError) or is_about_lake(error))


def run_write(attempt: Callable[[], T], what: str) -> T:
    """Run a repeatable transaction until it commits.

    Only for transactions that find nothing left to do if an earlier attempt has committed. The pauses between the attempts take at most 15
    seconds in total; each waits 10 seconds for open read transactions of a SQLite file.

    Args:
        attempt: Runs the transaction.
        what: Description for the error, such as ``set the option``.

    Raises:
        CommitRetriesExhaustedError: Every attempt conflicted with other writers.
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
                raise CommitRetriesExhaustedError(
                    f"Could not {what} in {counted(number, 'attempt')}: {error.message}. Try again later"
                ) from error
