"""Sets of snapshots as (first, last) pairs, both included: which snapshots may have changed something."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

Span: TypeAlias = tuple[int, int]


def common(left: Iterable[Span], right: Iterable[Span]) -> tuple[Span, ...]:
    """The intersection of both, ascending and disjoint.

    >>> common([(1, 4), (6, 9)], [(3, 7), (9, 9)])
    ((3, 4), (6, 7), (9, 9))
    """
    found: list[Span] = []
    ones, others = _merged(left), _merged(right)
    while ones and others:
        first, last = max(ones[0][0], others[0][0]), min(ones[0][1], others[0][1])
        if first <= last:
            found.append((first, last))
        (ones if ones[0][1] <= others[0][1] else others).popleft()
    return tuple(found)


def _merged(spans: Iterable[Span]) -> deque[Span]:
    merged: deque[Span] = deque()
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def covered(spans: Sequence[Span], snapshots: np.ndarray) -> np.ndarray:
    """Which snapshot ids lie in one of the ascending, disjoint pairs.

    >>> covered([(1, 2), (5, 5)], np.array([0, 2, 4, 5, 6])).tolist()
    [False, True, False, True, False]
    """
    if not spans:
        return np.zeros(len(snapshots), dtype=bool)
    firsts, lasts = (np.array(ends) for ends in zip(*spans, strict=True))
    place = np.searchsorted(firsts, snapshots, side="right") - 1
    return (place >= 0) & (snapshots <= lasts[place])


def meet(spans: Sequence[Span], others: Iterable[Span]) -> bool:
    """Whether ascending, disjoint pairs have a snapshot in common with any of the others.

    >>> meet([(1, 2), (5, 5)], [(3, 4)]), meet([(1, 2), (5, 5)], [(3, 4), (4, 5)])
    (False, True)
    """
    for first, last in others:
        place = bisect_right(spans, last, key=lambda span: span[0]) - 1
        if place >= 0 and spans[place][1] >= first:
            return True
    return False
