"""A snapshot in the making: counters, catalog rows and the change log, while actions are resolved one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ducklake_core.catalog.changes import CatalogChange, CreateInlinedTable, DeleteRows, InsertRows, UpdateRows
from ducklake_core.catalog.database.tables import inlined_data_name
from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit.request import CommitRequest
from ducklake_core.commit.table_totals import TableTotals
from ducklake_core.format.changes import Changes, QualifiedName, encode_changes
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.schema import Schema

Row = Mapping[str, object]

# DuckDB's order of inserts within one commit.
_INSERT_ORDER = (
    "schema", "table", "column", "partition_info", "partition_column", "view", "tag", "column_tag", "view_column_tag",
    "inlined_data_tables", "sort_info", "sort_expression", "macro", "macro_impl", "macro_parameters",
    "column_mapping", "name_mapping", "data_file", "file_column_stats", "file_partition_value", "file_variant_stats",
    "files_scheduled_for_deletion", "delete_file", "schema_versions", "metadata",
)  # fmt: skip
_FORGOTTEN_WITH_FILE = ("data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file")


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
