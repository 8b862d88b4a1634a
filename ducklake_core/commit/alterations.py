"""Alter tables as pure functions of their state, and merge alterations into one action."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from ducklake_core.catalog.inlined.ddl import has_inlined_table
from ducklake_core.commit.actions import AlterTable, PartitionChange, SortChange
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.defaults import with_default, with_expression, with_initial_default
from ducklake_core.format.evolution.promotion import bounds_hold
from ducklake_core.format.evolution.reconciliation import promotes
from ducklake_core.format.evolution.schema_edits import add_node, drop_node, edit_node, find_node, rename_node, retype_node
from ducklake_core.format.files.partitioning import (
    CALENDAR_PARTS,
    EPOCH_TRANSFORMS,
    PartitionField,
    PartitionSpec,
    parse_partition_expression,
)
from ducklake_core.format.layout.sort_parser import parse_sort_key, renamed_in, sort_columns
from ducklake_core.format.layout.transforms import check_new_keys, check_spec
from ducklake_core.format.options import Options
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import DataType, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ColumnRow, Schema, check_names, check_reserved, column_row
from ducklake_core.format.versions import FormatVersion

Alteration: TypeAlias = Callable[[TableState], TableState]
ColumnPath: TypeAlias = tuple[str, ...]
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(.*\)", re.DOTALL)


@contextmanager
def about(state: TableState) -> Iterator[None]:
    """Add the table and its snapshot to errors that are raised inside the block."""
    try:
        yield
    except DuckLakeError as error:
        if "table" in error.details:
            raise
        message = f"table {state.qualified_name} at snapshot {state.snapshot_id}: {error.message}"
        raise type(error)(message, **error.details, table=state.qualified_name, snapshot_id=state.snapshot_id) from error


def add_column(state: TableState, *, path: ColumnPath, data_type: DataType, default: object = None) -> TableState:
    """Add a nullable last column or last field of a struct; existing rows get its default."""
    with about(state):
        field = with_initial_default(with_default(Field(name=path[-1], type=data_type), default))
        check_names(Schema(columns=(field,)), state.format_version)
        schema, next_id = add_node(state.schema, path[:-1], field, state.next_column_id)
        return replace(state, schema=schema, next_column_id=next_id)


def drop_column(state: TableState, *, path: ColumnPath) -> TableState:
    """Drop a column or field, unless the table is partitioned or sorted by it."""
    with about(state):
        node = find_node(state.schema, path)
        if len(path) == 1:
            _check_unused(state, node)
        return replace(state, schema=drop_node(state.schema, path))


def _check_unused(state: TableState, column: Field) -> None:
    keys = state.partition_spec.fields if state.partition_spec else ()
    if any(key.column_id == column.id for key in keys):
        raise UsageError(f"the table is partitioned by {column.name!r}. Change the keys with set_partitioned_by first", column=column.name)
    if any(folded(column.name) in {folded(name) for name in sort_columns(key)} for key in state.sort_keys):
        raise UsageError(f"the table is sorted by {column.name!r}. Change the order with set_sorted_by first", column=column.name)


def rename_column(state: TableState, *, path: ColumnPath, name: str) -> TableState:
    """Rename a column or field, also in partition keys and sort keys."""
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
    """Change the type to one that holds all values of the old one; structs may gain and lose fields."""
    with about(state):
        schema, next_id = retype_node(state.schema, path, data_type, state.next_column_id)
        check_names(schema, state.format_version)
        changed = replace(state, schema=schema, next_column_id=next_id)
        if changed.partition_spec is not None:
            check_spec(changed.partition_spec, schema)
        return changed


def set_default(state: TableState, *, path: ColumnPath, value: object) -> TableState:
    """Change or remove the default of new rows; existing rows keep their values."""
    with about(state):
        return replace(state, schema=edit_node(state.schema, path, lambda field: with_default(field, value)))


def set_default_expression(state: TableState, *, path: ColumnPath, expression: str) -> TableState:
    """Set an expression as the default, computed when new rows lack the column."""
    with about(state):
        _check_top(path, "can have an expression as its default")
        return replace(state, schema=edit_node(state.schema, path, lambda field: with_expression(field, expression)))


def set_nullable(state: TableState, *, path: ColumnPath, nullable: bool) -> TableState:
    """Set or drop NOT NULL."""
    with about(state):
        _check_top(path, "can be NOT NULL")
        if find_node(state.schema, path).nullable == nullable:
            is_so = "is not NOT NULL" if nullable else "is NOT NULL already"
            raise UsageError(f"column {path[0]!r} {is_so}", column=path[0])
        return replace(state, schema=edit_node(state.schema, path, lambda field: replace(field, nullable=nullable)))


def _check_top(path: ColumnPath, what: str) -> None:
    if len(path) > 1:
        raise SchemaError(f"{'.'.join(path)!r} is a field of a struct, and only a top-level column {what}", column=".".join(path))


def set_partitioned_by(state: TableState, *, keys: Sequence[str]) -> TableState:
    """Change the partition keys of new files; an empty list removes them."""
    with about(state):
        spec = partition_spec(keys, state.schema, state.format_version)
        before = state.partition_spec
        # The same keys are not a change: a new spec would have another id than the one that existing files name.
        return state if before is not None and spec is not None and before.fields == spec.fields else replace(state, partition_spec=spec)


def partition_spec(partition_by: Sequence[str], schema: Schema, version: FormatVersion) -> PartitionSpec | None:
    """Parse partition expressions such as ``month(day)``; return None for no keys.

    Args:
        partition_by: Expressions, one for each key.
        schema: Columns of the table.
        version: Format version of the lake, which limits the transforms.

    Raises:
        UsageError: A transform that the column's type does not allow, or the same key twice.
        NotFoundError: A column does not exist.
        UnsupportedFeatureError: A transform that does not exist, or that lakes of the version do not have.
    """
    if isinstance(partition_by, str):
        raise UsageError(f"partition_by must be a list of expressions, not a string. Pass [{partition_by!r}]")
    keys: list[PartitionField] = []
    for text in partition_by:
        name, transform, buckets = parse_partition_expression(text)
        if schema.find(name) is None and (call := _CALL.fullmatch(text.strip())) is not None:
            known = (*CALENDAR_PARTS, "bucket", *(EPOCH_TRANSFORMS if version.epoch_transforms else ()))
            raise UnsupportedFeatureError(
                f"partition key {text!r}: the transform {call[1]} is not supported. Use a column or one of {', '.join(known)}",
                transform=call[1],
            )
        column = schema.column(name)
        keys.append(PartitionField(column_id=column.id, column=column.name, transform=transform, buckets=buckets))
    if not keys:
        return None
    spec = PartitionSpec(fields=tuple(keys))
    check_spec(spec, schema)
    check_new_keys(spec, version)
    return spec


def set_sorted_by(state: TableState, *, keys: Sequence[str]) -> TableState:
    """Change the sort order of new files; an empty list removes it."""
    with about(state):
        if isinstance(keys, str):
            raise UsageError(f"Sort keys must be a list of expressions, not a string. Pass [{keys!r}]")
        return replace(state, sort_keys=tuple(parse_sort_key(text, state.schema) for text in keys))


def restore_columns(state: TableState, *, schema: Schema) -> TableState:
    """Restore the columns of an earlier snapshot under their ids, so that values of dropped columns in existing files come back."""
    with about(state):
        by_id = schema.by_id()
        spec = state.partition_spec
        for key in spec.fields if spec is not None else ():
            if key.column_id not in by_id:
                raise UsageError(
                    f"the table is partitioned by {key.column!r}, which it did not have at that snapshot. Change the keys with "
                    "set_partitioned_by first"
                )
        for name in (name for key in state.sort_keys for name in sort_columns(key)):
            if schema.find(name) is None:
                raise UsageError(
                    f"the table is sorted by {name!r}, which it did not have at that snapshot. Change the order with set_sorted_by first"
                )
        if spec is not None:
            spec = replace(spec, fields=tuple(replace(key, column=by_id[key.column_id].name) for key in spec.fields))
            check_spec(spec, schema)
        return replace(state, schema=schema, partition_spec=spec)


def restore_definition(state: TableState, *, then: TableState) -> TableState:
    """Restore columns, keys, sort order, comments and tags of an earlier snapshot; the name stays."""
    # Without the present keys: they may name columns that the earlier snapshot does not have.
    plain = replace(state, partition_spec=None, sort_keys=())
    # Id 0: the commit creates a new spec, because an ended one cannot become live again.
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
    """Change the comment on the table, or remove it."""
    return replace(state, comment=text)


def set_column_comment(state: TableState, *, path: ColumnPath, text: str | None) -> TableState:
    """Change the comment on a column, or remove it."""
    with about(state):
        node = find_node(state.schema, path)
        others = {column: comment for column, comment in state.column_comments.items() if column != node.id}
        return replace(state, column_comments=others | ({} if text is None else {node.id: text}))


def set_tag(state: TableState, *, key: str, value: str | None) -> TableState:
    """Change a tag of the table, or remove it."""
    if key == "comment":
        return set_comment(state, text=value)
    others = {other: text for other, text in state.tags.items() if other != key}
    return replace(state, tags=others if value is None else others | {key: value})


def rename_table(state: TableState, *, name: str) -> TableState:
    """Rename the table within its schema; its files stay where they are."""
    if not name:
        raise UsageError(f"The new name of table {state.qualified_name} is empty. Pass a name", table=state.qualified_name)
    return replace(state, name=name)


def difference(
    committed: TableState, wanted: TableState, transient_columns: tuple[tuple[Field, int | None], ...] = ()
) -> AlterTable | None:
    """Return the one action that turns the committed state into the wanted one, None when they are equal.

    Columns are compared by id, so steps in between disappear::

        committed    wanted     effect on the rows of ducklake_column
        a            a          none
        a            a renamed  row ends, new row with the same id
        a            -          row ends
        -            b          new row, in its last form
        -            -          none, although b was added and dropped again

    Args:
        committed: State of the table at the base.
        wanted: State after all alterations of the transaction.
        transient_columns: Columns that exist only in files of the transaction; they get a row that ends with the same snapshot.
    """
    if wanted is committed and not transient_columns:
        return None
    before, after = dict(_nodes(committed.schema)), dict(_nodes(wanted.schema))
    changed = {number for number, (node, parent) in after.items() if number in before and _row(node, parent) != _row(*before[number])}
    added = tuple(pair for number, pair in after.items() if number in changed or number not in before)
    ended = tuple(number for number in before if number in changed or number not in after)
    partitioning = _partitioning(committed, wanted)
    new_name = wanted.name if wanted.name != committed.name else None
    in_other_form = len(ended) != len(changed) or any(_form(*pair) != _form(*before.get(pair[0].id, (None, None))) for pair in added)
    action = AlterTable(
        table_id=committed.id,
        schema_id=committed.schema_id,
        schema_name=committed.schema_name,
        name=committed.name,
        new_name=new_name,
        ended=ended,
        added=added,
        schema=wanted.schema,
        partitioning=partitioning,
        sorting=None if committed.sort_keys == wanted.sort_keys else SortChange(keys=wanted.sort_keys),
        tags=tuple(_tags(committed, wanted)),
        not_null=frozenset(
            column.id for column in wanted.schema if not column.nullable and column.id in before and before[column.id][0].nullable
        ),
        # DuckDB creates a new table of inlined rows when names or types of columns change, and also for new names and keys of the table.
        unbounded=tuple(number for number in sorted(changed) if not _bounds_hold(before[number][0], after[number][0])),
        inlined=(in_other_form or partitioning is not None or new_name is not None or bool(transient_columns)) and inlining(wanted),
        transient_columns=transient_columns,
    )
    return action if action.changes_table or action.new_name is not None else None


def find_transient_columns(written: Iterable[Schema], known: Sequence[Schema]) -> tuple[tuple[Field, int | None], ...]:
    """Return the column nodes that files contain, but no snapshot shows with this type.

    The catalog stores them too. Otherwise a later column could get an id that a file uses and would show old values, and a reader that
    collects all former types of a column would miss one.

    Args:
        written: Schemas of the files.
        known: Schemas that snapshots show.
    """
    # By identity first: thousands of files share a few schema objects, and comparing schemas is slow.
    schemas = {id(schema): schema for schema in written}
    schemas = {number: schema for number, schema in schemas.items() if schema not in known}
    if not schemas:
        return ()
    seen = {(number, _row(node, parent).column_type) for schema in known for number, (node, parent) in _nodes(schema)}
    found: list[tuple[Field, int | None]] = []
    for schema in schemas.values():
        for number, (node, parent) in _nodes(schema):
            kind = (number, _row(node, parent).column_type)
            if kind not in seen:
                seen.add(kind)
                found.append((node, parent))
    return tuple(found)


def same_keys(one: PartitionSpec | None, two: PartitionSpec | None) -> bool:
    """Return whether two specs partition by the same keys; two missing specs do."""
    return _keys(one) == _keys(two)


def _keys(spec: PartitionSpec | None) -> list[tuple[int, str]]:
    return [(key.column_id, key.text) for key in spec.fields] if spec is not None else []


def normalized(committed: TableState | None, wanted: TableState) -> TableState:
    """Return the wanted state with the id of the committed partition spec if the keys are equal, because no new spec is created then."""
    before, after = (None if state is None else state.partition_spec for state in (committed, wanted))
    if committed is None or before is None or after is None or _partitioning(committed, wanted) is not None:
        return wanted
    return replace(wanted, partition_spec=replace(after, id=before.id))


def inlining(state: TableState) -> bool:
    """Return whether DuckDB would create a table of inlined rows for the columns of a table."""
    return Options.from_mapping(state.options).data_inlining_row_limit > 0 and has_inlined_table(state.schema, state.format_version)


def _nodes(schema: Schema) -> Iterator[tuple[int, tuple[Field, int | None]]]:
    def below(node: Field, parent: int | None) -> Iterator[tuple[int, tuple[Field, int | None]]]:
        yield node.id, (node, parent)
        for child in node.children:
            yield from below(child, node.id)

    for column in schema:
        yield from below(column, None)


def _row(node: Field, parent: int | None) -> ColumnRow:
    return replace(column_row(node, parent), begin_snapshot=0)


def _form(node: Field | None, parent: int | None) -> object:
    """Return the properties that decide how inlined rows are stored: name, type and parent of a column."""
    row = None if node is None else _row(node, parent)
    return row and (row.column_name, row.column_type, row.parent_column)


def _bounds_hold(before: Field, after: Field) -> bool:
    if not after.is_leaf or before.type == after.type:
        return True
    # Restored columns may have narrower types again.
    return promotes(before.type, after.type) and bounds_hold(before.type, after.type)


def _partitioning(committed: TableState, wanted: TableState) -> PartitionChange | None:
    same = same_keys(committed.partition_spec, wanted.partition_spec)
    return None if same else PartitionChange(spec=wanted.partition_spec)


def table_tags(state: TableState) -> dict[tuple[int | None, str], str]:
    """Return all tags of a table and its live columns by column id (None for the table itself) and key, including comments."""
    found: dict[tuple[int | None, str], str] = {} if state.comment is None else {(None, "comment"): state.comment}
    found |= {(None, key): value for key, value in sorted(state.tags.items())}
    for node in sorted(node.id for node in state.schema.walk()):
        if node in state.column_comments:
            found[node, "comment"] = state.column_comments[node]
    return found


def _tags(committed: TableState, wanted: TableState) -> Iterator[tuple[int | None, str, str | None]]:
    before, after = table_tags(committed), table_tags(wanted)
    live = {None, *(node.id for node in wanted.schema.walk())}
    for column, key in (*after, *(one for one in before if one not in after and one[0] in live)):
        if before.get((column, key)) != after.get((column, key)):
            yield column, key, after.get((column, key))
