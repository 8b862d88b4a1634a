"""The part of a table that a run's partition keys stand for: a union of boxes, one constraint per partition dimension.

Dagster hands an IO manager a set of keys that can be anything: one key, a range, a range with gaps, a rectangle or any union of
rectangles of a multi-partitioned asset, or nothing at all.  Every one of these is a union of boxes, and a union of boxes is one predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TypeAlias

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.partition_expression import PartitionExpression, Unit, parse_partition_expression


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Half-open ``[start, end)``; both instants carry the time zone of the partitions definition."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConstraint:
    """The column lies in one of the windows.

    Attributes:
        unit: Every window begins and ends where such a unit does, so that the unit of a value tells its window; None where the column
            itself is what keys are about.
        column: Column of the table, as written in ``partition_expr``.
        windows: In ascending order, adjacent ones joined, so none touches the next.
        keys: The partition keys behind the windows, ascending: what a text column holds.
    """

    column: str
    windows: tuple[TimeWindow, ...]
    keys: tuple[str, ...]
    unit: Unit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConstraint:
    """The column, or the unit of time that it lies in, is one of the keys (sorted), of a static or dynamic dimension."""

    column: str
    keys: tuple[str, ...]
    unit: Unit | None = None


Constraint: TypeAlias = TimeConstraint | KeyConstraint
Box: TypeAlias = tuple[Constraint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSlice:
    """A table, the columns asked for, and the rows that belong to the partitions at hand.

    Attributes:
        schema: DuckLake schema.
        table: Table name.
        columns: Columns to load, None for all.
        boxes: None for the whole table; otherwise a row belongs to the slice when it lies in one of the boxes, so that an
            empty tuple means no rows.
    """

    schema: str
    table: str
    columns: tuple[str, ...] | None = None
    boxes: tuple[Box, ...] | None = None

    @property
    def qualified_name(self) -> str:
        """``schema.table`` for messages."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDimension:
    """One dimension of a partitions definition, and what its keys are about."""

    expression: PartitionExpression
    definition: dg.PartitionsDefinition[str]

    @property
    def column(self) -> str:
        """The column."""
        return self.expression.column

    def all_keys(self, store: dg.DagsterInstance | None = None) -> tuple[str, ...]:
        """Return every key of the dimension; none for time windows, whose keys never stand for one window twice.

        Args:
            store: Instance that knows the keys of dynamic partitions; without it there are none of these.
        """
        if isinstance(self.definition, dg.TimeWindowPartitionsDefinition):
            return ()
        if store is None and isinstance(self.definition, dg.DynamicPartitionsDefinition) and self.definition.partition_fn is None:
            return ()
        return tuple(self.definition.get_partition_keys(dynamic_partitions_store=store))


def partition_boxes(
    definition: dg.PartitionsDefinition[str],
    keys: Iterable[str],
    partition_expr: object,
    *,
    subject: str,
) -> tuple[Box, ...]:
    """The boxes that cover exactly the given keys.

    Args:
        definition: The asset's partitions definition.
        keys: Partition keys in any order; no key gives no box.
        partition_expr: The asset's ``partition_expr`` metadata: a column name or expression, or ``{dimension: column}`` for several
            dimensions.
        subject: What the error is about, for its text (the asset key).

    Raises:
        UsageError: ``partition_expr`` is missing, or does not name a column for every dimension.
    """
    dimensions = partition_dimensions(definition, partition_expr, subject=subject)
    points = {_dimension_keys(definition, key) for key in keys}
    return tuple(
        tuple(_constraint(dimension, side) for dimension, side in zip(dimensions, sides, strict=True)) for sides in _decompose(points)
    )


def partition_dimensions(
    definition: dg.PartitionsDefinition[str], partition_expr: object, *, subject: str
) -> tuple[PartitionDimension, ...]:
    """Every dimension, in the definition's order; arguments and errors as :func:`partition_boxes`."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        names = [dimension.name for dimension in definition.partitions_defs]
        if not isinstance(partition_expr, Mapping) or any(not isinstance(partition_expr.get(name), str) for name in names):
            raise UsageError(
                f"asset {subject} is partitioned by {', '.join(names)}, but its metadata has no column for each of them: "
                f"set partition_expr to {{{', '.join(f'{name!r}: <column>' for name in names)}}}, not {partition_expr!r}",
                asset=subject,
            )
        return tuple(
            PartitionDimension(expression=parse_partition_expression(partition_expr[dimension.name]), definition=dimension.partitions_def)
            for dimension in definition.partitions_defs
        )
    if not isinstance(partition_expr, str) or not partition_expr:
        raise UsageError(
            f"asset {subject} is partitioned, but its metadata does not say by which column: "
            f"set partition_expr to the name of one column, not {partition_expr!r}",
            asset=subject,
        )
    return (PartitionDimension(expression=parse_partition_expression(partition_expr), definition=definition),)


def _dimension_keys(definition: dg.PartitionsDefinition[str], key: str) -> tuple[str, ...]:
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return (str(key),)
    by_dimension = definition.get_partition_key_from_str(key).keys_by_dimension
    return tuple(by_dimension[dimension.name] for dimension in definition.partitions_defs)


def _decompose(points: set[tuple[str, ...]]) -> list[tuple[tuple[str, ...], ...]]:
    """Boxes (sorted keys per dimension) that cover exactly the points: keys of the last dimension that occur with the same
    points of the others share their boxes.

    >>> _decompose({("1", "a"), ("1", "b"), ("2", "a"), ("2", "b"), ("3", "b")})
    [(('1', '2'), ('a',)), (('1', '2', '3'), ('b',))]
    >>> _decompose({("x",), ("y",)}), _decompose(set())
    ([(('x', 'y'),)], [])
    """
    if not points:
        return []
    if len(next(iter(points))) == 1:
        return [(tuple(sorted(point[0] for point in points)),)]
    others: dict[str, set[tuple[str, ...]]] = {}
    for *head, last in points:
        others.setdefault(last, set()).add(tuple(head))
    by_content = sorted(((sorted(rest), last) for last, rest in others.items()))
    boxes = []
    for rest, group in groupby(by_content, key=lambda item: item[0]):
        lasts = tuple(last for _, last in group)
        boxes += [(*box, lasts) for box in _decompose(set(rest))]
    return boxes


def _constraint(dimension: PartitionDimension, keys: Sequence[str]) -> Constraint:
    definition, unit = dimension.definition, dimension.expression.unit
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        windows = [definition.time_window_for_partition_key(key) for key in keys]
        return TimeConstraint(column=dimension.column, windows=_coalesce(windows), keys=tuple(keys), unit=unit)
    return KeyConstraint(column=dimension.column, keys=tuple(keys), unit=unit)


def _coalesce(windows: Iterable[dg.TimeWindow]) -> tuple[TimeWindow, ...]:
    joined: list[TimeWindow] = []
    for window in sorted(windows, key=lambda w: w.start.timestamp()):
        # Same-zone datetimes compare by wall time in Python, which repeats itself when clocks go back: compare instants.
        if joined and joined[-1].end.timestamp() == window.start.timestamp():
            joined[-1] = TimeWindow(start=joined[-1].start, end=window.end)
        else:
            joined.append(TimeWindow(start=window.start, end=window.end))
    return tuple(joined)
