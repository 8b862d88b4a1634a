"""Commits that are about one table, found in the log of changes by the database: the history need not be read whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, func, literal, or_, select, union

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.state import Snapshot, TableState

_ROW_CHANGES = ("inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")
_TABLE_CHANGES = (*_ROW_CHANGES, "dropped_table", "altered_table", "inline_flush", "merge_adjacent", "rewrite_delete")
_MOVES = ("rewrite_delete", "merge_adjacent", "compacted_table")
_MOST_AT_ONCE = 100
_FIRST_SPAN = 1000
"""Snapshots of the log that are looked through first."""


def last_row_change(reader: CatalogReader, table_id: int, until: int, author: str | None = None) -> Snapshot | None:
    """The newest snapshot up to ``until`` that added or deleted rows of a table, None when there is none (any more)."""
    for snapshot in _mentioning(reader, table_id, until, author):
        if _changes_rows(snapshot, table_id):
            return snapshot
    return None


def row_changes(reader: CatalogReader, table_id: int, after: int, until: int, author: str | None, limit: int | None) -> list[Snapshot]:
    """Snapshots of ``(after, until]`` that added or deleted rows of a table, newest first, up to ``limit`` of them."""
    if limit is None:
        found = reader.snapshots_of(_mentions(reader, table_id, author, after, until))
        return [snapshot for snapshot in found if _changes_rows(snapshot, table_id)]
    mentioning = _mentioning(reader, table_id, until, author, after=after, most=limit)
    return list(islice((snapshot for snapshot in mentioning if _changes_rows(snapshot, table_id)), limit))


def _changes_rows(snapshot: Snapshot, table_id: int) -> bool:
    return _is_in(snapshot, table_id, _ROW_CHANGES)


def _is_in(snapshot: Snapshot, table_id: int, kinds: Sequence[str]) -> bool:
    changes = snapshot.change_set
    return any(table_id in getattr(changes, kind) for kind in kinds)


def _names(reader: CatalogReader, table_id: int) -> ColumnElement[bool]:
    """The changes of a snapshot seem to name a table: one comparison for all kinds, as it is made for every snapshot of the lake."""
    changes = reader.catalog["snapshot_changes"].c.changes_made
    # Texts are put together for those few only that hold the number at all.
    whole = literal(",", String).concat(changes).concat(",").contains(f":{table_id},", autoescape=True)
    return and_(changes.contains(f":{table_id}", autoescape=True), whole)


def snapshots_about(reader: CatalogReader, table: TableState) -> list[Snapshot]:
    """Snapshots, by id ascending, that changed a table, its rows or its files, or gave it a name."""
    number, log, own = reader.catalog["snapshot"].c.snapshot_id, reader.catalog["snapshot_changes"], reader.catalog["table"]
    # An entry of what was created has no id: a table has a row for each of its names.
    names = select(own.c.begin_snapshot).where(own.c.table_id == table.id)
    named_at = frozenset(reader.connection.execute(names).scalars())
    # The log is looked through by itself: a join takes as long again.
    mentioned = select(log.c.snapshot_id).where(_names(reader, table.id))
    begin = min((one for one in named_at if isinstance(one, int)), default=0)
    if 2 * begin > table.snapshot_id:
        # Nothing names the table before it was there; a range is read by an index, which takes longer than as much of the whole.
        mentioned = mentioned.where(log.c.snapshot_id >= begin)
    query = reader.snapshot_query().where(number.in_(union(mentioned, names))).order_by(number)
    return [one for one in reader.snapshots_of(query) if one.id in named_at or _is_in(one, table.id, _TABLE_CHANGES)]


def snapshots_that_move(reader: CatalogReader, table_id: int, first: int, last: int) -> list[Snapshot]:
    """Snapshots of a range that may have moved rows of a table to other files: all that did, and a few that only look so."""
    number, changes = reader.catalog["snapshot"].c.snapshot_id, func.lower(reader.catalog["snapshot_changes"].c.changes_made)
    moves = or_(*(changes.contains(kind, autoescape=True) for kind in _MOVES))
    query = reader.snapshot_query().where(number.between(first, last), changes.contains(str(table_id)), moves)
    return reader.snapshots_of(query)


def _mentioning(
    reader: CatalogReader, table_id: int, until: int, author: str | None, *, after: int = -1, most: int = 1
) -> Iterator[Snapshot]:
    """Snapshots, newest first, whose changes seem to name the table. A quoted name can look so too; usually the first one is right.

    So many are asked for first as are wanted, and more each time; likewise the newest part of the log is looked through first, and ten
    times as much each time. PostgreSQL would read the whole log even for one that is the newest.
    """
    span = _FIRST_SPAN
    while until > after:
        query = _mentions(reader, table_id, author, max(after, until - span), until)
        found = reader.snapshots_of(query.limit(most))
        yield from found
        if len(found) < most:
            until, span = until - span, span * 10
        else:
            until, most = found[-1].id - 1, max(most, min(most * 10, _MOST_AT_ONCE))


def _mentions(reader: CatalogReader, table_id: int, author: str | None, after: int, until: int) -> Select[Any]:
    """Snapshots of ``(after, until]`` whose changes seem to name the table, newest first."""
    number, changes = reader.catalog["snapshot"].c.snapshot_id, reader.catalog["snapshot_changes"]
    # Of both tables: databases do not know that what holds of one number holds of the other.
    both = (column.between(after + 1, until) for column in (number, changes.c.snapshot_id))
    query = reader.snapshot_query().where(*both, _names(reader, table_id)).order_by(number.desc())
    return query if author is None else query.where(changes.c.author == author)
