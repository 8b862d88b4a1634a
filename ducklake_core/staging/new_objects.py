"""Planning new schemas and tables, and columns added or widened for a frame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ducklake_core.commit.alterations import partition_spec, restore_definition
from ducklake_core.commit.definition_actions import CreateSchema, CreateTable
from ducklake_core.errors import SchemaError
from ducklake_core.format.evolution.defaults import with_initial_defaults
from ducklake_core.format.files import paths
from ducklake_core.format.state import LakeInfo, SchemaState, TableState
from ducklake_core.format.types.data_types import Field, StructType, children_of
from ducklake_core.format.types.names import folded, split_path
from ducklake_core.format.types.schema import Schema, check_names, check_reserved, with_ids
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ducklake_core.staging.arguments import MissingColumns, SchemaEvolution


def new_schema(
    name: str, parent: SchemaState | None, local_id: int, info: LakeInfo, *, or_existing: bool = False
) -> tuple[CreateSchema, SchemaState]:
    """A schema to create, and its state as later changes of the transaction see it.

    Args:
        name: Its path.
        parent: The schema that it is in, None for one at the top.
    """
    uuid = paths.uuid7()
    # One name may be in several schemas, and all directories are beside each other.
    path = paths.directory_name(split_path(name)[-1], uuid) if parent is None else f"{uuid}/"
    state = SchemaState(id=local_id, uuid=uuid, name=name, path=paths.join(info.data_path, path))
    parent_id = None if parent is None else parent.id
    return CreateSchema(schema_id=local_id, name=name, uuid=uuid, path=path, parent_id=parent_id, or_existing=or_existing), state


def new_table(
    schema: SchemaState,
    name: str,
    columns: Schema,
    *,
    local_id: int,
    partition_by: Sequence[str],
    comment: str | None,
    options: Mapping[str, str],
    snapshot_id: int,
    or_existing: bool = False,
    uuid: str | None = None,
    format_version: FormatVersion = DEFAULT_VERSION,
) -> tuple[CreateTable, TableState]:
    """A table to create, and its state as later changes of the transaction see it.

    Args:
        format_version: The version of the lake.
        uuid: Its uuid where that is normalized, as it names the directory in which files may be already.

    Raises:
        SchemaError: Columns or partition keys that no table can have.
    """
    check_names(columns, format_version)
    numbered = with_ids(with_initial_defaults(columns))
    spec = partition_spec(partition_by, numbered, format_version)
    uuid = uuid or paths.uuid7()
    path = paths.directory_name(name, uuid)
    create = CreateTable(
        table_id=local_id,
        schema_id=schema.id,
        schema_name=schema.name,
        name=name,
        uuid=uuid,
        path=path,
        schema=numbered,
        partition_spec=spec,
        comment=comment,
        or_existing=or_existing,
    )
    state = TableState(
        id=local_id,
        uuid=uuid,
        name=name,
        schema_id=schema.id,
        schema_name=schema.name,
        path=paths.join(schema.path, path),
        schema=numbered,
        snapshot_id=snapshot_id,
        schema_version=0,
        next_column_id=1 + sum(1 for _ in numbered.walk()),
        partition_spec=spec,
        options=options,
        comment=comment,
        format_version=format_version,
    )
    return create, state


def as_before(new: TableState, then: TableState, options: Mapping[str, str]) -> TableState:
    """A new table's state with the definition of an earlier table, its column ids included, and options that are set for it alone."""
    state = restore_definition(replace(new, options={**new.options, **options}), then=then)
    return replace(state, next_column_id=1 + max(node.id for node in then.schema.walk()))


def evolve(
    state: TableState,
    frame: Schema,
    mode: SchemaEvolution,
    missing_columns: MissingColumns,
    holds_only_nulls: Callable[[Field, bool], bool] | None = None,
) -> tuple[TableState, tuple[str, ...]]:
    """The table's state after it was made to fit a frame, and what differs.

    Args:
        state: The table.
        frame: The frame's columns.
        mode: ``strict`` or ``additive``.
        missing_columns: Whether a frame may lack columns that have no default.
        holds_only_nulls: Whether a column that does not fit, or may not, has no value in any row, so that it may be replaced.

    Raises:
        SchemaError: The frame does not fit and the mode does not allow what would make it fit, or it lacks columns without a default
            and must not.
    """
    if _same_columns(state.schema, frame):
        return state, ()
    from ducklake_core.format.evolution.reconciliation import reconcile

    found = reconcile(state.schema, frame, mode, state.next_column_id, holds_only_nulls)
    if found.missing and missing_columns == "error":
        raise lacking_columns(state.qualified_name, found.missing)
    if not found.added and not found.ended:
        return state, ()
    known = {column.id for column in state.schema}
    for column in found.schema:
        if column.id not in known:
            check_reserved(column.name, state.format_version)
    highest = max(node.id for node in found.schema.walk())
    comments = {column.name: state.column_comments[column.id] for column in state.schema if column.id in state.column_comments}
    after = replace(
        state,
        schema=found.schema,
        next_column_id=max(state.next_column_id, highest + 1),
        column_comments={
            **state.column_comments,
            **{column.id: comments[column.name] for column in found.schema if column.id not in known and column.name in comments},
        },
    )
    return after, tuple(str(difference) for difference in found.differences)


def evolved(
    state: TableState, *, frame: Schema, mode: SchemaEvolution, missing_columns: MissingColumns, replaced: Collection[int] = ()
) -> TableState:
    """The table's state after it was made to fit a frame.

    Args:
        state: The table.
        frame: The frame's columns.
        mode: ``strict`` or ``additive``.
        missing_columns: Whether a frame may lack columns that have no default.
        replaced: Ids of columns that hold only NULL and give way to columns of the frame.
    """
    return evolve(state, frame, mode, missing_columns, lambda column, _: column.id in replaced)[0]


def check_whole_structs(state: TableState, frame: Schema) -> None:
    """Raise for an upsert whose structs lack fields of the table: matched rows would lose the values of these fields.

    Raises:
        SchemaError: A struct of the frame lacks a field.
    """
    missing = [path for column in state.schema if (mine := frame.find(column.name)) for path in _lacking(column, mine, column.name)]
    if missing:
        raise SchemaError(
            f"The data for an upsert of {state.qualified_name} lacks {', '.join(missing)}. Rows that match would lose their values there. "
            "Add the fields to the data, or change single fields with UPDATE in lake.sql",
            table=state.qualified_name,
            columns=tuple(missing),
        )


def _lacking(ours: Field, theirs: Field, path: str) -> Iterator[str]:
    given = {folded(child.name): child for child in children_of(theirs.type)}
    for child in children_of(ours.type):
        mine = given.get(folded(child.name))
        if mine is not None:
            yield from _lacking(child, mine, f"{path}.{child.name}")
        elif isinstance(ours.type, StructType) and isinstance(theirs.type, StructType):
            yield f"{path}.{child.name}"


def check_not_lacking(state: TableState, frame: Schema) -> None:
    """Raise for a frame that lacks columns of the table that have no default, whatever else differs.

    Raises:
        SchemaError: It lacks some.
    """
    missing = tuple(column.name for column in state.schema if column.default is None and frame.find(column.name) is None)
    if missing:
        raise lacking_columns(state.qualified_name, missing)


def lacking_columns(table: str, missing: Sequence[str], option: str = "missing_columns='null'") -> SchemaError:
    """Return the error for a frame that lacks columns of the table that have no default.

    Args:
        table: ``schema.table``.
        missing: Paths of the columns and struct fields.
        option: The setting that allows it, as the caller writes it.
    """
    names = ", ".join(repr(path) for path in missing)
    noun, pronoun = ("column", "it") if len(missing) == 1 else ("columns", "them")
    return SchemaError(
        f"the data lacks {noun} {names} of {table}, which would be NULL in new rows: add {pronoun} to the data, or allow it with {option}",
        table=table,
        columns=tuple(missing),
        missing_columns=tuple(missing),
    )


def is_key(state: TableState, column: Field) -> bool:
    """Return whether rows are partitioned or sorted by a column, or by a part of it."""
    nodes = {node.id for node in column.walk()}
    partitioned = state.partition_spec is not None and any(key.column_id in nodes for key in state.partition_spec.fields)
    return partitioned or any(folded(column.name) in folded(key.expression) for key in state.sort_keys)


def _same_columns(table: Schema, frame: Schema) -> bool:
    def shape(field: Field) -> object:
        return folded(field.name), str(field.type)

    return [shape(column) for column in table] == [shape(column) for column in frame]
