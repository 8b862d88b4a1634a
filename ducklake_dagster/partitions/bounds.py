"""Describe the rows of a slice by bounds that a commit can store, for any number of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from typing import Any, TypeAlias

from ducklake_core import folded
from ducklake_dagster.partitions.predicates import ColumnConstraint, SlicePredicate, Value

Bound: TypeAlias = str | int
Interval: TypeAlias = tuple[str, str]
# Intervals beyond these become the one that spans them, and of a column with more values nothing is said.
_MOST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSet:
    """Values that a column may have: some, or those of half-open intervals of time, which ascend and do not touch. Times are ISO texts,
    which sort as times do.
    """

    type_name: str
    intervals: tuple[Interval, ...] = ()
    values: tuple[Bound, ...] = ()

    def meets(self, other: ColumnSet) -> bool:
        """Whether a value may be in both."""
        if self.type_name != other.type_name:
            # The column had another type then.
            return True
        one, two = set(self.values), set(other.values)
        return (
            bool(one & two)
            or any(low < high_2 and low_2 < high for low, high in self.intervals for low_2, high_2 in other.intervals)
            or any(_in(value, other.intervals) for value in one)
            or any(_in(value, self.intervals) for value in two)
        )

    def union(self, other: ColumnSet) -> ColumnSet | None:
        """Values of either, or more; None for any."""
        if self.type_name != other.type_name or bool(self.values) != bool(other.values):
            return None
        return _column_set(self.type_name, [*self.intervals, *other.intervals], [*self.values, *other.values])

    def without(self, other: ColumnSet) -> ColumnSet:
        """Values that the other does not have."""
        if self.type_name != other.type_name:
            return self
        taken = set(other.values)
        values = tuple(value for value in self.values if value not in taken and not _in(value, other.intervals))
        intervals = reduce(lambda left, cut: [part for one in left for part in _cut(one, cut)], other.intervals, list(self.intervals))
        return ColumnSet(type_name=self.type_name, intervals=tuple(intervals), values=values)

    def to_json(self) -> dict[str, Any]:
        """As a commit stores it."""
        where = {"of": list(self.values)} if self.values else {"in": [list(one) for one in self.intervals]}
        return {"type": self.type_name, **where}

    @property
    def is_empty(self) -> bool:
        """Whether there is no value left."""
        return not self.intervals and not self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBounds:
    """Bounds of rows: each lies in the sets of all columns that are named; anywhere in the table when none is.

    Attributes:
        columns: Sets by column.
        exact: Whether the slice is all rows within the bounds, and not only some of them.
    """

    columns: Mapping[str, ColumnSet]
    exact: bool = False

    def meets(self, other: SliceBounds) -> bool:
        """Whether a row may lie in both."""
        return all(found.meets(other.columns[name]) for name, found in self.columns.items() if name in other.columns)

    def union(self, other: SliceBounds) -> SliceBounds:
        """Bounds of the rows of both."""
        both = {name: found.union(other.columns[name]) for name, found in self.columns.items() if name in other.columns}
        return _bounds(both)

    def without(self, other: SliceBounds) -> SliceBounds | None:
        """Bounds of the rows that stay when those of the other go; None when no row stays."""
        if not other.exact:
            return self
        left = {name: self.columns[name].without(found) for name, found in other.columns.items() if name in self.columns}
        if len(left) == len(other.columns) and all(found.is_empty for found in left.values()):
            return None
        # Of several columns, what stays is no box.
        return SliceBounds(columns=left) if len(left) == len(self.columns) == len(other.columns) == 1 else self

    def to_json(self) -> dict[str, Any]:
        """As a commit stores it."""
        return {name: found.to_json() for name, found in self.columns.items()}


ANYWHERE = SliceBounds(columns={}, exact=True)
"""All rows of a table."""


def slice_bounds(predicate: SlicePredicate | None) -> SliceBounds:
    """The bounds of a slice, None standing for the whole table.

    >>> days = ColumnConstraint(column="day", type_name="date", intervals=((date(2026, 1, 1), date(2026, 1, 3)),))
    >>> slice_bounds(SlicePredicate(boxes=((days,),))).to_json()
    {'day': {'type': 'date', 'in': [['2026-01-01', '2026-01-03']]}}
    """
    if predicate is None:
        return ANYWHERE
    bounds = reduce(SliceBounds.union, map(_box_bounds, predicate.boxes))
    # Boxes together are no box.
    return bounds if len(predicate.boxes) == 1 else replace(bounds, exact=False)


def read_bounds(stored: object) -> SliceBounds:
    """What :meth:`SliceBounds.to_json` gave; anywhere for what nobody understands, as anybody may commit any text."""
    try:
        return SliceBounds(columns=dict(_read_columns(stored)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return SliceBounds(columns={})


def _read_columns(stored: Any) -> Iterator[tuple[str, ColumnSet]]:
    for name, found in stored.items():
        intervals = tuple((low, high) for low, high in found.get("in", ()))
        values = tuple(found.get("of", ()))
        if not all(isinstance(bound, str) for one in intervals for bound in one) or not all(isinstance(one, (str, int)) for one in values):
            raise TypeError(name)
        if not intervals and not values:
            raise ValueError(name)
        yield name, ColumnSet(type_name=found["type"], intervals=intervals, values=values)


def _bounds(columns: Mapping[str, ColumnSet | None]) -> SliceBounds:
    return SliceBounds(columns={name: found for name, found in columns.items() if found is not None})


def _box_bounds(box: Sequence[ColumnConstraint]) -> SliceBounds:
    exact = all(max(len(one.intervals), len(one.values)) <= _MOST for one in box)
    return replace(_bounds({folded(one.column): _constraint_set(one) for one in box}), exact=exact)


def _constraint_set(constraint: ColumnConstraint) -> ColumnSet | None:
    intervals = [(str(_bound(low)), str(_bound(high))) for low, high in constraint.intervals]
    return _column_set(constraint.type_name, intervals, map(_bound, constraint.values))


def _column_set(type_name: str, intervals: Iterable[Interval], values: Iterable[Bound]) -> ColumnSet | None:
    joined: list[Interval] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    if len(joined) > _MOST:
        joined = [(joined[0][0], joined[-1][1])]
    known = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    return ColumnSet(type_name=type_name, intervals=tuple(joined), values=tuple(known)) if len(known) <= _MOST else None


def _bound(value: Value) -> Bound:
    return value.isoformat() if isinstance(value, date) else value


def _in(value: Bound, intervals: Iterable[Interval]) -> bool:
    return isinstance(value, str) and any(low <= value < high for low, high in intervals)


def _cut(interval: Interval, other: Interval) -> list[Interval]:
    """What is left of an interval beside another one.

    >>> _cut(("a", "e"), ("b", "c")), _cut(("a", "b"), ("a", "c")), _cut(("a", "b"), ("b", "c"))
    ([('a', 'b'), ('c', 'e')], [], [('a', 'b')])
    """
    (low, high), (start, end) = interval, other
    if end <= low or high <= start:
        return [interval]
    return [part for part in ((low, start), (end, high)) if part[0] < part[1]]
