"""Commit several changes as one snapshot: the class :class:`Transaction`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
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
from ducklake_core.format.macro_definitions import MACRO_KINDS
from ducklake_core.format.macros import view_text
from ducklake_core.format.options import Options, check_option_scope, normalize_option, option_name
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, dotted, folded, join_name, schema_path, similar_entries, split_name, storable
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown, visible
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
    check_key_columns,
    check_keys,
    checked_at,
    missing_columns_of,
    resolve_at,
)
from ducklake_core.staging.context import LakeContext, with_options
from ducklake_core.staging.lake_restore import LakeRestore
from ducklake_core.staging.namespace import StagedCatalog
from ducklake_core.staging.publish import CommitCoordinator, MaintenanceInTransaction, columns_of
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

    from ducklake_core.catalog.reading.definitions import Macro
    from ducklake_core.catalog.reading.reader import CatalogReader
    from ducklake_core.engines.arrow.merge import ChangeRequest
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.files.data_files import WrittenFile
    from ducklake_core.format.macro_definitions import MacroKind
    from ducklake_core.format.state import SchemaState, TableState
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.maintenance.flush import FlushResult
    from ducklake_core.maintenance.merge import MergeResult
    from ducklake_core.maintenance.request import TableScope
    from ducklake_core.maintenance.rewrite import RewriteResult
    from ducklake_core.scan import ChangeFeed
    from ducklake_core.sql.changes import ComputedChange
    from ducklake_core.staging.arguments import At, RestoredColumns, SqlParameters
    from ducklake_core.staging.context import Base
    from ducklake_core.staging.staged_table import StagedView, Step

Given = TypeVar("Given")
_Result = TypeVar("_Result", "MergeResult", "RewriteResult")
_NO_MESSAGE = "This lake requires a commit message (option require_commit_message). Pass message=..."


# The life of a transaction:
#
#   __enter__   read the base snapshot, and search for an earlier run with the same commit id
#   a call      _is_done records the operation, _whole_or_nothing undoes a call that fails, _stage applies a step to a table
#   __exit__    publish the steps as one snapshot, planning again after conflicts; after an error, delete all files
#
# If an earlier run has committed (``repeated``), calls only record their operation. At the end, the records are compared with those of the
# earlier run: it is an error to use the same commit id for other work.
@arguments.none_means_default
class Transaction:
    """Changes to be committed as one snapshot, created by :meth:`DuckLake.transaction`.

    Each call writes its rows to files immediately, or keeps few rows for the catalog. Nothing is visible before the block ends. Every
    call, and reads with :meth:`table`, see the rows that were committed when the block began, with the changes of earlier calls.

    If another writer commits first, changes of rows are applied again to the newest snapshot, in the same order and with the same new
    rows. A :class:`CommitConflictError` is raised if the block has read rows of a table that another writer changed, or if the columns
    of a table changed.
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
        is_one_call: bool = True,
    ) -> None:
        arguments.check_commit({"author": author, "message": message, "extra_info": extra_info, "commit_id": commit_id})
        self._lake = lake
        self._coordinator = CommitCoordinator(
            lake,
            author=author,
            message=message,
            extra_info=extra_info,
            commit_id=commit_id,
            macros=self._macros_now,
            recent=base,
            retries=retries,
        )
        self._base = base
        self._is_one_call = is_one_call
        self._staged: StagedCatalog | None = None
        self._repeated: Snapshot | None = None
        self._not_created: list[str] = []
        self._result: TransactionResult | None = None

    def __enter__(self) -> Self:
        self._lake.database.check_writable()
        if self._base is None:
            self._base = self._lake.table_cache.read(self._lake.database, self._lake.info)
        self._staged = StagedCatalog(self._lake, self._base.snapshot, self._base.options, self._base.history)
        # After the base is known: the commit itself reads later snapshots, so that every earlier run is found.
        if self._coordinator.given:
            self._repeated = Committer(self._lake.database).find_commit(self._coordinator.commit_id)
        # One call fails before its work; in a block, set_commit_message may follow.
        if self._is_one_call and self._lacks_message(self._staged):
            raise UsageError(_NO_MESSAGE, parameter="message")
        return self

    def _lacks_message(self, staged: StagedCatalog) -> bool:
        return Options.from_mapping(staged.options.effective()).require_commit_message and self._coordinator.message is None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._finish(error)
        finally:
            # Even after an error: until then, sweeps of other processes keep the files of this write.
            self._coordinator.end()

    def _finish(self, error: BaseException | None) -> None:
        """Commit, unless the block has raised an error."""
        if error is not None:
            self._coordinator.discard()
        elif self._repeated is not None:
            self._coordinator.check_repeated(self._repeated)
            self._result = TransactionResult(snapshot=self._repeated, repeated=True)
        else:
            staged = self._catalog
            if self._lacks_message(staged) and self._coordinator.has_changes(staged):
                self._coordinator.discard()
                raise UsageError(_NO_MESSAGE, parameter="message")
            published = self._coordinator.publish(staged.base, tuple(staged.definitions), staged.tables, staged.views)
            self._result = with_not_created(published, self._not_created, staged.base)
            if self._result.snapshot is not None and not self._result.repeated and self._base is not None:
                self._base.history.note(self._result.snapshot, staged.options)
            if staged.sets_options:
                self._lake.table_cache.forget_options()
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
        """The outcome of the transaction, available after the block has ended without an error.

        Raises:
            UsageError: The block has not ended, or has failed.
        """
        if self._result is None:
            raise UsageError("The transaction has no result yet. Read it after the with block has ended without an error")
        return self._result

    @property
    def repeated(self) -> Snapshot | None:
        """The snapshot of an earlier run with the same commit id, None if there is none. If there is one, calls do nothing."""
        return self._repeated

    @property
    def is_on_recent_base(self) -> bool:
        """Return whether the base snapshot was read before the call, for a transaction that does not depend on the newest one."""
        return self._coordinator.is_recent

    def table(self, name: str) -> TransactionTable:
        """Return a table for reads that include the changes of this transaction.

        Args:
            name: ``table`` or ``schema.table``.

        Raises:
            NotFoundError: There is no such table, or the transaction has dropped it.
            UsageError: An earlier run has committed the transaction.
        """
        if self._repeated is not None:
            raise UsageError(
                "An earlier run has committed this transaction, so it has no changes to read. Test tx.repeated first, and read "
                "from the lake instead"
            )
        return TransactionTable(self._lake, self._coordinator, name, lambda: self._catalog)

    def guard(self, name: str) -> None:
        """Make the commit fail if another writer changes rows or columns of a table after the block began.

        Use it if the block reads rows to decide what to commit. Without it, an append succeeds even if another writer has added rows.

        Args:
            name: ``table`` or ``schema.table``.

        Raises:
            NotFoundError: There is no such table.
            CommitConflictError: At the end of the block: another writer has changed the table.
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
        """Append rows to a table.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as in :meth:`DuckLake.write`.
            schema_evolution: ``strict`` or ``additive``, as in :meth:`DuckLake.write`. Default: ``strict``.
            missing_columns: ``error`` or ``null``, as in :meth:`DuckLake.write`.
            inline: Whether to store few rows in the catalog, as in :meth:`DuckLake.write`.

        Raises:
            NotFoundError: There is no such table.
            SchemaError: Data and table do not match; the message lists every difference.
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
        """Replace the rows that match ``where``, those of ``partitions``, or all rows; see :meth:`Table.overwrite`.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as in :meth:`DuckLake.write`. All of them must be in the replaced slice.
            where: Condition of the rows to replace. Default: all rows.
            partitions: Partitions to replace, as in :meth:`Table.overwrite`.
            schema_evolution: ``strict`` or ``additive``, as in :meth:`DuckLake.write`. Default: ``strict``.
            missing_columns: ``error`` or ``null``, as in :meth:`DuckLake.write`.
            concurrent_appends: ``fail`` or ``replace``, as in :meth:`Table.overwrite`. Default: ``fail``.
            read_at: Id of the snapshot from which ``data`` was computed, as in :meth:`Table.overwrite`.

        Raises:
            NotFoundError: There is no such table.
            SchemaError: Data and table do not match; the message lists every difference.
            UsageError: A row of ``data`` is outside the slice.
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
        """Update the rows whose key is in ``data``, and insert the other rows of ``data``; see :meth:`Table.upsert`.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as in :meth:`DuckLake.write`. Keys must be unique and not NULL.
            on: Names of the key columns.
            schema_evolution: ``strict`` or ``additive``, as in :meth:`DuckLake.write`. Default: ``strict``.
            missing_columns: ``error`` or ``null``, as in :meth:`DuckLake.write`.

        Raises:
            NotFoundError: There is no such table.
            UsageError: A key of ``data`` is NULL or repeated; the message shows it.
            SchemaError: Data and table do not match; the message lists every difference.
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
        """Write a frame. Creates the table or adds columns where the arguments allow it; see :meth:`DuckLake.write`.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as in :meth:`DuckLake.write`.
            mode: ``append``, ``overwrite`` or ``upsert``. Default: ``append``.
            where: Condition of the rows to replace; for ``overwrite`` only.
            partitions: Partitions to replace; for ``overwrite`` only.
            on: Key columns; for ``upsert`` only.
            create: Whether to create a missing table. Default: True.
            partition_by: Partition keys of a new table.
            schema_evolution: ``strict`` or ``additive``. Default: ``strict``.
            missing_columns: ``error`` or ``null``.
            comment: Comment on a new table.
            inline: Whether to store few rows in the catalog.
            concurrent_appends: ``fail`` or ``replace``; for ``overwrite`` only. Default: ``fail``.
            read_at: Id of the snapshot from which ``data`` was computed; for ``overwrite`` only.

        Raises:
            NotFoundError: There is no such table, and ``create`` is False.
            SchemaError: Data and table do not match; the message lists every difference.
            UsageError: A row is outside the slice, or a key is NULL or repeated.
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
        """Write the rows of an operation; see :meth:`write`."""
        name, mode, where, on, inline = request.name, request.mode, request.where, request.on, request.inline
        if self._is_done(mode, name, where, request.partitions, on or None):
            return
        if inline and mode == "upsert" and frame.session is not None:
            raise UnsupportedFeatureError("An upsert from a Spark DataFrame cannot store rows in the catalog. Remove inline", table=name)
        with self._whole_or_nothing(), in_session_zone(frame.session):
            staged, frame, is_empty = self._target(request, frame)
            if staged is None:
                return
            if mode == "upsert":
                check_whole_structs(staged.state, frame.schema)
                # The rows are read twice, and again after conflicts: for the new files, and for the keys of the rows that they replace.
                frame = frame.replayable()
            predicate = None if where is None else bind(where, staged.state.schema)
            in_data = request.replaces_in_data
            if in_data:
                check_replaceable(staged.state, inline)
                # Only files have partition values, which identify the partitions to replace.
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
            # The rows are written first: their keys and the condition are checked before the table is searched.
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
        """Undo all staged changes of a failing call, so that the caller can catch its error and continue the transaction."""
        with self._catalog.whole_or_nothing(), self._coordinator.one_call():
            yield

    def _write_rows(self, staged: StagedTable, frame: Frame, row_constraint: Predicate | None, inline: bool | None) -> AddRows:
        state = self._coordinator.write_state(staged, given=frame.schema.names, row_constraint=row_constraint)
        rows, frame = inlined_part(frame, state, inline)
        if rows is not None:
            return AddRows(inlined=rows)
        return AddRows(files=self._coordinator.write_rows(staged, frame, state))

    def _target(self, request: WriteRequest, frame: Frame) -> tuple[StagedTable | None, Frame, bool]:
        """Find or create the table of a write, and fit its columns to the frame.

        A frame without rows changes no columns, and creates a table only if all of its columns have types.

        Returns:
            The table, None if it does not exist and is not created; the frame; and whether the frame is known to have no rows.
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
            if request.mode == "upsert":
                check_keys(request.on, created.state)
            return created, frame, False
        if request.mode == "upsert":
            check_keys(request.on, staged.state)
        is_empty = frame.is_surely_empty
        if not is_empty:
            is_empty, frame = self._fit(staged, frame, request.schema_evolution, missing, request.on)
        check_existing(staged.state, request)
        return staged, frame, is_empty

    def _fit(
        self, staged: StagedTable, frame: Frame, mode: SchemaEvolution, missing: MissingColumns, on: Sequence[str] = ()
    ) -> tuple[bool, Frame]:
        """Fit the columns of a table to a frame, which must have the key columns ``on``.

        Returns:
            Whether the frame is known to have no rows, and the frame with all of its rows.
        """
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
            check_key_columns(on, columns)
            wanted, differences = evolve(staged.state, columns, mode, missing, holds_only_nulls)
        except (SchemaError, UsageError) as error:
            problem = error
        # Only now, because it may compute the frame. Without rows, columns that do not fit are ignored, and none are added.
        if problem is not None or wanted is not staged.state:
            is_empty, frame = frame.checked_empty()
            if is_empty:
                return True, frame
        if problem is not None:
            raise problem
        if wanted is not staged.state:
            # Rows that other writers add meanwhile may have values in a replaced column.
            staged.guarded = staged.guarded or bool(replaced)
            change = partial(evolved, frame=columns, mode=mode, missing_columns=missing, replaced=replaced)
            self._stage(staged, staged.alteration(change, requested=False))
            staged.differences += differences
        return False, frame

    def _is_all_null(self, name: str, column: Field) -> bool:
        """Return whether a table has rows and all of them have NULL in a column. Opens only files without conclusive statistics."""
        scan = self.table(name).scan([dotted((column.name,))], where=Column((column.name,)).is_not_null())
        return not any(batch.num_rows for batch in scan.to_batches()) and self.table(name).scan().count() > 0

    @property
    def _catalog(self) -> StagedCatalog:
        if self._staged is None:
            raise UsageError("The transaction is not open. Use it in a with block: with lake.transaction() as tx: ...")
        return self._staged

    # State of the open transaction

    def _is_done(self, kind: str, name: str, *details: object, is_schema: bool = False) -> bool:
        """Record the operation of a call. Return whether an earlier run has committed it, so that the call does nothing.

        Args:
            kind: Kind of operation.
            name: Name of its object.
            details: Further values that distinguish it from other work with the same commit id, such as the condition. They must be
                equal in every run.
            is_schema: Whether ``name`` is the name of a schema.
        """
        if self._coordinator.given:
            self._coordinator.operations.append(operation(kind, name, is_schema=is_schema, details=details))
        return self.repeated is not None

    def _without_macros(self, given: Given) -> Given | str:
        """Return a condition or expression in which the macros of the transaction are expanded."""
        from ducklake_core.catalog.reading.definitions import without_macro_calls

        return without_macro_calls(given, self._catalog.macros_now)

    def _macros_now(self) -> Sequence[Macro]:
        return self._catalog.macros_now()

    def _check_expression(self, table: str, text: str, columns: Schema, target: Field | None = None) -> None:
        """Let DuckDB, if it is installed, bind an expression that a table will store; see :func:`check_expression`."""
        from ducklake_core.engines.duckdb.query import check_expression

        check_expression(table, self._without_macros(text), columns, target)

    def _stage(self, staged: StagedTable, step: Step) -> None:
        """Apply a step to a table. Every step except an alteration counts as a write."""
        staged.written = staged.written or not isinstance(step, Altered)
        self._coordinator.stage(staged, step, self._catalog.base)

    # Rows

    def delete(self, name: str, where: Where, *, spark: SparkSession | None = None) -> None:
        """Delete the rows that match a condition. The condition may use virtual columns, such as ``rowid``.

        Args:
            name: ``table`` or ``schema.table``.
            where: SQL text, or a condition built with :func:`ducklake_core.col`. None deletes all rows.
            spark: Spark session whose executors find the rows. Default: this process finds them.

        Raises:
            NotFoundError: There is no such table or column.
            UnsupportedFeatureError: Arrow cannot evaluate the condition, and ``spark`` is not given.
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
        """Update columns of the rows that match a condition; see :meth:`Table.update`.

        Args:
            name: ``table`` or ``schema.table``.
            values: Values by column, as in :meth:`Table.update`.
            where: Condition of the rows to update. Default: all rows.
            spark: Spark session that does the work. Default: this process does it.

        Raises:
            NotFoundError: There is no such table or column.
            SchemaError: A value does not fit its column, or a NOT NULL column would get NULL.
            UnsupportedFeatureError: Arrow cannot evaluate an expression, and ``spark`` is not given.
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
        """Update, delete and insert rows from a source; see :meth:`Table.merge`. ``execute()`` of the result stages the merge.

        Args:
            name: ``table`` or ``schema.table``.
            source: Rows, as in :meth:`DuckLake.write`.
            on: Columns that both sides have, or a condition; see :meth:`Table.merge`.
            missing_columns: ``error`` or ``null``; see :meth:`Table.merge`. Default: ``error``.
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
        """Stage a merge with given branches.

        Args:
            name: ``table`` or ``schema.table``.
            source: Rows, as in :meth:`DuckLake.write`.
            on: Columns that both sides have, or a condition; see :meth:`Table.merge`.
            clauses: The branches, in order.
            missing_columns: ``error`` or ``null``; see :meth:`Table.merge`. Default: ``error``.
        """
        on = on if isinstance(on, str) else arguments.names("on", on)
        if self._is_done("merge", name, on, tuple(clauses)):
            return
        missing = missing_columns_of(missing_columns, "strict")
        frame = frame_of(source)
        with self._whole_or_nothing(), in_session_zone(frame.session):
            staged = self._catalog.table(name)
            frame = frame_in_types_of(staged.state.schema, frame, clauses)
            try:
                # Check the arguments before the source is computed.
                request = self._merge_request(staged, frame, on, clauses, missing)
            except DuckLakeError:
                # Without rows nothing is compared or inserted, so types and columns are ignored.
                is_empty, frame = frame.checked_empty()
                if not is_empty:
                    raise
                self._merge_nothing(staged, frame, on, clauses)
                return
            self._merge(staged, request, frame)

    def apply_changes(self, name: str, changes: ChangeFeed, *, on: str | Sequence[str]) -> None:
        """Apply the changes of another table; see :meth:`Table.apply_changes`.

        Args:
            name: ``table`` or ``schema.table``, the table to change.
            changes: Changes of the other table, from :meth:`Table.changes`.
            on: Name of the key column, or names of several.

        Raises:
            UsageError: ``changes`` is not a complete change feed, or a key is NULL or not unique.
            NotFoundError: The table lacks a column of the changes.
        """
        from ducklake_core.engines.arrow.feed import FEED_COLUMNS, newest_changes
        from ducklake_core.scan import ChangeFeed

        on = arguments.names("on", on)
        given: object = changes
        if not isinstance(given, ChangeFeed) or given.kind != "changes" or given.row_limit is not None:
            raise UsageError("changes must be a change feed without a limit. Pass source.changes(start, end)", parameter="changes")
        if self._is_done("apply_changes", name, on, changes.table.uuid, changes.start, changes.table.snapshot_id):
            return
        columns = changes.columns
        if columns is not None:
            given = {folded(column) for column in columns}
            columns = [*columns, *(one for one in (*on, "snapshot_id", "change_type") if folded(one) not in given)]
        rows = replace(changes, columns=columns).to_arrow()
        schema = Schema(columns=tuple(column for column in changes.table.schema if column.name in rows.column_names))
        keys = [schema.column(one).name for one in on]
        removed = next(flag for n in count() if schema.find(flag := f"removed_{n}") is None)
        values = {column: Column(("s", column)) for column in rows.column_names if column not in FEED_COLUMNS}
        target = self._catalog.table(name)
        if new := [column for column in values if target.state.schema.find(column) is None]:
            raise NotFoundError(
                f"table {target.name} has no column {', '.join(map(repr, new))}, which the changes of {changes.table.qualified_name} have. "
                "Add it to the table, or name the other columns in changes(..., columns=[...])",
                table=target.name,
                column=new[0],
            )
        self.merge_clauses(
            name,
            newest_changes(rows, keys, removed),
            keys,
            [
                ("matched", "delete", None, f"s.{removed}"),
                ("matched", "update", values, None),
                ("not matched", "insert", values, f"NOT s.{removed}"),
            ],
        )

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
        """Stage a merge of a frame's rows, with its own columns or with given ones. With given columns, each row needs a unique key."""
        state = self._coordinator.write_state(staged)
        kept = frame.merge_source(state, self._coordinator.named, columns)
        self._coordinator.own((kept.directory + file.path for file in kept.files), state.write_id)
        if columns is not None:
            check_source_keys(kept, [request.target.columns[target_index].name for target_index, _ in request.keys], request.target)
        self._stage(staged, ChangeRows(request=request, source=kept, inline=inline))

    def _merge_nothing(self, staged: StagedTable, frame: Frame, on: str | Sequence[str], clauses: Sequence[MergeClause]) -> None:
        """Stage a merge whose source has no rows. The source gets the columns of the table, and its own columns that the table lacks."""
        from ducklake_core.engines.arrow.merge import merge_request

        own = tuple(column for column in frame.schema if staged.state.schema.find(column.name) is None)
        columns = Schema(columns=(*staged.state.schema.columns, *own))
        # Branches that use values of the source have no rows to evaluate.
        left = [clause for clause in clauses if clause[0] == "not matched by source"]
        staged.written = True
        if left or not clauses:
            request = merge_request(staged.name, staged.state.schema, columns, on, left)
            source = frame.empty_source(columns, self._coordinator.write_state(staged))
            self._stage(staged, ChangeRows(request=request, source=source))

    def _update_by_keys(self, staged: StagedTable, frame: Frame, on: Sequence[str], *, inline: bool | None) -> None:
        """Stage an upsert of a frame that lacks columns. Matched rows keep their values there; new rows get the default or NULL.

        Raises:
            UsageError: A key is NULL, or occurs more than once in the frame.
        """
        from ducklake_core.engines.arrow.merge import merge_request

        table = staged.state.schema
        columns = Schema(columns=tuple(column for column in table if frame.schema.find(column.name) is not None))
        has_values = len(columns) > len({folded(name) for name in on})
        clauses: list[MergeClause] = [("matched", "update", "all", None)] if has_values else []
        request = merge_request(staged.name, table, columns, list(on), [*clauses, ("not matched", "insert", "all", None)])
        self._merge(staged, request, frame, columns, inline=inline)

    def restore(self, name: str, *, at: At, columns: RestoredColumns | None = None, spark: SparkSession | None = None) -> None:
        """Restore the rows of a table to an earlier snapshot; see :meth:`Table.restore`.

        Args:
            name: ``table`` or ``schema.table``.
            at: Snapshot id, time or name of a hold (:data:`At`).
            columns: ``now`` or ``then``; see :meth:`Table.restore`.
            spark: Spark session whose executors do the work. Default: this process does it.

        Raises:
            NotFoundError: The snapshot does not exist or has expired, or it does not have the table.
            UsageError: The columns have changed since, and ``columns`` is not given.
        """
        at = checked_at(at)
        arguments.optional(partial(arguments.choice, choices=("now", "then")), "columns", columns)
        if self._is_done("restore", name, at, columns):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            if staged.committed is None:
                raise UsageError(f"Table {staged.name} cannot be restored, because this transaction creates it", table=staged.name)
            with self._lake.reader() as reader:
                then = reader.table_by_id(staged.committed.id, resolve_at(reader, at).id)
            if columns == "then":
                # Staged rows of the transaction are discarded anyway, and need not fit the restored columns.
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
        """Add existing Parquet files to a table without copying them; see :meth:`Table.add_data_files`.

        Args:
            name: ``table`` or ``schema.table``.
            paths: A file, a folder, a pattern, or a list of these.
            hive_partitioning: Whether ``key=value`` directories are columns. Default: those with the name of a column.
            allow_missing: Whether files may lack columns of the table. Default: False.
            ignore_extra_columns: Whether files may have columns that the table lacks. Default: False.
            allow_duplicates: Whether a file may be added that the catalog already contains. Default: False.
            for_duckdb: Whether DuckDB must be able to read the files. Default: True.
            spark: Spark session whose executors read the footers. Default: threads of this process read them.

        Raises:
            NotFoundError: There is no such table, or a path matches no file.
            SchemaError: A column is missing, unknown, of another type, or has NULLs that the table does not allow.
            AlreadyExistsError: A file already belongs to the lake, or is scheduled for deletion.
        """
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
        """Reject files that the lake already has. Two entries would show rows twice, and deleting one would delete the file of both."""
        steps = ((step, table.name) for table in self._catalog.tables for step in table.steps if isinstance(step, AddDataFiles))
        added_here = {file_key(added.full_path): name for step, name in steps for added in step.files}
        known = next(
            ((path, f"added to {added_here[key]} in this transaction") for path in paths if (key := file_key(path)) in added_here), None
        )
        if known is None:
            with self._lake.reader() as reader:
                known = named_already(reader, paths)
        if known is not None:
            path, how = known
            raise AlreadyExistsError(
                f"{printable(path)} cannot be added to {staged.name}: it is {how} already, and a file can belong to a table only once. "
                "Remove it from the list, or set allow_duplicates",
                table=staged.name,
                path=printable(path),
            )

    # Clones and branches of tables

    def undrop_table(self, name: str, *, at: At = None, new_name: str | None = None, spark: SparkSession | None = None) -> None:
        """Re-create a dropped table with its definition, rows and row ids.

        Args:
            name: ``table`` or ``schema.table``: the name when it was dropped, or at the snapshot ``at``.
            at: Snapshot id or time to take the table from. Default: the last snapshot that shows it.
            new_name: New name in the same schema, without a schema. Default: the old name.
            spark: Spark session whose executors write the files. Default: this process writes them.

        Raises:
            NotFoundError: No table of this name was dropped, every snapshot that shows it has expired, or its schema was dropped.
            AlreadyExistsError: A table or view has the name.
        """
        at, new_name = checked_at(at), arguments.optional(arguments.filled, "new_name", new_name)
        if self._is_done("undrop", name, at, new_name):
            return
        with self._whole_or_nothing(), self._lake.reader() as reader:
            then = self._dropped(reader, name, at)
            owner = self._catalog.find_schema(then.schema_name)
            if owner is None:
                raise NotFoundError(
                    f"Table {then.qualified_name} cannot be re-created, because its schema was dropped. Create schema "
                    f"{then.schema_name!r} first",
                    schema=then.schema_name,
                )
            self._recreate(reader, owner, then, new_name or then.name, spark)

    def restore_lake(self, *, at: At, spark: SparkSession | None = None) -> None:
        """Restore the whole lake to an earlier snapshot; see :meth:`DuckLake.restore`. It must be the first call of the transaction.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`).
            spark: Spark session whose executors do the work. Default: this process does it.
        """
        at = checked_at(at)
        if self._is_done("restore lake", "main", at, is_schema=True):
            return
        catalog = self._catalog
        if catalog.definitions or catalog.views or any(staged.steps or staged.create for staged in catalog.tables):
            raise UsageError(
                "restore_lake must be the first call of a transaction, because it undoes all earlier changes. Use a transaction of its own"
            )
            # Every commit in between changes what has to be undone, so it raises a conflict, and DuckLake.restore compares again.
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
        """Return the last state of a dropped table."""
        schema, table = split_name(name)
        base = self._catalog.base.id
        if at is not None:
            then = reader.table(schema, table, resolve_at(reader, at).id)
            if any(listed.id == then.id for listed in reader.tables(base, [then.id])) and not self._catalog.is_dropped(then.id):
                raise AlreadyExistsError(f"Table {name} was not dropped. To restore its rows, call table.restore(at=...)", table=name)
            return then
        former = former_tables(reader, schema, table, base)
        if not former:
            raise NotFoundError(
                f"Table {name} cannot be re-created: no table of this name was dropped, or every snapshot that shows it has expired",
                table=name,
            )
        if former[0].last is None:
            raise NotFoundError(
                f"Table {name} cannot be re-created: every snapshot that shows it ({former[0].begin} to {former[0].end - 1}) has expired",
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
        """Create a table from files that executors wrote for it. The transaction deletes the files if it fails.

        Args:
            files: The files, verified.
            state: The settings that their writers received.
            uuid: The table's uuid, which is in the name of its directory.

        Raises:
            CommitConflictError: Another writer has created the table meanwhile.
        """
        # A repeated run may find the table that it has created itself, and write to it: both are one piece of work.
        self._is_done("overwrite", state.table)
        if self._is_done("append", state.table):
            return
        with self._whole_or_nothing():
            schema_name, name = split_name(state.table)
            if self._catalog.find_table(state.table) is not None:
                raise CommitConflictError(
                    f"Another writer created table {state.table} while its rows were written. Run the write again", table=state.table
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
        """Add files that executors wrote to the commit. The transaction deletes the files if it fails.

        Args:
            files: The files, verified.
            state: The settings that their writers received.
            table_id: Id of the table that the writers received.
            uuid: Uuid of this table.
            replaces: Rows to replace: ``all``, those of the ``partitions`` of the files, or None for none.
            has_own_id: Whether the commit id belongs to this table alone, whatever its name is.

        Raises:
            CommitConflictError: The table has changed, so that the files no longer fit.
        """
        if self.repeated if has_own_id else self._is_done("append" if replaces is None else "overwrite", state.table):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(state.table)
            self._coordinator.own(staged.paths(files), state.write_id)
            found = staged.state
            # Executors wrote the files for these columns and keys, and this process cannot read the rows again.
            if (found.id, found.uuid, found.schema, found.partition_spec) != (table_id, uuid, state.schema, state.partition_spec):
                raise CommitConflictError(
                    f"Columns or partition keys of {state.table} were changed while its rows were written. Run the write again",
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
        """Delete the existing rows of the partitions that rows were written to."""
        spec = staged.state.partition_spec
        assert spec is not None
        found = written_partitions((file.partition_values for file in files), spec, staged.state.schema)
        if found is not None:
            self._stage_overwrite(staged, replace(deletes, where=found), read_at)

    def _stage_overwrite(self, staged: StagedTable, step: DeleteWhere, read_at: int | None) -> None:
        """Stage the deletes of an overwrite, after a check for rows that were added since ``read_at``."""
        if read_at is not None and not 0 <= read_at <= self._catalog.base.id:
            raise UsageError(
                f"read_at is {read_at}, but the newest snapshot is {self._catalog.base.id}. Pass the id of the snapshot from "
                "which the data was computed",
                parameter="read_at",
            )
        if step.rejects_unseen and read_at is not None:
            self._coordinator.check_read_at(staged, step, read_at, self._catalog.base)
        self._stage(staged, step)

    # Schemas and tables

    def create_schema(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a schema. ``sales.europe`` is a schema in ``sales``; quote a name that contains a dot.

        Args:
            name: Name of the schema.
            if_not_exists: Whether to do nothing if the schema exists. Default: False, which raises an error.

        Raises:
            AlreadyExistsError: The schema exists.
            NotFoundError: The parent schema does not exist.
            UnsupportedFeatureError: The schema has a parent, and the lake has version 1.0.
        """
        if self._is_done("create schema", name, is_schema=True):
            return
        path = schema_path(name)
        if self._catalog.find_schema(path) is None:
            self._catalog.create_schema(path)
        elif not if_not_exists:
            raise AlreadyExistsError(
                f"Schema {name!r} already exists (snapshot {self._catalog.base.id}). Choose another name, or pass "
                "if_not_exists=True (IF NOT EXISTS)",
                schema=name,
            )

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a schema.

        Args:
            name: Name of the schema.
            cascade: Whether to drop its tables, views, macros and schemas, too. Default: False, which requires an empty schema.
            if_exists: Whether to do nothing if the schema does not exist. Default: False, which raises an error.

        Raises:
            NotFoundError: There is no such schema.
            UsageError: The schema is not empty, and ``cascade`` is False.
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
        """Create a table. Later calls of this transaction may write to it and alter it.

        Args:
            name: ``table`` or ``schema.table``.
            schema: Columns, as a :class:`Schema`, an Arrow schema, a mapping of names to types, or a frame whose columns to use.
            partition_by: Partition keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Default: none.
            comment: Comment on the table. Default: none.
            or_replace: Whether to drop an existing table of this name. Default: False.
            if_not_exists: Whether to keep an existing table or view of this name. Default: False.

        Raises:
            AlreadyExistsError: The table exists, or a view has the name.
            NotFoundError: The schema does not exist.
            SchemaError: A column is not valid in a DuckLake table.
            UsageError: A partition key or default is not valid.
            UnsupportedFeatureError: A nested, variant or geometry column has a default.
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
                raise AlreadyExistsError(
                    f"Table {name} already exists (snapshot {self._catalog.base.id}). Choose another name, or pass "
                    "if_not_exists=True (IF NOT EXISTS) or or_replace=True (OR REPLACE)",
                    table=name,
                )
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
        """Create a table with the columns and rows of a frame. The frame may read from a table of this name (``scan.to_reader()``).

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as in :meth:`DuckLake.write`.
            schema: Columns, as in :meth:`create_table`. Default: the columns of the data.
            partition_by: Partition keys. Default: none.
            comment: Comment on the table. Default: none.
            or_replace: Whether to drop an existing table of this name in the same snapshot. Default: False.

        Raises:
            AlreadyExistsError: The table exists, or a view has the name.
            NotFoundError: The schema does not exist.
            SchemaError: The data does not match ``schema``.
        """
        with self._catalog.whole_or_nothing():
            frame = frame_of(data)
            if not frame.schema.columns:
                raise no_columns(frame.kind)
            columns = frame.schema if schema is None else schema
            self.create_table(name, columns, partition_by=partition_by, comment=comment, or_replace=or_replace)
            self._write_frame(frame, WriteRequest(name=name))

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table within its schema. Files are not moved.

        Args:
            name: ``table`` or ``schema.table``.
            new_name: New name, without a schema.

        Raises:
            NotFoundError: There is no such table.
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
        """Drop a table, including the changes of this transaction to it. Earlier snapshots keep it until they expire.

        Args:
            name: ``table`` or ``schema.table``.
            if_exists: Whether to do nothing if the table does not exist. Default: False, which raises an error.

        Raises:
            NotFoundError: There is no such table.
        """
        if self._is_done("drop", name) or (if_exists and self._catalog.find_table(name) is None):
            return
        self._catalog.drop_table(name)

    # Columns, keys and comments

    def add_column(
        self, table: str, column: ColumnName, data_type: TypeLike, *, default: object = None, if_not_exists: bool = False
    ) -> None:
        """Add a nullable column, or a field of a struct, at the end. Existing rows have the default.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the new column, or path of a field.
            data_type: Type as a string (of DuckLake or DuckDB), an Arrow type, or a :class:`DataType`.
            default: Value of existing rows and of new rows that lack the column. Default: NULL.
            if_not_exists: Whether to do nothing if the column exists. Default: False, which raises an error.

        Raises:
            AlreadyExistsError: The column exists.
            NotFoundError: There is no such table or struct.
            UsageError: The default does not fit the type.
        """
        path = column_path(column)
        try:
            self._alter(table, partial(alterations.add_column, path=path, data_type=data_type_of(data_type), default=default))
        except AlreadyExistsError:
            if not if_not_exists:
                raise

    def drop_column(self, table: str, column: ColumnName, *, if_exists: bool = False) -> None:
        """Drop a column or field. Earlier snapshots keep it. Files are not changed.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            if_exists: Whether to do nothing if the column does not exist. Default: False, which raises an error.

        Raises:
            NotFoundError: There is no such table or column.
            UsageError: The table is partitioned or sorted by the column.
            SchemaError: It is the only column.
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
        """Rename a column or field.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            new_name: New name, without a path.

        Raises:
            NotFoundError: There is no such table or column.
            AlreadyExistsError: Another column has the new name.
        """
        self._alter(table, partial(alterations.rename_column, path=column_path(column), name=storable("new_name", new_name)))

    def set_column_type(self, table: str, column: ColumnName, data_type: TypeLike) -> None:
        """Change the type of a column or field to a wider type. A struct may gain and lose fields.

        The same changes are allowed as in DuckDB (docs/how-to/definitions.md).

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            data_type: Type as a string (of DuckLake or DuckDB), or an Arrow type.

        Raises:
            NotFoundError: There is no such table or column.
            SchemaError: The new type cannot represent all values of the old one.
        """
        wanted = data_type_of(data_type)
        self._alter(table, partial(alterations.set_column_type, path=column_path(column), data_type=wanted))

    def set_default(self, table: str, column: ColumnName, value: object = None, *, expression: str | None = None) -> None:
        """Set the default of a column for new rows. Existing rows do not change.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            value: The value. Default: no default.
            expression: SQL to compute for each statement, such as ``now()`` or ``uuid()``, instead of ``value``
                (docs/how-to/definitions.md).

        Raises:
            NotFoundError: There is no such table or column.
            UsageError: The value has another type, or DuckDB rejects the expression.
            UnsupportedFeatureError: The column is nested, a variant or a geometry.
        """
        path, expression = column_path(column), arguments.optional(storable, "expression", expression)
        if expression is None:
            self._alter(table, partial(alterations.set_default, path=path, value=value))
            return
        if value is not None:
            raise UsageError("set_default takes a value or an expression, not both. Remove one of them")
        with self._whole_or_nothing():
            self._alter(table, partial(alterations.set_default_expression, path=path, expression=expression))
            if not self.repeated:
                column_now = find_node(self._catalog.table(table).state.schema, path)
                if column_now.default is not None and column_now.default_is_expression:
                    self._check_expression(table, column_now.default, Schema(columns=()), column_now)

    def drop_default(self, table: str, column: ColumnName) -> None:
        """Remove the default of a column. New rows that lack the column get NULL.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.

        Raises:
            NotFoundError: There is no such table or column.
        """
        self.set_default(table, column, None)

    def set_not_null(self, table: str, column: ColumnName, *, spark: SparkSession | None = None) -> None:
        """Make a column NOT NULL, after a check that it has no NULL. Rows that other writers add before the commit are checked, too.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.
            spark: Spark session whose executors check the rows. Default: this process checks them.

        Raises:
            SchemaError: A row has NULL in the column, or it is a field.
            UsageError: The column is already NOT NULL.
        """
        path = column_path(column)
        self._alter(table, partial(alterations.set_nullable, path=path, nullable=False), proves=path, session=spark)

    def drop_not_null(self, table: str, column: ColumnName) -> None:
        """Make a column nullable.

        Args:
            table: ``table`` or ``schema.table``.
            column: Name of the column, or path of a field.

        Raises:
            NotFoundError: There is no such table or column.
            UsageError: The column is already nullable.
        """
        self._alter(table, partial(alterations.set_nullable, path=column_path(column), nullable=True))

    def set_partitioned_by(self, table: str, keys: Sequence[str]) -> None:
        """Set the partition keys of new files: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Existing files keep their partitions.

        After a bucket key is added for a column, DuckDB does not find rows of older files by equality with that column
        (docs/how-to/definitions.md).

        Args:
            table: ``table`` or ``schema.table``.
            keys: Partition keys, in order.

        Raises:
            NotFoundError: There is no such table or column.
            UsageError: ``keys`` is empty, or a transform does not support the type of its column.
        """
        chosen = arguments.names("keys", keys)
        if not chosen:
            raise UsageError(
                f"The list of partition keys of {table} is empty. Pass at least one key, or call reset_partitioned_by", table=table
            )
        self._alter(table, partial(alterations.set_partitioned_by, keys=chosen))

    def reset_partitioned_by(self, table: str) -> None:
        """Stop partitioning new files. Existing files keep their partitions.

        Args:
            table: ``table`` or ``schema.table``.
        """
        self._alter(table, partial(alterations.set_partitioned_by, keys=()))

    def set_sorted_by(self, table: str, keys: Sequence[str]) -> None:
        """Set the sort order of new files: ``"day DESC NULLS FIRST"``, ``"lower(carrier)"``.

        Args:
            table: ``table`` or ``schema.table``.
            keys: Sort keys, in order.

        Raises:
            NotFoundError: There is no such table, or a key uses a column that the table lacks.
            UsageError: ``keys`` is empty, or a key is not valid.
        """
        chosen = arguments.names("keys", keys)
        if not chosen:
            raise UsageError(f"The list of sort keys of {table} is empty. Pass at least one key, or call reset_sorted_by", table=table)
        with self._whole_or_nothing():
            self._alter(table, partial(alterations.set_sorted_by, keys=chosen))
            if not self.repeated:
                state = self._catalog.table(table).state
                for key in state.sort_keys:
                    if not is_column(key):
                        self._check_expression(table, key.expression, state.schema)

    def reset_sorted_by(self, table: str) -> None:
        """Stop sorting new files.

        Args:
            table: ``table`` or ``schema.table``.
        """
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
            sql: One SELECT in DuckDB's SQL. Name tables and views as ``name`` (in the view's schema or in ``main``) or ``schema.name``.
                They must exist.
            columns: Names of the first columns, instead of those of the query. Default: the names of the query.
            comment: Comment on the view. Default: none.
            or_replace: Whether to replace an existing view of this name. Default: False.
            if_not_exists: Whether to keep an existing view or table of this name. Default: False.

        Raises:
            AlreadyExistsError: A view or table has the name.
            NotFoundError: The schema, or a table or view in the query, does not exist.
            UsageError: ``sql`` is not exactly one SELECT, a name is ambiguous, or two columns have the same name.
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
            raise UsageError(
                f"View {name} has the column names {list(aliases)}, which repeat one. Give every column a different name", view=name
            )
        existing = catalog.find_view(name)
        if if_not_exists and (existing is not None or catalog.find_table(name) is not None):
            return
        text = view_text(sql, lambda schema, table: self._schema_of(schema, table, owner.name))
        if existing is not None and or_replace:
            catalog.drop_view(name)
        catalog.check_free(owner.name, view_name)
        catalog.create_view(owner, view_name, text, aliases, comment)

    def rename_view(self, name: str, new_name: str) -> None:
        """Rename a view within its schema.

        Args:
            name: ``view`` or ``schema.view``.
            new_name: New name, without a schema.

        Raises:
            NotFoundError: There is no such view.
            AlreadyExistsError: A view or table has the new name.
        """
        arguments.filled("new_name", new_name)
        if self._is_done("rename", name, new_name):
            return
        self._catalog.rename_view(self._catalog.view(name), new_name)

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view. Views that read it are kept, but fail when they are read.

        Args:
            name: ``view`` or ``schema.view``.
            if_exists: Whether to do nothing if the view does not exist. Default: False, which raises an error.

        Raises:
            NotFoundError: There is no such view.
        """
        if self._is_done("drop view", name) or (if_exists and self._catalog.find_view(name) is None):
            return
        self._catalog.drop_view(name)

    def _schema_of(self, schema: str | None, name: str, own: str) -> str:
        """Return the schema of a table or view that a view reads."""
        found = [place for place in ([schema] if schema else dict.fromkeys((own, DEFAULT_SCHEMA))) if self._exists(place, name)]
        if not found:
            where, base = join_name(schema or own, name), self._catalog.base.id
            with self._lake.reader() as reader:
                near = similar_entries(schema or own, name, reader.table_names(base).values())
            raise NotFoundError(
                f"The query of the view reads {where}, which does not exist (snapshot {base}){near}. Create the table or view first, or "
                "correct the name",
                table=where,
            )
        if len(found) > 1:
            raise UsageError(
                f"The query of the view reads {name!r}, which exists in the schemas {' and '.join(found)}. Write schema.{name}", table=name
            )
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
        """Create a macro for DuckDB: a named expression or query with parameters.

        Args:
            name: ``macro`` or ``schema.macro``. A scalar macro and a table macro may have the same name.
            definitions: SQL by list of parameters: ``{"x": "x * 2"}``, ``{"a": "a", "a, b INTEGER := 5": "a + b"}``. A parameter is a
                name with an optional type and an optional constant default. DuckDB resolves names in the SQL when the macro is called,
                with the caller's search path.
            kind: ``scalar`` for expressions, ``table`` for SELECTs. Default: ``scalar``.
            or_replace: Whether to replace an existing macro of this name and kind. Default: False.
            if_not_exists: Whether to keep an existing macro of this name and kind. Default: False.

        Raises:
            AlreadyExistsError: The macro exists.
            NotFoundError: The schema does not exist.
            UsageError: DuckDB does not accept the parameters or the SQL.
            UnsupportedFeatureError: The catalog cannot store the macro, or it cannot be parsed.
        """
        from ducklake_core.format.macros import implementations

        arguments.check_flags(or_replace=or_replace, if_not_exists=if_not_exists)
        arguments.choice("kind", kind, MACRO_KINDS)
        given = {key: storable(f"definitions[{key!r}]", text) for key, text in arguments.mapping("definitions", definitions).items()}
        if self._is_done("create macro", name, kind, given):
            return
        schema_name, macro_name = split_name(name)
        if not macro_name:
            raise UsageError("The name of the macro is empty. Pass a name")
        owner = self._catalog.schema(schema_name)
        made = implementations(macro_name, given, kind)
        found = self._catalog.find_macro(name, kind)
        if found is not None:
            if if_not_exists:
                return
            if not or_replace:
                raise AlreadyExistsError(
                    f"The {kind} macro {name} already exists (snapshot {self._catalog.base.id}). Choose another name, or pass "
                    "if_not_exists=True (IF NOT EXISTS) or or_replace=True (OR REPLACE)",
                    macro=name,
                )
            self._catalog.drop_macro(found)
        self._catalog.create_macro(owner, macro_name, made)

    def drop_macro(self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False) -> None:
        """Drop a macro with all of its definitions.

        Args:
            name: ``macro`` or ``schema.macro``.
            kind: ``scalar`` or ``table``. Default: ``scalar``.
            if_exists: Whether to do nothing if the macro does not exist. Default: False, which raises an error.

        Raises:
            NotFoundError: There is no such macro of this kind.
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
        """Set or delete the comment on a table, a view, or one of their columns.

        Args:
            name: Name of the table or view.
            text: The comment; None deletes it.
            column: Name of a column, or path of a field. Default: the table or view itself.

        Raises:
            NotFoundError: There is no such table, view or column.
            UnsupportedFeatureError: ``column`` belongs to a view, and the lake has version 1.0, which does not store such comments.
        """
        arguments.optional(storable, "text", text)
        if not self._is_done("comment", name, text, column):
            self._tag(name, COMMENT, text, column)

    def set_tag(self, name: str, key: str, value: str | None, *, column: ColumnName | None = None) -> None:
        """Set or delete a tag, a string under a key, on a table, a view or a column.

        The tag ``comment`` is the comment. DuckDB shows no other tags, and columns can have no other tags.

        Args:
            name: Name of the table or view.
            key: Key of the tag.
            value: Value of the tag; None deletes the tag.
            column: Name of a column, or path of a field. Default: the table or view itself.

        Raises:
            NotFoundError: There is no such table, view or column.
            UnsupportedFeatureError: ``column`` is given, and ``key`` is not ``comment``: DuckDB cannot attach a lake with such a tag.
        """
        arguments.filled("key", key)
        arguments.optional(storable, "value", value)
        if column is not None and key != COMMENT:
            raise UnsupportedFeatureError(
                f"A column of {name} cannot have the tag {key!r}, because DuckDB cannot attach a lake with other tags on columns than "
                "comments. Set the tag on the table instead",
                table=name,
                key=key,
            )
        if not self._is_done("tag", name, key, value, column):
            self._tag(name, key, value, column)

    def set_schema_comment(self, name: str, text: str | None) -> None:
        """Set or delete the comment on a schema. DuckDB neither writes nor shows comments on schemas.

        Args:
            name: Name of the schema.
            text: The comment; None deletes it.

        Raises:
            NotFoundError: There is no such schema.
        """
        arguments.optional(storable, "text", text)
        if not self._is_done("comment schema", name, text, is_schema=True):
            self._tag_schema(name, COMMENT, text)

    def set_schema_tag(self, name: str, key: str, value: str | None) -> None:
        """Set or delete a tag, a string under a key, on a schema.

        Args:
            name: Name of the schema.
            key: Key of the tag.
            value: Value of the tag; None deletes the tag.

        Raises:
            NotFoundError: There is no such schema.
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
                f"Columns of view {view.name} cannot have comments, because lakes of version {version} do not store them. Migrate "
                "the lake to version 1.1",
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
        """Return pairs of a column's name in the view and in its query, under which comments are stored; None if that is unknown."""
        from ducklake_core.view_sql.translation import view_schema

        try:
            with self._lake.reader() as reader:
                shown = view_schema(reader, view.state).names
                stored = view_schema(reader, replace(view.state, column_aliases=())).names
        except DuckLakeError:
            return None
        return list(zip(shown, stored, strict=True))

    # Options

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None, schema: str | None = None) -> None:
        """Set an option for the lake, a schema or a table. Later calls of the transaction follow it.

        The option is stored with the snapshot of the transaction, or without a snapshot if the transaction changes nothing else.

        Args:
            name: Name of the option (docs/reference/options.md).
            value: Value of the option.
            table: Table to set it for, which the transaction may have created. Default: the lake.
            schema: Schema to set it for, which the transaction may have created. Default: the lake.

        Raises:
            UsageError: There is no such option, or the value is invalid.
            NotFoundError: There is no such table or schema.
        """
        key, stored = normalize_option(name, arguments.option_value("value", value))
        check_option_scope(key, is_lake=table is None and schema is None)
        self._change_option(key, stored, table, schema)

    def unset_option(self, name: str, *, table: str | None = None, schema: str | None = None) -> bool:
        """Remove an option of the lake, a schema or a table. The option of the wider scope, or the default, is effective again.

        Args:
            name: Name of the option.
            table: Table for which it is set. Default: the lake.
            schema: Schema for which it is set. Default: the lake.

        Returns:
            Whether the option was set.

        Raises:
            UsageError: There is no such option.
            NotFoundError: There is no such table or schema.
        """
        return self._change_option(option_name(name), None, table, schema)

    def _change_option(self, key: str, value: str | None, table: str | None, schema: str | None) -> bool:
        arguments.one_scope(table, schema)
        name = schema if table is None else table
        if self._is_done("set option", name or "", key, value, is_schema=table is None):
            return False
        with self._whole_or_nothing():
            return self._catalog.set_option(key, value, table=table, schema=schema)

    # Maintenance

    def flush_inlined_data(
        self, table: str | None = None, *, schema: str | None = None, tables: str | Sequence[str] | None = None
    ) -> FlushResult:
        """Let the commit write inlined rows and deletes, which the catalog stores, to files.

        Rows that the transaction itself adds, updates or deletes stay inlined. Tables with ``auto_compact = false`` are skipped.

        Args:
            table: ``table`` or ``schema.table``. Default: all tables.
            schema: Process only the tables of this schema.
            tables: Table names with wildcards, instead of ``table`` and ``schema``, as in :meth:`DuckLake.merge_adjacent_files`.

        Returns:
            The plan. The commit flushes what the catalog stores then.

        Raises:
            NotFoundError: There is no such table or schema.
            UsageError: An argument is invalid.
        """
        from ducklake_core.maintenance.flush import FlushResult, plan_flush
        from ducklake_core.maintenance.request import TableRequest, TableScope

        scope, catalog = _scope(table, schema, tables), self._catalog
        if self._is_done("flush", table or schema or "", schema, *(scope.tables or ())):
            return FlushResult(dry_run=True, tables=())
        if table is not None:
            committed = catalog.table(table if schema is None else join_name(schema_path(schema), table)).committed
            # A table of the transaction has no committed rows; one that it has renamed has its old name in the catalog.
            if committed is None:
                return FlushResult(dry_run=True, tables=())
            scope = TableScope(table=join_name(committed.schema_name, committed.name))

        def seen(state: TableState) -> TableState | None:
            return None if catalog.is_dropped(state.id) else with_options(state, catalog.options)

        result, plans = plan_flush(self._lake.database, self._lake.info, TableRequest(scope=scope), seen)
        self._coordinator.flush(plans)
        return result

    def merge_adjacent_files(
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
    ) -> MergeResult:
        """Write the rows of small data files to larger ones, which replace them with the commit.

        The files are those of the snapshot that the transaction reads. If another writer changes one of them, the commit fails.

        Args:
            table: ``table`` or ``schema.table``. Default: all tables.
            schema: Process only the tables of this schema.
            tables: Table names with wildcards, instead of ``table`` and ``schema``, as in :meth:`DuckLake.merge_adjacent_files`.
            max_compacted_files: Maximum number of new files per table. Default: no limit.
            min_file_size: Bytes; smaller files are skipped. Default: 0.
            max_file_size: Bytes; larger files are skipped. Default: the option ``target_file_size``.

        Returns:
            Merged and skipped files by table.

        Raises:
            NotFoundError: There is no such table or schema.
            UsageError: An argument is invalid, or the transaction has changes other than of options, or has merged or rewritten files of a
                table already.
        """
        from ducklake_core.maintenance.merge import MergeLimits, MergeResult, merge_adjacent_files

        limits = MergeLimits(max_compacted_files=max_compacted_files, min_file_size=min_file_size, max_file_size=max_file_size)
        work = partial(merge_adjacent_files, limits=limits)
        details = (max_compacted_files, min_file_size, max_file_size)
        found = self._maintained("merge_adjacent_files", work, _scope(table, schema, tables), details)
        return MergeResult(dry_run=True, tables=()) if found is None else found

    def rewrite_data_files(
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        delete_threshold: float | None = None,
    ) -> RewriteResult:
        """Write data files with many deleted rows again without these rows; the new files replace them with the commit.

        The files are those of the snapshot that the transaction reads. If another writer changes one of them, the commit fails.

        Args:
            table: ``table`` or ``schema.table``. Default: all tables.
            schema: Process only the tables of this schema.
            tables: Table names with wildcards, instead of ``table`` and ``schema``, as in :meth:`DuckLake.rewrite_data_files`.
            delete_threshold: Minimum fraction of deleted rows of a file, 0 to 1. Default: the option ``rewrite_delete_threshold``.

        Returns:
            Rewritten and skipped files by table.

        Raises:
            NotFoundError: There is no such table or schema.
            UsageError: An argument is invalid, or the transaction has changes other than of options, or has merged or rewritten files of a
                table already.
        """
        from ducklake_core.maintenance.rewrite import RewriteLimits, RewriteResult, rewrite_data_files

        limits = RewriteLimits(delete_threshold=delete_threshold)
        work = partial(rewrite_data_files, limits=limits)
        found = self._maintained("rewrite_data_files", work, _scope(table, schema, tables), (delete_threshold,))
        return RewriteResult(dry_run=True, tables=()) if found is None else found

    def _maintained(self, name: str, work: Callable[..., _Result], scope: TableScope, details: tuple[object, ...]) -> _Result | None:
        """Run maintenance as part of the commit; None if an earlier run has committed it."""
        from ducklake_core.maintenance.groups import Execution
        from ducklake_core.maintenance.request import TableRequest

        if self._is_done(name, scope.table or scope.schema or "", scope.schema, *(scope.tables or ()), *details):
            return None
        execution = Execution(transaction=MaintenanceInTransaction(self._coordinator, self._catalog))
        with self._coordinator.maintaining():
            result = work(self._lake.database, self._lake.info, self._lake.storage, TableRequest(scope=scope), execution=execution)
            if result.failed_steps:
                step = result.failed_steps[0]
                raise DuckLakeError(f"{name} is not part of the transaction, because it failed for {step.target}: {step.reason}")
        # The snapshot is that of the transaction, which does not exist yet.
        return replace(result, tables=tuple(replace(one, snapshot=None, snapshots=()) for one in result.tables))

    # SQL

    def sql(
        self,
        sql: str,
        parameters: SqlParameters = None,
        *,
        spark: SparkSession | None = None,
        timezone: str | None = None,
        files: bool = False,
        **frames: FrameLike,
    ) -> Readable | None:
        """Run SQL in DuckDB's dialect. It sees the changes of the transaction, and is committed with them.

        Args:
            sql: Statements, as in :meth:`DuckLake.sql`. Read the rows of a query before the block ends.
            parameters: Values of parameters: a list for ``?`` and ``$1``, a dict for ``$name``. Default: no parameters.
            spark: Spark session for statements that change rows. Queries on it are not supported in a transaction.
            timezone: Time zone of the statement; see :meth:`DuckLake.sql`.
            files: Whether the SQL may read files of this machine. Default: False.
            **frames: Frames that the SQL uses as tables, by name.

        Returns:
            The rows of a query, None for any other statement. Of several statements, the result of the last one.

        Raises:
            UsageError: ``sql`` is not a valid statement, several statements have parameters, a parameter has no value, or an argument is
                not a frame.
            UnsupportedFeatureError: The statement uses a feature that is not supported, or DuckDB is not installed.
        """
        from ducklake_core.sql.parameters import each_statement, run_each

        storable("sql", sql, nul=True)
        arguments.optional(storable, "timezone", timezone)
        each = each_statement(sql, parameters, frames)
        return run_each(each, lambda one, named: self._run_statement(one, parameters, named, spark, timezone, files=files))

    def _run_statement(
        self,
        sql: str,
        parameters: SqlParameters,
        frames: Mapping[str, FrameLike],
        spark: SparkSession | None,
        timezone: str | None,
        *,
        files: bool,
    ) -> Readable | None:
        from ducklake_core.sql.functions import Caller, copy_to_file, replaced, set_variable, uses_lake
        from ducklake_core.sql.parameters import frame_sources, with_parameters
        from ducklake_core.sql.query import statement_zone
        from ducklake_core.sql.time_travel import is_query

        zone = statement_zone(timezone, spark)
        sql = with_parameters(sql, parameters)
        sources = frame_sources(sql, frames)
        with in_zone(zone):
            caller = Caller(
                lake=self._lake,
                at=self._catalog.base.id,
                operations=self,
                files=files,
                describe=self._coordinator.describe,
                options=self._catalog.options,
                schemas=lambda: [one.name for one in self._catalog.schemas_now()],
            )
            sql, results = replaced(sql, caller)
        sources = (*sources, *results)
        if is_query(sql):
            if spark is not None:
                raise UnsupportedFeatureError(
                    "A query in a transaction cannot run on Spark. Remove spark, or query the committed tables with lake.sql(..., "
                    "spark=...)"
                )
            queries = self._queries(sources, files=files)
            with in_zone(zone):
                queries.check(sql)
            return StagedQuery(queries, sql, zone)

        def query(text: str) -> StagedQuery:
            return StagedQuery(self._queries(sources, files=files), text, zone)

        if uses_lake(sql, caller) or set_variable(sql, self._lake.variables, query) or copy_to_file(sql, query, files=files):
            return None
        with in_zone(zone):
            self._run(sql, spark, sources, files=files)
        return None

    def _run(self, sql: str, spark: SparkSession | None, frames: tuple[TableSource, ...], *, files: bool) -> None:
        """Run a statement that is not a query, whose parameters are replaced."""
        if spark is not None and frames:
            raise UnsupportedFeatureError("A statement with frames cannot run on Spark. Remove spark")
        Statement(self, self._queries(frames, files=files), sql, spark, self._change_computed).carry_out()

    def _queries(self, frames: tuple[TableSource, ...] = (), *, files: bool = False) -> StagedQueries:
        return StagedQueries(
            lake=self._lake,
            catalog=lambda: self._catalog,
            table=self.table,
            coordinator=self._coordinator,
            is_done=self.repeated is not None,
            frames=frames,
            files=files,
        )

    def _change_computed(self, name: str, text: str, compute: Callable[[StagedTable], ComputedChange]) -> None:
        """Stage a change with rows that were computed from the state that the transaction sees.

        The commit fails if another writer changes the tables that the rows were computed from.

        Args:
            name: The table.
            text: SQL text, which distinguishes the change from others.
            compute: Computes the change, and returns the tables that it has read.
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
    """Return the transaction of a method that makes one change, with its commit options.

    Args:
        lake: The lake to change.
        commit: Author, message, extra information and commit id.
        retries: Attempts of the call, if it may need several transactions.

    Raises:
        UsageError: The lake was opened read only, or an option does not exist.
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
    # A base that was read up to a second ago saves a query per append. It suits only appends of small frames: they do not depend on rows of
    # the table, and can be repeated on the newest snapshot if the assumption fails.
    again = request.mode == "append" and commit.get("commit_id") is None and frame.is_small
    first = Transaction(lake, **commit, base=lake.table_cache.recent(*split_name(name)) if again else None, retries=retries)
    try:
        result = write_in(first)
    except (CommitConflictError, SchemaError, UsageError):
        if not first.is_on_recent_base:
            raise
        # The cause of the conflict may be older than this call: only the newest snapshot decides.
        result = write_in(Transaction(lake, **commit, retries=retries))
    if result.repeated:
        return single_result(result, *_written_then(lake, name, result.snapshot))
    return single_result(result, name, 0)


def _written_then(lake: LakeContext, name: str, snapshot: Snapshot | None) -> tuple[str, int]:
    """Return name and id of the table that an earlier commit wrote. The table may have been dropped or renamed since."""
    assert snapshot is not None
    with lake.reader() as reader:
        try:
            state = reader.table(*split_name(name), snapshot.id)
        except NotFoundError:
            # It was renamed while it was written, so the snapshot has its other name.
            changes = snapshot.change_set
            written = {*changes.inserted_into_table, *changes.inlined_insert, *changes.deleted_from_table, *changes.inlined_delete}
            if len(written) != 1:
                return join_name(*split_name(name)), 0
            state = reader.table_by_id(written.pop(), snapshot.id)
    return join_name(state.schema_name, state.name), state.id


def frame_in_types_of(table: Schema, frame: Frame, clauses: Sequence[MergeClause]) -> Frame:
    """Return the source of a merge with the types in which its columns are compared and stored.

    - A column that is stored unchanged, in the column of the same name, gets the table's type. Values that do not fit are an error, as
      in other writes.
    - A column that only expressions use keeps its own type, so that a result does not depend on whether all values fit the table's type.
    - A column that is only compared gets the table's type if all of its values fit.
    """
    from ducklake_core.engines.arrow.merge import computed_names, stored_names

    own = frame.typed_like(table)
    stored, computed = stored_names(own.schema, clauses), computed_names(clauses)

    def chosen(column: Field, fitted: Field) -> Field:
        name, known = folded(column.name), table.find(column.name)
        if name in stored:
            return replace(column, type=known.type) if known is not None and may_not_fit(column.type, known.type) else fitted
        return column if name in computed else fitted

    columns = tuple(map(chosen, own.schema, frame.schema_for(table)))
    return replace(own, schema=Schema(columns=columns))


def _columns(given: Any) -> Schema:
    # Schemas of polars are mappings, too, but to other types.
    if isinstance(given, Mapping) and not hasattr(given, "__arrow_c_schema__"):
        return Schema(
            columns=tuple(Field(name=storable("a column's name", name), type=data_type_of(data_type)) for name, data_type in given.items())
        )
    is_rows = not isinstance(given, list | tuple) or all(isinstance(one, Mapping) for one in given)
    if given is None or isinstance(given, str | int) or not is_rows:
        raise UsageError(
            f"the columns of a table must be a dict of names and types such as {{'id': 'int64'}}, a schema or data, not {shown(given)}",
            parameter="schema",
        )
    return frame_columns(given)


def _identity(alteration: Alteration) -> tuple[object, ...]:
    """Return a value that identifies an alteration and is the same in every run."""
    return (alteration.func.__name__, alteration.keywords) if isinstance(alteration, partial) else ()


def _scope(table: str | None, schema: str | None, tables: str | Sequence[str] | None) -> TableScope:
    from ducklake_core.maintenance.request import TableScope

    return TableScope(table=table, schema=schema, tables=arguments.optional(arguments.names, "tables", tables))
