"""Collect counters, catalog rows, table totals and the change log of a new snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ducklake_core.catalog.changes import CatalogChange, CreateInlinedTable, DeleteRows, InsertRows, UpdateEach, UpdateRows
from ducklake_core.catalog.database.tables import inlined_data_name
from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit.request import CommitRequest
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.changes import Changes, QualifiedName, encode_changes
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.statistics import (
    COMPARED_AS_TEXT,
    GeometryStatistics,
    merged_field_statistics,
    merged_geometry_statistics,
    read_field_statistics,
    read_geometry_statistics,
    shortened_maximum,
    shortened_minimum,
    to_json,
)
from ducklake_core.format.state import Snapshot, TableColumnStatistics, TableStatistics
from ducklake_core.format.types.data_types import GEOMETRY, INT128, UINT128, VARIANT, DataType, Field, PrimitiveType
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.leaf_values import from_text, order_key

Row = Mapping[str, object]
# DuckDB's order of inserts within one commit. Parents come before rows that name their ids.
_INSERT_ORDER = (
    "schema", "table", "column", "partition_info", "partition_column", "view", "tag", "column_tag", "view_column_tag",
    "inlined_data_tables", "sort_info", "sort_expression", "macro", "macro_impl", "macro_parameters",
    "column_mapping", "name_mapping", "data_file", "file_column_stats", "file_partition_value", "file_variant_stats",
    "files_scheduled_for_deletion", "delete_file", "schema_versions", "metadata",
)  # fmt: skip
# Compaction removes a source without an end snapshot: no snapshot may read it any more, its rows are in the merged file.
_FORGOTTEN_WITH_FILE = ("data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file")

# DuckDB stores no bounds for 128-bit integers, so their row stays although its bounds are missing.
_NO_BOUNDS_TYPES = (INT128, UINT128)


@dataclass(slots=True)
class SnapshotBuilder:
    """Builder of the rows that one attempt writes on top of a head.

    :meth:`finish` puts the collected changes into the order in which the database applies them::

        snapshot row        first: its primary key decides which of two writers wins
        forgotten files     compaction: sources leave the catalog
        endings             UPDATE and DELETE of existing rows, while no new row can match their conditions
        inserts             by metadata table, in the order of ``_INSERT_ORDER``
        creations           tables of inlined rows
        inlined inserts     rows in those tables
        totals              table and column statistics
        snapshot_changes    the log of changes

    Attributes:
        ids: Real ids of the schemas and tables that the transaction creates, by their negative local ids.
        new_specs: Partition ids of the specs that the transaction creates, by table id.
        first_row_ids: First row id of each new table, by table id.
        inlined_suffix: Suffix of the names of new tables of inlined rows.
        schema_changed: Whether a catalog object changes, which moves the schema version.
        data_changed: Whether rows or files change, which moves the next file id.
        endings: Changes to rows that exist, made before the inserts; ``creations`` are made after them, then ``inlined_inserts``,
            with positions that are deleted through the catalog.
        inlined_tables: Names of the tables of inlined rows that it creates, by table id.
        inserts: Rows to insert, by metadata table.
        entries: Values of ``changes_made`` by kind.
        forgotten_files: Ids of data files that leave the catalog with all of their rows, as if they had never existed.
        local_files: Ids of data files that it adds, by table and the transaction's own id for the file.
    """

    transaction: CommitRequest
    head: Head
    inlined_suffix: str = ""
    next_catalog_id: int = field(init=False)
    next_file_id: int = field(init=False)
    schema_changed: bool = False
    data_changed: bool = False
    ids: dict[int, int] = field(default_factory=dict)
    new_specs: dict[int, int] = field(default_factory=dict)
    totals: dict[int, TableTotals] = field(default_factory=dict)
    first_row_ids: dict[int, int] = field(default_factory=dict)
    inserts: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in _INSERT_ORDER})
    endings: list[CatalogChange] = field(default_factory=list)
    creations: list[CatalogChange] = field(default_factory=list)
    inlined_inserts: list[CatalogChange] = field(default_factory=list)
    inlined_tables: dict[int, str] = field(default_factory=dict)
    entries: dict[str, list[Any]] = field(default_factory=dict)
    forgotten_files: list[int] = field(default_factory=list)
    local_files: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.next_catalog_id = self.head.snapshot.next_catalog_id
        self.next_file_id = self.head.snapshot.next_file_id

    @property
    def snapshot_id(self) -> int:
        """Return the id of the snapshot that is being made."""
        return self.head.snapshot.id + 1

    @property
    def schema_version(self) -> int:
        """Return the schema version of the snapshot, provided that a definition changes."""
        # Read before all actions are resolved, but only by actions that are schema changes themselves.
        return self.head.snapshot.schema_version + 1

    def finish(self) -> tuple[Snapshot, tuple[CatalogChange, ...]]:
        """Return the snapshot and the catalog changes that make it, in the order to apply them."""
        head = self.head.snapshot
        if self.data_changed and self.next_file_id == head.next_file_id:
            # Sessions of DuckDB cache a table's statistics by next_file_id: a data change must move it.
            self.next_file_id += 1
        text = encode_changes(Changes(**{kind: tuple(values) for kind, values in self.entries.items()}))
        snapshot = Snapshot(
            id=self.snapshot_id,
            time=self.head.now,
            schema_version=self.schema_version if self.schema_changed else head.schema_version,
            next_catalog_id=self.next_catalog_id,
            next_file_id=self.next_file_id,
            changes=text,
            author=self.transaction.author,
            message=self.transaction.message,
            extra_info=self.transaction.extra_info,
        )
        totals = [change for table_totals in self.totals.values() for change in table_totals.changes()]
        inserts = [InsertRows(table=name, rows=tuple(rows)) for name, rows in self.inserts.items() if rows]
        # One statement per metadata table for all files: without an index each statement scans the whole table.
        forgotten = {"data_file_id": tuple(self.forgotten_files)}
        changes = (
            _snapshot_row(snapshot),
            *(DeleteRows(table=name, where=forgotten) for name in _FORGOTTEN_WITH_FILE if self.forgotten_files),
            *self.endings,
            *inserts,
            *self.creations,
            *self.inlined_inserts,
            *totals,
            _changes_row(snapshot),
        )
        return snapshot, changes

    def totals_of(self, table_id: int) -> TableTotals:
        """Return the statistics of a table (real id), which the actions of this commit add to."""
        if table_id not in self.totals:
            before, columns = self.head.statistics.get(table_id), self.head.column_statistics.get(table_id, ())
            self.totals[table_id] = TableTotals(table_id, before, columns, self.first_row_ids.get(table_id, 0))
        return self.totals[table_id]

    def real_id(self, object_id: int) -> int:
        """Return the catalog id of a schema or table; negative ids are local to this transaction."""
        return self.ids[object_id] if object_id < 0 else object_id

    def catalog_id(self) -> int:
        """Return the next id for a schema, table, view, macro, partition spec or sort order."""
        self.next_catalog_id += 1
        return self.next_catalog_id - 1

    def file_id(self, local: tuple[int, int] | None = None) -> int:
        """Return the next id for a data file, delete file or name mapping.

        Args:
            local: Table id and negative id by which other actions of the transaction name a data file; None when none does.
        """
        self.data_changed = True
        if local is not None:
            self.local_files[local] = self.next_file_id
        self.next_file_id += 1
        return self.next_file_id - 1

    def new_schema_version(self, table_id: int) -> None:
        """Insert the row that gives a table the schema version of this snapshot, once."""
        row = {"begin_snapshot": self.snapshot_id, "schema_version": self.schema_version, "table_id": table_id}
        if row not in self.inserts["schema_versions"]:
            self.insert("schema_versions", **row)

    def new_inlined_table(self, table_id: int, schema: Schema) -> str:
        """Create a table for inlined rows of these columns, and return its name.

        A transaction creates at most one for each table, with the columns given last.
        """
        known = self.inlined_tables.get(table_id)
        name = known or f"{inlined_data_name(table_id, self.schema_version)}{self.inlined_suffix}"
        if known is None:
            self.schema_changed = True
            self.inlined_tables[table_id] = name
            self.insert("inlined_data_tables", table_id=table_id, table_name=name, schema_version=self.schema_version)
        else:
            self.creations = [change for change in self.creations if not _creates(change, name)]
        self.creations.append(CreateInlinedTable(table_name=name, columns=schema.columns))
        return name

    def log(self, kind: str, value: int | str | QualifiedName) -> None:
        """Add an entry to ``changes_made``."""
        self.entries.setdefault(kind, []).append(value)

    def insert(self, table: str, **row: object) -> None:
        """Add a row to a metadata table. All rows of one table have the same keys, because one INSERT writes them."""
        self.inserts[table].append(row)

    def insert_all(self, table: str, rows: list[dict[str, object]]) -> None:
        """Add rows to a metadata table."""
        self.inserts[table].extend(rows)

    def end(self, table: str, where: Mapping[str, object]) -> None:
        """Set the end snapshot of the live rows that match."""
        self.endings.append(UpdateRows(table=table, where={**where, "end_snapshot": None}, values={"end_snapshot": self.snapshot_id}))


def _creates(change: CatalogChange, name: str) -> bool:
    return isinstance(change, CreateInlinedTable) and change.table_name == name


def _snapshot_row(snapshot: Snapshot) -> InsertRows:
    return InsertRows(
        table="snapshot",
        rows=(
            {
                "snapshot_id": snapshot.id,
                "snapshot_time": snapshot.time,
                "schema_version": snapshot.schema_version,
                "next_catalog_id": snapshot.next_catalog_id,
                "next_file_id": snapshot.next_file_id,
            },
        ),
    )


def _changes_row(snapshot: Snapshot) -> InsertRows:
    return InsertRows(
        table="snapshot_changes",
        rows=(
            {
                "snapshot_id": snapshot.id,
                "changes_made": snapshot.changes,
                "author": snapshot.author,
                "commit_message": snapshot.message,
                "commit_extra_info": snapshot.extra_info,
            },
        ),
    )


class TableTotals:
    """One table's statistics while a commit adds files and rows to it.

    Args:
        table_id: The real id.
        before: Its statistics at the head, None when it never had rows.
        columns: Its column statistics at the head.
        first_row_id: Where the row ids of a new table begin.
    """

    def __init__(
        self, table_id: int, before: TableStatistics | None, columns: Iterable[TableColumnStatistics], first_row_id: int = 0
    ) -> None:
        self._table_id = table_id
        self._before = before
        self._columns = {column.column_id: column for column in columns}
        self._record_count = before.record_count if before else 0
        self._next_row_id = before.next_row_id if before else first_row_id
        self._file_size_bytes = before.file_size_bytes if before else 0
        self._batches: list[dict[int, ColumnStatistics]] = []
        self._moved = False
        self._with_null: dict[int, TableColumnStatistics] = {}
        self._schema: Schema | None = None
        self._leaves: dict[int, Field] = {}
        self._lacking: set[int] = set()

    def add(self, file: WrittenFile, schema: Schema) -> int | None:
        """Add a new file to the totals.

        Returns:
            Its first row id, None for a file that embeds its row ids. The counter advances for such a file too, as in DuckDB, but the
            file gets no ``row_id_start``: DuckDB 1.5.5 drops embedded row ids when it merges files whose ``row_id_start`` are adjacent.
        """
        row_id_start = self._next_row_id
        self._next_row_id += file.record_count
        self._record_count += file.record_count
        self._file_size_bytes += file.file_size_bytes
        self._count_in(file.statistics, schema)
        return None if file.row_ids_embedded else row_id_start

    def add_moved(self, file: WrittenFile) -> None:
        """Add a file whose rows are part of the totals already: only its bytes are new.

        NULLs may be new too. Below a NULL list or struct, Parquet counts NULLs of the leaves; inlined rows have none there.
        """
        self._file_size_bytes += file.file_size_bytes
        self._moved = True
        for column in file.statistics:
            known = self._columns.get(column.column_id)
            if column.null_count and known is not None and known.contains_null is False:
                self._columns[column.column_id] = self._with_null[column.column_id] = replace(known, contains_null=True)

    def add_inlined(self, rows: InlinedRows, schema: Schema, row_ids: tuple[int, ...] | None = None) -> Sequence[int]:
        """Add inlined rows to the totals.

        Args:
            rows: The rows.
            schema: Columns of the rows.
            row_ids: Existing row ids of updated rows; None for new rows.

        Returns:
            Their row ids: the given ones, or the next free ones.
        """
        first = self._next_row_id
        self._record_count += rows.record_count
        self._count_in(rows.statistics, schema)
        if row_ids is not None:
            return row_ids
        self._next_row_id += rows.record_count
        return range(first, self._next_row_id)

    def _count_in(self, statistics: Iterable[ColumnStatistics], schema: Schema) -> None:
        if schema is not self._schema:
            leaves = {leaf.id: leaf for leaf in schema.leaves()}
            if self._schema is not None:
                # Columns may change between two files of a transaction. A file without a column shows its default there, which no file
                # statistics contain: such columns get no new row.
                self._lacking |= self._leaves.keys() ^ leaves.keys()
            self._schema = schema
            self._leaves |= leaves
        self._batches.append({column.column_id: column for column in statistics})

    def changes(self) -> Iterator[CatalogChange]:
        """Return the changes of the statistics rows."""
        totals = {"record_count": self._record_count, "next_row_id": self._next_row_id, "file_size_bytes": self._file_size_bytes}
        if self._before is None:
            yield InsertRows(table="table_stats", rows=({"table_id": self._table_id, **totals},))
        elif self._batches or self._moved:
            yield UpdateRows(table="table_stats", where={"table_id": self._table_id}, values=totals)
        if self._with_null:
            rows = tuple(map(_row, self._with_null.values()))
            yield UpdateEach(table="table_column_stats", key=("table_id", "column_id"), rows=rows)
        yield from self._column_changes()

    def _column_changes(self) -> Iterator[CatalogChange]:
        inserted: list[dict[str, object]] = []
        updated: list[dict[str, object]] = []
        removed: list[int] = []
        for leaf in self._leaves.values():
            batch = [batch[leaf.id] for batch in self._batches if leaf.id in batch]
            old = self._columns.get(leaf.id)
            if old is None and (self._before is not None or leaf.id in self._lacking):
                # A missing row means unknown and stays missing, as in DuckDB: bounds of this batch alone would hide older rows.
                continue
            merged = merge_column(old, batch, leaf.type, self._table_id, leaf.id)
            if merged is None:
                removed.append(leaf.id)
            elif old is None:
                inserted.append(_row(merged))
            elif merged != old:
                updated.append(_row(merged))
        if removed and self._before is not None:
            yield DeleteRows(table="table_column_stats", where={"table_id": self._table_id, "column_id": tuple(removed)})
        if inserted:
            yield InsertRows(table="table_column_stats", rows=tuple(inserted))
        if updated:
            yield UpdateEach(table="table_column_stats", key=("table_id", "column_id"), rows=tuple(updated))


def _row(column: TableColumnStatistics) -> dict[str, object]:
    return {
        "table_id": column.table_id,
        "column_id": column.column_id,
        "contains_null": column.contains_null,
        "contains_nan": column.contains_nan,
        "min_value": column.min_value,
        "max_value": column.max_value,
        "extra_stats": column.extra_stats,
        "min_is_exact": column.min_is_exact,
        "max_is_exact": column.max_is_exact,
    }


class _Bound(NamedTuple):
    """A bound, and whether it is a value of the column: None when that is unknown, or there is no bound."""

    text: str | None
    is_exact: bool | None


_NO_BOUND = _Bound(None, None)


def merge_column(
    old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics], data_type: DataType, table_id: int, column_id: int
) -> TableColumnStatistics | None:
    """Return the statistics row of a column after a batch of files, None when the row must be deleted.

    DuckDB reads the row as follows::

        bounds present   all values lie between them
        bounds NULL      only NULLs so far: the next insert of DuckDB starts the bounds from its own rows
        row missing      unknown, for good: DuckDB never creates the row again

    So a row whose true bounds are unknown must be deleted; with NULL bounds, filters would lose the older rows after DuckDB's next
    insert. The boxes of geometries follow the same rules. Only for variants, whose fields are in ``extra_stats``, does NULL mean unknown.

    Args:
        old: The row at the head, None when there is none.
        batch: Statistics of the column in each new file or batch of inlined rows.
        data_type: Type of the column.
        table_id: Id of the table, for the returned row.
        column_id: Id of the column, for the returned row.
    """
    has_values = any(column.value_count != 0 for column in batch)
    contains_null = (old is not None and old.contains_null is not False) or any(column.null_count != 0 for column in batch)
    contains_nan = _merge_nan(old, batch)
    low = _Bound(old.min_value, old.min_is_exact) if old is not None else _NO_BOUND
    high = _Bound(old.max_value, old.max_is_exact) if old is not None else _NO_BOUND
    extra_stats = old.extra_stats if old is not None else None
    if data_type == GEOMETRY:
        extra_stats = _boxes(old, batch)
        if extra_stats is None:
            return None
    elif data_type == VARIANT:
        extra_stats = _fields(old, batch)
        if has_values:
            # DuckDB stores the smallest and largest string of inlined variants there. Strings do not order variants, so they are useless.
            low = high = _NO_BOUND
    elif has_values:
        bounds = _bounds(old, batch, data_type)
        if bounds is None and not (data_type in _NO_BOUNDS_TYPES or contains_nan):
            return None
        low, high = bounds or (_NO_BOUND, _NO_BOUND)
    return TableColumnStatistics(
        table_id=table_id,
        column_id=column_id,
        contains_null=contains_null,
        contains_nan=contains_nan,
        min_value=low.text,
        max_value=high.text,
        extra_stats=extra_stats,
        min_is_exact=low.is_exact,
        max_is_exact=high.is_exact,
    )


def _boxes(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> str | None:
    """Return box and types of the geometries of old and new rows; None when those of any rows are unknown."""
    stored = [column.extra_stats for column in batch if column.value_count != 0]
    if old is not None:
        stored.append(old.extra_stats)
    found = [read_geometry_statistics(text) for text in stored]
    known = [box for box in found if box is not None]
    if len(known) < len(found):
        return None
    merged = merged_geometry_statistics([GeometryStatistics(), *known])
    return old.extra_stats if old is not None and read_geometry_statistics(old.extra_stats) == merged else merged.to_json()


def _fields(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> str | None:
    """Return the merged statistics of the fields of variants of old and new rows; None when nothing is known."""
    stored = [column.extra_stats for column in batch]
    if old is not None:
        if old.extra_stats is None or not stored:
            return old.extra_stats
        stored.insert(0, old.extra_stats)
    return to_json(merged_field_statistics([read_field_statistics(text) for text in stored]))


def _merge_nan(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> bool | None:
    """Return whether old or new rows contain NaN: None when it is unknown for any of them, as in DuckDB."""
    known = [column.contains_nan for column in batch]
    if old is not None:
        known.append(old.contains_nan)
    return None if not known or None in known else any(known)


def _bounds(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics], data_type: DataType) -> tuple[_Bound, _Bound] | None:
    lows: list[_Bound] = []
    highs: list[_Bound] = []
    if old is not None:
        if old.min_value is None or old.max_value is None:
            return None
        lows.append(_Bound(old.min_value, old.min_is_exact))
        highs.append(_Bound(old.max_value, old.max_is_exact))
    for column in batch:
        if column.value_count == 0:
            continue
        least = column.min_value if column.min_value is not None else column.exact_min
        greatest = column.max_value if column.max_value is not None else column.exact_max
        if least is None or greatest is None:
            return None
        # A bound that is not shortened may still be inexact: it ends before a NUL character, which PostgreSQL cannot store.
        lows.append(_Bound(least, column.exact_min is None and column.min_is_exact is not False))
        highs.append(_Bound(greatest, column.exact_max is None and column.max_is_exact is not False))
    try:
        low = min(lows, key=lambda bound: _order(bound.text, data_type))
        high = max(highs, key=lambda bound: _order(bound.text, data_type))
    except (SchemaError, UnsupportedFeatureError):
        return None
    return _shortened(low, high, data_type)


def _shortened(low: _Bound, high: _Bound, data_type: DataType) -> tuple[_Bound, _Bound] | None:
    """Cut long bounds, also those that DuckDB or an earlier version stored in full length. Return None if no short string is greater."""
    assert low.text is not None
    assert high.text is not None
    least, greatest = shortened_minimum(low.text, data_type), shortened_maximum(high.text, data_type)
    if greatest is None:
        return None
    return (
        low if least == low.text else _Bound(least, False),
        high if greatest == high.text else _Bound(greatest, False),
    )


def _order(text: str | None, data_type: DataType) -> Any:
    """Return the key that bounds are compared by: values for numbers, times and booleans, otherwise the stored string itself."""
    if isinstance(data_type, PrimitiveType) and data_type.name in COMPARED_AS_TEXT:
        return text
    return order_key(from_text(text or "", data_type))
