"""Work units of maintenance, and an ordered map on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

Task_contra = TypeVar("Task_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Stopped: TypeAlias = Callable[[], bool]
"""Returns whether the thread should stop."""

Result = TypeVar("Result")


class Work(Protocol[Task_contra, Result_co]):
    """Carries out tasks of one kind. Its files are in place but not committed; if it fails, it deletes them first."""

    def __call__(self, task: Task_contra, /, *, threads: bool = True, stopped: Stopped | None = None) -> Result_co:
        """Carry out a task.

        Args:
            task: The task. It travels to executors and contains nothing of the catalog.
            threads: Whether to decode columns in parallel; executors have one core for a task.
            stopped: Called before every batch of rows; True ends the task. None means that nothing stops it.

        Raises:
            DuckLakeError: Why the task could not be carried out.
            KeyboardInterrupt: It was stopped.
        """


def until_stopped(batches: Iterable[pa.RecordBatch], stopped: Stopped | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches until the thread is stopped, and raise ``KeyboardInterrupt`` then, as Ctrl-C does in the main thread."""
    for batch in batches:
        if stopped is not None and stopped():
            raise KeyboardInterrupt
        yield batch


def in_order(pieces: Iterable[Callable[[], Sequence[Result]]], workers: int) -> Iterator[Result]:
    """Yield the results of all pieces in order; threads begin the next pieces once the caller has taken the results of the first.

    At most one finished piece more than there are threads waits in memory. The error of a piece is raised at its index in the order.
    Closing the generator ends the work: it waits for running pieces, and begins no others.

    Args:
        pieces: The work; a piece is taken from the iterable when a thread can run it next.
        workers: Number of threads; with fewer than two, each piece runs here when its results are requested.
    """
    waiting = iter(pieces)
    # The first piece runs without threads: a caller that needs only its rows, such as head(), causes no further work.
    for piece in islice(waiting, None if workers < 2 else 1):
        yield from piece()
    ahead = list(islice(waiting, 2))
    if len(ahead) < 2:
        for piece in ahead:
            yield from piece()
        return
    begun: deque[Future[Sequence[Result]]] = deque()
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="ducklake-reader") as threads:
        try:
            for piece in chain(ahead, waiting):
                begun.append(threads.submit(piece))
                if len(begun) > workers:
                    yield from begun.popleft().result()
            while begun:
                yield from begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
