"""Commit staged tables, and plan them again on the newest snapshot after a conflict."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.catalog.database.failures import CallRetries
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.catalog.reading.definitions import ViewState, find_view, macros
from ducklake_core.catalog.reading.definitions import views as all_views
from ducklake_core.catalog.reading.maintenance import named_already
from ducklake_core.catalog.reading.options import check_same_lake, delete_option, store_option, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import (
    Action,
    CreateMacro,
    CreateSchema,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    SetOption,
    StagedDeleteFile,
    TagSchema,
)
from ducklake_core.commit.alterations import difference, normalized
from ducklake_core.commit.committer import Committed, Committer, SweepGuard, check_encrypted
from ducklake_core.commit.registration import WriteRegistration
from ducklake_core.commit.request import (
    CommitRequest,
    checked_commit_id,
    new_commit_id,
    other_operation,
    stored_extra_info,
    without_details,
)
from ducklake_core.commit.resolution import OTHER_CHANGES
from ducklake_core.engines.arrow.positions import rewrite_delete_file
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.frame import Frame
from ducklake_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    DuckLakeError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from ducklake_core.format.changes import parse_changes
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.paths import beginning_of_write, join
from ducklake_core.format.state import SchemaState, Snapshot, TableState, is_same_snapshot
from ducklake_core.format.types.names import folded, parent_schema
from ducklake_core.format.types.text import counted
from ducklake_core.planning.plan import VIRTUAL_COLUMNS, ScanPlan
from ducklake_core.results import TransactionResult, WriteResult
from ducklake_core.staging.context import with_options
from ducklake_core.staging.execute import StepExecutor
from ducklake_core.staging.staged_rows import StagedRows
from ducklake_core.staging.staged_table import Altered, DeleteWhere, StagedTable, StagedView, Step, tagged_view
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.unfinished import sweep_after_error

if TYPE_CHECKING:
    from ducklake_core.catalog.reading.definitions import Macro
    from ducklake_core.maintenance.flush import FlushPlan
    from ducklake_core.maintenance.groups import Change
    from ducklake_core.staging.context import Base, LakeContext
    from ducklake_core.staging.namespace import StagedCatalog


LONG_SECONDS = 60.0
"""Seconds after which a transaction checks before its commit that the store still has its files. Next to such a long write this is
cheap."""
_PARALLEL_REQUESTS = 16

_OF_TABLES = ("dropped_table", "altered_table", "inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")
"""Kinds of changes that name a table, except those that only move its rows to other files."""


# How a transaction becomes a snapshot. After a conflict the steps are repeated, not the calls of the user:
#
#   call       write the rows to files, and apply a step (staged_table.Step) to the table at the base snapshot
#   publish    convert all tables and views to actions, and commit them as the snapshot after the base
#   conflict   1. search for another run with the same commit id: then its snapshot is the result
#              2. give up if an overwrite would replace rows that it has not read, or if the user has read rows that changed meanwhile
#              3. move definitions and table states to the newest snapshot, the new base (rebase_...)
#              4. delete the files that depend on the old base, and apply all steps again
#   success    delete the files that the snapshot does not name
#
# Files of appended rows are written once. Delete files and changed rows depend on the rows of the base, so they are written again.
class CommitCoordinator:
    """Commits the staged changes of a transaction, and plans them again if other writers commit first.

    Args:
        lake: The lake.
        author: Author of the snapshot.
        message: Message of the snapshot.
        extra_info: Further information of the snapshot.
        commit_id: Commit id of the caller, which several runs may share; None for a new one.
        macros: Returns the macros that the transaction sees.
        recent: The base, if it was read before the call.
        retries: Attempts of the call, if it uses several transactions.

    Attributes:
        operations: Operations of the calls, with their objects.
    """

    def __init__(
        self,
        lake: LakeContext,
        *,
        author: str | None,
        message: str | None,
        extra_info: str | Mapping[str, Any] | None,
        commit_id: str | None,
        macros: Callable[[], Sequence[Macro]],
        recent: Base | None = None,
        retries: CallRetries | None = None,
    ) -> None:
        self._lake = lake
        self.given = commit_id is not None
        self.commit_id = new_commit_id() if commit_id is None else checked_commit_id(commit_id)
        self.operations: list[str] = []
        self.overwrites_all = False
        self.retries = CallRetries() if retries is None else retries
        self._files = StagedFiles(lake.storage)
        self.guard = SweepGuard(lake.database, self._files.check_added)
        self._committer = Committer(lake.database, rewrite_delete_file=self._rewrite, guard=self.guard, attempts=self.retries.commits)
        self._assumed_options = recent.options if recent is not None and recent.is_recent else None
        self._writer = uuid.uuid4().hex[:16] if self.given else None
        self._author = author
        self.message = message
        self._extra_info = extra_info
        stored_extra_info(self.commit_id, extra_info)
        self._registration = WriteRegistration(lake.database)
        self._rows = StepExecutor(lake, self._registration, macros)
        self._read = ReadSet()
        self._flushes: dict[int, FlushPlan] = {}
        self._flush_paths: list[str] = []
        self._maintained: dict[int, Change] = {}

    @property
    def is_recent(self) -> bool:
        """Return whether the base was read before the call. Then the transaction is not planned again on it."""
        return self._assumed_options is not None

    def describe(self, author: str | None, message: str | None, extra_info: str | None) -> None:
        """Replace author, message and further information of the snapshot."""
        stored_extra_info(self.commit_id, extra_info)
        self._author, self.message, self._extra_info = author, message, extra_info

    def check_repeated(self, snapshot: Snapshot) -> None:
        """Raise an error if the commit id belongs to another operation.

        Args:
            snapshot: The snapshot that has the commit id.

        Raises:
            UsageError: The snapshot did not do the same as the calls of this transaction.
        """
        other = other_operation(snapshot.extra_info, self.operations)
        if other is not None:
            requested = without_details(other)
            other_way = "" if requested == other else " with these arguments"
            raise UsageError(
                f"The commit id {self.commit_id!r} belongs to other work: snapshot {snapshot.id} has it and did not do {requested!r}"
                f"{other_way}. Nothing was written. Use a separate commit id for each table and each kind of work",
                commit_id=self.commit_id,
                snapshot_id=snapshot.id,
            )

    def own(self, files: Iterable[str], write_id: str) -> None:
        """Record data files of this transaction. Those that its snapshot does not name are deleted at the end."""
        self._files.add_data_files(files, write_id)

    def end(self) -> None:
        """End the registration of the write: the transaction has ended, and writes no more files."""
        self._registration.end()

    def discard(self) -> None:
        """Delete all files of the transaction, after it has certainly failed. Files that cannot be deleted remain as orphans."""
        self._files.discard()

    def one_call(self) -> AbstractContextManager[None]:
        """Delete the files that were recorded in the block if it fails, so that the transaction can continue without them."""
        return self._files.discarding_on_error()

    def write_rows(self, staged: StagedTable, frame: Frame, state: WriteState) -> tuple[WrittenFile, ...]:
        """Write rows to files of the transaction. An interrupt leaves no files behind, even if they are not recorded yet."""
        try:
            files = frame.write(state, self.named)
            self.own(staged.paths(files), state.write_id)
        except Exception:
            raise
        except BaseException:
            # Writers delete their own files after an error. An interrupt may occur between writing and recording a file, so a search by
            # write id finds the rest.
            sweep_after_error(self._lake.storage, state.directory, state.write_id, named=self.named)
            raise
        return files

    def stage(self, staged: StagedTable, step: Step, base: Snapshot) -> None:
        """Apply a step to a table, and store it for another plan."""
        before = self._rows.targets.get(staged.state.id)
        try:
            self._files.add_delete_files(self._rows.apply(staged, step, base))
        except Exception:
            raise
        except BaseException:
            target = self._rows.targets.get(staged.state.id)
            if target is not None and target is not before:
                sweep_after_error(self._lake.storage, target.directory, target.write_id, named=self.named)
            raise
        staged.steps = (*staged.steps, step)

    def write_state(
        self, staged: StagedTable, *, given: Collection[str] | None = None, row_constraint: Predicate | None = None
    ) -> WriteState:
        """Return the settings for writing files of a table, for rows that have the given columns, or all columns if None."""
        return self._rows.write_state(staged, given=given, row_constraint=row_constraint)

    def named(self, files: Sequence[str]) -> frozenset[str]:
        """Return the files that the catalog contains. A sweep must not delete them."""
        return self._rows.named(files)

    def overlay(self, staged: StagedTable, plan: ScanPlan) -> ScanPlan:
        """Return a scan of a table for the user that includes the staged changes."""
        self.note_read(staged)
        return staged.rows.overlay_on(plan, staged.state.path, staged.mapped())

    def read_with_ids(self, staged: StagedTable, base: Snapshot, columns: Sequence[str], where: Predicate | None) -> pa.RecordBatchReader:
        """Return rows of a table, including the changes of the transaction.

        Args:
            staged: The table.
            base: The base snapshot.
            columns: Names of columns and virtual columns, in order. Any other name is used for the row id.
            where: Condition of the rows; None for all.
        """
        from ducklake_core.engines.arrow.read import read_plan

        schema = staged.state.schema
        own = [name for name in columns if schema.find(name) is not None]
        virtual = tuple(dict.fromkeys(["rowid", *(name for name in columns if name not in own and name in VIRTUAL_COLUMNS)]))
        plan = self._rows.plan(staged, base, own, where, virtual)
        indexes = [own.index(name) if name in own else len(own) + virtual.index(name if name in virtual else "rowid") for name in columns]
        arrow = plan.shape.arrow_schema()
        wanted = pa.schema([arrow.field(index).with_name(name) for index, name in zip(indexes, columns, strict=True)])
        batches = (
            pa.RecordBatch.from_arrays([batch.column(index) for index in indexes], schema=wanted)
            for batch in read_plan(plan, self._lake.storage)
        )
        return pa.RecordBatchReader.from_batches(wanted, batches)

    def note_read(self, staged: StagedTable) -> None:
        """Record that the user has read rows of a table. If they change, a conflict is raised instead of planning again."""
        self._read.add(staged.start)

    def publish(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView] = ()
    ) -> TransactionResult:
        """Commit all staged changes as one snapshot.

        Args:
            base: The base snapshot.
            definitions: Staged changes of definitions.
            tables: Staged tables.
            views: Staged views.

        Raises:
            CommitError: Nothing was committed, and the transaction's files are deleted; or the outcome is unknown, and they are kept.
        """
        try:
            committed = self._commit(base, definitions, tables, views)
        except CommitOutcomeUnknownError:
            raise
        except DuckLakeError:
            self.discard()
            raise
        except BaseException:
            # Interrupted: the files are not needed, unless their snapshot may exist.
            if not self._committer.may_have_committed:
                self.discard()
            raise
        if isinstance(committed, Snapshot):
            self.discard()
            return TransactionResult(snapshot=None, writes=tuple(_nothing(staged, committed) for staged in tables if staged.written))
        if committed.repeated:
            self.discard()
            self.check_repeated(committed.snapshot)
            return TransactionResult(snapshot=committed.snapshot, repeated=True)
        self._files.discard_unnamed(
            (*(path for staged in tables for path in _named(staged)), *self._flush_paths, *self._maintained_paths())
        )
        writes = tuple(_result(staged, committed, self.retries.commits.total) for staged in tables if staged.written)
        return TransactionResult(snapshot=committed.snapshot, writes=writes)

    def _commit(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView]
    ) -> Committed | Snapshot:
        """Commit, and plan again on the newest snapshot after each conflict, as often as the retries of the call allow.

        Returns:
            The commit, or the snapshot of the last plan if there was nothing left to commit.
        """
        is_first_plan = True
        while True:
            transaction = self._staged(base, definitions, tables, views, self._flushed(definitions, tables))
            try:
                if transaction.actions and all(isinstance(action, SetOption) for action in transaction.actions):
                    self._store_options(transaction)
                elif transaction.actions:
                    self._files.check_there()
                    self._check_replacements()
                    return self._committer.commit(transaction)
                # A later plan has read everything that existed when the block ended.
                if is_first_plan and transaction.lookups:
                    self._committer.check(transaction)
                return base
            except CommitConflictError as conflict:
                # ``write`` repeats a call from its start if it has assumed its base, and ``DuckLake.restore`` compares the whole lake
                # again. Merged files were read at the base.
                if self.is_recent or self.overwrites_all or self._maintained:
                    raise
                # The commit has certainly failed: if anything fails before the next one, its files are not needed.
                with self._files.discarding_all_on_error():
                    if not self.retries.replans.again():
                        raise
                    is_first_plan = False
                    before, base = base, self._newest()
                    # From here on the commit reads only later snapshots, and another run of this step may have an earlier one.
                    repeated = self._find_other_run(before, base) if self.given else None
                    if repeated is not None:
                        return Committed(snapshot=repeated, ids={}, repeated=True)
                    self._check_unseen(before, base, tables, conflict)
                    self._check_reads(before, base, conflict)
                    definitions = self._replan(base, definitions, tables, views, conflict)

    def _store_options(self, transaction: CommitRequest) -> None:
        """Store options without a snapshot, because nothing else changes.

        Raises:
            CommitConflictError: Another writer has dropped the table or schema of an option.
        """
        from ducklake_core.maintenance.groups import run_write

        def attempt() -> None:
            with self._lake.database.write() as connection:
                self._committer.check(transaction, PlainStatements(connection))
                tables = self._lake.database.tables
                for action in transaction.actions:
                    assert isinstance(action, SetOption)
                    if action.value is None:
                        delete_option(connection, tables, action.key, action.scope, action.scope_id)
                    else:
                        store_option(connection, tables, action.key, action.value, action.scope, action.scope_id)

        run_write(attempt, "set the options")

    def _find_other_run(self, base: Snapshot, newest: Snapshot) -> Snapshot | None:
        """Return the commit of another run with the same id, between two snapshots.

        Raises:
            CommitOutcomeUnknownError: None is found, and some of these snapshots have expired.
        """
        found = self._committer.find_commit(self.commit_id)
        with self._lake.reader() as reader:
            later = reader.snapshots(after=base.id, until=newest.id)
        if found is None and len(later) < newest.id - base.id:
            raise CommitOutcomeUnknownError(
                f"Snapshots after {base.id} expired while this write was running, so it is unknown whether another run with the commit id "
                f"{self.commit_id} has committed. This run has written nothing. Check the rows of the table before you run it again",
                commit_id=self.commit_id,
            )
        return found

    def _check_unseen(self, base: Snapshot, newest: Snapshot, tables: Sequence[StagedTable], conflict: CommitConflictError) -> None:
        """Raise an error for rows that an overwrite would replace without having read them.

        Raises:
            CommitConflictError: Another writer has committed such rows between two snapshots, and the overwrite does not replace them.
        """
        for staged in tables:
            searches = [step for step in staged.steps if isinstance(step, DeleteWhere) and step.rejects_unseen]
            if searches:
                with self._lake.reader() as reader:
                    state = current_state(reader, staged, newest, conflict)
                for step in searches:
                    self._reject_unseen(staged, state, step, base.id, conflict)

    def check_read_at(self, staged: StagedTable, step: DeleteWhere, read_at: int, base: Snapshot) -> None:
        """Raise an error for rows of the slice that another writer committed after the caller had read the table, up to the base.

        Args:
            staged: The table.
            step: The search of the overwrite.
            read_at: Id of the snapshot that the caller has read.
            base: The base snapshot.

        Raises:
            CommitConflictError: There are such rows.
        """
        # A table that the transaction creates (id below 0) has no earlier rows.
        if staged.start.id >= 0 and read_at < base.id:
            with self._lake.reader() as reader:
                state = reader.table_by_id(staged.start.id, base.id)
            self._reject_unseen(staged, state, step, read_at, None)

    def _reject_unseen(
        self, staged: StagedTable, state: TableState | None, step: DeleteWhere, after: int, conflict: CommitConflictError | None
    ) -> None:
        if state is None:
            return
        try:
            snapshot = self._unseen(state, step, after)
            reason = "another writer added or changed rows of the replaced slice in snapshot {}, after the overwrite had read it"
        except (NotFoundError, UnsupportedFeatureError):
            snapshot = state.snapshot_id
            reason = f"columns changed or snapshots expired between snapshots {after} and {{}}, so new rows of the slice cannot be found"
        if snapshot is not None:
            details = {**(conflict.details if conflict is not None else {}), "table": staged.name, "snapshot_id": snapshot}
            raise CommitConflictError(
                f"The overwrite of {staged.name} was not committed: {reason.format(snapshot)}. Nothing was changed. Repeat the overwrite "
                "on the newest snapshot, or pass concurrent_appends='replace' to replace such rows too",
                **details,
                unseen_rows=True,
            ) from conflict

    def _unseen(self, state: TableState, step: DeleteWhere, after: int) -> int | None:
        """Return the snapshot that added a matching row after another snapshot, None if there is no such row.

        Raises:
            NotFoundError: Snapshots in between have expired, or one of them lacks a column of the condition.
            UnsupportedFeatureError: A column of the table has the name of a column of the change feed.
        """
        from ducklake_core.scan import ChangeFeed

        if state.snapshot_id <= after:
            return None
        lake = self._lake
        feed = ChangeFeed(
            table=state,
            kind="insertions",
            start=after + 1,
            columns=("snapshot_id",),
            where=step.where,
            row_limit=1,
            reader=lake.reader,
            storage=lake.storage,
        )
        rows = next((batch for batch in feed.to_batches() if batch.num_rows), None)
        return None if rows is None else int(rows.column(0)[0].as_py())

    def _check_reads(self, base: Snapshot, newest: Snapshot, conflict: CommitConflictError) -> None:
        with self._lake.reader() as reader:
            changed = self._read.changed(reader, base, newest)
        if changed is not None:
            text = (
                f"The transaction has read rows of {changed}, which another writer has changed since, so it cannot be repeated "
                "automatically"
            )
            message = f"{conflict.message}. {text}. Run the transaction again"
            raise CommitConflictError(message, **conflict.details) from conflict

    def flush(self, plans: Iterable[FlushPlan]) -> None:
        """Let the commit flush the inlined data of tables."""
        self._flushes |= {plan.table.id: plan for plan in plans}

    def _flushed(self, definitions: Sequence[Action], tables: Sequence[StagedTable]) -> list[Action]:
        """Write the committed inlined data of tables to files, except rows and files that the transaction changes itself.

        Written again by each plan, because other writers may have changed the inlined data.

        Raises:
            CommitConflictError: Another writer has dropped a table.
        """
        dropped = {action.table_id for action in definitions if isinstance(action, DropTable)}
        due = [plan for table_id, plan in self._flushes.items() if table_id not in dropped]
        self._flush_paths = []
        if not due:
            return []
        from ducklake_core.maintenance.flush import FlushWriter, Unflushed
        from ducklake_core.maintenance.groups import check_made

        lake, staged = self._lake, {one.state.id: one for one in tables}
        writer = FlushWriter(lake.database, lake.info, lake.storage)
        actions: list[Action] = []
        for plan in due:
            own = staged[plan.table.id].rows if plan.table.id in staged else StagedRows()
            deletions = own.deletions
            unflushed = Unflushed(
                rows={name: frozenset(row_ids) for name, row_ids in deletions.inlined},
                files=frozenset((*(one.data_file_id for one in own.delete_files), *(one.data_file_id for one in deletions.ended))),
            )
            write_id = paths.write_id()
            self._registration.add(write_id)
            try:
                written = writer.write(plan, write_id, unflushed)
            except NotFoundError as error:
                name = plan.table.qualified_name
                message = f"Another writer has dropped {name}, whose inlined data the transaction flushes. Run the transaction again"
                raise CommitConflictError(message, table=name) from error
            made = [path for path, _ in written.made]
            self._files.add_delete_files(made)
            self._flush_paths += made
            check_made(lake.storage, written.made)
            if not written.is_empty:
                actions.append(written.action)
        return actions

    @contextmanager
    def maintaining(self) -> Iterator[None]:
        """Forget merges and rewrites of the block if it fails."""
        before = dict(self._maintained)
        with self.one_call():
            try:
                yield
            except BaseException:
                self._maintained = before
                raise

    def register(self, write_id: str) -> None:
        """Protect the files of a write from sweeps of other processes until the transaction ends."""
        self._registration.add(write_id)

    def maintain(self, changes: Iterable[Change]) -> None:
        """Let the commit replace files by merged or rewritten ones.

        Raises:
            StorageError: The store does not have the new files.
        """
        for change in changes:
            self._files.add_delete_files([path for path, _ in change.files])
            self._maintained[change.table.id] = change
        self._check_replacements()

    def _check_replacements(self) -> None:
        """Check that the store has the merged and rewritten files, and that the lake is still the same.

        Raises:
            StorageError: A file is missing. A sweep may have deleted it.
            CatalogError: The catalog belongs to a lake with other settings.
        """
        if not self._maintained:
            return
        from ducklake_core.maintenance.groups import check_made

        with self._lake.reader() as reader:
            check_same_lake(self._lake.info, stored_options(reader.connection, self._lake.database.tables))
        check_made(self._lake.storage, [file for change in self._maintained.values() for file in change.files])

    def check_maintainable(self, table: TableState, staged: StagedCatalog) -> None:
        """Raise an error if the transaction cannot replace files of a table.

        Args:
            table: The table.
            staged: What the transaction has changed.

        Raises:
            UsageError: The transaction has other changes, or has replaced files of the table already.
        """
        if table.id in self._maintained:
            name = table.qualified_name
            raise UsageError(f"The transaction has merged or rewritten files of {name} already. Use separate transactions", table=name)
        if self._flushes or self._changes(staged):
            raise UsageError(OTHER_CHANGES)

    def has_changes(self, staged: StagedCatalog) -> bool:
        """Return whether the transaction has changes other than of options, so that it becomes a snapshot."""
        return bool(self._flushes or self._maintained) or self._changes(staged)

    def _changes(self, staged: StagedCatalog) -> bool:
        everything: tuple[StagedTable | StagedView, ...] = (*staged.tables, *staged.views)
        actions = (action for one in everything for action in one.actions())
        return any(not isinstance(action, SetOption) for action in (*staged.definitions, *actions))

    def _maintained_paths(self) -> list[str]:
        return [path for change in self._maintained.values() for path, _ in change.files]

    def _staged(
        self,
        base: Snapshot,
        definitions: tuple[Action, ...],
        tables: Sequence[StagedTable],
        views: Sequence[StagedView],
        flushed: Sequence[Action],
    ) -> CommitRequest:
        everything: tuple[StagedTable | StagedView, ...] = (*tables, *views)
        actions = (
            *(action for staged in everything for action in staged.actions()),
            *(change.action for change in self._maintained.values()),
        )
        if self._lake.info.encrypted:
            check_encrypted(actions)
        return CommitRequest(
            base=base,
            # New macros come last, as in DuckDB.
            actions=tuple(sorted((*definitions, *actions, *flushed), key=lambda action: isinstance(action, CreateMacro))),
            commit_id=self.commit_id,
            names={
                **{staged.state.id: staged.name for staged in tables if staged.committed is not None},
                **{number: change.table.qualified_name for number, change in self._maintained.items()},
            },
            lookups={staged.state.id: kinds for staged in tables if (kinds := staged.lookups)},
            writer=self._writer,
            overwrites_all=self.overwrites_all,
            assumed_options=self._assumed_options,
            author=self._author,
            message=self.message,
            extra_info=stored_extra_info(
                self.commit_id, self._extra_info, writer=self._writer, operations=self.operations if self.given else ()
            ),
        )

    def _newest(self) -> Snapshot:
        return self._lake.table_cache.read(self._lake.database, self._lake.info).snapshot

    def _replan(
        self,
        base: Snapshot,
        definitions: tuple[Action, ...],
        tables: Sequence[StagedTable],
        views: Sequence[StagedView],
        conflict: CommitConflictError,
    ) -> tuple[Action, ...]:
        """Move all staged changes to a newer snapshot, with the same data files and newly computed deletes.

        The result is as if the transaction had begun after the other one.

        Raises:
            CommitConflictError: The given error: columns or keys of a table changed, so that its files no longer fit, or the
                transaction drops objects.
            AlreadyExistsError: An object to be created already exists.
        """
        with self._lake.reader() as reader:
            definitions = rebase_definitions(definitions, tables, reader, base, conflict)
            own_options = [action for action in definitions if isinstance(action, SetOption)]
            options = None
            if own_options or any(staged.options for staged in tables):
                options = stored_options(reader.connection, reader.catalog)
                for action in own_options:
                    options = options.changed(action.key, action.value, action.scope, action.scope_id)
            for staged in tables:
                current = current_state(reader, staged, base, conflict)
                if options is not None:
                    staged.start = staged.with_options(staged.start, options)
                    current = None if current is None else staged.with_options(current, options)
                rebase_table(staged, current, conflict)
            for view in views:
                rebase_view(view, reader, base, conflict)
            check_names(definitions, tables, views, reader, base, conflict)
            exclusive = [path for staged in tables for path in staged.exclusive]
            if exclusive and named_already(reader, exclusive) is not None:
                raise conflict
        # Positions and changed values are valid only for the rows of the old base.
        self._files.discard_delete_files()
        for staged in tables:
            staged.rows, staged.state = StagedRows(), staged.start
            for step in staged.steps:
                self._files.add_delete_files(self._rows.apply(staged, step, base))
        return definitions

    def _rewrite(self, table_id: int, file: StagedDeleteFile, snapshot_id: int) -> StagedDeleteFile:
        # The commit got another snapshot id than the one after the base: files that store their snapshot's id are written again.
        target = self._rows.targets[table_id]
        written = rewrite_delete_file(file, snapshot_id, target, self._lake.storage)
        self._files.add_rewritten(target.directory + file.path, target.directory + written.path)
        return written


def _named(staged: StagedTable) -> list[str]:
    """Return the files of a table that its snapshot names, except existing files and files added in place."""
    files = (file.file for file in staged.rows.files if file.added is None)
    return staged.paths((*files, *staged.rows.delete_files))


def _nothing(staged: StagedTable, base: Snapshot) -> WriteResult:
    return WriteResult(table=staged.name, table_id=staged.state.id, snapshot=base, committed=False)


def _result(staged: StagedTable, committed: Committed, attempts: int) -> WriteResult:
    files, rows = staged.rows.files, staged.rows.inlined
    inlined = {changed: sum(few.rows.record_count for few in rows if few.is_changed == changed) for changed in (False, True)}
    updated = sum(file.visible_count for file in files if file.is_changed) + inlined[True]
    return WriteResult(
        table=staged.name,
        table_id=committed.ids.get(staged.state.id, staged.state.id),
        snapshot=committed.snapshot,
        created_table=staged.create is not None,
        schema_changes=staged.differences,
        rows_added=sum(file.visible_count for file in files if not file.is_changed) + inlined[False],
        rows_inlined=inlined[False] + inlined[True],
        rows_updated=updated,
        rows_deleted=staged.rows.deletions.row_count - updated,
        files_added=len(files),
        files_removed=len(staged.rows.deletions.ended),
        delete_files_added=len(staged.rows.delete_files),
        bytes_added=sum(file.file.file_size_bytes for file in files),
        attempts=attempts,
    )


def rebase_definitions(
    definitions: tuple[Action, ...], tables: Sequence[StagedTable], reader: CatalogReader, base: Snapshot, conflict: CommitConflictError
) -> tuple[Action, ...]:
    """Return the definitions that still have to be changed. A schema that another writer has created meanwhile is used instead of a new
    one.

    Args:
        definitions: Schemas to create, and objects to drop.
        tables: Staged tables; new ones may be in those schemas.
        reader: The catalog.
        base: The newer snapshot.
        conflict: Error to raise if an object to drop has changed.

    Raises:
        AlreadyExistsError: Another writer has created a schema that was to be new.
    """
    known = {folded(state.name): state for state in reader.schemas(base.id)}
    ids = {state.id for state in known.values()}
    dropped = {(type(action), action.name) for action in definitions if isinstance(action, DropTable | DropView | DropMacro | DropSchema)}
    remaining: list[Action] = []
    used: dict[int, SchemaState] = {}
    for action in definitions:
        match action:
            case CreateSchema(name=name):
                existing = known.get(folded(name))
                if existing is None:
                    # Another writer has dropped the parent schema.
                    if action.parent_id is not None and action.parent_id >= 0 and action.parent_id not in ids:
                        raise conflict
                    around = None if action.parent_id is None else used.get(action.parent_id)
                    remaining.append(action if around is None else replace(action, parent_id=around.id))
                    continue
                _use_schema(action, existing, tables, conflict)
                used[action.schema_id] = existing
            case CreateMacro():
                owner = used.get(action.schema_id)
                if owner is not None:
                    action = replace(action, schema_id=owner.id, schema_name=owner.name)  # noqa: PLW2901
                _check_macro(action, definitions, reader, base, conflict)
                remaining.append(action)
            case TagSchema(schema_id=schema_id, name=name):
                existing = used.get(schema_id) or known.get(folded(name))
                if schema_id >= 0 and (existing is None or existing.id != schema_id):
                    raise conflict
                remaining.append(action if existing is None else replace(action, schema_id=existing.id))
            case SetOption(scope_id=scope_id):
                owner = None if scope_id is None else used.get(scope_id)
                # The schema was dropped.
                if scope_id is not None and scope_id >= 0 and scope_id not in ids:
                    raise conflict
                remaining.append(action if owner is None else replace(action, scope_id=owner.id))
            case DropTable() | DropView() | DropMacro() | DropSchema() if _is_there(action, reader, base, known):
                # Another writer has added to the schema, and the drop must not remove objects that the caller has never seen.
                if isinstance(action, DropSchema) and any(entry not in dropped for entry in _entries(action, reader, base, known.values())):
                    raise conflict
                remaining.append(action)
            case _:
                raise conflict
    return tuple(remaining)


def _use_schema(action: CreateSchema, existing: SchemaState, tables: Sequence[StagedTable], conflict: CommitConflictError) -> None:
    if not action.or_existing:
        message = (
            f"Schema {existing.name!r} already exists: another writer has created it meanwhile. Set if_not_exists, or choose another name"
        )
        raise AlreadyExistsError(message, schema=existing.name) from conflict
    for staged in tables:
        if staged.create is not None and staged.create.schema_id == action.schema_id:
            # Files were written below the path of the staged schema, where readers of the other schema do not expect them.
            if staged.state.path != join(existing.path, staged.create.path):
                raise conflict
            staged.create = replace(staged.create, schema_id=existing.id, schema_name=existing.name)
            staged.state = replace(staged.state, schema_id=existing.id, schema_name=existing.name)
            staged.start = replace(staged.start, schema_id=existing.id, schema_name=existing.name)


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
            message = f"Macro {name} already exists: another writer has created it meanwhile (snapshot {base.id}). Choose another name"
            raise AlreadyExistsError(message, macro=name, snapshot_id=base.id) from conflict


def _is_there(
    action: DropTable | DropView | DropMacro | DropSchema, reader: CatalogReader, base: Snapshot, known: Mapping[str, SchemaState]
) -> bool:
    """Return whether the object to drop still has the name that the call used."""
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
    """Yield the objects of a schema, by name and by the type of the action that drops them."""
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
    """Raise an error for new names that another writer has used meanwhile, and for names in schemas that another writer has dropped.

    Raises:
        AlreadyExistsError: Another table or view has the name.
        CommitConflictError: The given error: the schema of a new name was dropped. Otherwise both would commit, and DuckDB cannot
            attach a lake with a table in no schema.
    """
    schemas = {state.id for state in reader.schemas(base.id)}
    # Tables and views share one counter of ids, because they share their names.
    everything: tuple[StagedTable | StagedView, ...] = (*tables, *views)
    own = {staged.committed.id for staged in everything if staged.committed is not None}
    own |= {action.table_id for action in definitions if isinstance(action, DropTable)}
    own |= {action.view_id for action in definitions if isinstance(action, DropView)}
    for staged in everything:
        state = staged.state
        if staged.committed is not None and staged.committed.name == state.name:
            continue
        if state.schema_id >= 0 and state.schema_id not in schemas:
            raise conflict
        for kind, found in (("table", _table(reader, state, base)), ("view", find_view(reader, state.schema_name, state.name, base.id))):
            if found is not None and found.id not in own:
                message = (
                    f"A {kind} {staged.name} already exists: another writer has created it meanwhile (snapshot {base.id}). Choose "
                    "another name"
                )
                raise AlreadyExistsError(message, **{kind: staged.name}, snapshot_id=base.id) from conflict


def _table(reader: CatalogReader, state: TableState | ViewState, base: Snapshot) -> TableState | None:
    try:
        return reader.table(state.schema_name, state.name, base.id)
    except NotFoundError:
        return None


def rebase_view(staged: StagedView, reader: CatalogReader, base: Snapshot, conflict: CommitConflictError) -> None:
    """Update a staged view to its state at a newer snapshot."""
    state = staged.state
    if staged.committed is None or state == staged.committed:
        return
    current = next((view for view in all_views(reader, base.id) if view.id == state.id), None)
    if current is None or current.name != staged.committed.name:
        raise conflict
    # A tag that this transaction sets replaces the other writer's tag; a rename keeps the other writer's tags.
    staged.state, staged.committed = tagged_view(replace(current, name=state.name), staged.tagged), current


def rebase_table(staged: StagedTable, current: TableState | None, conflict: CommitConflictError) -> None:
    """Update a staged table to its state at a newer snapshot. Its deletes have to be computed again afterwards.

    Args:
        staged: The table; changed in place.
        current: The table at the newer snapshot, None if it does not exist there.
        conflict: Error to raise if the written files no longer fit.

    Raises:
        AlreadyExistsError: Another writer has created a table that was to be new.
    """
    if current is None and staged.create is None:
        raise conflict
    if current is not None and staged.create is not None and not staged.create.or_existing:
        message = (
            f"Table {staged.name} already exists: another writer has created it meanwhile (snapshot {current.snapshot_id}). "
            "Set if_not_exists, or choose another name"
        )
        raise AlreadyExistsError(message, table=staged.name, snapshot_id=current.snapshot_id) from conflict
    # A definition is altered by name: after a rename by another writer, the call may have meant another table.
    if current is not None and staged.committed is not None and staged.is_altered and not _same_name(staged.committed, current):
        raise conflict
    start = staged.start if current is None else current
    if staged.create is not None and not _fits(staged.start, start):
        raise conflict
    staged.state, staged.steps = _begun_again(staged, start, conflict)
    staged.start = start
    if current is not None:
        # What both transactions have created or added belongs to the other commit now; the rows of this one are added to it.
        staged.create, staged.committed = None, current
        staged.differences = staged.differences if difference(current, staged.state) is not None else ()


def _begun_again(staged: StagedTable, start: TableState, conflict: CommitConflictError) -> tuple[TableState, tuple[Step, ...]]:
    """Replay the steps on another state, as if the transaction had begun after the other commit. Return the final state and new steps."""
    before, now = staged.start, start
    steps: list[Step] = []
    for step in staged.steps:
        # Both states advance together, from the old and from the new base. Files of a step fit the new base if columns, keys and
        # directory are the same at this point of the replay.
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


def _fits(own: TableState, existing: TableState) -> bool:
    """Return whether files written for one state of a table fit another."""
    own_keys, other_keys = (state.partition_spec.fields if state.partition_spec else () for state in (own, existing))
    return columns_of(own) == columns_of(existing) and own_keys == other_keys and own.path == existing.path


def columns_of(state: TableState) -> list[tuple[object, ...]]:
    """Return the properties of columns that data files depend on: ids, names, types and NOT NULL, of nested columns, too."""
    return [(node.id, node.name, node.type if node.is_leaf else type(node.type), node.nullable) for node in state.schema.walk()]


def current_state(reader: CatalogReader, staged: StagedTable, base: Snapshot, conflict: CommitConflictError) -> TableState | None:
    """Return the current state of a requested table, even if it was renamed, unless another table has its name.

    Raises:
        CommitConflictError: The given error: another table has the name or the id now.
    """
    if staged.committed is None or staged.requested is None:
        return _found(lambda: reader.table(staged.state.schema_name, staged.state.name, base.id))
    # The call gave a name. The same table may have this name or a new one. Another table under the name is a conflict, and so is another
    # uuid under the id, which a restored backup of the catalog can cause.
    requested, table_id, uuid = staged.requested, staged.committed.id, staged.committed.uuid
    named = _found(lambda: reader.table(*requested, base.id))
    if named is not None and (named.id, named.uuid) == (table_id, uuid):
        return named
    same = _found(lambda: reader.table_by_id(table_id, base.id))
    if named is not None or (same is not None and same.uuid != uuid):
        raise conflict
    return same


def _found(read: Callable[[], TableState]) -> TableState | None:
    try:
        return read()
    except NotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class MaintenanceInTransaction:
    """The transaction that merges and rewrites are part of."""

    coordinator: CommitCoordinator
    catalog: StagedCatalog

    @property
    def base(self) -> Snapshot:
        """The snapshot that the transaction reads."""
        return self.catalog.base

    def register(self, write_id: str) -> None:
        """Protect the files of a write until the transaction ends."""
        self.coordinator.register(write_id)

    def seen(self, table: TableState) -> TableState:
        """Return a table with the options that the transaction has set.

        Raises:
            UsageError: The transaction has other changes, or has replaced files of the table already.
        """
        self.coordinator.check_maintainable(table, self.catalog)
        return with_options(table, self.catalog.options)

    def take(self, changes: Sequence[Change]) -> None:
        """Let the commit make changes."""
        self.coordinator.maintain(changes)


class StagedFiles:
    """Files that a transaction has written, and that no snapshot names before it commits.

    Some of them are deleted after a call that fails (its own files), for a new plan (delete files, which it writes again), after a
    failed transaction (all), and after a commit (those that its snapshot does not name). Files that cannot be deleted remain as
    orphans. If the outcome of a commit is unknown, all files are kept.

    Args:
        storage: Opens the store.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._data: list[str] = []
        self._deletes: list[str] = []
        self._rewritten: dict[str, str] = {}
        self._opened = time.monotonic()
        self._began = time.time()

    def check_there(self) -> None:
        """Check before the commit that the store still has the files of a long transaction. A sweep may have deleted them.

        Raises:
            StorageError: A file is missing.
        """
        # One clock stops while the machine sleeps; the other may be adjusted, or belong to another machine.
        if max(time.monotonic() - self._opened, abs(time.time() - self._began)) < LONG_SECONDS:
            return
        deleted = self._missing([*self._data, *self._deletes])
        if deleted:
            raise StorageError(
                f"Nothing was committed, because {counted(len(deleted), 'file')} of this transaction, such as {printable(deleted[0])}, "
                "disappeared before the commit. A concurrent delete_orphaned_files deletes files that are older than "
                "delete_older_than. Set "
                "this option to more than the longest write takes, and run the transaction again",
                paths=tuple(map(printable, deleted)),
            )

    def check_added(self, paths: Sequence[str]) -> None:
        """Check that the store still has files of other writers that are being added.

        Raises:
            NotFoundError: A file was deleted.
        """
        missing = self._missing(paths)
        if missing:
            raise NotFoundError(
                f"{printable(missing[0])} was deleted while it was being added (one of {counted(len(missing), 'file')}). Nothing "
                "was committed. "
                "A concurrent delete_orphaned_files or cleanup_old_files did not find the file in the catalog. Write the file "
                "again, and add "
                "it while no such operation runs",
                path=printable(missing[0]),
            )

    def _missing(self, paths: Sequence[str]) -> list[str]:
        with ThreadPoolExecutor(_PARALLEL_REQUESTS, thread_name_prefix="there") as pool:
            return [path for path, is_there in zip(paths, pool.map(self._is_there, paths), strict=True) if not is_there]

    def _is_there(self, path: str) -> bool:
        try:
            self._storage.size(path)
        except NotFoundError:
            return False
        return True

    def add_data_files(self, paths: Iterable[str], write_id: str) -> None:
        """Record data files of a write, which may have begun before the transaction. A new plan uses them again."""
        self._data += paths
        self._began = min(self._began, beginning_of_write(write_id))

    def add_delete_files(self, paths: Iterable[str]) -> None:
        """Record delete files. A new plan writes others."""
        self._deletes += paths

    def add_rewritten(self, path: str, new_path: str) -> None:
        """Record the delete file that replaces another one, because the commit expects another snapshot id."""
        self._rewritten[path] = new_path
        self._deletes.append(new_path)

    @contextmanager
    def discarding_on_error(self) -> Iterator[None]:
        """Delete the files that were recorded in the block if it fails, so that the transaction can continue without them."""
        data_files, delete_files = len(self._data), len(self._deletes)
        try:
            yield
        except BaseException:
            self._discard_after(data_files, delete_files)
            raise

    @contextmanager
    def discarding_all_on_error(self) -> Iterator[None]:
        """Delete all files if the block fails, because the transaction fails with it."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Delete all files, after the transaction has certainly failed or has nothing to commit."""
        self._discard_after(0, 0)

    def discard_delete_files(self) -> None:
        """Delete all delete files, including those of a failed commit, before a new plan writes others."""
        self._discard_after(len(self._data), 0)
        self._rewritten = {}

    def discard_unnamed(self, named: Iterable[str]) -> None:
        """Delete the files that the snapshot does not name: data files without live rows, and replaced delete files.

        Args:
            named: Staged paths that the snapshot names; a rewritten delete file counts under its first path.
        """
        kept = {self._newest(path) for path in named}
        self._storage.discard([path for path in (*self._data, *self._deletes) if path not in kept])

    def _discard_after(self, data_files: int, delete_files: int) -> None:
        self._storage.discard([*self._data[data_files:], *self._deletes[delete_files:]])
        del self._data[data_files:]
        del self._deletes[delete_files:]

    def _newest(self, path: str) -> str:
        while path in self._rewritten:
            path = self._rewritten[path]
        return path


class ReadSet:
    """Tables whose rows the user of a transaction has read.

    The transaction can be repeated on a newer snapshot if the user would have read the same rows there: then it is as if it had begun
    after the other commits.
    """

    def __init__(self) -> None:
        self._tables: dict[int, TableState] = {}

    def add(self, table: TableState) -> None:
        """Record a table, in its state before the transaction changed it."""
        self._tables[table.id] = table

    def changed(self, reader: CatalogReader, base: Snapshot, newest: Snapshot) -> str | None:
        """Return the name of a table that was read and that another writer has changed between two snapshots; None if there is none."""
        if not self._tables:
            return None
        found = reader.snapshots(after=base.id - 1, until=newest.id)
        # It is unknown what an expired snapshot has changed, and whether ids are the same if the base has expired.
        is_known = bool(found) and is_same_snapshot(found[0], base) and len(found) == 1 + newest.id - base.id
        touched = _touched(found[1:]) if is_known else None
        changed = (table for table in self._tables.values() if self._is_changed(table, touched, reader, newest))
        return next((table.qualified_name for table in changed), None)

    @staticmethod
    def _is_changed(table: TableState, touched: frozenset[int] | None, reader: CatalogReader, newest: Snapshot) -> bool:
        try:
            if table.id < 0:
                # The transaction creates it: another writer has rows in it only if it has created a table of that name, too.
                reader.table(table.schema_name, table.name, newest.id)
                return True
            now = reader.table_by_id(table.id, newest.id)
        except NotFoundError:
            return table.id >= 0
        # The changes of a rename contain only the new name.
        return (
            touched is None or now.uuid != table.uuid or table.id in touched or (now.schema_id, now.name) != (table.schema_id, table.name)
        )


def _touched(snapshots: Sequence[Snapshot]) -> frozenset[int] | None:
    """Return ids of the tables with changed rows or columns after some snapshots, None if this is unknown."""
    found: set[int] = set()
    for snapshot in snapshots:
        changes = parse_changes(snapshot.changes)
        if changes.unknown:
            return None
        found.update(number for kind in _OF_TABLES for number in getattr(changes, kind))
    return frozenset(found)
