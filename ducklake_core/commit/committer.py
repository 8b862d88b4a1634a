"""Commit a staged transaction in short attempts, each one database transaction, with three possible endings."""

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
from ducklake_core.catalog.database.writer_queue import Turn
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
from ducklake_core.commit.request import CommitRequest, commit_id_of, search_text, writer_of
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
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.state import Snapshot, is_same_snapshot

RewriteDeleteFile = Callable[[int, StagedDeleteFile, int], StagedDeleteFile]
"""Write a cumulative delete file again for another snapshot id: (table id, staged file, snapshot id) -> staged file."""


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
        guard: Needed for transactions that add files of other writers, which a sweep may delete meanwhile.
        attempts: Counts the attempts of all commits together, which share its limit of seconds; those of ``COMMIT_RETRIES`` when None.
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
        """Whether the last commit, which was interrupted, may be in the lake: its COMMIT was sent."""
        return self._run is not None and self._run.may_have_committed

    def find_commit(self, commit_id: str) -> Snapshot | None:
        """The newest surviving snapshot that carries the commit id, None when there is none."""
        with self._database.read() as connection:
            candidates = snapshots_mentioning(connection, self._database.tables, search_text(commit_id))
        return _carrying(commit_id, candidates)

    def look_for(self, commit_id: str, snapshot_id: int | None = None) -> Snapshot | None:
        """Likewise, but None only when there surely never was one; see :meth:`DuckLake.find_commit`.

        Raises:
            CommitOutcomeUnknownError: It may have been in a snapshot that was expired.
        """
        with self._database.read() as connection:
            tables, text = self._database.tables, search_text(commit_id)
            log = search_log(connection, tables, text)
            found = _carrying(commit_id, snapshots_mentioning(connection, tables, text)) if log.is_mentioned else None
            # An entry that mentions the id may have outlived its snapshot, and says then that nobody knows.
            is_certain = found is not None or (log.is_whole and not log.is_mentioned)
            expired = None if is_certain else expired_among(connection, tables, snapshot_id)
        if expired is None:
            return found
        raise CommitOutcomeUnknownError(
            f"no snapshot carries the commit id {commit_id}, but {expired}, and nobody can tell any more whether one of them did: "
            "look at the rows of the table before writing them again",
            commit_id=commit_id,
            snapshot_id=snapshot_id,
        )

    def check(self, transaction: CommitRequest) -> None:
        """Look for conflicts with what others have committed since the base, without committing anything.

        Raises:
            CommitConflictError: There is one.
        """
        with self._database.read() as connection:
            head = read_head(PlainStatements(connection), self._database, head_request(transaction))
        _refuse_conflict(transaction, head)

    def commit(self, transaction: CommitRequest) -> Committed:
        """Commit, in several attempts while other writers win or the database is away for a moment.

        No attempt begins after five minutes of waiting. Open read transactions of a SQLite file are waited for only 10 seconds.

        Raises:
            CommitConflictError: Another transaction changed what this one is about; trying again unchanged is no use.
            CommitRetriesExhaustedError: Every attempt lost against another writer, or the database stayed away.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be asked afterwards.
            CatalogError: The database rejected a statement.
        """
        if not transaction.actions:
            raise UsageError("a transaction without changes makes no snapshot")
        run = self._run = _Run(self._database, transaction, self._rewrite, self._guard)
        attempts = self._attempts
        attempts.begin()
        while True:
            try:
                return run.attempt(attempts.number)
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
    """The attempts of one commit, and what is known about those whose COMMIT got no answer."""

    def __init__(self, database: Database, transaction: CommitRequest, rewrite: RewriteDeleteFile | None, guard: SweepGuard | None) -> None:
        self._database = database
        self._guard = guard
        self._transaction = transaction
        self._rewrite = rewrite
        self._request = head_request(transaction)
        self._trying: Resolution | None = None
        self._unanswered: Resolution | None = None
        self._turn = Turn()
        self._had_turn = self._met_locks = False

        self._at_commit = False

    @property
    def may_have_committed(self) -> bool:
        return self._at_commit or self._unanswered is not None

    def failed(self) -> None:
        """The attempt surely made no snapshot."""
        self._at_commit = False

    def attempt(self, number: int) -> Committed:
        self._wait_for_rows()
        transaction, self._had_turn = self._transaction, False
        self._at_commit = False
        if self._guard is not None:
            self._guard.before_attempt(transaction.actions)
        with self._database.commit(self._turn) as statements:
            head = read_head(statements, self._database, self._request)
            self._had_turn = True
            if any(commit_id_of(snapshot.extra_info) is None for snapshot in head.later):
                self._database.writer_queue.expect_others()
            found = self._find_own(head, number)
            if found is not None:
                return found
            self._judge_unanswered(head)
            _refuse_conflict(transaction, head)
            transaction = self._transaction = self._with_snapshot_id(transaction, head.snapshot.id + 1)
            self._trying = resolve(transaction, head, self._database.definitions.new_suffix())
            apply_changes(statements, self._database, self._trying.changes)
            if self._guard is not None:
                self._guard.check(statements, transaction.actions)
            # Until here whatever ends the block, an interrupt too, takes everything back.
            self._at_commit = True
        return Committed(snapshot=self._trying.snapshot, ids=self._trying.ids, attempts=number)

    def note(self, error: DuckLakeError) -> None:
        """Remember what an attempt failed of, for the next one."""
        self._met_locks = self._had_turn and waited_in_vain(error)
        self._turn = self._turn.after(error, had_turn=self._had_turn)

    def _wait_for_rows(self) -> None:
        """Wait for rows that others had locked in the last attempt, while other writers may commit."""
        if self._met_locks and self._trying is not None:
            # The attempt that follows meets the same failure, and reports it.
            with suppress(CatalogUnavailableError):
                wait_for_rows(self._database, self._trying.changes)

    def _judge_unanswered(self, head: Head) -> None:
        """Whether an unanswered commit, which no snapshot carries, surely failed.

        Raises:
            CommitOutcomeUnknownError: Its snapshot id was taken and expired since, perhaps with this very commit.
        """
        if self._unanswered is None or head.snapshot.id < self._unanswered.snapshot.id:
            return
        number = self._unanswered.snapshot.id
        if all(snapshot.id != number for snapshot in head.later):
            raise self._unknown(f"snapshot {number} has been expired since")
        # Its snapshot id was taken by another commit.
        self._unanswered = None

    def lost(self) -> None:
        """The connection went away at COMMIT: this attempt may or may not be in the lake.

        The next attempt tells: it finds the commit id; or the same snapshot id can be taken, for which the database
        makes it wait until the unanswered transaction has ended.
        """
        self._unanswered = self._trying

    def failure(self, error: DuckLakeError) -> DuckLakeError:
        """The error to raise: the given one, unless an unanswered COMMIT leaves the outcome open."""
        if self._unanswered is not None:
            return error if isinstance(error, CommitOutcomeUnknownError) else self._unknown(error.message)
        if self._trying is None or not is_about_length(error):
            return error
        advice = "nothing was changed; store shorter values, or raise the limit of the database"
        return CatalogError(f"{error.message}: {longest_value(self._trying.changes)}; {advice}", **error.details)

    def exhausted(self, attempts: int, last: DuckLakeError) -> DuckLakeError:
        if self._unanswered is not None:
            return self._unknown(last.message)
        names = ", ".join(sorted(self._transaction.names.values())) or "new tables"
        if is_blocked_by_readers(last):
            waited = f"the commit to {names} waited {READERS_SECONDS:.0f} seconds for readers in {attempts} attempts; nothing was changed. "
            return CommitRetriesExhaustedError(waited + last.message, attempts=attempts)
        return CommitRetriesExhaustedError(
            f"the commit to {names} failed in {attempts} attempt{'' if attempts == 1 else 's'} against other writers or an unreachable "
            f"catalog; nothing was changed. Run it again, or let fewer writers commit at once. Last cause: {last.message}",
            attempts=attempts,
        )

    def _unknown(self, why: str) -> CommitOutcomeUnknownError:
        assert self._unanswered is not None
        return CommitOutcomeUnknownError(
            f"the connection was lost while snapshot {self._unanswered.snapshot.id} was being committed, and the catalog could not be "
            f"asked whether it arrived ({why}). No file was deleted. Before running the write again, ask "
            f"find_commit({self._transaction.commit_id!r}, snapshot_id={self._unanswered.snapshot.id})",
            commit_id=self._transaction.commit_id,
            snapshot_id=self._unanswered.snapshot.id,
        )

    def _find_own(self, head: Head, number: int) -> Committed | None:
        for snapshot in head.later:
            if commit_id_of(snapshot.extra_info) == self._transaction.commit_id:
                own = self._unanswered if writer_of(snapshot.extra_info) == self._transaction.writer else None
                return Committed(snapshot=snapshot, ids=own.ids if own else {}, attempts=number, repeated=own is None)
        return None

    def _with_snapshot_id(self, transaction: CommitRequest, snapshot_id: int) -> CommitRequest:
        """The transaction with every cumulative delete file written for this very snapshot id.

        DuckDB leaves the id of its first attempt in the file, so that rows vanish from other writers' snapshots.
        No lock is held meanwhile except on a file, and this only happens after others have committed.
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


def _refuse_conflict(transaction: CommitRequest, head: Head) -> None:
    conflict = find_stale(transaction, head) or find_conflict(transaction, head)
    if conflict is not None:
        raise CommitConflictError(conflict.message, rule=conflict.rule, table=conflict.table, snapshot_id=conflict.snapshot_id)


def _carrying(commit_id: str, candidates: Sequence[Snapshot]) -> Snapshot | None:
    return next((s for s in reversed(candidates) if commit_id_of(s.extra_info) == commit_id), None)


def head_request(transaction: CommitRequest) -> HeadRequest:
    """Build the request for all that the commit of a transaction reads of the head."""
    # What was asked for by its name must still have it; files are merged whatever the table is called.
    moves = (MergeFiles, FlushInlined, RewriteFiles)
    tables = {getattr(action, "table_id", -1) for action in transaction.actions if not isinstance(action, moves)}
    tables |= {table_id for table_id, looked in transaction.lookups.items() if "definition" in looked}
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
    """The first reason why the base cannot be built on, None when it can.

    Of a base that is older than the call, everything that the call has used must be as it was: names, columns and keys by the schema
    version, and the options.
    """
    base = transaction.base
    if head.base is None or not is_same_snapshot(head.base, base):
        reason = "has been expired" if head.base is None else "is another commit now: the catalog was replaced, by a backup or a new lake"
        return Conflict(
            rule="base-gone",
            message=f"Transaction conflict - snapshot {base.id}, on which this transaction was planned, {reason}. "
            "Nothing was changed; run the write again on the newest snapshot",
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
        message=f"Transaction conflict - {what} since the snapshot that was seen last. Nothing was changed; run the write again",
        snapshot_id=head.snapshot.id,
    )


def check_encrypted(actions: Iterable[Action]) -> None:
    """Refuse files that were written in plain.

    Raises:
        CommitError: There is one.
    """
    for action in actions:
        for file in _files(action):
            if file.encryption_key is None:
                raise CommitError(f"{file.path} is not encrypted, but the lake is; nothing was committed", path=file.path)


def _files(action: Action) -> Iterable[WrittenFile | StagedDeleteFile | CumulativeDeletes]:
    match action:
        case AppendFiles(files=files):
            return files
        case AddFiles(files=added):
            return [file.file for file, _ in added]
        case AddDeleteFiles(files=deletes):
            return deletes
        case MergeFiles(merges=merges):
            return [merge.output for merge in merges]
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
    """Compares the mark of sweeps before the files are read with the mark in the transaction that commits them.

    Args:
        database: The catalog.
        check_there: Raises an error when one of some files is missing.
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
        """After a changed mark, check the store for the files. Called while no transaction is open.

        Raises:
            NotFoundError: A file was deleted.
        """
        if self._is_stale:
            self._mark = self._read()
            self._check_there(_paths(actions))
            self._is_stale = False

    def check(self, statements: Statements, actions: Sequence[Action]) -> None:
        """Compare the marks in the transaction that adds the files, after its first change: no sweep runs from there to its end.

        Raises:
            CatalogUnavailableError: They differ; the next attempt checks the store first.
        """
        if not self._is_open or not _paths(actions):
            return
        found = statements.ask("sweep mark", lambda: sweep_mark(self._database.tables))()
        if (found[0].value if found else None) != self._mark:
            self._is_stale = True
            raise CatalogUnavailableError("another operation deleted files while files were being added", failure="retry")


def _paths(actions: Sequence[Action]) -> list[str]:
    return [file.full_path for action in actions if isinstance(action, AddFiles) for file, _ in action.files]
