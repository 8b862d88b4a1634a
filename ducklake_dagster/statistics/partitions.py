"""Find the partitions in which rows changed, and count the rows of each, from the statistics of the catalog."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import UUID

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_dagster.assets.tables import AssetTable
from ducklake_dagster.io.outputs import schema_lookup
from ducklake_dagster.partitions.predicates import INTEGERS, ColumnConstraint, slice_predicate
from ducklake_dagster.partitions.slices import PartitionDimension, TableSlice, partition_boxes, partition_dimensions
from ducklake_dagster.statistics.lake_state import LakeState

if TYPE_CHECKING:
    from ducklake_core import ChangedTable, Condition, DuckLake, Schema, Snapshot, StoredRows, Table, TableStatistics, ValueRange


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Box: TypeAlias = tuple[tuple[int, int], ...]
_WINDOWS: dict[tuple[dg.PartitionsDefinition[str], str], dict[str, tuple[int, int]]] = {}
"""Windows of keys in columns of a type, cached over the ticks of a sensor: Dagster computes the window of a key slowly."""
# Bounds the memory of a code server: beyond this all windows are forgotten and computed again.
_MAX_WINDOWS = 500_000
# Limits of changed_values, so that a tick of the sensor stays short.
_MAX_ROWS = 20_000
_MAX_FILES = 100


@dataclass(frozen=True, kw_only=True)
class Part:
    """A whole table, one of its partitions, or several partitions together.

    Attributes:
        label: Partition key, or the number of partitions; empty for the whole table.
        rows: Stored rows that belong to it alone.
        mixed: Stored rows in files that may have rows of other partitions, too.
        keys: Partition keys, None for the whole table.
    """

    stored: StoredTable
    label: str
    rows: Sequence[StoredRows]
    mixed: Sequence[StoredRows] = ()
    keys: Sequence[str] | None = None
    _counts: dict[int, int | None] = field(default_factory=dict)

    def visible(self) -> list[StoredRows]:
        """Return its stored rows that are visible at the newest snapshot."""
        return [one for one in self.rows if one.is_visible_at(self.stored.now)]

    @property
    def is_mixed(self) -> bool:
        """Return whether files with rows of several partitions are visible at the newest snapshot."""
        return any(one.is_visible_at(self.stored.now) for one in self.mixed)

    def row_count(self) -> int:
        """Return its number of rows at the newest snapshot."""
        return self._rows_at(self.stored.now) or 0

    def rows_before(self) -> tuple[int, int] | None:
        """Return the snapshot before the last change of its rows, and the number of rows then; None when that was 0 or is unknown."""
        last = self.last_change()
        before = self.stored.state.history.before(last.id) if last is not None else None
        count = self._rows_at(before) if before is not None else None
        return (before, count) if before is not None and count else None

    def last_change(self) -> Snapshot | None:
        """Return the last commit that changed its rows; None when it was expired, or there was none.

        For rows that share a file with other partitions, it is the last commit that changed rows of that file.
        """
        return next(self._changes(), None)

    def earlier_counts(self, most: int) -> list[int]:
        """Return its numbers of rows after each of the last commits that changed it, without the newest one; the latest first.

        Args:
            most: Maximum number of commits.
        """
        own = islice(self._changes(), 1, most + 1)
        return [count for one in own if (count := self._rows_at(one.id)) is not None]

    def _changes(self) -> Iterator[Snapshot]:
        """Yield the commits that changed its rows, or rows of a file that it shares with other partitions; the latest first."""
        if self.keys is None:
            return self.stored.row_changes()
        touched = {number for one in (*self.rows, *self.mixed) for number in one.snapshots}
        return (one for one in self.stored.row_changes(min(touched) - 1) if one.id in touched) if touched else iter(())

    def condition(self) -> Condition | None:
        """Return the condition for its rows; None for all rows.

        Raises:
            UsageError: The columns cannot be matched with the partitions.
        """
        return self.stored.condition(self.keys) if self.keys is not None else None

    def count(self, where: Condition | None = None) -> int:
        """Return the number of its rows that satisfy a condition now. Read only files whose statistics do not decide it."""
        from ducklake_core import AllOf

        own = self.condition()
        both = AllOf(conditions=tuple(one for one in (own, where) if one is not None))
        return self.stored.opened.scan([], both if both.conditions else None).count()

    def _rows_at(self, snapshot_id: int) -> int | None:
        if snapshot_id not in self._counts:
            self._counts[snapshot_id] = self._counted(snapshot_id)
        return self._counts[snapshot_id]

    def _counted(self, snapshot_id: int) -> int | None:
        counts = [one.rows_at(snapshot_id) for one in self.rows]
        if not any(one.is_visible_at(snapshot_id) for one in self.mixed) and None not in counts:
            return sum(count for count in counts if count is not None)
        try:
            table = self.stored.table_at(snapshot_id)
            return table.scan([], self.stored.condition(self.keys, table) if self.keys is not None else None).count()
        except NotFoundError:
            return None


class StoredTable:
    """The stored rows of one asset's table.

    Args:
        table: The asset.
        state: State of the lake.
        statistics: Statistics of the table, with bounds of its partition columns.
        keys: Partition keys of definitions.
    """

    # Stored rows (a data file, or a group of inlined rows) are split by the bounds of their partition columns:
    #
    #   owned   all bounds lie in one partition, and there is no NULL    statistics alone count the partition's rows
    #   mixed   several partitions are possible, or bounds are missing   only the file shows it: counting reads partition columns
    #
    # In a table whose layout follows its partitions, nearly all rows are owned, and checks open no file.

    def __init__(self, table: AssetTable, state: LakeState, statistics: TableStatistics, keys: KeysOf) -> None:
        self.table = table
        self.state = state
        self.statistics = statistics
        self.now = state.snapshot_id
        self._keys = keys
        names = [folded(name) if name is not None else None for name in statistics.column_names]
        columns = [folded(column) for column in partition_columns(table)]
        self._places = [names.index(column) for column in columns] if set(columns) <= set(names) else None

    @cached_property
    def opened(self) -> Table:
        """Return the table at the snapshot of its statistics."""
        return self.table_at(self.now)

    def table_at(self, snapshot_id: int) -> Table:
        """Return the table at a snapshot.

        Raises:
            NotFoundError: The table does not exist there, or the snapshot was expired.
        """
        return self.state.lake.table(self.table.address.sql, at=snapshot_id)

    def row_changes(self, after: int = -1) -> Iterator[Snapshot]:
        """Yield the commits after a snapshot that changed rows of the table, the latest first; by default all commits."""
        return self.state.history.row_changes(self.statistics.table_id, after)

    def whole(self) -> Part:
        """Return the whole table as one part."""
        return Part(stored=self, label="", rows=self.statistics.rows)

    def parts(self, keys: Sequence[str] | None, most_mixed: int = 50) -> list[Part]:
        """Return a part for each partition key; the whole table for None.

        Args:
            keys: Partition keys, None for the whole table.
            most_mixed: With more mixed partitions than this, these are one part together, so that their files are read once; 50 by default.
        """
        if keys is None:
            return [self.whole()]
        found = [self.part(key) for key in keys]
        mixed = [part for part in found if part.mixed]
        if len(mixed) <= most_mixed:
            return found
        together = self.together([key for part in mixed for key in part.keys or ()])
        return [together, *(part for part in found if not part.mixed)]

    def together(self, keys: Sequence[str]) -> Part:
        """Return several partitions as one part."""
        found = [self.part(key) for key in keys]
        return Part(
            stored=self,
            label=f"{len(keys)} partitions",
            rows=[one for part in found for one in part.rows],
            mixed=list({id(one): one for part in found for one in part.mixed}.values()),
            keys=list(keys),
        )

    def part(self, key: str) -> Part:
        """Return one partition."""
        owned, mixed = self._by_partition
        place = self._partitions.place(key)
        overlapping = [one for one, box in mixed if box is None or place is None or _is_in(place, box)]
        return Part(stored=self, label=key, rows=owned.get(key, ()), mixed=overlapping, keys=[key])

    def keys_with_rows(self) -> Iterator[str]:
        """Return partitions that have rows now, according to statistics; no file is read."""
        return (key for key, rows in self._by_partition[0].items() if any(one.rows_at(self.now) != 0 for one in rows))

    def keys_changed_since(self, snapshot_id: int) -> list[str]:
        """Return partitions whose rows may have changed after a snapshot, sorted."""
        changes = {one.id for one in self.row_changes(snapshot_id)}
        owned, mixed = self._by_partition
        found = {key for key, rows in owned.items() if any(one.snapshots & changes for one in rows)}
        boxes = [box for one, box in mixed if one.snapshots & changes]
        if boxes:
            places = ((key, self._partitions.place(key)) for key in self.all_keys())
            found |= {key for key, place in places if any(box is None or place is None or _is_in(place, box) for box in boxes)}
        return sorted(found)

    def all_keys(self) -> Iterator[str]:
        """Return every key of the asset's partitions definition."""
        return self._partitions.all_keys()

    def condition(self, keys: Sequence[str], table: Table | None = None) -> Condition:
        """Return the condition for the rows of partitions.

        Raises:
            UsageError: The columns cannot be matched with the partitions.
        """
        boxes = partition_boxes(self._definition, keys, self.table.partition_expr, subject=self.table.key.to_user_string())
        address = self.table.address
        lookup = schema_lookup((table or self.opened).schema)
        predicate = slice_predicate(TableSlice(schema=address.schema, table=address.table, boxes=boxes), lookup)
        assert predicate is not None
        return predicate.to_condition()

    @property
    def _definition(self) -> dg.PartitionsDefinition[str]:
        assert self.table.partitions_def is not None
        return self.table.partitions_def

    @cached_property
    def _partitions(self) -> TouchedPartitions:
        return TouchedPartitions(self.table, self.statistics.schema, self._keys)

    @cached_property
    def _by_partition(self) -> tuple[dict[str, list[StoredRows]], list[tuple[StoredRows, Box | None]]]:
        """Return stored rows that belong to one partition alone, and the others with the partitions that they may belong to."""
        owned: dict[str, list[StoredRows]] = {}
        mixed: list[tuple[StoredRows, Box | None]] = []
        for one in self.statistics.rows:
            if self._places is None:
                mixed.append((one, None))
                continue
            ranges = [one.ranges[place] for place in self._places]
            key = self._partitions.only_key(ranges) if all(one.null_counts[place] == 0 for place in self._places) else None
            if key is not None:
                owned.setdefault(key, []).append(one)
            else:
                mixed.append((one, self._partitions.box(ranges)))
        return owned, mixed


def _is_in(place: tuple[int, ...], box: Box) -> bool:
    return all(first <= at < last for at, (first, last) in zip(place, box, strict=True))


class KeysOf(Protocol):
    """Returns the partition keys of definitions of one dimension."""

    def of(self, definition: dg.PartitionsDefinition[str], /) -> Sequence[str]:
        """Return the keys of a definition; ascending for time windows."""


class PartitionKeys(KeysOf):
    """All partition keys of definitions, listed once for each definition, in an order that a binary search can use.

    Args:
        instance: Instance that stores the keys of dynamic partitions.
    """

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._known: dict[dg.PartitionsDefinition[str], Sequence[str]] = {}

    def of(self, definition: dg.PartitionsDefinition[str]) -> Sequence[str]:
        """Return all keys of a definition of one dimension."""
        if definition not in self._known:
            keys = definition.get_partition_keys(dynamic_partitions_store=self._instance)
            # Keys of time windows ascend already, and their strings need not sort as times do.
            self._known[definition] = keys if isinstance(definition, dg.TimeWindowPartitionsDefinition) else sorted(keys)
        return self._known[definition]


class TouchedPartitions:
    """Collects the partitions of one asset that changed rows may lie in, each with the newest snapshot that changed it.

    Args:
        table: A partitioned asset.
        schema: The table's columns.
        keys: Keys of all definitions, shared by all assets.

    Attributes:
        problem: Reason why values cannot be assigned to partitions, and every change counts for all partitions; None without one.
    """

    # Partitions have numbers like the cells of an array, so that a box of positions is a set of ranges of numbers:
    #
    #                    position in the last dimension
    #                      0    1    2
    #   first   0          0    1    2
    #           1          3    4    5       box ((0, 2), (1, 3))  ->  numbers 1-2 and 4-5
    #
    # Positions are those of keys in the order of the values that they stand for (_Index), so bisection turns the bounds of a file into
    # a box, with no loop over keys. That order depends on the column's type: "10" sorts before "9" as varchar and after it as integer.
    # A table whose column had another type before would need two numberings, and counts as changed everywhere instead.

    def __init__(self, table: AssetTable, schema: Schema, keys: KeysOf) -> None:
        assert table.partitions_def is not None
        self._definition = table.partitions_def
        self._keys = [keys.of(dimension) for dimension in _dimensions(table.partitions_def)]
        self._size = prod(map(len, self._keys))
        self._newest: dict[int, int] = {}
        self.problem: str | None = None
        self._indexes: dict[int, tuple[Schema, tuple[_Index, ...]]] = {}
        self._orders: list[Sequence[str]] = []
        self._table = table
        self.use(schema)

    def use(self, schema: Schema) -> None:
        """Use the types of this schema for the rows that follow: the table may have had other types when they were written."""
        # By id(): a schema is compared by its columns, which is slow for the thousands of changes that share one object. The schema is
        # stored too, because the id of a deleted object may be that of another one later.
        if id(schema) not in self._indexes:
            indexes: tuple[_Index, ...] = ()
            try:
                indexes = _indexes(self._table, self._keys, schema)
            except UsageError as error:
                self.problem = error.message
            self._indexes[id(schema)] = schema, indexes
        self._current = self._indexes[id(schema)][1]
        orders = [index.keys for index in self._current]
        self._orders = self._orders or orders
        if orders and orders != self._orders:
            self.problem = "the partition columns had other types before, in which partitions have another order"
            self._current = ()

    def touch(self, ranges: Sequence[ValueRange], snapshot_id: int) -> None:
        """Note that rows with values in these ranges, one for each dimension, changed at a snapshot. Snapshots must ascend."""
        if not self._current:
            self.touch_all(snapshot_id)
            return
        try:
            sides = [index.positions(found) for index, found in zip(self._current, ranges, strict=True)]
        except UsageError as error:
            self.problem = error.message
            self.touch_all(snapshot_id)
            return
        *outer, (first, last) = sides
        if last <= first:
            return
        width = len(self._keys[-1])
        for places in product(*(range(*side) for side in outer)):
            start = 0
            for keys, place in zip(self._keys, places, strict=False):
                start = start * len(keys) + place
            start *= width
            self._newest.update(dict.fromkeys(range(start + first, start + last), snapshot_id))

    def only_key(self, ranges: Sequence[ValueRange]) -> str | None:
        """Return the one partition that all rows with values in these ranges belong to; None when there may be several, or none."""
        # A box of one cell shows that no other partition overlaps the ranges. holds() adds that no value lies outside of this one.
        box = self.box(ranges)
        if box is None or any(last - first != 1 for first, last in box):
            return None
        if not all(index.holds(first, found) for index, found, (first, _) in zip(self._current, ranges, box, strict=True)):
            return None
        number = 0
        for keys, (first, _) in zip(self._keys, box, strict=True):
            number = number * len(keys) + first
        return self._key(number, self._orders or self._keys)

    def box(self, ranges: Sequence[ValueRange]) -> Box | None:
        """Return the partitions that rows with values in these ranges may belong to: half-open positions for each dimension.

        None when values cannot be assigned to partitions.
        """
        if not self._current:
            return None
        try:
            return tuple(index.positions(found) for index, found in zip(self._current, ranges, strict=True))
        except UsageError:
            return None

    def place(self, key: str) -> tuple[int, ...] | None:
        """Return the position of a partition in boxes; None for an unknown key, or when values cannot be assigned to partitions."""
        if not self._current:
            return None
        parts = [key]
        if isinstance(self._definition, dg.MultiPartitionsDefinition):
            by_dimension = self._definition.get_partition_key_from_str(key).keys_by_dimension
            parts = [by_dimension[dimension.name] for dimension in self._definition.partitions_defs]
        places = tuple(index.place(part) for index, part in zip(self._current, parts, strict=True))
        return None if None in places else tuple(place for place in places if place is not None)

    def all_keys(self) -> Iterator[str]:
        """Return every key of the definition."""
        orders = self._orders or self._keys
        return (self._key(number, orders) for number in range(self._size))

    def touch_all(self, snapshot_id: int) -> None:
        """Note that any row may have changed at a snapshot."""
        self._newest = dict.fromkeys(range(self._size), snapshot_id)

    def found(self) -> Iterator[tuple[str, int]]:
        """Yield the partition keys that were touched, each with the newest snapshot."""
        orders = self._orders or self._keys
        for number, snapshot_id in self._newest.items():
            yield self._key(number, orders), snapshot_id

    def _key(self, number: int, orders: Sequence[Sequence[str]]) -> str:
        parts = []
        for keys in reversed(orders):
            number, place = divmod(number, len(keys))
            parts.append(keys[place])
        parts.reverse()
        if not isinstance(self._definition, dg.MultiPartitionsDefinition):
            return parts[0]
        names = (dimension.name for dimension in self._definition.partitions_defs)
        return str(dg.MultiPartitionKey(dict(zip(names, parts, strict=True))))


def partition_columns(table: AssetTable) -> tuple[str, ...]:
    """Return the columns of the asset's partition keys, one for each dimension; none when its metadata does not have them."""
    if table.partitions_def is None:
        return ()
    try:
        dimensions = partition_dimensions(table.partitions_def, table.partition_expr, subject=table.key.to_user_string())
    except UsageError:
        return ()
    return tuple(dimension.column for dimension in dimensions)


def _dimensions(definition: dg.PartitionsDefinition[str]) -> list[dg.PartitionsDefinition[str]]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return [dimension.partitions_def for dimension in definition.partitions_defs]
    return [definition]


def _indexes(table: AssetTable, keys: Sequence[Sequence[str]], schema: Schema) -> tuple[_Index, ...]:
    assert table.partitions_def is not None
    dimensions = partition_dimensions(table.partitions_def, table.partition_expr, subject=table.key.to_user_string())
    return tuple(_Index(own, dimension, table, schema) for own, dimension in zip(keys, dimensions, strict=True))


class _Index:
    """The keys of one dimension, in the order of the values that they stand for.

    Attributes:
        keys: Keys in that order.
    """

    def __init__(self, keys: Sequence[str], dimension: PartitionDimension, table: AssetTable, schema: Schema) -> None:
        typed = _Typed(dimension, table, schema)
        self.keys: Sequence[str] = keys
        self._places: dict[str, int] = {}
        self._count = len(keys)
        self._low: Callable[[int], Any]
        self._high: Callable[[int], Any]
        if typed.has_windows:
            if not isinstance(dimension.definition, dg.TimeWindowPartitionsDefinition):
                self.keys = keys = sorted(keys, key=typed.window)
            self._low = lambda place: typed.window(keys[place])[0]
            self._high = lambda place: typed.window(keys[place])[1]
            self._open = True
        else:
            values = [typed.value(key) for key in keys]
            order = sorted(range(len(keys)), key=values.__getitem__)
            self.keys = [keys[place] for place in order]
            values = [values[place] for place in order]
            self._low = self._high = values.__getitem__
            self._open = False

    def place(self, key: str) -> int | None:
        """Return the position of a key, None when there is no such key."""
        self._places = self._places or {own: place for place, own in enumerate(self.keys)}
        return self._places.get(key)

    def holds(self, place: int, found: ValueRange) -> bool:
        """Return whether all values of a range belong to the key at a position."""
        low: Any = found.low
        high: Any = found.high
        if low is None or high is None:
            return False
        return bool(self._low(place) <= low and (high < self._high(place) if self._open else high <= self._high(place)))

    def positions(self, found: ValueRange) -> tuple[int, int]:
        """Return the half-open positions of keys that rows in a range may belong to."""
        if not found.has_values:
            return 0, 0
        places = range(self._count)
        low: Any = found.low
        high: Any = found.high
        first, last = 0, self._count
        if low is not None:
            # Windows are half-open: one that ends at ``low`` does not hold it, while a key with the value ``low`` does.
            first = (bisect_right if self._open else bisect_left)(places, low, key=self._high)
        if high is not None:
            last = bisect_right(places, high, key=self._low)
        return first, max(first, last)


class _Typed:
    """The column values that the keys of a dimension stand for, in the Python forms of the catalog's bounds."""

    def __init__(self, dimension: PartitionDimension, table: AssetTable, schema: Schema) -> None:
        definition, column, unit = dimension.definition, dimension.column, dimension.expression.unit
        lookup = schema_lookup(schema)
        found = lookup(column)
        self.type_name = found[1] if found else ""
        of_time = isinstance(definition, dg.TimeWindowPartitionsDefinition)
        form = dimension.expression.form
        has_values = form is None and (self.type_name == "varchar" or (self.type_name in INTEGERS and _has_digits(definition)))
        self.has_windows = (of_time and not has_values) or (unit is not None and self.type_name != "date")
        self._slice_of = _slice_of(definition, dimension.expression.text, table)
        self._lookup = lookup
        self._windows = _remembered(definition, f"{self.type_name} {form or ''}")
        if found is None or self.type_name != "varchar" or form is not None:
            # Reject a missing column, and a type that cannot distinguish partitions, before any row is compared.
            self._check(definition)

    def _check(self, definition: dg.PartitionsDefinition[str]) -> None:
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            first = definition.get_first_partition_key()
            if first is not None:
                self._constraint(first)

    def _constraint(self, key: str) -> ColumnConstraint:
        predicate = slice_predicate(self._slice_of(key), self._lookup)
        assert predicate is not None
        return predicate.boxes[0][0]

    def window(self, key: str) -> tuple[int, int]:
        """Return the half-open window of a key, in days or units of the column's type."""
        if key not in self._windows:
            low, high = self._constraint(key).intervals[0]
            self._windows[key] = stored_form(low, self.type_name), stored_form(high, self.type_name)
        return self._windows[key]

    def value(self, key: str) -> Any:
        """Return the column's value in rows of a partition."""
        return key if self.type_name == "varchar" else stored_form(self._constraint(key).values[0], self.type_name)


def _has_digits(definition: dg.PartitionsDefinition[str]) -> bool:
    """Return whether keys of time windows are numbers, such as 20260327, so that a column of integers may hold them."""
    first = definition.get_first_partition_key() if isinstance(definition, dg.TimeWindowPartitionsDefinition) else None
    return first is not None and first.isascii() and first.isdigit()


def _slice_of(definition: dg.PartitionsDefinition[str], expression: str, table: AssetTable) -> Callable[[str], TableSlice]:
    subject, address = table.key.to_user_string(), table.address

    def slice_of(key: str) -> TableSlice:
        boxes = partition_boxes(definition, [key], expression, subject=subject)
        return TableSlice(schema=address.schema, table=address.table, boxes=boxes)

    return slice_of


def _remembered(definition: dg.PartitionsDefinition[str], stored_as: str) -> dict[str, tuple[int, int]]:
    if sum(map(len, _WINDOWS.values())) > _MAX_WINDOWS:
        _WINDOWS.clear()
    return _WINDOWS.setdefault((definition, stored_as), {})


def point_of(value: object, type_name: str) -> ValueRange:
    """Return the range that holds one value of a column."""
    from ducklake_core import ValueRange

    if value is None:
        return ValueRange(has_values=False)
    number = stored_form(value, type_name)
    return ValueRange(low=number, high=number)


def stored_form(value: object, type_name: str) -> Any:
    """Return a value of a slice in the form of the catalog's bounds: days, microseconds (nanoseconds), a number or a string.

    >>> stored_form(date(1970, 1, 2), "date"), stored_form(datetime(1970, 1, 1, 0, 0, 1), "timestamp"), stored_form("a", "varchar")
    (1, 1000000, 'a')
    """
    match value:
        case datetime():
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
            micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            return micros * 1000 if type_name == "timestamp_ns" else micros
        case date():
            return value.toordinal() - _EPOCH.toordinal()
        case UUID():
            return str(value)
        case _:
            return value


def changed_values(
    lake: DuckLake, table: AssetTable, changed: ChangedTable, until: int, foreign: Container[int]
) -> list[tuple[int, tuple[ValueRange, ...]]] | None:
    """Return the values of partition columns in rows that changed, each with a commit that changed it; ascending by commit.

    Args:
        lake: The lake.
        table: A partitioned asset.
        changed: The changes of its table.
        until: The last snapshot to read.
        foreign: Ids of the commits to read.

    Returns:
        None when there are too many rows or files to read, or when rows do not show the values: the table was replaced, commits were
        expired, or a file is missing.
    """
    known = all(rows.snapshots for rows in changed.rows)
    rows = sum(one.row_count for one in changed.rows)
    if changed.change != "changed" or not known or rows > _MAX_ROWS or len(changed.rows) > _MAX_FILES:
        return None
    try:
        # Rows that were added and deleted in between leave nothing to read, although their files count as changed.
        return _read(lake, table, changed, until, foreign) or None
    except DuckLakeError:
        # The caller falls back to the bounds of files.
        return None


def _read(
    lake: DuckLake, table: AssetTable, changed: ChangedTable, until: int, foreign: Container[int]
) -> list[tuple[int, tuple[ValueRange, ...]]]:
    opened = lake.table(changed.name, at=until)
    columns = [opened.schema.column(column) for column in partition_columns(table)]
    names = ["snapshot_id", *(column.name for column in columns)]
    first = min(rows.first_snapshot for rows in changed.rows)
    found: set[tuple[object, ...]] = set()
    for batch in opened.changes(first, until, columns=names).to_batches():
        found.update(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    points: list[tuple[int, Sequence[object]]] = [(int(str(number)), values) for number, *values in found]
    return sorted(
        (
            (number, tuple(point_of(value, str(column.type)) for value, column in zip(values, columns, strict=True)))
            for number, values in points
            if number in foreign
        ),
        key=lambda point: point[0],
    )
