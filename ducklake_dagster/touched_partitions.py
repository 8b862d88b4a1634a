"""Which partitions of an asset a commit may have changed: from the files that it added, ended or hid rows of, nothing is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.asset_tables import AssetTable
from ducklake_dagster.slice_predicate import SlicePredicate, slice_predicate
from ducklake_dagster.table_output import schema_lookup
from ducklake_dagster.table_slice import TableSlice, partition_boxes

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Snapshot, Table


def touched_partitions(lake: DuckLake, table: AssetTable, snapshot: Snapshot, keys: Sequence[str], *, most: int) -> list[str] | None:
    """Keys of the partitions that the commit may have changed: none is missing, some may be unchanged.

    Args:
        lake: The lake.
        table: A partitioned asset.
        snapshot: The commit.
        keys: All keys of the asset, in order.
        most: Give up above this number of partitions.

    Returns:
        None when it cannot be told: the snapshot before has expired, a column does not fit, or there are more than ``most``.
    """
    try:
        states = _States.open(lake, table, snapshot)
        return _search(states, table, keys, most)
    except (NotFoundError, UsageError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """The table after the commit, and before it (None when the commit created it)."""

    snapshot_id: int
    after: Table
    before: Table | None
    live_after: frozenset[int]

    @classmethod
    def open(cls, lake: DuckLake, table: AssetTable, snapshot: Snapshot) -> _States:
        after = lake.table(table.address.sql, at=snapshot.id)
        lake.snapshot(snapshot.id - 1)
        existed = lake.has_table(table.address.sql, at=snapshot.id - 1)
        return cls(
            snapshot_id=snapshot.id,
            after=after,
            before=lake.table(table.address.sql, at=snapshot.id - 1) if existed else None,
            live_after=frozenset(task.file.id for task in _plan(after, None).tasks),
        )

    def touched(self, predicate: SlicePredicate) -> bool:
        """Whether rows that match may have been added or deleted."""
        added = _plan(self.after, predicate)
        if any(task.file.begin_snapshot == self.snapshot_id for task in added.tasks):
            return True
        if any(delete.begin_snapshot == self.snapshot_id for task in added.tasks for delete in task.file.delete_files):
            return True
        hidden = {task.file.id: len(task.file.inlined_deletes) for task in added.tasks}
        before = _plan(self.before, predicate) if self.before else None
        if before and any(
            task.file.id not in self.live_after or len(task.file.inlined_deletes) < hidden.get(task.file.id, 0) for task in before.tasks
        ):
            return True
        return _inlined_row_ids(added, predicate) != (_inlined_row_ids(before, predicate) if before else frozenset())


def _plan(table: Table, predicate: SlicePredicate | None) -> Any:
    return table.scan(where=predicate.to_sql() if predicate else None).plan().plan


def _inlined_row_ids(plan: Any, predicate: SlicePredicate) -> frozenset[int]:
    if plan.inlined is None:
        return frozenset()
    return frozenset(plan.inlined.filter(predicate.to_arrow())["rowid"].to_pylist())


def _search(states: _States, table: AssetTable, keys: Sequence[str], most: int) -> list[str] | None:
    """Halve the ordered keys, leaving out every half that nothing of the commit can match."""
    if not _touches(states, table, keys):
        return []
    if len(keys) == 1:
        return list(keys)
    middle = len(keys) // 2
    found: list[str] = []
    for half in (keys[:middle], keys[middle:]):
        inside = _search(states, table, half, most - len(found))
        if inside is None or len(found) + len(inside) > most:
            return None
        found += inside
    return found


def _touches(states: _States, table: AssetTable, keys: Sequence[str]) -> bool:
    if not keys or table.partitions_def is None:
        return False
    boxes = partition_boxes(table.partitions_def, keys, table.partition_expr, subject=table.key.to_user_string())
    table_slice = TableSlice(schema=table.address.schema, table=table.address.table, boxes=boxes)
    predicate = slice_predicate(table_slice, schema_lookup(states.after.schema))
    return predicate is not None and states.touched(predicate)
