"""Collect metadata of a materialization: numbers of its commit, of its table and of each of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import DuckLakeError, NotFoundError
from ducklake_dagster.assets.tables import AssetTable
from ducklake_dagster.statistics.partitions import KeysOf, TouchedPartitions, partition_columns, point_of

if TYPE_CHECKING:
    from ducklake_core import ChangedTable, DuckLake, Schema, Table, TableInfo, WriteResult
    from ducklake_dagster.io.outputs import TableOutput
    from ducklake_dagster.partitions.predicates import SlicePredicate


# Maximum number of rows of a commit whose partition columns are read, when files have rows of several partitions.
_MAX_READ = 200_000


def commit_metadata(
    lake: DuckLake, output: TableOutput, predicate: SlicePredicate | None, result: WriteResult, *, seconds: float
) -> dict[str, Any]:
    """Return metadata of one output, all of it at the snapshot of its commit.

    Args:
        lake: The lake.
        output: The plan of the output.
        predicate: Its slice, None for the whole table.
        result: The commit.
        seconds: Seconds from planning to the end of the commit.
    """
    metadata = {
        "dagster/storage_kind": "ducklake",
        "Query": _query(result, predicate),
        "ducklake/write_mode": output.settings.write_mode,
        "ducklake/write_seconds": round(seconds, 3),
        **_commit_numbers(result, of_several=len(output.partition_keys) > 1),
        **_table_facts(lake, result),
    }
    if len(output.partition_keys) == 1 and output.settings.write_mode == "overwrite" and not result.repeated:
        metadata["dagster/partition_row_count"] = result.rows_added
    return metadata


def _table_facts(lake: DuckLake, result: WriteResult) -> dict[str, Any]:
    """Return metadata of the table at the snapshot, under its name there; none when the snapshot was expired in the meantime."""
    # The commit exists by now: another client that expires snapshots or drops tables must not fail the run.
    try:
        table = lake.table(result.table, at=result.snapshot_id)
        info = table.info()
    except NotFoundError:
        return {}
    facts: dict[str, Any] = {
        "dagster/row_count": info.row_count,
        "dagster/size_bytes": info.file_size_bytes,
        "dagster/column_schema": column_schema(table, info),
        "dagster/table_name": table.name,
        "dagster/uri": table.state.path,
        "ducklake/table_files": info.file_count,
        "ducklake/inlined_rows": info.inlined_row_count,
    }
    if info.file_count:
        facts["ducklake/avg_file_bytes"] = info.file_size_bytes // info.file_count
    return facts


def partition_metadata(output: TableOutput, numbers: PartitionNumbers) -> dict[str, Any]:
    """Return metadata of one partition of a run that had several."""
    facts: dict[str, Any] = {"ducklake/rows_added": numbers.rows}
    if numbers.bytes is not None:
        facts["ducklake/bytes_added"] = numbers.bytes
    if output.settings.write_mode == "overwrite":
        facts["dagster/partition_row_count"] = numbers.rows
    return facts


def _commit_numbers(result: WriteResult, *, of_several: bool) -> dict[str, Any]:
    """Return numbers of a commit. Dagster shows them on each partition of the run, so the names of several contain ``commit``."""
    rows = "ducklake/commit_" if of_several else "ducklake/"
    numbers: dict[str, Any] = {
        "ducklake/snapshot_id": result.snapshot_id,
        "ducklake/schema_version": result.snapshot.schema_version,
        f"{rows}rows_added": result.rows_added,
        f"{rows}rows_deleted": result.rows_deleted,
        **({f"{rows}rows_updated": result.rows_updated} if result.rows_updated else {}),
        "ducklake/files_added": result.files_added,
        "ducklake/files_removed": result.files_removed,
        "ducklake/delete_files_added": result.delete_files_added,
        f"{rows}bytes_added": result.bytes_added,
        "ducklake/commit_attempts": result.attempts,
    }
    if result.schema_changes:
        numbers["ducklake/schema_changes"] = "\n".join(result.schema_changes)
    if result.repeated:
        numbers["ducklake/repeated"] = True
    return numbers


def _query(result: WriteResult, predicate: SlicePredicate | None) -> str:
    condition = f" WHERE {predicate.shown()}" if predicate else ""
    return f"FROM {result.table} AT (VERSION => {result.snapshot_id}){condition}"


def column_schema(table: Table, info: TableInfo) -> dg.TableSchema:
    """Return the table's columns with the catalog's types, nullability and comments; partition keys are a table constraint."""
    return table_schema(table.schema, table.state.column_comments, info.partition_by)


def table_schema(schema: Schema, comments: Mapping[int, str], partition_by: Sequence[str]) -> dg.TableSchema:
    """Return the same as :func:`column_schema`, for a table that is not open.

    Args:
        schema: Columns of the table.
        comments: Comments by column id.
        partition_by: Partition keys as SQL.
    """
    columns = tuple((column.name, str(column.type), column.nullable, comments.get(column.id)) for column in schema)
    return _table_schema(columns, tuple(partition_by))


@lru_cache(maxsize=4096)
def _table_schema(columns: tuple[tuple[str, str, bool, str | None], ...], partition_by: tuple[str, ...]) -> dg.TableSchema:
    """Return the schema, cached for all tables with these columns and all events of a table: Dagster validates each column slowly."""
    layout = [f"partitioned by {', '.join(partition_by)}"] if partition_by else []
    shown = [
        dg.TableColumn(name=name, type=kind, description=comment, constraints=dg.TableColumnConstraints(nullable=nullable))
        for name, kind, nullable, comment in columns
    ]
    return dg.TableSchema(columns=shown, constraints=dg.TableConstraints(other=layout))


@dataclass(slots=True)
class PartitionNumbers:
    """Numbers of one partition.

    Attributes:
        rows: Rows that the commit added to it.
        bytes: Bytes of its new files; None when a file also has rows of another partition, or rows are inlined in the catalog.
    """

    rows: int = 0
    bytes: int | None = 0


def partition_numbers(lake: DuckLake, table: AssetTable, keys: Sequence[str], result: WriteResult) -> Mapping[str, PartitionNumbers]:
    """Return the numbers of each of the run's partitions; nothing when they cannot be determined.

    A file belongs to a partition when the bounds of its values do. Where files have rows of several partitions, the partition columns of
    the rows that were added are read, unless there are too many rows.

    Args:
        lake: The lake.
        table: The asset, which is partitioned.
        keys: Partition keys of the run.
        result: The commit.
    """
    if not result.committed or result.repeated:
        return {}
    try:
        return _numbers(lake, table, keys, result)
    except DuckLakeError:
        # The commit exists, and another client may have expired the snapshot before it: missing numbers must not fail the run.
        return {}


def _numbers(lake: DuckLake, table: AssetTable, keys: Sequence[str], result: WriteResult) -> Mapping[str, PartitionNumbers]:
    columns = list(partition_columns(table))
    # The difference between the snapshot before and the snapshot of the commit.
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
    """Add up files; return False when a file has rows of several partitions."""
    added = [rows for rows in changed.rows if rows.change == "added"]
    owners = [partitions.only_key(rows.ranges) for rows in added]
    if not all(owner in found for owner in owners):
        return False
    sizes = {file.id: file.file_size_bytes for file in table.list_files()}
    for rows, owner in zip(added, owners, strict=True):
        numbers = found[owner or ""]
        numbers.rows += rows.row_count
        # Inlined rows have no file: the partition's bytes are then unknown, which is not the same as the sum of the other files.
        size = sizes.get(rows.data_file_id) if rows.data_file_id is not None else None
        numbers.bytes = None if size is None or numbers.bytes is None else numbers.bytes + size
    return True


def _of_rows(
    found: dict[str, PartitionNumbers], columns: Sequence[str], partitions: TouchedPartitions, table: Table, result: WriteResult
) -> bool:
    """Count rows by their partition columns; return False when there are too many rows, or one belongs to no partition."""
    if result.rows_added > _MAX_READ:
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
    """The keys of one run, by dimension: the search is then among these instead of all keys of the definition."""

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
        """Return the keys of the run in this dimension, ascending."""
        keys = self._keys[definition]
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            return sorted(keys, key=lambda key: definition.time_window_for_partition_key(key).start.timestamp())
        return sorted(keys)
