"""Groups of files carried out by work units: in this process, on threads or on executors, and committed together or one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ducklake_core.engines.arrow.work import Work
from ducklake_core.errors import CommitOutcomeUnknownError, DuckLakeError, UsageError
from ducklake_core.format.state import Snapshot
from ducklake_core.maintenance.budget import BudgetMeter
from ducklake_core.maintenance.tables import is_about_lake, may_commit_apart
from ducklake_core.storage.uploads import wait_briefly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where groups are carried out, how many at a time, and when they are committed.

    Attributes:
        spark: Session whose executors do the work; this process does when None.
        max_concurrency: Most groups at a time. When None, one in this process, whose columns are decoded in parallel then, and on
            Spark as many as it has cores.
        partial_progress: Whether each group is committed as soon as it is done, instead of all groups of a table together.
    """

    spark: SparkSession | None = None
    max_concurrency: int | None = None
    partial_progress: bool = False

    def __post_init__(self) -> None:
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise UsageError(f"max_concurrency must be at least 1, not {self.max_concurrency}", parameter="max_concurrency")

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
    """What became of groups, by their numbers.

    Attributes:
        done: What was committed, ``committed`` the snapshot that it is part of.
        failed: Why a group was not; its files are as they were.
        late: Numbers of the groups that were not begun when time was up.
        refusals: Why commits failed.
    """

    done: Mapping[int, R]
    committed: Mapping[int, Snapshot]
    failed: Mapping[int, DuckLakeError]
    late: frozenset[int] = frozenset()
    refusals: tuple[DuckLakeError, ...] = ()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """What the commits became."""
        return tuple(sorted(set(self.committed.values()), key=lambda snapshot: snapshot.id))

    @property
    def refusal(self) -> DuckLakeError | None:
        """Why the commit of all groups of a table together failed."""
        return self.refusals[0] if self.refusals else None

    def part(self, numbers: range) -> CarriedOut[R]:
        """What became of some groups, counted from 0 on."""
        failed = {number - numbers.start: error for number, error in self.failed.items() if number in numbers}
        return CarriedOut(
            done={number - numbers.start: result for number, result in self.done.items() if number in numbers},
            committed={number - numbers.start: snapshot for number, snapshot in self.committed.items() if number in numbers},
            failed=failed,
            late=frozenset(number - numbers.start for number in self.late if number in numbers),
            refusals=tuple(error for error in self.refusals if any(error is other for other in failed.values())),
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
        ended: Told of each group that has ended, by its number.
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
        """Results apart for each table."""
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
        self._refusals: list[DuckLakeError] = []
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
        refusals = () if execution.partial_progress else tuple(self._refusals)
        return CarriedOut(done=self._done, committed=self._committed, failed=self._failed, late=late, refusals=refusals)

    def _commit(self, results: dict[int, R]) -> None:
        """Commit some groups, or note why they are not committed."""
        known = len(self._uncertain)
        # Until it is known what became of them, nobody may delete their files: a commit that was interrupted may yet be carried out.
        self._uncertain += results.values()
        try:
            snapshot = self._work.commit(results)
        except DuckLakeError as error:
            if isinstance(error, CommitOutcomeUnknownError):
                self._refuse(results, error)
                return
            del self._uncertain[known:]
            if is_about_lake(error):
                raise
            apart = self._work.by_table(results)
            if len(apart) == 1 or not may_commit_apart(error):
                self._refuse(results, error)
                return
            # What is in the way of one table need not be in the way of the others.
            for of_table in apart:
                self._commit(of_table)
            return
        del self._uncertain[known:]
        self._committed.update(dict.fromkeys(results, snapshot))
        self._done.update(results)

    def _refuse(self, results: dict[int, R], error: DuckLakeError) -> None:
        self._failed.update(dict.fromkeys(results, error))
        self._refusals.append(error)
