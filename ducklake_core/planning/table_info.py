"""Sizes, statistics and column summaries of tables, from the catalog alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.catalog import changed
from ducklake_core.catalog.changed import Definition, Edges, InlinedGroup
from ducklake_core.catalog.reading.files import data_files, has_many_files
from ducklake_core.catalog.reading.options import ScopedOption
from ducklake_core.catalog.reading.reader import CatalogReader, check_same_snapshot, expired_since
from ducklake_core.errors import CatalogCorruptError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.state import InlinedCounts, Snapshot, TableListing, TableState
from ducklake_core.format.types.data_types import DataType, Field
from ducklake_core.format.types.names import folded, join_name, schemas_meant, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.value_text import from_text, order_key
from ducklake_core.planning.lake_changes import FileRanges
from ducklake_core.results import ColumnSummary, LakeStatistics, StoredDeletes, StoredRows, TableInfo, TableStatistics
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from ducklake_core.planning.plan import ScanPlan


_NOTHING_INLINED = InlinedCounts()

_TIME = pa.timestamp("us", tz="UTC")
_PARTITION = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a table, by the numbers in the catalog.

    Attributes:
        info: The counts in the catalog.
        plan: Scan to count the rows; set if a live file also contains rows or deletes of later snapshots, which only the files identify.
    """

    info: TableInfo
    plan: ScanPlan | None = None

    def counted(self, storage: Storage, count_rows: Callable[[ScanPlan, Storage], int]) -> TableInfo:
        """Complete the size with the given function, which counts the rows in the files that the catalog cannot count."""
        if self.plan is None:
            return self.info
        from ducklake_core.storage.delete_files import deleted_positions

        deleted = sum(len(deleted_positions(storage, task.file, self.info.snapshot_id)) for task in self.plan.tasks)
        return replace(self.info, row_count=count_rows(self.plan, storage), deleted_row_count=deleted)


def table_sizes(
    reader: CatalogReader,
    snapshot_id: int,
    schema: str | None = None,
    *,
    after: tuple[str, str] | None = None,
    most: int | None = None,
) -> list[Size]:
    """Return the sizes of tables at a snapshot, by schema and name.

    Args:
        reader: An open read transaction.
        snapshot_id: The snapshot.
        schema: Path of a schema, for the tables directly in it; None (the default) for all schemas.
        after: Path of a schema and name of a table; only tables that follow them. None, the default, for all.
        most: Maximum number of tables; None, the default, for all.

    Raises:
        NotFoundError: There is no such schema at the snapshot.
    """
    everything = schema is None and after is None and most is None
    listings = reader.tables(snapshot_id) if everything else _listings(reader, snapshot_id, schema, after, most)
    inlined = reader.inlined_counts(listings, snapshot_id)
    return [
        Size(
            info=_info(listing, inlined.get(listing.id, _NOTHING_INLINED), snapshot_id),
            plan=None if listing.is_exact else _count_plan(reader, reader.table_by_id(listing.id, snapshot_id)),
        )
        for listing in listings
    ]


def _listings(
    reader: CatalogReader, snapshot_id: int, schema: str | None, after: tuple[str, str] | None, most: int | None
) -> list[TableListing]:
    found = folded(reader.schema(*schemas_meant(schema), snapshot_id=snapshot_id).name) if schema is not None else None
    names = reader.table_names(snapshot_id)
    ids = (one for one, name in names.items() if found in (None, folded(name[0])) and (after is None or name > after))
    wanted = set(islice(ids, most))
    # A list of ids in the statement is worth it only for the smaller part of the lake.
    if 2 * len(wanted) < len(names):
        return reader.tables(snapshot_id, wanted)
    return [one for one in reader.tables(snapshot_id) if one.id in wanted]


def table_size(reader: CatalogReader, state: TableState) -> Size:
    """Return the size of one table at the snapshot of its state.

    Raises:
        NotFoundError: The snapshot was expired.
    """
    at = reader.snapshots(after=state.snapshot_id - 1, until=state.snapshot_id)
    if not at:
        raise expired_since(state)
    check_same_snapshot(state, at[0].time)
    listing, *others = reader.tables(state.snapshot_id, {state.id})
    if others:
        raise CatalogCorruptError(f"table {state.qualified_name} has two live comments", table=state.qualified_name)
    inlined = reader.inlined_counts([listing], state.snapshot_id).get(state.id, _NOTHING_INLINED)
    keys = state.partition_spec.fields if state.partition_spec is not None else ()
    info = replace(_info(listing, inlined, state.snapshot_id), partition_by=tuple(key.expression for key in keys))
    return Size(info=info, plan=None if listing.is_exact else _count_plan(reader, state))


def row_count_of_many_files(reader: CatalogReader, state: TableState) -> int | None:
    """Return the number of rows of a table of many files without deleted rows from one sum; None if a plan is needed, or is as fast.

    Raises:
        NotFoundError: The snapshot was expired.
    """
    if not has_many_files(reader, state):
        return None
    size = table_size(reader, state)
    return None if size.plan is not None or size.info.deleted_row_count or size.info.delete_file_count else size.info.row_count


def row_counts(reader: CatalogReader, snapshot_id: int, table_ids: Collection[int]) -> dict[int, int]:
    """Return the approximate row counts of some tables for query planning; inlined deletes of file rows are not subtracted.

    Args:
        reader: An open read transaction.
        snapshot_id: The snapshot.
        table_ids: The tables.
    """
    listings = reader.tables(snapshot_id, table_ids)
    inlined = reader.inlined_row_counts(table_ids, snapshot_id)
    return {one.id: max(one.record_count - one.delete_count, 0) + inlined.get(one.id, 0) for one in listings}


def _count_plan(reader: CatalogReader, state: TableState) -> ScanPlan:
    from ducklake_core.planning.planner import plan_scan

    return plan_scan(reader, state, (), virtual=("file_row_number",))


def column_summaries(reader: CatalogReader, state: TableState) -> dict[str, ColumnSummary]:
    """Return counts and bounds of every leaf column by dotted path, summed over the live files in one pass."""
    leaves = list(_leaves(state.schema))
    sums = {leaf.id: _Sum(leaf.type) for _, leaf in leaves}
    for _, statistics in data_files(reader, state, None, frozenset(sums)):
        for column_id, total in sums.items():
            total.add(statistics.get(column_id))
    return {path: sums[leaf.id].summary(path, leaf.id) for path, leaf in leaves}


def earliest_values(reader: CatalogReader, snapshot_id: int, columns: Sequence[tuple[TableState, str]]) -> dict[str, object]:
    """Return the earliest value of a column of each table; see :meth:`ducklake_core.lake.LakeAtSnapshot.earliest_values`."""
    wanted: dict[tuple[int, int], tuple[str, DataType]] = {}
    for state, column in columns:
        found = state.schema.column(column)
        wanted[state.id, found.id] = (join_name(state.schema_name, state.name), found.type)
    values: dict[str, object] = {}
    for table_id, column_id, text in reader.lowest_bounds(snapshot_id, {column_id for _, column_id in wanted}):
        if (table_id, column_id) in wanted:
            name, data_type = wanted[table_id, column_id]
            with suppress(SchemaError, UnsupportedFeatureError):
                values[name] = from_text(text, data_type)
    return values


class _Sum:
    """One column's statistics over files seen so far.

    A total is known only if every file has it: one file without a count, or without bounds, makes the sum unknown.
    """

    def __init__(self, data_type: DataType) -> None:
        self._type = data_type
        self._values: int | None = 0
        self._nulls: int | None = 0
        self._least: Any = None
        self._greatest: Any = None
        self._bounded = True

    def add(self, found: ColumnStatistics | None) -> None:
        self._values = None if found is None or found.value_count is None or self._values is None else self._values + found.value_count
        self._nulls = None if found is None or found.null_count is None or self._nulls is None else self._nulls + found.null_count
        # A file in which the column is NULL everywhere has no bounds, and does not make them unknown.
        if found is not None and found.value_count == 0:
            return
        if found is None or found.min_value is None or found.max_value is None or not self._bounded:
            self._bounded = False
            return
        try:
            low, high = from_text(found.min_value, self._type), from_text(found.max_value, self._type)
        except (SchemaError, UnsupportedFeatureError):
            self._bounded = False
            return
        self._least = low if self._least is None else min(self._least, low, key=order_key)
        self._greatest = high if self._greatest is None else max(self._greatest, high, key=order_key)

    def summary(self, path: str, column_id: int) -> ColumnSummary:
        return ColumnSummary(
            column=path,
            column_id=column_id,
            value_count=self._values,
            null_count=self._nulls,
            min_value=self._least if self._bounded else None,
            max_value=self._greatest if self._bounded else None,
        )


def _leaves(schema: Schema) -> Iterator[tuple[str, Field]]:
    def below(prefix: str, fields: Iterable[Field]) -> Iterator[tuple[str, Field]]:
        for field in fields:
            path = f"{prefix}{field.name}"
            if field.is_leaf:
                yield path, field
            yield from below(f"{path}.", field.children)

    return below("", schema.columns)


def _info(listing: TableListing, inlined: InlinedCounts, snapshot_id: int) -> TableInfo:
    deleted = listing.delete_count + inlined.deleted_count
    return TableInfo(
        table=join_name(listing.schema_name, listing.name),
        table_id=listing.id,
        table_uuid=listing.uuid,
        snapshot_id=snapshot_id,
        row_count=listing.record_count - deleted + inlined.row_count,
        file_count=listing.file_count,
        file_size_bytes=listing.file_size_bytes,
        delete_file_count=listing.delete_file_count,
        delete_file_size_bytes=listing.delete_file_size_bytes,
        deleted_row_count=deleted,
        inlined_row_count=inlined.row_count,
        comment=listing.comment,
    )


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
    """Return rows by column name as a table; each row must have exactly the columns of the schema."""
    found = list(rows)
    return pa.Table.from_arrays([pa.array([row[name] for row in found], schema.field(name).type) for name in schema.names], schema=schema)


def snapshot_row(snapshot: Snapshot) -> Mapping[str, object]:
    """Return a row of :data:`SNAPSHOTS`."""
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
    """Yield rows of :data:`TABLES`; counts that need the files are None."""
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
    """Yield rows of :data:`FILES`."""
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
    """Yield rows of :data:`PARTITIONS`, by their values, NULL first."""
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
    """Return a row of :data:`OPTIONS`."""
    return {"name": option.name, "value": option.value, "scope": option.scope, "entry": option.entry}


def _partition(state: TableState, file: DataFile) -> Sequence[tuple[str, str | None]]:
    """Return the partition keys that the file was written under, as users write them, with their values."""
    spec = None if file.partition_id is None else state.partition_specs.get(file.partition_id)
    keys = () if spec is None else spec.fields
    return [(keys[place].expression if place < len(keys) else str(place), value) for place, value in sorted(file.partition_values)]


def _deleted(file: DataFile) -> int:
    """Return the number of deleted rows; only a faulty writer's second delete file of one data file can repeat a row."""
    return sum(one.delete_count for one in file.delete_files) + len(file.inlined_deletes)


def read_statistics(reader: CatalogReader, tables: Mapping[str, Sequence[str]]) -> LakeStatistics:
    """Return the statistics of tables; see :meth:`ducklake_core.lake.DuckLake.statistics` for the parameters."""
    now = reader.latest_snapshot().id
    names = _live_names(reader, now)
    requested = {name: tuple(map(folded, split_name(name))) for name in tables}
    ids = {name: names[key] for name, key in requested.items() if key in names}
    known = changed.definitions(reader, set(ids.values()))
    wanted = _wanted_columns(ids, tables, known, now)
    stored = _StoredRows(reader, now, known, {number: tuple(columns.values()) for number, columns in wanted.items()})
    return LakeStatistics(
        snapshot_id=now,
        tables=tuple(_statistics(name, number, tables[name], known[number], wanted[number], stored, now) for name, number in ids.items()),
    )


def _live_names(reader: CatalogReader, now: int) -> dict[tuple[str, ...], int]:
    named = changed.named_tables(reader, now, now)
    return {(folded(one.schema_name), folded(one.name)): one.table_id for one in named if one.live_at(now)}


def _wanted_columns(
    ids: Mapping[str, int], tables: Mapping[str, Sequence[str]], known: Mapping[int, Definition], now: int
) -> dict[int, dict[str, Field | None]]:
    """Return columns by folded name and table id; two spellings of a table share one entry."""
    wanted: dict[int, dict[str, Field | None]] = {}
    for name, number in ids.items():
        schema = known[number].schema_at(now)
        wanted.setdefault(number, {}).update({folded(column): schema.find(column) for column in tables[name]})
    return wanted


def _statistics(  # noqa: PLR0917 - one value
    name: str,
    number: int,
    columns: Sequence[str],
    known: Definition,
    wanted: Mapping[str, Field | None],
    stored: _StoredRows,
    now: int,
) -> TableStatistics:
    places = [list(wanted).index(folded(column)) for column in columns]
    found = [wanted[folded(column)] for column in columns]
    return TableStatistics(
        name=join_name(*split_name(name)),
        table_id=number,
        schema=known.schema_at(now),
        column_names=tuple(field.name if field is not None else None for field in found),
        rows=tuple(stored.of(number, places)),
    )


class _StoredRows:
    """Reads files, their deletes and inlined rows for all tables in a few queries."""

    def __init__(
        self, reader: CatalogReader, now: int, known: Mapping[int, Definition], columns: Mapping[int, Sequence[Field | None]]
    ) -> None:
        ids = set(known)
        everything = Edges(after=-1, until=now, next_file_id=0)
        self._files = _by_table(changed.all_data_files(reader, ids) if ids else [], ids)
        rows = [row for files in self._files.values() for row in files]
        self._ranges = FileRanges(reader, rows, known, columns, with_floats=True)
        self._deletes: dict[int, list[StoredDeletes]] = {}
        for row in changed.all_delete_files(reader, ids) if ids else []:
            self._add_deletes(row.data_file_id, row.begin_snapshot, row.delete_count, row.end_snapshot, row.partial_max)
        for hidden in changed.changed_inlined_deletes(reader, everything, ids):
            self._add_deletes(hidden.data_file_id, hidden.begin_snapshot, hidden.row_count)
        registered = changed.registered_tables(reader)
        sources = {number: registered[number] for number in sorted(ids) if number in registered}
        self._groups: dict[int, list[InlinedGroup]] = {}
        for group in changed.all_inlined_rows(reader, sources, columns, known):
            self._groups.setdefault(group.table_id, []).append(group)

    def _add_deletes(self, data_file_id: int, begin: int, count: int, end: int | None = None, partial_max: int | None = None) -> None:
        # Between begin and partial_max only some of the file's deletes are effective; from there on all of them are.
        complete = begin if partial_max is None else max(begin, partial_max)
        found = StoredDeletes(begin_snapshot=begin, end_snapshot=end, complete_from=complete, row_count=count)
        self._deletes.setdefault(data_file_id, []).append(found)

    def of(self, table_id: int, places: Sequence[int]) -> Iterator[StoredRows]:
        """Yield rows of one table, with the columns at these indexes among those wanted."""
        for row in self._files.get(table_id, ()):
            ranges = self._ranges.of(table_id, row.data_file_id)
            nulls = self._ranges.null_counts(table_id, row.data_file_id)
            yield StoredRows(
                begin_snapshot=row.begin_snapshot,
                end_snapshot=row.end_snapshot,
                complete_from=row.begin_snapshot if row.partial_max is None else max(row.begin_snapshot, row.partial_max),
                row_count=row.record_count,
                file_size_bytes=row.file_size_bytes,
                deletes=tuple(self._deletes.get(row.data_file_id, ())),
                ranges=tuple(ranges[place] for place in places),
                null_counts=tuple(nulls[place] for place in places),
                data_file_id=row.data_file_id,
            )
        for group in self._groups.get(table_id, ()):
            yield StoredRows(
                begin_snapshot=group.begin_snapshot,
                end_snapshot=group.end_snapshot,
                complete_from=group.begin_snapshot,
                row_count=group.row_count,
                ranges=tuple(group.ranges[place] for place in places),
                null_counts=tuple(_nulls(group, place) for place in places),
            )


def _by_table(rows: Sequence[Any], ids: set[int]) -> dict[int, list[Any]]:
    """Return rows by table, of these tables only; for very many tables the statement returns more than that."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        if row.table_id in ids:
            found.setdefault(row.table_id, []).append(row)
    return found


def _nulls(group: InlinedGroup, place: int) -> int | None:
    """Return the NULL count of a group, whose rows share one value: NULL, another value, or one that the catalog cannot compare."""
    found = group.ranges[place]
    if not found.has_values:
        return group.row_count
    return None if found.low is None else 0
