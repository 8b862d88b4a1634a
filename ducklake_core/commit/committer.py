"""Committing a staged transaction: short attempts, each one database transaction, until one of three endings.

Committed; surely failed (an error, and the caller may delete its files); or unknown
(:class:`CommitOutcomeUnknownError`: the connection was lost at COMMIT, so nothing may be deleted).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ducklake_core.catalog.database import Database, classify
from ducklake_core.catalog.head import Head, HeadRequest, read_head, snapshots_mentioning
from ducklake_core.catalog.state import Snapshot
from ducklake_core.catalog.writer import apply_changes
from ducklake_core.commit.actions import (
    Action,
    AddDeleteFiles,
    AddFiles,
    AlterTable,
    AppendFiles,
    DropTable,
    EndFiles,
    InlineDeletes,
    InsertInlined,
    StagedDeleteFile,
)
from ducklake_core.commit.conflicts import find_conflict
from ducklake_core.commit.resolution import Resolution, resolve
from ducklake_core.commit.transaction import StagedTransaction, commit_id_of, search_text, writer_of
from ducklake_core.errors import (
    CommitConflictError,
    CommitError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    DuckLakeError,
    UsageError,
)

RewriteDeleteFile = Callable[[int, StagedDeleteFile, int], StagedDeleteFile]
"""Write a cumulative delete file again for another snapshot id: (table id, staged file, snapshot id) -> staged file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently a commit is tried: ``wait`` seconds x factor^n, jittered between half and whole, up to ``longest``."""

    attempts: int = 25
    wait: float = 0.02
    factor: float = 1.5
    longest: float = 2.0

    def pause(self, attempt: int) -> float:
        """Seconds to sleep after a failed attempt (counted from 1)."""
        return min(self.wait * self.factor ** (attempt - 1), self.longest) * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that is in the lake.

    Attributes:
        snapshot: What it became.
        ids: Real ids of created schemas and tables by their negative local ids; empty when ``repeated`` or when the
            commit was found again after a lost connection.
        attempts: How often it was tried.
        repeated: Whether another run had committed the same commit id before, so that this run's files are not part of the lake.
    """

    snapshot: Snapshot
    ids: Mapping[int, int]
    attempts: int = 1
    repeated: bool = False


class Committer:
    """Commits staged transactions to one catalog.

    Args:
        database: The catalog's database.
        rewrite_delete_file: Needed for transactions with cumulative delete files, which carry the snapshot id they expect.
        policy: Attempts and pauses.
        sleep: For tests.
    """

    def __init__(
        self,
        database: Database,
        *,
        rewrite_delete_file: RewriteDeleteFile | None = None,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._database = database
        self._rewrite = rewrite_delete_file
        self._policy = policy or RetryPolicy()
        self._sleep = sleep

    def find_commit(self, commit_id: str) -> Snapshot | None:
        """The newest surviving snapshot that carries the commit id, None when there is none."""
        with self._database.read() as connection:
            candidates = snapshots_mentioning(connection, self._database.tables, search_text(commit_id))
        return next((s for s in reversed(candidates) if commit_id_of(s.extra_info) == commit_id), None)

    def commit(self, transaction: StagedTransaction) -> Committed:
        """Commit, trying again while other writers win or the database is away for a moment.

        Raises:
            CommitConflictError: Another transaction changed what this one is about; trying again unchanged is no use.
            CommitRetriesExhaustedError: Every attempt lost against another writer, or the database stayed away.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be asked afterwards.
            CatalogError: The database refused a statement.
        """
        if not transaction.actions:
            raise UsageError("a transaction without changes makes no snapshot")
        run = _Run(self._database, transaction, self._rewrite)
        last: DuckLakeError = CommitError("the retry policy allows no attempt")
        for attempt in range(1, self._policy.attempts + 1):
            try:
                return run.attempt(attempt)
            except DuckLakeError as error:
                last = error
                match classify(error):
                    case "retry" | "unavailable":
                        pass
                    case "outcome-unknown":
                        run.lost()
                    case _:
                        raise run.failure(error) from error
            self._sleep(self._policy.pause(attempt))
        raise run.exhausted(self._policy.attempts, last) from last


class _Run:
    """The attempts of one commit, and what is known about those whose COMMIT got no answer."""

    def __init__(self, database: Database, transaction: StagedTransaction, rewrite: RewriteDeleteFile | None) -> None:
        self._database = database
        self._transaction = transaction
        self._rewrite = rewrite
        self._request = head_request(transaction)
        self._trying: Resolution | None = None
        self._unanswered: Resolution | None = None

    def attempt(self, number: int) -> Committed:
        transaction = self._transaction
        with self._database.commit() as statements:
            head = read_head(statements, self._database, self._request)
            if any(commit_id_of(snapshot.extra_info) is None for snapshot in head.later):
                self._database.turns.expect_others()
            found = self._find_own(head, number)
            if found is not None:
                return found
            if self._unanswered is not None and head.snapshot.id >= self._unanswered.snapshot.id:
                # Its snapshot id was taken by another commit, so the unanswered one surely failed.
                self._unanswered = None
            conflict = find_conflict(transaction, head)
            if conflict is not None:
                raise CommitConflictError(conflict.message, rule=conflict.rule, table=conflict.table, snapshot_id=conflict.snapshot_id)
            transaction = self._transaction = self._with_snapshot_id(transaction, head.snapshot.id + 1)
            self._trying = resolve(transaction, head)
            apply_changes(statements, self._database, self._trying.changes)
        return Committed(snapshot=self._trying.snapshot, ids=self._trying.ids, attempts=number)

    def lost(self) -> None:
        """The connection went away at COMMIT: this attempt may or may not be in the lake.

        The next attempt tells: it finds the commit id; or the same snapshot id can be taken, for which the database
        makes it wait until the unanswered transaction has ended.
        """
        self._unanswered = self._trying

    def failure(self, error: DuckLakeError) -> DuckLakeError:
        """The error to raise: the given one, unless an unanswered COMMIT leaves the outcome open."""
        if self._unanswered is None or isinstance(error, CommitOutcomeUnknownError):
            return error
        return self._unknown(error)

    def exhausted(self, attempts: int, last: DuckLakeError) -> DuckLakeError:
        if self._unanswered is not None:
            return self._unknown(last)
        names = ", ".join(sorted(self._transaction.names.values())) or "new tables"
        return CommitRetriesExhaustedError(
            f"the commit to {names} lost all {attempts} attempts against other writers or an unreachable catalog; nothing was changed. "
            f"Run it again, or let fewer writers commit at once. Last cause: {last.message}",
            attempts=attempts,
        )

    def _unknown(self, error: DuckLakeError) -> CommitOutcomeUnknownError:
        assert self._unanswered is not None
        return CommitOutcomeUnknownError(
            f"the connection was lost while snapshot {self._unanswered.snapshot.id} was being committed, and the catalog could not be "
            f"asked whether it arrived ({error.message}). No file was deleted. Before running the write again, look for commit id "
            f"{self._transaction.commit_id} with find_commit",
            commit_id=self._transaction.commit_id,
            snapshot_id=self._unanswered.snapshot.id,
        )

    def _find_own(self, head: Head, number: int) -> Committed | None:
        for snapshot in head.later:
            if commit_id_of(snapshot.extra_info) == self._transaction.commit_id:
                own = self._unanswered if writer_of(snapshot.extra_info) == self._transaction.writer else None
                return Committed(snapshot=snapshot, ids=own.ids if own else {}, attempts=number, repeated=own is None)
        return None

    def _with_snapshot_id(self, transaction: StagedTransaction, snapshot_id: int) -> StagedTransaction:
        """The transaction with every cumulative delete file written for this very snapshot id.

        The reference leaves the id of its first attempt in the file, so that rows vanish from other writers' snapshots.
        No lock is held meanwhile except on a file, and this only happens after others have committed.
        """
        actions = tuple(self._rewritten(action, snapshot_id) for action in transaction.actions)
        return replace(transaction, actions=actions)

    def _rewritten(self, action: Action, snapshot_id: int) -> Action:
        if not isinstance(action, AddDeleteFiles):
            return action
        files = tuple(
            self._rewrite_one(action.table_id, file, snapshot_id) if file.assumed_snapshot not in (None, snapshot_id) else file
            for file in action.files
        )
        return replace(action, files=files)

    def _rewrite_one(self, table_id: int, file: StagedDeleteFile, snapshot_id: int) -> StagedDeleteFile:
        if self._rewrite is None:
            message = f"the delete file {file.path} was written for snapshot {file.assumed_snapshot} and cannot be written again"
            raise CommitError(message, path=file.path, snapshot_id=snapshot_id)
        return self._rewrite(table_id, file, snapshot_id)


def head_request(transaction: StagedTransaction) -> HeadRequest:
    """What the commit of a transaction must know about the head."""
    # Rows go wherever the table is called; only what was asked for by its name must still have it.
    tables = {action.table_id for action in transaction.actions if isinstance(action, AlterTable | DropTable) and action.table_id > 0}
    views = frozenset(view_id for action in transaction.actions if (view_id := getattr(action, "view_id", -1)) > 0)
    files: set[int] = set()
    deletes_from: set[int] = set()
    for action in transaction.actions:
        match action:
            case EndFiles(data_file_ids=ids):
                files.update(ids)
            case AddDeleteFiles(files=hidden) | InlineDeletes(files=hidden):
                files.update(file.data_file_id for file in hidden if file.data_file_id >= 0)
            case _:
                continue
        deletes_from.add(action.table_id)
    existing = [action for action in transaction.actions if getattr(action, "table_id", -1) > 0]
    inlined = {action.table_id for action in existing if isinstance(action, InsertInlined)}
    added = {path for action in transaction.actions if isinstance(action, AddFiles) for path in action.exclusive}
    return HeadRequest(
        base=transaction.base.id,
        schema_version=transaction.base.schema_version,
        tables=frozenset(tables),
        views=views,
        statistics_for=frozenset(inlined | {action.table_id for action in existing if isinstance(action, AppendFiles | AddFiles)}),
        inlined_for=frozenset(inlined),
        files=frozenset(files),
        deletes_from=frozenset(deletes_from),
        added_paths=frozenset(added),
    )
