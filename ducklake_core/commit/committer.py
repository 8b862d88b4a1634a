"""Commit a staged transaction in short attempts, each one database transaction, with three possible endings.

An attempt runs these steps, in this order::

    read the head                  in the transaction that is to commit (see ``writing.head``)
    own commit id in the head?     yes: an earlier attempt, or another run, committed it -> Committed
    unanswered COMMIT decided?     no: its snapshot id was expired -> CommitOutcomeUnknownError
    conflict with later snapshots? yes -> CommitConflictError
    resolve actions, write rows    snapshot id = head + 1
    COMMIT                         ok -> Committed
                                   rejected or locked -> next attempt
                                   connection lost -> unanswered, the next attempt decides

A lost connection at COMMIT leaves the outcome open: the transaction may or may not be in the lake. Only the commit id in a later head,
or a free snapshot id, decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.failures import (
    COMMIT_RETRIES,
    READERS_SECONDS,
    Attempts,
    is_about_length,
    is_blocked_by_readers,
    waited_in_vain,
)
from ducklake_core.catalog.database.statements import PlainStatements, Statements
from ducklake_core.catalog.database.writer_queue import LeaseRequest
from ducklake_core.catalog.reading.snapshots import expired_among, search_log, snapshots_mentioning
from ducklake_core.catalog.writing.head import Head, HeadRequest, read_head
from ducklake_core.catalog.writing.writer import apply_changes, longest_value, sweep_mark, wait_for_rows
from ducklake_core.commit.actions import (
    Action,
    AddDeleteFiles,
    AddFiles,
    AppendFiles,
    CumulativeDeletes,
    EndFiles,
    FlushInlined,
    InlineDeletes,
    InsertInlined,
    MergeFiles,
    RewriteFiles,
    StagedDeleteFile,
)
from ducklake_core.commit.conflicts import Conflict, find_conflict
from ducklake_core.commit.request import CommitRequest, search_text
from ducklake_core.commit.resolution import Resolution, resolve
from ducklake_core.errors import (
    CatalogError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    DuckLakeError,
    UsageError,
)
from ducklake_core.format.changes import commit_id_of, writer_of
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.state import Snapshot, is_same_snapshot
from ducklake_core.format.types.text import counted

RewriteDeleteFile = Callable[[int, StagedDeleteFile, int], StagedDeleteFile]
"""Write a cumulative delete file again for another snapshot id: (table id, staged file, snapshot id) -> staged file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that is in the lake.

    Attributes:
        snapshot: The snapshot that the commit made.
        ids: Real ids of created schemas and tables by their negative local ids; empty when ``repeated`` or when the
            commit was found again after a lost connection.
        attempts: Number of attempts that it took, 1 or more.
        repeated: Whether another run had committed the same commit id before, so that this run's files are not part of the lake.
    """

    snapshot: Snapshot
    ids: Mapping[int, int]
    attempts: int = 1
    repeated: bool = False


class Committer:
    """Commit staged transactions to one catalog.

    Args:
        database: The catalog's database.
        rewrite_delete_file: Writes a cumulative delete file again. Needed for transactions with such files, because they contain the
            snapshot id that they expect.
        guard: Detects deleted files. Needed for transactions that add files of other writers, which a sweep may delete meanwhile.
        attempts: Attempts and seconds that all commits of this committer share; those of ``COMMIT_RETRIES`` when None.
    """

    def __init__(
        self,
        database: Database,
        *,
        rewrite_delete_file: RewriteDeleteFile | None = None,
        guard: SweepGuard | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self._database = database
        self._rewrite = rewrite_delete_file
        self._guard = guard
        self._attempts = COMMIT_RETRIES.attempts() if attempts is None else attempts
        self._run: _Run | None = None

    @property
    def may_have_committed(self) -> bool:
        """Return whether the last commit, which was interrupted, may be in the lake because its COMMIT was sent."""
        return self._run is not None and self._run.may_have_committed

    def find_commit(self, commit_id: str) -> Snapshot | None:
        """Return the newest snapshot with the commit id, None if there is none; expired snapshots do not count."""
        with self._database.read() as connection:
            candidates = snapshots_mentioning(connection, self._database.tables, search_text(commit_id))
        return _carrying(commit_id, candidates)

    def find_commit_or_raise(self, commit_id: str, snapshot_id: int | None = None) -> Snapshot | None:
        """Return the snapshot with the commit id, None only if there never was one; see :meth:`DuckLake.find_commit`.

        Args:
            commit_id: The commit id to find.
            snapshot_id: The only snapshot id that the commit can have, if it is known. Other expired snapshots are then ignored.

        Raises:
            CommitOutcomeUnknownError: A snapshot that may have had the id has expired.
        """
        with self._database.read() as connection:
            tables, text = self._database.tables, search_text(commit_id)
            log = search_log(connection, tables, text)
            found = _carrying(commit_id, snapshots_mentioning(connection, tables, text)) if log.is_mentioned else None
            # snapshot_changes may keep an entry after its snapshot was expired: it mentions the id, but does not prove a surviving commit.
            is_certain = found is not None or (log.is_whole and not log.is_mentioned)
            expired = None if is_certain else expired_among(connection, tables, snapshot_id)
        if expired is None:
            return found
        raise CommitOutcomeUnknownError(
            f"It is unknown whether commit id {commit_id} was committed: no snapshot has it, but {expired}, and one of them "
            "may have had it. "
            "Check the rows of the table before you write them again",
            commit_id=commit_id,
            snapshot_id=snapshot_id,
        )

    def check(self, transaction: CommitRequest, statements: Statements | None = None) -> None:
        """Check for conflicts with commits of other writers since the base, without committing anything.

        Args:
            transaction: The transaction.
            statements: Statements of an open transaction of the database to check in. Default: a new one.

        Raises:
            CommitConflictError: Another commit conflicts.
        """
        if statements is None:
            with self._database.read() as connection:
                return self.check(transaction, PlainStatements(connection))
        return _reject_conflict(transaction, read_head(statements, self._database, head_request(transaction)))

    def commit(self, transaction: CommitRequest) -> Committed:
        """Commit. Try again when another writer commits first or the database is briefly unreachable.

        No attempt begins after five minutes of waiting. A commit waits only 10 seconds for open read transactions of a SQLite file.

        Raises:
            CommitConflictError: Another transaction changed data that this one depends on. The same request can never succeed.
            CommitRetriesExhaustedError: Other writers committed first in every attempt, or the database stayed unreachable.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be read afterwards.
            CatalogError: The database rejected a statement.
        """
        if not transaction.actions:
            raise UsageError("The transaction contains no changes, so there is nothing to commit")
        run = self._run = _Run(self._database, transaction, self._rewrite, self._guard)
        attempts = self._attempts
        attempts.begin()
        while True:
            try:
                committed = run.attempt(attempts.number)
                self._database.last_committed = committed.snapshot.id
                return committed
            except DuckLakeError as error:
                run.note(error)
                match classify(error):
                    case "retry" | "unavailable":
                        run.failed()
                    case "outcome-unknown":
                        run.lost()
                    case _:
                        raise run.failure(error) from error
                if not attempts.again(error):
                    raise run.exhausted(attempts.number, error) from error


class _Run:
    """The attempts of one commit.

    Three resolutions and flags carry knowledge from one attempt to the next::

        _trying       rows of the newest attempt
        _unanswered   rows of an attempt whose COMMIT got no answer, None once its outcome is known
        _at_commit    COMMIT of the current attempt may have been sent

    ``_transaction`` changes too: cumulative delete files that were written again for a new snapshot id are kept for later attempts.
    """

    def __init__(self, database: Database, transaction: CommitRequest, rewrite: RewriteDeleteFile | None, guard: SweepGuard | None) -> None:
        self._database = database
        self._guard = guard
        self._transaction = transaction
        self._rewrite = rewrite
        self._request = head_request(transaction)
        self._trying: Resolution | None = None
        self._unanswered: Resolution | None = None
        self._lease = LeaseRequest()
        self._had_lease = self._met_locks = False

        self._at_commit = False

    @property
    def may_have_committed(self) -> bool:
        return self._at_commit or self._unanswered is not None

    def failed(self) -> None:
        """Note that the attempt made no snapshot: the database rejected it before or at COMMIT."""
        self._at_commit = False

    def attempt(self, number: int) -> Committed:
        self._wait_for_rows()
        transaction, self._had_lease = self._transaction, False
        self._at_commit = False
        if self._guard is not None:
            self._guard.before_attempt(transaction.actions)
        with self._database.commit(self._lease) as statements:
            head = read_head(statements, self._database, self._request)
            self._had_lease = True
            # A snapshot without a commit id comes from DuckDB or another client, which does not take part in the writer queue.
            if any(commit_id_of(snapshot.extra_info) is None for snapshot in head.later):
                self._database.writer_queue.expect_other_writers()
            # Before the conflict check: the own commit, found again, would conflict with itself.
            found = self._find_own(head, number)
            if found is not None:
                return found
            self._judge_unanswered(head)
            _reject_conflict(transaction, head)
            transaction = self._transaction = self._with_snapshot_id(transaction, head.snapshot.id + 1)
            self._trying = resolve(transaction, head, self._database.definitions.new_suffix())
            apply_changes(statements, self._database, self._trying.changes)
            if self._guard is not None:
                self._guard.check(statements, transaction.actions)
            # Until here any exception, also an interrupt, rolls the transaction back. From here on COMMIT may be sent when the block ends.
            self._at_commit = True
        return Committed(snapshot=self._trying.snapshot, ids=self._trying.ids, attempts=number)

    def note(self, error: DuckLakeError) -> None:
        """Store the reason of a failed attempt. The next attempt queues, or waits for locked rows, accordingly."""
        self._met_locks = self._had_lease and waited_in_vain(error)
        self._lease = self._lease.after(error, had_lease=self._had_lease)

    def _wait_for_rows(self) -> None:
        """Wait for rows that another client had locked in the last attempt. No lock is held meanwhile, so other writers may commit."""
        if self._met_locks and self._trying is not None:
            # The attempt that follows meets the same failure and reports it.
            with suppress(CatalogUnavailableError):
                wait_for_rows(self._database, self._trying.changes)

    def _judge_unanswered(self, head: Head) -> None:
        """Decide whether an unanswered commit, whose id no snapshot carries, failed.

        A head below its snapshot id does not decide this: this attempt takes the same id, so that at most one of both can succeed.

        Raises:
            CommitOutcomeUnknownError: Its snapshot id was taken and expired since, perhaps by this very commit.
        """
        if self._unanswered is None or head.snapshot.id < self._unanswered.snapshot.id:
            return
        number = self._unanswered.snapshot.id
        if all(snapshot.id != number for snapshot in head.later):
            raise self._unknown(f"snapshot {number} has been expired since")
        # Its snapshot id was taken by another commit.
        self._unanswered = None

    def lost(self) -> None:
        """Note that the connection was lost at COMMIT: this attempt may or may not be in the lake.

        The next attempt decides. Either it finds the commit id, or it takes the same snapshot id. The primary key of the snapshot table
        makes the database wait with the latter until the unanswered transaction has ended.
        """
        self._unanswered = self._trying

    def failure(self, error: DuckLakeError) -> DuckLakeError:
        """Return the error to raise: the given one, unless an unanswered COMMIT leaves the outcome open."""
        if self._unanswered is not None:
            return error if isinstance(error, CommitOutcomeUnknownError) else self._unknown(error.message)
        if self._trying is None or not is_about_length(error):
            return error
        advice = "nothing was changed. Store shorter values, or raise the limit of the database"
        return CatalogError(f"{error.message}: {longest_value(self._trying.changes)}; {advice}", **error.details)

    def exhausted(self, attempts: int, last: DuckLakeError) -> DuckLakeError:
        if self._unanswered is not None:
            return self._unknown(last.message)
        names = ", ".join(sorted(self._transaction.names.values())) or "new tables"
        if is_blocked_by_readers(last):
            waited = (
                f"The commit to {names} waited {READERS_SECONDS:.0f} seconds for readers in {counted(attempts, 'attempt')}. "
                "Nothing was changed. "
            )
            return CommitRetriesExhaustedError(waited + last.message, attempts=attempts)
        return CommitRetriesExhaustedError(
            f"The commit to {names} failed in {counted(attempts, 'attempt')}, because other writers committed first or the "
            "catalog was unreachable. "
            f"Nothing was changed. Run it again, or let fewer writers commit at the same time. Last cause: {last.message}",
            attempts=attempts,
        )

    def _unknown(self, why: str) -> CommitOutcomeUnknownError:
        assert self._unanswered is not None
        return CommitOutcomeUnknownError(
            f"It is unknown whether snapshot {self._unanswered.snapshot.id} was committed: the connection was lost during COMMIT, and the "
            f"catalog could not be read afterwards ({why}). No file was deleted. Before you run the write again, call "
            f"lake.find_commit({self._transaction.commit_id!r}, snapshot_id={self._unanswered.snapshot.id})",
            commit_id=self._transaction.commit_id,
            snapshot_id=self._unanswered.snapshot.id,
        )

    def _find_own(self, head: Head, number: int) -> Committed | None:
        for snapshot in head.later:
            if commit_id_of(snapshot.extra_info) == self._transaction.commit_id:
                # Several runs may share a commit id that the caller chose; the writer distinguishes this run. A lost COMMIT of
                # this run is not a repetition: its files are in the lake and must stay.
                own = self._unanswered if writer_of(snapshot.extra_info) == self._transaction.writer else None
                return Committed(snapshot=snapshot, ids=own.ids if own else {}, attempts=number, repeated=own is None)
        return None

    def _with_snapshot_id(self, transaction: CommitRequest, snapshot_id: int) -> CommitRequest:
        """Return the transaction with every cumulative delete file written for this snapshot id.

        DuckDB leaves the id of its first attempt in the file, so that rows disappear from snapshots of other writers.
        Only a catalog in a file is locked while the delete files are written, and only after another writer has committed since the base.
        """
        if not any(isinstance(action, AddDeleteFiles) for action in transaction.actions):
            return transaction
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


def _reject_conflict(transaction: CommitRequest, head: Head) -> None:
    conflict = find_stale(transaction, head) or find_conflict(transaction, head)
    if conflict is not None:
        raise CommitConflictError(conflict.message, rule=conflict.rule, table=conflict.table, snapshot_id=conflict.snapshot_id)


def _carrying(commit_id: str, candidates: Sequence[Snapshot]) -> Snapshot | None:
    return next((s for s in reversed(candidates) if commit_id_of(s.extra_info) == commit_id), None)


def head_request(transaction: CommitRequest) -> HeadRequest:
    """Return the request for everything that the commit of a transaction reads of the head."""
    # A table that the caller named must still have that name. Compaction moves files whatever the table is called.
    moves = (MergeFiles, FlushInlined, RewriteFiles)
    tables = {getattr(action, "table_id", -1) for action in transaction.actions if not isinstance(action, moves)}
    tables |= {table_id for table_id, kinds in transaction.lookups.items() if "definition" in kinds}
    views = frozenset(view_id for action in transaction.actions if (view_id := getattr(action, "view_id", -1)) > 0)
    files: set[int] = set()
    deletes_from: set[int] = set()
    for action in transaction.actions:
        match action:
            case EndFiles(data_file_ids=ids):
                files.update(ids)
            case AddDeleteFiles(files=hidden) | InlineDeletes(files=hidden):
                files.update(file.data_file_id for file in hidden if file.data_file_id >= 0)
            case MergeFiles(merges=merges):
                files.update(source_id for merge in merges for source_id, _, _ in merge.sources)
            case RewriteFiles(sources=sources):
                files.update(source.data_file_id for source in sources)
            case _:
                continue
        deletes_from.add(action.table_id)
    existing = [action for action in transaction.actions if getattr(action, "table_id", -1) > 0]
    inlined = {action.table_id for action in existing if isinstance(action, InsertInlined)}
    gathered = {one.data_file_id for action in transaction.actions if isinstance(action, FlushInlined) for one in action.gathered}
    added = {path for action in transaction.actions if isinstance(action, AddFiles) for path in action.exclusive}
    return HeadRequest(
        base=transaction.base.id,
        schema_version=transaction.base.schema_version,
        options=transaction.assumed_options is not None,
        tables=frozenset(number for number in tables if number > 0),
        views=views,
        statistics_for=frozenset(
            inlined | {action.table_id for action in existing if isinstance(action, AppendFiles | AddFiles | FlushInlined)}
        ),
        inlined_for=frozenset(inlined),
        files=frozenset(files),
        deletes_from=frozenset(deletes_from),
        gathered_for=frozenset(gathered),
        added_paths=frozenset(added),
    )


def find_stale(transaction: CommitRequest, head: Head) -> Conflict | None:
    """Return the first reason why the base is not usable, None when there is none.

    A call may use a snapshot that was read before it began (``assumed_options`` is set then). Everything that it used must be unchanged:
    names, columns and keys, which the schema version covers, and the options, which no version covers.
    """
    base = transaction.base
    if head.base is None or not is_same_snapshot(head.base, base):
        reason = "has expired" if head.base is None else "is another commit now: the catalog was replaced by a backup or a new lake"
        return Conflict(
            rule="base-gone",
            message=f"Transaction conflict - snapshot {base.id}, on which this transaction was planned, {reason}. "
            "Nothing was changed. Run the write again on the newest snapshot",
            snapshot_id=base.id,
        )
    if transaction.assumed_options is None:
        return None
    if head.snapshot.schema_version != base.schema_version:
        return _older("definitions of tables or views were changed", head)
    if head.options is None or not head.options.is_same(transaction.assumed_options):
        return _older("options were changed", head)
    return None


def _older(what: str, head: Head) -> Conflict:
    return Conflict(
        rule="base-older-than-call",
        message=f"Transaction conflict - {what} since the snapshot that was read last. Nothing was changed. Run the write again",
        snapshot_id=head.snapshot.id,
    )


def check_encrypted(actions: Iterable[Action]) -> None:
    """Reject files that are not encrypted.

    Args:
        actions: The actions of a transaction on an encrypted lake.

    Raises:
        CommitError: A file has no encryption key.
    """
    for action in actions:
        for file in _files(action):
            if file.encryption_key is None:
                raise CommitError(
                    f"File {file.path} is not encrypted, but the lake is. Nothing was committed. Write encrypted files", path=file.path
                )


def _files(action: Action) -> Iterable[WrittenFile | StagedDeleteFile | CumulativeDeletes]:
    match action:
        case AppendFiles(files=files):
            return files
        case AddFiles(files=added):
            return [file.file for file, _ in added]
        case AddDeleteFiles(files=deletes):
            return deletes
        case MergeFiles(merges=merges):
            return [*(merge.output for merge in merges), *(merge.deletes for merge in merges if merge.deletes is not None)]
        case FlushInlined(files=flushed, gathered=gathered):
            return [
                *(file.output for file in flushed),
                *(file.deletes for file in flushed if file.deletes is not None),
                *(deletes.file for deletes in gathered),
            ]
        case RewriteFiles(sources=sources, outputs=outputs):
            return [*(file for file, _ in outputs), *(source.gathered.file for source in sources if source.gathered is not None)]
        case _:
            return ()


class SweepGuard:
    """Detect that a sweep has deleted files that a transaction is adding.

    A sweep of orphaned files changes a mark in the catalog. The guard compares the mark before the files were read with the mark in the
    transaction that commits them::

        begin: mark A | files are read | attempt 1: mark B -> rolled back | files exist? mark B | attempt 2: mark B -> COMMIT

    Args:
        database: The catalog.
        check_there: Raises an error when one of the given full paths is missing.
    """

    def __init__(self, database: Database, check_there: Callable[[Sequence[str]], None]) -> None:
        self._database = database
        self._check_there = check_there
        self._is_open = False
        self._mark: str | None = None
        self._is_stale = False

    def begin(self) -> None:
        """Note the mark, before the first file is read."""
        if not self._is_open:
            self._mark, self._is_open = self._read(), True

    def _read(self) -> str | None:
        with self._database.read() as connection:
            found: str | None = connection.execute(sweep_mark(self._database.tables)).scalar()
            return found

    def before_attempt(self, actions: Sequence[Action]) -> None:
        """Check the store for the files after a changed mark. Called while no transaction is open, because the store may be slow.

        Raises:
            NotFoundError: A file was deleted.
        """
        if self._is_stale:
            # The mark first: a sweep between both steps changes it again, and the next attempt notices.
            self._mark = self._read()
            self._check_there(_paths(actions))
            self._is_stale = False

    def check(self, statements: Statements, actions: Sequence[Action]) -> None:
        """Compare the marks in the transaction that adds the files.

        Called after its first change, because no sweep runs from there to the end of the transaction.

        Raises:
            CatalogUnavailableError: They differ; the next attempt checks the store first.
        """
        if not self._is_open or not _paths(actions):
            return
        found = statements.fetch("sweep mark", lambda: sweep_mark(self._database.tables))()
        if (found[0].value if found else None) != self._mark:
            self._is_stale = True
            raise CatalogUnavailableError("Another operation deleted files while files were being added", failure="retry")


def _paths(actions: Sequence[Action]) -> list[str]:
    return [file.full_path for action in actions if isinstance(action, AddFiles) for file, _ in action.files]
