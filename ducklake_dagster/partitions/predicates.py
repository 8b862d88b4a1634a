"""Build conditions for the rows of partitions, and the bounds of column values that they imply."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from ducklake_core import folded
from ducklake_core.errors import UsageError
from ducklake_dagster.partitions.slices import Constraint, KeyConstraint, TableSlice, TimeConstraint, TimeWindow, Unit, day_of, is_start

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core import Condition


Dialect: TypeAlias = Literal["duckdb", "spark"]
Value: TypeAlias = str | int | Decimal | date | datetime
_NAIVE = ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns")
# Maximum number of alternatives in one chain of SQL; more are grouped.
_MAX_PARTS = 50
_MAX_SHOWN = 1000
INTEGERS = ("int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64", "uint128")
"""Types of whole numbers."""

Bound: TypeAlias = str | int
Interval: TypeAlias = tuple[Any, Any]
"""Two strings, or two whole numbers."""
# A commit stores bounds, so they must be small: more intervals are replaced by their span, and a column with more values has no bound.
_MAX_INTERVALS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"(?:%[YmdHMS])+")
_BOOLEANS = {"true": True, "false": False}

# From partition keys to conditions, here for a time dimension and a static one:
#
#   keys         2026-03-01|EU, 2026-03-02|EU
#   boxes        TimeConstraint(day, [03-01, 03-03)) and KeyConstraint(region, EU)        slices.py: what the keys mean
#   predicate    ColumnConstraint(day, date, ...) and ColumnConstraint(region, varchar, ...)   with the table's names and types
#   condition    values for the scan planner; SQL for Spark, views and messages; a mask for Arrow tables
#   bounds       {day: {in: [[03-01, 03-03]]}, region: {of: [EU]}}                       stored in the commit; may cover more rows
#
# The step to the predicate rejects a type that cannot distinguish the partitions: a slice that is too wide would overwrite other rows.


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnConstraint:
    """One column lies in one of the half-open ``intervals`` or equals one of ``values``; exactly one of the two is set."""

    column: str
    type_name: str
    intervals: tuple[tuple[Value, Value], ...] = ()
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePredicate:
    """Rows of a slice: those in any of the boxes. A box is the conjunction of its column constraints."""

    boxes: tuple[tuple[ColumnConstraint, ...], ...]

    def to_sql(self, dialect: Dialect = "duckdb", *, prefix: str = "") -> str:
        """Return SQL with typed literals and quoted names; ``FALSE`` when there is no box.

        Args:
            dialect: Dialect of literals and quotes, DuckDB's by default.
            prefix: Prefix of each column name, such as ``t.``; empty by default.
        """
        if not self.boxes:
            return "FALSE"
        return _any_of([f"({' AND '.join(_constraint_sql(c, dialect, prefix) for c in box)})" for box in self.boxes])

    def shown(self) -> str:
        """Return SQL for messages, without the middle where it is long."""
        text = self.to_sql()
        return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 100]} ... {text[-50:]}"

    def to_condition(self) -> Condition:
        """Return the condition by values, for DuckLake."""
        from ducklake_core import AllOf, AnyOf

        return AnyOf(conditions=tuple(AllOf(conditions=tuple(_condition(constraint) for constraint in box)) for box in self.boxes))

    def matching_rows(self, data: pa.Table) -> pa.Table:
        """Return the rows of an Arrow table that are in the slice."""
        import pyarrow as pa

        places = self.matching_places(data)
        try:
            return data.take(places)
        except pa.ArrowNotImplementedError:
            # Arrow cannot take single values of some types, such as strings of polars, but it can slice any type.
            return pa.concat_tables([data.slice(0, 0), *(data.slice(first, count) for first, count in _runs(places))])

    def matching_places(self, data: pa.Table) -> pa.ChunkedArray:
        """Return positions of the rows of an Arrow table that are in the slice, compared in the types of the lake's table."""
        import pyarrow as pa

        from ducklake_core import matching_rows

        constraints = {constraint.column: constraint for box in self.boxes for constraint in box}
        if not constraints:
            return pa.chunked_array([], pa.int64())
        place = "_ducklake_place"
        while place in constraints:
            place += "_"
        names = [*constraints, place]
        columns = [_compared_column(data.column(name), _arrow_type(constraint.type_name)) for name, constraint in constraints.items()]
        compared = pa.table([*columns, pa.array(range(data.num_rows), pa.int64())], names=names)
        return matching_rows(compared, self.to_condition()).column(place)


def _runs(places: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """Yield first position and length of every run of consecutive positions."""
    import numpy as np

    found = places.to_numpy()
    starts = np.flatnonzero(np.diff(found, prepend=-2) != 1)
    for first, end in zip(starts, [*starts[1:], len(found)], strict=True):
        yield int(found[first]), int(end - first)


def slice_predicate(table_slice: TableSlice, column_type: Callable[[str], tuple[str, str] | None]) -> SlicePredicate | None:
    """Return the predicate of a slice, None for a whole table.

    Args:
        table_slice: The slice.
        column_type: Returns the exact name and the DuckLake type name of a column by a name in any case; None when there is no column.

    Raises:
        UsageError: A column does not exist, or its type cannot distinguish the partitions; the message names column and type.
    """
    if table_slice.boxes is None:
        return None
    return SlicePredicate(
        boxes=tuple(tuple(_typed(constraint, table_slice, column_type) for constraint in box) for box in table_slice.boxes)
    )


def _typed(constraint: Constraint, table_slice: TableSlice, column_type: Callable[[str], tuple[str, str] | None]) -> ColumnConstraint:
    found = column_type(constraint.column)
    if found is None:
        raise UsageError(
            f"partition_expr names column {constraint.column!r}, but {table_slice.qualified_name} does not have it. Set partition_expr to "
            "the name of one top-level column",
            table=table_slice.qualified_name,
            column=constraint.column,
        )
    column, type_name = found
    match constraint:
        case TimeConstraint():
            return _time_constraint(constraint, column, type_name, table_slice)
        case KeyConstraint():
            return _key_constraint(constraint, column, type_name, table_slice)


def _time_constraint(constraint: TimeConstraint, column: str, type_name: str, table_slice: TableSlice) -> ColumnConstraint:
    if constraint.unit is not None:
        _check_unit(constraint, constraint.unit, column, type_name, table_slice)
    if constraint.form is not None:
        return _formed_constraint(constraint, constraint.form, column, type_name, table_slice)
    if type_name in INTEGERS and all(key.isascii() and key.isdigit() for key in constraint.keys):
        # Keys such as 20260327 are the values of the column.
        return ColumnConstraint(column=column, type_name=type_name, values=tuple(map(int, constraint.keys)))
    if type_name == "varchar":
        return ColumnConstraint(column=column, type_name=type_name, values=constraint.keys)
    if type_name == "timestamptz":
        bounds = [(w.start.astimezone(UTC), w.end.astimezone(UTC)) for w in constraint.windows]
        return ColumnConstraint(column=column, type_name=type_name, intervals=tuple(bounds))
    if type_name in _NAIVE:
        walls = [(_wall_time(w, "start", column, table_slice), _wall_time(w, "end", column, table_slice)) for w in constraint.windows]
        return ColumnConstraint(column=column, type_name=type_name, intervals=tuple(walls))
    if type_name == "date":
        days = [(_local_date(w, "start", column, table_slice), _local_date(w, "end", column, table_slice)) for w in constraint.windows]
        return ColumnConstraint(column=column, type_name=type_name, intervals=tuple(days))
    advice = f". If its values are dates such as 20260327, set partition_expr to strptime({column}, '%Y%m%d')"
    wanted = f"date, timestamp, timestamptz or varchar{advice if type_name in INTEGERS else ''}"
    raise _rejection("time partitions", wanted, column, type_name, table_slice)


def _formed_constraint(constraint: TimeConstraint, form: str, column: str, type_name: str, table_slice: TableSlice) -> ColumnConstraint:
    """Return the constraint of a column that stores times as numbers or strings, which sort as the times do."""
    is_epoch = form in ("epoch", "epoch_ms")
    is_number = type_name in INTEGERS and (is_epoch or _DIGITS.fullmatch(form) is not None)
    if not is_number and (is_epoch or type_name != "varchar"):
        wanted = "int64 or another integer type" if is_epoch else "varchar, or an integer type if the format has only digits"
        raise _rejection("this partition_expr", wanted, column, type_name, table_slice)

    def stored(bound: datetime) -> Value:
        if is_epoch:
            # Whole milliseconds, without floating point.
            return (bound - _EPOCH) // timedelta(seconds=1) if form == "epoch" else (bound - _EPOCH) // timedelta(milliseconds=1)
        # strftime does not pad years before 1000 on every platform.
        text = bound.strftime(form.replace("%Y", f"{bound.year:04d}"))
        if datetime.strptime(text, form) != bound.replace(tzinfo=None, fold=0):  # noqa: DTZ007 - wall time
            raise UsageError(
                f"partition bound {bound.isoformat()} has no value in column {column!r} of {table_slice.qualified_name}, whose format "
                f"{form!r} has larger steps. Use larger partitions, or a column with more units",
                table=table_slice.qualified_name,
                column=column,
            )
        return int(text) if is_number else text

    intervals = tuple((stored(window.start), stored(window.end)) for window in constraint.windows)
    return ColumnConstraint(column=column, type_name=type_name, intervals=intervals)


def _check_unit(constraint: TimeConstraint, unit: Unit, column: str, type_name: str, table_slice: TableSlice) -> None:
    """Reject units that cannot distinguish the partitions: the expression and the filter on the column would select different rows."""
    if type_name not in (*_NAIVE, "timestamptz", "date"):
        raise _rejection(f"a partition_expr of the {unit}", "date, timestamp or timestamptz", column, type_name, table_slice)
    for window in constraint.windows:
        for bound in (window.start, window.end):
            if not is_start(bound, unit):
                raise UsageError(
                    f"partition bound {bound.isoformat()} is not the start of a {unit}, so the {unit} of column {column!r} of "
                    f"{table_slice.qualified_name} does not determine the partition. Set partition_expr to {column!r}",
                    table=table_slice.qualified_name,
                    column=column,
                )


def _units_constraint(constraint: KeyConstraint, unit: Unit, column: str, type_name: str, table_slice: TableSlice) -> ColumnConstraint:
    """Return the constraint of keys that are days, for a column of dates or times."""
    if unit != "day" or type_name not in (*_NAIVE, "date"):
        raise _rejection(
            f"keys of static or dynamic partitions by the {unit}", "date or timestamp, by the day,", column, type_name, table_slice
        )
    try:
        days = sorted(map(day_of, constraint.keys))
    except ValueError:
        raise UsageError(
            f"partition keys {', '.join(map(repr, constraint.keys[:5]))} of {table_slice.qualified_name} must be days such as "
            f"'2026-03-27', because partition_expr converts column {column!r} to days",
            table=table_slice.qualified_name,
            column=column,
        ) from None
    if type_name == "date":
        return ColumnConstraint(column=column, type_name=type_name, values=tuple(days))
    starts = [datetime.combine(day, datetime.min.time()) for day in days]
    return ColumnConstraint(column=column, type_name=type_name, intervals=tuple((start, start + timedelta(days=1)) for start in starts))


def _key_constraint(constraint: KeyConstraint, column: str, type_name: str, table_slice: TableSlice) -> ColumnConstraint:
    if constraint.unit is not None:
        return _units_constraint(constraint, constraint.unit, column, type_name, table_slice)
    if type_name == "varchar":
        return ColumnConstraint(column=column, type_name=type_name, values=constraint.keys)
    parse = _parser(type_name)
    if parse is None:
        wanted = "varchar, boolean, uuid, decimal, date, timestamp, timestamptz or an integer type"
        raise _rejection("static or dynamic partitions", wanted, column, type_name, table_slice)
    try:
        values = tuple(parse(key) for key in constraint.keys)
    except (ValueError, KeyError, InvalidOperation):
        raise UsageError(
            f"cannot compare column {column!r} of {table_slice.qualified_name}, which is {type_name}, "
            f"with the partition keys {', '.join(map(repr, constraint.keys[:5]))}, because they are not all valid as {type_name}. "
            "Correct the keys, or use a varchar column",
            table=table_slice.qualified_name,
            column=column,
        ) from None
    return ColumnConstraint(column=column, type_name=type_name, values=values)


def reject_equal_keys(keys: Iterable[str], unit: Unit | None, type_name: str, column: str, *, subject: str) -> None:
    """Reject partition keys that are equal as values of the column: each partition would replace the rows of the other.

    Keys that are not valid as the type are left to the write that uses them.

    Args:
        keys: Every key of one partition dimension.
        unit: Unit of time of ``partition_expr``, None for the column itself.
        type_name: DuckLake type of the column.
        column: Name of the column.
        subject: Asset key, for the message.

    Raises:
        UsageError: Two keys are equal as values; the message contains both.
    """
    parse = _parser(type_name) if unit is None else day_of if unit == "day" else None
    if parse is None:
        return
    seen: dict[Value, str] = {}
    for key in keys:
        try:
            value = parse(key)
        except (ValueError, KeyError, InvalidOperation):
            continue
        other = seen.setdefault(value, key)
        if other != key:
            what = "day" if unit is not None else type_name
            raise UsageError(
                f"asset {subject} has partition keys {other!r} and {key!r}, which are the same {what} ({value}) in column {column!r}, "
                "so each partition would replace the rows of the other. Remove one of the keys, or use a varchar column",
                asset=subject,
                column=column,
                keys=(other, key),
            )


def _parser(type_name: str) -> Callable[[str], Value] | None:
    """Return the function that reads a static or dynamic key as a column's type, None for types that keys cannot have."""
    if type_name in INTEGERS:
        return int
    if type_name.startswith("decimal("):
        return lambda key: _decimal(key, type_name)
    if type_name in (*_NAIVE, "timestamptz"):
        return lambda key: _moment(key, has_zone=type_name == "timestamptz")
    parsers: Mapping[str, Callable[[str], Value]] = {
        "date": date.fromisoformat,
        "uuid": lambda key: str(UUID(key)),
        "boolean": lambda key: _BOOLEANS[key.lower()],
    }
    return parsers.get(type_name)


def _decimal(key: str, type_name: str) -> Decimal:
    precision, scale = _precision(type_name)
    value = Decimal(key)
    if not value.is_finite() or value != round(value, scale) or value.adjusted() >= precision - scale:
        raise ValueError(key)
    return round(value, scale)


def _precision(type_name: str) -> tuple[int, int]:
    precision, scale = type_name.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)


def _moment(key: str, *, has_zone: bool) -> datetime:
    found = datetime.fromisoformat(key)
    if (found.tzinfo is not None) != has_zone:
        raise ValueError(key)
    return found.astimezone(UTC) if has_zone else found


def _rejection(what: str, wanted: str, column: str, type_name: str, table_slice: TableSlice) -> UsageError:
    return UsageError(
        f"column {column!r} of {table_slice.qualified_name} is {type_name}, which does not support {what}. Use a column of type {wanted}",
        table=table_slice.qualified_name,
        column=column,
    )


def _bound(window: TimeWindow, side: Literal["start", "end"]) -> datetime:
    return window.start if side == "start" else window.end


def _wall_time(window: TimeWindow, side: Literal["start", "end"], column: str, table_slice: TableSlice) -> datetime:
    bound = _bound(window, side)
    wall = bound.replace(tzinfo=None)
    # In an hour that the clock shows twice, a wall time may be before or after the bound. Only the first instant of the first
    # pass separates the partitions.
    just_before = (bound.astimezone(UTC) - timedelta(microseconds=1)).astimezone(bound.tzinfo)
    if _shown_twice(bound) and (bound.fold or _shown_twice(just_before)):
        raise UsageError(
            f"partition bound {bound.isoformat()} lies in an hour that clocks show twice, so column {column!r} of "
            f"{table_slice.qualified_name} (timestamp without time zone) does not determine the partition. Use a timestamptz column",
            table=table_slice.qualified_name,
            column=column,
        )
    return wall


def _shown_twice(moment: datetime) -> bool:
    first, second = moment.replace(fold=0).utcoffset(), moment.replace(fold=1).utcoffset()
    return first is not None and second is not None and first > second


def _local_date(window: TimeWindow, side: Literal["start", "end"], column: str, table_slice: TableSlice) -> date:
    bound = _bound(window, side)
    # A day starts at its first instant, which is 01:00 where clocks jump over midnight.
    just_before = (bound.astimezone(UTC) - timedelta(microseconds=1)).astimezone(bound.tzinfo)
    if just_before.date() >= bound.date():
        raise UsageError(
            f"partition bound {bound.isoformat()} is not the start of a day, so column {column!r} of {table_slice.qualified_name} (date) "
            "does not determine the partition. Use a timestamp or timestamptz column",
            table=table_slice.qualified_name,
            column=column,
        )
    return bound.date()


def _constraint_sql(constraint: ColumnConstraint, dialect: Dialect, prefix: str) -> str:
    column = prefix + _quoted(constraint.column, dialect)

    def literal(value: Value) -> str:
        return _literal_sql(value, constraint.type_name, dialect)

    if constraint.intervals:
        return _intervals_sql(column, [(literal(low), literal(high)) for low, high in constraint.intervals])
    if len(constraint.values) == 1:
        return f"{column} = {literal(constraint.values[0])}"
    return f"{column} IN ({', '.join(map(literal, constraint.values))})"


def _any_of(parts: list[str]) -> str:
    """Join parts by OR, in nested groups when there are many: engines parse a chain to a tree of the same depth."""
    while len(parts) > _MAX_PARTS:
        parts = [f"({' OR '.join(parts[start : start + _MAX_PARTS])})" for start in range(0, len(parts), _MAX_PARTS)]
    return " OR ".join(parts)


def _intervals_sql(column: str, intervals: list[tuple[str, str]]) -> str:
    """Return SQL that is true in one of the ascending intervals; a binary search by CASE when there are many."""
    if len(intervals) <= _MAX_PARTS:
        parts = [f"({column} >= {low} AND {column} < {high})" for low, high in intervals]
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
    middle = len(intervals) // 2
    lower, upper = (_intervals_sql(column, half) for half in (intervals[:middle], intervals[middle:]))
    return f"(CASE WHEN {column} < {intervals[middle][0]} THEN {lower} ELSE {upper} END)"


def _quoted(name: str, dialect: Dialect) -> str:
    mark = "`" if dialect == "spark" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def _literal_sql(value: Value, type_name: str, dialect: Dialect) -> str:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ")
        if type_name == "timestamptz":
            return f"TIMESTAMP '{text}+00:00'" if dialect == "spark" else f"TIMESTAMPTZ '{text}+00:00'"
        return f"TIMESTAMP_NTZ '{text}'" if dialect == "spark" else f"TIMESTAMP '{text}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, (bool, int, Decimal)):
        return str(value).upper()
    if type_name == "uuid" and dialect == "duckdb":
        return f"UUID '{value}'"
    if dialect == "spark" and ("\\" in value or "'" in value):
        # A setting of Spark's parser decides whether a backslash escapes the next character.
        return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    return "'" + value.replace("'", "''") + "'"


def _condition(constraint: ColumnConstraint) -> Condition:
    from ducklake_core import InIntervals, OneOf

    if constraint.intervals:
        return InIntervals(column=constraint.column, intervals=constraint.intervals)
    return OneOf(column=constraint.column, values=constraint.values)


def _compared_column(values: pa.ChunkedArray, arrow_type: Any) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if type(values.type).__name__ == "UuidType":
        return pa.chunked_array([[None if value is None else str(value) for value in values.to_pylist()]], pa.string())
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns" and pa.types.is_timestamp(arrow_type):
        # A cast would reject nanoseconds. Bounds are whole microseconds, so rounding down moves no value across a bound.
        values = pc.floor_temporal(values, unit="microsecond")
    return values.cast(arrow_type)


def _arrow_type(type_name: str) -> Any:
    import pyarrow as pa

    if type_name == "timestamptz":
        return pa.timestamp("us", tz="UTC")
    if type_name in _NAIVE:
        return pa.timestamp("us")
    if type_name == "date":
        return pa.date32()
    if type_name in INTEGERS:
        # Arrow has no integers of 128 bits, and int64 does not hold all of uint64.
        return pa.int64() if type_name not in ("uint64", "int128", "uint128") else pa.decimal128(38, 0)
    if type_name == "boolean":
        return pa.bool_()
    if type_name.startswith("decimal("):
        return pa.decimal128(*_precision(type_name))
    return pa.string()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSet:
    """Values that a column may have: a list, or half-open intervals of time, which ascend and do not touch.

    Times are ISO 8601 strings, which sort as times do, or whole numbers in a column of whole numbers.
    """

    type_name: str
    intervals: tuple[Interval, ...] = ()
    values: tuple[Bound, ...] = ()

    def meets(self, other: ColumnSet) -> bool:
        """Return whether a value may be in both."""
        if self.type_name != other.type_name:
            # The column had another type when one of them was stored: values cannot be compared, so err on the safe side.
            return True
        one, two = set(self.values), set(other.values)
        return (
            bool(one & two)
            or any(low < high_2 and low_2 < high for low, high in self.intervals for low_2, high_2 in other.intervals)
            or any(_in(value, other.intervals) for value in one)
            or any(_in(value, self.intervals) for value in two)
        )

    def union(self, other: ColumnSet) -> ColumnSet | None:
        """Return a set of the values of both, possibly with more; None when any value is possible."""
        if self.type_name != other.type_name or bool(self.values) != bool(other.values):
            return None
        return _column_set(self.type_name, [*self.intervals, *other.intervals], [*self.values, *other.values])

    def without(self, other: ColumnSet) -> ColumnSet:
        """Return the values that the other set does not have."""
        if self.type_name != other.type_name:
            return self
        taken = set(other.values)
        values = tuple(value for value in self.values if value not in taken and not _in(value, other.intervals))
        intervals = reduce(lambda left, cut: [part for one in left for part in _cut(one, cut)], other.intervals, list(self.intervals))
        return ColumnSet(type_name=self.type_name, intervals=tuple(intervals), values=values)

    def to_json(self) -> dict[str, Any]:
        """Return the set as a commit stores it."""
        where = {"of": list(self.values)} if self.values else {"in": [list(one) for one in self.intervals]}
        return {"type": self.type_name, **where}

    @property
    def is_empty(self) -> bool:
        """Return whether there is no value left."""
        return not self.intervals and not self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBounds:
    """Bounds of rows: every row lies in the sets of all columns that have one. Without sets, rows may be anywhere in the table.

    Attributes:
        columns: Sets by column.
        exact: Whether the slice is all rows within the bounds, not only some of them. Only an exact slice may be subtracted from others.
    """

    columns: Mapping[str, ColumnSet]
    exact: bool = False

    def meets(self, other: SliceBounds) -> bool:
        """Return whether a row may lie in both."""
        return all(found.meets(other.columns[name]) for name, found in self.columns.items() if name in other.columns)

    def union(self, other: SliceBounds) -> SliceBounds:
        """Return bounds of the rows of both."""
        # A column that only one of them bounds is unbounded in the union.
        both = {name: found.union(other.columns[name]) for name, found in self.columns.items() if name in other.columns}
        return _bounds(both)

    def without(self, other: SliceBounds) -> SliceBounds | None:
        """Return bounds of the rows that remain when the rows of the other are replaced; None when no row remains."""
        if not other.exact:
            return self
        left = {name: self.columns[name].without(found) for name, found in other.columns.items() if name in self.columns}
        if len(left) == len(other.columns) and all(found.is_empty for found in left.values()):
            return None
        # With several columns, the difference of two boxes is not a box: keep the larger bounds.
        return SliceBounds(columns=left) if len(left) == len(self.columns) == len(other.columns) == 1 else self

    def to_json(self) -> dict[str, Any]:
        """Return the bounds as a commit stores them."""
        return {name: found.to_json() for name, found in self.columns.items()}


ANYWHERE = SliceBounds(columns={}, exact=True)
"""All rows of a table."""


def slice_bounds(predicate: SlicePredicate | None) -> SliceBounds:
    """Return the bounds of a slice; a slice of None is the whole table.

    >>> days = ColumnConstraint(column="day", type_name="date", intervals=((date(2026, 1, 1), date(2026, 1, 3)),))
    >>> slice_bounds(SlicePredicate(boxes=((days,),))).to_json()
    {'day': {'type': 'date', 'in': [['2026-01-01', '2026-01-03']]}}
    """
    if predicate is None:
        return ANYWHERE
    bounds = reduce(SliceBounds.union, map(_box_bounds, predicate.boxes))
    # Common bounds of several boxes also cover rows between them.
    return bounds if len(predicate.boxes) == 1 else replace(bounds, exact=False)


def read_bounds(stored: object) -> SliceBounds:
    """Return the bounds that :meth:`SliceBounds.to_json` stored; unbounded when they are invalid, as any client may store any string."""
    try:
        return SliceBounds(columns=dict(_read_columns(stored)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return SliceBounds(columns={})


def _read_columns(stored: Any) -> Iterator[tuple[str, ColumnSet]]:
    for name, found in stored.items():
        # Earlier versions of this library stored whole numbers of intervals as strings.
        bound_of = int if found["type"] in INTEGERS else _text
        intervals = tuple((bound_of(low), bound_of(high)) for low, high in found.get("in", ()))
        values = tuple(found.get("of", ()))
        if not all(isinstance(one, (str, int)) for one in values):
            raise TypeError(name)
        if not intervals and not values:
            raise ValueError(name)
        yield name, ColumnSet(type_name=found["type"], intervals=intervals, values=values)


def _text(bound: object) -> str:
    if not isinstance(bound, str):
        raise TypeError(bound)
    return bound


def _bounds(columns: Mapping[str, ColumnSet | None]) -> SliceBounds:
    return SliceBounds(columns={name: found for name, found in columns.items() if found is not None})


def _box_bounds(box: Sequence[ColumnConstraint]) -> SliceBounds:
    exact = all(max(len(one.intervals), len(one.values)) <= _MAX_INTERVALS for one in box)
    return replace(_bounds({folded(one.column): _constraint_set(one) for one in box}), exact=exact)


def _constraint_set(constraint: ColumnConstraint) -> ColumnSet | None:
    intervals = [(_slice_bound(low), _slice_bound(high)) for low, high in constraint.intervals]
    return _column_set(constraint.type_name, intervals, map(_slice_bound, constraint.values))


def _column_set(type_name: str, intervals: Iterable[Interval], values: Iterable[Bound]) -> ColumnSet | None:
    joined: list[Interval] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    if len(joined) > _MAX_INTERVALS:
        joined = [(joined[0][0], joined[-1][1])]
    known = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    return ColumnSet(type_name=type_name, intervals=tuple(joined), values=tuple(known)) if len(known) <= _MAX_INTERVALS else None


def _slice_bound(value: Value) -> Bound:
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def _in(value: Any, intervals: Iterable[Interval]) -> bool:
    return any(type(low) is type(value) and low <= value < high for low, high in intervals)


def _cut(interval: Interval, other: Interval) -> list[Interval]:
    """Return the parts of an interval that lie outside of another one.

    >>> _cut(("a", "e"), ("b", "c")), _cut(("a", "b"), ("a", "c")), _cut(("a", "b"), ("b", "c"))
    ([('a', 'b'), ('c', 'e')], [], [('a', 'b')])
    """
    (low, high), (start, end) = interval, other
    if end <= low or high <= start:
        return [interval]
    return [part for part in ((low, start), (end, high)) if part[0] < part[1]]
