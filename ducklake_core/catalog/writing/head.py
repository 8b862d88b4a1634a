"""Read everything that a commit needs of the newest snapshot, inside the transaction of the commit, in few statements.

The statements are sent in two rounds, because a round trip to a server costs more than a statement::

    round 1   snapshots since the base, options, statistics      always, sent together
    round 2   renamed tables and views, new inlined tables       only if the schema version changed since the base
              state of the data files to delete from             only if another snapshot was committed since the base
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Executable, Select, Table, and_, bindparam, select

from ducklake_core.catalog.database.connections import Database, in_utc
from ducklake_core.catalog.database.statements import Answer, Statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.versions import stored_version
from ducklake_core.catalog.inlined.write import newest_deletes
from ducklake_core.catalog.reading.options import StoredOptions, options_of, stored_options_query
from ducklake_core.catalog.reading.snapshots import snapshot_of
from ducklake_core.catalog.reading.visibility import committed_at
from ducklake_core.errors import CatalogCorruptError, CommitConflictError
from ducklake_core.format.files.paths import file_name, may_be_same
from ducklake_core.format.state import InlinedTable, Snapshot, TableColumnStatistics, TableStatistics

_Bound = TypeVar("_Bound")

IN_LIST_SIZE = 1000
"""Maximum number of ids in one statement; SQLite and PostgreSQL allow 32,766 and 65,535 parameters."""
_MANY = 200
"""Minimum number of ids for which ranges are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRequest:
    """The objects that a transaction depends on; the head is read for these only.

    Attributes:
        base: Snapshot that the transaction was planned on.
        schema_version: The schema version of the base.
        options: Whether to read the options of the lake.
        tables: Existing tables that the caller named, which must not have been renamed.
        views: Existing views that the caller named.
        statistics_for: Tables that get rows.
        inlined_for: Tables that get rows in the catalog.
        files: Data files that it deletes rows of; ``deletes_from`` are their tables.
        gathered_for: Data files, including ended ones, that get a delete file with all of their deletes.
        added_paths: Paths of added files that no other writer may have added.
    """

    base: int
    schema_version: int = 0
    options: bool = False
    tables: frozenset[int] = frozenset()
    views: frozenset[int] = frozenset()
    statistics_for: frozenset[int] = frozenset()
    inlined_for: frozenset[int] = frozenset()
    files: frozenset[int] = frozenset()
    deletes_from: frozenset[int] = frozenset()
    gathered_for: frozenset[int] = frozenset()
    added_paths: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """The deletes of a live data file.

    Attributes:
        delete_file_ids: Ids of its live delete files.
        deleted_at: Newest snapshot of its deletes, -1 for none. Inlined deletes count only if they were made after the base.
    """

    delete_file_ids: frozenset[int] = frozenset()
    deleted_at: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest snapshot and the changes since the base.

    Attributes:
        snapshot: The newest snapshot.
        now: The catalog's clock in UTC, never before the newest snapshot's time.
        base: The snapshot that has the id of the base now, None when it was expired.
        options: Options of the lake, if requested; else None.
        later: Surviving snapshots after the base, by id ascending; a gap in their ids means expired history.
        statistics: Statistics of the requested tables; tables that never had rows are missing.
        column_statistics: Column statistics of the requested tables, in no order.
        replaced_tables: Requested tables whose table row is newer than the base: they were renamed. Read only if the schema version
            changed, because every rename changes it.
        replaced_views: Requested views that were renamed, read under the same condition.
        inlined_tables: The newest table of inlined rows (None for none) of each table that gets such rows. Read only if the schema
            version changed, because every new one changes it.
        files: Requested data files that are still live. Read only if a snapshot was committed since the base; a missing file was ended
            or compacted.
        expired_files: Members of ``gathered_for`` that were expired; the others are locked until the transaction ends.
        added_paths: Requested paths that files of later snapshots may have.
    """

    snapshot: Snapshot
    now: datetime
    base: Snapshot | None = None
    options: StoredOptions | None = None
    later: tuple[Snapshot, ...] = ()
    statistics: Mapping[int, TableStatistics] = field(default_factory=dict)
    column_statistics: Mapping[int, tuple[TableColumnStatistics, ...]] = field(default_factory=dict)
    replaced_tables: frozenset[int] = frozenset()
    replaced_views: frozenset[int] = frozenset()
    inlined_tables: Mapping[int, InlinedTable | None] = field(default_factory=dict)
    files: Mapping[int, FileState] = field(default_factory=dict)
    expired_files: frozenset[int] = frozenset()
    added_paths: frozenset[str] = frozenset()


def read_head(statements: Statements, database: Database, request: HeadRequest) -> Head:
    """Read the head inside a write transaction.

    Args:
        statements: Statements of the transaction, pipelined if the database allows it.
        database: The catalog.
        request: The objects that the transaction depends on.

    Raises:
        CommitConflictError: The newest snapshot is older than the base: the catalog was replaced by an earlier one.
    """
    tables = database.tables
    history = _fetch_history(statements, database, request.base)
    options = statements.fetch("options", lambda: stored_options_query(tables)) if request.options else None
    statistics_rows = [_fetch_statistics(statements, tables, chunk) for chunk in chunks(sorted(request.statistics_for))]
    snapshots, now = _history(history(), database, request.base)
    statistics, columns = _statistics(row for answer in statistics_rows for row in answer())
    later = tuple(s for s in snapshots if s.id > request.base)
    redefined = snapshots[-1].schema_version != request.schema_version
    return Head(
        snapshot=snapshots[-1],
        # Clocks of clients and servers differ; snapshot times must never decrease.
        now=max(now, snapshots[-1].time),
        base=snapshots[0] if snapshots[0].id == request.base else None,
        options=None if options is None else options_of(options()),
        later=later,
        statistics=statistics,
        column_statistics=columns,
        replaced_tables=_replaced(statements, tables["table"], "table_id", request.tables, request.base) if redefined else frozenset(),
        replaced_views=_replaced(statements, tables["view"], "view_id", request.views, request.base) if redefined else frozenset(),
        inlined_tables=_inlined_tables(statements, tables, request) if redefined else {},
        files=_files(statements, database, request, later) if later and request.files else {},
        expired_files=_expired_files(statements, database, request),
        added_paths=_added_paths(statements, tables, request) if later and request.added_paths else frozenset(),
    )


def _expired_files(statements: Statements, database: Database, request: HeadRequest) -> frozenset[int]:
    """Return the data files without a row. Expiry makes no snapshot, so only the rows show it; their locks make a later expiry wait."""
    file, there = database.tables["data_file"], set[int]()
    for chunk in chunks(sorted(request.gathered_for)):
        query = select(file.c.data_file_id).where(file.c.data_file_id.in_(chunk))
        locking = query.with_for_update(read=True) if database.abilities.concurrent_writers else query
        there.update(row.data_file_id for row in _rows(statements, locking))
    return request.gathered_for - there


def _added_paths(statements: Statements, tables: CatalogTables, request: HeadRequest) -> frozenset[str]:
    """Return the requested paths that newer files may have. A false positive costs one more attempt, which compares whole paths."""
    file = tables["data_file"]
    newer = _rows(statements, select(file.c.path).where(file.c.begin_snapshot > request.base))
    by_name: dict[str, list[str]] = {}
    for path in request.added_paths:
        by_name.setdefault(file_name(path), []).append(path)
    return frozenset(mine for row in newer for mine in by_name.get(file_name(row.path), ()) if may_be_same(mine, row.path))


def _snapshots(tables: CatalogTables) -> Select[Any]:
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    return (
        select(snapshot, changes.c.changes_made, changes.c.author, changes.c.commit_message, changes.c.commit_extra_info)
        .join_from(snapshot, changes, snapshot.c.snapshot_id == changes.c.snapshot_id, isouter=True)
        .order_by(snapshot.c.snapshot_id)
    )


def _fetch_history(statements: Statements, database: Database, base: int) -> Answer:
    snapshot = database.tables["snapshot"]

    def build() -> Executable:
        return (
            _snapshots(database.tables)
            .add_columns(database.clock().label("now"), stored_version(database.tables).label("version"))
            .where(snapshot.c.snapshot_id >= bindparam("base"))
        )

    return statements.fetch("history", build, {"base": base})


def _history(rows: Sequence[Any], database: Database, base: int) -> tuple[list[Snapshot], datetime]:
    if not rows:
        raise CommitConflictError(
            f"Transaction conflict - the catalog has no snapshot {base} or later, but this transaction was planned on it: the catalog "
            "was replaced, by a backup or a new lake. Nothing was changed; run the write again on the newest snapshot",
            rule="base-gone",
            snapshot_id=base,
        )
    database.check_version(rows[-1].version)
    now = in_utc(rows[-1].now) if database.abilities.has_clock else datetime.now(UTC)
    return [_snapshot(row) for row in rows], now


def _snapshot(row: Any) -> Snapshot:
    if row.snapshot_time is None:
        raise CatalogCorruptError(f"snapshot {row.snapshot_id} has no time in the catalog", snapshot_id=row.snapshot_id)
    return snapshot_of(row)


def _fetch_statistics(statements: Statements, tables: CatalogTables, table_ids: Sequence[int]) -> Answer:
    # Most commits change one table, and a statement without a list is compiled only once.
    if len(table_ids) == 1:
        owner = tables["table_stats"].c.table_id
        return statements.fetch("statistics", lambda: _statistics_query(tables).where(owner == bindparam("owner")), {"owner": table_ids[0]})
    return statements.fetch(None, lambda: _statistics_query(tables).where(tables["table_stats"].c.table_id.in_(table_ids)))


def _statistics(rows: Iterable[Any]) -> tuple[dict[int, TableStatistics], dict[int, tuple[TableColumnStatistics, ...]]]:
    found: dict[int, TableStatistics] = {}
    columns: dict[int, list[TableColumnStatistics]] = {}
    for row in rows:
        found[row.owner] = TableStatistics(
            table_id=row.owner,
            record_count=row.record_count or 0,
            next_row_id=row.next_row_id or 0,
            file_size_bytes=row.file_size_bytes or 0,
        )
        if row.column_id is not None:
            columns.setdefault(row.owner, []).append(
                TableColumnStatistics(
                    table_id=row.owner,
                    column_id=row.column_id,
                    contains_null=row.contains_null,
                    contains_nan=row.contains_nan,
                    min_value=row.min_value,
                    max_value=row.max_value,
                    extra_stats=row.extra_stats,
                    min_is_exact=row.min_is_exact,
                    max_is_exact=row.max_is_exact,
                )
            )
    return found, {table_id: tuple(rows) for table_id, rows in columns.items()}


def _statistics_query(tables: CatalogTables) -> Select[Any]:
    stats, column = tables["table_stats"], tables["table_column_stats"]
    return select(
        stats.c.table_id.label("owner"),
        stats.c.record_count,
        stats.c.next_row_id,
        stats.c.file_size_bytes,
        column.c.column_id,
        column.c.contains_null,
        column.c.contains_nan,
        column.c.min_value,
        column.c.max_value,
        column.c.extra_stats,
        tables.optional("table_column_stats", "min_is_exact"),
        tables.optional("table_column_stats", "max_is_exact"),
    ).join_from(stats, column, stats.c.table_id == column.c.table_id, isouter=True)


def _rows(statements: Statements, query: Select[Any]) -> Sequence[Any]:
    return statements.fetch(None, lambda: query)()


def _replaced(statements: Statements, table: Table, key: str, ids: frozenset[int], base: int) -> frozenset[int]:
    found: set[int] = set()
    for chunk in chunks(sorted(ids)):
        query = select(table.c[key].label("id")).where(
            table.c[key].in_(chunk), table.c.begin_snapshot > base, table.c.end_snapshot.is_(None)
        )
        found.update(row.id for row in _rows(statements, query))
    return frozenset(found)


def _inlined_tables(statements: Statements, tables: CatalogTables, request: HeadRequest) -> dict[int, InlinedTable | None]:
    registered = tables["inlined_data_tables"]
    found: dict[int, InlinedTable | None] = dict.fromkeys(request.inlined_for)
    for chunk in chunks(sorted(request.inlined_for)):
        query = select(registered).where(registered.c.table_id.in_(chunk)).order_by(registered.c.schema_version)
        for row in _rows(statements, query):
            found[row.table_id] = InlinedTable(name=row.table_name, schema_version=row.schema_version)
    return found


def _files(statements: Statements, database: Database, request: HeadRequest, later: Sequence[Snapshot]) -> dict[int, FileState]:
    data, delete = database.tables["data_file"], database.tables["delete_file"]
    file_ids = sorted(request.files)
    found: dict[int, FileState] = {}
    live_delete = and_(delete.c.data_file_id == data.c.data_file_id, delete.c.end_snapshot.is_(None))
    committed = committed_at(database.tables, delete)
    query = select(data.c.data_file_id, delete.c.delete_file_id, delete.c.begin_snapshot, delete.c.partial_max, committed).join_from(
        data, delete, live_delete, isouter=True
    )
    for chunk in chunks(file_ids):
        live = query.where(data.c.data_file_id.in_(chunk), data.c.end_snapshot.is_(None))
        for row in _rows(statements, live):
            state = found.get(row.data_file_id, FileState())
            if row.delete_file_id is not None:
                state = FileState(
                    delete_file_ids=state.delete_file_ids | {row.delete_file_id},
                    deleted_at=max(state.deleted_at, row.begin_snapshot, row.partial_max or -1, row.committed_at or -1),
                )
            found[row.data_file_id] = state
    # Inlined deletes are read only if one was logged: most concurrent commits are appends.
    if any("inlined_delete" in snapshot.changes.lower() for snapshot in later):
        for table_id in sorted(request.deletes_from):
            for chunk in chunks(file_ids):
                for file_id, newest in newest_deletes(statements, database, table_id, chunk, request.base).items():
                    if file_id in found:
                        found[file_id] = replace(found[file_id], deleted_at=max(found[file_id].deleted_at, newest))
    return found


def chunks(ids: Iterable[_Bound]) -> Iterator[list[_Bound]]:
    """Split ids (or other values) into lists short enough for one statement."""
    everything = list(ids)
    for start in range(0, len(everything), IN_LIST_SIZE):
        yield everything[start : start + IN_LIST_SIZE]


def conditions_of(column: ColumnElement[Any], values: Iterable[_Bound]) -> Iterator[ColumnElement[bool]]:
    """Return conditions, for one statement each, that together match the values: lists of them, or ranges of consecutive ids.

    Ranges are compiled and executed in a fraction of the time of long lists.

    Args:
        column: The column to compare.
        values: Values to match.
    """
    everything = list(values)
    runs = _runs(everything) if len(everything) >= _MANY else None
    if runs is not None and len(runs) <= -(-len(everything) // IN_LIST_SIZE):
        yield from (column.between(first, last) for first, last in runs)
    else:
        yield from (column.in_(chunk) for chunk in chunks(everything))


def _runs(values: Sequence[Any]) -> list[tuple[int, int]] | None:
    """Return integers as inclusive ranges, None if there are other values.

    >>> _runs([7, 1, 3, 2]), _runs([1, "2"]), _runs([1, 2.0])
    ([(1, 3), (7, 7)], None, None)
    """
    if not all(isinstance(value, int) for value in values):
        return None
    found: list[tuple[int, int]] = []
    for value in sorted(values):
        if found and value <= found[-1][1] + 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found
