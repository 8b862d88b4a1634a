"""What becomes of actions on definitions: schemas, tables, columns."""

from __future__ import annotations

from collections.abc import Sequence

from ducklake_core.catalog.changes import CopyRows, DeleteRows, UpdateRows
from ducklake_core.commit.actions import AlterTable, CreateSchema, CreateTable, DropSchema, DropTable
from ducklake_core.commit.draft import Draft
from ducklake_core.format.changes import QualifiedName
from ducklake_core.format.partitioning import PartitionSpec
from ducklake_core.format.schema import Schema
from ducklake_core.format.sorting import SortKey
from ducklake_core.format.type_names import ColumnRow, column_row, flatten
from ducklake_core.format.types import Field

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
    _insert_passing(draft, table_id, action.passing)
    if action.partition_spec is not None:
        draft.new_specs[table_id] = _insert_partition_spec(draft, table_id, action.partition_spec)
    _insert_sort_keys(draft, table_id, action.sort_keys)
    if action.comment is not None:
        insert_comment(draft, table_id, None, action.comment)
    for column_id, text in action.column_comments:
        insert_comment(draft, table_id, column_id, text)
    _new_version(draft, table_id, action.schema, inlined=action.inlined)
    draft.log("created_table", QualifiedName(schema=action.schema_name, name=action.name))
    if action.altered:
        draft.log("altered_table", table_id)


def drop_table(draft: Draft, action: DropTable) -> None:
    """The end of a table and of everything that belongs to it."""
    for table in _ENDED_WITH_TABLE:
        draft.end(table, {"table_id": action.table_id})
    draft.end("tag", {"object_id": action.table_id})
    draft.log("dropped_table", action.table_id)
    draft.schema_changed = True


def alter_table(draft: Draft, action: AlterTable) -> None:
    """Another name, new rows for columns, other keys and comments."""
    table_id = action.table_id
    draft.schema_changed = True
    if action.new_name is not None:
        rename_row(draft, "table", {"table_id": table_id}, {"table_name": action.new_name})
        draft.log("created_table", QualifiedName(schema=action.schema_name, name=action.new_name))
    if action.ended:
        draft.end("column", {"table_id": table_id, "column_id": action.ended})
    for node, parent in action.added:
        _insert_column(draft, table_id, column_row(node, parent))
    _insert_passing(draft, table_id, action.passing)
    if action.unbounded:
        _forget_bounds(draft, table_id, action.unbounded)
    if action.partitioning is not None:
        draft.end("partition_info", {"table_id": table_id})
        draft.new_specs[table_id] = _insert_partition_spec(draft, table_id, action.partitioning.spec)
    if action.sorting is not None:
        draft.end("sort_info", {"table_id": table_id})
        _insert_sort_keys(draft, table_id, action.sorting.keys)
    for column_id, text in action.comments:
        end_comment(draft, table_id, column_id)
        insert_comment(draft, table_id, column_id, text)
    if action.changes_columns or action.partitioning is not None or action.new_name is not None:
        _new_version(draft, table_id, action.schema, inlined=action.inlined)
    if action.changes_table:
        draft.log("altered_table", table_id)


def _forget_bounds(draft: Draft, table_id: int, column_ids: tuple[int, ...]) -> None:
    """Bounds are kept as text, which the reference takes for values of the new type: wrong ones hide rows or break every later read.

    A table's row of a column must go as a whole: the next insert of the reference would begin its bounds anew.
    """
    where = {"table_id": table_id, "column_id": column_ids}
    draft.endings.append(DeleteRows(table="table_column_stats", where=where))
    draft.endings.append(UpdateRows(table="file_column_stats", where=where, values={"min_value": None, "max_value": None}))
    # Sessions of the reference cache a table's statistics by next_file_id.
    draft.data_changed = True


def rename_row(draft: Draft, table: str, where: dict[str, object], values: dict[str, object]) -> None:
    """End a row and insert it once more under another name."""
    draft.end(table, where)
    ended = {**where, "end_snapshot": draft.snapshot_id}
    draft.endings.append(CopyRows(table=table, where=ended, values={**values, "begin_snapshot": draft.snapshot_id, "end_snapshot": None}))


def _insert_sort_keys(draft: Draft, table_id: int, keys: tuple[SortKey, ...]) -> None:
    if not keys:
        return
    sort_id = draft.catalog_id()
    draft.insert("sort_info", sort_id=sort_id, table_id=table_id, begin_snapshot=draft.snapshot_id, end_snapshot=None)
    for index, key in enumerate(keys):
        draft.insert(
            "sort_expression",
            sort_id=sort_id,
            table_id=table_id,
            sort_key_index=index,
            expression=key.expression,
            dialect=key.dialect,
            sort_direction=key.direction,
            null_order=key.null_order,
        )


def end_comment(draft: Draft, object_id: int, column_id: int | None) -> None:
    """The end of a comment on a table or view, or on one of its columns."""
    if column_id is None:
        draft.end("tag", {"object_id": object_id, "key": "comment"})
    else:
        draft.end("column_tag", {"table_id": object_id, "column_id": column_id, "key": "comment"})


def insert_comment(draft: Draft, object_id: int, column_id: int | None, text: str | None) -> None:
    """A comment; None stands there as well, for one that was taken away."""
    lifetime = {"begin_snapshot": draft.snapshot_id, "end_snapshot": None}
    if column_id is None:
        draft.insert("tag", object_id=object_id, **lifetime, key="comment", value=text)
    else:
        draft.insert("column_tag", table_id=object_id, column_id=column_id, **lifetime, key="comment", value=text)


def _insert_passing(draft: Draft, table_id: int, passing: Sequence[tuple[Field, int | None]]) -> None:
    """Columns that were there within the transaction only: no snapshot shows what begins and ends with it."""
    for node, parent in passing:
        _insert_column(draft, table_id, column_row(node, parent), ended=True)


def _insert_column(draft: Draft, table_id: int, row: ColumnRow, *, ended: bool = False) -> None:
    draft.insert(
        "column",
        column_id=row.column_id,
        begin_snapshot=draft.snapshot_id,
        end_snapshot=draft.snapshot_id if ended else None,
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


def _insert_partition_spec(draft: Draft, table_id: int, spec: PartitionSpec | None) -> int:
    partition_id = draft.catalog_id()
    draft.insert("partition_info", partition_id=partition_id, table_id=table_id, begin_snapshot=draft.snapshot_id, end_snapshot=None)
    # No keys are said by a spec without any, not by none.
    for index, key in enumerate(spec.fields if spec is not None else ()):
        draft.insert(
            "partition_column",
            partition_id=partition_id,
            table_id=table_id,
            partition_key_index=index,
            column_id=key.column_id,
            transform=key.text,
        )
    return partition_id


def _new_version(draft: Draft, table_id: int, schema: Schema, *, inlined: bool) -> None:
    """What new columns, keys and names bring along: its schema version and a fresh table of inlined rows."""
    draft.schema_changed = True
    draft.insert("schema_versions", begin_snapshot=draft.snapshot_id, schema_version=draft.schema_version, table_id=table_id)
    if inlined:
        draft.new_inlined_table(table_id, schema)
