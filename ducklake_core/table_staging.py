"""Planning changes to a table's definition: new tables, and columns added or widened for a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ducklake_core.catalog.inlined_ddl import may_inline
from ducklake_core.catalog.state import LakeInfo, SchemaState, TableState
from ducklake_core.commit.actions import AlterColumns, CreateSchema, CreateTable
from ducklake_core.errors import UsageError
from ducklake_core.format import paths
from ducklake_core.format.options import Options
from ducklake_core.format.partitioning import PartitionField, PartitionSpec, parse_partition_expression
from ducklake_core.format.schema import Schema, check_names, with_ids
from ducklake_core.format.transforms import check_spec
from ducklake_core.format.types import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ducklake_core.lake import SchemaEvolution


def new_schema(name: str, local_id: int, info: LakeInfo, *, or_existing: bool = False) -> tuple[CreateSchema, SchemaState]:
    """A schema to create, and its state as later changes of the transaction see it."""
    if not name:
        raise UsageError("a schema needs a name")
    uuid = paths.uuid7()
    path = paths.directory_name(name, uuid)
    state = SchemaState(id=local_id, uuid=uuid, name=name, path=paths.join(info.data_path, path))
    return CreateSchema(schema_id=local_id, name=name, uuid=uuid, path=path, or_existing=or_existing), state


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
) -> tuple[CreateTable, TableState]:
    """A table to create, and its state as later changes of the transaction see it.

    Raises:
        SchemaError: Columns or partition keys that no table can have.
    """
    check_names(columns)
    numbered = with_ids(columns)
    spec = partition_spec(partition_by, numbered)
    uuid = paths.uuid7()
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
        inlined=inlining(options, numbered),
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
    )
    return create, state


def partition_spec(partition_by: Sequence[str], schema: Schema) -> PartitionSpec | None:
    """The partition keys that expressions like ``month(day)`` mean, None for none.

    Raises:
        SchemaError: A transform that the column's type does not allow.
        NotFoundError: No such column.
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
    return spec


def evolve(state: TableState, frame: Schema, mode: SchemaEvolution) -> tuple[TableState, AlterColumns | None, tuple[str, ...]]:
    """The table's state after it was made to fit a frame, the change that does it (None when it fits), and what differs.

    Raises:
        SchemaError: The frame does not fit and the mode does not allow what would make it fit.
    """
    if _same_columns(state.schema, frame):
        return state, None, ()
    from ducklake_core.format.evolution import reconcile

    found = reconcile(state.schema, frame, mode, state.next_column_id)
    if not found.added and not found.ended:
        return state, None, ()
    alter = AlterColumns(
        table_id=state.id,
        schema_name=state.schema_name,
        name=state.name,
        ended=found.ended,
        added=found.added,
        schema=found.schema,
        inlined=inlining(state.options, found.schema),
    )
    highest = max(node.id for node in found.schema.walk())
    after = replace(state, schema=found.schema, next_column_id=max(state.next_column_id, highest + 1))
    return after, alter, tuple(str(difference) for difference in found.differences)


def _same_columns(table: Schema, frame: Schema) -> bool:
    def shape(field: Field) -> object:
        return field.name.casefold(), str(field.type)

    return [shape(column) for column in table] == [shape(column) for column in frame]


def inlining(options: Mapping[str, str], schema: Schema) -> bool:
    """Whether the reference would make a table of inlined rows for these columns."""
    return Options.from_mapping(options).data_inlining_row_limit > 0 and may_inline(schema)
