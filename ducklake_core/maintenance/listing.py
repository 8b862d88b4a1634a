"""Lists for people: of very many things the first and last few, and what lies between them in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_LINES = 6
"""Lines of a brief list about things of one kind, such as snapshots or files, of which there may be any number."""
_MOST_RANGES = 4


def listed(items: Sequence[T], line: Callable[[T], str], most: int | None, left_out: Callable[[Sequence[T]], str]) -> list[str]:
    """A line for each item, or for about so many of them at most.

    Args:
        items: What is listed.
        line: The line of an item.
        most: Number of lines; None for a line for each item.
        left_out: What is said of the items between the first and the last ones.

    >>> listed("abcdefg", str.upper, 4, lambda rest: f"{len(rest)} more")
    ['A', 'B', '... 3 more', 'F', 'G']
    """
    first, middle, last = ends(items, most)
    return [*map(line, first), *([f"... {left_out(middle)}"] if middle else []), *map(line, last)]


def ends(items: Sequence[T], most: int | None) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """The first items, those in the middle, and the last ones; first and last ones are so many at most, and few are all among the first."""
    if most is None or len(items) <= most + 1:
        return items, (), ()
    kept = most // 2
    return items[:kept], items[kept : len(items) - kept], items[len(items) - kept :]


def more_files(left_out: Sequence[object]) -> str:
    """How many files are left out of a list."""
    return f"{len(left_out):,} more files"


def id_ranges(ids: Iterable[int]) -> str:
    """Numbers as ranges; when they are many, only the first and the last number.

    >>> id_ranges([4, 1, 2, 3, 7]), id_ranges([8]), id_ranges(range(0, 100, 2))
    ('1 to 4, 7', '8', '50 between 0 and 98')
    """
    known = sorted(ids)
    starts = [one for place, one in enumerate(known) if place == 0 or known[place - 1] != one - 1]
    if len(starts) > _MOST_RANGES:
        return f"{len(known):,} between {known[0]} and {known[-1]}"
    stops = [one for place, one in enumerate(known) if place == len(known) - 1 or known[place + 1] != one + 1]
    return ", ".join(f"{start}" if start == stop else f"{start} to {stop}" for start, stop in zip(starts, stops, strict=True))
