"""What a commit must know about the newest snapshot, read inside the commit's own transaction in few statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, and_, bindparam, func, null, select

from ducklake_core.catalog.database import Database
from ducklake_core.catalog.state import Snapshot, TableColumnStatistics, TableStatistics
from ducklake_core.catalog.tables import CatalogTables
from ducklake_core.errors import CatalogCorruptError

_Bound = TypeVar("_Bound")

IN_LIST_SIZE = 1000
"""Ids bound in one statement; SQLite and PostgreSQL allow 32,766 and 65,535 parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRequest:
    """What a transaction touches.

    Attributes:
        base: Snapshot that the transaction was planned on.
        tables: Existing tables that it changes in any way.
        statistics_for: Those of them that get rows.
        files: Data files that it deletes rows of.
        added_paths: Paths of files that it adds and nobody else may have added.
    """

    base: int
    tables: frozenset[int] = frozenset()
    statistics_for: frozenset[int] = frozenset()
    files: frozenset[int] = frozenset()
    added_paths: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What hides rows of a live data file now: ids of its live delete files, and the newest snapshot that deletes are from."""

    delete_file_ids: frozenset[int] = frozenset()
    deleted_at: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest snapshot and what happened since the base.

    Attributes:
        snapshot: The newest snapshot.
        now: The catalog's clock in UTC, never before the newest snapshot's time.
        later: Surviving snapshots after the base, by id ascending; a gap in their ids means expired history.
        statistics: Statistics of the requested tables; tables that never had rows are missing.
        column_statistics: Likewise, in no order.
        replaced_tables: Requested tables whose table row is newer than the base: they were renamed. Only looked for
            when there are later snapshots.
        files: Requested data files that are still live, likewise; a missing file was ended or compacted away.
        added_paths: Requested paths that files of later snapshots have.
    """

    snapshot: Snapshot
    now: datetime
    later: tuple[Snapshot, ...] = ()
    statistics: Mapping[int, TableStatistics] = field(default_factory=dict)
    column_statistics: Mapping[int, tuple[TableColumnStatistics, ...]] = field(default_factory=dict)
    replaced_tables: frozenset[int] = frozenset()
    files: Mapping[int, FileState] = field(default_factory=dict)
    added_paths: frozenset[str] = frozenset()


def read_head(connection: Connection, database: Database, request: HeadRequest) -> Head:
    """Read the head inside a write transaction: one statement for the history, one for statistics, more only after other commits.

    Raises:
        CatalogCorruptError: The newest snapshot is older than the base.
    """
    tables = database.tables
    snapshots, now = _history(connection, database, request.base)
    later = tuple(s for s in snapshots if s.id > request.base)
    statistics, columns = _statistics(connection, tables, sorted(request.statistics_for))
    return Head(
        snapshot=snapshots[-1],
        now=max(now, snapshots[-1].time),
        later=later,
        statistics=statistics,
        column_statistics=columns,
        replaced_tables=_replaced(connection, tables, request) if later else frozenset(),
        files=_files(connection, tables, sorted(request.files)) if later else {},
        added_paths=_added_paths(connection, tables, request) if later and request.added_paths else frozenset(),
    )


def _added_paths(connection: Connection, tables: CatalogTables, request: HeadRequest) -> frozenset[str]:
    file = tables["data_file"]
    newer = connection.execute(select(file.c.path).where(file.c.begin_snapshot > request.base)).scalars()
    return frozenset(path for path in newer if path in request.added_paths)


def snapshots_mentioning(connection: Connection, tables: CatalogTables, text: str) -> list[Snapshot]:
    """Snapshots whose ``commit_extra_info`` contains a text, by id ascending."""
    found = tables["snapshot_changes"].c.commit_extra_info.contains(text, autoescape=True)
    return [_snapshot(row) for row in connection.execute(_snapshots(tables).where(found))]


def _snapshots(tables: CatalogTables) -> Select[Any]:
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    return (
        select(snapshot, changes.c.changes_made, changes.c.author, changes.c.commit_message, changes.c.commit_extra_info)
        .join_from(snapshot, changes, snapshot.c.snapshot_id == changes.c.snapshot_id, isouter=True)
        .order_by(snapshot.c.snapshot_id)
    )


def _history(connection: Connection, database: Database, base: int) -> tuple[list[Snapshot], datetime]:
    tables = database.tables
    snapshot = tables["snapshot"]
    has_clock = database.abilities.has_clock
    clock = func.clock_timestamp() if has_clock else null()
    # The tables may be shared with a lake in another kind of database.
    query = tables.statement(
        f"history, clock: {has_clock}",
        lambda: _snapshots(tables).add_columns(clock.label("now")).where(snapshot.c.snapshot_id >= bindparam("base")),
    )
    rows = connection.execute(query, {"base": base}).all()
    if not rows:
        raise CatalogCorruptError(
            f"the catalog has no snapshot {base} or later, though the transaction was planned on it", snapshot_id=base
        )
    now = rows[-1].now.astimezone(UTC) if has_clock else datetime.now(UTC)
    return [_snapshot(row) for row in rows], now


def _snapshot(row: Any) -> Snapshot:
    return Snapshot(
        id=row.snapshot_id,
        time=row.snapshot_time,
        schema_version=row.schema_version,
        next_catalog_id=row.next_catalog_id,
        next_file_id=row.next_file_id,
        changes=row.changes_made or "",
        author=row.author,
        message=row.commit_message,
        extra_info=row.commit_extra_info,
    )


def _statistics(
    connection: Connection, tables: CatalogTables, table_ids: Sequence[int]
) -> tuple[dict[int, TableStatistics], dict[int, tuple[TableColumnStatistics, ...]]]:
    found: dict[int, TableStatistics] = {}
    columns: dict[int, list[TableColumnStatistics]] = {}
    if not table_ids:
        return {}, {}
    query = tables.statement("statistics", lambda: _statistics_query(tables))
    for chunk in chunks(table_ids):
        for row in connection.execute(query, {"tables": chunk}):
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
                    )
                )
    return found, {table_id: tuple(rows) for table_id, rows in columns.items()}


def _statistics_query(tables: CatalogTables) -> Select[Any]:
    stats, column = tables["table_stats"], tables["table_column_stats"]
    return (
        select(
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
        )
        .join_from(stats, column, stats.c.table_id == column.c.table_id, isouter=True)
        .where(stats.c.table_id.in_(bindparam("tables", expanding=True)))
    )


def _replaced(connection: Connection, tables: CatalogTables, request: HeadRequest) -> frozenset[int]:
    table = tables["table"]
    found: set[int] = set()
    for chunk in chunks(sorted(request.tables)):
        query = select(table.c.table_id).where(
            table.c.table_id.in_(chunk), table.c.begin_snapshot > request.base, table.c.end_snapshot.is_(None)
        )
        found.update(connection.execute(query).scalars())
    return frozenset(found)


def _files(connection: Connection, tables: CatalogTables, file_ids: Sequence[int]) -> dict[int, FileState]:
    data, delete = tables["data_file"], tables["delete_file"]
    found: dict[int, FileState] = {}
    live_delete = and_(delete.c.data_file_id == data.c.data_file_id, delete.c.end_snapshot.is_(None))
    query = select(data.c.data_file_id, delete.c.delete_file_id, delete.c.begin_snapshot, delete.c.partial_max).join_from(
        data, delete, live_delete, isouter=True
    )
    for chunk in chunks(file_ids):
        for row in connection.execute(query.where(data.c.data_file_id.in_(chunk), data.c.end_snapshot.is_(None))):
            state = found.get(row.data_file_id, FileState())
            if row.delete_file_id is not None:
                state = FileState(
                    delete_file_ids=state.delete_file_ids | {row.delete_file_id},
                    deleted_at=max(state.deleted_at, row.begin_snapshot, row.partial_max or -1),
                )
            found[row.data_file_id] = state
    return found


def chunks(ids: Iterable[_Bound]) -> Iterator[list[_Bound]]:
    """Ids (or other values) in lists short enough to be bound in one statement."""
    everything = list(ids)
    for start in range(0, len(everything), IN_LIST_SIZE):
        yield everything[start : start + IN_LIST_SIZE]
