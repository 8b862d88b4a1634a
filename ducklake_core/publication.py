"""From staged tables to a snapshot: commit, plan deletes again when others got in between, clean up own files."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ducklake_core.arrow.changed_rows import write_updated
from ducklake_core.arrow.positions import DeleteTarget, Deletions, rewrite_delete_file
from ducklake_core.arrow.write import write_table
from ducklake_core.arrow.write_state import WriteState
from ducklake_core.catalog.inlined_ddl import may_inline
from ducklake_core.catalog.known_files import named_already
from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import Snapshot, TableState
from ducklake_core.commit.actions import Action, CreateMacro, StagedDeleteFile
from ducklake_core.commit.committer import Committed, Committer
from ducklake_core.commit.difference import difference
from ducklake_core.commit.encrypted_files import check_encrypted
from ducklake_core.commit.transaction import StagedTransaction, stored_extra_info
from ducklake_core.engines import change_rows, delete_by_key, delete_matching, restore_rows
from ducklake_core.errors import CommitConflictError, CommitOutcomeUnknownError, DuckLakeError, NotFoundError
from ducklake_core.format import paths
from ducklake_core.format.files import ROW_ID_COLUMN, WrittenFile
from ducklake_core.format.options import Options
from ducklake_core.format.predicates import Predicate
from ducklake_core.format.schema import committed_at
from ducklake_core.inlining import inlined_part
from ducklake_core.not_null import check_no_nulls
from ducklake_core.rebase import check_names, rebase_definitions, rebase_table, rebase_view
from ducklake_core.results import TransactionResult, WriteResult
from ducklake_core.scan.plan import ScanPlan, empty_plan
from ducklake_core.staged_table import ChangeRows, FewRows, RestoreRows, SelectKeys, SelectRows, StagedTable
from ducklake_core.staged_view import StagedView
from ducklake_core.storage.sweeping import sweep
from ducklake_core.write_target import new_write_state

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.lake import DuckLake

REPLANS = 20
_LONGEST_PAUSE = 2.0


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
        self._superseded: list[str] = []
        self._passing: list[str] = []
        self._targets: dict[int, DeleteTarget] = {}

    def own(self, files: Iterable[str]) -> None:
        """Note data files that exist only for this transaction."""
        self._data_files += files

    def own_for_now(self, files: Iterable[str]) -> None:
        """Note files that nobody needs any more when the transaction has ended, whichever way."""
        held = list(files)
        self._passing += held
        self._data_files += held

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

    def find_deletions(self, staged: StagedTable, base: Snapshot) -> None:
        """Find the rows that a table's selection means at a snapshot, and write their delete files."""
        state = staged.committed
        if staged.selection is None:
            return
        directory = self._lake.info.checked_location(staged.state.path, f"table {staged.name}", table=staged.name)
        target = DeleteTarget(
            directory=directory,
            data_path=self._lake.info.data_path,
            write_id=paths.write_id(),
            assumed_snapshot=base.id + 1,
            encrypted=self._lake.info.encrypted,
            inlined_rows=Options.from_mapping(staged.state.options).data_inlining_row_limit,
        )
        if staged.key_files is None:
            staged.key_files = tuple(staged.files)
        if isinstance(staged.selection, ChangeRows | RestoreRows):
            self._change(staged, base, staged.selection, target)
            return
        if state is None:
            self._check_keys(staged, base, target)
            return
        self._targets[state.id] = target
        # Predicate and keys are of the columns that the transaction leaves behind, which old files are read in as well.
        wanted = replace(state, schema=committed_at(staged.state.schema, base.id + 1))
        try:
            staged.deletions = self._find(staged, wanted, target)
        except BaseException:
            sweep(self._lake.storage, target.directory, target.write_id)
            raise
        self._delete_files += staged.paths(staged.deletions.delete_files)

    def _find(self, staged: StagedTable, state: TableState, target: DeleteTarget) -> Deletions:
        match staged.selection:
            case SelectRows(where=where, data=data, session=session):
                return delete_matching(self._plan(state, where=where), target, self._lake.storage, data, session)
            case SelectKeys(on=on, data=data):
                return delete_by_key(self._plan(state, on), on, data, staged.key_files or (), target, self._lake.storage)
            case ChangeRows() | RestoreRows() | None:
                return Deletions()

    def _change(self, staged: StagedTable, base: Snapshot, selection: ChangeRows | RestoreRows, target: DeleteTarget) -> None:
        """Find the rows that a change is about, and write what becomes of them."""
        state = staged.committed
        plan = empty_plan(staged.name, base.id, staged.state.schema)
        if state is not None:
            self._targets[state.id] = target
            where = selection.narrowing() if isinstance(selection, ChangeRows) else None
            # Rows that a restore deletes need not fit the columns that it leaves behind.
            restores = isinstance(selection, RestoreRows)
            wanted = state if restores else replace(state, schema=committed_at(staged.state.schema, base.id + 1))
            plan = self._plan(wanted, None, where, virtual=("rowid", "file_row_number"))
        write = self.write_state(staged, write_id=target.write_id)
        try:
            if isinstance(selection, ChangeRows):
                keep = write.options.data_inlining_row_limit if may_inline(write.schema) else 0
                changed = change_rows(plan, selection, target, write, self._lake.storage, keep=keep)
            else:
                # Earlier rows in the columns that the table has when the transaction ends, by their ids.
                then = replace(selection.then, schema=committed_at(staged.state.schema, base.id + 1))
                changed = restore_rows(plan, self._plan(then, None), target, write, self._lake.storage, selection.session)
            updated, few_updated = self._few(changed.few_updated, write)
            inserted, few_inserted = self._few(changed.few_inserted, write)
        except BaseException:
            sweep(self._lake.storage, target.directory, target.write_id)
            raise
        staged.deletions = changed.deletions
        staged.updated, staged.inserted = (*changed.updated, *updated), (*changed.inserted, *inserted)
        staged.few_updated, staged.few_inserted = few_updated, few_inserted
        # Made again with every plan, as the delete files are.
        self._delete_files += staged.paths((*staged.deletions.delete_files, *staged.updated, *staged.inserted))

    def _few(self, rows: pa.Table | None, write: WriteState) -> tuple[tuple[WrittenFile, ...], FewRows | None]:
        """Few rows for the catalog, or else the files that they were written to after all."""
        if rows is None:
            return (), None
        is_updated = ROW_ID_COLUMN in rows.column_names
        plain = rows.drop_columns([ROW_ID_COLUMN]) if is_updated else rows
        inlined, _ = inlined_part(plain, write)
        if inlined is None:
            return (write_updated(rows, write) if is_updated else write_table(rows, write)), None
        return (), FewRows(rows=inlined, row_ids=tuple(rows.column(ROW_ID_COLUMN).to_pylist()) if is_updated else None)

    def write_state(self, staged: StagedTable, *, promise: Predicate | None = None, write_id: str | None = None) -> WriteState:
        """How files of a table are written."""
        return new_write_state(staged.state, self._lake.info, self._lake.storage, promise=promise, write_id=write_id)

    def _check_keys(self, staged: StagedTable, base: Snapshot, target: DeleteTarget) -> None:
        """Refuse NULL and repeated keys in the first rows of a new table too, where there is nothing to replace yet."""
        if isinstance(staged.selection, SelectKeys):
            on, data = staged.selection.on, staged.selection.data
            nothing = empty_plan(staged.name, base.id, staged.state.schema.select(on))
            delete_by_key(nothing, on, data, staged.key_files or (), target, self._lake.storage)

    def _plan(
        self,
        state: TableState,
        columns: Sequence[str] | None = (),
        where: str | Predicate | None = None,
        virtual: Sequence[str] = ("file_row_number",),
    ) -> ScanPlan:
        from ducklake_core.scan.planner import plan_scan

        with self._lake.reader() as reader:
            return plan_scan(reader, state, columns, where, virtual=virtual)

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
        self._drop_superseded()
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
                    base = self._newest()
                    # From here on the commit looks at later snapshots only, and another run of this step may be an earlier one.
                    repeated = committer.find_commit(self.commit_id) if self.given else None
                    if repeated is not None:
                        return Committed(snapshot=repeated, ids={}, repeated=True)
                    definitions = self._replan(base, definitions, tables, views, conflict)
        raise AssertionError("the loop above returns or raises")

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
        for staged in tables:
            self._check_not_null(staged)
        # Those that the failed commit has written again for its snapshot are among them.
        self._discard_after(len(self._data_files), 0)
        self._superseded = []
        for staged in tables:
            self.find_deletions(staged, base)
        return definitions

    def _check_not_null(self, staged: StagedTable) -> None:
        """Look at the rows that came meanwhile, for columns that become NOT NULL."""
        altered = None if staged.committed is None else difference(staged.committed, staged.state)
        for column_id in altered.not_null if altered is not None else ():
            assert staged.committed is not None
            check_no_nulls(self._lake, staged.committed, staged.state, column_id)

    def _rewrite(self, table_id: int, file: StagedDeleteFile, snapshot_id: int) -> StagedDeleteFile:
        target = self._targets[table_id]
        written = rewrite_delete_file(file, snapshot_id, target, self._lake.storage)
        self._superseded.append(target.directory + file.path)
        self._delete_files.append(target.directory + written.path)
        return written

    def _drop_superseded(self) -> None:
        """Delete what is not needed any more, such as delete files that were written again; what cannot be deleted stays as an orphan."""
        self._lake.storage.delete([*self._superseded, *self._passing])


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
    new = [*staged.files, *(added.file for added in staged.added), *staged.inserted]
    few_new, few_changed = (0 if few is None else few.rows.record_count for few in (staged.few_inserted, staged.few_updated))
    inlined = sum(rows.record_count for rows in staged.inlined) + few_new
    files = [*new, *staged.updated]
    updated = sum(file.record_count for file in staged.updated) + few_changed
    return WriteResult(
        table=staged.name,
        table_id=committed.ids.get(staged.state.id, staged.state.id),
        snapshot=committed.snapshot,
        created_table=staged.create is not None,
        schema_changes=staged.differences,
        rows_added=sum(file.record_count for file in new) + inlined,
        rows_inlined=inlined + few_changed,
        rows_updated=updated,
        rows_deleted=staged.deletions.row_count - updated,
        files_added=len(files),
        files_removed=len(staged.deletions.ended),
        delete_files_added=len(staged.deletions.delete_files),
        bytes_added=sum(file.file_size_bytes for file in files),
        attempts=committed.attempts,
    )
