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
# DuckDB's order of inserts within one commit.
_INSERT_ORDER = (
    "schema", "table", "column", "partition_info", "partition_column", "view", "tag", "column_tag", "view_column_tag",
    "inlined_data_tables", "sort_info", "sort_expression", "macro", "macro_impl", "macro_parameters",
    "column_mapping", "name_mapping", "data_file", "file_column_stats", "file_partition_value", "file_variant_stats",
    "files_scheduled_for_deletion", "delete_file", "schema_versions", "metadata",
)  # fmt: skip
_FORGOTTEN_WITH_FILE = ("data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file")

_NO_BOUNDS_TYPES = (INT128, UINT128)


@dataclass(slots=True)
class SnapshotBuilder:
    """Builds the rows that one attempt writes on top of a head.

    Attributes:
        ids: Real ids of the schemas and tables that the transaction creates, by their negative local ids.
        new_specs: Partition ids of the specs that it creates, by table id.
        first_row_ids: Row ids at which new tables begin.
        inlined_suffix: What the names of its tables of inlined rows end in.
        schema_changed: Whether a catalog object changes, which moves the schema version.
        data_changed: Whether rows or files change, which moves the next file id.
        endings: Changes to rows that exist, made before the inserts; ``creations`` are made after them, then ``inlined_inserts``,
            with positions that are deleted through the catalog.
        inlined_tables: Names of the tables of inlined rows that it makes, by table id.
        inserts: Rows to insert, by metadata table.
        entries: Values of ``changes_made`` by kind.
        forgotten_files: Ids of data files that leave the catalog with everything that is about them, as if they had never been there.
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
        """Id of the snapshot that is being made."""
        return self.head.snapshot.id + 1

    @property
    def schema_version(self) -> int:
        """Its schema version, if anything changes that."""
        # Known before all actions are resolved: whoever asks is itself a schema change.
        return self.head.snapshot.schema_version + 1

    def finish(self) -> tuple[Snapshot, tuple[CatalogChange, ...]]:
        """The snapshot, and the catalog changes that make it, in the order to apply them."""
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
        # All at once: a catalog without indexes searches whole tables for them.
        gone = {"data_file_id": tuple(self.forgotten_files)}
        changes = (
            _snapshot_row(snapshot),
            *(DeleteRows(table=name, where=gone) for name in _FORGOTTEN_WITH_FILE if self.forgotten_files),
            *self.endings,
            *inserts,
            *self.creations,
            *self.inlined_inserts,
            *totals,
            _changes_row(snapshot),
        )
        return snapshot, changes

    def totals_of(self, table_id: int) -> TableTotals:
        """Statistics of a table (real id), carried forward."""
        if table_id not in self.totals:
            before, columns = self.head.statistics.get(table_id), self.head.column_statistics.get(table_id, ())
            self.totals[table_id] = TableTotals(table_id, before, columns, self.first_row_ids.get(table_id, 0))
        return self.totals[table_id]

    def real_id(self, object_id: int) -> int:
        """The id in the catalog of a schema or table that may be one of this transaction."""
        return self.ids[object_id] if object_id < 0 else object_id

    def catalog_id(self) -> int:
        """The next id for a schema, table, view, macro, partition spec or sort order."""
        self.next_catalog_id += 1
        return self.next_catalog_id - 1

    def file_id(self, local: tuple[int, int] | None = None) -> int:
        """The next id for a data file, delete file or name mapping; ``local`` is what the transaction calls a data file by."""
        self.data_changed = True
        if local is not None:
            self.local_files[local] = self.next_file_id
        self.next_file_id += 1
        return self.next_file_id - 1

    def new_schema_version(self, table_id: int) -> None:
        """Note that a table is of the snapshot's schema version from now on."""
        row = {"begin_snapshot": self.snapshot_id, "schema_version": self.schema_version, "table_id": table_id}
        if row not in self.inserts["schema_versions"]:
            self.insert("schema_versions", **row)

    def new_inlined_table(self, table_id: int, schema: Schema) -> str:
        """A fresh table for inlined rows of these columns: its name. One in a transaction and table, with the columns given last."""
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
        """Add a row to a metadata table; all of its rows have the same keys."""
        self.inserts[table].append(row)

    def insert_all(self, table: str, rows: list[dict[str, object]]) -> None:
        """Add rows to a metadata table."""
        self.inserts[table].extend(rows)

    def end(self, table: str, where: Mapping[str, object]) -> None:
        """End the live rows that match."""
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
        """Count one more file in.

        Returns:
            Its first row id, None for a file that embeds its row ids. DuckDB gives such a file fresh ids; they are left out here as well,
            but not entered: DuckDB 1.5.5 drops embedded row ids when it merges files whose ``row_id_start`` follow each other.
        """
        row_id_start = self._next_row_id
        self._next_row_id += file.record_count
        self._record_count += file.record_count
        self._file_size_bytes += file.file_size_bytes
        self._count_in(file.statistics, schema)
        return None if file.row_ids_embedded else row_id_start

    def add_moved(self, file: WrittenFile) -> None:
        """Count the bytes of a file in whose rows are counted already.

        Its NULLs may not be: below lists and structs a file has them where there is no list or struct, which inlined rows have not.
        """
        self._file_size_bytes += file.file_size_bytes
        self._moved = True
        for column in file.statistics:
            known = self._columns.get(column.column_id)
            if column.null_count and known is not None and known.contains_null is False:
                self._columns[column.column_id] = self._with_null[column.column_id] = replace(known, contains_null=True)

    def add_inlined(self, rows: InlinedRows, schema: Schema, row_ids: tuple[int, ...] | None = None) -> Sequence[int]:
        """Count rows in the catalog in.

        Returns:
            Their row ids: those given, which are no new ones, or the next.
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
                # Columns may change between two files of a transaction; what rows have in columns that their file lacks is not counted.
                self._lacking |= self._leaves.keys() ^ leaves.keys()
            self._schema = schema
            self._leaves |= leaves
        self._batches.append({column.column_id: column for column in statistics})

    def changes(self) -> Iterator[CatalogChange]:
        """The statistics rows to write."""
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
                # DuckDB never makes up a missing row, and neither do we: bounds over this batch alone would lose older rows.
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
    """The statistics row of a column after a batch of files, None when it must go.

    A row without bounds says "only NULLs so far" to DuckDB, whose next insert then starts bounds anew from its own
    rows and loses the older ones in filters.  So a row whose true bounds are unknown is removed: a missing row is never
    made again and counts as unknown.  The boxes of geometries are bounds too; only for variants, whose fields are in ``extra_stats``,
    does NULL mean unknown to DuckDB, which never fills it again.
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
            # DuckDB keeps the least and greatest text of inlined variants there, which nobody can compare with.
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
    """Box and types of the geometries of old rows and new ones; None when those of some are unknown."""
    texts = [column.extra_stats for column in batch if column.value_count != 0]
    if old is not None:
        texts.append(old.extra_stats)
    found = [read_geometry_statistics(text) for text in texts]
    known = [box for box in found if box is not None]
    if len(known) < len(found):
        return None
    merged = merged_geometry_statistics([GeometryStatistics(), *known])
    return old.extra_stats if old is not None and read_geometry_statistics(old.extra_stats) == merged else merged.to_json()


def _fields(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> str | None:
    """What is known of the fields of variants of old rows and new ones; None when that is nothing."""
    texts = [column.extra_stats for column in batch]
    if old is not None:
        if old.extra_stats is None or not texts:
            return old.extra_stats
        texts.insert(0, old.extra_stats)
    return to_json(merged_field_statistics([read_field_statistics(text) for text in texts]))


def _merge_nan(old: TableColumnStatistics | None, batch: Sequence[ColumnStatistics]) -> bool | None:
    """NaN in the old rows or the new: None when either side does not know, as in DuckDB."""
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
        # A bound in full length may still be cut: before a NUL.
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
    """Get the key that bounds are compared by: values for numbers, times and booleans, else the text itself, byte by byte."""
    if isinstance(data_type, PrimitiveType) and data_type.name in COMPARED_AS_TEXT:
        return text
    return order_key(from_text(text or "", data_type))
