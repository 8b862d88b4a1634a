"""The catalog as an open transaction sees it: its base snapshot, and on top of it what the transaction has staged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ducklake_core.catalog.option_rows import StoredOptions
from ducklake_core.catalog.other_entries import other_entries
from ducklake_core.catalog.state import SchemaState, Snapshot
from ducklake_core.catalog.visibility import same_name
from ducklake_core.commit.actions import Action, DropSchema, DropTable
from ducklake_core.errors import AlreadyExistsError, NotFoundError
from ducklake_core.format.names import folded, join_name, split_name
from ducklake_core.staged_table import StagedTable
from ducklake_core.table_staging import new_schema, new_table

if TYPE_CHECKING:
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
        self._last_local_id = 0

    @property
    def tables(self) -> tuple[StagedTable, ...]:
        """The tables that were asked for so far."""
        return tuple(self._tables.values())

    @contextmanager
    def whole_or_nothing(self) -> Iterator[None]:
        """A block that fails leaves nothing staged, should its error be caught and the transaction go on."""
        definitions, schemas, tables = list(self.definitions), dict(self._schemas), dict(self._tables)
        # Of thousands of tables a call touches few: only those are copied.
        touched = self._touched = {}
        try:
            yield
        except BaseException:
            self.definitions, self._schemas, self._tables = definitions, schemas, tables | {k: v for k, v in touched.items() if k in tables}
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
            self._touched.setdefault(key, replace(staged, files=list(staged.files), added=list(staged.added), inlined=list(staged.inlined)))
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
        self._tables[key] = StagedTable(state=state, committed=state, remembered=remembered)
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
    ) -> StagedTable:
        """Stage a new table.

        Raises:
            AlreadyExistsError: A view has the name.
            SchemaError: Columns or partition keys that no table can have.
        """
        if owner.id >= 0:
            with self._lake.reader() as reader:
                others = other_entries(reader.connection, reader.catalog, owner.id, self.base.id)
            if any(kind == "view" and same_name(entry, name) for kind, entry in others):
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
        )
        staged = StagedTable(state=state, committed=None, create=create)
        self._tables[_key(owner.name, name)] = staged
        return staged

    def forget_table(self, name: str) -> None:
        """Take back what is staged for a table."""
        del self._tables[_key(*split_name(name))]

    def is_dropped(self, table_id: int) -> bool:
        """Whether the transaction drops a table of its base snapshot."""
        return any(isinstance(action, DropTable) and action.table_id == table_id for action in self.definitions)

    def _local_id(self) -> int:
        self._last_local_id -= 1
        return self._last_local_id


def _key(schema: str, table: str) -> str:
    return folded(join_name(schema, table))
