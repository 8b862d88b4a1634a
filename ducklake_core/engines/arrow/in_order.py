"""Pieces of work that threads do ahead of whoever takes the results, which come in the order of the pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

Result = TypeVar("Result")


def in_order(pieces: Iterable[Callable[[], Sequence[Result]]], workers: int) -> Iterator[Result]:
    """The results of all pieces, one piece after the other; threads do the next ones when the results of the first were taken.

    One piece more than there are threads may be done and wait: so much is held in memory. What a piece raises is raised when its
    turn comes. Closing the generator ends the work; pieces that run already are waited for, the others are not begun.

    Args:
        pieces: The work; a piece is taken when there is room for it.
        workers: How many threads; with fewer than two, each piece is done here when its results are asked for.
    """
    waiting = iter(pieces)
    # Whoever wants no more than the first rows shall not cause more work than that.
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
