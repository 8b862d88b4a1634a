"""The catalog as an open transaction sees it: the base snapshot with staged schemas, tables and views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.definitions import Macro, ViewState, find_view, macros, missing_view, views
from ducklake_core.catalog.reading.options import StoredOptions
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.commit.actions import Action, CreateMacro, CreateSchema, DropMacro, DropSchema, DropTable, DropView, SetOption, TagSchema
from ducklake_core.errors import AlreadyExistsError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files import paths
from ducklake_core.format.state import SchemaState, Snapshot, TableState
from ducklake_core.format.types.names import dotted, folded, join_name, parent_schema, schemas_meant, split_name
from ducklake_core.format.types.text import similar_in_brackets
from ducklake_core.staging.context import with_options
from ducklake_core.staging.staged_table import StagedTable, StagedView, as_before, new_schema, new_table

if TYPE_CHECKING:
    from ducklake_core.format.macro_definitions import MacroImplementation, MacroKind
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.staging.context import History, LakeContext


class StagedSchemas:
    """Schemas by their paths.

    Args:
        lake: The lake.
        base: The base snapshot of the transaction.

    Attributes:
        definitions: Staged changes of definitions that belong to no staged table, in order.
    """

    def __init__(self, lake: LakeContext, base: Snapshot) -> None:
        self.base = base
        self.definitions: list[Action] = []
        self._lake = lake
        self._schemas: dict[str, SchemaState] = {}
        self._last_local_id = 0

    def find_schema(self, path: str) -> SchemaState | None:
        """Return the schema with a path, None if there is none."""
        if folded(path) in self._schemas:
            return self._schemas[folded(path)]
        return next((state for state in self._committed() if folded(state.name) == folded(path)), None)

    def schema(self, path: str) -> SchemaState:
        """Return the schema with a path.

        Raises:
            NotFoundError: It does not exist.
        """
        state = self.find_schema(path)
        if state is None:
            with self._lake.reader() as reader:
                near = similar_in_brackets(path, [other.name for other in (*reader.schemas(self.base.id), *self._schemas.values())])
            raise NotFoundError(f"there is no schema {path!r} at snapshot {self.base.id}{near}", schema=path)
        return state

    def schema_called(self, text: str, *, if_exists: bool = False) -> SchemaState | None:
        """Return the schema that an argument names: by its path, otherwise a top-level schema with exactly this name.

        Args:
            text: The argument.
            if_exists: Whether to return None if there is no such schema. Default: False.

        Raises:
            NotFoundError: It does not exist, and ``if_exists`` is False.
        """
        path, whole = schemas_meant(text)
        found = self.find_schema(path) or self.find_schema(whole)
        return found if found is not None or if_exists else self.schema(path)

    def schemas_within(self, state: SchemaState) -> list[SchemaState]:
        """Return the schemas directly within a schema."""
        return [one for one in self.schemas_now() if folded(parent_schema(one.name) or "") == folded(state.name)]

    def schemas_now(self) -> list[SchemaState]:
        """Return the schemas of the base snapshot without dropped ones, and those that the transaction has created."""
        return list({folded(one.name): one for one in (*self._committed(), *self._schemas.values())}.values())

    def create_schema(self, path: str, *, or_existing: bool = False, with_parents: bool = False) -> SchemaState:
        """Stage a new schema.

        Args:
            path: Path of the schema.
            or_existing: Whether to use the schema if another writer creates it meanwhile. Default: False.
            with_parents: Whether to create missing parent schemas, too. Default: False.

        Raises:
            NotFoundError: The parent schema does not exist.
            UnsupportedFeatureError: The schema has a parent, and the lake's version does not support this.
        """
        if not path or path == '""':
            raise UsageError("The name of the schema is empty. Pass a name")
        around, version = parent_schema(path), self._lake.info.format_version
        if around is not None and not version.has_parent_schemas:
            raise UnsupportedFeatureError(
                f"Schema {path} cannot be created in schema {around}, because lakes of version {version} do not support nested schemas. "
                f"Migrate the lake to version 1.1, or write {dotted((path,))} for one schema whose name contains dots",
                feature="nested schemas",
                schema=path,
            )
        parent = None if around is None else self.find_schema(around)
        if around is not None and parent is None:
            parent = self.create_schema(around, or_existing=or_existing, with_parents=True) if with_parents else self.schema(around)
        action, state = new_schema(path, parent, self._local_id(), self._lake.info, or_existing=or_existing)
        self.definitions.append(action)
        self._schemas[folded(path)] = state
        return state

    def tag_schema(self, state: SchemaState, key: str, value: str | None) -> None:
        """Stage a tag of a schema. A later tag with the same key replaces it."""

        def is_earlier(action: Action) -> bool:
            return isinstance(action, TagSchema) and (action.schema_id, action.key) == (state.id, key)

        self.definitions = [action for action in self.definitions if not is_earlier(action)]
        stored = state.comment if key == "comment" else state.tags.get(key)
        # The same tag again is not a change, as for tables.
        if value != stored:
            self.definitions.append(TagSchema(schema_id=state.id, name=state.name, key=key, value=value))

    def _set_option(self, action: SetOption) -> None:
        """Stage an option of the lake or a schema, which replaces an earlier value."""
        scope = (action.key, action.scope, action.scope_id)
        others = [one for one in self.definitions if not (isinstance(one, SetOption) and (one.key, one.scope, one.scope_id) == scope)]
        self.definitions = [*others, action]

    def _forget_schema(self, state: SchemaState) -> None:
        """Stage dropping an empty schema."""
        self.definitions = [
            one for one in self.definitions if not (isinstance(one, SetOption) and (one.scope, one.scope_id) == ("schema", state.id))
        ]
        if state.id >= 0:
            self.definitions.append(DropSchema(schema_id=state.id, name=state.name))
        else:
            self.definitions = [one for one in self.definitions if not (isinstance(one, CreateSchema) and one.schema_id == state.id)]
        self._schemas.pop(folded(state.name), None)

    def _committed(self) -> Iterator[SchemaState]:
        dropped = {action.schema_id for action in self.definitions if isinstance(action, DropSchema)}
        with self._lake.reader() as reader:
            yield from [state for state in reader.schemas(self.base.id) if state.id not in dropped]

    def _local_id(self) -> int:
        self._last_local_id -= 1
        return self._last_local_id


class StagedCatalog(StagedSchemas):
    """Schemas and tables by name, including those that the transaction creates, without those that it drops.

    Args:
        lake: The lake.
        base: The base snapshot of the transaction.
        options: Options in the catalog at that time.
        history: Cached states of the base's history.

    Attributes:
        options: Options, including those that the transaction sets.
        sets_options: Whether it sets any.
    """

    def __init__(self, lake: LakeContext, base: Snapshot, options: StoredOptions, history: History) -> None:
        super().__init__(lake, base)
        self.options = options
        self._history = history
        self._tables: dict[str, StagedTable] = {}
        self.sets_options = False
        self._touched: dict[str, StagedTable] | None = None
        self._views: dict[str, StagedView] = {}

    @property
    def tables(self) -> tuple[StagedTable, ...]:
        """Tables that calls have used so far."""
        return tuple(self._tables.values())

    @property
    def views(self) -> tuple[StagedView, ...]:
        """Views that calls have used so far."""
        return tuple(self._views.values())

    @contextmanager
    def whole_or_nothing(self) -> Iterator[None]:
        """Undo all staged changes of a failing block, so that the caller can catch its error and continue the transaction.

        Blocks may be nested; a table that an inner block touched is restored by the outer one, too.
        """
        definitions, schemas, tables = list(self.definitions), dict(self._schemas), dict(self._tables)
        views = {key: replace(staged) for key, staged in self._views.items()}
        # A call touches few of possibly thousands of tables: only those are copied.
        outer = self._touched
        touched = self._touched = {}
        try:
            yield
        except BaseException:
            self.definitions, self._schemas, self._views = definitions, schemas, views
            self._tables = tables | {key: staged for key, staged in touched.items() if key in tables}
            raise
        finally:
            self._touched = outer
            if outer is not None:
                for key, staged in touched.items():
                    outer.setdefault(key, staged)

    def find_table(self, name: str, *, only_append: bool = False) -> StagedTable | None:
        """Return the table with a name, None if there is none; see :meth:`table`."""
        try:
            return self.table(name, only_append=only_append, suggest=False)
        except NotFoundError:
            return None

    def table(self, name: str, *, only_append: bool = False, suggest: bool = True) -> StagedTable:
        """Return the staged form of the table with a name.

        Args:
            name: ``table`` or ``schema.table``.
            only_append: Whether a cached state suffices (context.py). Default: False.
            suggest: Whether the error names similar tables. Default: True.

        Raises:
            NotFoundError: It does not exist.
        """
        schema_name, table_name = split_name(name)
        key = _key(schema_name, table_name)
        staged = self._tables.get(key)
        if staged is not None and self._touched is not None:
            self._touched.setdefault(key, replace(staged))
        # A cached state suffices for appends only; any other call reads the table, and keeps what was staged.
        if staged is not None and not (staged.remembered and not only_append):
            return staged
        state = self._history.at(self.base, schema_name, table_name, self.options) if only_append else None
        remembered = state is not None
        state = state or self._history.read(self._lake.database, self.base, schema_name, table_name)
        if state is None:
            with self._lake.reader() as reader:
                state = reader.table(schema_name, table_name, self.base.id, suggest=suggest)
            self._history.remember(schema_name, table_name, state)
        if self.sets_options:
            state = with_options(state, self.options)
        if staged is not None:
            staged.committed, staged.remembered = state, False
            return staged
        if self.is_dropped(state.id):
            raise NotFoundError(f"Table {name} does not exist: this transaction has dropped it", table=name)
        # The base snapshot still has the old name of a table that the transaction renamed.
        if any(other.committed is not None and other.committed.id == state.id for other in self._tables.values()):
            raise NotFoundError(f"Table {name} does not exist: this transaction has renamed it. Use the new name", table=name)
        requested = (schema_name, table_name)
        self._tables[key] = StagedTable(state=state, start=state, committed=state, requested=requested, remembered=remembered)
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

        Args:
            owner: Its schema.
            name: Its name.
            columns: Its columns.
            partition_by: Its partition keys.
            comment: Its comment, None for none.
            or_existing: Whether to use the table if another writer creates it meanwhile. Default: False.
            uuid: Its uuid. Default: a new one.

        Raises:
            AlreadyExistsError: A view has the name.
            SchemaError: Columns or partition keys are not valid in a table.
        """
        # A schema of this transaction has only staged views, so the catalog need not be read.
        if (owner.id >= 0 or self._views) and self.find_view(join_name(owner.name, name)) is not None:
            raise AlreadyExistsError(
                f"A view {owner.name}.{name} already exists, and tables and views share their names. Choose another name, or drop the view",
                table=name,
            )
        create, state = new_table(
            owner,
            name,
            columns,
            local_id=self._local_id(),
            partition_by=partition_by,
            comment=comment,
            options=self.options.effective(owner.id),
            snapshot_id=self.base.id,
            or_existing=or_existing,
            uuid=uuid,
            format_version=self._lake.info.format_version,
        )
        staged = StagedTable(state=state, start=state, committed=None, create=create)
        self._tables[_key(owner.name, name)] = staged
        return staged

    def set_option(self, key: str, value: str | None, *, table: str | None, schema: str | None) -> bool:
        """Stage an option, which later calls of the transaction follow. Return whether it was set before.

        Args:
            key: Name in lower case.
            value: Value as stored; None removes the option.
            table: Table to set it for; None for the lake or a schema.
            schema: Schema to set it for; None for the lake or a table.

        Raises:
            NotFoundError: There is no such table or schema.
        """
        staged = None if table is None else self.table(table)
        owner = None if schema is None else self.schema_called(schema)
        action = SetOption(key=key, value=value)
        if staged is not None:
            action = replace(action, scope="table", scope_id=staged.state.id)
            staged.options = {**staged.options, key: value}
        elif owner is not None:
            action = replace(action, scope="schema", scope_id=owner.id)
        if staged is None:
            self._set_option(action)
        was_set = self.options.is_set(key, action.scope, action.scope_id)
        self.options, self.sets_options = self.options.changed(key, value, action.scope, action.scope_id), True
        for other in self.tables:
            other.state = other.with_options(other.state, self.options)
        return was_set

    def recreate_table(self, owner: SchemaState, name: str, then: TableState, options: Mapping[str, str], first_row_id: int) -> StagedTable:
        """Stage a new table with the definition of an earlier one. Row ids and column ids are kept.

        Args:
            owner: Its schema.
            name: Its name, which must be unused.
            then: The earlier table.
            options: Options that were set for this table.
            first_row_id: Row id of the next new row.
        """
        staged = self.create_table(owner, name, then.schema, (), then.comment)
        staged.state = staged.start = as_before(staged.state, then, options)
        staged.create = staged.create and replace(staged.create, options=tuple(sorted(options.items())), first_row_id=first_row_id)
        return staged

    def restore_view(self, owner: SchemaState, then: ViewState) -> None:
        """Stage a new view with the definition of an earlier one. Its name must be unused."""
        state = replace(then, id=self._local_id(), uuid=paths.uuid7(), schema_id=owner.id, schema_name=owner.name)
        self._views[_key(owner.name, then.name)] = StagedView(state=state, committed=None)

    def move_table(self, staged: StagedTable, name: str) -> None:
        """Store a table under another name of its schema, before it is renamed.

        Args:
            staged: The table.
            name: The new name.

        Raises:
            AlreadyExistsError: A table or view has the name.
        """
        before, after = _key(staged.state.schema_name, staged.state.name), _key(staged.state.schema_name, name)
        if before != after:
            self.check_free(staged.state.schema_name, name)
        self._tables[after] = self._tables.pop(before)

    def check_free(self, schema: str, name: str) -> None:
        """Raise an error if a table or view has a name.

        Args:
            schema: Name of the schema.
            name: The name.

        Raises:
            AlreadyExistsError: A table or view has the name.
        """
        whole = join_name(schema, name)
        for kind, found in (("table", self.find_table(whole)), ("view", self.find_view(whole))):
            if found is not None:
                raise AlreadyExistsError(f"A {kind} {whole} already exists (snapshot {self.base.id}). Choose another name", **{kind: whole})

    def drop_table(self, name: str) -> None:
        """Stage dropping a table. Everything that was staged for it is discarded.

        Raises:
            NotFoundError: There is no such table.
        """
        staged = self.table(name)
        del self._tables[_key(staged.state.schema_name, staged.state.name)]
        if staged.committed is not None:
            state = staged.committed
            self.definitions.append(DropTable(table_id=state.id, schema_name=state.schema_name, name=state.name))

    def find_view(self, name: str) -> StagedView | None:
        """Return the staged form of the view with a name, None if there is none. Drops and renames of the transaction are included."""
        schema_name, view_name = split_name(name)
        key = _key(schema_name, view_name)
        if key in self._views:
            return self._views[key]
        with self._lake.reader() as reader:
            state = find_view(reader, schema_name, view_name, self.base.id)
        renamed = {other.committed.id for other in self._views.values() if other.committed is not None}
        if state is None or state.id in renamed or self.is_dropped_view(state.id):
            return None
        self._views[key] = StagedView(state=state, committed=state)
        return self._views[key]

    def is_dropped_view(self, view_id: int) -> bool:
        """Return whether the transaction drops a view."""
        return any(isinstance(action, DropView) and action.view_id == view_id for action in self.definitions)

    def view(self, name: str) -> StagedView:
        """Return the staged form of the view with a name.

        Raises:
            NotFoundError: There is no such view.
        """
        found = self.find_view(name)
        if found is None:
            with self._lake.reader() as reader:
                raise missing_view(reader, *split_name(name), self.base.id)
        return found

    def create_view(self, owner: SchemaState, name: str, sql: str, column_aliases: tuple[str, ...], comment: str | None) -> None:
        """Stage a new view. Its name must be unused."""
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
            AlreadyExistsError: A table or view has the name.
        """
        before, after = _key(staged.state.schema_name, staged.state.name), _key(staged.state.schema_name, name)
        if before != after:
            self.check_free(staged.state.schema_name, name)
        staged.rename(name)
        self._views[after] = self._views.pop(before)

    def drop_view(self, name: str) -> None:
        """Stage dropping a view.

        Raises:
            NotFoundError: There is no such view.
        """
        staged = self.view(name)
        del self._views[_key(staged.state.schema_name, staged.state.name)]
        if staged.committed is not None:
            state = staged.committed
            self.definitions.append(DropView(view_id=state.id, schema_name=state.schema_name, name=state.name))

    def find_macro(self, name: str, kind: MacroKind) -> CreateMacro | DropMacro | None:
        """Return the macro with a name and kind: its staged creation, otherwise the action that would drop it; None if there is none."""
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

    def macros_now(self) -> tuple[Macro, ...]:
        """Return the macros of the base snapshot without dropped ones, and the macros that the transaction has created."""
        with self._lake.reader() as reader:
            committed = macros(reader, self.base.id)
        dropped_ids = {action.macro_id for action in self.definitions if isinstance(action, DropMacro)}
        made = [action for action in self.definitions if isinstance(action, CreateMacro)]
        own = (
            Macro(id=one.macro_id, schema_id=one.schema_id, schema_name=one.schema_name, name=one.name, implementations=one.implementations)
            for one in made
        )
        return (*(one for one in committed if one.id not in dropped_ids), *own)

    def create_macro(self, owner: SchemaState, name: str, definitions: tuple[MacroImplementation, ...]) -> None:
        """Stage a new macro. Its name must be unused."""
        self.definitions.append(
            CreateMacro(macro_id=self._local_id(), schema_id=owner.id, schema_name=owner.name, name=name, implementations=definitions)
        )

    def drop_macro(self, found: CreateMacro | DropMacro) -> None:
        """Stage dropping a macro."""
        if isinstance(found, CreateMacro):
            self.definitions.remove(found)
        else:
            self.definitions.append(found)

    def is_dropped(self, table_id: int) -> bool:
        """Return whether the transaction drops a table of its base snapshot."""
        return any(isinstance(action, DropTable) and action.table_id == table_id for action in self.definitions)

    def drop_schema(self, state: SchemaState, *, cascade: bool) -> None:
        """Stage dropping a schema.

        Args:
            state: The schema.
            cascade: Whether to drop everything in it, too.

        Raises:
            UsageError: It is not empty, and ``cascade`` is False.
        """
        tables = [staged for staged in self.tables if staged.state.schema_id == state.id]
        views = [staged for staged in self.views if staged.state.schema_id == state.id]
        new_macros = [action for action in self.definitions if isinstance(action, CreateMacro) and action.schema_id == state.id]
        inside = [action for action in self._dropped_with(state) if action not in self.definitions]
        within = self.schemas_within(state)
        made = [table.state.name for table in tables if table.create] + [view.state.name for view in views if view.committed is None]
        made += [action.name for action in new_macros] + [schema.name for schema in within]
        if (inside or made) and not cascade:
            names = ", ".join([action.name for action in inside] + made)
            raise UsageError(
                f"Schema {state.name!r} is not empty: it contains {names}. Drop these first, or drop the schema with CASCADE",
                schema=state.name,
            )
        for schema in within:
            self.drop_schema(schema, cascade=True)
        self._tables = {key: table for key, table in self._tables.items() if table.state.schema_id != state.id}
        self._views = {key: view for key, view in self._views.items() if view.state.schema_id != state.id}
        dropped_ids = [
            *new_macros,
            *(action for action in self.definitions if isinstance(action, TagSchema) and action.schema_id == state.id),
        ]
        self.definitions = [*(action for action in self.definitions if action not in dropped_ids), *inside]
        self._forget_schema(state)

    def _dropped_with(self, state: SchemaState) -> list[DropTable | DropView | DropMacro]:
        if state.id < 0:
            return []
        with self._lake.reader() as reader:
            return drops_of(reader, state, self.base.id)


def _key(schema: str, table: str) -> str:
    return folded(join_name(schema, table))


def drops_of(reader: CatalogReader, schema: SchemaState, snapshot_id: int) -> list[DropTable | DropView | DropMacro]:
    """Return the actions that drop all tables, views and macros of a schema."""
    own_tables = [table for table in reader.tables(snapshot_id) if table.schema_id == schema.id]
    own_views = [view for view in views(reader, snapshot_id) if view.schema_id == schema.id]
    own_macros = [macro for macro in macros(reader, snapshot_id) if macro.schema_id == schema.id]
    return [
        *(DropTable(table_id=table.id, schema_name=schema.name, name=table.name) for table in own_tables),
        *(DropView(view_id=view.id, schema_name=schema.name, name=view.name) for view in own_views),
        *(DropMacro(macro_id=macro.id, schema_name=schema.name, name=macro.name, kind=macro.kind) for macro in own_macros),
    ]
