"""Count rows of an asset's table by partition, from the statistics of its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import NotFoundError
from ducklake_dagster.assets.asset_tables import AssetTable
from ducklake_dagster.io.outputs import schema_lookup
from ducklake_dagster.partitions.predicates import slice_predicate
from ducklake_dagster.partitions.slices import TableSlice, partition_boxes
from ducklake_dagster.statistics.lake_state import LakeState
from ducklake_dagster.statistics.touched_partitions import Box, KeysOf, TouchedPartitions, partition_columns

if TYPE_CHECKING:
    from ducklake_core import Condition, Snapshot, StoredRows, Table, TableStatistics


@dataclass(frozen=True, kw_only=True)
class Part:
    """A table as a whole, or one of its partitions, or several of them together.

    Attributes:
        label: Partition key, or how many; empty for the whole table.
        rows: Stored rows that belong to it alone.
        mixed: Stored rows of which some may belong to it, so that only the files themselves can tell.
        keys: Partition keys, None for the whole table.
    """

    stored: StoredTable
    label: str
    rows: Sequence[StoredRows]
    mixed: Sequence[StoredRows] = ()
    keys: Sequence[str] | None = None
    _counts: dict[int, int | None] = field(default_factory=dict)

    def visible(self) -> list[StoredRows]:
        """Stored rows of it that the newest snapshot shows."""
        return [one for one in self.rows if one.is_visible_at(self.stored.now)]

    @property
    def is_mixed(self) -> bool:
        """Whether the newest snapshot shows rows of which only the files can tell that they belong to it."""
        return any(one.is_visible_at(self.stored.now) for one in self.mixed)

    def row_count(self) -> int:
        """Its rows now."""
        return self._rows_at(self.stored.now) or 0

    def rows_before(self) -> tuple[int, int] | None:
        """The snapshot before the last commit that changed rows of it, and the rows then; None when it had none, or nobody knows."""
        last = self.last_change()
        before = self.stored.state.before(last.id) if last is not None else None
        count = self._rows_at(before) if before is not None else None
        return (before, count) if before is not None and count else None

    def last_change(self) -> Snapshot | None:
        """The last commit that changed rows of it; None when it was expired, or there was none.

        Of rows that lie in a file with others it is the last commit that changed rows of that file.
        """
        changes = self.stored.state.row_changes.get(self.stored.statistics.table_id, ())
        if self.keys is None:
            return changes[-1] if changes else None
        touched = {number for one in (*self.rows, *self.mixed) for number in one.snapshots}
        return next((one for one in reversed(changes) if one.id in touched), None)

    def condition(self) -> Condition | None:
        """Its rows as a condition; None for all.

        Raises:
            UsageError: The columns cannot be matched with the partitions.
        """
        return self.stored.condition(self.keys) if self.keys is not None else None

    def count(self, where: Condition | None = None) -> int:
        """Rows of it that satisfy a condition, now; files are read unless their statistics can tell."""
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
        state: Of the lake.
        statistics: Of the table, with bounds of its partition columns.
        keys: Partition keys of definitions.
    """

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
        """The table as its statistics have it."""
        return self.table_at(self.now)

    def table_at(self, snapshot_id: int) -> Table:
        """The table at a snapshot.

        Raises:
            NotFoundError: There is none, or the snapshot was expired.
        """
        return self.state.lake.table(self.table.address.sql, at=snapshot_id)

    def whole(self) -> Part:
        """All of the table."""
        return Part(stored=self, label="", rows=self.statistics.rows)

    def parts(self, keys: Sequence[str] | None, most_mixed: int = 50) -> list[Part]:
        """A part for each partition key; the whole table for None.

        Where only files tell rows of more than ``most_mixed`` partitions apart, these are one part together.
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
        """Several partitions as one part."""
        found = [self.part(key) for key in keys]
        return Part(
            stored=self,
            label=f"{len(keys)} partitions",
            rows=[one for part in found for one in part.rows],
            mixed=list({id(one): one for part in found for one in part.mixed}.values()),
            keys=list(keys),
        )

    def part(self, key: str) -> Part:
        """One partition."""
        owned, mixed = self._by_partition
        place = self._partitions.place(key)
        overlapping = [one for one, box in mixed if box is None or place is None or _is_in(place, box)]
        return Part(stored=self, label=key, rows=owned.get(key, ()), mixed=overlapping, keys=[key])

    def keys_with_rows(self) -> Iterator[str]:
        """Partitions that have rows now, as far as statistics tell without reading files."""
        return (key for key, rows in self._by_partition[0].items() if any(one.rows_at(self.now) != 0 for one in rows))

    def keys_changed_since(self, snapshot_id: int) -> list[str]:
        """Partitions of which rows may have changed after a snapshot, sorted."""
        changes = {one.id for one in self.state.row_changes.get(self.statistics.table_id, ()) if one.id > snapshot_id}
        owned, mixed = self._by_partition
        found = {key for key, rows in owned.items() if any(one.snapshots & changes for one in rows)}
        boxes = [box for one, box in mixed if one.snapshots & changes]
        if boxes:
            places = ((key, self._partitions.place(key)) for key in self.all_keys())
            found |= {key for key, place in places if any(box is None or place is None or _is_in(place, box) for box in boxes)}
        return sorted(found)

    def all_keys(self) -> Iterator[str]:
        """Every key of the asset's partitions definition."""
        return self._partitions.all_keys()

    def condition(self, keys: Sequence[str], table: Table | None = None) -> Condition:
        """Rows of partitions.

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
        """Stored rows that belong to one partition alone, and the others with the partitions that they may belong to."""
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
