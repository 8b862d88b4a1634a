"""The changes of a transaction to a table, as one action: the difference of two states, however many alterations lie between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ducklake_core.catalog.inlined.ddl import has_inlined_table
from ducklake_core.commit.definition_actions import AlterTable, PartitionChange, SortChange
from ducklake_core.format.evolution.promotion import bounds_hold
from ducklake_core.format.evolution.reconciliation import promotes
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.options import Options
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import ColumnRow, column_row


def difference(
    committed: TableState, wanted: TableState, transient_columns: tuple[tuple[Field, int | None], ...] = ()
) -> AlterTable | None:
    """The one action that makes the wanted state of the committed one, None when they are the same.

    Columns are compared by id, row by row: a column that was added and dropped again leaves nothing, one that was added,
    renamed and given another type is added in its last form. Only what files have in between is told (``transient_columns``).
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
        # DuckDB makes a new table of inlined rows whenever the form of rows may have changed, and for new names and keys as well.
        unbounded=tuple(number for number in sorted(changed) if not _bounds_hold(before[number][0], after[number][0])),
        inlined=(in_other_form or partitioning is not None or new_name is not None or bool(transient_columns)) and inlining(wanted),
        transient_columns=transient_columns,
    )
    return action if action.changes_table or action.new_name is not None else None


def find_transient_columns(written: Iterable[Schema], known: Sequence[Schema]) -> tuple[tuple[Field, int | None], ...]:
    """Nodes of columns that files were written with, and that no snapshot shows with this type.

    They are told to the catalog all the same: ids that files use must not be given to later columns, which would show old values, and
    readers that rely on the types that a column had must know all of them.
    """
    # Of thousands of files most have the columns that the table has.
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
    """Whether two specs partition by the same keys; none is as good as none."""
    return _keys(one) == _keys(two)


def _keys(spec: PartitionSpec | None) -> list[tuple[int, str]]:
    return [(key.column_id, key.text) for key in spec.fields] if spec is not None else []


def normalized(committed: TableState | None, wanted: TableState) -> TableState:
    """The wanted state, naming the committed partition spec where its keys are those again: there will be no new one."""
    before, after = (None if state is None else state.partition_spec for state in (committed, wanted))
    if committed is None or before is None or after is None or _partitioning(committed, wanted) is not None:
        return wanted
    return replace(wanted, partition_spec=replace(after, id=before.id))


def inlining(state: TableState) -> bool:
    """Whether DuckDB would make a table of inlined rows for a table's columns."""
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
    """The properties that decide how a row is stored: name and type."""
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
    """All tags of a table and its live columns by column id (None for the table itself) and key, comments included."""
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
