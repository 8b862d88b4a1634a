"""Rows and bytes of each partition of one commit, from what the catalog knows of the files that it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import DuckLakeError
from ducklake_dagster.asset_tables import AssetTable
from ducklake_dagster.touched_partitions import KeysOf, TouchedPartitions, partition_columns, point_of

if TYPE_CHECKING:
    from ducklake_core import ChangedTable, DuckLake, Table, WriteResult

# Rows are counted by reading their partition columns where a file has those of several partitions, but not without end.
_MOST_READ = 200_000


@dataclass(slots=True)
class PartitionNumbers:
    """Numbers of one partition.

    Attributes:
        rows: Rows that the commit added to it.
        bytes: Bytes of its new files; None when a file of it also has rows of another partition, or rows are in the catalog.
    """

    rows: int = 0
    bytes: int | None = 0


def partition_numbers(lake: DuckLake, table: AssetTable, keys: Sequence[str], result: WriteResult) -> Mapping[str, PartitionNumbers]:
    """The numbers of each of the run's partitions; nothing when they cannot be told.

    A file belongs to a partition when the bounds of its values do. Where files have rows of several partitions, the partition columns of
    the rows that were added are read, if these are not too many.

    Args:
        lake: The lake.
        table: The asset, which is partitioned.
        keys: The run's partitions.
        result: The commit.
    """
    if not result.committed or result.repeated:
        return {}
    try:
        return _numbers(lake, table, keys, result)
    except DuckLakeError:
        # The commit is made, and others may have expired or changed what it was compared with: numbers must not fail the run.
        return {}


def _numbers(lake: DuckLake, table: AssetTable, keys: Sequence[str], result: WriteResult) -> Mapping[str, PartitionNumbers]:
    columns = list(partition_columns(table))
    changes = lake.changed_tables(result.snapshot_id - 1, result.snapshot_id, tables={result.table: columns})
    changed = next(iter(changes.tables), None)
    if changed is None or changed.unknown is not None:
        return {}
    opened = lake.table(result.table, at=result.snapshot_id)
    partitions = TouchedPartitions(table, changed.schema, _GivenKeys(table, keys))
    found = {key: PartitionNumbers() for key in keys}
    if not _of_files(found, changed, partitions, opened) and not _of_rows(found, columns, partitions, opened, result):
        return {}
    return found


def _of_files(found: dict[str, PartitionNumbers], changed: ChangedTable, partitions: TouchedPartitions, table: Table) -> bool:
    """Add up files; false when one belongs to no single partition."""
    added = [rows for rows in changed.rows if rows.change == "added"]
    owners = [partitions.only_key(rows.ranges) for rows in added]
    if not all(owner in found for owner in owners):
        return False
    sizes = {file.id: file.file_size_bytes for file in table.list_files()}
    for rows, owner in zip(added, owners, strict=True):
        numbers = found[owner or ""]
        numbers.rows += rows.row_count
        size = sizes.get(rows.data_file_id) if rows.data_file_id is not None else None
        numbers.bytes = None if size is None or numbers.bytes is None else numbers.bytes + size
    return True


def _of_rows(
    found: dict[str, PartitionNumbers], columns: Sequence[str], partitions: TouchedPartitions, table: Table, result: WriteResult
) -> bool:
    """Count rows by the values in their partition columns; false when that would be too many, or one belongs to no partition."""
    if result.rows_added > _MOST_READ:
        return False
    for numbers in found.values():
        numbers.rows, numbers.bytes = 0, None
    types = [str(table.schema.column(column).type) for column in columns]
    for values, count in _value_counts(table, columns, result.snapshot_id):
        owner = partitions.only_key([point_of(value, kind) for value, kind in zip(values, types, strict=True)])
        if owner is None or owner not in found:
            return False
        found[owner].rows += count
    return True


def _value_counts(table: Table, columns: Sequence[str], snapshot_id: int) -> Iterator[tuple[tuple[Any, ...], int]]:
    names = [table.schema.column(column).name for column in columns]
    counts: Counter[tuple[Any, ...]] = Counter()
    for batch in table.insertions(snapshot_id, snapshot_id, columns=names).to_batches():
        counts.update(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    yield from counts.items()


class _GivenKeys(KeysOf):
    """Keys of a run, by dimension."""

    def __init__(self, table: AssetTable, keys: Sequence[str]) -> None:
        self._keys: dict[dg.PartitionsDefinition[str], set[str]] = {}
        definition = table.partitions_def
        if isinstance(definition, dg.MultiPartitionsDefinition):
            points = [definition.get_partition_key_from_str(key).keys_by_dimension for key in keys]
            for dimension in definition.partitions_defs:
                self._keys.setdefault(dimension.partitions_def, set()).update(point[dimension.name] for point in points)
        elif definition is not None:
            self._keys[definition] = set(keys)

    def of(self, definition: dg.PartitionsDefinition[str]) -> Sequence[str]:
        """The keys of the run in this dimension, ascending."""
        keys = self._keys[definition]
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            return sorted(keys, key=lambda key: definition.time_window_for_partition_key(key).start.timestamp())
        return sorted(keys)
