"""From staged actions and the head to catalog rows: the pure half of a commit, run whole in every attempt.

Every id, row id and statistic comes from the head of this very attempt, so nothing of an earlier attempt survives.
(specification: Snapshots, Queries; counters and change texts as the reference writes them.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from ducklake_core.catalog.changes import CatalogChange, CreateInlinedTable, DeleteRows, EndInlinedRows, InsertRows, UpdateRows
from ducklake_core.catalog.head import Head
from ducklake_core.catalog.state import Snapshot
from ducklake_core.commit.actions import (
    AddDeleteFiles,
    AlterColumns,
    AppendFiles,
    CreateSchema,
    CreateTable,
    DropSchema,
    DropTable,
    EndFiles,
    EndInlined,
    MergeFiles,
    StagedDeleteFile,
)
from ducklake_core.commit.file_rows import data_file_row, delete_file_row, partition_value_rows, scheduled_row, statistics_rows
from ducklake_core.commit.table_totals import TableTotals
from ducklake_core.commit.transaction import StagedTransaction
from ducklake_core.errors import UsageError
from ducklake_core.format.changes import Changes, QualifiedName, encode_changes
from ducklake_core.format.partitioning import PartitionSpec
from ducklake_core.format.schema import Schema
from ducklake_core.format.type_names import ColumnRow, column_row, flatten

Row = Mapping[str, object]

# The reference's order of inserts within one commit.
_INSERT_ORDER = (
    "schema", "table", "column", "partition_info", "partition_column", "tag", "inlined_data_tables", "data_file", "file_column_stats",
    "file_partition_value", "files_scheduled_for_deletion", "delete_file", "schema_versions",
)  # fmt: skip
_ENDED_WITH_TABLE = ("table", "partition_info", "column", "column_tag", "data_file", "delete_file", "sort_info")
_FORGOTTEN_WITH_FILE = ("data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What one attempt writes.

    Attributes:
        snapshot: The snapshot that it makes.
        changes: Catalog changes in the order to apply them.
        ids: Real ids of the schemas and tables that the transaction creates, by their negative local ids.
    """

    snapshot: Snapshot
    changes: tuple[CatalogChange, ...]
    ids: Mapping[int, int]


def resolve(transaction: StagedTransaction, head: Head) -> Resolution:
    """The snapshot and the catalog rows that the transaction becomes on top of the head.

    Raises:
        UsageError: Compaction together with other changes, which no DuckLake snapshot can say.
    """
    merges = [isinstance(action, MergeFiles) for action in transaction.actions]
    if any(merges) and not all(merges):
        raise UsageError("a transaction either compacts files or makes other changes, never both")
    resolver = _Resolver(transaction, head)
    for action in transaction.actions:
        match action:
            case CreateSchema():
                resolver.create_schema(action)
            case DropSchema():
                resolver.drop_schema(action)
            case CreateTable():
                resolver.create_table(action)
            case DropTable():
                resolver.drop_table(action)
            case AlterColumns():
                resolver.alter_columns(action)
            case AppendFiles():
                resolver.append_files(action)
            case EndFiles():
                resolver.end_files(action)
            case AddDeleteFiles():
                resolver.add_delete_files(action)
            case EndInlined():
                resolver.end_inlined(action)
            case MergeFiles():
                resolver.merge_files(action)
            case _:
                assert_never(action)
    return resolver.finish()


@dataclass(slots=True)
class _Resolver:
    """Counters and rows while actions are resolved one after another."""

    transaction: StagedTransaction
    head: Head
    next_catalog_id: int = field(init=False)
    next_file_id: int = field(init=False)
    schema_changed: bool = False
    data_changed: bool = False
    ids: dict[int, int] = field(default_factory=dict)
    new_specs: dict[int, int] = field(default_factory=dict)
    totals: dict[int, TableTotals] = field(default_factory=dict)
    inserts: dict[str, list[Row]] = field(default_factory=dict)
    endings: list[CatalogChange] = field(default_factory=list)
    creations: list[CatalogChange] = field(default_factory=list)
    log: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.next_catalog_id = self.head.snapshot.next_catalog_id
        self.next_file_id = self.head.snapshot.next_file_id

    @property
    def snapshot_id(self) -> int:
        return self.head.snapshot.id + 1

    @property
    def schema_version(self) -> int:
        # Known before all actions are resolved: whoever asks is itself a schema change.
        return self.head.snapshot.schema_version + 1

    def create_schema(self, action: CreateSchema) -> None:
        self.ids[action.schema_id] = self._catalog_id()
        self._insert(
            "schema",
            schema_id=self.ids[action.schema_id],
            schema_uuid=action.uuid,
            begin_snapshot=self.snapshot_id,
            end_snapshot=None,
            schema_name=action.name,
            path=action.path,
            path_is_relative=True,
        )
        self._log("created_schema", action.name)
        self.schema_changed = True

    def drop_schema(self, action: DropSchema) -> None:
        self._end("schema", {"schema_id": action.schema_id})
        self._log("dropped_schema", action.schema_id)
        self.schema_changed = True

    def create_table(self, action: CreateTable) -> None:
        table_id = self.ids[action.table_id] = self._catalog_id()
        self._insert(
            "table",
            table_id=table_id,
            table_uuid=action.uuid,
            begin_snapshot=self.snapshot_id,
            end_snapshot=None,
            schema_id=self._real(action.schema_id),
            table_name=action.name,
            path=action.path,
            path_is_relative=True,
        )
        for row in flatten(action.schema):
            self._insert_column(table_id, row)
        if action.partition_spec is not None:
            self.new_specs[table_id] = self._insert_partition_spec(table_id, action.partition_spec)
        if action.comment is not None:
            self._insert("tag", object_id=table_id, begin_snapshot=self.snapshot_id, end_snapshot=None, key="comment", value=action.comment)
        self._new_columns(table_id, action.schema, inlined=action.inlined)
        self._log("created_table", QualifiedName(schema=action.schema_name, name=action.name))

    def drop_table(self, action: DropTable) -> None:
        for table in _ENDED_WITH_TABLE:
            self._end(table, {"table_id": action.table_id})
        self._end("tag", {"object_id": action.table_id})
        self._log("dropped_table", action.table_id)
        self.schema_changed = True

    def alter_columns(self, action: AlterColumns) -> None:
        table_id = self._real(action.table_id)
        if action.ended:
            self._end("column", {"table_id": table_id, "column_id": action.ended})
        for node, parent in action.added:
            self._insert_column(table_id, column_row(node, parent))
        self._new_columns(table_id, action.schema, inlined=action.inlined)
        self._log("altered_table", table_id)

    def append_files(self, action: AppendFiles) -> None:
        if not action.files:
            return
        table_id = self._real(action.table_id)
        totals = self._totals(table_id)
        spec = action.partition_spec
        partition_id = None if spec is None else spec.id or self.new_specs[table_id]
        for file in action.files:
            file_id = self._file_id()
            row_id_start = totals.add(file, action.schema)
            row = data_file_row(file, file_id, table_id, self.snapshot_id, row_id_start=row_id_start, partition_id=partition_id)
            self._insert("data_file", **row)
            self._insert_all("file_column_stats", statistics_rows(file, file_id, table_id))
            self._insert_all("file_partition_value", partition_value_rows(file, file_id, table_id))
        self._log("inserted_into_table", table_id)

    def end_files(self, action: EndFiles) -> None:
        if not action.data_file_ids:
            return
        self._end("data_file", {"data_file_id": action.data_file_ids})
        self._log("deleted_from_table", action.table_id)
        self.data_changed = True

    def add_delete_files(self, action: AddDeleteFiles) -> None:
        if not action.files:
            return
        replaced = [file for file in action.files if file.replaces is not None]
        if replaced:
            self.endings.append(DeleteRows(table="delete_file", where={"delete_file_id": tuple(f.replaces for f in replaced)}))
        for file in replaced:
            self._schedule(file)
        for file in action.files:
            self._insert("delete_file", **delete_file_row(file, self._file_id(), action.table_id, self.snapshot_id))
        self._log("deleted_from_table", action.table_id)

    def end_inlined(self, action: EndInlined) -> None:
        for table_name, row_ids in action.rows:
            self.endings.append(EndInlinedRows(table_name=table_name, row_ids=row_ids, end_snapshot=self.snapshot_id))
        if action.rows:
            self._log("inlined_delete", action.table_id)
            self.data_changed = True

    def merge_files(self, action: MergeFiles) -> None:
        for merge in action.merges:
            sources = tuple(file_id for file_id, _, _ in merge.sources)
            self.endings.extend(DeleteRows(table=table, where={"data_file_id": sources}) for table in _FORGOTTEN_WITH_FILE)
            for source_id, path, is_relative in merge.sources:
                self._insert("files_scheduled_for_deletion", **scheduled_row(source_id, path, is_relative, self.head.now))
            file_id = self._file_id()
            row = data_file_row(
                merge.output,
                file_id,
                action.table_id,
                merge.begin_snapshot,
                row_id_start=merge.row_id_start,
                partition_id=merge.partition_id,
                partial_max=merge.partial_max,
            )
            self._insert("data_file", **row)
            self._insert_all("file_column_stats", statistics_rows(merge.output, file_id, action.table_id))
            self._insert_all("file_partition_value", partition_value_rows(merge.output, file_id, action.table_id))
        if action.merges:
            self._log("merge_adjacent", action.table_id)

    def finish(self) -> Resolution:
        head = self.head.snapshot
        if self.data_changed and self.next_file_id == head.next_file_id:
            # Sessions of the reference cache a table's statistics by next_file_id: a data change must move it.
            self.next_file_id += 1
        text = encode_changes(Changes(**{kind: tuple(values) for kind, values in self.log.items()}))
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
        inserts = [InsertRows(table=name, rows=tuple(self.inserts[name])) for name in _INSERT_ORDER if name in self.inserts]
        changes = (_snapshot_row(snapshot), *self.endings, *inserts, *self.creations, *totals, _changes_row(snapshot))
        return Resolution(snapshot=snapshot, changes=changes, ids=self.ids)

    def _totals(self, table_id: int) -> TableTotals:
        if table_id not in self.totals:
            self.totals[table_id] = TableTotals(table_id, self.head.statistics.get(table_id), self.head.column_statistics.get(table_id, ()))
        return self.totals[table_id]

    def _real(self, object_id: int) -> int:
        return self.ids[object_id] if object_id < 0 else object_id

    def _catalog_id(self) -> int:
        self.next_catalog_id += 1
        return self.next_catalog_id - 1

    def _file_id(self) -> int:
        self.data_changed = True
        self.next_file_id += 1
        return self.next_file_id - 1

    def _log(self, kind: str, value: int | str | QualifiedName) -> None:
        self.log.setdefault(kind, []).append(value)

    def _insert(self, table: str, **row: object) -> None:
        self.inserts.setdefault(table, []).append(row)

    def _insert_all(self, table: str, rows: list[dict[str, object]]) -> None:
        if rows:
            self.inserts.setdefault(table, []).extend(rows)

    def _end(self, table: str, where: Mapping[str, object]) -> None:
        self.endings.append(UpdateRows(table=table, where={**where, "end_snapshot": None}, values={"end_snapshot": self.snapshot_id}))

    def _schedule(self, file: StagedDeleteFile) -> None:
        assert file.replaces is not None
        assert file.replaces_path is not None
        row = scheduled_row(file.replaces, file.replaces_path, file.replaces_path_is_relative, self.head.now)
        self._insert("files_scheduled_for_deletion", **row)

    def _insert_column(self, table_id: int, row: ColumnRow) -> None:
        self._insert(
            "column",
            column_id=row.column_id,
            begin_snapshot=self.snapshot_id,
            end_snapshot=None,
            table_id=table_id,
            column_order=row.column_order,
            column_name=row.column_name,
            column_type=row.column_type,
            initial_default=row.initial_default,
            default_value=row.default_value,
            nulls_allowed=row.nulls_allowed,
            parent_column=row.parent_column,
            default_value_type=row.default_value_type,
            default_value_dialect=row.default_value_dialect,
        )

    def _insert_partition_spec(self, table_id: int, spec: PartitionSpec) -> int:
        partition_id = self._catalog_id()
        self._insert("partition_info", partition_id=partition_id, table_id=table_id, begin_snapshot=self.snapshot_id, end_snapshot=None)
        for index, key in enumerate(spec.fields):
            self._insert(
                "partition_column",
                partition_id=partition_id,
                table_id=table_id,
                partition_key_index=index,
                column_id=key.column_id,
                transform=key.text,
            )
        return partition_id

    def _new_columns(self, table_id: int, schema: Schema, *, inlined: bool) -> None:
        """What every new set of columns brings along: its schema version and a fresh table of inlined rows."""
        self.schema_changed = True
        self._insert("schema_versions", begin_snapshot=self.snapshot_id, schema_version=self.schema_version, table_id=table_id)
        if inlined:
            name = f"ducklake_inlined_data_{table_id}_{self.schema_version}"
            self.creations.append(CreateInlinedTable(table_name=name, columns=schema.columns))
            self._insert("inlined_data_tables", table_id=table_id, table_name=name, schema_version=self.schema_version)


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
