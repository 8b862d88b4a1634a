"""Read snapshots with their changes, and find commits by id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, String, and_, case, collate, func, literal, not_, or_, select, type_coerce

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.tables import CatalogTables, time_to_text
from ducklake_core.catalog.database.versions import stored_version
from ducklake_core.format.state import Snapshot

# In the order in which `snapshots_of` unpacks them.
_OF_SNAPSHOT = ("snapshot_id", "snapshot_time", "schema_version", "next_catalog_id", "next_file_id")
_OF_CHANGES = ("changes_made", "author", "commit_message", "commit_extra_info")
_AT_ONCE = 10
_SECOND = len("2024-07-01 20:00:00")


def snapshot_query(tables: CatalogTables) -> Select[Any]:
    """Return the query for snapshots with their changes and the present version of the catalog, for :func:`snapshot_of`."""
    snapshot, changes = tables["snapshot"], tables["snapshot_changes"]
    source = snapshot.outerjoin(changes, changes.c.snapshot_id == snapshot.c.snapshot_id)
    version = stored_version(tables).label("version")
    return select(*(snapshot.c[name] for name in _OF_SNAPSHOT), *(changes.c[name] for name in _OF_CHANGES), version).select_from(source)


def snapshot_of(row: Any) -> Snapshot:
    """Return the snapshot of a row of SQLAlchemy or of the driver."""
    return Snapshot(
        id=row.snapshot_id,
        time=row.snapshot_time and row.snapshot_time.astimezone(UTC),
        schema_version=row.schema_version,
        next_catalog_id=row.next_catalog_id,
        next_file_id=row.next_file_id,
        changes=row.changes_made or "",
        author=row.author,
        message=row.commit_message,
        extra_info=row.commit_extra_info,
    )


def snapshots_of(rows: Iterable[Any]) -> list[Snapshot]:
    """Return the snapshots of many rows of SQLAlchemy. Rows are unpacked by position, because lookups by name are slow."""
    return [
        Snapshot(
            id=number,
            time=time,
            schema_version=schema_version,
            next_catalog_id=next_catalog_id,
            next_file_id=next_file_id,
            changes=changes or "",
            author=author,
            message=message,
            extra_info=extra_info,
        )
        for number, time, schema_version, next_catalog_id, next_file_id, changes, author, message, extra_info, _version in rows
    ]


def newest_until(connection: Connection, tables: CatalogTables, timestamp: datetime) -> Row[Any] | None:
    """Return the row of :func:`snapshot_query` of the newest snapshot at or before a time, None when there is none."""
    number, time = tables["snapshot"].c.snapshot_id, tables["snapshot"].c.snapshot_time
    abilities, newest_first = abilities_of(connection.dialect), snapshot_query(tables).order_by(number.desc())
    if not abilities.timestamp_as_text:
        return connection.execute(newest_first.where(time <= timestamp).limit(1)).first()
    query = newest_first.where(_may_be_until(time, timestamp, abilities))
    with connection.execute(query, execution_options={"yield_per": _AT_ONCE}) as rows:
        return next((row for row in rows if row.snapshot_time <= timestamp), None)


def _may_be_until(time: ColumnElement[datetime], timestamp: datetime, abilities: Abilities) -> ColumnElement[bool]:
    """Return the condition that a time stored as a string may be at or before a time.

    Strings in DuckDB's usual form sort like times up to the second. Rows with any other form are returned and compared in Python.
    """
    text = type_coerce(time, String)
    is_usual = and_(text.like("____-__-__ __:__:__%"), text.like("%+00"))
    second = collate(func.substr(text, 1, _SECOND), abilities.binary_collation)
    return or_(second <= literal(time_to_text(timestamp)[:_SECOND]), not_(is_usual))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSearch:
    """The result of a search in the log.

    Attributes:
        is_mentioned: Whether the ``commit_extra_info`` of any entry contains the text.
        is_whole: Whether the log has an entry for every snapshot since the first, so that none was expired.
    """

    is_mentioned: bool
    is_whole: bool


def search_log(connection: Connection, tables: CatalogTables, text: str) -> LogSearch:
    """Search for a text and count the entries, in one pass over the log."""
    number, changes = tables["snapshot"].c.snapshot_id, tables["snapshot_changes"]
    newest = select(func.max(number)).scalar_subquery()
    mentions = func.count(case((_mentions(tables, text), 1)))
    query = select(newest.label("newest"), func.count().label("entries"), mentions.label("mentions")).select_from(changes)
    row = connection.execute(query).one()
    # Snapshot ids begin at 0 and have no gaps, so a complete log has newest + 1 entries.
    return LogSearch(is_mentioned=row.mentions > 0, is_whole=row.entries == (-1 if row.newest is None else row.newest) + 1)


def snapshots_mentioning(connection: Connection, tables: CatalogTables, text: str) -> list[Snapshot]:
    """Return the snapshots whose ``commit_extra_info`` contains a text, by id ascending."""
    number = tables["snapshot"].c.snapshot_id
    # The log is searched without a join, which would take twice as long.
    mentioning = select(tables["snapshot_changes"].c.snapshot_id).where(_mentions(tables, text))
    return snapshots_of(connection.execute(snapshot_query(tables).where(number.in_(mentioning)).order_by(number)))


def expired_among(connection: Connection, tables: CatalogTables, snapshot_id: int | None = None) -> str | None:
    """Describe, for a message, the expired snapshots; None when there is none.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        snapshot_id: The only snapshot to check; None, the default, for all.
    """
    number = tables["snapshot"].c.snapshot_id
    if snapshot_id is not None:
        newest = connection.execute(select(func.max(number))).scalar()
        if newest is None or snapshot_id > newest:
            return None
        is_there = connection.execute(select(number).where(number == snapshot_id)).first() is not None
        return None if is_there else f"snapshot {snapshot_id} has expired"
    row = connection.execute(select(func.max(number).label("newest"), func.count().label("count")).select_from(tables["snapshot"])).one()
    missing = 0 if row.newest is None else row.newest + 1 - row.count
    return f"{missing:,} of {row.newest + 1:,} snapshots have expired" if missing else None


def _mentions(tables: CatalogTables, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = tables["snapshot_changes"].c.commit_extra_info.contains(text, autoescape=True)
    return found
