"""Commits that say a text about themselves, and whether one of them may have been forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, case, func, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.snapshot_rows import snapshot_query, snapshots_of
from ducklake_core.format.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSearch:
    """What one reading of the log found.

    Attributes:
        is_mentioned: Whether a commit contains the text in its ``commit_extra_info``.
        is_whole: Whether the log has an entry of every snapshot from the first one on, so that none was expired.
    """

    is_mentioned: bool
    is_whole: bool


def search_log(connection: Connection, tables: CatalogTables, text: str) -> LogSearch:
    """Look for a text, and count entries, in one pass through the log."""
    number, changes = tables["snapshot"].c.snapshot_id, tables["snapshot_changes"]
    newest = select(func.max(number)).scalar_subquery()
    mentions = func.count(case((_mentions(tables, text), 1)))
    query = select(newest.label("newest"), func.count().label("entries"), mentions.label("mentions")).select_from(changes)
    row = connection.execute(query).one()
    # Ids begin at 0, and none is left out.
    return LogSearch(is_mentioned=row.mentions > 0, is_whole=row.entries == (-1 if row.newest is None else row.newest) + 1)


def snapshots_mentioning(connection: Connection, tables: CatalogTables, text: str) -> list[Snapshot]:
    """Snapshots whose ``commit_extra_info`` contains a text, by id ascending."""
    number = tables["snapshot"].c.snapshot_id
    # The log is looked through by itself: a join takes as long again.
    mentioning = select(tables["snapshot_changes"].c.snapshot_id).where(_mentions(tables, text))
    return snapshots_of(connection.execute(snapshot_query(tables).where(number.in_(mentioning)).order_by(number)))


def expired_among(connection: Connection, tables: CatalogTables, snapshot_id: int | None = None) -> str | None:
    """Describe, for a message, which snapshots were expired, or that one was; None when nothing was."""
    number = tables["snapshot"].c.snapshot_id
    if snapshot_id is not None:
        newest = connection.execute(select(func.max(number))).scalar()
        if newest is None or snapshot_id > newest:
            return None
        is_there = connection.execute(select(number).where(number == snapshot_id)).first() is not None
        return None if is_there else f"snapshot {snapshot_id} was expired"
    row = connection.execute(select(func.max(number).label("newest"), func.count().label("count")).select_from(tables["snapshot"])).one()
    missing = 0 if row.newest is None else row.newest + 1 - row.count
    return f"{missing} of {row.newest + 1} snapshots were expired" if missing else None


def _mentions(tables: CatalogTables, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = tables["snapshot_changes"].c.commit_extra_info.contains(text, autoescape=True)
    return found
