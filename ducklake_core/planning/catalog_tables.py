"""What the catalog says as Arrow tables with typed columns, for people who look into a lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from ducklake_core.catalog.reading.option_rows import ScopedOption
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.state import InlinedCounts, Snapshot, TableListing, TableState

_TIME = pa.timestamp("us", tz="UTC")
_PARTITION = pa.map_(pa.string(), pa.string())


def _schema(required: Mapping[str, pa.DataType], optional: Mapping[str, pa.DataType]) -> pa.Schema:
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in optional.items())])


SNAPSHOTS = _schema(
    {"snapshot_id": pa.int64(), "time": _TIME, "schema_version": pa.int64(), "changes": pa.string()},
    dict.fromkeys(("author", "message", "extra_info"), pa.string()),
)
TABLES = _schema(
    {
        **dict.fromkeys(("schema", "table"), pa.string()),
        "table_id": pa.int64(),
        "table_uuid": pa.string(),
        **dict.fromkeys(
            ("file_count", "file_size_bytes", "delete_file_count", "delete_file_size_bytes", "inlined_row_count"),
            pa.int64(),
        ),
    },
    {"row_count": pa.int64(), "deleted_row_count": pa.int64(), "comment": pa.string()},
)
FILES = _schema(
    {
        "data_file_id": pa.int64(),
        "path": pa.string(),
        "record_count": pa.int64(),
        "file_size_bytes": pa.int64(),
        "partition": _PARTITION,
        "snapshot_id": pa.int64(),
        "delete_files": pa.list_(pa.string()),
        "deleted_row_count": pa.int64(),
        "encrypted": pa.bool_(),
    },
    {"row_id_start": pa.int64(), "partial_max": pa.int64()},
)
PARTITIONS = _schema(
    {
        "partition": _PARTITION,
        **dict.fromkeys(("file_count", "record_count", "file_size_bytes", "delete_file_count", "deleted_row_count"), pa.int64()),
    },
    {},
)
OPTIONS = _schema(dict.fromkeys(("name", "value", "scope"), pa.string()), {"entry": pa.string()})


def as_table(schema: pa.Schema, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Rows by column name as a table; a column that is not in the schema, or is missing, is a mistake."""
    found = list(rows)
    return pa.Table.from_arrays([pa.array([row[name] for row in found], schema.field(name).type) for name in schema.names], schema=schema)


def snapshot_row(snapshot: Snapshot) -> Mapping[str, object]:
    """A row of :data:`SNAPSHOTS`."""
    return {
        "snapshot_id": snapshot.id,
        "time": snapshot.time,
        "schema_version": snapshot.schema_version,
        "changes": snapshot.changes,
        "author": snapshot.author,
        "message": snapshot.message,
        "extra_info": snapshot.extra_info,
    }


def table_rows(listings: Iterable[TableListing], inlined: Mapping[int, InlinedCounts]) -> Iterator[Mapping[str, object]]:
    """Rows of :data:`TABLES`; what only files can count is None."""
    for listing in listings:
        counts = inlined.get(listing.id, InlinedCounts())
        deleted = listing.delete_count + counts.deleted_count
        yield {
            "schema": listing.schema_name,
            "table": listing.name,
            "table_id": listing.id,
            "table_uuid": listing.uuid,
            "file_count": listing.file_count,
            "file_size_bytes": listing.file_size_bytes,
            "delete_file_count": listing.delete_file_count,
            "delete_file_size_bytes": listing.delete_file_size_bytes,
            "inlined_row_count": counts.row_count,
            "row_count": listing.record_count - deleted + counts.row_count if listing.is_exact else None,
            "deleted_row_count": deleted if listing.is_exact else None,
            "comment": listing.comment,
        }


def file_rows(state: TableState, files: Iterable[DataFile]) -> Iterator[Mapping[str, object]]:
    """Rows of :data:`FILES`."""
    for file in files:
        yield {
            "data_file_id": file.id,
            "path": file.path,
            "record_count": file.record_count,
            "file_size_bytes": file.file_size_bytes,
            "partition": _partition(state, file),
            "snapshot_id": file.begin_snapshot,
            "delete_files": [one.path for one in file.delete_files],
            "deleted_row_count": _deleted(file),
            "encrypted": file.encryption_key is not None,
            "row_id_start": file.row_id_start,
            "partial_max": file.partial_max,
        }


def partition_rows(state: TableState, files: Iterable[DataFile]) -> Iterator[Mapping[str, object]]:
    """Rows of :data:`PARTITIONS`, by their values, NULL first."""
    groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in files:
        groups.setdefault(tuple(_partition(state, file)), []).append(file)
    for partition in sorted(groups, key=lambda pairs: [(key, value is not None, value or "") for key, value in pairs]):
        group = groups[partition]
        yield {
            "partition": list(partition),
            "file_count": len(group),
            "record_count": sum(file.record_count for file in group),
            "file_size_bytes": sum(file.file_size_bytes for file in group),
            "delete_file_count": sum(len(file.delete_files) for file in group),
            "deleted_row_count": sum(_deleted(file) for file in group),
        }


def option_row(option: ScopedOption) -> Mapping[str, object]:
    """A row of :data:`OPTIONS`."""
    return {"name": option.name, "value": option.value, "scope": option.scope, "entry": option.entry}


def _partition(state: TableState, file: DataFile) -> Sequence[tuple[str, str | None]]:
    """The partition keys that the file was written under, as users write them, with their values."""
    spec = None if file.partition_id is None else state.partition_specs.get(file.partition_id)
    keys = () if spec is None else spec.fields
    return [(keys[place].expression if place < len(keys) else str(place), value) for place, value in sorted(file.partition_values)]


def _deleted(file: DataFile) -> int:
    """Deletes are never of the same row twice, but for several delete files of one data file, which is a writer's fault."""
    return sum(one.delete_count for one in file.delete_files) + len(file.inlined_deletes)
