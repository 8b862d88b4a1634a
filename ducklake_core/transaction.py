"""Several changes as one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ducklake_core.arrow.write_state import WriteState
from ducklake_core.catalog.option_rows import StoredOptions, stored_options
from ducklake_core.catalog.other_entries import other_entries
from ducklake_core.catalog.state import SchemaState, Snapshot
from ducklake_core.catalog.visibility import same_name
from ducklake_core.commit.actions import Action, DropSchema, DropTable
from ducklake_core.commit.transaction import new_commit_id
from ducklake_core.engines import check_keys, fitted_schema, is_stream, replayable, schema_of, write_files
from ducklake_core.errors import AlreadyExistsError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.names import folded, join_name, split_name
from ducklake_core.format.options import Options
from ducklake_core.format.predicate_parser import parse_predicate
from ducklake_core.publication import Publication
from ducklake_core.results import TransactionResult
from ducklake_core.staged_table import SelectKeys, SelectRows, StagedTable
from ducklake_core.table_staging import evolve, new_schema, new_table
from ducklake_core.write_target import Target, check_mode

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.format.predicates import Predicate
    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import DuckLake, SchemaEvolution, Where, WriteMode


class Transaction:
    """Changes staged against one snapshot. Made by :meth:`DuckLake.transaction`.

    Rows are written to files at once, by each call; nothing is visible before the block ends.  Deletes and overwrites see
    the rows that were committed when the block began.  When another writer gets in between, changes to rows are planned
    again on the newest snapshot, with the same data files, and committed then; changes to columns raise
    :class:`CommitConflictError`.
    """

    def __init__(
        self,
        lake: DuckLake,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, Any] | None = None,
        commit_id: str | None = None,
        base: tuple[Snapshot, StoredOptions] | None = None,
    ) -> None:
        self._lake = lake
        self._publication = Publication(
            lake, author=author, message=message, extra_info=extra_info, commit_id=commit_id or new_commit_id(), given=commit_id is not None
        )
        self._schemas: dict[str, SchemaState] = {}
        self._definitions: list[Action] = []
        self._tables: dict[str, StagedTable] = {}
        self._base: Snapshot | None = base[0] if base else None
        self._repeated: Snapshot | None = None
        self._result: TransactionResult | None = None
        self._options = base[1] if base else StoredOptions()
        self._last_local_id = 0

    def __enter__(self) -> Self:
        self._lake.database.check_writable()
        if self._base is None:
            with self._lake.reader() as reader:
                self._base = reader.latest_snapshot()
                self._options = stored_options(reader.connection, self._lake.database.tables)
            self._lake.known_tables.note(self._base, self._options)
        # After the base is known: the commit itself looks at later snapshots, so that no earlier run is overlooked.
        if self._publication.given:
            self._repeated = self._lake.find_commit(self._publication.commit_id)
        if Options.from_mapping(self._options.in_force()).require_commit_message and not self._publication.message:
            raise UsageError("this lake requires a commit message (option require_commit_message): pass message=...")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._publication.discard()
        elif self._repeated is not None:
            self._result = TransactionResult(snapshot=self._repeated, repeated=True)
        else:
            self._result = self._publication.publish(self._open(), tuple(self._definitions), tuple(self._tables.values()))
            if self._result.snapshot is not None:
                self._lake.known_tables.note(self._result.snapshot, self._options)
        self._base = None

    @property
    def result(self) -> TransactionResult:
        """What the transaction became; only after the block has ended without an error.

        Raises:
            UsageError: Before that.
        """
        if self._result is None:
            raise UsageError("the transaction has no result: its block has not ended, or it failed")
        return self._result

    @property
    def repeated(self) -> Snapshot | None:
        """The snapshot that an earlier run committed with the same commit id; while it is there, calls do nothing."""
        return self._repeated

    def create_schema(self, name: str) -> None:
        """Create a schema.

        Raises:
            AlreadyExistsError: It exists.
        """
        if self._repeated:
            return
        if self._find_schema(name) is not None:
            raise AlreadyExistsError(f"there is a schema {name!r} already at snapshot {self._open().id}", schema=name)
        self._create_schema(name)

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema that is empty, or with ``cascade`` together with its tables.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty, or this transaction has put something into it.
            UnsupportedFeatureError: It has views or macros.
        """
        if self._repeated:
            return
        state = self._find_schema(name)
        if state is None or state.id < 0:
            raise NotFoundError(f"there is no schema {name!r} at snapshot {self._open().id}", schema=name)
        with self._lake.reader() as reader:
            inside = [item for item in reader.tables(self._open().id) if item.schema_id == state.id and not self._is_dropped(item.id)]
            others = [entry for _, entry in other_entries(reader.connection, reader.catalog, state.id, self._open().id)]
        if others:
            # Left behind, they would keep the reference from opening the lake.
            raise UnsupportedFeatureError(
                f"schema {state.name!r} has views or macros ({', '.join(others)}), which this library cannot drop; do so with DuckDB",
                schema=state.name,
            )
        staged = [table.name for table in self._tables.values() if table.state.schema_id == state.id and (table.create or table.written)]
        if staged:
            raise UsageError(f"{', '.join(staged)} was created or written in this same transaction", schema=state.name)
        if inside and not cascade:
            raise UsageError(f"schema {state.name!r} has {len(inside)} tables; drop them first, or pass cascade=True", schema=state.name)
        self._definitions += [DropTable(table_id=item.id, schema_name=item.schema_name, name=item.name) for item in inside]
        self._definitions.append(DropSchema(schema_id=state.id, name=state.name))

    def create_table(
        self, name: str, schema: Schema | pa.Schema | Any, *, partition_by: Sequence[str] = (), comment: str | None = None
    ) -> None:
        """Create a table, which later calls of this transaction may write to.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: Its schema does not.
        """
        if self._repeated:
            return
        schema_name, table_name = split_name(name)
        if self._find_table(name) is not None:
            raise AlreadyExistsError(f"there is a table {name} already at snapshot {self._open().id}", table=name)
        owner = self._find_schema(schema_name)
        if owner is None:
            raise NotFoundError(f"there is no schema {schema_name!r} at snapshot {self._open().id}", schema=schema_name)
        self._create_table(owner, table_name, schema_of(schema), partition_by, comment)

    def drop_table(self, name: str) -> None:
        """Drop a table.

        Raises:
            NotFoundError: No such table.
        """
        if self._repeated:
            return
        staged = self._table(name)
        if staged.committed is None or staged.written:
            raise UsageError(f"table {name} was created or written in this same transaction", table=name)
        state = staged.committed
        self._definitions.append(DropTable(table_id=state.id, schema_name=state.schema_name, name=state.name))
        del self._tables[self._key(*split_name(name))]

    def append(self, name: str, data: Any, *, schema_evolution: SchemaEvolution = "strict") -> None:
        """Add rows to a table."""
        self.write(name, data, create=False, schema_evolution=schema_evolution)

    def overwrite(self, name: str, data: Any, *, where: Where = None, schema_evolution: SchemaEvolution = "strict") -> None:
        """Replace the rows that match ``where`` (all without it) by rows that all match it too."""
        self.write(name, data, mode="overwrite", where=where, create=False, schema_evolution=schema_evolution)

    def upsert(self, name: str, data: Any, *, on: Sequence[str], schema_evolution: SchemaEvolution = "strict") -> None:
        """Replace rows with equal keys, and add the others."""
        self.write(name, data, mode="upsert", on=on, create=False, schema_evolution=schema_evolution)

    def delete(self, name: str, where: Where) -> None:
        """Delete the rows for which ``where`` is true; all rows when it is None."""
        if self._repeated:
            return
        self._check_plain()
        with self._whole_or_nothing():
            staged = self._table(name)
            predicate = None if where is None else parse_predicate(where, staged.state.schema)
            staged.select(SelectRows(where=predicate))
            staged.written = True
            self._publication.find_deletions(staged, self._open())

    def write(
        self,
        name: str,
        data: Any,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        comment: str | None = None,
    ) -> None:
        """Write a frame, creating the table or widening it where allowed; see :meth:`DuckLake.write`."""
        if self._repeated:
            return
        check_mode(mode, where, on)
        self._open()
        self._check_plain()
        target = Target(name=name, create=create, partition_by=tuple(partition_by), comment=comment)
        with self._whole_or_nothing():
            staged = self._target(target, data, schema_evolution, only_append=mode == "append")
            if mode == "upsert":
                check_keys(on, staged.state)
                data = replayable(data)
                staged.select(SelectKeys(on=tuple(on), data=data))
            predicate = None if where is None else parse_predicate(where, staged.state.schema)
            if mode == "overwrite":
                staged.select(SelectRows(where=predicate, data=None if is_stream(data) else data))
            staged.written = True
            self._write_rows(staged, data, predicate)
            if mode != "append":
                self._publication.find_deletions(staged, self._open())

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """A call that fails leaves nothing staged, should its error be caught and the transaction go on."""
        definitions, schemas = list(self._definitions), dict(self._schemas)
        tables = {key: replace(staged, files=list(staged.files)) for key, staged in self._tables.items()}
        try:
            with self._publication.one_call():
                yield
        except BaseException:
            self._definitions, self._schemas, self._tables = definitions, schemas, tables
            raise

    def _write_rows(self, staged: StagedTable, data: Any, promise: Predicate | None) -> None:
        table = staged.state
        state = WriteState(
            table=staged.name,
            directory=self._lake.info.checked_location(table.path, f"table {staged.name}", table=staged.name),
            schema=table.schema,
            partition_spec=table.partition_spec,
            storage=self._lake.storage,
            options=Options.from_mapping(table.options),
            promise=promise,
        )
        files = write_files(data, state)
        self._publication.own(staged.paths(files))
        staged.files += files

    def _target(self, target: Target, data: Any, mode: SchemaEvolution, *, only_append: bool) -> StagedTable:
        name = target.name
        staged = self._find_table(name, only_append=only_append)
        if staged is None:
            if not target.create:
                raise NotFoundError(f"there is no table {name} at snapshot {self._open().id}", table=name, snapshot_id=self._open().id)
            schema_name, table_name = split_name(name)
            owner = self._find_schema(schema_name) or self._create_schema(schema_name, or_existing=True)
            columns = schema_of(data)
            return self._create_table(owner, table_name, columns, target.partition_by, target.comment, or_existing=True)
        frame = fitted_schema(data, staged.state.schema)
        if staged.alter is None and not staged.files:
            staged.state, staged.alter, staged.differences = evolve(staged.state, frame, mode)
        else:
            # A second write to the table: its columns are settled.
            evolve(staged.state, frame, "strict")
        if staged.create is not None and staged.alter is not None:
            raise UsageError(f"the frame does not have the columns that {name} was created with in this transaction", table=name)
        return staged

    def _check_plain(self) -> None:
        if self._lake.info.encrypted:
            raise UnsupportedFeatureError("writing to an encrypted lake is not supported; write it with DuckDB")

    def _create_schema(self, name: str, *, or_existing: bool = False) -> SchemaState:
        action, state = new_schema(name, self._local_id(), self._lake.info, or_existing=or_existing)
        self._definitions.append(action)
        self._schemas[folded(name)] = state
        return state

    def _create_table(
        self,
        owner: SchemaState,
        name: str,
        columns: Schema,
        partition_by: Sequence[str],
        comment: str | None,
        *,
        or_existing: bool = False,
    ) -> StagedTable:
        if owner.id >= 0:
            with self._lake.reader() as reader:
                others = other_entries(reader.connection, reader.catalog, owner.id, self._open().id)
            if any(kind == "view" and same_name(entry, name) for kind, entry in others):
                raise AlreadyExistsError(f"there is a view {owner.name}.{name} already; tables and views share their names", table=name)
        options = self._options.in_force(owner.id if owner.id >= 0 else None)
        create, state = new_table(
            owner,
            name,
            columns,
            local_id=self._local_id(),
            partition_by=partition_by,
            comment=comment,
            options=options,
            snapshot_id=self._open().id,
            or_existing=or_existing,
        )
        staged = StagedTable(state=state, committed=None, create=create)
        self._tables[self._key(owner.name, name)] = staged
        return staged

    def _find_schema(self, name: str) -> SchemaState | None:
        if folded(name) in self._schemas:
            return self._schemas[folded(name)]
        with self._lake.reader() as reader:
            found = next((state for state in reader.schemas(self._open().id) if same_name(state.name, name)), None)
        dropped = {action.schema_id for action in self._definitions if isinstance(action, DropSchema)}
        return found if found is not None and found.id not in dropped else None

    def _is_dropped(self, table_id: int) -> bool:
        return any(isinstance(action, DropTable) and action.table_id == table_id for action in self._definitions)

    def _find_table(self, name: str, *, only_append: bool = False) -> StagedTable | None:
        try:
            return self._table(name, only_append=only_append)
        except NotFoundError:
            return None

    def _table(self, name: str, *, only_append: bool = False) -> StagedTable:
        schema_name, table_name = split_name(name)
        key = self._key(schema_name, table_name)
        staged = self._tables.get(key)
        if staged is not None and not (staged.remembered and not only_append):
            return staged
        state = self._lake.known_tables.at(self._open(), schema_name, table_name, self._options) if only_append else None
        remembered = state is not None
        if state is None:
            with self._lake.reader() as reader:
                state = reader.table(schema_name, table_name, self._open().id)
            self._lake.known_tables.remember(schema_name, table_name, state)
        if staged is not None:
            staged.committed, staged.remembered = state, False
            return staged
        if self._is_dropped(state.id):
            raise NotFoundError(f"table {name} was dropped in this transaction", table=name)
        self._tables[key] = StagedTable(state=state, committed=state, remembered=remembered)
        return self._tables[key]

    @staticmethod
    def _key(schema: str, table: str) -> str:
        return folded(join_name(schema, table))

    def _local_id(self) -> int:
        self._last_local_id -= 1
        return self._last_local_id

    def _open(self) -> Snapshot:
        if self._base is None:
            raise UsageError("the transaction is not open: use it in a with block")
        return self._base
