"""Alterations of a table as pure functions of its state: what ALTER TABLE and COMMENT ON make of it.

They are applied one after another while a transaction is open, and once more when it has to be planned again on another state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from ducklake_core.errors import DuckLakeError, SchemaError, UsageError
from ducklake_core.format.evolution.defaults import with_default, with_expression, with_initial_default
from ducklake_core.format.evolution.schema_edits import add_node, drop_node, edit_node, find_node, rename_node, retype_node
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec, parse_partition_expression
from ducklake_core.format.layout.sort_parser import parse_sort_key, renamed_in, sort_columns
from ducklake_core.format.layout.transforms import check_new_keys, check_spec
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import DataType, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema, check_names, check_reserved
from ducklake_core.format.versions import FormatVersion

Alteration: TypeAlias = Callable[[TableState], TableState]
ColumnPath: TypeAlias = tuple[str, ...]


@contextmanager
def about(state: TableState) -> Iterator[None]:
    """Errors of what is done to a table name the table and its snapshot."""
    try:
        yield
    except DuckLakeError as error:
        if "table" in error.details:
            raise
        message = f"table {state.qualified_name} at snapshot {state.snapshot_id}: {error.message}"
        raise type(error)(message, **error.details, table=state.qualified_name, snapshot_id=state.snapshot_id) from error


def add_column(state: TableState, *, path: ColumnPath, data_type: DataType, default: object = None) -> TableState:
    """A new nullable last column or last field of a struct; rows that are there have its default."""
    with about(state):
        field = with_initial_default(with_default(Field(name=path[-1], type=data_type), default))
        check_names(Schema(columns=(field,)), state.format_version)
        schema, next_id = add_node(state.schema, path[:-1], field, state.next_column_id)
        return replace(state, schema=schema, next_column_id=next_id)


def drop_column(state: TableState, *, path: ColumnPath) -> TableState:
    """Without a column or field, unless the table is partitioned or sorted by it."""
    with about(state):
        node = find_node(state.schema, path)
        if len(path) == 1:
            _check_unused(state, node)
        return replace(state, schema=drop_node(state.schema, path))


def _check_unused(state: TableState, column: Field) -> None:
    keys = state.partition_spec.fields if state.partition_spec else ()
    if any(key.column_id == column.id for key in keys):
        raise UsageError(f"the table is partitioned by {column.name!r}; set another partitioning first", column=column.name)
    if any(folded(column.name) in {folded(name) for name in sort_columns(key)} for key in state.sort_keys):
        raise UsageError(f"the table is sorted by {column.name!r}; set another sort order first", column=column.name)


def rename_column(state: TableState, *, path: ColumnPath, name: str) -> TableState:
    """With another name for a column or field; keys that read it follow."""
    with about(state):
        node = find_node(state.schema, path)
        schema = rename_node(state.schema, path, name)
        if len(path) == 1:
            check_reserved(name, state.format_version)
        if len(path) > 1:
            return replace(state, schema=schema)
        keys = tuple(renamed_in(key, node.name, name) for key in state.sort_keys)
        spec = state.partition_spec
        if spec is not None:
            fields = tuple(replace(key, column=name) if key.column_id == node.id else key for key in spec.fields)
            spec = replace(spec, fields=fields)
        return replace(state, schema=schema, sort_keys=keys, partition_spec=spec)


def set_column_type(state: TableState, *, path: ColumnPath, data_type: DataType) -> TableState:
    """With a type that holds all values of the old one; structs may gain and lose fields."""
    with about(state):
        schema, next_id = retype_node(state.schema, path, data_type, state.next_column_id)
        check_names(schema, state.format_version)
        changed = replace(state, schema=schema, next_column_id=next_id)
        if changed.partition_spec is not None:
            check_spec(changed.partition_spec, schema)
        return changed


def set_default(state: TableState, *, path: ColumnPath, value: object) -> TableState:
    """With another default for new rows, or none; rows that are there keep theirs."""
    with about(state):
        return replace(state, schema=edit_node(state.schema, path, lambda field: with_default(field, value)))


def set_default_expression(state: TableState, *, path: ColumnPath, expression: str) -> TableState:
    """With a default that is computed when rows lack the column."""
    with about(state):
        _check_top(path, "can have an expression as its default")
        return replace(state, schema=edit_node(state.schema, path, lambda field: with_expression(field, expression)))


def set_nullable(state: TableState, *, path: ColumnPath, nullable: bool) -> TableState:
    """With or without NOT NULL."""
    with about(state):
        _check_top(path, "can be NOT NULL")
        if find_node(state.schema, path).nullable == nullable:
            is_so = "is not NOT NULL" if nullable else "is NOT NULL already"
            raise UsageError(f"column {path[0]!r} {is_so}", column=path[0])
        return replace(state, schema=edit_node(state.schema, path, lambda field: replace(field, nullable=nullable)))


def _check_top(path: ColumnPath, what: str) -> None:
    if len(path) > 1:
        raise SchemaError(f"{'.'.join(path)!r} is a field: only a column of the table {what}", column=".".join(path))


def set_partitioned_by(state: TableState, *, keys: Sequence[str]) -> TableState:
    """With other partition keys for new files; none takes them away."""
    with about(state):
        spec = partition_spec(keys, state.schema, state.format_version)
        before = state.partition_spec
        # The same keys again are no change, and leave the spec that files name.
        return state if before is not None and spec is not None and before.fields == spec.fields else replace(state, partition_spec=spec)


def partition_spec(partition_by: Sequence[str], schema: Schema, version: FormatVersion) -> PartitionSpec | None:
    """The partition keys that expressions like ``month(day)`` mean, None for none.

    Raises:
        UsageError: A transform that the column's type does not allow, or the same key twice.
        NotFoundError: No such column.
        UnsupportedFeatureError: A transform that lakes of the version do not have.
    """
    if isinstance(partition_by, str):
        raise UsageError(f"partition_by must be a list of expressions, not the text {partition_by!r}")
    keys: list[PartitionField] = []
    for text in partition_by:
        name, transform, buckets = parse_partition_expression(text)
        column = schema.column(name)
        keys.append(PartitionField(column_id=column.id, column=column.name, transform=transform, buckets=buckets))
    if not keys:
        return None
    spec = PartitionSpec(fields=tuple(keys))
    check_spec(spec, schema)
    check_new_keys(spec, version)
    return spec


def set_sorted_by(state: TableState, *, keys: Sequence[str]) -> TableState:
    """With another sort order for new files; no keys take it away."""
    with about(state):
        if isinstance(keys, str):
            raise UsageError(f"sort keys must be a list of expressions, not the text {keys!r}")
        return replace(state, sort_keys=tuple(parse_sort_key(text, state.schema) for text in keys))


def restore_columns(state: TableState, *, schema: Schema) -> TableState:
    """With the columns of an earlier snapshot, under their ids: files that have values of dropped ones still have them."""
    with about(state):
        by_id = schema.by_id()
        spec = state.partition_spec
        for key in spec.fields if spec is not None else ():
            if key.column_id not in by_id:
                raise UsageError(f"the table is partitioned by {key.column!r}, which it did not have then; set another partitioning first")
        for name in (name for key in state.sort_keys for name in sort_columns(key)):
            if schema.find(name) is None:
                raise UsageError(f"the table is sorted by {name!r}, which it did not have then; set another sort order first")
        if spec is not None:
            spec = replace(spec, fields=tuple(replace(key, column=by_id[key.column_id].name) for key in spec.fields))
            check_spec(spec, schema)
        return replace(state, schema=schema, partition_spec=spec)


def restore_definition(state: TableState, *, then: TableState) -> TableState:
    """With columns, keys, sort order, comments and tags of an earlier snapshot; its name stays."""
    plain = replace(state, partition_spec=None, sort_keys=())
    spec = None if then.partition_spec is None else replace(then.partition_spec, id=0)
    return replace(
        restore_columns(plain, schema=then.schema),
        partition_spec=spec,
        sort_keys=then.sort_keys,
        comment=then.comment,
        column_comments=then.column_comments,
        tags=then.tags,
    )


def set_comment(state: TableState, *, text: str | None) -> TableState:
    """With another comment on the table, or none."""
    return replace(state, comment=text)


def set_column_comment(state: TableState, *, path: ColumnPath, text: str | None) -> TableState:
    """With another comment on a column, or none."""
    with about(state):
        node = find_node(state.schema, path)
        others = {column: comment for column, comment in state.column_comments.items() if column != node.id}
        return replace(state, column_comments=others | ({} if text is None else {node.id: text}))


def set_tag(state: TableState, *, key: str, value: str | None) -> TableState:
    """With another tag of the table, or without it."""
    if key == "comment":
        return set_comment(state, text=value)
    others = {other: text for other, text in state.tags.items() if other != key}
    return replace(state, tags=others if value is None else others | {key: value})


def rename_table(state: TableState, *, name: str) -> TableState:
    """Under another name in the same schema; its files stay where they are."""
    if not name:
        raise UsageError(f"table {state.qualified_name} needs a name", table=state.qualified_name)
    return replace(state, name=name)
