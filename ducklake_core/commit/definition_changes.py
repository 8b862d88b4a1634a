"""What becomes of actions on definitions: schemas, tables, columns."""

from __future__ import annotations

from ducklake_core.commit.actions import AlterColumns, CreateSchema, CreateTable, DropSchema, DropTable
from ducklake_core.commit.draft import Draft
from ducklake_core.format.changes import QualifiedName
from ducklake_core.format.partitioning import PartitionSpec
from ducklake_core.format.schema import Schema
from ducklake_core.format.type_names import ColumnRow, column_row, flatten

_ENDED_WITH_TABLE = ("table", "partition_info", "column", "column_tag", "data_file", "delete_file", "sort_info")


def create_schema(draft: Draft, action: CreateSchema) -> None:
    """A new schema."""
    draft.ids[action.schema_id] = draft.catalog_id()
    draft.insert(
        "schema",
        schema_id=draft.ids[action.schema_id],
        schema_uuid=action.uuid,
        begin_snapshot=draft.snapshot_id,
        end_snapshot=None,
        schema_name=action.name,
        path=action.path,
        path_is_relative=True,
    )
    draft.log("created_schema", action.name)
    draft.schema_changed = True


def drop_schema(draft: Draft, action: DropSchema) -> None:
    """The end of a schema."""
    draft.end("schema", {"schema_id": action.schema_id})
    draft.log("dropped_schema", action.schema_id)
    draft.schema_changed = True


def create_table(draft: Draft, action: CreateTable) -> None:
    """A new table with its columns and keys."""
    table_id = draft.ids[action.table_id] = draft.catalog_id()
    draft.insert(
        "table",
        table_id=table_id,
        table_uuid=action.uuid,
        begin_snapshot=draft.snapshot_id,
        end_snapshot=None,
        schema_id=draft.real_id(action.schema_id),
        table_name=action.name,
        path=action.path,
        path_is_relative=True,
    )
    for row in flatten(action.schema):
        _insert_column(draft, table_id, row)
    if action.partition_spec is not None:
        draft.new_specs[table_id] = _insert_partition_spec(draft, table_id, action.partition_spec)
    if action.comment is not None:
        draft.insert("tag", object_id=table_id, begin_snapshot=draft.snapshot_id, end_snapshot=None, key="comment", value=action.comment)
    _new_columns(draft, table_id, action.schema, inlined=action.inlined)
    draft.log("created_table", QualifiedName(schema=action.schema_name, name=action.name))


def drop_table(draft: Draft, action: DropTable) -> None:
    """The end of a table and of everything that belongs to it."""
    for table in _ENDED_WITH_TABLE:
        draft.end(table, {"table_id": action.table_id})
    draft.end("tag", {"object_id": action.table_id})
    draft.log("dropped_table", action.table_id)
    draft.schema_changed = True


def alter_columns(draft: Draft, action: AlterColumns) -> None:
    """New rows for columns."""
    table_id = draft.real_id(action.table_id)
    if action.ended:
        draft.end("column", {"table_id": table_id, "column_id": action.ended})
    for node, parent in action.added:
        _insert_column(draft, table_id, column_row(node, parent))
    _new_columns(draft, table_id, action.schema, inlined=action.inlined)
    draft.log("altered_table", table_id)


def _insert_column(draft: Draft, table_id: int, row: ColumnRow) -> None:
    draft.insert(
        "column",
        column_id=row.column_id,
        begin_snapshot=draft.snapshot_id,
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


def _insert_partition_spec(draft: Draft, table_id: int, spec: PartitionSpec) -> int:
    partition_id = draft.catalog_id()
    draft.insert("partition_info", partition_id=partition_id, table_id=table_id, begin_snapshot=draft.snapshot_id, end_snapshot=None)
    for index, key in enumerate(spec.fields):
        draft.insert(
            "partition_column",
            partition_id=partition_id,
            table_id=table_id,
            partition_key_index=index,
            column_id=key.column_id,
            transform=key.text,
        )
    return partition_id


def _new_columns(draft: Draft, table_id: int, schema: Schema, *, inlined: bool) -> None:
    """What every new set of columns brings along: its schema version and a fresh table of inlined rows."""
    draft.schema_changed = True
    draft.insert("schema_versions", begin_snapshot=draft.snapshot_id, schema_version=draft.schema_version, table_id=table_id)
    if inlined:
        draft.new_inlined_table(table_id, schema)
