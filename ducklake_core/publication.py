"""From staged tables to a snapshot: commit, plan deletes again when others got in between, clean up own files."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ducklake_core.arrow.positions import rewrite_delete_file
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.catalog.known_files import named_already
from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import Snapshot, TableState
from ducklake_core.commit.actions import Action, CreateMacro, StagedDeleteFile
from ducklake_core.commit.committer import Committed, Committer
from ducklake_core.commit.encrypted_files import check_encrypted
from ducklake_core.commit.transaction import StagedTransaction, stored_extra_info
from ducklake_core.errors import CommitConflictError, CommitOutcomeUnknownError, DuckLakeError, NotFoundError
from ducklake_core.format.predicates import Predicate
from ducklake_core.rebase import check_names, rebase_definitions, rebase_table, rebase_view
from ducklake_core.results import TransactionResult, WriteResult
from ducklake_core.row_staging import RowStaging
from ducklake_core.scan.plan import ScanPlan
from ducklake_core.staged_rows import StagedRows
from ducklake_core.staged_table import StagedTable, Step
from ducklake_core.staged_view import StagedView
from ducklake_core.tables_read import TablesRead

if TYPE_CHECKING:
    from ducklake_core.lake import DuckLake

REPLANS = 60
_LONGEST_PAUSE = 0.5


class Publication:
    """Turns what a transaction staged into a snapshot, and knows every file that it wrote.

    Args:
        lake: Where to.
        given: Whether the commit id was given from outside, so that several runs may carry it.
    """

    def __init__(
        self,
        lake: DuckLake,
        *,
        author: str | None,
        message: str | None,
        extra_info: str | Mapping[str, Any] | None,
        commit_id: str,
        given: bool,
    ) -> None:
        self._lake = lake
        self.commit_id = commit_id
        self.given = given
        self._writer = uuid.uuid4().hex[:16] if given else None
        self._author = author
        self.message = message
        self._extra_info = stored_extra_info(commit_id, extra_info, writer=self._writer)
        self._data_files: list[str] = []
        self._delete_files: list[str] = []
        self._rewritten: dict[str, str] = {}
        self._rows = RowStaging(lake)
        self._read = TablesRead()

    def own(self, files: Iterable[str]) -> None:
        """Note data files that exist only for this transaction."""
        self._data_files += files

    def own_for_now(self, files: Iterable[str]) -> None:
        """Note files that nobody needs any more when the transaction has ended, whichever way."""
        self._data_files += files

    def discard(self) -> None:
        """Delete all files of the transaction, after it surely failed. Files that cannot be deleted stay as orphans."""
        self._discard_after(0, 0)

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """Delete the files that were noted inside the block when it fails, should the transaction go on without them."""
        with self._discarding(after=(len(self._data_files), len(self._delete_files))):
            yield

    @contextmanager
    def _discarding(self, after: tuple[int, int] = (0, 0)) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._discard_after(*after)
            raise

    def _discard_after(self, data_files: int, delete_files: int) -> None:
        self._lake.storage.delete([*self._data_files[data_files:], *self._delete_files[delete_files:]])
        del self._data_files[data_files:]
        del self._delete_files[delete_files:]

    def stage(self, staged: StagedTable, step: Step, base: Snapshot) -> None:
        """Carry out a step on a table, and remember it."""
        self._delete_files += self._rows.carry_out(staged, step, base)
        staged.steps = (*staged.steps, step)

    def write_state(self, staged: StagedTable, *, promise: Predicate | None = None) -> WriteState:
        """How files of a table are written."""
        return self._rows.write_state(staged, promise=promise)

    def overlay(self, staged: StagedTable, plan: ScanPlan) -> ScanPlan:
        """A scan of a table for the user, with what is staged laid over it."""
        self._read.add(staged.start)
        return staged.rows.over(plan, staged.state.path, staged.mapped())

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
        if committed is None:
            self.discard()
            return TransactionResult(snapshot=None, writes=tuple(_nothing(staged, base) for staged in tables if staged.written))
        if committed.repeated:
            self.discard()
            return TransactionResult(snapshot=committed.snapshot, repeated=True)
        self._drop_unneeded(tables)
        writes = tuple(_result(staged, committed) for staged in tables if staged.written)
        return TransactionResult(snapshot=committed.snapshot, writes=writes)

    def _commit(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView]
    ) -> Committed | None:
        committer = Committer(self._lake.database, rewrite_delete_file=self._rewrite)
        for replan in range(1, REPLANS + 1):
            transaction = self._staged(base, definitions, tables, views)
            if not transaction.actions:
                return None
            try:
                return committer.commit(transaction)
            except CommitConflictError as conflict:
                if replan == REPLANS:
                    raise
                # The commit surely failed: whatever goes wrong before the next one, nobody needs its files.
                with self._discarding():
                    time.sleep(min(0.02 * 1.5**replan, _LONGEST_PAUSE) * random.uniform(0.3, 1.0))  # noqa: S311
                    before, base = base, self._newest()
                    # From here on the commit looks at later snapshots only, and another run of this step may be an earlier one.
                    repeated = committer.find_commit(self.commit_id) if self.given else None
                    if repeated is not None:
                        return Committed(snapshot=repeated, ids={}, repeated=True)
                    self._check_reads(before, base, conflict)
                    definitions = self._replan(base, definitions, tables, views, conflict)
        raise AssertionError("the loop above returns or raises")

    def _check_reads(self, base: Snapshot, newest: Snapshot, conflict: CommitConflictError) -> None:
        with self._lake.reader() as reader:
            changed = self._read.changed(reader, base, newest)
        if changed is not None:
            text = f"The transaction has read rows of {changed}, which others have changed since, so it cannot be planned again by itself"
            message = f"{conflict.message}. {text}: what was done with the rows may be different now"
            raise CommitConflictError(message, **conflict.details) from conflict

    def _staged(
        self, base: Snapshot, definitions: tuple[Action, ...], tables: Sequence[StagedTable], views: Sequence[StagedView]
    ) -> StagedTransaction:
        everything: tuple[StagedTable | StagedView, ...] = (*tables, *views)
        actions = tuple(action for staged in everything for action in staged.actions())
        if self._lake.info.encrypted:
            check_encrypted(actions)
        return StagedTransaction(
            base=base,
            # New macros come last, as in the reference.
            actions=tuple(sorted((*definitions, *actions), key=lambda action: isinstance(action, CreateMacro))),
            commit_id=self.commit_id,
            names={staged.state.id: staged.name for staged in tables if staged.committed is not None},
            writer=self._writer,
            author=self._author,
            message=self.message,
            extra_info=self._extra_info,
        )

    def _newest(self) -> Snapshot:
        with self._lake.reader() as reader:
            return reader.latest_snapshot()

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
                rebase_table(staged, _current(reader, staged, base), conflict)
            for view in views:
                rebase_view(view, reader, base, conflict)
            check_names(definitions, tables, views, reader, base, conflict)
            exclusive = [path for staged in tables for path in staged.exclusive]
            if exclusive and named_already(reader, exclusive) is not None:
                raise conflict
        # Those that the failed commit has written again for its snapshot are among them.
        self._discard_after(len(self._data_files), 0)
        self._rewritten = {}
        for staged in tables:
            staged.rows, staged.state = StagedRows(), staged.start
            for step in staged.steps:
                self._delete_files += self._rows.carry_out(staged, step, base)
        return definitions

    def _rewrite(self, table_id: int, file: StagedDeleteFile, snapshot_id: int) -> StagedDeleteFile:
        target = self._rows.targets[table_id]
        written = rewrite_delete_file(file, snapshot_id, target, self._lake.storage)
        self._rewritten[target.directory + file.path] = target.directory + written.path
        self._delete_files.append(target.directory + written.path)
        return written

    def _drop_unneeded(self, tables: Sequence[StagedTable]) -> None:
        """Delete files that no snapshot names: those of rows that were deleted again, delete files that were written again.

        What cannot be deleted stays as an orphan.
        """
        named: set[str] = set()
        for staged in tables:
            files = (file.file for file in staged.rows.files if file.added is None)
            named.update(self._final(path) for path in staged.paths((*files, *staged.rows.delete_files)))
        self._lake.storage.delete([path for path in (*self._data_files, *self._delete_files) if path not in named])

    def _final(self, path: str) -> str:
        while path in self._rewritten:
            path = self._rewritten[path]
        return path


def _current(reader: CatalogReader, staged: StagedTable, base: Snapshot) -> TableState | None:
    """The table as it is now: by id, or by name where the transaction creates it."""
    try:
        if staged.committed is not None:
            return reader.table_by_id(staged.committed.id, base.id)
        return reader.table(staged.state.schema_name, staged.state.name, base.id)
    except NotFoundError:
        return None


def _nothing(staged: StagedTable, base: Snapshot) -> WriteResult:
    return WriteResult(table=staged.name, table_id=staged.state.id, snapshot=base, committed=False)


def _result(staged: StagedTable, committed: Committed) -> WriteResult:
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
        attempts=committed.attempts,
    )
