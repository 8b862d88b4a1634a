"""Resolve staged actions against the head snapshot into catalog rows: the pure half of a commit, run in every attempt.

Nothing here reads or writes the catalog, so an attempt that lost against another writer resolves the same actions again on the new head::

    action (local ids below 0)  --SnapshotBuilder(head)-->  rows (real ids, row ids, snapshot id head + 1)

Each function translates one kind of action. The entries of ``changes_made`` that it logs decide which concurrent transactions of DuckDB
fail. Some entries describe more than what happened: they stop DuckDB from committing on top of a change that its own rules overlook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from ducklake_core.catalog.changes import (
    CatalogChange,
    CopyRows,
    DeleteOption,
    DeleteRows,
    EndInlinedRows,
    InlinePositions,
    InsertInlinedRows,
    RemoveInlinedDeletes,
    RemoveInlinedRows,
    UnregisterInlinedTable,
    UpdateRows,
)
from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit.actions import (
    AddDeleteFiles,
    AddFiles,
    AlterTable,
    AlterView,
    AppendFiles,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    CumulativeDeletes,
    Definition,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    EndFiles,
    EndInlined,
    FlushInlined,
    GatheredDeletes,
    InlineDeletes,
    InsertInlined,
    MergeFiles,
    RewriteFiles,
    SetOption,
    StagedDeleteFile,
    TagSchema,
)
from ducklake_core.commit.request import CommitRequest
from ducklake_core.commit.snapshot_builder import SnapshotBuilder
from ducklake_core.errors import UsageError
from ducklake_core.format.changes import QualifiedName
from ducklake_core.format.files.data_files import EncryptionKey, WrittenFile
from ducklake_core.format.files.name_mapping import MappedColumn, mapping_rows
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.files.statistics import path_text, read_field_statistics
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.macros import aliases_text
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import split_path
from ducklake_core.format.types.schema import ColumnRow, Schema, column_row, flatten

_ENDED_WITH_TABLE = ("table", "partition_info", "column", "column_tag", "data_file", "delete_file", "sort_info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The catalog rows that one attempt writes.

    Attributes:
        snapshot: The snapshot that it makes.
        changes: Catalog changes in the order to apply them.
        ids: Real ids of the schemas and tables that the transaction creates, by their negative local ids.
    """

    snapshot: Snapshot
    changes: tuple[CatalogChange, ...]
    ids: Mapping[int, int]


OTHER_CHANGES = "A transaction that merges or rewrites files cannot contain other changes, except of options. Use separate transactions"


def resolve(transaction: CommitRequest, head: Head, suffix: str = "") -> Resolution:
    """Return the snapshot and the catalog rows of the transaction on top of the head.

    Args:
        transaction: The transaction to commit.
        head: The newest snapshot, as this attempt has read it.
        suffix: Suffix of the names of new tables of inlined rows; default none.

    Raises:
        UsageError: Merged or rewritten files together with other changes, which DuckDB does not commit either.
    """
    compacts = {isinstance(action, MergeFiles | RewriteFiles) for action in transaction.actions if not isinstance(action, SetOption)}
    if len(compacts) > 1:
        raise UsageError(OTHER_CHANGES)
    builder = SnapshotBuilder(transaction, head, suffix)
    for action in transaction.actions:
        match action:
            case CreateSchema() | DropSchema() | TagSchema() | CreateTable() | AlterTable() | DropTable():
                _define(builder, action)
            case CreateView() | AlterView() | DropView() | CreateMacro() | DropMacro():
                _define(builder, action)
            case AppendFiles():
                append_files(builder, action)
            case AddFiles():
                add_files(builder, action)
            case InsertInlined():
                insert_inlined(builder, action)
            case EndFiles():
                end_files(builder, action)
            case AddDeleteFiles():
                add_delete_files(builder, action)
            case InlineDeletes():
                inline_deletes(builder, action)
            case EndInlined():
                end_inlined(builder, action)
            case MergeFiles() | FlushInlined() | RewriteFiles():
                _move(builder, action)
            case SetOption():
                set_option(builder, action)
            case _:
                assert_never(action)
    snapshot, changes = builder.finish()
    return Resolution(snapshot=snapshot, changes=changes, ids=builder.ids)


def _move(builder: SnapshotBuilder, action: MergeFiles | FlushInlined | RewriteFiles) -> None:
    match action:
        case MergeFiles():
            merge_files(builder, action)
        case FlushInlined():
            flush_inlined(builder, action)
        case RewriteFiles():
            rewrite_files(builder, action)
        case _:
            assert_never(action)


def _define(builder: SnapshotBuilder, action: Definition) -> None:
    match action:
        case CreateSchema():
            create_schema(builder, action)
        case DropSchema():
            drop_schema(builder, action)
        case TagSchema():
            tag_schema(builder, action)
        case CreateTable():
            create_table(builder, action)
        case DropTable():
            drop_table(builder, action)
        case AlterTable():
            alter_table(builder, action)
        case CreateView():
            create_view(builder, action)
        case AlterView():
            alter_view(builder, action)
        case DropView():
            drop_view(builder, action)
        case CreateMacro():
            create_macro(builder, action)
        case DropMacro():
            drop_macro(builder, action)
        case _:
            assert_never(action)


def create_view(builder: SnapshotBuilder, action: CreateView) -> None:
    """Create a view."""
    view_id = builder.ids[action.view_id] = builder.catalog_id()
    builder.insert(
        "view",
        view_id=view_id,
        view_uuid=action.uuid,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=None,
        schema_id=builder.real_id(action.schema_id),
        view_name=action.name,
        dialect=action.dialect,
        sql=action.sql,
        column_aliases=aliases_text(action.column_aliases),
    )
    if action.comment is not None:
        insert_tag(builder, view_id, None, "comment", action.comment)
    for key, value in action.tags:
        insert_tag(builder, view_id, None, key, value)
    for column, text in action.column_comments:
        _insert_column_tag(builder, view_id, column, "comment", text)
    builder.log("created_view", QualifiedName(schema=action.schema_name, name=action.name))
    if action.altered:
        builder.log("altered_view", view_id)
    builder.schema_changed = True


def alter_view(builder: SnapshotBuilder, action: AlterView) -> None:
    """Rename a view, or change its tags."""
    if action.new_name is not None:
        rename_row(builder, "view", {"view_id": action.view_id}, {"view_name": action.new_name})
        builder.log("created_view", QualifiedName(schema=action.schema_name, name=action.new_name))
    for column, key, text in action.tags:
        if column is None:
            end_tag(builder, action.view_id, None, key)
            insert_tag(builder, action.view_id, None, key, text)
            continue
        builder.end("view_column_tag", {"view_id": action.view_id, "column_name": column, "key": key})
        if text is not None:
            _insert_column_tag(builder, action.view_id, column, key, text)
    if action.tags:
        builder.log("altered_view", action.view_id)
    builder.schema_changed = True


def drop_view(builder: SnapshotBuilder, action: DropView) -> None:
    """Drop a view with its tags."""
    builder.end("view", {"view_id": action.view_id})
    builder.end("tag", {"object_id": action.view_id})
    builder.end("view_column_tag", {"view_id": action.view_id})
    builder.log("dropped_view", action.view_id)
    builder.schema_changed = True


def _insert_column_tag(builder: SnapshotBuilder, view_id: int, column: str, key: str, text: str) -> None:
    lifetime = {"begin_snapshot": builder.snapshot_id, "end_snapshot": None}
    builder.insert("view_column_tag", view_id=view_id, column_name=column, **lifetime, key=key, value=text)


def create_macro(builder: SnapshotBuilder, action: CreateMacro) -> None:
    """Create a macro with its definitions and their parameters."""
    macro_id = builder.ids[action.macro_id] = builder.catalog_id()
    builder.insert(
        "macro",
        schema_id=builder.real_id(action.schema_id),
        macro_id=macro_id,
        macro_name=action.name,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=None,
    )
    for number, one in enumerate(action.implementations):
        builder.insert("macro_impl", macro_id=macro_id, impl_id=number, dialect=one.dialect, sql=one.sql, type=one.kind)
        for place, parameter in enumerate(one.parameters):
            builder.insert(
                "macro_parameters",
                macro_id=macro_id,
                impl_id=number,
                column_id=place,
                parameter_name=parameter.name,
                parameter_type=parameter.type or "unknown",
                default_value="NULL" if parameter.default is None else parameter.default,
                default_value_type=parameter.default_type or "unknown",
            )
    builder.log(f"created_{action.kind}_macro", QualifiedName(schema=action.schema_name, name=action.name))
    builder.schema_changed = True


def drop_macro(builder: SnapshotBuilder, action: DropMacro) -> None:
    """Drop a macro."""
    builder.end("macro", {"macro_id": action.macro_id})
    builder.log(f"dropped_{action.kind}_macro", action.macro_id)
    builder.schema_changed = True


def create_schema(builder: SnapshotBuilder, action: CreateSchema) -> None:
    """Create a schema."""
    builder.ids[action.schema_id] = builder.catalog_id()
    builder.insert(
        "schema",
        schema_id=builder.ids[action.schema_id],
        schema_uuid=action.uuid,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=None,
        schema_name=split_path(action.name)[-1],
        path=action.path,
        path_is_relative=True,
        parent_schema_id=None if action.parent_id is None else builder.real_id(action.parent_id),
    )
    builder.log("created_schema", action.name)
    builder.schema_changed = True


def drop_schema(builder: SnapshotBuilder, action: DropSchema) -> None:
    """Drop a schema with its tags."""
    builder.end("schema", {"schema_id": action.schema_id})
    builder.end("tag", {"object_id": action.schema_id})
    builder.log("dropped_schema", action.schema_id)
    builder.schema_changed = True


def tag_schema(builder: SnapshotBuilder, action: TagSchema) -> None:
    """Change a tag of a schema. Nothing is logged: DuckDB fails to parse ``changes_made`` with an entry for it."""
    schema_id = builder.real_id(action.schema_id)
    end_tag(builder, schema_id, None, action.key)
    insert_tag(builder, schema_id, None, action.key, action.value)
    builder.schema_changed = True


def create_table(builder: SnapshotBuilder, action: CreateTable) -> None:
    """Create a table with its columns, keys, tags and options."""
    table_id = builder.ids[action.table_id] = builder.catalog_id()
    builder.insert(
        "table",
        table_id=table_id,
        table_uuid=action.uuid,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=None,
        schema_id=builder.real_id(action.schema_id),
        table_name=action.name,
        path=action.path,
        path_is_relative=True,
    )
    for row in flatten(action.schema):
        _insert_column(builder, table_id, row)
    _insert_transient(builder, table_id, action.transient_columns)
    if action.partition_spec is not None:
        builder.new_specs[table_id] = _insert_partition_spec(builder, table_id, action.partition_spec)
    _insert_sort_keys(builder, table_id, action.sort_keys)
    if action.comment is not None:
        insert_tag(builder, table_id, None, "comment", action.comment)
    for column_id, text in action.column_comments:
        insert_tag(builder, table_id, column_id, "comment", text)
    for key, value in action.tags:
        insert_tag(builder, table_id, None, key, value)
    builder.first_row_ids[table_id] = action.first_row_id
    for option, value in action.options:
        builder.insert("metadata", key=option, value=value, scope="table", scope_id=table_id)
    _new_version(builder, table_id, action.schema, inlined=action.inlined)
    builder.log("created_table", QualifiedName(schema=action.schema_name, name=action.name))
    if action.altered:
        builder.log("altered_table", table_id)


def drop_table(builder: SnapshotBuilder, action: DropTable) -> None:
    """Drop a table with everything that belongs to it."""
    for table in _ENDED_WITH_TABLE:
        builder.end(table, {"table_id": action.table_id})
    builder.end("tag", {"object_id": action.table_id})
    builder.log("dropped_table", action.table_id)
    builder.schema_changed = True


def alter_table(builder: SnapshotBuilder, action: AlterTable) -> None:
    """Change name, columns, keys and tags of a table."""
    table_id = action.table_id
    builder.schema_changed = True
    if action.new_name is not None:
        rename_row(builder, "table", {"table_id": table_id}, {"table_name": action.new_name})
        builder.log("created_table", QualifiedName(schema=action.schema_name, name=action.new_name))
    if action.ended:
        builder.end("column", {"table_id": table_id, "column_id": action.ended})
    # A changed column is in both lists: its row ends, and a new row with the same id begins.
    for node, parent in action.added:
        _insert_column(builder, table_id, column_row(node, parent))
    _insert_transient(builder, table_id, action.transient_columns)
    if action.unbounded:
        _forget_bounds(builder, table_id, action.unbounded)
    if action.partitioning is not None:
        builder.end("partition_info", {"table_id": table_id})
        builder.new_specs[table_id] = _insert_partition_spec(builder, table_id, action.partitioning.spec)
    if action.sorting is not None:
        builder.end("sort_info", {"table_id": table_id})
        _insert_sort_keys(builder, table_id, action.sorting.keys)
    for column_id, key, text in action.tags:
        end_tag(builder, table_id, column_id, key)
        insert_tag(builder, table_id, column_id, key, text)
    if action.changes_columns or action.partitioning is not None or action.new_name is not None:
        _new_version(builder, table_id, action.schema, inlined=action.inlined)
    if action.changes_table:
        builder.log("altered_table", table_id)


def _forget_bounds(builder: SnapshotBuilder, table_id: int, column_ids: tuple[int, ...]) -> None:
    """Remove the bounds of columns whose type changed.

    The catalog stores bounds as strings, which DuckDB casts to the new type: wrong bounds hide rows or make every later read fail.
    The row of a column in table_column_stats is deleted as a whole, see :func:`~ducklake_core.commit.snapshot_builder.merge_column`.
    """
    where = {"table_id": table_id, "column_id": column_ids}
    builder.endings.append(DeleteRows(table="table_column_stats", where=where))
    builder.endings.append(
        UpdateRows(table="file_column_stats", where=where, values=dict.fromkeys(("min_value", "max_value", "min_is_exact", "max_is_exact")))
    )
    # Sessions of DuckDB cache the statistics of a table by next_file_id, so it must advance although no file changes.
    builder.data_changed = True


def rename_row(builder: SnapshotBuilder, table: str, where: dict[str, object], values: dict[str, object]) -> None:
    """End the live row and insert a copy of it with other values.

    Args:
        builder: The snapshot.
        table: Metadata table.
        where: Key of the row.
        values: Values that differ in the copy.
    """
    builder.end(table, where)
    # The database copies the row that was just ended, so the commit does not have to read it.
    ended = {**where, "end_snapshot": builder.snapshot_id}
    builder.endings.append(
        CopyRows(table=table, where=ended, values={**values, "begin_snapshot": builder.snapshot_id, "end_snapshot": None})
    )


def _insert_sort_keys(builder: SnapshotBuilder, table_id: int, keys: tuple[SortKey, ...]) -> None:
    if not keys:
        return
    sort_id = builder.catalog_id()
    builder.insert("sort_info", sort_id=sort_id, table_id=table_id, begin_snapshot=builder.snapshot_id, end_snapshot=None)
    for index, key in enumerate(keys):
        builder.insert(
            "sort_expression",
            sort_id=sort_id,
            table_id=table_id,
            sort_key_index=index,
            expression=key.expression,
            dialect=key.dialect,
            sort_direction=key.direction,
            null_order=key.null_order,
        )


def end_tag(builder: SnapshotBuilder, object_id: int, column_id: int | None, key: str) -> None:
    """End a tag of a schema, table or view, or of a column of a table."""
    if column_id is None:
        builder.end("tag", {"object_id": object_id, "key": key})
    else:
        builder.end("column_tag", {"table_id": object_id, "column_id": column_id, "key": key})


def insert_tag(builder: SnapshotBuilder, object_id: int, column_id: int | None, key: str, text: str | None) -> None:
    """Insert a tag. A removed tag gets a row with NULL, as in DuckDB."""
    lifetime = {"begin_snapshot": builder.snapshot_id, "end_snapshot": None}
    if column_id is None:
        builder.insert("tag", object_id=object_id, **lifetime, key=key, value=text)
    else:
        builder.insert("column_tag", table_id=object_id, column_id=column_id, **lifetime, key=key, value=text)


def _insert_transient(builder: SnapshotBuilder, table_id: int, transient_columns: Sequence[tuple[Field, int | None]]) -> None:
    """Insert columns that existed only within the transaction: a row that begins and ends with one snapshot is visible in none."""
    for node, parent in transient_columns:
        _insert_column(builder, table_id, column_row(node, parent), ended=True)


def _insert_column(builder: SnapshotBuilder, table_id: int, row: ColumnRow, *, ended: bool = False) -> None:
    builder.insert(
        "column",
        column_id=row.column_id,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=builder.snapshot_id if ended else None,
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


def _insert_partition_spec(builder: SnapshotBuilder, table_id: int, spec: PartitionSpec | None) -> int:
    partition_id = builder.catalog_id()
    builder.insert("partition_info", partition_id=partition_id, table_id=table_id, begin_snapshot=builder.snapshot_id, end_snapshot=None)
    # Removed keys are stored as a spec without keys, as in DuckDB, not as the absence of a spec.
    for index, key in enumerate(spec.fields if spec is not None else ()):
        builder.insert(
            "partition_column",
            partition_id=partition_id,
            table_id=table_id,
            partition_key_index=index,
            column_id=key.column_id,
            transform=key.text,
        )
    return partition_id


def _new_version(builder: SnapshotBuilder, table_id: int, schema: Schema, *, inlined: bool) -> None:
    """Give a table with new columns, keys or names its schema version and a fresh table of inlined rows."""
    builder.schema_changed = True
    builder.new_schema_version(table_id)
    if inlined:
        builder.new_inlined_table(table_id, schema)


def set_option(builder: SnapshotBuilder, action: SetOption) -> None:
    """Replace or delete the row of an option. Nothing is logged, because options belong to no snapshot."""
    scope_id = None if action.scope_id is None else builder.real_id(action.scope_id)
    builder.endings.append(DeleteOption(key=action.key, scope=action.scope, scope_id=scope_id))
    own = (action.key, action.scope, scope_id)
    builder.inserts["metadata"] = [row for row in builder.inserts["metadata"] if (row["key"], row["scope"], row["scope_id"]) != own]
    if action.value is not None:
        builder.insert("metadata", key=action.key, value=action.value, scope=action.scope, scope_id=scope_id)


def flush_inlined(builder: SnapshotBuilder, action: FlushInlined) -> None:
    """Insert data files for inlined rows and delete files for inlined deletes, and remove both from the catalog.

    Files begin at the snapshot of their oldest row and are marked as partial, so earlier snapshots read them too::

        before   inlined rows  (begin 3) (begin 5, end 6)    table without the file
        after    data file     begin_snapshot 3, partial_max 5, snapshot of each row inside
                 delete file   begin_snapshot 6              the row version that has ended
    """
    table_id = action.table_id
    for flushed in action.files:
        builder.totals_of(table_id).add_moved(flushed.output)
        file_id = builder.file_id()
        row = data_file_row(
            flushed.output,
            file_id,
            table_id,
            flushed.begin_snapshot,
            row_id_start=flushed.row_id_start,
            partition_id=flushed.partition_id,
            partial_max=flushed.partial_max,
        )
        insert_file(builder, flushed.output, file_id, table_id, row)
        if flushed.deletes is not None:
            _insert_deletes(builder, flushed.deletes, file_id, table_id, flushed.deletes.end_snapshot)
    _gather(builder, action.gathered, table_id)
    ends_rows = any(isinstance(other, EndInlined) and other.table_id == table_id for other in builder.transaction.actions)
    for name in action.inlined_tables:
        # If no row stays, the table can be emptied without a condition, which is much faster in catalog files.
        is_all = action.until == builder.head.snapshot.id and not ends_rows
        builder.endings.append(RemoveInlinedRows(table_name=name, until=action.until, is_all=is_all))
    for name in action.superseded:
        builder.endings.append(UnregisterInlinedTable(table_id=table_id, table_name=name))
        # Sessions of DuckDB cache the list of these tables by schema version and would read a table that may be dropped soon.
        builder.schema_changed = True
    if action.deletes_of:
        builder.endings.append(RemoveInlinedDeletes(table_id=table_id, file_ids=action.deletes_of, until=action.until))
    builder.data_changed = True
    if action.gathered:
        builder.log("deleted_from_table", table_id)
        # DuckDB's deletes overlook new delete files that begin with an earlier snapshot, and would give the data files second ones.
        builder.log("rewrite_delete", table_id)
    builder.log("inline_flush", table_id)


def rewrite_files(builder: SnapshotBuilder, action: RewriteFiles) -> None:
    """Insert rewritten files, and end their sources with the deletes of those.

    The statistics of the table keep the deleted rows. DuckDB recomputes them without, and then its time travel to earlier snapshots does
    not find these rows any more. The row count must stay as long as the bounds: DuckDB takes bounds for values if it is exact.
    """
    table_id = action.table_id
    gathered = tuple(source.gathered for source in action.sources if source.gathered is not None)
    # Earlier snapshots keep reading sources with their deletes, so inlined deletes move to files that end now.
    _gather(builder, gathered, table_id, ends_now=True)
    held = tuple(source.data_file_id for source in action.sources if source.gathered is not None and source.has_inlined_deletes)
    if held:
        builder.endings.append(RemoveInlinedDeletes(table_id=table_id, file_ids=held, until=builder.head.snapshot.id))
    sources = tuple(source.data_file_id for source in action.sources)
    # Endings run before inserts: _gather's delete files are inserted with their end already and are not matched here.
    for table in ("delete_file", "data_file"):
        builder.end(table, {"data_file_id": sources})
    for output, partition_id in action.outputs:
        file_id = builder.file_id()
        row = data_file_row(output, file_id, table_id, builder.snapshot_id, row_id_start=None, partition_id=partition_id)
        insert_file(builder, output, file_id, table_id, row)
    builder.data_changed = True
    log_moving(builder, "rewrite_delete", table_id)


def _gather(builder: SnapshotBuilder, gathered: Iterable[GatheredDeletes], table_id: int, *, ends_now: bool = False) -> None:
    """Replace all delete files of a data file by one that contains the snapshot of each delete, so earlier snapshots read it too."""
    for deletes in gathered:
        if deletes.replaced:
            ids = tuple(delete_file_id for delete_file_id, _, _ in deletes.replaced)
            builder.endings.append(DeleteRows(table="delete_file", where={"delete_file_id": ids}))
        for delete_file_id, path, is_relative in deletes.replaced:
            builder.insert("files_scheduled_for_deletion", **scheduled_row(delete_file_id, path, is_relative, builder.head.now))
        end = builder.snapshot_id if ends_now else deletes.file.end_snapshot
        _insert_deletes(builder, deletes.file, deletes.data_file_id, table_id, end)


def _insert_deletes(builder: SnapshotBuilder, deletes: CumulativeDeletes, data_file_id: int, table_id: int, end: int | None) -> None:
    builder.insert("delete_file", **gathered_delete_row(deletes, builder.file_id(), data_file_id, table_id, end))


def append_files(builder: SnapshotBuilder, action: AppendFiles) -> None:
    """Insert data files with their statistics, and assign row ids from the head on."""
    if not action.files:
        return
    table_id = builder.real_id(action.table_id)
    partition_id = _partition_id(builder, action, table_id)
    for place, file in enumerate(action.files):
        row_id_start = builder.totals_of(table_id).add(file, action.schema)
        file_id = builder.file_id(_local(action, place))
        row = data_file_row(file, file_id, table_id, builder.snapshot_id, row_id_start=row_id_start, partition_id=partition_id)
        insert_file(builder, file, file_id, table_id, row)
    builder.log("inserted_into_table", table_id)


def add_files(builder: SnapshotBuilder, action: AddFiles) -> None:
    """Insert files of other writers, with the mappings that find their columns."""
    table_id = builder.real_id(action.table_id)
    partition_id = _partition_id(builder, action, table_id)
    mapping_ids = _new_mappings(builder, action)
    for place, (added, mapping_id) in enumerate(action.files):
        file = added.file
        # Columns that the file lacks have statistics too: every row has the default, or NULL, there.
        row_id_start = builder.totals_of(table_id).add(replace(file, statistics=(*file.statistics, *added.absent)), action.schema)
        file_id = builder.file_id(_local(action, place))
        row = data_file_row(
            file,
            file_id,
            table_id,
            builder.snapshot_id,
            row_id_start=row_id_start,
            partition_id=partition_id,
            mapping_id=mapping_ids[mapping_id],
            path_is_relative=added.path_is_relative,
        )
        insert_file(builder, file, file_id, table_id, row)
    builder.log("inserted_into_table", table_id)


def insert_inlined(builder: SnapshotBuilder, action: InsertInlined) -> None:
    """Insert rows into the newest table of inlined rows, which is created if none has the present columns."""
    if not action.rows.record_count:
        return
    table_id = builder.real_id(action.table_id)
    row_ids = builder.totals_of(table_id).add_inlined(action.rows, action.schema, action.row_ids)
    builder.inlined_inserts.append(
        InsertInlinedRows(
            table_name=_inlined_table(builder, table_id, action),
            columns=action.schema.columns,
            rows=action.rows,
            row_ids=row_ids,
            begin_snapshot=builder.snapshot_id,
        )
    )
    builder.log("inlined_insert", table_id)
    builder.data_changed = True


def _inlined_table(builder: SnapshotBuilder, table_id: int, action: InsertInlined) -> str:
    if table_id in builder.inlined_tables:
        return builder.inlined_tables[table_id]
    newest = builder.head.inlined_tables.get(table_id, action.inlined_table)
    # Columns that change while inlining is off leave the newest table with former columns.
    if newest is None or newest.schema_version < action.columns_version:
        name = builder.new_inlined_table(table_id, action.schema)
        # DuckDB looks up the columns of inlined rows by the schema version of their table, which therefore needs a row here.
        builder.new_schema_version(table_id)
        return name
    return newest.name


def end_files(builder: SnapshotBuilder, action: EndFiles) -> None:
    """End whole data files."""
    if not action.data_file_ids:
        return
    builder.end("data_file", {"data_file_id": action.data_file_ids})
    log_moving(builder, "deleted_from_table", action.table_id)
    builder.data_changed = True


def add_delete_files(builder: SnapshotBuilder, action: AddDeleteFiles) -> None:
    """Insert delete files; delete files that they replace leave the catalog and are scheduled for deletion."""
    if not action.files:
        return
    replaced = [file for file in action.files if file.replaces is not None]
    if replaced:
        builder.endings.append(DeleteRows(table="delete_file", where={"delete_file_id": tuple(f.replaces for f in replaced)}))
    for file in replaced:
        _schedule(builder, file)
    table_id = builder.real_id(action.table_id)
    for file in action.files:
        hidden = file if file.data_file_id >= 0 else replace(file, data_file_id=builder.local_files[action.table_id, file.data_file_id])
        builder.insert("delete_file", **delete_file_row(hidden, builder.file_id(), table_id, builder.snapshot_id))
    # Deletes of rows that this transaction added itself are not logged: no other writer can depend on those rows.
    if any(file.data_file_id >= 0 for file in action.files):
        log_moving(builder, "deleted_from_table", table_id)
    if replaced:
        # DuckDB's deletes overlook new delete files that begin with an earlier snapshot, and would give the data files second ones.
        builder.log("inlined_insert", table_id)


def inline_deletes(builder: SnapshotBuilder, action: InlineDeletes) -> None:
    """Hide rows of data files through the catalog."""
    if not action.files:
        return
    files = tuple((file.data_file_id, file.positions) for file in action.files)
    builder.inlined_inserts.append(InlinePositions(table_id=action.table_id, files=files, begin_snapshot=builder.snapshot_id))
    # DuckDB logs only inlined_delete. The other two entries stop concurrent transactions of DuckDB that overlook it:
    #   deleted_from_table   its compaction, which would bring the rows back
    #   inlined_insert       its deletes by file: one of the same row would make the other deleted rows of the file visible
    for change in ("inlined_delete", "deleted_from_table", "inlined_insert"):
        builder.log(change, action.table_id)


def end_inlined(builder: SnapshotBuilder, action: EndInlined) -> None:
    """End inlined rows."""
    for table_name, row_ids in action.rows:
        builder.endings.append(EndInlinedRows(table_name=table_name, row_ids=row_ids, end_snapshot=builder.snapshot_id))
    if action.rows:
        builder.log("inlined_delete", action.table_id)
        builder.data_changed = True


def merge_files(builder: SnapshotBuilder, action: MergeFiles) -> None:
    """Replace data files by merged ones. Sources leave the catalog with their deletes.

    Their delete files, and those data files that no other row names, are scheduled for deletion.
    """
    for merge in action.merges:
        sources = [file_id for file_id, _, _ in merge.sources]
        builder.forgotten_files += sources
        for source_id, path, is_relative in merge.sources:
            if source_id not in merge.shared:
                builder.insert("files_scheduled_for_deletion", **scheduled_row(source_id, path, is_relative, builder.head.now))
        file_id = builder.file_id()
        row = data_file_row(
            merge.output,
            file_id,
            action.table_id,
            merge.begin_snapshot,
            row_id_start=merge.row_id_start,
            partition_id=merge.partition_id,
            partial_max=merge.partial_max,
        )
        insert_file(builder, merge.output, file_id, action.table_id, row)
        if merge.deletes is not None:
            _insert_deletes(builder, merge.deletes, file_id, action.table_id, None)
        for deletes in merge.deleted:
            for delete_file_id, path, is_relative in deletes.replaced:
                builder.insert("files_scheduled_for_deletion", **scheduled_row(delete_file_id, path, is_relative, builder.head.now))
    held = tuple(one.data_file_id for merge in action.merges for one in merge.deleted if one.has_inlined_deletes)
    if held:
        builder.endings.append(RemoveInlinedDeletes(table_id=action.table_id, file_ids=held, until=builder.head.snapshot.id))
    if action.merges:
        log_moving(builder, "merge_adjacent", action.table_id)


def log_moving(builder: SnapshotBuilder, change: str, table_id: int) -> None:
    """Log a change that concurrent inlined deletes and flushes of DuckDB must not be committed on top of.

    DuckDB checks those against flushes only. Against deletes of files and merges it would hide rows twice, show deleted rows, or give a
    data file a second delete file. The additional ``inline_flush`` entry makes it fail and try again.

    Args:
        builder: The snapshot.
        change: Keyword of ``changes_made``.
        table_id: Real id of the table.
    """
    builder.log(change, table_id)
    builder.log("inline_flush", table_id)


def _schedule(builder: SnapshotBuilder, file: StagedDeleteFile) -> None:
    assert file.replaces is not None
    assert file.replaces_path is not None
    row = scheduled_row(file.replaces, file.replaces_path, file.replaces_path_is_relative, builder.head.now)
    builder.insert("files_scheduled_for_deletion", **row)


def _new_mappings(builder: SnapshotBuilder, action: AddFiles) -> dict[int, int]:
    """Insert new mappings and return the real id of every mapping of the action by its id there."""
    ids: dict[int, int] = {}
    for mapping in action.mappings:
        ids[mapping.id] = mapping.id if mapping.id >= 0 else builder.file_id()
        if mapping.id < 0:
            builder.insert("column_mapping", **mapping_row(ids[mapping.id], builder.real_id(action.table_id)))
            builder.insert_all("name_mapping", name_rows(mapping.columns, ids[mapping.id]))
    return ids


def _local(action: AppendFiles | AddFiles, place: int) -> tuple[int, int] | None:
    return (action.table_id, action.local_ids[place]) if action.local_ids else None


def _partition_id(builder: SnapshotBuilder, action: AppendFiles | AddFiles, table_id: int) -> int | None:
    # Id 0 means the spec that the transaction creates.
    spec = action.partition_spec
    return None if spec is None else spec.id or builder.new_specs[table_id]


def insert_file(builder: SnapshotBuilder, file: WrittenFile, file_id: int, table_id: int, row: dict[str, object]) -> None:
    """Insert the row of a data file with its statistics and partition values."""
    builder.insert("data_file", **row)
    builder.insert_all("file_column_stats", statistics_rows(file, file_id, table_id))
    builder.insert_all("file_variant_stats", variant_rows(file, file_id, table_id))
    builder.insert_all("file_partition_value", partition_value_rows(file, file_id, table_id))


def data_file_row(
    file: WrittenFile,
    file_id: int,
    table_id: int,
    begin_snapshot: int,
    *,
    row_id_start: int | None,
    partition_id: int | None,
    partial_max: int | None = None,
    mapping_id: int | None = None,
    path_is_relative: bool = True,
) -> dict[str, object]:
    """Return the row of a data file.

    Args:
        file: The written file.
        file_id: Its id.
        table_id: Real id of the table.
        begin_snapshot: First snapshot that reads it.
        row_id_start: First row id; None when the file embeds its row ids.
        partition_id: Spec that it was written with; None for none.
        partial_max: Newest snapshot of its rows, if earlier snapshots read only some of them; None when all rows have one snapshot.
        mapping_id: Mapping from its names to columns; None when it has field ids.
        path_is_relative: Whether its path is relative to the table's directory; default True.
    """
    return {
        "data_file_id": file_id,
        "table_id": table_id,
        "begin_snapshot": begin_snapshot,
        "end_snapshot": None,
        "file_order": None,
        "path": file.path,
        "path_is_relative": path_is_relative,
        "file_format": "parquet",
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "row_id_start": row_id_start,
        "partition_id": partition_id,
        "encryption_key": _key_text(file.encryption_key),
        "mapping_id": mapping_id,
        "partial_max": partial_max,
        "row_group_count": file.row_group_count,
    }


def statistics_rows(file: WrittenFile, file_id: int, table_id: int) -> list[dict[str, object]]:
    """Return the statistics rows of a data file, one for each leaf column."""
    return [
        {
            "data_file_id": file_id,
            "table_id": table_id,
            "column_id": column.column_id,
            "column_size_bytes": column.column_size_bytes,
            "value_count": column.value_count,
            "null_count": column.null_count,
            "min_value": column.min_value,
            "max_value": column.max_value,
            "contains_nan": column.contains_nan,
            "extra_stats": column.extra_stats,
            "min_is_exact": None if column.min_value is None else column.exact_min is None and column.min_is_exact is not False,
            "max_is_exact": None if column.max_value is None else column.exact_max is None and column.max_is_exact is not False,
        }
        for column in file.statistics
    ]


def variant_rows(file: WrittenFile, file_id: int, table_id: int) -> list[dict[str, object]]:
    """Return the statistics rows of the shredded fields of variants of a data file."""
    return [
        {
            "data_file_id": file_id,
            "table_id": table_id,
            "column_id": column.column_id,
            "variant_path": path_text(field.path),
            "shredded_type": str(field.type),
            "column_size_bytes": field.column_size_bytes,
            "value_count": field.value_count,
            "null_count": field.null_count,
            "min_value": field.min_value,
            "max_value": field.max_value,
            "contains_nan": field.contains_nan,
            "extra_stats": None,
        }
        for column in file.statistics
        if column.extra_stats is not None and column.extra_stats.startswith("[")
        for field in read_field_statistics(column.extra_stats)
    ]


def partition_value_rows(file: WrittenFile, file_id: int, table_id: int) -> list[dict[str, object]]:
    """Return the partition values of a data file, one row for each key."""
    return [
        {"data_file_id": file_id, "table_id": table_id, "partition_key_index": index, "partition_value": value}
        for index, value in enumerate(file.partition_values)
    ]


def delete_file_row(file: StagedDeleteFile, delete_file_id: int, table_id: int, snapshot_id: int) -> dict[str, object]:
    """Return the row of a delete file.

    ==========  ==================  ====================================  ===============
    file        columns             begin_snapshot                        partial_max
    ==========  ==================  ====================================  ===============
    first       file, position      this snapshot                         NULL
    cumulative  and snapshot        snapshot of the oldest delete in it   this snapshot
    ==========  ==================  ====================================  ===============
    """
    cumulative = file.assumed_snapshot is not None
    return {
        "delete_file_id": delete_file_id,
        "table_id": table_id,
        "begin_snapshot": snapshot_id if file.min_snapshot is None else min(file.min_snapshot, snapshot_id),
        "end_snapshot": None,
        "data_file_id": file.data_file_id,
        "path": file.path,
        "path_is_relative": True,
        "format": file.format,
        "delete_count": file.delete_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "encryption_key": _key_text(file.encryption_key),
        "partial_max": snapshot_id if cumulative else None,
        "row_group_count": file.row_group_count,
    }


def gathered_delete_row(
    file: CumulativeDeletes, delete_file_id: int, data_file_id: int, table_id: int, end_snapshot: int | None
) -> dict[str, object]:
    """Return the row of a delete file whose deletes all belong to earlier snapshots."""
    return {
        "delete_file_id": delete_file_id,
        "table_id": table_id,
        "begin_snapshot": file.min_snapshot,
        "end_snapshot": end_snapshot,
        "data_file_id": data_file_id,
        "path": file.path,
        "path_is_relative": True,
        "format": file.format,
        "delete_count": file.delete_count,
        "file_size_bytes": file.file_size_bytes,
        "footer_size": file.footer_size,
        "encryption_key": _key_text(file.encryption_key),
        "partial_max": file.max_snapshot,
        "row_group_count": file.row_group_count,
    }


def scheduled_row(file_id: int, path: str, path_is_relative: bool, now: datetime) -> dict[str, object]:
    """Return the row that schedules a file for deletion. Its path is relative to the data path, not to the table."""
    return {"data_file_id": file_id, "path": path, "path_is_relative": path_is_relative, "schedule_start": now}


def _key_text(key: EncryptionKey | None) -> str | None:
    return None if key is None else key.base64_text


def mapping_row(mapping_id: int, table_id: int) -> dict[str, object]:
    """Return the row of a name mapping."""
    return {"mapping_id": mapping_id, "table_id": table_id, "type": "map_by_name"}


def name_rows(columns: Sequence[MappedColumn], mapping_id: int) -> list[dict[str, object]]:
    """Return the rows of the columns of a name mapping."""
    return [
        {
            "mapping_id": mapping_id,
            "column_id": row.number,
            "source_name": row.source_name,
            "target_field_id": row.field_id,
            "parent_column": row.parent,
            "is_partition": row.in_path,
        }
        for row in mapping_rows(columns)
    ]
