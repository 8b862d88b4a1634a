"""From staged tables to a snapshot: commit, and plan again on the newest snapshot when others got in between."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.catalog.database.retries import REPLAN_RETRIES
from ducklake_core.catalog.reading.known_files import named_already
from ducklake_core.commit.actions import Action, StagedDeleteFile
from ducklake_core.commit.committer import Committed, Committer
from ducklake_core.commit.definition_actions import CreateMacro
from ducklake_core.commit.encrypted_files import check_encrypted
from ducklake_core.commit.operations import without_details
from ducklake_core.commit.registration import WriteRegistration
from ducklake_core.commit.request import CommitRequest, checked_commit_id, new_commit_id, other_operation, stored_extra_info
from ducklake_core.commit.sweep_guard import SweepGuard
from ducklake_core.engines.arrow.positions import rewrite_delete_file
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.frame import Frame
from ducklake_core.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    DuckLakeError,
    NotFoundError,
    UnsupportedFeatureError,
    UsageError,
)
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.planning.plan import ScanPlan
from ducklake_core.planning.virtual import VIRTUAL_COLUMNS
from ducklake_core.results import TransactionResult, WriteResult
from ducklake_core.staging.execute import StepExecutor
from ducklake_core.staging.read_set import ReadSet
from ducklake_core.staging.rebase import check_names, current_state, rebase_definitions, rebase_table, rebase_view
from ducklake_core.staging.staged_files import StagedFiles
from ducklake_core.staging.staged_rows import StagedRows
from ducklake_core.staging.staged_table import DeleteWhere, StagedTable, Step
from ducklake_core.staging.staged_view import StagedView
from ducklake_core.storage.sweeping import sweep_after_error

if TYPE_CHECKING:
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.staging.table_cache import Base


class CommitCoordinator:
    """Turns what a transaction staged into a snapshot, planning it again when other commits get in between.

    Args:
        lake: Where to.
        commit_id: The id that was given from outside, so that several runs may carry it; None for a new one.
        recent: The base, where it was seen before the call.
        tries: How often a commit was tried before.

    Attributes:
        operations: What calls have done, and to what.
    """

    def __init__(
        self,
        lake: LakeContext,
        *,
        author: str | None,
        message: str | None,
        extra_info: str | Mapping[str, Any] | None,
        commit_id: str | None,
        recent: Base | None = None,
        tries: int = 0,
    ) -> None:
        self._lake = lake
        self.given = commit_id is not None
        self.commit_id = new_commit_id() if commit_id is None else checked_commit_id(commit_id)
        self.operations: list[str] = []
        self.takes_all = False
        self._earlier_tries = tries
        self._files = StagedFiles(lake.storage)
        self.guard = SweepGuard(lake.database, self._files.check_added)
        self._committer = Committer(lake.database, rewrite_delete_file=self._rewrite, guard=self.guard)
        self._assumed_options = recent.options if recent is not None and recent.is_recent else None
        self._writer = uuid.uuid4().hex[:16] if self.given else None
        self._author = author
        self.message = message
        self._extra_info = extra_info
        stored_extra_info(self.commit_id, extra_info)
        self._registration = WriteRegistration(lake.database)
        self._rows = StepExecutor(lake, self._registration)
        self._read = ReadSet()

    @property
    def tries(self) -> int:
        """The number of commit attempts so far."""
        return self._earlier_tries + self._committer.tries

    @property
    def is_recent(self) -> bool:
        """Whether the base was seen before the call: then nothing is planned again on it."""
        return self._assumed_options is not None

    def check_repeated(self, snapshot: Snapshot) -> None:
        """Raise when the commit id belongs to another operation.

        Raises:
            UsageError: The snapshot that carries the commit id did not do what the calls ask for.
        """
        other = other_operation(snapshot.extra_info, self.operations)
        if other is not None:
            asked = without_details(other)
            other_way = "" if asked == other else " with these arguments"
            raise UsageError(
                f"the commit id {self.commit_id!r} belongs to other work: snapshot {snapshot.id} carries it and did not do {asked!r}"
                f"{other_way}, so nothing was written. A commit id stands for one operation: give each table, and each kind of work, an id "
                "of its own",
                commit_id=self.commit_id,
                snapshot_id=snapshot.id,
            )

    def own(self, files: Iterable[str], write_id: str) -> None:
        """Note data files of a write that are only this transaction's; those that its snapshot does not name are deleted when it ends."""
        self._files.add_data_files(files, write_id)

    def end(self) -> None:
        """The transaction has ended, in whatever way: nothing is written any more."""
        self._registration.end()

    def discard(self) -> None:
        """Delete all files of the transaction, after it surely failed. Files that cannot be deleted stay as orphans."""
        self._files.discard()

    def one_call(self) -> AbstractContextManager[None]:
        """When the block fails, delete the files that were noted inside it, so that the transaction can continue without them."""
        return self._files.discarding_on_error()

    def write_rows(self, staged: StagedTable, frame: Frame, state: WriteState) -> tuple[WrittenFile, ...]:
        """Write rows to files of the transaction. An interrupt leaves none, also when it comes before they are noted."""
        try:
            files = frame.write(state, self.named)
            self.own(staged.paths(files), state.write_id)
        except Exception:
            raise
        except BaseException:
            sweep_after_error(self._lake.storage, state.directory, state.write_id, named=self.named)
            raise
        return files

    def stage(self, staged: StagedTable, step: Step, base: Snapshot) -> None:
        """Apply a step to a table, and remember it for a new plan."""
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
        """Build the settings that the files of a table are written with, for rows that have the given columns, or all when None."""
        return self._rows.write_state(staged, given=given, row_constraint=row_constraint)

    def named(self, files: Sequence[str]) -> frozenset[str]:
        """Find which of some files the catalog names; a sweep must not delete them."""
        return self._rows.named(files)

    def overlay(self, staged: StagedTable, plan: ScanPlan) -> ScanPlan:
        """A scan of a table for the user, with what is staged laid over it."""
        self.note_read(staged)
        return staged.rows.overlay_on(plan, staged.state.path, staged.mapped())

    def read_with_ids(self, staged: StagedTable, base: Snapshot, columns: Sequence[str], where: Predicate | None) -> pa.RecordBatchReader:
        """Rows of a table as the transaction has made them.

        Args:
            staged: The table.
            base: The snapshot that the transaction is planned on.
            columns: Names of columns and virtual columns, in the order wanted; one that is neither stands for the row id.
            where: Rows for which it is not true are left out.
        """
        from ducklake_core.engines.arrow.read import read_plan

        schema = staged.state.schema
        own = [name for name in columns if schema.find(name) is not None]
        virtual = tuple(dict.fromkeys(["rowid", *(name for name in columns if name not in own and name in VIRTUAL_COLUMNS)]))
        plan = self._rows.plan(staged, base, own, where, virtual)
        places = [own.index(name) if name in own else len(own) + virtual.index(name if name in virtual else "rowid") for name in columns]
        arrow = plan.shape.arrow_schema()
        wanted = pa.schema([arrow.field(place).with_name(name) for place, name in zip(places, columns, strict=True)])
        batches = (
            pa.RecordBatch.from_arrays([batch.column(place) for place in places], schema=wanted)
            for batch in read_plan(plan, self._lake.storage)
        )
        return pa.RecordBatchReader.from_batches(wanted, batches)

    def note_read(self, staged: StagedTable) -> None:
        """Note that rows of a table were shown: a conflict is raised then instead of planning the transaction again."""
        self._read.add(staged.start)

    def publish(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView] = ()
    ) -> TransactionResult:
        """Commit everything staged as one snapshot.

        Raises:
            CommitError: It did not become a snapshot; own files are deleted, unless the outcome is unknown.
        """
        try:
            committed = self._commit(base, definitions, tables, views)
        except CommitOutcomeUnknownError:
            raise
        except DuckLakeError:
            self.discard()
            raise
        except BaseException:
            # Interrupted: nobody needs the files, unless their snapshot may be there.
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
        self._files.discard_unnamed(path for staged in tables for path in _named(staged))
        writes = tuple(_result(staged, committed, self.tries) for staged in tables if staged.written)
        return TransactionResult(snapshot=committed.snapshot, writes=writes)

    def _commit(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView]
    ) -> Committed | Snapshot:
        """Commit, and plan again on the newest snapshot after each conflict.

        Returns:
            The commit, or the snapshot of the last plan when that plan found nothing to commit.
        """
        for plan in range(1, REPLAN_RETRIES.tries + 1):
            transaction = self._staged(base, definitions, tables, views)
            try:
                if transaction.actions:
                    self._files.check_there()
                    return self._committer.commit(transaction)
                # A later plan has seen everything that was there when the block ended.
                if plan == 1 and transaction.lookups:
                    self._committer.check(transaction)
                return base
            except CommitConflictError as conflict:
                if plan == REPLAN_RETRIES.tries or self.is_recent or self.takes_all:
                    raise
                # The commit surely failed: whatever goes wrong before the next one, nobody needs its files.
                with self._files.discarding_all_on_error():
                    time.sleep(REPLAN_RETRIES.pause(plan))
                    before, base = base, self._newest()
                    # From here on the commit looks at later snapshots only, and another run of this step may be an earlier one.
                    repeated = self._find_other_run(before, base) if self.given else None
                    if repeated is not None:
                        return Committed(snapshot=repeated, ids={}, repeated=True)
                    self._check_unseen(before, base, tables, conflict)
                    self._check_reads(before, base, conflict)
                    definitions = self._replan(base, definitions, tables, views, conflict)
        raise AssertionError("the loop above returns or raises")

    def _find_other_run(self, base: Snapshot, newest: Snapshot) -> Snapshot | None:
        """The commit of another run with the same id, between two snapshots.

        Raises:
            CommitOutcomeUnknownError: None is found, and not all of them are left.
        """
        found = self._committer.find_commit(self.commit_id)
        with self._lake.reader() as reader:
            later = reader.snapshots(after=base.id, until=newest.id)
        if found is None and len(later) < newest.id - base.id:
            raise CommitOutcomeUnknownError(
                f"snapshots after {base.id} were expired while this write was running, and nobody can tell whether one of them was another "
                f"run with the commit id {self.commit_id}. This run has written nothing: look at the rows before running it again",
                commit_id=self.commit_id,
            )
        return found

    def _check_unseen(self, base: Snapshot, newest: Snapshot, tables: Sequence[StagedTable], conflict: CommitConflictError) -> None:
        """Raise for rows that an overwrite would replace without having seen them.

        Raises:
            CommitConflictError: Another writer has committed such rows between two snapshots, and the overwrite rejects them.
        """
        for staged in tables:
            searches = [step for step in staged.steps if isinstance(step, DeleteWhere) and step.rejects_unseen]
            if searches:
                with self._lake.reader() as reader:
                    state = current_state(reader, staged, newest, conflict)
                for step in searches:
                    self._reject_unseen(staged, state, step, base.id, conflict)

    def check_read_at(self, staged: StagedTable, step: DeleteWhere, read_at: int, base: Snapshot) -> None:
        """Raise for rows of the slice that another writer committed after the caller had read the table, up to the base.

        Args:
            staged: The table.
            step: The overwrite's search.
            read_at: Snapshot that the caller has read.
            base: Snapshot that the transaction is planned on.

        Raises:
            CommitConflictError: There are such rows.
        """
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
        """Return the snapshot of a row that matches and came after another one, None when there is no such row.

        Raises:
            NotFoundError: Snapshots in between were expired, or a column of the condition is missing in one of them.
            UnsupportedFeatureError: Columns of the table have the names of the feed's own.
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
            text = f"The transaction has read rows of {changed}, which others have changed since, so it cannot be planned again by itself"
            message = f"{conflict.message}. {text}: what was done with the rows may be different now"
            raise CommitConflictError(message, **conflict.details) from conflict

    def _staged(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView]
    ) -> CommitRequest:
        everything: tuple[StagedTable | StagedView, ...] = (*tables, *views)
        actions = tuple(action for staged in everything for action in staged.actions())
        if self._lake.info.encrypted:
            check_encrypted(actions)
        return CommitRequest(
            base=base,
            # New macros come last, as in DuckDB.
            actions=tuple(sorted((*definitions, *actions), key=lambda action: isinstance(action, CreateMacro))),
            commit_id=self.commit_id,
            names={staged.state.id: staged.name for staged in tables if staged.committed is not None},
            lookups={staged.state.id: looked for staged in tables if (looked := staged.lookups)},
            writer=self._writer,
            takes_all=self.takes_all,
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
        """Move everything staged to a newer snapshot, with its data files and freshly found deletes.

        The outcome is as if the transaction had begun after the other one.

        Raises:
            CommitConflictError: The given one, when a table's columns or keys are no longer what its files follow, or when
                the transaction drops things.
            AlreadyExistsError: What it was to create anew exists there.
        """
        with self._lake.reader() as reader:
            definitions = rebase_definitions(definitions, tables, reader, base, conflict)
            for staged in tables:
                rebase_table(staged, current_state(reader, staged, base, conflict), conflict)
            for view in views:
                rebase_view(view, reader, base, conflict)
            check_names(definitions, tables, views, reader, base, conflict)
            exclusive = [path for staged in tables for path in staged.exclusive]
            if exclusive and named_already(reader, exclusive) is not None:
                raise conflict
        self._files.discard_delete_files()
        for staged in tables:
            staged.rows, staged.state = StagedRows(), staged.start
            for step in staged.steps:
                self._files.add_delete_files(self._rows.apply(staged, step, base))
        return definitions

    def _rewrite(self, table_id: int, file: StagedDeleteFile, snapshot_id: int) -> StagedDeleteFile:
        target = self._rows.targets[table_id]
        written = rewrite_delete_file(file, snapshot_id, target, self._lake.storage)
        self._files.add_rewritten(target.directory + file.path, target.directory + written.path)
        return written


def _named(staged: StagedTable) -> list[str]:
    """The files of a table that its snapshot names, apart from those that were there before and were added as they are."""
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
