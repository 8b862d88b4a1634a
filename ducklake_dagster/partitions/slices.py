"""Turn the partition keys of a run into table slices: the rows that the keys select."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Literal, TypeAlias, get_args

import dagster as dg

from ducklake_core.errors import UsageError

Unit: TypeAlias = Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
_NAME = r'("(?:[^"]|"")+"|[^\W\d]\w*)'
_CAST = re.compile(rf"(?:TRY_)?CAST\s*\(\s*{_NAME}\s+AS\s+DATE\s*\)|{_NAME}\s*::\s*DATE|DATE\s*\(\s*{_NAME}\s*\)", re.IGNORECASE)
_TEXT = rf"(?:{_NAME}(?:\s*::\s*\w+)?|CAST\s*\(\s*{_NAME}\s+AS\s+\w+\s*\))"
_PARSED = re.compile(rf"STRPTIME\s*\(\s*{_TEXT}\s*,\s*'([^']*)'\s*\)(?:\s*::\s*\w+)?", re.IGNORECASE)
_EPOCH = re.compile(rf"(TO_TIMESTAMP|EPOCH_MS)\s*\(\s*{_TEXT}\s*\)", re.IGNORECASE)
# Formats whose strings sort as times do: the units descend, with any text between them.
_SORTABLE = re.compile(r"[^%]*%Y(?:[^%]*%m(?:[^%]*%d(?:[^%]*%H(?:[^%]*%M(?:[^%]*%S)?)?)?)?)?[^%]*")
_TRUNCATED = re.compile(rf"DATE_TRUNC\s*\(\s*'(\w+)'\s*,\s*{_NAME}\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpression:
    """The column that partition keys are values of, or a unit of time of that column.

    Attributes:
        column: Name of the column.
        unit: Unit of time, None for the column itself.
        form: How the column stores times: a format of ``strftime``, or ``epoch`` and ``epoch_ms`` for seconds and milliseconds since
            1970; None for a column of times.
        text: The expression as it was written.
    """

    column: str
    unit: Unit | None = None
    form: str | None = None
    text: str = ""


def parse_partition_expression(text: str) -> PartitionExpression:
    """Parse a ``partition_expr``; a string that is not an expression is the name of a column.

    >>> parse_partition_expression("CAST(at AS DATE)").unit, parse_partition_expression('date_trunc(\\'month\\', "My At")').column
    ('day', 'My At')
    >>> parse_partition_expression("day")
    PartitionExpression(column='day', unit=None, form=None, text='day')
    >>> parse_partition_expression('"My Day"').column, parse_partition_expression("strptime(day::VARCHAR, '%Y%m%d')").form
    ('My Day', '%Y%m%d')
    >>> parse_partition_expression("TO_TIMESTAMP(at)").form, parse_partition_expression("epoch_ms(at)").form
    ('epoch', 'epoch_ms')

    Raises:
        UsageError: The expression calls another function, or its unit or format is not supported.
    """
    stripped = text.strip()
    if (match := _CAST.fullmatch(stripped)) is not None:
        column = next(name for name in match.groups() if name is not None)
        return PartitionExpression(column=_plain(column), unit="day", text=text)
    if (match := _TRUNCATED.fullmatch(stripped)) is not None:
        unit = match[1].lower()
        for known in get_args(Unit):
            if known == unit:
                return PartitionExpression(column=_plain(match[2]), unit=known, text=text)
        raise UsageError(f"partition_expr {text!r}: unknown unit {unit!r}. Use one of {', '.join(get_args(Unit))}")
    if (match := _PARSED.fullmatch(stripped)) is not None:
        *names, form = match.groups()
        if _SORTABLE.fullmatch(form) is None:
            raise UsageError(
                f"partition_expr {text!r}: files cannot be filtered by format {form!r}. Use a format whose units descend from the year, "
                "such as '%Y%m%d', or store the time in a column of type date or timestamp"
            )
        return PartitionExpression(column=_plain(next(filter(None, names))), form=form, text=text)
    if (match := _EPOCH.fullmatch(stripped)) is not None:
        function, *names = match.groups()
        form = "epoch" if function.lower() == "to_timestamp" else "epoch_ms"
        return PartitionExpression(column=_plain(next(filter(None, names))), form=form, text=text)
    if re.fullmatch(_NAME, stripped) and stripped.startswith('"'):
        return PartitionExpression(column=_plain(stripped), text=text)
    if re.fullmatch(r"\w+\s*\(.*\)|.*::.*", stripped, re.DOTALL):
        raise UsageError(
            f"partition_expr {text!r} is not supported, because files cannot be filtered by it. Use the name of a column, "
            "CAST(column AS DATE), date_trunc('month', column), strptime(column, '%Y%m%d') or to_timestamp(column)"
        )
    return PartitionExpression(column=text, text=text)


def is_start(moment: datetime, unit: Unit) -> bool:
    """Return whether a unit begins at a wall time.

    >>> is_start(datetime(2026, 3, 1), "month"), is_start(datetime(2026, 3, 1, 6), "day"), is_start(datetime(2026, 3, 2), "week")
    (True, False, True)
    """
    return truncated(moment, unit) == moment.replace(tzinfo=None, fold=0)


def truncated(moment: datetime, unit: Unit) -> datetime:
    """Return the start of the unit that a wall time lies in."""
    wall = moment.replace(tzinfo=None, fold=0)
    match unit:
        case "year":
            return datetime(wall.year, 1, 1)  # noqa: DTZ001 - wall time
        case "quarter":
            return datetime(wall.year, wall.month - (wall.month - 1) % 3, 1)  # noqa: DTZ001 - wall time
        case "month":
            return datetime(wall.year, wall.month, 1)  # noqa: DTZ001 - wall time
        case "week":
            return datetime.combine(wall.date() - timedelta(days=wall.weekday()), datetime.min.time())
        case "day":
            return datetime.combine(wall.date(), datetime.min.time())
        case "hour":
            return wall.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return wall.replace(second=0, microsecond=0)
        case "second":
            return wall.replace(microsecond=0)


def day_of(key: str) -> date:
    """Return the day of a static or dynamic key.

    Raises:
        ValueError: The key is not a day.
    """
    return date.fromisoformat(key)


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Half-open ``[start, end)``; both instants carry the time zone of the partitions definition."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConstraint:
    """The column lies in one of the windows.

    Attributes:
        unit: Unit at which every window begins and ends, so that the unit of a value determines its window; None when keys are
            values of the column itself.
        column: Column of the table, as written in ``partition_expr``.
        windows: Windows in ascending order; adjacent ones are joined.
        keys: The partition keys of the windows, ascending: the values in a varchar column.
        form: How the column stores times, as in :attr:`PartitionExpression.form`; None for a column of times.
    """

    column: str
    windows: tuple[TimeWindow, ...]
    keys: tuple[str, ...]
    unit: Unit | None = None
    form: str | None = None


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
    """A table, the columns to load, and the rows that belong to the run's partitions.

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
        """Return ``schema.table`` for messages."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDimension:
    """One dimension of a partitions definition, and the column that its keys are values of."""

    expression: PartitionExpression
    definition: dg.PartitionsDefinition[str]

    @property
    def column(self) -> str:
        """Return the column."""
        return self.expression.column

    def all_keys(self, store: dg.DagsterInstance | None = None) -> tuple[str, ...]:
        """Return every key of the dimension; none for time windows, whose keys are always different windows.

        Args:
            store: Instance that stores the keys of dynamic partitions; without it these have no keys.
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
    """Return the boxes that cover exactly the given keys.

    Args:
        definition: The asset's partitions definition.
        keys: Partition keys in any order; no key gives no box.
        partition_expr: The asset's ``partition_expr`` metadata: a column name or expression, or ``{dimension: column}`` for several
            dimensions.
        subject: Asset key, for messages.

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
    """Return every dimension, in the definition's order; arguments and errors as :func:`partition_boxes`."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        names = [dimension.name for dimension in definition.partitions_defs]
        if not isinstance(partition_expr, Mapping) or any(not isinstance(partition_expr.get(name), str) for name in names):
            raise UsageError(
                f"asset {subject} is partitioned by {', '.join(names)}, but its metadata does not have a column for each of them. "
                f"Set partition_expr to {{{', '.join(f'{name!r}: <column>' for name in names)}}}, not {partition_expr!r}",
                asset=subject,
            )
        return tuple(
            PartitionDimension(expression=parse_partition_expression(partition_expr[dimension.name]), definition=dimension.partitions_def)
            for dimension in definition.partitions_defs
        )
    if not isinstance(partition_expr, str) or not partition_expr:
        raise UsageError(
            f"asset {subject} is partitioned, but its metadata does not name the partition column. "
            f"Set partition_expr to the name of one column, not {partition_expr!r}",
            asset=subject,
        )
    return (PartitionDimension(expression=parse_partition_expression(partition_expr), definition=definition),)


def _dimension_keys(definition: dg.PartitionsDefinition[str], key: str) -> tuple[str, ...]:
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return (str(key),)
    by_dimension = definition.get_partition_key_from_str(key).keys_by_dimension
    return tuple(by_dimension[dimension.name] for dimension in definition.partitions_defs)


def _decompose(points: set[tuple[str, ...]]) -> list[tuple[tuple[str, ...], ...]]:
    """Return boxes (sorted keys for each dimension) that cover exactly the points.

    >>> _decompose({("1", "a"), ("1", "b"), ("2", "a"), ("2", "b"), ("3", "b")})
    [(('1', '2'), ('a',)), (('1', '2', '3'), ('b',))]
    >>> _decompose({("x",), ("y",)}), _decompose(set())
    ([(('x', 'y'),)], [])
    """
    # Keys of the last dimension that occur with the same points of the others share their boxes:
    #
    #        1   2   3
    #   a    x   x
    #   b    x   x   x      ->   (1, 2) x (a)   and   (1, 2, 3) x (b)
    #
    # A run of 365 days in 3 regions is then one box with one interval, not 1095 conditions. Boxes do not overlap.
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
        return TimeConstraint(
            column=dimension.column, windows=_coalesce(windows), keys=tuple(keys), unit=unit, form=dimension.expression.form
        )
    if dimension.expression.form is not None:
        raise UsageError(
            f"partition_expr {dimension.expression.text!r} needs time partitions, because it converts the column to a time. Use the name "
            "of the column for static and dynamic partitions"
        )
    return KeyConstraint(column=dimension.column, keys=tuple(keys), unit=unit)


def _coalesce(windows: Iterable[dg.TimeWindow]) -> tuple[TimeWindow, ...]:
    joined: list[TimeWindow] = []
    for window in sorted(windows, key=lambda w: w.start.timestamp()):
        # Python compares datetimes of one zone by wall time, which repeats when clocks go back: compare instants.
        if joined and joined[-1].end.timestamp() == window.start.timestamp():
            joined[-1] = TimeWindow(start=joined[-1].start, end=window.end)
        else:
            joined.append(TimeWindow(start=window.start, end=window.end))
    return tuple(joined)
