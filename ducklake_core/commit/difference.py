"""What a transaction changes of a table, as one action: the difference of two states, however many alterations lie between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ducklake_core.catalog.inlined_ddl import may_inline
from ducklake_core.catalog.state import TableState
from ducklake_core.commit.actions import AlterTable, PartitionChange, SortChange
from ducklake_core.format.evolution import promotes
from ducklake_core.format.options import Options
from ducklake_core.format.promotion import bounds_hold
from ducklake_core.format.schema import Schema
from ducklake_core.format.type_names import ColumnRow, column_row
from ducklake_core.format.types import Field


def difference(committed: TableState, wanted: TableState) -> AlterTable | None:
    """The one action that makes the wanted state of the committed one, None when they are the same.

    Columns are compared by id, row by row: a column that was added and dropped again leaves nothing, one that was added,
    renamed and given another type is added in its last form.
    """
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
        comments=tuple(_comments(committed, wanted)),
        not_null=frozenset(
            column.id for column in wanted.schema if not column.nullable and column.id in before and before[column.id][0].nullable
        ),
        # The reference makes a new table of inlined rows whenever the form of rows may have changed, and for new names and keys as well.
        unbounded=tuple(number for number in sorted(changed) if not _bounds_hold(before[number][0], after[number][0])),
        inlined=(in_other_form or partitioning is not None or new_name is not None) and inlining(wanted),
    )
    return action if action.changes_table or action.new_name is not None else None


def settled(committed: TableState | None, wanted: TableState) -> TableState:
    """The wanted state, naming the committed partition spec where its keys are those again: there will be no new one."""
    before, after = (None if state is None else state.partition_spec for state in (committed, wanted))
    if committed is None or before is None or after is None or _partitioning(committed, wanted) is not None:
        return wanted
    return replace(wanted, partition_spec=replace(after, id=before.id))


def inlining(state: TableState) -> bool:
    """Whether the reference would make a table of inlined rows for a table's columns."""
    return Options.from_mapping(state.options).data_inlining_row_limit > 0 and may_inline(state.schema)


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
    """What decides how a row is stored: name and type."""
    row = None if node is None else _row(node, parent)
    return row and (row.column_name, row.column_type, row.parent_column)


def _bounds_hold(before: Field, after: Field) -> bool:
    if not after.is_leaf or before.type == after.type:
        return True
    # Restored columns may have narrower types again.
    return promotes(before.type, after.type) and bounds_hold(before.type, after.type)


def _partitioning(committed: TableState, wanted: TableState) -> PartitionChange | None:
    def keys(state: TableState) -> list[tuple[int, str]]:
        return [(key.column_id, key.text) for key in state.partition_spec.fields] if state.partition_spec else []

    return None if keys(committed) == keys(wanted) else PartitionChange(spec=wanted.partition_spec)


def _comments(committed: TableState, wanted: TableState) -> Iterator[tuple[int | None, str | None]]:
    if committed.comment != wanted.comment:
        yield None, wanted.comment
    live = {node.id for node in wanted.schema.walk()}
    for column in sorted(live & (committed.column_comments.keys() | wanted.column_comments.keys())):
        if committed.column_comments.get(column) != wanted.column_comments.get(column):
            yield column, wanted.column_comments.get(column)
