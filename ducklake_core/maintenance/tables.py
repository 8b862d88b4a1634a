"""The tables that a verb is about, each planned by itself: one that cannot be planned does not stop the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.reading.many_tables import ManyTablesReader
from ducklake_core.catalog.reading.option_rows import check_same_lake, stored_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import Action
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.encrypted_files import check_encrypted
from ducklake_core.commit.request import CommitMessage, CommitRequest, new_commit_id, stored_extra_info
from ducklake_core.errors import (
    CatalogUnavailableError,
    CatalogVersionError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    DuckLakeError,
    NotFoundError,
    StorageError,
)
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.format.types.names import join_name
from ducklake_core.maintenance.request import TableRequest
from ducklake_core.storage.filesystems import Storage, printable

T = TypeVar("T")

_ASKED_AT_ONCE = 16

REPLANS = 3
"""How often a table is planned again after other writers got in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTable:
    """A table that could not be planned, and why."""

    table: str
    error: DuckLakeError


@dataclass(frozen=True, slots=True)
class PlannedTables(Generic[T]):
    """The plans of tables, in the order of their names, and the patterns that no table matches."""

    plans: list[T | FailedTable]
    unmatched: tuple[str, ...] = ()


def plan_tables(
    database: Database, info: LakeInfo, request: TableRequest, plan: Callable[[CatalogReader, TableState, Snapshot], T]
) -> PlannedTables[T]:
    """Plan tables at the newest snapshot.

    Args:
        request: Which tables.
        plan: Plans one of them.

    Raises:
        NotFoundError: The table or schema does not exist.
        CatalogUnavailableError: The catalog cannot be reached.
        CatalogVersionError: It was migrated since it was opened.
    """
    with database.read() as connection:
        reader = CatalogReader(connection, info, database.tables)
        base = reader.latest_snapshot()
        selected = request.scope.select(reader, base.id)
        ids = selected.names
        many = request.reading.reader(reader, base, ids) if request.reading else ManyTablesReader(connection, info, database.tables, ids)
        found = {number: _attempt(database, many, number, name, base, plan) for number, name in selected.names.items()}
    # One that failed may have spoiled the transaction, or the statement, for others: each is tried by itself.
    for number, name in selected.names.items():
        if isinstance(found[number], FailedTable):
            found[number] = _plan_alone(database, info, number, name, plan)
    return PlannedTables(list(found.values()), selected.unmatched)


def _attempt(
    database: Database,
    reader: CatalogReader,
    number: int,
    name: str,
    base: Snapshot,
    plan: Callable[[CatalogReader, TableState, Snapshot], T],
) -> T | FailedTable:
    try:
        with database.reporting():
            return plan(reader, reader.table_by_id(number, base.id), base)
    except DuckLakeError as error:
        if classify(error) == "unavailable" or is_about_lake(error):
            raise
        return FailedTable(table=name, error=error)


def _plan_alone(
    database: Database, info: LakeInfo, number: int, name: str, plan: Callable[[CatalogReader, TableState, Snapshot], T]
) -> T | FailedTable:
    try:
        with database.read() as connection:
            reader = CatalogReader(connection, info, database.tables)
            base = reader.latest_snapshot()
            return plan(reader, reader.table_by_id(number, base.id), base)
    except DuckLakeError as error:
        if classify(error) == "unavailable" or is_about_lake(error):
            raise
        return FailedTable(table=name, error=error)


def is_about_lake(error: DuckLakeError) -> bool:
    """Whether all other tables would fail with the same error: the catalog was migrated since it was opened."""
    return isinstance(error, CatalogVersionError)


def name_of(table: TableState) -> str:
    """``schema.table``, quoted where it has to be."""
    return join_name(table.schema_name, table.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one table, ready to be committed.

    Attributes:
        table: The table.
        base: The snapshot that it was planned at.
        action: The change.
        message: Stored with the snapshot, unless ``commit`` has one.
        commit: What the caller says about the snapshot.
        facts: What is stored beside it, where the caller does not use the same keys.
        files: Full paths and bytes of the files that were made for it.
    """

    table: TableState
    base: Snapshot
    action: Action
    message: str
    commit: CommitMessage = field(default_factory=CommitMessage)
    facts: Mapping[str, object] = field(default_factory=dict)
    files: tuple[tuple[str, int], ...] = ()


def _extra_info(commit_id: str, change: Change) -> str:
    stored = stored_extra_info(commit_id, change.commit.get("extra_info"))
    return json.dumps({**change.facts, **json.loads(stored)}) if change.facts else stored


def check_made(storage: Storage, files: Sequence[tuple[str, int]]) -> None:
    """Ask the store for files that are about to replace others: what it took must be what it has.

    Raises:
        StorageError: A file is not there, or has another size.
    """

    def problem(file: tuple[str, int]) -> str | None:
        path, size = file
        try:
            found = storage.size(path)
        except NotFoundError:
            return f"{printable(path)} was written, and is not there"
        return None if found == size else f"{printable(path)} was written with {size} bytes, and has {found}"

    with ThreadPoolExecutor(max_workers=max(1, min(len(files), _ASKED_AT_ONCE)), thread_name_prefix="made") as pool:
        problems = [one for one in pool.map(problem, files) if one is not None]
    if problems:
        raise StorageError(f"{problems[0]}: the store lost what it had taken; the files that it was made of are left as they are")


def commit_table(database: Database, info: LakeInfo, storage: Storage, change: Change) -> Snapshot:
    """Commit what became of one table. Where there surely is no snapshot with its files they are deleted.

    Raises:
        CommitError: It did not become a snapshot.
        StorageError: The store does not have the files.
    """
    return commit_together(database, info, storage, [change])


def commit_together(
    database: Database, info: LakeInfo, storage: Storage, changes: Sequence[Change], *, message: str | None = None
) -> Snapshot:
    """Commit what became of several tables, planned at one snapshot, as one snapshot.

    Where there surely is no snapshot with their files they are deleted, unless the changes may be committed one by one
    (:func:`may_commit_apart`).

    Args:
        message: Stored with the snapshot, in place of that of the first change.

    Raises:
        CommitError: They did not become a snapshot.
        CatalogError: The catalog is that of a lake with other settings.
        StorageError: The store does not have the files.
    """
    first, commit_id = changes[0], new_commit_id()
    files = [file for change in changes for file in change.files]
    request = CommitRequest(
        base=first.base,
        actions=tuple(change.action for change in changes),
        commit_id=commit_id,
        names={change.table.id: name_of(change.table) for change in changes},
        author=first.commit.get("author"),
        message=first.commit.get("message") or message or first.message,
        extra_info=_extra_info(commit_id, first),
    )
    committer = Committer(database)
    try:
        with database.read() as connection:
            # Files of ours would be where nobody looks for them, or as nobody reads them.
            check_same_lake(info, stored_options(connection, database.tables))
        if info.encrypted:
            check_encrypted(request.actions)
        check_made(storage, files)
        return committer.commit(request).snapshot
    except CommitOutcomeUnknownError:
        # The files may be part of the lake by now.
        raise
    except BaseException as error:
        # Interrupted: nobody needs the files, unless their snapshot may be there.
        if isinstance(error, DuckLakeError) or not committer.may_have_committed:
            discard_made(storage, [path for path, _ in files], error, tables=len(changes))
        raise


def discard_made(storage: Storage, files: Sequence[str], error: BaseException, *, tables: int) -> None:
    """Delete files of changes that surely were not committed, unless the changes may be committed table by table.

    Args:
        storage: How to reach the files.
        files: Full paths.
        error: Why the changes were not committed.
        tables: Number of tables that the changes are of.
    """
    if tables == 1 or not isinstance(error, DuckLakeError) or not may_commit_apart(error):
        storage.discard(files)


def may_commit_apart(error: DuckLakeError) -> bool:
    """Whether changes that were refused together may be committed one by one: not where each would be refused like all of them."""
    return not (isinstance(error, CommitRetriesExhaustedError | CatalogUnavailableError) or is_about_lake(error))
