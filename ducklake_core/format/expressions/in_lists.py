"""The constants of an IN list in the order of their values: one look finds whether any of them lies between two bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from ducklake_core.format.expressions.comparison import Domain, common_domain, key_of
from ducklake_core.format.expressions.predicates import InList, Literal
from ducklake_core.format.expressions.remembered import remembered
from ducklake_core.format.types.data_types import DataType


@remembered
def sorted_keys(predicate: InList, column_type: DataType) -> Mapping[Domain | None, Sequence[Any]]:
    """Keys of the constants that are not NULL, ascending, by the domain in which each compares with the column (None: in none)."""
    return {
        domain: [] if domain is None else sorted({key_of(literal.value, literal.type, domain) for literal in found})
        for domain, found in _by_domain(predicate.values, column_type).items()
    }


def _by_domain(values: Sequence[Literal], column_type: DataType) -> dict[Domain | None, list[Literal]]:
    found: dict[Domain | None, list[Literal]] = {}
    for literal in values:
        if literal.value is not None:
            found.setdefault(common_domain(column_type, literal.type), []).append(literal)
    return found


def any_between(keys: Sequence[Any], low: Any, high: Any) -> bool:
    """Whether one of the ascending keys is at least ``low`` and at most ``high``; None is no bound.

    >>> any_between([1, 5, 9], 2, 4), any_between([1, 5, 9], 2, 5), any_between([1, 5, 9], None, 0), any_between([], None, None)
    (False, True, False, False)
    """
    index = 0 if low is None else bisect_left(keys, low)
    return index < len(keys) and (high is None or bool(keys[index] <= high))


def ranges(values: Sequence[Literal], column_type: DataType, most: int) -> list[tuple[Literal, Literal]]:
    """Ranges, at most so many for a domain, that hold all constants that are not NULL: first and last of each, alike for a single one.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> found = ranges([Literal(value=n, type=INT32) for n in (9, 1, 5, 6, 2)], INT32, 2)
    >>> [(low.value, high.value) for low, high in found]
    [(1, 5), (6, 9)]
    """
    found: list[tuple[Literal, Literal]] = []
    for domain, literals in _by_domain(values, column_type).items():
        if domain is None or len(literals) <= most:
            found += [(literal, literal) for literal in literals]
            continue
        keyed = sorted(((key_of(literal.value, literal.type, domain), literal) for literal in literals), key=lambda pair: pair[0])
        size = -(-len(keyed) // most)
        chunks = (keyed[start : start + size] for start in range(0, len(keyed), size))
        found += [(chunk[0][1], chunk[-1][1]) for chunk in chunks]
    return found
