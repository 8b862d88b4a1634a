"""Several changes as one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from ducklake_core.catalog.database.failures import CallRetries
from ducklake_core.catalog.reading.definitions import former_tables
from ducklake_core.catalog.reading.maintenance import mappings_of_table, named_already
from ducklake_core.catalog.reading.options import stored_options
from ducklake_core.catalog.reading.table_rows import COMMENT
from ducklake_core.commit import alterations
from ducklake_core.commit.alterations import Alteration
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.request import operation
from ducklake_core.engines.arrow.frame import no_columns
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.engines.frame import Frame, check_source_keys, frame_of
from ducklake_core.engines.frame import columns_of as frame_columns
from ducklake_core.engines.spark.session import in_session_zone
from ducklake_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    UsageError,
)
from ducklake_core.format import arguments
from ducklake_core.format.evolution.defaults import checked_defaults
from ducklake_core.format.evolution.reconciliation import may_not_fit
from ducklake_core.format.evolution.schema_edits import column_path, find_node
from ducklake_core.format.expressions.conditions import Column, bind
from ducklake_core.format.files.paths import file_key
from ducklake_core.format.layout.chosen_partitions import partition_predicate, written_partitions
from ducklake_core.format.layout.sort_parser import is_column
from ducklake_core.format.macros import MACRO_KINDS, view_text
from ducklake_core.format.options import Options
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, dotted, folded, join_name, schema_path, split_name, storable
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import visible
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.temporal import in_zone
from ducklake_core.merge_builder import Merge, MergeClause
from ducklake_core.planning.plan import with_virtual
from ducklake_core.results import TransactionResult, WriteResult, single_result, with_not_created
from ducklake_core.sql.staged_queries import StagedQueries, StagedQuery
from ducklake_core.sql.statements import Statement
from ducklake_core.staging.adding import Paths, encrypted_files_rejection, find_files, inspect_files, local_path
from ducklake_core.staging.arguments import (
    ConcurrentAppends,
    FrameLike,
    MissingColumns,
    Partitions,
    SchemaEvolution,
    Where,
    WriteMode,
    WriteRequest,
    check_keys,
    missing_columns_of,
    resolve_at,
)
from ducklake_core.staging.context import LakeContext
from ducklake_core.staging.lake_restore import LakeRestore
from ducklake_core.staging.namespace import StagedCatalog
from ducklake_core.staging.publish import CommitCoordinator, columns_of
from ducklake_core.staging.reads import TransactionTable
from ducklake_core.staging.staged_rows import inlined_part
from ducklake_core.staging.staged_table import (
    AddDataFiles,
    AddRows,
    Altered,
    ChangeRows,
    DeleteByKeys,
    DeleteWhere,
    RestoreRows,
    StagedTable,
    check_existing,
    check_not_lacking,
    check_replaceable,
    check_whole_structs,
    evolve,
    evolved,
    is_key,
)
from ducklake_core.storage.added_files import AddingRules
from ducklake_core.storage.filesystems import printable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_core.catalog.reading.reader import CatalogReader
    from ducklake_core.engines.arrow.merge import ChangeRequest
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.files.data_files import WrittenFile
    from ducklake_core.format.macros import MacroKind
    from ducklake_core.format.state import SchemaState, TableState
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.sql.changes import ComputedChange
    from ducklake_core.staging.arguments import At, RestoredColumns, SqlParameters
    from ducklake_core.staging.context import Base
    from ducklake_core.staging.staged_table import StagedView, Step

Given = TypeVar("Given")


# The life of a transaction:
#
#   __enter__   take the base snapshot, and search for an earlier run with the same commit id
#   a call      _is_done notes the operation, _whole_or_nothing undoes a call that fails, _stage applies a step to a table
#   __exit__    publish the steps as one snapshot, planning again after conflicts; after an error, delete all files
#
# When an earlier run has committed (``repeated``), calls only note their operation. The end compares the notes with those of the earlier
# run: the same commit id for other work is an error, not a success.
class Transaction:
    """Changes staged against one snapshot. Made by :meth:`DuckLake.transaction`.

    Rows are written to files at once, by each call, or kept for the catalog when they are few; nothing is visible before
    the block ends.  Every call sees the rows that were committed when the block began and what earlier calls have made of them, and so
    do reads by :meth:`table`.  When another writer gets in between, changes to rows are carried out again on the newest snapshot, in the
    same order and with the same new rows, and committed then, unless rows were read in the block of a table that others have changed;
    that, and changes to columns, raise :class:`CommitConflictError`.
    """

    def __init__(
        self,
        lake: LakeContext,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, object] | None = None,
        commit_id: str | None = None,
        base: Base | None = None,
        retries: CallRetries | None = None,
    ) -> None:
        arguments.check_commit({"author": author, "message": message, "extra_info": extra_info, "commit_id": commit_id})
        self._lake = lake
        self._coordinator = CommitCoordinator(
            lake, author=author, message=message, extra_info=extra_info, commit_id=commit_id, recent=base, retries=retries
        )
        self._base = base
        self._staged: StagedCatalog | None = None
        self._repeated: Snapshot | None = None
        self._not_created: list[str] = []
        self._result: TransactionResult | None = None

    def __enter__(self) -> Self:
        self._lake.database.check_writable()
        if self._base is None:
            self._base = self._lake.table_cache.read(self._lake.database, self._lake.info)
        self._staged = StagedCatalog(self._lake, self._base.snapshot, self._base.options, self._base.history)
        # After the base is known: the commit itself reads later snapshots, so that no earlier run is overlooked.
        if self._coordinator.given:
            self._repeated = Committer(self._lake.database).find_commit(self._coordinator.commit_id)
        if Options.from_mapping(self._staged.options.effective()).require_commit_message and not self._coordinator.message:
            raise UsageError("this lake requires a commit message, by its option require_commit_message", parameter="message")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._finish(error)
        finally:
            # In every case: until then, sweeps of other processes keep the files of this write.
            self._coordinator.end()

    def _finish(self, error: BaseException | None) -> None:
        """Commit, unless an error has ended the block."""
        if error is not None:
            self._coordinator.discard()
        elif self._repeated is not None:
            self._coordinator.check_repeated(self._repeated)
            self._result = TransactionResult(snapshot=self._repeated, repeated=True)
        else:
            staged = self._catalog
            published = self._coordinator.publish(staged.base, tuple(staged.definitions), staged.tables, staged.views)
            self._result = with_not_created(published, self._not_created, staged.base)
            if self._result.snapshot is not None and not self._result.repeated and self._base is not None:
                self._base.history.note(self._result.snapshot, staged.options)
        self._base = self._staged = None

    def __repr__(self) -> str:
        if self._result is not None:
            return f"<Transaction that became {self._result}>"
        if self._staged is None or self._base is None:
            return "<Transaction that is not open>"
        names = [visible(staged.name) for staged in self._staged.tables]
        tables = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" or "no table so far"
        return f"<Transaction on snapshot {self._base.snapshot.id}, open: {tables}>"

    @property
    def result(self) -> TransactionResult:
        """The outcome of the transaction; available once the block has ended without an error.

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

    @property
    def is_on_recent_base(self) -> bool:
        """Return whether the transaction was planned on a snapshot that was seen before the call."""
        return self._coordinator.is_recent

    def table(self, name: str) -> TransactionTable:
        """Return a table for reads, as the transaction has made it so far.

        Args:
            name: ``table`` or ``schema.table``.

        Raises:
            NotFoundError: There is no such table, or the transaction has dropped it.
        """
        if self._repeated is not None:
            raise UsageError("an earlier run has committed this transaction, so it stages nothing to read: see Transaction.repeated")
        return TransactionTable(self._lake, self._coordinator, name, lambda: self._catalog)

    def guard(self, name: str) -> None:
        """Let nobody get in between: the commit fails when others have changed rows or columns of a table since the block began.

        Rows that were read in the block, to decide whether to commit, are then still those that the commit builds on. Without it a
        plain append goes on top of what others have added.

        Args:
            name: ``table`` or ``schema.table``.

        Raises:
            CommitConflictError: When the block ends, if another writer was faster.
            NotFoundError: There is no such table.
        """
        if self._is_done("guard", name):
            return
        staged = self._catalog.table(name)
        staged.guarded = True
        self._coordinator.note_read(staged)

    def append(
        self,
        name: str,
        data: FrameLike,
        *,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        inline: bool | None = None,
    ) -> None:
        """Add rows to a table; see :meth:`DuckLake.write` for the arguments.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as :meth:`DuckLake.write` takes them.
        """
        request = WriteRequest(name=name, schema_evolution=schema_evolution, missing_columns=missing_columns, inline=inline)
        self._write_frame(frame_of(data), request)

    def overwrite(
        self,
        name: str,
        data: FrameLike,
        *,
        where: Where = None,
        partitions: Partitions | None = None,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        concurrent_appends: ConcurrentAppends = "fail",
        read_at: int | None = None,
    ) -> None:
        """Replace the rows that match ``where``, or those of ``partitions``, by rows that all belong there; see :meth:`Table.overwrite`.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as :meth:`DuckLake.write` takes them.
        """
        request = WriteRequest(
            name=name,
            mode="overwrite",
            where=where,
            partitions=partitions,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            concurrent_appends=concurrent_appends,
            read_at=read_at,
        )
        self._write_frame(frame_of(data), request)

    def upsert(
        self,
        name: str,
        data: FrameLike,
        *,
        on: Sequence[str],
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
    ) -> None:
        """Replace rows with equal keys, and add the others; see :meth:`Table.upsert`.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as :meth:`DuckLake.write` takes them.
            on: Key columns.
        """
        request = WriteRequest(name=name, mode="upsert", on=on, schema_evolution=schema_evolution, missing_columns=missing_columns)
        self._write_frame(frame_of(data), request)

    def write(  # noqa: PLR0913 - the arguments of DuckLake.write
        self,
        name: str,
        data: FrameLike,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        partitions: Partitions | None = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        comment: str | None = None,
        inline: bool | None = None,
        concurrent_appends: ConcurrentAppends | None = None,
        read_at: int | None = None,
    ) -> None:
        """Write a frame, creating the table or widening it where allowed; see :meth:`DuckLake.write`.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as :meth:`DuckLake.write` takes them.
        """
        request = WriteRequest(
            name=name,
            mode=mode,
            where=where,
            partitions=partitions,
            on=on,
            create=create,
            partition_by=partition_by,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            comment=comment,
            inline=inline,
            concurrent_appends=concurrent_appends,
            read_at=read_at,
        )
        self._write_frame(frame_of(data), request)

    def _write_frame(self, frame: Frame, request: WriteRequest) -> None:
        """Write what an operation was given as rows: see :meth:`write`."""
        name, mode, where, on, inline = request.name, request.mode, request.where, request.on, request.inline
        if self._is_done(mode, name, where, request.partitions, on or None):
            return
        if inline and mode == "upsert" and frame.session is not None:
            raise UnsupportedFeatureError("upserts from a Spark DataFrame cannot be inlined: leave inline away", table=name)
        with self._whole_or_nothing(), in_session_zone(frame.session):
            staged, frame, is_empty = self._target(request, frame)
            if staged is None:
                return
            if mode == "upsert":
                check_keys(on, staged.state)
                check_whole_structs(staged.state, frame.schema)
                # The rows are read for the new files and again for the keys of the rows that they replace, after conflicts too.
                frame = frame.replayable()
            predicate = None if where is None else bind(where, staged.state.schema)
            in_data = request.replaces_in_data
            if in_data:
                check_replaceable(staged.state, inline)
                # Only files carry partition values, which name the partitions to replace.
                inline = False
            elif request.partitions is not None and not isinstance(request.partitions, str):
                predicate = partition_predicate(request.partitions, staged.state.partition_spec, staged.state.schema, staged.name)
            elif mode == "overwrite" and predicate is None and staged.create is None:
                frame.check_overwrites_all(staged.state)
            staged.written = True
            deletes = DeleteWhere(where=predicate, session=frame.session, rejects_unseen=request.concurrent_appends != "replace")
            if is_empty:
                if mode == "overwrite" and not in_data:
                    self._stage_overwrite(staged, deletes, request.read_at)
                return
            if mode == "upsert" and any(frame.schema.find(column.name) is None for column in staged.state.schema):
                self._update_by_keys(staged, frame, on, inline=inline)
                return
            # The rows are written first: a key, or what satisfies the condition, is checked before anything is searched for.
            written = replace(self._write_rows(staged, frame, predicate, inline), replaces=mode != "append")
            if mode == "upsert":
                self._stage(staged, DeleteByKeys(on=tuple(on), frame=frame, files=written.files))
            elif in_data:
                self._replace_partitions(staged, written.files, deletes, request.read_at)
            elif mode == "overwrite":
                self._stage_overwrite(staged, deletes, request.read_at)
            self._stage(staged, written)

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Undo everything that a failing call has staged, so that its error can be caught and the transaction continued."""
        with self._catalog.whole_or_nothing(), self._coordinator.one_call():
            yield

    def _write_rows(self, staged: StagedTable, frame: Frame, row_constraint: Predicate | None, inline: bool | None) -> AddRows:
        state = self._coordinator.write_state(staged, given=frame.schema.names, row_constraint=row_constraint)
        rows, frame = inlined_part(frame, state, inline)
        if rows is not None:
            return AddRows(inlined=rows)
        return AddRows(files=self._coordinator.write_rows(staged, frame, state))

    def _target(self, request: WriteRequest, frame: Frame) -> tuple[StagedTable | None, Frame, bool]:
        """Find the table of a write, or create it, and fit its columns to the frame.

        A frame without rows changes no columns, whatever its own are, and creates a table only when all of its columns have types.

        Returns:
            The table, None when it does not exist and is not created; the frame; and whether it is known to have no rows.
        """
        name, missing = request.name, missing_columns_of(request.missing_columns, request.schema_evolution)
        staged = self._catalog.find_table(name, only_append=request.mode == "append")
        if staged is None:
            if not request.create:
                return self._catalog.table(name), frame, False
            if not frame.is_typed:
                is_empty, frame = frame.checked_empty()
                if is_empty:
                    self._not_created.append(name)
                    return None, frame, True
            if not frame.schema.columns:
                raise no_columns(frame.kind)
            schema_name, table_name = split_name(name)
            owner = self._catalog.find_schema(schema_name) or self._catalog.create_schema(schema_name, or_existing=True, with_parents=True)
            created = self._catalog.create_table(owner, table_name, frame.schema, request.partition_by, request.comment, or_existing=True)
            return created, frame, False
        is_empty = frame.is_surely_empty
        if not is_empty:
            is_empty, frame = self._fit(staged, frame, request.schema_evolution, missing)
        check_existing(staged.state, request)
        return staged, frame, is_empty

    def _fit(self, staged: StagedTable, frame: Frame, mode: SchemaEvolution, missing: MissingColumns) -> tuple[bool, Frame]:
        """Fit the columns of a table to a frame; whether the frame was found to have no rows, and the frame with all of its rows."""
        columns = frame.schema_for(staged.state.schema)
        problem: DuckLakeError | None = None
        wanted, differences = staged.state, tuple[str, ...]()
        replaced: set[int] = set()

        def holds_only_nulls(column: Field, is_rejected: bool) -> bool:
            if not (is_rejected or mode == "additive" or frame.is_seen):
                return False
            if is_key(staged.state, column) or column.default is not None or not self._is_all_null(staged.name, column):
                return False
            replaced.add(column.id)
            return True

        try:
            if not columns.columns:
                raise no_columns(frame.kind)
            wanted, differences = evolve(staged.state, columns, mode, missing, holds_only_nulls)
        except (SchemaError, UsageError) as error:
            problem = error
        # Only now, because it may compute the frame. Without rows, columns that do not fit do not matter, and none are added.
        if problem is not None or wanted is not staged.state:
            is_empty, frame = frame.checked_empty()
            if is_empty:
                return True, frame
        if problem is not None:
            raise problem
        if wanted is not staged.state:
            # Rows that other writers add meanwhile may have values in a column that is replaced.
            staged.guarded = staged.guarded or bool(replaced)
            change = partial(evolved, frame=columns, mode=mode, missing_columns=missing, replaced=replaced)
            self._stage(staged, staged.alteration(change, requested=False))
            staged.differences += differences
        return False, frame

    def _is_all_null(self, name: str, column: Field) -> bool:
        """Return whether a table has rows, none of them with a value in a column; files whose statistics prove it are not opened."""
        scan = self.table(name).scan([dotted((column.name,))], where=Column((column.name,)).is_not_null())
        return not any(batch.num_rows for batch in scan.to_batches()) and self.table(name).scan().count() > 0

    @property
    def _catalog(self) -> StagedCatalog:
        if self._staged is None:
            raise UsageError("the transaction is not open: use it in a with block")
        return self._staged

    # State of the open transaction

    def _is_done(self, kind: str, name: str, *details: object, is_schema: bool = False) -> bool:
        """Note what a call does and to what; whether an earlier run has committed it, so that the call does nothing.

        Args:
            kind: What the call does.
            name: To what.
            details: Further parts that distinguish it from other work under the same commit id, such as the condition; equal in every run.
            is_schema: Whether ``name`` is that of a schema.
        """
        if self._coordinator.given:
            self._coordinator.operations.append(operation(kind, name, is_schema=is_schema, details=details))
        return self.repeated is not None

    def _without_macros(self, given: Given) -> Given | str:
        """Return a condition or expression with macros, as the transaction leaves them, in place of their calls."""
        from ducklake_core.catalog.reading.definitions import without_macro_calls

        return without_macro_calls(given, self._catalog.macros_now)

    def _check_expression(self, table: str, text: str, columns: Schema, target: Field | None = None) -> None:
        """Let DuckDB, where it is installed, bind an expression that a table will store; see :func:`check_expression`."""
        from ducklake_core.engines.duckdb.query import check_expression

        check_expression(table, self._without_macros(text), columns, target)

    def _stage(self, staged: StagedTable, step: Step) -> None:
        """Apply a step to a table; all but alterations count as writes to it."""
        staged.written = staged.written or not isinstance(step, Altered)
        self._coordinator.stage(staged, step, self._catalog.base)

    # Rows

    def delete(self, name: str, where: Where, *, spark: SparkSession | None = None) -> None:
        """Delete the rows for which ``where`` is true; all rows when it is None. It may name virtual columns, such as ``rowid``.

        Args:
            name: ``table`` or ``schema.table``.
            where: SQL text, or a condition built with :func:`ducklake_core.col`; None for all rows.
            spark: Session whose executors find the rows; this process does when None (the default).
        """
        where = arguments.optional(arguments.condition, "where", where)
        if self._is_done("delete", name, where):
            return
        with self._whole_or_nothing(), in_session_zone(spark):
            staged = self._catalog.table(name)
            plain = self._without_macros(where)
            predicate = None if plain is None else bind(plain, with_virtual(staged.state.schema))
            self._stage(staged, DeleteWhere(where=predicate, session=spark))

    def update(self, name: str, values: Mapping[str, object], *, where: Where = None, spark: SparkSession | None = None) -> None:
        """Change columns of the rows for which ``where`` is true; see :meth:`Table.update`.

        Args:
            name: ``table`` or ``schema.table``.
            values: Values by column, as in :meth:`Table.update`.
            where: Rows to change; all when None (the default).
            spark: Session whose executors do the work; this process does when None (the default).
        """
        from ducklake_core.engines.arrow.merge import update_request

        values, where = arguments.mapping("values", values), arguments.optional(arguments.condition, "where", where)
        if self._is_done("update", name, values, where):
            return
        with self._whole_or_nothing(), in_session_zone(spark):
            staged = self._catalog.table(name)
            plain = {column: self._without_macros(value) for column, value in values.items()}
            request = update_request(staged.name, staged.state.schema, plain, self._without_macros(where))
            self._stage(staged, ChangeRows(request=request, session=spark))

    def merge(self, name: str, source: FrameLike, *, on: str | Sequence[str], missing_columns: MissingColumns | None = None) -> Merge[None]:
        """Change, delete and add rows from a source; see :meth:`Table.merge`. ``execute()`` stages it.

        Args:
            name: ``table`` or ``schema.table``.
            source: Rows, as :meth:`DuckLake.write` takes them.
            on: Columns that both have, or a condition; see :meth:`Table.merge`.
            missing_columns: ``error`` or ``null``; see :meth:`Table.merge`.
        """
        return Merge(name, lambda clauses: self.merge_clauses(name, source, on, clauses, missing_columns=missing_columns))

    def merge_clauses(
        self,
        name: str,
        source: FrameLike,
        on: str | Sequence[str],
        clauses: Sequence[MergeClause],
        *,
        missing_columns: MissingColumns | None = None,
    ) -> None:
        """Stage a merge whose branches are known."""
        on = on if isinstance(on, str) else arguments.names("on", on)
        if self._is_done("merge", name, on, tuple(clauses)):
            return
        missing = missing_columns_of(missing_columns, "strict")
        frame = frame_of(source)
        with self._whole_or_nothing(), in_session_zone(frame.session):
            staged = self._catalog.table(name)
            frame = frame_in_types_of(staged.state.schema, frame, clauses)
            try:
                # What is requested is checked before the source is computed.
                request = self._merge_request(staged, frame, on, clauses, missing)
            except DuckLakeError:
                # Without rows nothing is compared or inserted, so that neither types nor columns matter.
                is_empty, frame = frame.checked_empty()
                if not is_empty:
                    raise
                self._merge_nothing(staged, frame, on, clauses)
                return
            self._merge(staged, request, frame)

    @staticmethod
    def _merge_request(
        staged: StagedTable, frame: Frame, on: str | Sequence[str], clauses: Sequence[MergeClause], missing: MissingColumns
    ) -> ChangeRequest:
        from ducklake_core.engines.arrow.merge import merge_request

        if not frame.schema.columns:
            raise no_columns(frame.kind)
        request = merge_request(staged.name, staged.state.schema, frame.schema, on, clauses)
        if missing == "error" and any(when == "not matched" and values == "all" for when, _, values, _ in clauses):
            check_not_lacking(staged.state, frame.schema)
        return request

    def _merge(
        self, staged: StagedTable, request: ChangeRequest, frame: Frame, columns: Schema | None = None, *, inline: bool | None = None
    ) -> None:
        """Stage a merge of a frame's rows, with its own columns or with those that are given; each has a key of its own then."""
        state = self._coordinator.write_state(staged)
        kept = frame.merge_source(state, self._coordinator.named, columns)
        self._coordinator.own((kept.directory + file.path for file in kept.files), state.write_id)
        if columns is not None:
            check_source_keys(kept, [request.target.columns[ours].name for ours, _ in request.keys], request.target)
        self._stage(staged, ChangeRows(request=request, source=kept, inline=inline))

    def _merge_nothing(self, staged: StagedTable, frame: Frame, on: str | Sequence[str], clauses: Sequence[MergeClause]) -> None:
        """Stage a merge whose source has no rows: it has the table's columns, and its own that the table does not have."""
        from ducklake_core.engines.arrow.merge import merge_request

        own = tuple(column for column in frame.schema if staged.state.schema.find(column.name) is None)
        columns = Schema(columns=(*staged.state.schema.columns, *own))
        # Values that rows of the source would give have no row to be evaluated for.
        left = [clause for clause in clauses if clause[0] == "not matched by source"]
        staged.written = True
        if left or not clauses:
            request = merge_request(staged.name, staged.state.schema, columns, on, left)
            source = frame.empty_source(columns, self._coordinator.write_state(staged))
            self._stage(staged, ChangeRows(request=request, source=source))

    def _update_by_keys(self, staged: StagedTable, frame: Frame, on: Sequence[str], *, inline: bool | None) -> None:
        """Stage an upsert of a frame that lacks columns: matched rows keep their values there, and new rows get the default or NULL.

        Raises:
            UsageError: A key is NULL, or occurs more than once in the frame.
        """
        from ducklake_core.engines.arrow.merge import merge_request

        table = staged.state.schema
        columns = Schema(columns=tuple(column for column in table if frame.schema.find(column.name) is not None))
        for name in on:
            if columns.find(name) is None:
                raise SchemaError(f"the data has no column {name!r}, which is part of the key", column=name)
        has_values = len(columns) > len({folded(name) for name in on})
        clauses: list[MergeClause] = [("matched", "update", "all", None)] if has_values else []
        request = merge_request(staged.name, table, columns, list(on), [*clauses, ("not matched", "insert", "all", None)])
        self._merge(staged, request, frame, columns, inline=inline)

    def restore(self, name: str, *, at: At, columns: RestoredColumns | None = None, spark: SparkSession | None = None) -> None:
        """Make the rows of a table those of an earlier snapshot; see :meth:`Table.restore`.

        Args:
            name: ``table`` or ``schema.table``.
            at: Snapshot id, or a time with a zone.
            columns: ``now`` or ``then``; see :meth:`Table.restore`.
            spark: Session whose executors do the work; this process does when None (the default).
        """
        at = arguments.optional(arguments.snapshot, "at", at)
        arguments.optional(partial(arguments.choice, choices=("now", "then")), "columns", columns)
        if self._is_done("restore", name, at, columns):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            if staged.committed is None:
                raise UsageError(f"table {staged.name} is made in this transaction: there is nothing to restore", table=staged.name)
            with self._lake.reader() as reader:
                then = reader.table_by_id(staged.committed.id, resolve_at(reader, at).id)
            if columns == "then":
                # Rows that the transaction has staged are discarded anyway, and need not fit the columns that come back.
                self._stage(staged, staged.alteration(partial(alterations.restore_columns, schema=then.schema), discards=True))
            elif columns is None and columns_of(then) != columns_of(staged.state):
                raise UsageError(
                    f"the columns of {staged.name} were changed after snapshot {then.snapshot_id}, so the call must choose between them: "
                    "columns 'then' restores the earlier columns too, columns 'now' keeps the present ones and restores only the rows",
                    parameter="columns",
                    table=staged.name,
                    snapshot_id=then.snapshot_id,
                )
            self._stage(staged, RestoreRows(then=then, session=spark))

    # Files of other programs

    def add_data_files(
        self,
        name: str,
        paths: Paths,
        *,
        hive_partitioning: bool | None = None,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        allow_duplicates: bool = False,
        for_duckdb: bool = True,
        spark: SparkSession | None = None,
    ) -> None:
        """Make Parquet files part of a table as they are; see :meth:`Table.add_data_files`."""
        arguments.check_flags(
            allow_missing=allow_missing,
            ignore_extra_columns=ignore_extra_columns,
            allow_duplicates=allow_duplicates,
            for_duckdb=for_duckdb,
        )
        arguments.optional(arguments.flag, "hive_partitioning", hive_partitioning)
        files = arguments.paths("paths", paths)
        if self._is_done("add files", name, files):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            if self._lake.info.encrypted:
                raise encrypted_files_rejection(staged.name)
            directory = self._lake.info.checked_location(staged.state.path, f"table {staged.name}", table=staged.name)
            rules = AddingRules(
                table=staged.name,
                directory=local_path(directory),
                schema=staged.state.schema,
                partition_spec=staged.state.partition_spec,
                allow_missing=allow_missing,
                ignore_extra_columns=ignore_extra_columns,
                hive_partitioning=hive_partitioning,
                for_duckdb=for_duckdb,
            )
            self._coordinator.guard.begin()
            found = find_files(self._lake.storage, files)
            for path in found:
                self._lake.info.checked_location(path, "the file to add", table=staged.name)
            if not allow_duplicates:
                self._reject_known(staged, found)
                staged.exclusive |= frozenset(found)
            added = inspect_files(self._lake.storage, found, rules, spark)
            staged.written = True
            if staged.committed is not None and not staged.mappings:
                with self._lake.reader() as reader:
                    staged.mappings = mappings_of_table(reader, staged.committed.id, staged.name)
            # As in DuckDB, a file without rows adds nothing to the table.
            self._stage(staged, AddDataFiles(files=tuple(file for file in added if file.file.record_count)))

    def _reject_known(self, staged: StagedTable, paths: Sequence[str]) -> None:
        """Reject files that the lake has already: two entries would show rows twice, and the end of one would delete the file of both."""
        steps = ((step, table.name) for table in self._catalog.tables for step in table.steps if isinstance(step, AddDataFiles))
        mine = {file_key(added.full_path): name for step, name in steps for added in step.files}
        known = next(((path, f"added to {mine[key]} in this transaction") for path in paths if (key := file_key(path)) in mine), None)
        if known is None:
            with self._lake.reader() as reader:
                known = named_already(reader, paths)
        if known is not None:
            path, how = known
            raise AlreadyExistsError(
                f"{printable(path)} cannot be added to {staged.name}: it is {how} already, and a file belongs to one table once "
                "(allow_duplicates=True adds it all the same)",
                table=staged.name,
                path=printable(path),
            )

    # Clones and branches of tables

    def undrop_table(self, name: str, *, at: At = None, new_name: str | None = None, spark: SparkSession | None = None) -> None:
        """Re-create a table that was dropped, with the definition, rows and row ids that it had.

        Args:
            name: ``table`` or ``schema.table``, as it was called when it was dropped (or at the snapshot ``at``).
            at: Snapshot to take it from, by id or time; the last one that shows it when None.
            new_name: Its name in the same schema from now on, without a schema; the old one when None.
            spark: A session, whose executors do the work. Without it the work is done in this process.

        Raises:
            NotFoundError: No table of that name was dropped, every snapshot that shows it was expired, or its schema was dropped.
            AlreadyExistsError: A table or view has the name.
        """
        at, new_name = arguments.optional(arguments.snapshot, "at", at), arguments.optional(arguments.filled, "new_name", new_name)
        if self._is_done("undrop", name, at, new_name):
            return
        with self._whole_or_nothing(), self._lake.reader() as reader:
            then = self._dropped(reader, name, at)
            owner = self._catalog.find_schema(then.schema_name)
            if owner is None:
                raise NotFoundError(f"the schema of {then.qualified_name} was dropped; create it first", schema=then.schema_name)
            self._recreate(reader, owner, then, new_name or then.name, spark)

    def restore_lake(self, *, at: At, spark: SparkSession | None = None) -> None:
        """Make the whole lake what it was at an earlier snapshot; see :meth:`DuckLake.restore`. Nothing else may be staged before it."""
        at = arguments.optional(arguments.snapshot, "at", at)
        if self._is_done("restore lake", "main", at, is_schema=True):
            return
        catalog = self._catalog
        if catalog.definitions or catalog.views or any(staged.steps or staged.create for staged in catalog.tables):
            raise UsageError("restore a lake before anything else is done in the transaction: it goes back behind all of it")
        # Every commit in between changes what is to be undone, so a conflict is raised and DuckLake.restore compares again.
        self._coordinator.overwrites_all = True
        with self._whole_or_nothing():
            with self._lake.reader() as reader:
                restore = LakeRestore.plan(reader, resolve_at(reader, at), catalog.base)
            restore.stage_definitions(catalog, self._stage)
            for then in restore.changed_rows:
                staged = catalog.table(join_name(then.schema_name, then.name))
                staged.written = True
                self._stage(staged, RestoreRows(then=then, session=spark))
            for then in restore.dropped_tables:
                with self._lake.reader() as reader:
                    self._recreate(reader, catalog.schema(then.schema_name), then, then.name, spark)

    def _dropped(self, reader: CatalogReader, name: str, at: At) -> TableState:
        """Return the dropped table in its last state."""
        schema, table = split_name(name)
        base = self._catalog.base.id
        if at is not None:
            then = reader.table(schema, table, resolve_at(reader, at).id)
            if any(listed.id == then.id for listed in reader.tables(base, [then.id])) and not self._catalog.is_dropped(then.id):
                raise AlreadyExistsError(
                    f"table {name} was not dropped: restore(at=...) makes its rows those of an earlier snapshot", table=name
                )
            return then
        former = former_tables(reader, schema, table, base)
        if not former:
            raise NotFoundError(f"no table {name} was dropped, or all snapshots that show it were expired", table=name)
        if former[0].last is None:
            raise NotFoundError(
                f"snapshots {former[0].begin} to {former[0].end - 1}, which show table {name}, were all expired: it cannot come back",
                table=name,
            )
        return reader.table_by_id(former[0].id, former[0].last)

    def _recreate(self, reader: CatalogReader, owner: SchemaState, then: TableState, name: str, session: SparkSession | None) -> None:
        self._catalog.check_free(owner.name, name)
        # Options have no history: those of a dropped table stay in the catalog under its id.
        stored = stored_options(reader.connection, reader.catalog).rows
        options = {key: value for key, value, scope, number in stored if (scope, number) == ("table", then.id)}
        staged = self._catalog.recreate_table(owner, name, then, options, reader.next_row_id(then.id))
        staged.written = True
        self._stage(staged, RestoreRows(then=then, session=session))

    # Files that Spark has written

    def stage_created(self, files: Sequence[WrittenFile], state: WriteState, uuid: str) -> None:
        """Make a table of files that executors wrote for it; the transaction deletes them when it fails.

        Args:
            files: The files, verified.
            state: The settings that their writers received.
            uuid: The table's uuid, by which its directory was named.

        Raises:
            CommitConflictError: There is such a table meanwhile.
        """
        # Run again it may find the table that it has made itself, and write to that: both are one piece of work.
        self._is_done("overwrite", state.table)
        if self._is_done("append", state.table):
            return
        with self._whole_or_nothing():
            schema_name, name = split_name(state.table)
            if self._catalog.find_table(state.table) is not None:
                raise CommitConflictError(
                    f"another writer created table {state.table} while rows for it were written; run the write again", table=state.table
                )
            owner = self._catalog.schema(schema_name)
            staged = self._catalog.create_table(owner, name, state.schema, (), None, uuid=uuid)
            self._coordinator.own(staged.paths(files), state.write_id)
            staged.written = True
            self._stage(staged, AddRows(files=tuple(files)))

    def stage_written(
        self,
        files: Sequence[WrittenFile],
        state: WriteState,
        table_id: int,
        uuid: str,
        *,
        replaces: Literal["all", "partitions"] | None = None,
        has_own_id: bool = False,
    ) -> None:
        """Make files that executors wrote part of the commit; the transaction deletes them when it fails.

        Args:
            files: The files, verified.
            state: The settings that their writers received.
            table_id: Id of the table that the writers received, with its uuid.
            uuid: See ``table_id``.
            replaces: What they replace: all rows, those of the partitions that they are in, or nothing.
            has_own_id: Whether the commit id is that of this table alone, whatever it is called.

        Raises:
            CommitConflictError: The table is no longer what the files were written for.
        """
        if self.repeated if has_own_id else self._is_done("append" if replaces is None else "overwrite", state.table):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(state.table)
            self._coordinator.own(staged.paths(files), state.write_id)
            found = staged.state
            # Executors wrote the files for these columns and keys, and their rows cannot be read again here.
            if (found.id, found.uuid, found.schema, found.partition_spec) != (table_id, uuid, state.schema, state.partition_spec):
                raise CommitConflictError(
                    f"columns or partition keys of {state.table} were changed while its rows were written; run the write again",
                    table=state.table,
                )
            staged.written = True
            deletes = DeleteWhere(where=None, rejects_unseen=True)
            if replaces == "all":
                self._stage(staged, deletes)
            elif replaces == "partitions":
                self._replace_partitions(staged, files, deletes)
            self._stage(staged, AddRows(files=tuple(files), replaces=replaces is not None))

    def _replace_partitions(
        self, staged: StagedTable, files: Sequence[WrittenFile], deletes: DeleteWhere, read_at: int | None = None
    ) -> None:
        """Delete what the partitions that rows were written to have, if there are any."""
        spec = staged.state.partition_spec
        assert spec is not None
        found = written_partitions((file.partition_values for file in files), spec, staged.state.schema)
        if found is not None:
            self._stage_overwrite(staged, replace(deletes, where=found), read_at)

    def _stage_overwrite(self, staged: StagedTable, step: DeleteWhere, read_at: int | None) -> None:
        """Stage the deletes of an overwrite, after rows that came since ``read_at`` were searched for."""
        if read_at is not None and not 0 <= read_at <= self._catalog.base.id:
            raise UsageError(
                f"read_at is {read_at}, but the newest snapshot is {self._catalog.base.id}: pass the id of the snapshot that was read",
                parameter="read_at",
            )
        if step.rejects_unseen and read_at is not None:
            self._coordinator.check_read_at(staged, step, read_at, self._catalog.base)
        self._stage(staged, step)

    # Schemas and tables

    def create_schema(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a schema; ``sales.europe`` is one in another, ``"sales.europe"`` in quotes one whose name has a dot.

        Args:
            name: Name of the schema.
            if_not_exists: Whether to do nothing when it exists, instead of raising. Default: False.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: The schema around it does not.
            UnsupportedFeatureError: It would be in another one, and the lake is of version 1.0.
        """
        if self._is_done("create schema", name, is_schema=True):
            return
        path = schema_path(name)
        if self._catalog.find_schema(path) is None:
            self._catalog.create_schema(path)
        elif not if_not_exists:
            raise AlreadyExistsError(f"there is a schema {name!r} already at snapshot {self._catalog.base.id}", schema=name)

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a schema that is empty, or with ``cascade`` together with its tables, views and macros and the schemas in it.

        Args:
            name: Name of the schema.
            cascade: Whether to drop everything in it too. Default: False.
            if_exists: Whether to do nothing when there is no such schema, instead of raising. Default: False.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty.
        """
        arguments.check_flags(cascade=cascade)
        if self._is_done("drop schema", name, is_schema=True):
            return
        state = self._catalog.schema_called(name, if_exists=if_exists)
        if state is not None:
            self._catalog.drop_schema(state, cascade=cascade)

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema | Mapping[str, TypeLike] | FrameLike,
        *,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a table, which later calls of this transaction may write to and alter.

        Args:
            name: ``table`` or ``schema.table``.
            schema: Columns of DuckLake, an Arrow schema, a mapping of names to types, or anything with rows whose columns are taken.
            partition_by: Partition keys.
            comment: The table's comment.
            or_replace: Whether to drop a table of that name first.
            if_not_exists: Whether to leave a table (or view) of that name as it is.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
            SchemaError: A column that no table can have.
            UsageError: A partition key or default that no table can have.
            UnsupportedFeatureError: A default of a nested, variant or geometry column.
        """
        arguments.check_flags(or_replace=or_replace, if_not_exists=if_not_exists)
        keys, comment = arguments.names("partition_by", partition_by), arguments.optional(storable, "comment", comment)
        if self._is_done("create", name):
            return
        schema_name, table_name = split_name(name)
        owner = self._catalog.schema(schema_name)
        columns = checked_defaults(_columns(schema))
        if self._catalog.find_table(name) is not None:
            if if_not_exists:
                return
            if not or_replace:
                raise AlreadyExistsError(f"there is a table {name} already at snapshot {self._catalog.base.id}", table=name)
            with self._catalog.whole_or_nothing():
                self._check_computed(name, columns)
                self._catalog.drop_table(name)
                self._catalog.create_table(owner, table_name, columns, keys, comment)
            return
        if if_not_exists and self._catalog.find_view(name) is not None:
            return
        self._check_computed(name, columns)
        self._catalog.create_table(owner, table_name, columns, keys, comment)

    def _check_computed(self, table: str, columns: Schema) -> None:
        """Let DuckDB bind defaults that are expressions."""
        for column in columns:
            if column.default is not None and column.default_is_expression:
                self._check_expression(table, column.default, columns, column)

    def create_table_as(
        self,
        name: str,
        data: FrameLike,
        *,
        schema: Schema | pa.Schema | Mapping[str, TypeLike] | FrameLike | None = None,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
    ) -> None:
        """Create a table of the columns and rows of a frame, which may read from a table of that name (``scan.to_reader()``).

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows as :meth:`DuckLake.write` takes them.
            schema: Columns of the table, as for :meth:`create_table`; those of the data when None.
            partition_by: Partition keys of the table.
            comment: Comment of the table.
            or_replace: Drop a table of that name in the same snapshot.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not exist.
        """
        with self._catalog.whole_or_nothing():
            frame = frame_of(data)
            if not frame.schema.columns:
                raise no_columns(frame.kind)
            columns = frame.schema if schema is None else schema
            self.create_table(name, columns, partition_by=partition_by, comment=comment, or_replace=or_replace)
            self._write_frame(frame, WriteRequest(name=name))

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table within its schema; ``new_name`` is the name as it is, without a schema. Files stay where they are.

        Args:
            name: ``table`` or ``schema.table``.
            new_name: The new name, without a schema.

        Raises:
            NotFoundError: No such table.
            AlreadyExistsError: A table or view has the new name.
        """
        storable("new_name", new_name)
        if self._is_done("rename", name, new_name):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            step = staged.alteration(partial(alterations.rename_table, name=new_name))
            self._catalog.move_table(staged, new_name)
            self._stage(staged, step)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table, with what this transaction has written to it. Earlier snapshots keep it until they expire.

        Args:
            name: ``table`` or ``schema.table``.
            if_exists: Whether to do nothing when there is no such table, instead of raising. Default: False.

        Raises:
            NotFoundError: No such table.
        """
        if self._is_done("drop", name) or (if_exists and self._catalog.find_table(name) is None):
            return
        self._catalog.drop_table(name)

    # Columns, keys and comments

    def add_column(
        self, table: str, column: ColumnName, data_type: TypeLike, *, default: object = None, if_not_exists: bool = False
    ) -> None:
        """Add a nullable column, or a field of a struct, at the end; rows that are there have its default.

        Args:
            table: ``table`` or ``schema.table``.
            column: The new column.
            data_type: A type of DuckLake or DuckDB as text, an Arrow type, or one of our own.
            default: Value for rows that lack it, those that are there included.
            if_not_exists: Whether to do nothing when it is there.

        Raises:
            AlreadyExistsError: There is one of that name.
            NotFoundError: No such table, or no such struct.
            UsageError: The default is not a value of the type.
        """
        path = column_path(column)
        try:
            self._alter(table, partial(alterations.add_column, path=path, data_type=data_type_of(data_type), default=default))
        except AlreadyExistsError:
            if not if_not_exists:
                raise

    def drop_column(self, table: str, column: ColumnName, *, if_exists: bool = False) -> None:
        """Drop a column or field. Earlier snapshots keep it; files are not touched.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            if_exists: Whether to do nothing when there is no such column, instead of raising. Default: False.

        Raises:
            NotFoundError: It does not exist.
            UsageError: The table is partitioned or sorted by it.
            SchemaError: It is the only one.
        """
        path = column_path(column)
        if if_exists and not self.repeated:
            try:
                find_node(self._catalog.table(table).state.schema, path)
            except NotFoundError:
                self._catalog.table(table)
                return
        self._alter(table, partial(alterations.drop_column, path=path))

    def rename_column(self, table: str, column: ColumnName, new_name: str) -> None:
        """Rename a column or field; ``new_name`` is the name as it is, without a path.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            new_name: The new name, without a path.

        Raises:
            NotFoundError: It does not exist.
            AlreadyExistsError: The name is taken.
        """
        self._alter(table, partial(alterations.rename_column, path=column_path(column), name=storable("new_name", new_name)))

    def set_column_type(self, table: str, column: ColumnName, data_type: TypeLike) -> None:
        """Give a column or field a type that can hold its values; a struct may gain and lose fields by it.

        Allowed is what DuckDB's extension allows (docs/how-to/definitions.md).

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            data_type: Type of DuckLake or DuckDB as a string, or an Arrow type.

        Raises:
            SchemaError: The type cannot hold the column's values.
        """
        wanted = data_type_of(data_type)
        self._alter(table, partial(alterations.set_column_type, path=column_path(column), data_type=wanted))

    def set_default(self, table: str, column: ColumnName, value: object = None, *, expression: str | None = None) -> None:
        """Give a column another default for new rows; rows that are there stay as they are.

        Args:
            table: The table.
            column: The column.
            value: The value, None for none.
            expression: Instead of a value, SQL that is computed when rows lack the column, such as ``now()`` or ``uuid()``
                (docs/how-to/definitions.md).

        Raises:
            UsageError: A value of another type, or an expression that DuckDB rejects.
            UnsupportedFeatureError: A nested, variant or geometry column.
        """
        path, expression = column_path(column), arguments.optional(storable, "expression", expression)
        if expression is None:
            self._alter(table, partial(alterations.set_default, path=path, value=value))
            return
        if value is not None:
            raise UsageError("give a value or an expression as the default, not both")
        with self._whole_or_nothing():
            self._alter(table, partial(alterations.set_default_expression, path=path, expression=expression))
            if not self.repeated:
                column_now = find_node(self._catalog.table(table).state.schema, path)
                if column_now.default is not None and column_now.default_is_expression:
                    self._check_expression(table, column_now.default, Schema(columns=()), column_now)

    def drop_default(self, table: str, column: ColumnName) -> None:
        """Take away a column's default: rows that lack it get NULL from now on."""
        self.set_default(table, column, None)

    def set_not_null(self, table: str, column: ColumnName, *, spark: SparkSession | None = None) -> None:
        """Make a column NOT NULL, after the data proves that it can be.

        Rows that others add until the commit are read as well. With ``spark``, a session, its executors look.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            spark: Session whose executors check the rows; this process does when None (the default).

        Raises:
            SchemaError: A row has NULL in it, or it is a field.
            UsageError: It is NOT NULL already.
        """
        path = column_path(column)
        self._alter(table, partial(alterations.set_nullable, path=path, nullable=False), proves=path, session=spark)

    def drop_not_null(self, table: str, column: ColumnName) -> None:
        """Let a column be NULL.

        Raises:
            UsageError: It is not NOT NULL.
        """
        self._alter(table, partial(alterations.set_nullable, path=column_path(column), nullable=True))

    def set_partitioned_by(self, table: str, keys: Sequence[str]) -> None:
        """Partition new files by other keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Files that are there stay.

        DuckDB does not find rows of older files by equality with a column that a bucket key has come to (docs/how-to/definitions.md).

        Args:
            table: ``table`` or ``schema.table``.
            keys: The partition keys, in order.

        Raises:
            NotFoundError: No such column.
            UsageError: No keys, or a transform that the column's type does not have.
        """
        chosen = arguments.names("keys", keys)
        if not chosen:
            raise UsageError(f"give the partition keys of {table}, or call reset_partitioned_by", table=table)
        self._alter(table, partial(alterations.set_partitioned_by, keys=chosen))

    def reset_partitioned_by(self, table: str) -> None:
        """No longer partition new files."""
        self._alter(table, partial(alterations.set_partitioned_by, keys=()))

    def set_sorted_by(self, table: str, keys: Sequence[str]) -> None:
        """Sort new files by other keys: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``.

        Args:
            table: ``table`` or ``schema.table``.
            keys: The sort keys, in order.

        Raises:
            NotFoundError: A key names a column that the table does not have.
            UsageError: No keys, text that is not a key, or a key that DuckDB rejects.
        """
        chosen = arguments.names("keys", keys)
        if not chosen:
            raise UsageError(f"give the sort keys of {table}, or call reset_sorted_by", table=table)
        with self._whole_or_nothing():
            self._alter(table, partial(alterations.set_sorted_by, keys=chosen))
            if not self.repeated:
                state = self._catalog.table(table).state
                for key in state.sort_keys:
                    if not is_column(key):
                        self._check_expression(table, key.expression, state.schema)

    def reset_sorted_by(self, table: str) -> None:
        """No longer sort new files."""
        self._alter(table, partial(alterations.set_sorted_by, keys=()))

    def _alter(self, table: str, alteration: Alteration, *, proves: tuple[str, ...] | None = None, session: Any = None) -> None:
        if self._is_done("alter", table, *_identity(alteration)):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(table)
            self._stage(staged, staged.alteration(alteration, proves=proves, session=session))

    # Views

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a view.

        Args:
            name: ``view`` or ``schema.view``.
            sql: One SELECT in DuckDB's SQL. Tables and views are named by ``name`` (in the view's schema or in main) or
                ``schema.name``; they must exist.
            columns: Names of its first columns, instead of those of the query.
            comment: The view's comment.
            or_replace: Whether to drop a view of that name first.
            if_not_exists: Whether to leave a view or table of that name as it is.

        Raises:
            AlreadyExistsError: A view or table has the name.
            NotFoundError: Its schema does not exist, or something that it reads.
            UsageError: Not one SELECT, a name that could be two tables, or two columns of one name.
            UnsupportedFeatureError: The query cannot be parsed.
        """
        arguments.check_flags(or_replace=or_replace, if_not_exists=if_not_exists)
        sql, aliases, comment = storable("sql", sql), arguments.names("columns", columns), arguments.optional(storable, "comment", comment)
        if self._is_done("create view", name, sql, aliases or None):
            return
        catalog = self._catalog
        schema_name, view_name = split_name(name)
        owner = catalog.schema(schema_name)
        if not all(aliases) or len({folded(column) for column in aliases}) < len(aliases):
            raise UsageError(f"view {name} needs columns of different names, not {list(aliases)}", view=name)
        existing = catalog.find_view(name)
        if if_not_exists and (existing is not None or catalog.find_table(name) is not None):
            return
        text = view_text(sql, lambda schema, table: self._schema_of(schema, table, owner.name))
        if existing is not None and or_replace:
            catalog.drop_view(name)
        catalog.check_free(owner.name, view_name)
        catalog.create_view(owner, view_name, text, aliases, comment)

    def rename_view(self, name: str, new_name: str) -> None:
        """Rename a view within its schema; ``new_name`` is the name as it is, without a schema.

        Args:
            name: ``view`` or ``schema.view``.
            new_name: The new name, without a schema.

        Raises:
            NotFoundError: No such view.
            AlreadyExistsError: A view or table has the new name.
        """
        arguments.filled("new_name", new_name)
        if self._is_done("rename", name, new_name):
            return
        self._catalog.rename_view(self._catalog.view(name), new_name)

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view. Views that read it stay, and fail when they are read.

        Args:
            name: ``view`` or ``schema.view``.
            if_exists: Whether to do nothing when there is no such view, instead of raising. Default: False.

        Raises:
            NotFoundError: No such view.
        """
        if self._is_done("drop view", name) or (if_exists and self._catalog.find_view(name) is None):
            return
        self._catalog.drop_view(name)

    def _schema_of(self, schema: str | None, name: str, own: str) -> str:
        """Return the schema of what a view reads."""
        found = [place for place in ([schema] if schema else dict.fromkeys((own, DEFAULT_SCHEMA))) if self._exists(place, name)]
        if not found:
            where = join_name(schema or own, name)
            raise NotFoundError(f"the view reads {where}, which is not a table or view at snapshot {self._catalog.base.id}", table=where)
        if len(found) > 1:
            raise UsageError(f"the view reads {name!r}, which is in the schemas {' and '.join(found)}: write schema.name", table=name)
        return found[0]

    def _exists(self, schema: str, name: str) -> bool:
        whole = join_name(schema, name)
        return self._catalog.find_table(whole) is not None or self._catalog.find_view(whole) is not None

    # Macros

    def create_macro(
        self,
        name: str,
        definitions: Mapping[str, str],
        *,
        kind: MacroKind = "scalar",
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a macro, which DuckDB calls: an expression or a query under a name, with parameters.

        Args:
            name: ``macro`` or ``schema.macro``. A scalar macro and a table macro may have the same name.
            definitions: For each list of parameters the SQL: ``{"x": "x * 2"}``, ``{"a": "a", "a, b INTEGER := 5": "a + b"}``. A
                parameter is a name, with a type and a constant as its default where wanted. DuckDB resolves what the SQL names when
                the macro is called, by the caller's search path.
            kind: ``scalar`` for expressions, ``table`` for SELECTs.
            or_replace: Whether to drop a macro of that name and kind first.
            if_not_exists: Whether to leave a macro of that name and kind as it is.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: Its schema does not exist.
            UsageError: Parameters or SQL that DuckDB would not take.
            UnsupportedFeatureError: What the catalog cannot hold, or cannot be parsed here.
        """
        from ducklake_core.format.macros import implementations

        arguments.check_flags(or_replace=or_replace, if_not_exists=if_not_exists)
        arguments.choice("kind", kind, MACRO_KINDS)
        given = {key: storable(f"definitions[{key!r}]", text) for key, text in arguments.mapping("definitions", definitions).items()}
        if self._is_done("create macro", name, kind, given):
            return
        schema_name, macro_name = split_name(name)
        if not macro_name:
            raise UsageError("a macro needs a name")
        owner = self._catalog.schema(schema_name)
        made = implementations(macro_name, given, kind)
        found = self._catalog.find_macro(name, kind)
        if found is not None:
            if if_not_exists:
                return
            if not or_replace:
                raise AlreadyExistsError(f"there is a {kind} macro {name} already at snapshot {self._catalog.base.id}", macro=name)
            self._catalog.drop_macro(found)
        self._catalog.create_macro(owner, macro_name, made)

    def drop_macro(self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False) -> None:
        """Drop a macro with all of its definitions.

        Args:
            name: ``macro`` or ``schema.macro``.
            kind: ``scalar`` (the default) or ``table``.
            if_exists: Whether to do nothing when there is no such macro, instead of raising. Default: False.

        Raises:
            NotFoundError: No such macro of that kind.
        """
        arguments.choice("kind", kind, MACRO_KINDS)
        if self._is_done("drop macro", name, kind):
            return
        found = self._catalog.find_macro(name, kind)
        if found is not None:
            self._catalog.drop_macro(found)
        elif not if_exists:
            raise NotFoundError(f"there is no {kind} macro {name} at snapshot {self._catalog.base.id}", macro=name)

    # Tags

    def set_comment(self, name: str, text: str | None, *, column: ColumnName | None = None) -> None:
        """Comment on a table, a view or a column of either; None takes the comment away.

        Args:
            name: Name of the table or view.
            text: The comment; None deletes it.
            column: Name of a column, or path of a field; the table or view itself when None (the default).

        Raises:
            NotFoundError: No such table, view or column.
            UnsupportedFeatureError: A column of a view, and the lake is of version 1.0, which has no place for it.
        """
        arguments.optional(storable, "text", text)
        if not self._is_done("comment", name, text, column):
            self._tag(name, COMMENT, text, column)

    def set_tag(self, name: str, key: str, value: str | None, *, column: ColumnName | None = None) -> None:
        """Give a table or a view a tag: a string under a key; None takes the tag away.

        The tag ``comment`` is the comment, which is the only one that DuckDB shows, and the only one that a column can have.

        Args:
            name: Name of the table or view.
            key: Key of the tag.
            value: The value; None deletes the tag.
            column: Name of a column, or path of a field; the table or view itself when None (the default).

        Raises:
            NotFoundError: No such table, view or column.
            UnsupportedFeatureError: Another tag of a column than its comment: DuckDB cannot attach a lake that has one.
        """
        arguments.filled("key", key)
        arguments.optional(storable, "value", value)
        if column is not None and key != COMMENT:
            raise UnsupportedFeatureError(
                f"a column of {name} cannot have the tag {key!r}: DuckDB cannot attach a lake in which a column has another tag than its "
                "comment. Tag the table instead",
                table=name,
                key=key,
            )
        if not self._is_done("tag", name, key, value, column):
            self._tag(name, key, value, column)

    def set_schema_comment(self, name: str, text: str | None) -> None:
        """Comment on a schema; None takes the comment away. DuckDB neither writes nor shows comments on schemas.

        Args:
            name: Name of the schema.
            text: The comment; None deletes it.

        Raises:
            NotFoundError: No such schema.
        """
        arguments.optional(storable, "text", text)
        if not self._is_done("comment schema", name, text, is_schema=True):
            self._tag_schema(name, COMMENT, text)

    def set_schema_tag(self, name: str, key: str, value: str | None) -> None:
        """Give a schema a tag: a string under a key; None takes the tag away.

        Args:
            name: Name of the schema.
            key: Key of the tag.
            value: The value; None deletes the tag.

        Raises:
            NotFoundError: No such schema.
        """
        arguments.filled("key", key)
        arguments.optional(storable, "value", value)
        if not self._is_done("tag schema", name, key, value, is_schema=True):
            self._tag_schema(name, key, value)

    def _tag_schema(self, name: str, key: str, value: str | None) -> None:
        state = self._catalog.schema_called(name)
        assert state is not None
        self._catalog.tag_schema(state, key, value)

    def _tag(self, name: str, key: str, value: str | None, column: ColumnName | None) -> None:
        with self._whole_or_nothing():
            staged = self._catalog.find_table(name)
            if staged is not None:
                if column is None:
                    self._stage(staged, staged.alteration(partial(alterations.set_tag, key=key, value=value)))
                else:
                    self._stage(staged, staged.alteration(partial(alterations.set_column_comment, path=column_path(column), text=value)))
                return
            view = self._catalog.find_view(name)
            if view is None:
                raise NotFoundError(f"there is no table or view {name} at snapshot {self._catalog.base.id}", table=name)
            view.tag(key, value, None if column is None else self._view_column(view, column))

    def _view_column(self, view: StagedView, column: ColumnName) -> str:
        version = self._lake.info.format_version
        if not version.has_view_column_tags:
            raise UnsupportedFeatureError(
                f"columns of view {view.name} cannot have comments: lakes of version {version} have no place for them; migrate to 1.1",
                feature="comments on columns of views",
                view=view.name,
            )
        path = column_path(column)
        names = self._names_of_view(view)
        found = next((stored for shown, stored in names or () if folded(shown) == folded(path[0])), path[0] if names is None else None)
        if found is None or len(path) > 1:
            raise NotFoundError(f"view {view.name} has no column {dotted(path)!r}", view=view.name, column=dotted(path))
        return found

    def _names_of_view(self, view: StagedView) -> list[tuple[str, str]] | None:
        """Return pairs of a column's name in the view and in its query, by which comments are stored; None if that is unknown."""
        from ducklake_core.view_sql.translation import view_schema

        try:
            with self._lake.reader() as reader:
                shown = view_schema(reader, view.state).names
                stored = view_schema(reader, replace(view.state, column_aliases=())).names
        except DuckLakeError:
            return None
        return list(zip(shown, stored, strict=True))

    # SQL

    def sql(
        self,
        sql: str,
        parameters: SqlParameters = None,
        *,
        spark: SparkSession | None = None,
        timezone: str | None = None,
        **frames: FrameLike,
    ) -> Readable | None:
        """Run one statement of SQL in DuckDB's dialect: it sees what the transaction has done, and is committed with it.

        Args:
            sql: A statement as :meth:`DuckLake.sql` takes it. The rows of a query can be read until the transaction's block ends.
            parameters: Values of the parameters: a list for ``?`` and ``$1``, a dict for ``$name``; None for SQL without parameters.
            spark: A session for the work. It reads committed tables only; a query of a table that the transaction changed is rejected.
            timezone: Time zone of the statement; see :meth:`DuckLake.sql`.
            frames: Frames that the SQL names as tables, each as an argument of that name.

        Returns:
            The rows of a query, None for any other statement.

        Raises:
            UsageError: The text is not one statement, or the engine rejects it; a parameter has no value; an argument is no frame.
            UnsupportedFeatureError: Something that is not supported, by its name; or no engine for a query.
        """
        from ducklake_core.sql.parameters import frame_sources, with_parameters
        from ducklake_core.sql.query import statement_zone
        from ducklake_core.sql.time_travel import is_query

        storable("sql", sql, nul=True)
        arguments.optional(storable, "timezone", timezone)
        zone = statement_zone(timezone, spark)
        sql = with_parameters(sql, parameters)
        sources = frame_sources(sql, frames)
        if is_query(sql):
            if spark is not None:
                raise UnsupportedFeatureError("a query in a transaction runs in this process: leave spark out, or use lake.sql")
            return StagedQuery(self._queries(sources), sql, zone)
        with in_zone(zone):
            self._run(sql, spark, sources)
        return None

    def _run(self, sql: str, spark: SparkSession | None, frames: tuple[TableSource, ...]) -> None:
        """Run a statement that is no query, whose parameters are replaced."""
        if spark is not None and frames:
            raise UnsupportedFeatureError("a statement with frames runs in this process: leave spark out")
        Statement(self, self._queries(frames), sql, spark, self._change_computed).carry_out()

    def _queries(self, frames: tuple[TableSource, ...] = ()) -> StagedQueries:
        return StagedQueries(
            lake=self._lake,
            catalog=lambda: self._catalog,
            table=self.table,
            coordinator=self._coordinator,
            is_done=self.repeated is not None,
            frames=frames,
        )

    def _change_computed(self, name: str, text: str, compute: Callable[[StagedTable], ComputedChange]) -> None:
        """Stage a change of rows that are computed from what the transaction sees.

        They are good only while no other writer changes what they were computed from, so the commit fails otherwise.

        Args:
            name: The table.
            text: Identifies the change among others.
            compute: Computes it, and returns which tables were read.
        """
        if self._is_done("change", name, text):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            computed = compute(staged)
            for read in {staged.name, *computed.tables}:
                other = self._catalog.table(read)
                other.guarded = True
                self._coordinator.note_read(other)
            self._stage(staged, ChangeRows(request=computed.request, source=computed.source))


def autocommit(lake: LakeContext, commit: Mapping[str, Any], retries: CallRetries | None = None) -> Transaction:
    """Return the transaction of a method that makes one change, with the commit options that the method was given.

    Args:
        lake: The lake to change.
        commit: Author, message, extra information and commit id.
        retries: Attempts of the call, where it may need several transactions.

    Raises:
        UsageError: The lake was opened to be read only, or an option does not exist.
    """
    lake.database.check_not_read_only()
    arguments.check_commit(commit)
    return Transaction(lake, **commit, retries=retries)


def write(lake: LakeContext, data: FrameLike, request: WriteRequest, commit: Mapping[str, Any]) -> WriteResult:
    """Write a frame as one snapshot; see :meth:`DuckLake.write`."""
    arguments.check_commit(commit)
    name, frame = request.name, frame_of(data)

    def write_in(tx: Transaction) -> TransactionResult:
        with tx:
            tx._write_frame(frame, request)  # noqa: SLF001 - a function of this class's module
        return tx.result

    retries = CallRetries()
    # A base that was read up to a second ago saves a statement per append. It suits appends of small frames alone: they do not depend on
    # rows of the table, and can be repeated on the newest snapshot if the assumption fails.
    again = request.mode == "append" and commit.get("commit_id") is None and frame.is_small
    first = Transaction(lake, **commit, base=lake.table_cache.recent(*split_name(name)) if again else None, retries=retries)
    try:
        result = write_in(first)
    except (CommitConflictError, SchemaError, UsageError):
        if not first.is_on_recent_base:
            raise
        # What is in the way, or missing, may have come before this call: only the newest snapshot decides.
        result = write_in(Transaction(lake, **commit, retries=retries))
    if result.repeated:
        return single_result(result, *_written_then(lake, name, result.snapshot))
    return single_result(result, name, 0)


def _written_then(lake: LakeContext, name: str, snapshot: Snapshot | None) -> tuple[str, int]:
    """Name and id of the table that an earlier commit wrote; it may have been dropped or renamed since."""
    assert snapshot is not None
    with lake.reader() as reader:
        try:
            state = reader.table(*split_name(name), snapshot.id)
        except NotFoundError:
            # It was renamed while it was written to, so that the snapshot knows it by its other name.
            changes = snapshot.change_set
            written = {*changes.inserted_into_table, *changes.inlined_insert, *changes.deleted_from_table, *changes.inlined_delete}
            if len(written) != 1:
                return join_name(*split_name(name)), 0
            state = reader.table_by_id(written.pop(), snapshot.id)
    return join_name(state.schema_name, state.name), state.id


def frame_in_types_of(table: Schema, frame: Frame, clauses: Sequence[MergeClause]) -> Frame:
    """Return the source of a merge with the types in which its columns are compared and stored.

    - A column that is stored as it is, in the column of the same name, has the table's type: values that do not fit are an error, as in
      other writes.
    - A column that only expressions use keeps its own type: a result does not depend on whether all values happen to fit the table's.
    - A column that is only compared has the table's type if all of its values have it.
    """
    from ducklake_core.engines.arrow.merge import computed_names, stored_names

    own = frame.typed_like(table)
    stored, computed = stored_names(own.schema, clauses), computed_names(clauses)

    def chosen(mine: Field, fitted: Field) -> Field:
        name, known = folded(mine.name), table.find(mine.name)
        if name in stored:
            return replace(mine, type=known.type) if known is not None and may_not_fit(mine.type, known.type) else fitted
        return mine if name in computed else fitted

    columns = tuple(map(chosen, own.schema, frame.schema_for(table)))
    return replace(own, schema=Schema(columns=columns))


def _columns(given: Any) -> Schema:
    # Schemas of polars are mappings too, to types of their own.
    if isinstance(given, Mapping) and not hasattr(given, "__arrow_c_schema__"):
        return Schema(
            columns=tuple(Field(name=storable("a column's name", name), type=data_type_of(data_type)) for name, data_type in given.items())
        )
    return frame_columns(given)


def _identity(alteration: Alteration) -> tuple[object, ...]:
    """Return the identity of an alteration, as a value that is the same in every run."""
    return (alteration.func.__name__, alteration.keywords) if isinstance(alteration, partial) else ()
