"""Moving staged changes from one snapshot to a newer one, when the files that were written still fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ducklake_core.catalog.reading.macros import macros
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.views import ViewState, find_view
from ducklake_core.catalog.reading.views import views as all_views
from ducklake_core.commit.actions import Action
from ducklake_core.commit.definition_actions import CreateMacro, CreateSchema, DropMacro, DropSchema, DropTable, DropView, TagSchema
from ducklake_core.commit.difference import difference, normalized
from ducklake_core.errors import AlreadyExistsError, CommitConflictError, DuckLakeError, NotFoundError
from ducklake_core.format.files.paths import join
from ducklake_core.format.state import SchemaState, Snapshot, TableState
from ducklake_core.format.types.names import folded, parent_schema
from ducklake_core.staging.staged_table import Altered, StagedTable, Step
from ducklake_core.staging.staged_view import StagedView, tagged_view


def rebase_definitions(
    definitions: tuple[Action, ...], tables: Sequence[StagedTable], reader: CatalogReader, base: Snapshot, conflict: CommitConflictError
) -> tuple[Action, ...]:
    """Select the definitions that still have to be made; a schema that somebody else has created meanwhile is used instead.

    Args:
        definitions: Schemas to create, and what is to be dropped.
        tables: Staged tables, of which new ones may name those schemas.
        reader: The catalog.
        base: The newer snapshot.
        conflict: What to raise when they cannot be moved, because what is to be dropped is no longer what it was.

    Raises:
        AlreadyExistsError: A schema was to be new, and another writer has created it meanwhile.
    """
    known = {folded(state.name): state for state in reader.schemas(base.id)}
    ids = {state.id for state in known.values()}
    dropped = {(type(action), action.name) for action in definitions if isinstance(action, DropTable | DropView | DropMacro | DropSchema)}
    remaining: list[Action] = []
    used: dict[int, SchemaState] = {}
    for action in definitions:
        match action:
            case CreateSchema(name=name):
                theirs = known.get(folded(name))
                if theirs is None:
                    if action.parent_id is not None and action.parent_id >= 0 and action.parent_id not in ids:
                        raise conflict
                    around = None if action.parent_id is None else used.get(action.parent_id)
                    remaining.append(action if around is None else replace(action, parent_id=around.id))
                    continue
                _use_schema(action, theirs, tables, conflict)
                used[action.schema_id] = theirs
            case CreateMacro():
                owner = used.get(action.schema_id)
                if owner is not None:
                    action = replace(action, schema_id=owner.id, schema_name=owner.name)  # noqa: PLW2901
                _check_macro(action, definitions, reader, base, conflict)
                remaining.append(action)
            case TagSchema(schema_id=schema_id, name=name):
                theirs = used.get(schema_id) or known.get(folded(name))
                if schema_id >= 0 and (theirs is None or theirs.id != schema_id):
                    raise conflict
                remaining.append(action if theirs is None else replace(action, schema_id=theirs.id))
            case DropTable() | DropView() | DropMacro() | DropSchema() if _is_there(action, reader, base, known):
                if isinstance(action, DropSchema) and any(entry not in dropped for entry in _entries(action, reader, base, known.values())):
                    raise conflict
                remaining.append(action)
            case _:
                raise conflict
    return tuple(remaining)


def _use_schema(action: CreateSchema, theirs: SchemaState, tables: Sequence[StagedTable], conflict: CommitConflictError) -> None:
    if not action.or_existing:
        message = f"there is a schema {theirs.name!r} already: another writer has created it meanwhile"
        raise AlreadyExistsError(message, schema=theirs.name) from conflict
    for staged in tables:
        if staged.create is not None and staged.create.schema_id == action.schema_id:
            if staged.state.path != join(theirs.path, staged.create.path):
                raise conflict
            staged.create = replace(staged.create, schema_id=theirs.id, schema_name=theirs.name)
            staged.state = replace(staged.state, schema_id=theirs.id, schema_name=theirs.name)
            staged.start = replace(staged.start, schema_id=theirs.id, schema_name=theirs.name)


def _check_macro(
    action: CreateMacro, definitions: Sequence[Action], reader: CatalogReader, base: Snapshot, conflict: CommitConflictError
) -> None:
    if action.schema_id >= 0 and all(state.id != action.schema_id for state in reader.schemas(base.id)):
        raise conflict
    dropped = {other.macro_id for other in definitions if isinstance(other, DropMacro)}
    for macro in macros(reader, base.id):
        names = (folded(macro.name), macro.kind, macro.schema_id)
        if names == (folded(action.name), action.kind, action.schema_id) and macro.id not in dropped:
            name = f"{action.schema_name}.{action.name}"
            message = f"there is a macro {name} already: another writer has made it meanwhile, snapshot {base.id} has it"
            raise AlreadyExistsError(message, macro=name, snapshot_id=base.id) from conflict


def _is_there(
    action: DropTable | DropView | DropMacro | DropSchema, reader: CatalogReader, base: Snapshot, known: Mapping[str, SchemaState]
) -> bool:
    """Whether the object to drop still has the name that the call gave."""
    match action:
        case DropTable(table_id=table_id, name=name):
            return any((table.id, table.name) == (table_id, name) for table in reader.tables(base.id))
        case DropView(view_id=view_id, name=name):
            return any((view.id, view.name) == (view_id, name) for view in all_views(reader, base.id))
        case DropMacro(macro_id=macro_id):
            return any(macro.id == macro_id for macro in macros(reader, base.id))
        case DropSchema(schema_id=schema_id):
            return any(state.id == schema_id for state in known.values())


def _entries(action: DropSchema, reader: CatalogReader, base: Snapshot, schemas: Iterable[SchemaState]) -> Iterator[tuple[type, str]]:
    """The objects of a schema, by the action that drops them and by name."""
    yield from ((DropSchema, one.name) for one in schemas if folded(parent_schema(one.name) or "") == folded(action.name))
    yield from ((DropTable, table.name) for table in reader.tables(base.id) if table.schema_id == action.schema_id)
    yield from ((DropView, view.name) for view in all_views(reader, base.id) if view.schema_id == action.schema_id)
    yield from ((DropMacro, macro.name) for macro in macros(reader, base.id) if macro.schema_id == action.schema_id)


def check_names(
    definitions: Sequence[Action],
    tables: Sequence[StagedTable],
    views: Sequence[StagedView],
    reader: CatalogReader,
    base: Snapshot,
    conflict: CommitConflictError,
) -> None:
    """Raise for new names that another writer has given to a table or view meanwhile, and for names in schemas that one has dropped.

    Raises:
        AlreadyExistsError: Such a name was given.
        CommitConflictError: The given one, when the schema of a new name is dropped. Both would commit otherwise, and DuckDB cannot attach
            a lake with a table in no schema.
    """
    schemas = {state.id for state in reader.schemas(base.id)}
    # Tables and views share one counter of ids, as they share their names.
    everything: tuple[StagedTable | StagedView, ...] = (*tables, *views)
    ours = {staged.committed.id for staged in everything if staged.committed is not None}
    ours |= {action.table_id for action in definitions if isinstance(action, DropTable)}
    ours |= {action.view_id for action in definitions if isinstance(action, DropView)}
    for staged in everything:
        state = staged.state
        if staged.committed is not None and staged.committed.name == state.name:
            continue
        if state.schema_id >= 0 and state.schema_id not in schemas:
            raise conflict
        for kind, found in (("table", _table(reader, state, base)), ("view", find_view(reader, state.schema_name, state.name, base.id))):
            if found is not None and found.id not in ours:
                message = f"there is a {kind} {staged.name} already: another writer has made it meanwhile, snapshot {base.id} has it"
                raise AlreadyExistsError(message, **{kind: staged.name}, snapshot_id=base.id) from conflict


def _table(reader: CatalogReader, state: TableState | ViewState, base: Snapshot) -> TableState | None:
    try:
        return reader.table(state.schema_name, state.name, base.id)
    except NotFoundError:
        return None


def rebase_view(staged: StagedView, reader: CatalogReader, base: Snapshot, conflict: CommitConflictError) -> None:
    """Make a staged view follow its state at a newer snapshot."""
    state = staged.state
    if staged.committed is None or state == staged.committed:
        return
    current = next((view for view in all_views(reader, base.id) if view.id == state.id), None)
    if current is None or current.name != staged.committed.name:
        raise conflict
    # A tag of ours takes the place of theirs, and theirs stay where we only rename.
    staged.state, staged.committed = tagged_view(replace(current, name=state.name), staged.tagged), current


def rebase_table(staged: StagedTable, current: TableState | None, conflict: CommitConflictError) -> None:
    """Make a staged table follow its state at a newer snapshot; its deletes have to be found again afterwards.

    Args:
        staged: Changed in place.
        current: The table at the newer snapshot, None when it does not exist there.
        conflict: What to raise when the written files do not fit.

    Raises:
        AlreadyExistsError: The table was to be new, and another writer has created it meanwhile.
    """
    if current is None and staged.create is None:
        raise conflict
    if current is not None and staged.create is not None and not staged.create.or_existing:
        message = f"there is a table {staged.name} already: another writer has created it meanwhile, snapshot {current.snapshot_id} has it"
        raise AlreadyExistsError(message, table=staged.name, snapshot_id=current.snapshot_id) from conflict
    if current is not None and staged.committed is not None and staged.is_altered and not _same_name(staged.committed, current):
        raise conflict
    start = staged.start if current is None else current
    if staged.create is not None and not _fits(staged.start, start):
        raise conflict
    staged.state, staged.steps = _begun_again(staged, start, conflict)
    staged.start = start
    if current is not None:
        # What both have created or added alike is theirs now, and our rows go there.
        staged.create, staged.committed = None, current
        staged.differences = staged.differences if difference(current, staged.state) is not None else ()


def _begun_again(staged: StagedTable, start: TableState, conflict: CommitConflictError) -> tuple[TableState, tuple[Step, ...]]:
    """Replay the steps on another state, as if the transaction had begun after the other commit; the final state, and the new steps."""
    before, now = staged.start, start
    steps: list[Step] = []
    for step in staged.steps:
        if not isinstance(step, Altered):
            if not _fits(before, now):
                raise conflict
            steps.append(step)
            continue
        try:
            after = normalized(start, step.alteration(now))
        except DuckLakeError as problem:
            raise conflict from problem
        before, now = step.after, after
        steps.append(replace(step, after=after))
    return now, tuple(steps)


def _same_name(one: TableState, two: TableState) -> bool:
    return (one.schema_id, one.name) == (two.schema_id, two.name)


def _fits(ours: TableState, theirs: TableState) -> bool:
    """Whether files written for one state of a table fit another."""
    ours_keys, theirs_keys = (state.partition_spec.fields if state.partition_spec else () for state in (ours, theirs))
    return columns_of(ours) == columns_of(theirs) and ours_keys == theirs_keys and ours.path == theirs.path


def columns_of(state: TableState) -> list[tuple[object, ...]]:
    """The properties of columns that data files depend on: ids, names, types and NOT NULL of all nodes."""
    return [(node.id, node.name, node.type if node.is_leaf else type(node.type), node.nullable) for node in state.schema.walk()]


def current_state(reader: CatalogReader, staged: StagedTable, base: Snapshot, conflict: CommitConflictError) -> TableState | None:
    """The table as it is now: the one that was asked for, under whatever name, unless another one has its name.

    Raises:
        CommitConflictError: The given one: the name means another table now, or the id does.
    """
    if staged.committed is None or staged.asked is None:
        return _found(lambda: reader.table(staged.state.schema_name, staged.state.name, base.id))
    asked, table_id, uuid = staged.asked, staged.committed.id, staged.committed.uuid
    named = _found(lambda: reader.table(*asked, base.id))
    if named is not None and (named.id, named.uuid) == (table_id, uuid):
        return named
    same = _found(lambda: reader.table_by_id(table_id, base.id))
    if named is not None or (same is not None and same.uuid != uuid):
        raise conflict
    return same


def _found(look: Callable[[], TableState]) -> TableState | None:
    try:
        return look()
    except NotFoundError:
        return None
