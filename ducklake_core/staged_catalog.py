"""The catalog as an open transaction sees it: its base snapshot, and on top of it what the transaction has staged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ducklake_core.catalog.macros import macros
from ducklake_core.catalog.option_rows import StoredOptions
from ducklake_core.catalog.state import SchemaState, Snapshot
from ducklake_core.catalog.views import ViewState, find_view
from ducklake_core.catalog.views import views as all_views
from ducklake_core.catalog.visibility import same_name
from ducklake_core.commit.actions import Action, CreateMacro, DropMacro, DropSchema, DropTable, DropView
from ducklake_core.errors import AlreadyExistsError, NotFoundError, UsageError
from ducklake_core.format import paths
from ducklake_core.format.names import folded, join_name, split_name
from ducklake_core.staged_table import StagedTable
from ducklake_core.staged_view import StagedView
from ducklake_core.table_staging import new_schema, new_table

if TYPE_CHECKING:
    from ducklake_core.format.macro_text import MacroImplementation, MacroKind
    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import DuckLake


class StagedCatalog:
    """Schemas and tables by name, those that the transaction creates included and those that it drops left out.

    Args:
        lake: Whose catalog.
        base: The snapshot that the transaction is planned on.
        options: Options stored in the catalog then.

    Attributes:
        definitions: Staged changes of definitions that belong to no staged table, in the order they were asked for.
    """

    def __init__(self, lake: DuckLake, base: Snapshot, options: StoredOptions) -> None:
        self.base = base
        self.options = options
        self.definitions: list[Action] = []
        self._lake = lake
        self._schemas: dict[str, SchemaState] = {}
        self._tables: dict[str, StagedTable] = {}
        self._touched: dict[str, StagedTable] | None = None
        self._views: dict[str, StagedView] = {}
        self._last_local_id = 0

    @property
    def tables(self) -> tuple[StagedTable, ...]:
        """The tables that were asked for so far."""
        return tuple(self._tables.values())

    @property
    def views(self) -> tuple[StagedView, ...]:
        """The views that were asked for so far."""
        return tuple(self._views.values())

    @contextmanager
    def whole_or_nothing(self) -> Iterator[None]:
        """A block that fails leaves nothing staged, should its error be caught and the transaction go on."""
        definitions, schemas, tables = list(self.definitions), dict(self._schemas), dict(self._tables)
        views = {key: replace(staged) for key, staged in self._views.items()}
        # Of thousands of tables a call touches few: only those are copied.
        touched = self._touched = {}
        try:
            yield
        except BaseException:
            self.definitions, self._schemas, self._views = definitions, schemas, views
            self._tables = tables | {key: staged for key, staged in touched.items() if key in tables}
            raise
        finally:
            self._touched = None

    def find_schema(self, name: str) -> SchemaState | None:
        """The schema with a name, None when there is none."""
        if folded(name) in self._schemas:
            return self._schemas[folded(name)]
        with self._lake.reader() as reader:
            found = next((state for state in reader.schemas(self.base.id) if same_name(state.name, name)), None)
        dropped = {action.schema_id for action in self.definitions if isinstance(action, DropSchema)}
        return found if found is not None and found.id not in dropped else None

    def schema(self, name: str) -> SchemaState:
        """The schema with a name.

        Raises:
            NotFoundError: There is none.
        """
        state = self.find_schema(name)
        if state is None:
            raise NotFoundError(f"there is no schema {name!r} at snapshot {self.base.id}", schema=name)
        return state

    def create_schema(self, name: str, *, or_existing: bool = False) -> SchemaState:
        """Stage a new schema."""
        action, state = new_schema(name, self._local_id(), self._lake.info, or_existing=or_existing)
        self.definitions.append(action)
        self._schemas[folded(name)] = state
        return state

    def find_table(self, name: str, *, only_append: bool = False) -> StagedTable | None:
        """The table with a name, None when there is none; see :meth:`table`."""
        try:
            return self.table(name, only_append=only_append)
        except NotFoundError:
            return None

    def table(self, name: str, *, only_append: bool = False) -> StagedTable:
        """What is staged for the table with a name.

        Args:
            name: ``table`` or ``schema.table``.
            only_append: Whether a remembered state will do (see known_tables.py).

        Raises:
            NotFoundError: There is none.
        """
        schema_name, table_name = split_name(name)
        key = _key(schema_name, table_name)
        staged = self._tables.get(key)
        if staged is not None and self._touched is not None:
            self._touched.setdefault(key, replace(staged))
        if staged is not None and not (staged.remembered and not only_append):
            return staged
        state = self._lake.known_tables.at(self.base, schema_name, table_name, self.options) if only_append else None
        remembered = state is not None
        if state is None:
            with self._lake.reader() as reader:
                state = reader.table(schema_name, table_name, self.base.id)
            self._lake.known_tables.remember(schema_name, table_name, state)
        if staged is not None:
            staged.committed, staged.remembered = state, False
            return staged
        if self.is_dropped(state.id):
            raise NotFoundError(f"table {name} was dropped in this transaction", table=name)
        if any(other.committed is not None and other.committed.id == state.id for other in self._tables.values()):
            raise NotFoundError(f"table {name} was renamed in this transaction", table=name)
        self._tables[key] = StagedTable(state=state, start=state, committed=state, remembered=remembered)
        return self._tables[key]

    def create_table(
        self,
        owner: SchemaState,
        name: str,
        columns: Schema,
        partition_by: Sequence[str],
        comment: str | None,
        *,
        or_existing: bool = False,
        uuid: str | None = None,
    ) -> StagedTable:
        """Stage a new table.

        Raises:
            AlreadyExistsError: A view has the name.
            SchemaError: Columns or partition keys that no table can have.
        """
        if (owner.id >= 0 or self._views) and self.find_view(join_name(owner.name, name)) is not None:
            raise AlreadyExistsError(f"there is a view {owner.name}.{name} already; tables and views share their names", table=name)
        create, state = new_table(
            owner,
            name,
            columns,
            local_id=self._local_id(),
            partition_by=partition_by,
            comment=comment,
            options=self.options.in_force(owner.id if owner.id >= 0 else None),
            snapshot_id=self.base.id,
            or_existing=or_existing,
            uuid=uuid,
        )
        staged = StagedTable(state=state, start=state, committed=None, create=create)
        self._tables[_key(owner.name, name)] = staged
        return staged

    def move_table(self, staged: StagedTable, name: str) -> None:
        """Keep a table under another name of its schema, before it is renamed.

        Raises:
            AlreadyExistsError: A table or view has it.
        """
        before, after = _key(staged.state.schema_name, staged.state.name), _key(staged.state.schema_name, name)
        if before != after:
            self.check_free(staged.state.schema_name, name)
        self._tables[after] = self._tables.pop(before)

    def check_free(self, schema: str, name: str) -> None:
        """Refuse a name that a table or view has.

        Raises:
            AlreadyExistsError: One has it.
        """
        whole = join_name(schema, name)
        for kind, found in (("table", self.find_table(whole)), ("view", self.find_view(whole))):
            if found is not None:
                raise AlreadyExistsError(f"there is a {kind} {whole} already at snapshot {self.base.id}", **{kind: whole})

    def drop_table(self, name: str) -> None:
        """Stage the end of a table; what was staged for it is forgotten.

        Raises:
            NotFoundError: No such table.
        """
        staged = self.table(name)
        del self._tables[_key(staged.state.schema_name, staged.state.name)]
        if staged.committed is not None:
            state = staged.committed
            self.definitions.append(DropTable(table_id=state.id, schema_name=state.schema_name, name=state.name))

    def find_view(self, name: str) -> StagedView | None:
        """What is staged for the view with a name, None when there is none.

        The transaction's own drops and renames are seen.
        """
        schema_name, view_name = split_name(name)
        key = _key(schema_name, view_name)
        if key in self._views:
            return self._views[key]
        with self._lake.reader() as reader:
            state = find_view(reader, schema_name, view_name, self.base.id)
        dropped = {action.view_id for action in self.definitions if isinstance(action, DropView)}
        renamed = {other.committed.id for other in self._views.values() if other.committed is not None}
        if state is None or state.id in dropped | renamed:
            return None
        self._views[key] = StagedView(state=state, committed=state)
        return self._views[key]

    def view(self, name: str) -> StagedView:
        """What is staged for the view with a name.

        Raises:
            NotFoundError: There is none.
        """
        found = self.find_view(name)
        if found is None:
            raise NotFoundError(f"there is no view {name} at snapshot {self.base.id}", view=name, snapshot_id=self.base.id)
        return found

    def create_view(self, owner: SchemaState, name: str, sql: str, column_aliases: tuple[str, ...], comment: str | None) -> None:
        """Stage a new view; its name is free."""
        state = ViewState(
            id=self._local_id(),
            uuid=paths.uuid7(),
            name=name,
            schema_id=owner.id,
            schema_name=owner.name,
            dialect="duckdb",
            sql=sql,
            column_aliases=column_aliases,
            comment=comment,
            snapshot_id=self.base.id,
        )
        self._views[_key(owner.name, name)] = StagedView(state=state, committed=None)

    def rename_view(self, staged: StagedView, name: str) -> None:
        """Stage another name for a view, in its schema.

        Raises:
            AlreadyExistsError: A table or view has it.
        """
        before, after = _key(staged.state.schema_name, staged.state.name), _key(staged.state.schema_name, name)
        if before != after:
            self.check_free(staged.state.schema_name, name)
        staged.rename(name)
        self._views[after] = self._views.pop(before)

    def drop_view(self, name: str) -> None:
        """Stage the end of a view.

        Raises:
            NotFoundError: No such view.
        """
        staged = self.view(name)
        del self._views[_key(staged.state.schema_name, staged.state.name)]
        if staged.committed is not None:
            state = staged.committed
            self.definitions.append(DropView(view_id=state.id, schema_name=state.schema_name, name=state.name))

    def find_macro(self, name: str, kind: MacroKind) -> CreateMacro | DropMacro | None:
        """The macro of a kind with a name: what creates it in this transaction, or else would drop it; None when there is none."""
        schema_name, macro_name = split_name(name)
        wanted = kind, _key(schema_name, macro_name)
        for action in self.definitions:
            if isinstance(action, CreateMacro) and (action.kind, _key(action.schema_name, action.name)) == wanted:
                return action
        owner = self.find_schema(schema_name)
        if owner is None or owner.id < 0:
            return None
        with self._lake.reader() as reader:
            found = [macro for macro in macros(reader, self.base.id) if macro.schema_id == owner.id and macro.kind == kind]
        there = [
            DropMacro(macro_id=macro.id, schema_name=owner.name, name=macro.name, kind=kind)
            for macro in found
            if same_name(macro.name, macro_name)
        ]
        return next((drop for drop in there if drop not in self.definitions), None)

    def create_macro(self, owner: SchemaState, name: str, definitions: tuple[MacroImplementation, ...]) -> None:
        """Stage a new macro; its name is free."""
        self.definitions.append(
            CreateMacro(macro_id=self._local_id(), schema_id=owner.id, schema_name=owner.name, name=name, implementations=definitions)
        )

    def drop_macro(self, found: CreateMacro | DropMacro) -> None:
        """Stage the end of a macro that was found."""
        if isinstance(found, CreateMacro):
            self.definitions.remove(found)
        else:
            self.definitions.append(found)

    def is_dropped(self, table_id: int) -> bool:
        """Whether the transaction drops a table of its base snapshot."""
        return any(isinstance(action, DropTable) and action.table_id == table_id for action in self.definitions)

    def drop_schema(self, state: SchemaState, *, cascade: bool) -> None:
        """Stage the end of a schema, with ``cascade`` of everything in it.

        Raises:
            UsageError: It is not empty.
        """
        tables = [staged for staged in self.tables if staged.state.schema_id == state.id]
        views = [staged for staged in self.views if staged.state.schema_id == state.id]
        new_macros = [action for action in self.definitions if isinstance(action, CreateMacro) and action.schema_id == state.id]
        inside = [action for action in self._entries(state) if action not in self.definitions] if state.id >= 0 else []
        made = [table.state.name for table in tables if table.create] + [view.state.name for view in views if view.committed is None]
        made += [action.name for action in new_macros]
        if (inside or made) and not cascade:
            names = ", ".join([action.name for action in inside] + made)
            raise UsageError(f"schema {state.name!r} has {names} in it; drop them first, or pass cascade=True", schema=state.name)
        self._tables = {key: table for key, table in self._tables.items() if table.state.schema_id != state.id}
        self._views = {key: view for key, view in self._views.items() if view.state.schema_id != state.id}
        self.definitions = [action for action in self.definitions if action not in new_macros]
        if state.id >= 0:
            self.definitions += [*inside, DropSchema(schema_id=state.id, name=state.name)]
        else:
            self.definitions = [action for action in self.definitions if getattr(action, "schema_id", 0) != state.id]
        self._schemas.pop(folded(state.name), None)

    def _entries(self, state: SchemaState) -> list[DropTable | DropView | DropMacro]:
        """The end of everything that a schema holds at the base."""
        with self._lake.reader() as reader:
            tables = [table for table in reader.tables(self.base.id) if table.schema_id == state.id]
            views = [view for view in all_views(reader, self.base.id) if view.schema_id == state.id]
            own_macros = [macro for macro in macros(reader, self.base.id) if macro.schema_id == state.id]
        return [
            *(DropTable(table_id=table.id, schema_name=state.name, name=table.name) for table in tables),
            *(DropView(view_id=view.id, schema_name=state.name, name=view.name) for view in views),
            *(DropMacro(macro_id=macro.id, schema_name=state.name, name=macro.name, kind=macro.kind) for macro in own_macros),
        ]

    def _local_id(self) -> int:
        self._last_local_id -= 1
        return self._last_local_id


def _key(schema: str, table: str) -> str:
    return folded(join_name(schema, table))
