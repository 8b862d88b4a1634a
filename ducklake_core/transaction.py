"""Several changes as one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ducklake_core.catalog.option_rows import StoredOptions, stored_options
from ducklake_core.catalog.state import Snapshot
from ducklake_core.commit.transaction import new_commit_id
from ducklake_core.engines import check_keys, engine_of, fitted_schema, is_stream, replayable, schema_of, write_files
from ducklake_core.errors import CommitConflictError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.chosen_partitions import partition_predicate
from ducklake_core.format.names import split_name
from ducklake_core.format.options import Options
from ducklake_core.format.predicate_parser import parse_predicate
from ducklake_core.inlining import inlined_part
from ducklake_core.publication import Publication
from ducklake_core.results import TransactionResult
from ducklake_core.staged_catalog import StagedCatalog
from ducklake_core.staged_table import AddRows, SelectKeys, SelectRows, StagedTable
from ducklake_core.table_staging import evolve, evolved
from ducklake_core.transaction_additions import AdditionVerb
from ducklake_core.transaction_definitions import DefinitionVerbs
from ducklake_core.transaction_rows import RowVerbs
from ducklake_core.transaction_table import TransactionTable
from ducklake_core.write_target import Target, check_mode

if TYPE_CHECKING:
    from ducklake_core.arrow.write_state import WriteState
    from ducklake_core.format.files import WrittenFile
    from ducklake_core.format.predicates import Predicate
    from ducklake_core.lake import DuckLake, Partitions, SchemaEvolution, Where, WriteMode


class Transaction(RowVerbs, DefinitionVerbs, AdditionVerb):
    """Changes staged against one snapshot. Made by :meth:`DuckLake.transaction`.

    Rows are written to files at once, by each call, or kept for the catalog when they are few; nothing is visible before
    the block ends.  Every call sees the rows that were committed when the block began and what earlier calls have made of them, and so
    do reads by :meth:`table`.  When another writer gets in between, changes to rows are carried out again on the newest snapshot, in the
    same order and with the same new rows, and committed then, unless rows were read in the block of a table that others have changed;
    that, and changes to columns, raise :class:`CommitConflictError`.
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
        self._base = base
        self._staged: StagedCatalog | None = None
        self._repeated: Snapshot | None = None
        self._result: TransactionResult | None = None

    def __enter__(self) -> Self:
        self._lake.database.check_writable()
        if self._base is None:
            with self._lake.reader() as reader:
                self._base = reader.latest_snapshot(), stored_options(reader.connection, self._lake.database.tables)
            self._lake.known_tables.note(*self._base)
        self._staged = StagedCatalog(self._lake, *self._base)
        # After the base is known: the commit itself looks at later snapshots, so that no earlier run is overlooked.
        if self._publication.given:
            self._repeated = self._lake.find_commit(self._publication.commit_id)
        if Options.from_mapping(self._staged.options.in_force()).require_commit_message and not self._publication.message:
            raise UsageError("this lake requires a commit message (option require_commit_message): pass message=...")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._publication.discard()
        elif self._repeated is not None:
            self._result = TransactionResult(snapshot=self._repeated, repeated=True)
        else:
            staged = self._catalog
            self._result = self._publication.publish(staged.base, tuple(staged.definitions), staged.tables, staged.views)
            if self._result.snapshot is not None:
                self._lake.known_tables.note(self._result.snapshot, staged.options)
        self._base = self._staged = None

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

    def table(self, name: str) -> TransactionTable:
        """Reads of a table as the transaction has made it so far.

        Raises:
            NotFoundError: There is no such table, or the transaction has dropped it.
        """
        if self._repeated is not None:
            raise UsageError("an earlier run has committed this transaction, so it stages nothing to read: see Transaction.repeated")
        return TransactionTable(self._lake, self._publication, name, lambda: self._catalog)

    def append(self, name: str, data: Any, *, schema_evolution: SchemaEvolution = "strict", inline: bool | None = None) -> None:
        """Add rows to a table."""
        self.write(name, data, create=False, schema_evolution=schema_evolution, inline=inline)

    def overwrite(
        self,
        name: str,
        data: Any,
        *,
        where: Where = None,
        partitions: Partitions | None = None,
        schema_evolution: SchemaEvolution = "strict",
    ) -> None:
        """Replace the rows that match ``where``, or those of ``partitions``, by rows that all belong there; see :meth:`Table.overwrite`."""
        self.write(name, data, mode="overwrite", where=where, partitions=partitions, create=False, schema_evolution=schema_evolution)

    def upsert(self, name: str, data: Any, *, on: Sequence[str], schema_evolution: SchemaEvolution = "strict") -> None:
        """Replace rows with equal keys, and add the others."""
        self.write(name, data, mode="upsert", on=on, create=False, schema_evolution=schema_evolution)

    def write(
        self,
        name: str,
        data: Any,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        partitions: Partitions | None = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        comment: str | None = None,
        inline: bool | None = None,
    ) -> None:
        """Write a frame, creating the table or widening it where allowed; see :meth:`DuckLake.write`."""
        if self._repeated:
            return
        check_mode(mode, where, on, partitions)
        if inline and mode == "upsert" and engine_of(data) == "spark":
            raise UnsupportedFeatureError("upserts from a Spark DataFrame cannot be inlined: leave inline away", table=name)
        target = Target(name=name, create=create, partition_by=tuple(partition_by), comment=comment)
        with self._whole_or_nothing():
            staged = self._target(target, data, schema_evolution, only_append=mode == "append")
            if mode == "upsert":
                check_keys(on, staged.state)
                data = replayable(data)
            predicate = None if where is None else parse_predicate(where, staged.state.schema)
            if partitions is not None:
                predicate = partition_predicate(partitions, staged.state.partition_spec, staged.state.schema, staged.name)
            staged.written = True
            # The rows are written first: a key, or what satisfies the condition, is checked before anything is looked for.
            written = replace(self._write_rows(staged, data, predicate, inline), replaces=mode != "append")
            if mode == "upsert":
                self._stage(staged, SelectKeys(on=tuple(on), data=data, files=written.files))
            elif mode == "overwrite":
                self._stage(staged, SelectRows(where=predicate, data=None if is_stream(data) else data))
            self._stage(staged, written)

    def stage_created(self, files: Sequence[WrittenFile], state: WriteState, uuid: str) -> None:
        """Make a table of files that executors wrote for it; the transaction deletes them when it fails.

        Args:
            files: The files, verified.
            state: What their writers were told.
            uuid: The table's uuid, by which its directory was named.

        Raises:
            CommitConflictError: There is such a table meanwhile.
        """
        if self._repeated:
            return
        with self._whole_or_nothing():
            schema_name, name = split_name(state.table)
            if self._catalog.find_table(state.table) is not None:
                raise CommitConflictError(
                    f"table {state.table} was made by somebody else while rows for it were written; run the write again", table=state.table
                )
            owner = self._catalog.schema(schema_name)
            staged = self._catalog.create_table(owner, name, state.schema, (), None, uuid=uuid)
            self._publication.own(staged.paths(files))
            staged.written = True
            self._stage(staged, AddRows(files=tuple(files)))

    def stage_written(self, files: Sequence[WrittenFile], state: WriteState, table_id: int, *, overwrite: bool = False) -> None:
        """Make files that executors wrote part of the commit; the transaction deletes them when it fails.

        Args:
            files: The files, verified.
            state: What their writers were told.
            table_id: Id of the table that they were told of.
            overwrite: Whether they replace all rows.

        Raises:
            CommitConflictError: The table is no longer what the files were written for.
        """
        if self._repeated:
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(state.table)
            self._publication.own(staged.paths(files))
            found = staged.state
            if (found.id, found.schema, found.partition_spec) != (table_id, state.schema, state.partition_spec):
                raise CommitConflictError(
                    f"columns or partition keys of {state.table} were changed while its rows were written; run the write again",
                    table=state.table,
                )
            staged.written = True
            if overwrite:
                self._stage(staged, SelectRows(where=None))
            self._stage(staged, AddRows(files=tuple(files), replaces=overwrite))

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """A call that fails leaves nothing staged, should its error be caught and the transaction go on."""
        with self._catalog.whole_or_nothing(), self._publication.one_call():
            yield

    def _write_rows(self, staged: StagedTable, data: Any, promise: Predicate | None, inline: bool | None) -> AddRows:
        state = self._publication.write_state(staged, promise=promise)
        rows, data = inlined_part(data, state, inline)
        if rows is not None:
            return AddRows(inlined=rows)
        files = write_files(data, state)
        self._publication.own(staged.paths(files))
        return AddRows(files=tuple(files))

    def _target(self, target: Target, data: Any, mode: SchemaEvolution, *, only_append: bool) -> StagedTable:
        name = target.name
        staged = self._catalog.find_table(name, only_append=only_append)
        if staged is None:
            if not target.create:
                raise NotFoundError(
                    f"there is no table {name} at snapshot {self._catalog.base.id}", table=name, snapshot_id=self._catalog.base.id
                )
            schema_name, table_name = split_name(name)
            owner = self._catalog.find_schema(schema_name) or self._catalog.create_schema(schema_name, or_existing=True)
            columns = schema_of(data)
            return self._catalog.create_table(owner, table_name, columns, target.partition_by, target.comment, or_existing=True)
        frame = fitted_schema(data, staged.state.schema)
        wanted, differences = evolve(staged.state, frame, mode)
        if wanted is not staged.state:
            self._stage(staged, staged.alteration(partial(evolved, frame=frame, mode=mode), asked=False))
            staged.differences += differences
        return staged

    @property
    def _catalog(self) -> StagedCatalog:
        if self._staged is None:
            raise UsageError("the transaction is not open: use it in a with block")
        return self._staged
