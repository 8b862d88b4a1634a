"""Turns actions on definitions into catalog rows: schemas, tables, columns."""

from __future__ import annotations

from collections.abc import Sequence

from ducklake_core.catalog.changes import CopyRows, DeleteRows, UpdateRows
from ducklake_core.commit.definition_actions import AlterTable, CreateSchema, CreateTable, DropSchema, DropTable, TagSchema
from ducklake_core.commit.snapshot_builder import SnapshotBuilder
from ducklake_core.format.changes import QualifiedName
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import split_path
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import ColumnRow, column_row, flatten

_ENDED_WITH_TABLE = ("table", "partition_info", "column", "column_tag", "data_file", "delete_file", "sort_info")


def create_schema(builder: SnapshotBuilder, action: CreateSchema) -> None:
    """A new schema."""
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
    """The end of a schema."""
    builder.end("schema", {"schema_id": action.schema_id})
    builder.end("tag", {"object_id": action.schema_id})
    builder.log("dropped_schema", action.schema_id)
    builder.schema_changed = True


def tag_schema(builder: SnapshotBuilder, action: TagSchema) -> None:
    """Another tag of a schema. DuckDB cannot read a log of changes that has an entry for it."""
    schema_id = builder.real_id(action.schema_id)
    end_tag(builder, schema_id, None, action.key)
    insert_tag(builder, schema_id, None, action.key, action.value)
    builder.schema_changed = True


def create_table(builder: SnapshotBuilder, action: CreateTable) -> None:
    """A new table with its columns and keys."""
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
    """The end of a table and of everything that belongs to it."""
    for table in _ENDED_WITH_TABLE:
        builder.end(table, {"table_id": action.table_id})
    builder.end("tag", {"object_id": action.table_id})
    builder.log("dropped_table", action.table_id)
    builder.schema_changed = True


def alter_table(builder: SnapshotBuilder, action: AlterTable) -> None:
    """Another name, new rows for columns, other keys and comments."""
    table_id = action.table_id
    builder.schema_changed = True
    if action.new_name is not None:
        rename_row(builder, "table", {"table_id": table_id}, {"table_name": action.new_name})
        builder.log("created_table", QualifiedName(schema=action.schema_name, name=action.new_name))
    if action.ended:
        builder.end("column", {"table_id": table_id, "column_id": action.ended})
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
    """Bounds are kept as text, which DuckDB takes for values of the new type: wrong ones hide rows or break every later read.

    A table's row of a column must go as a whole: the next insert of DuckDB would begin its bounds anew.
    """
    where = {"table_id": table_id, "column_id": column_ids}
    builder.endings.append(DeleteRows(table="table_column_stats", where=where))
    builder.endings.append(
        UpdateRows(table="file_column_stats", where=where, values=dict.fromkeys(("min_value", "max_value", "min_is_exact", "max_is_exact")))
    )
    # Sessions of DuckDB cache a table's statistics by next_file_id.
    builder.data_changed = True


def rename_row(builder: SnapshotBuilder, table: str, where: dict[str, object], values: dict[str, object]) -> None:
    """End a row and insert it once more under another name."""
    builder.end(table, where)
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
    """The end of a tag of a schema, table or view, or of a column of a table."""
    if column_id is None:
        builder.end("tag", {"object_id": object_id, "key": key})
    else:
        builder.end("column_tag", {"table_id": object_id, "column_id": column_id, "key": key})


def insert_tag(builder: SnapshotBuilder, object_id: int, column_id: int | None, key: str, text: str | None) -> None:
    """A tag; None stands there as well, for one that was taken away."""
    lifetime = {"begin_snapshot": builder.snapshot_id, "end_snapshot": None}
    if column_id is None:
        builder.insert("tag", object_id=object_id, **lifetime, key=key, value=text)
    else:
        builder.insert("column_tag", table_id=object_id, column_id=column_id, **lifetime, key=key, value=text)


def _insert_transient(builder: SnapshotBuilder, table_id: int, transient_columns: Sequence[tuple[Field, int | None]]) -> None:
    """Columns that were there within the transaction only: no snapshot shows what begins and ends with it."""
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
    # No keys are said by a spec without any, not by none.
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
