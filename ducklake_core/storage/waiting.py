"""Wait for the work of threads in a way that a signal such as Ctrl-C ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import TypeVar

# Where a library installs a handler of SIGINT with SA_RESTART, as Polars does, a signal does not end a wait without a timeout.
INTERRUPT_SECONDS = 0.1
"""Maximum seconds until a waiting thread handles a signal."""

T = TypeVar("T")


def result_of(future: Future[T]) -> T:
    """Return the result of a future as soon as it is done, or raise its error."""
    while not future.done():
        wait([future], timeout=INTERRUPT_SECONDS)
    return future.result()


def as_completed(futures: Collection[Future[T]]) -> Iterator[Future[T]]:
    """Yield futures in the order in which they are done."""
    done: SimpleQueue[Future[T]] = SimpleQueue()
    for future in futures:
        future.add_done_callback(done.put)
    left = len(futures)
    while left:
        try:
            future = done.get(timeout=INTERRUPT_SECONDS)
        except Empty:
            continue
        left -= 1
        yield future
