"""Moving staged changes from one snapshot to a newer one, when the files that were written still fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ducklake_core.catalog.state import SchemaState, TableState
from ducklake_core.commit.actions import Action, CreateSchema
from ducklake_core.errors import AlreadyExistsError, CommitConflictError
from ducklake_core.format.paths import join
from ducklake_core.staged_table import StagedTable


def rebase_definitions(
    definitions: tuple[Action, ...], tables: Sequence[StagedTable], known: Mapping[str, SchemaState], conflict: CommitConflictError
) -> tuple[Action, ...]:
    """The definitions that are still to be made: a schema that somebody else has created alike is used instead.

    Args:
        definitions: Schemas to create; anything else cannot be moved.
        tables: Staged tables, of which new ones may name those schemas.
        known: Schemas at the newer snapshot by case-folded name.
        conflict: What to raise when they cannot be moved.

    Raises:
        AlreadyExistsError: A schema was to be new, and another writer has created it meanwhile.
    """
    remaining: list[Action] = []
    for action in definitions:
        if not isinstance(action, CreateSchema):
            raise conflict
        theirs = known.get(action.name.casefold())
        if theirs is None:
            remaining.append(action)
            continue
        if not action.or_existing:
            message = f"there is a schema {theirs.name!r} already: another writer has created it meanwhile"
            raise AlreadyExistsError(message, schema=theirs.name) from conflict
        for staged in tables:
            if staged.create is not None and staged.create.schema_id == action.schema_id:
                if staged.state.path != join(theirs.path, staged.create.path):
                    raise conflict
                staged.create = replace(staged.create, schema_id=theirs.id, schema_name=theirs.name)
                staged.state = replace(staged.state, schema_id=theirs.id, schema_name=theirs.name)
    return tuple(remaining)


def rebase_table(staged: StagedTable, current: TableState | None, conflict: CommitConflictError) -> None:
    """Make a staged table follow its state at a newer snapshot; its deletes have to be found again afterwards.

    Args:
        staged: Changed in place.
        current: The table at the newer snapshot, None when it does not exist there.
        conflict: What to raise when the written files do not fit.

    Raises:
        AlreadyExistsError: The table was to be new, and another writer has created it meanwhile.
    """
    if current is None:
        if staged.create is None:
            raise conflict
        return
    if staged.create is not None and not staged.create.or_existing:
        message = f"there is a table {staged.name} already: another writer has created it meanwhile, snapshot {current.snapshot_id} has it"
        raise AlreadyExistsError(message, table=staged.name, snapshot_id=current.snapshot_id) from conflict
    if _fits(staged.state, current):
        # What both have created or added alike is theirs now, and our rows go there.
        staged.create, staged.alter, staged.differences = None, None, ()
        staged.state = staged.committed = current
        return
    if staged.alter is None or staged.committed is None or not _fits(staged.committed, current):
        raise conflict
    staged.state = replace(current, schema=staged.state.schema, next_column_id=staged.state.next_column_id)
    staged.committed = current


def _fits(ours: TableState, theirs: TableState) -> bool:
    """Whether files written for one state of a table are right for another."""
    ours_keys, theirs_keys = (state.partition_spec.fields if state.partition_spec else () for state in (ours, theirs))
    return _columns(ours) == _columns(theirs) and ours_keys == theirs_keys and ours.path == theirs.path


def _columns(state: TableState) -> list[tuple[object, ...]]:
    return [(node.id, node.name, node.type if node.is_leaf else type(node.type), node.nullable) for node in state.schema.walk()]
