"""Find the files and inlined rows that changed between two snapshots of a table (specification: Data Change Feed).

Rows are added and deleted in four places, each with its own date::

    added     data_file             begin_snapshot; up to partial_max for merged and flushed files
              inlined rows          begin_snapshot
    deleted   data_file             end_snapshot: all remaining rows
              delete_file           snapshots inside the file; the row only names the first and, sometimes, the last one
              inlined deletes       begin_snapshot
              inlined rows          end_snapshot

Snapshots that only moved rows to other files (compaction, rewrites) look like deletes and inserts and are excluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from sqlalchemy import ColumnElement, Select, String, and_, case, func, literal, or_, select, union

from ducklake_core.catalog.inlined.rows import ChosenInlined, inlined_rows
from ducklake_core.catalog.reading.file_rows import Streams, data_file_of, delete_file_of
from ducklake_core.catalog.reading.files import is_in
from ducklake_core.catalog.reading.reader import CatalogReader, check_same_snapshot, expired_since
from ducklake_core.catalog.reading.visibility import committed_at
from ducklake_core.errors import CatalogCorruptError, NotFoundError, UsageError
from ducklake_core.format.changes import Changes, parse_changes
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.format.types.schema import Schema

Bound: TypeAlias = int | datetime

_ROW_CHANGES = ("inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")
_TABLE_CHANGES = (*_ROW_CHANGES, "dropped_table", "altered_table", "inline_flush", "merge_adjacent", "rewrite_delete")
_MOVES = ("rewrite_delete", "merge_adjacent", "compacted_table")
# Snapshots of one query in a search backwards.
_MAX_AT_ONCE = 100
_FIRST_SPAN = 1000
"""Number of snapshots of the log that are searched first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRange:
    """The snapshots of a change feed, both ends included; empty when ``start`` is above ``end``.

    Attributes:
        rewrites: Snapshots of the range that only moved rows of the table to other files.
        next_file_id: Files with ids below this one were created before ``start``; 0 when unknown.
    """

    start: int
    end: int
    rewrites: frozenset[int] = frozenset()
    next_file_id: int = 0

    def holds(self, snapshot_id: int | None) -> bool:
        """Return whether changes of that snapshot belong to the feed."""
        return snapshot_id is not None and self.start <= snapshot_id <= self.end and snapshot_id not in self.rewrites


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDeletes:
    """A data file with deleted rows, and everything that determines which rows were deleted when.

    Attributes:
        file: The file, with every delete file it had up to the end of the range.
        inlined: (position, snapshot) of its inlined deletes, by position.
        ended: The snapshot that deleted all remaining rows; None when no snapshot of the range did.
        spans: (first, last) snapshots of the range that may have deleted rows of it.
    """

    file: DataFile
    inlined: tuple[tuple[int, int], ...] = ()
    ended: int | None = None
    spans: tuple[tuple[int, int], ...] = ()


def resolve_start(reader: CatalogReader, start: Bound) -> int:
    """Return the first snapshot of a feed: the one with an id, or the first one at or after a time.

    Args:
        reader: Reader of the catalog.
        start: Snapshot id, or a time with a zone.

    Returns:
        The id of the snapshot; for a time after the newest snapshot the id after it, which is in no range.

    Raises:
        NotFoundError: No snapshot has that id.
        UsageError: The time has no zone.
    """
    if not isinstance(start, datetime):
        return reader.snapshot(version=start).id
    if start.tzinfo is None:
        raise UsageError(f"The time {start.isoformat()} has no zone. Pass an aware datetime, for example with tzinfo=UTC")
    snapshot = reader.catalog["snapshot"]
    # Times are compared here: a database that stores them as strings would compare them letter by letter.
    times = select(snapshot.c.snapshot_id, snapshot.c.snapshot_time).order_by(snapshot.c.snapshot_id)
    with reader.connection.execute(times, execution_options={"yield_per": 1000}) as rows:
        found = next((row.snapshot_id for row in rows if row.snapshot_time >= start), None)
    return int(reader.latest_snapshot().id + 1 if found is None else found)


def feed_range(reader: CatalogReader, table: TableState, start: Bound, *, deletions: bool) -> FeedRange:
    """Return the snapshots from ``start`` up to the one that ``table`` was read at.

    Args:
        reader: Reader of the catalog.
        table: State of the table at the last snapshot of the feed.
        start: Snapshot id, or a time with a zone.
        deletions: Whether the feed includes deleted rows.

    Raises:
        NotFoundError: The first snapshot does not exist, or one of the range was expired after the table was created, so that
            changes would be missing.
        UsageError: The time has no zone.
    """
    first, end = resolve_start(reader, start), table.snapshot_id
    if first > end:
        return FeedRange(start=first, end=end)
    created = created_snapshot(reader, table.id)
    edges = {found.id: found for found in _edges(reader, first, end)}
    before, earliest = edges.get(first - 1), edges.get(first)
    if earliest is None or end not in edges:
        raise expired_since(table)
    check_same_snapshot(table, edges[end].time)
    if isinstance(start, datetime) and earliest.time > start and first > created and before is None:
        raise _expired(table, f"the snapshots between {start.astimezone(UTC).isoformat()} and snapshot {first}", first)
    missing = _missing(reader, max(first, created), end)
    if missing is not None:
        raise _expired(table, f"snapshot {missing - 1}", missing)
    if deletions and before is None and first > created and _may_end_files(earliest, table.id):
        # A file that ends at the first snapshot was visible only before it. If the snapshot before was expired, so was the file.
        raise _expired(table, f"snapshot {first - 1}, which is needed to find the deletes of snapshot {first},", first + 1)
    moving = snapshots_that_move(reader, table.id, first, end)
    return FeedRange(
        start=first,
        end=end,
        rewrites=frozenset(found.id for found in moving if _only_moves(parse_changes(found.changes), table.id)),
        next_file_id=before.next_file_id if before else 0,
    )


def _edges(reader: CatalogReader, first: int, end: int) -> list[Snapshot]:
    """Return the snapshot before a range, and its first and last one, if they exist."""
    query = reader.snapshot_query().where(reader.catalog["snapshot"].c.snapshot_id.in_((first - 1, first, end)))
    return [reader.snapshot_of(row) for row in reader.connection.execute(query)]


def _missing(reader: CatalogReader, first: int, end: int) -> int | None:
    """Return the snapshot after the first gap in a range that ends with an existing one; None when all exist."""
    number = reader.catalog["snapshot"].c.snapshot_id
    within = number.between(first, end)
    if reader.connection.execute(select(func.count()).where(within)).scalar_one() == max(end - first + 1, 0):
        return None
    ids = [first - 1, *reader.connection.execute(select(number).where(within).order_by(number)).scalars()]
    return next((two for one, two in pairwise(ids) if two > one + 1), None)


def created_snapshot(reader: CatalogReader, table_id: int) -> int:
    """Return the id of the snapshot that created a table, whether or not it was expired."""
    table = reader.catalog["table"]
    query = select(func.min(table.c.begin_snapshot)).where(table.c.table_id == table_id)
    return int(reader.connection.execute(query).scalar_one())


def _expired(table: TableState, what: str, first: int) -> NotFoundError:
    return NotFoundError(
        f"The changes of {table.qualified_name} are incomplete, because {what} has expired. Begin at snapshot {first} or later",
        table=table.qualified_name,
        snapshot_id=first,
    )


def _may_end_files(snapshot: Snapshot, table_id: int) -> bool:
    return not snapshot.changes or table_id in parse_changes(snapshot.changes).deleted_from_table


def _only_moves(changes: Changes, table_id: int) -> bool:
    """Return whether a snapshot only rewrote or merged files of the table.

    Old catalogs have one keyword for merges and rewrites. Merged files keep the dates of their rows, so counting merges does no harm.
    A flush is logged as a rewrite too, and its transaction may have added and deleted rows.
    """
    moved = table_id in changes.rewrite_delete or table_id in changes.merge_adjacent
    return moved and not any(table_id in getattr(changes, kind) for kind in _ROW_CHANGES)


def inserted_files(reader: CatalogReader, table: TableState, covered: FeedRange) -> list[DataFile]:
    """Return the data files, live or not, that may contain rows added in the range, without their deletes."""
    file = reader.catalog["data_file"]
    query = select(file).where(
        file.c.table_id == table.id,
        file.c.begin_snapshot <= covered.end,
        or_(file.c.begin_snapshot >= covered.start, file.c.partial_max >= covered.start),
    )
    rows = reader.connection.execute(query.order_by(file.c.data_file_id))
    # A file that begins with a rewrite may be a merged one, which contains rows of later snapshots too.
    added = (row for row in rows if row.begin_snapshot not in covered.rewrites or row.partial_max not in (None, row.begin_snapshot))
    return [data_file_of(row, table, Streams({}), reader.info.encrypted) for row in added]


def deleted_files(reader: CatalogReader, table: TableState, covered: FeedRange) -> list[FileDeletes]:
    """Return the data files, live or not, whose rows may have been deleted in the range."""
    queries = _DeleteQueries(reader, table, covered)
    run = reader.connection.execute
    rows = run(queries.files()).all()
    if not rows:
        return []
    ids = [row.data_file_id for row in rows]
    wanted = {"deletes": run(queries.delete_files(ids))}
    if table.has_inlined_deletes:
        wanted["inlined_deletes"] = run(queries.inlined_deletes(ids))
    streams = Streams(wanted)
    return [found for found in (_file_deletes(row, table, streams, covered, reader.info.encrypted) for row in rows) if found is not None]


def _file_deletes(row: Any, table: TableState, streams: Streams, covered: FeedRange, encrypted: bool) -> FileDeletes | None:
    rows = list(streams.take("deletes", row.data_file_id))
    delete_files = tuple(delete_file_of(found, table, encrypted) for found in rows)
    made_by = {found.delete_file_id: covered.end if found.made_by is None else found.made_by for found in rows}
    inlined = tuple((found.row_id, found.begin_snapshot) for found in streams.take("inlined_deletes", row.data_file_id))
    if not all(isinstance(number, int) for pair in inlined for number in pair):
        raise CatalogCorruptError(
            f"An inlined delete of data file {row.data_file_id} of table {table.qualified_name} has no valid position. Run lake.check()",
            table=table.qualified_name,
            data_file_id=row.data_file_id,
        )
    ended = row.end_snapshot if covered.holds(row.end_snapshot) else None
    spans = {(snapshot, snapshot) for snapshot in (ended, *(snapshot for _, snapshot in inlined)) if covered.holds(snapshot)}
    for one in delete_files:
        last = one.committed_at or (one.partial_max if one.partial_max is not None else made_by[one.id])
        if last >= covered.start:
            spans.add((max(one.begin_snapshot, covered.start), min(last, covered.end)))
    if not spans:
        return None
    file = replace(data_file_of(row, table, Streams({}), encrypted), delete_files=delete_files)
    return FileDeletes(file=file, inlined=inlined, ended=ended, spans=tuple(sorted(spans)))


@dataclass(frozen=True, slots=True)
class _DeleteQueries:
    reader: CatalogReader
    table: TableState
    covered: FeedRange

    def files(self) -> Select[Any]:
        file = self.reader.catalog["data_file"]
        touched = [self._within(file.c.end_snapshot), file.c.data_file_id.in_(self._with_delete_file())]
        if self.table.has_inlined_deletes:
            source = self.reader.catalog.inlined_delete(self.table.id)
            touched.append(file.c.data_file_id.in_(select(source.c.file_id).where(self._within(source.c.begin_snapshot))))
        query = select(file).where(file.c.table_id == self.table.id, file.c.begin_snapshot <= self.covered.end, or_(*touched))
        return query.order_by(file.c.data_file_id)

    def _with_delete_file(self) -> Select[Any]:
        """Select the data files with a delete file that may contain deletes of the range.

        A row of delete_file stores the snapshot of its oldest delete, not the snapshot that created the file. Ids increase, so a file
        with an id from ``next_file_id`` on was created in the range or later.
        """
        deletes = self.reader.catalog["delete_file"]
        may_be_later = deletes.c.delete_file_id >= self.covered.next_file_id
        in_range = or_(deletes.c.begin_snapshot >= self.covered.start, deletes.c.partial_max >= self.covered.start, may_be_later)
        mine = and_(deletes.c.table_id == self.table.id, deletes.c.begin_snapshot <= self.covered.end)
        return select(deletes.c.data_file_id).where(mine, in_range)

    def delete_files(self, files: list[int]) -> Select[Any]:
        """Select the delete files with ``made_by``: the snapshot of the range that created the file at the latest, if the row has none."""
        deletes, snapshot = self.reader.catalog["delete_file"], self.reader.catalog["snapshot"]
        # A file is not older than its oldest delete, which leaves few snapshots to compare.
        later = and_(self._within(snapshot.c.snapshot_id), snapshot.c.snapshot_id >= deletes.c.begin_snapshot)
        made_by = select(func.min(snapshot.c.snapshot_id)).where(later, snapshot.c.next_file_id > deletes.c.delete_file_id)
        made_if_unknown = case((deletes.c.partial_max.is_(None), made_by.scalar_subquery())).label("made_by")
        query = select(deletes, made_if_unknown, committed_at(self.reader.catalog, deletes)).where(
            deletes.c.table_id == self.table.id,
            deletes.c.begin_snapshot <= self.covered.end,
            is_in(deletes.c.data_file_id, files),
        )
        return query.order_by(deletes.c.data_file_id, deletes.c.delete_file_id)

    def inlined_deletes(self, files: list[int]) -> Select[Any]:
        source = self.reader.catalog.inlined_delete(self.table.id)
        query = select(source.c.file_id.label("data_file_id"), source.c.row_id, source.c.begin_snapshot)
        return query.where(source.c.begin_snapshot <= self.covered.end, is_in(source.c.file_id, files)).order_by(
            source.c.file_id, source.c.row_id
        )

    def _within(self, column: ColumnElement[int]) -> ColumnElement[bool]:
        return column.between(self.covered.start, self.covered.end)


def inserted_inlined(reader: CatalogReader, table: TableState, read_schema: Schema, covered: FeedRange) -> pa.Table | None:
    """Return the rows that the range added and that are still inlined; see ``inlined_rows``."""
    chosen = ChosenInlined(condition=lambda source: source.c.begin_snapshot.between(covered.start, covered.end))
    return inlined_rows(reader, table, read_schema, chosen=chosen)


def deleted_inlined(reader: CatalogReader, table: TableState, read_schema: Schema, covered: FeedRange) -> pa.Table | None:
    """Return the rows that the range deleted and that are still inlined, each with the snapshot that deleted it."""
    chosen = ChosenInlined(condition=lambda source: source.c.end_snapshot.between(covered.start, covered.end), snapshot="end_snapshot")
    return inlined_rows(reader, table, read_schema, chosen=chosen)


def last_row_change(reader: CatalogReader, table_id: int, until: int, author: str | None = None) -> Snapshot | None:
    """Return the newest snapshot up to ``until`` that added or deleted rows of a table, None when no surviving one did.

    Args:
        reader: Reader of the catalog.
        table_id: The table.
        until: Newest snapshot id to consider.
        author: Author that the snapshot must have; None, the default, for any.
    """
    for snapshot in _mentioning(reader, table_id, until, author):
        if _changes_rows(snapshot, table_id):
            return snapshot
    return None


def row_changes(reader: CatalogReader, table_id: int, after: int, until: int, author: str | None, limit: int | None) -> list[Snapshot]:
    """Return the snapshots of ``(after, until]`` that added or deleted rows of a table, newest first.

    Args:
        reader: Reader of the catalog.
        table_id: The table.
        after: Snapshot id before the range.
        until: Last snapshot id of the range.
        author: Author that the snapshots must have; None for any.
        limit: Maximum number of snapshots; None for all.
    """
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
    """Return the condition that ``changes_made`` may name a table. One comparison for all kinds, because it runs on every snapshot."""
    changes = reader.catalog["snapshot_changes"].c.changes_made
    # The cheap test comes first: the database concatenates strings only for the few rows that contain the number.
    whole = literal(",", String).concat(changes).concat(",").contains(f":{table_id},", autoescape=True)
    return and_(changes.contains(f":{table_id}", autoescape=True), whole)


def snapshots_about(reader: CatalogReader, table: TableState) -> list[Snapshot]:
    """Return the snapshots, by id ascending, that changed a table, its rows, its files or its name."""
    number, log, own = reader.catalog["snapshot"].c.snapshot_id, reader.catalog["snapshot_changes"], reader.catalog["table"]
    # Entries for created and renamed tables contain a name instead of an id; the table has a row for each of its names.
    names = select(own.c.begin_snapshot).where(own.c.table_id == table.id)
    named_at = frozenset(reader.connection.execute(names).scalars())
    # The log is searched without a join, which would take twice as long.
    mentioned = select(log.c.snapshot_id).where(_names(reader, table.id))
    begin = min((one for one in named_at if isinstance(one, int)), default=0)
    if 2 * begin > table.snapshot_id:
        # No entry is older than the table. The range only pays off if it is short: reading by index is slower per row than a full scan.
        mentioned = mentioned.where(log.c.snapshot_id >= begin)
    query = reader.snapshot_query().where(number.in_(union(mentioned, names))).order_by(number)
    return [one for one in reader.snapshots_of(query) if one.id in named_at or _is_in(one, table.id, _TABLE_CHANGES)]


def snapshots_that_move(reader: CatalogReader, table_id: int, first: int, last: int) -> list[Snapshot]:
    """Return the snapshots of a range that may have moved rows of a table to other files: all that did, and a few false positives."""
    number, changes = reader.catalog["snapshot"].c.snapshot_id, func.lower(reader.catalog["snapshot_changes"].c.changes_made)
    moves = or_(*(changes.contains(kind, autoescape=True) for kind in _MOVES))
    query = reader.snapshot_query().where(number.between(first, last), changes.contains(str(table_id)), moves)
    return reader.snapshots_of(query)


def _mentioning(
    reader: CatalogReader, table_id: int, until: int, author: str | None, *, after: int = -1, most: int = 1
) -> Iterator[Snapshot]:
    """Return the snapshots, newest first, whose changes may name the table. Quoted names cause a few false positives.

    The search widens step by step: from the newest part of the log to ten times as much in each step, and from ``most`` snapshots to more.
    PostgreSQL would read the whole log even to find the newest snapshot.
    """
    span = _FIRST_SPAN
    while until > after:
        query = _mentions(reader, table_id, author, max(after, until - span), until)
        found = reader.snapshots_of(query.limit(most))
        yield from found
        if len(found) < most:
            until, span = until - span, span * 10
        else:
            until, most = found[-1].id - 1, max(most, min(most * 10, _MAX_AT_ONCE))


def _mentions(reader: CatalogReader, table_id: int, author: str | None, after: int, until: int) -> Select[Any]:
    """Select the snapshots of ``(after, until]`` whose changes may name the table, newest first."""
    number, changes = reader.catalog["snapshot"].c.snapshot_id, reader.catalog["snapshot_changes"]
    # The range is given for both tables, because optimizers do not derive one condition from the other.
    both = (column.between(after + 1, until) for column in (number, changes.c.snapshot_id))
    query = reader.snapshot_query().where(*both, _names(reader, table_id)).order_by(number.desc())
    return query if author is None else query.where(changes.c.author == author)
