"""Find the rows that may differ between two snapshots in every table of a lake, from the catalog alone.

The answer errs on the safe side: it may contain rows that did not change, and where the evidence is lost it reports the changes of a table
as unknown. Three sources are combined::

    snapshot log    | snapshot | inserted_into_table:7, inline_flush:7 ... |   operations of each commit (ChangeLog)
    files           | begin | partial_max | end | id |                         rows added or removed with a file (FileChanges)
    inlined rows    | begin | end | values |                                   rows in the catalog itself, grouped

A snapshot id dates a file, and so does its own id: file ids grow with each commit, while rewrites and repeated commits change the
snapshots of a file. Where expired snapshots leave a gap in the log, every commit of the gap may have done anything.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ducklake_core.catalog import changed
from ducklake_core.catalog.changed import DataFileRow, Definition, Edges, InlinedDeletes, InlinedGroup, NamedTable
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError, NotFoundError
from ducklake_core.format.changes import Changes, commit_id_of, parse_changes
from ducklake_core.format.expressions.pruning import ValueRange, range_of
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.layout.transforms import partition_statistics
from ducklake_core.format.state import Snapshot, TableListing
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import folded, join_name, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.results import ChangedRows, ChangedTable, LakeChanges, RowChange

Wanted = Mapping[str, Sequence[str]]
_NO_COLUMNS = Schema(columns=())

_ADDING = ("inserted_into_table", "inlined_insert")
_DELETING = ("deleted_from_table", "inlined_delete")
_OF_ROWS = frozenset({*_ADDING, *_DELETING})
_OTHER = ("altered_table", "inline_flush", "merge_adjacent", "rewrite_delete")


def plan_lake_changes(
    reader: CatalogReader, after: int, until: int | None = None, *, tables: Wanted | None = None, most: int | None = None
) -> LakeChanges:
    """Return the changes between two snapshots; see :meth:`ducklake_core.lake.DuckLake.changed_tables` for the parameters."""
    found = reader.snapshots(after=after - 1, until=until, most=None if most is None else most + 1)
    before = found.pop(0) if found and found[0].id == after else None
    found = found if most is None else found[:most]
    if until is not None and (not found or found[-1].id != until) and most is None and not (before and until == after):
        raise NotFoundError(
            f"Snapshot {until} does not exist or has expired. List the available ones with lake.snapshots()", snapshot_id=until
        )
    if not found:
        return LakeChanges(after=after, until=after, before=before)
    log = ChangeLog(after, before, found)
    return replace(log.answer(), tables=tuple(_Comparison(reader, log, tables).tables()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """One name, the tables that have it at both ends, and the wanted columns."""

    name: str
    before: NamedTable | None
    now: NamedTable | None
    columns: tuple[str, ...] = ()

    @property
    def stays(self) -> bool:
        return self.before is not None and self.now is not None and self.before.table_id == self.now.table_id

    @property
    def table_ids(self) -> set[int]:
        return {named.table_id for named in (self.before, self.now) if named is not None}


class _Comparison:
    """Reads everything from the catalog in a few statements for all tables, then computes the answer name by name."""

    def __init__(self, reader: CatalogReader, log: ChangeLog, wanted: Wanted | None) -> None:
        self._reader = reader
        self._log = log
        self._wanted = wanted
        # A complete log lets all other tables be skipped, so that a comparison of few commits takes as long in a lake of many tables.
        self._few = wanted is None and log.is_complete and log.before is not None
        named = changed.named_tables(reader, log.base.id, log.until, renamed_or=log.named() if self._few else None)
        self._names = _names(named, log, wanted)
        self._edges = Edges(after=log.after, until=log.until, next_file_id=log.base.next_file_id)

    def tables(self) -> Iterator[ChangedTable]:
        names, log = self._names, self._log
        # The sets of tables narrow what the later statements read:
        #   ids      tables that have one of the names at either end
        #   moved    tables that lost or got a name, all of whose rows are changes under that name
        #   inside   tables whose inlined rows may have changed
        #   touched  tables with any sign of a change; all others are skipped without further reads
        ids = {table_id for name in names for table_id in name.table_ids}
        moved = {table_id for name in names if not name.stays for table_id in name.table_ids}
        registered = changed.registered_tables(self._reader)
        inside = {table_id for table_id in ids if table_id in moved or log.may_hold_inlined_changes(table_id)}
        deletes = changed.changed_inlined_deletes(self._reader, self._edges, inside)
        deletes_at = {table_id for table_id in ids if log.logged(table_id, ("inlined_delete",), log.after + 1, log.until)}
        tables = ids if self._wanted is not None else None
        files = FileChanges.read(self._reader, self._edges, log, deletes, tables=tables, moved=moved, rewritten=deletes_at)
        unnamed = files.table_ids - ids if self._few else set()
        if unnamed:
            # A commit changed files of these tables, but its log does not name them.
            others = changed.named_tables(self._reader, log.base.id, log.until, only=unnamed)
            names = sorted([*names, *_names(others, log, None)], key=lambda name: _parsed(name.name)[0])
            ids |= unnamed
        touched = (files.table_ids | moved | inside | set(log.named())) & ids
        known = changed.definitions(self._reader, touched)
        forgotten = log.before is None or bool(log.expired)
        names = [name for name in names if forgotten or not name.stays or name.table_ids & touched]
        columns = {name.name: self._columns(name, known) for name in names}
        by_table = _columns_by_table(names, columns)
        groups: dict[int, list[InlinedGroup]] = {}
        sources = {table_id: registered[table_id] for table_id in sorted(inside) if table_id in registered}
        for group in changed.changed_inlined_rows(self._reader, self._edges, sources, by_table, known, moved):
            groups.setdefault(group.table_id, []).append(group)
        found = _Evidence(
            log=log,
            files=files,
            groups=groups,
            ranges=FileRanges(self._reader, [row for row in files.files.values() if by_table.get(row.table_id)], known, by_table),
            known=known,
            registered=frozenset(registered),
            listings=self._listings(names, touched),
        )
        for name in names:
            table = found.table(name)
            if table is not None:
                yield table

    def _columns(self, name: _Name, known: Mapping[int, Definition]) -> dict[int, tuple[Field | None, ...]]:
        """Return the wanted columns of the tables behind a name, by table id, each at the end of the range where the table has the name."""
        found: dict[int, tuple[Field | None, ...]] = {}
        if not name.columns:
            return found
        for named, snapshot_id in ((name.before, self._log.base.id), (name.now, self._log.until)):
            if named is not None and named.table_id in known:
                schema = known[named.table_id].schema_at(snapshot_id)
                found[named.table_id] = tuple(schema.find(column) for column in name.columns)
        return found

    def _listings(self, names: Sequence[_Name], touched: set[int]) -> dict[int, tuple[TableListing, int]]:
        """Return the listing of changed tables, with the number of visible inlined rows less deleted ones."""
        wanted = {name.now.table_id for name in names if name.now is not None} & touched
        if not wanted:
            return {}
        listings = self._reader.tables(self._log.until, wanted)
        counts = self._reader.inlined_counts(listings, self._log.until)
        return {
            listing.id: (listing, counts[listing.id].row_count - counts[listing.id].deleted_count if listing.id in counts else 0)
            for listing in listings
        }


def _names(named: Sequence[NamedTable], log: ChangeLog, wanted: Wanted | None) -> list[_Name]:
    keyed = [(_folded(one), one) for one in named]
    before, now = ({key: one for key, one in keyed if one.live_at(at)} for at in (log.base.id, log.until))
    if wanted is None:
        keys = {key: join_name(one.schema_name, one.name) for key, one in {**before, **now}.items()}
        requested: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {key: (name, ()) for key, name in sorted(keys.items())}
        missing = False
    else:
        requested = {}
        for name, columns in wanted.items():
            key, shown = _parsed(name)
            requested[key] = (shown, tuple(columns))
        # A table that is nowhere may have been dropped by an expired commit.
        missing = log.names_lost()
    found = (_Name(name=name, before=before.get(key), now=now.get(key), columns=columns) for key, (name, columns) in requested.items())
    return [one for one in found if one.before or one.now or missing]


def _parsed(name: str) -> tuple[tuple[str, str], str]:
    """Return schema and table as they are compared, and the name as it is shown."""
    schema, table = split_name(name)
    return (folded(schema), folded(table)), join_name(schema, table)


def _folded(named: NamedTable) -> tuple[str, str]:
    return folded(named.schema_name), folded(named.name)


def _gaps(log: ChangeLog) -> str:
    gaps = log.expired or ((log.after, log.after),)
    return ", ".join(f"snapshot {first}" if first == last else f"snapshots {first} to {last}" for first, last in gaps)


def _columns_by_table(
    names: Sequence[_Name], columns: Mapping[str, Mapping[int, tuple[Field | None, ...]]]
) -> dict[int, tuple[Field | None, ...]]:
    return {table_id: fields for name in names for table_id, fields in columns[name.name].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """Everything that was read from the catalog, for all tables.

    Attributes:
        groups: Changed inlined rows by table id.
        registered: Tables that may hold rows in the catalog.
        listings: Sizes of tables at the later snapshot with the rows that the catalog holds for them, by table id.
    """

    log: ChangeLog
    files: FileChanges
    groups: Mapping[int, Sequence[InlinedGroup]]
    ranges: FileRanges
    known: Mapping[int, Definition]
    registered: frozenset[int]
    listings: Mapping[int, tuple[TableListing, int]]

    def table(self, name: _Name) -> ChangedTable | None:
        """Return the change under a name, None when nothing changed."""
        log, now, before = self.log, name.now, name.before
        rows = tuple(self._in_place(now.table_id) if name.stays and now is not None else self._elsewhere(name))
        unknown = self._unknown(name)
        if unknown is None and rows and now is not None and name.stays and log.is_complete and not log.names(now.table_id):
            # Inlined rows and deletes are read only for tables that the log names.
            unknown = "a commit changed files of the table, but its log does not name the table"
        changing = {number for one in rows for number in one.snapshots}
        other = tuple(number for number in log.without_rows(now.table_id) if number not in changing) if now is not None else ()
        if name.stays and not rows and unknown is None and not other:
            return None
        end, snapshot_id = (now, log.until) if now is not None else (before, log.base.id)
        listing, inlined = self.listings.get(now.table_id, (None, 0)) if now is not None else (None, 0)
        defined = self.known[now.table_id] if now is not None and listing is not None else None
        return ChangedTable(
            name=name.name,
            id_before=before.table_id if before is not None else None,
            id_after=now.table_id if now is not None else None,
            schema=self._schema(end, snapshot_id),
            schema_before=self._schema(before, log.base.id) if before is not None and not name.stays else None,
            rows=rows,
            unknown=unknown,
            other_snapshots=other,
            row_count=listing.record_count - listing.delete_count + inlined if listing is not None and listing.is_exact else None,
            file_size_bytes=listing.file_size_bytes if listing is not None else None,
            column_comments=defined.comments_at(log.until) if defined is not None else {},
            partition_by=defined.partition_by_at(log.until) if defined is not None else (),
        )

    def _schema(self, named: NamedTable | None, snapshot_id: int) -> Schema:
        known = self.known.get(named.table_id) if named is not None else None
        return known.schema_at(snapshot_id) if known is not None else _NO_COLUMNS

    def _in_place(self, table_id: int) -> Iterator[ChangedRows]:
        """Yield changes of a table that has its name at both ends."""
        added, others = self.files.of(table_id)
        known, has_ranges = self.log.row_changes(table_id), self.ranges.has_columns(table_id)
        for row in added:
            at = row.begin_snapshot
            yield ChangedRows(
                change="added",
                first_snapshot=at,
                last_snapshot=at,
                snapshots=(at,) if at in known else self.log.makers(table_id, at, at),
                row_count=row.record_count,
                ranges=self.ranges.of(table_id, row.data_file_id) if has_ranges else (),
                data_file_id=row.data_file_id,
            )
        for change in others:
            yield self._of_file(change, ())
        yield from self._of_groups(table_id, added=True, removed=True)

    def _elsewhere(self, name: _Name) -> Iterator[ChangedRows]:
        """Yield all rows of the table that lost the name, and all of the one that got it."""
        log = self.log
        if name.before is not None:
            table_id, at = name.before.table_id, min(name.before.end_snapshot or log.until, log.until)
            for change in self.files.all_before(table_id, at):
                yield self._of_file(change, (at,))
            yield from self._of_groups(table_id, removed=True, at=at)
        if name.now is not None:
            table_id, at = name.now.table_id, max(name.now.begin_snapshot, log.after + 1)
            for change in self.files.all_now(table_id):
                yield self._of_file(change, self._named(table_id, (change.first, change.last), at))
            yield from self._of_groups(table_id, added=True, at=at)

    def _of_file(self, change: FileChange, named: tuple[int, ...]) -> ChangedRows:
        span = change.first, change.last
        return self._rows(
            change.change,
            change.table_id,
            span,
            named,
            change.row_count,
            self.ranges.of(change.table_id, change.data_file_id),
            change.data_file_id,
        )

    def _of_groups(self, table_id: int, *, added: bool = False, removed: bool = False, at: int | None = None) -> Iterator[ChangedRows]:
        """Yield changes of inlined rows; ``at`` is the snapshot at which the table lost or got its name."""
        # An empty span: the row is visible under the name because the table got the name, not because a commit wrote the row.
        log, nothing = self.log, (0, -1)
        for group in self.groups.get(table_id, ()):
            begun = log.after < group.begin_snapshot <= log.until
            ended = group.end_snapshot is not None and log.after < group.end_snapshot <= log.until
            if added and not ended and (begun or at is not None):
                span = (group.begin_snapshot, group.begin_snapshot) if begun else nothing
                named = self._named(group.table_id, span, at)
                yield self._rows("added", group.table_id, span, named, group.row_count, group.ranges)
            if removed and not begun and (ended or at is not None):
                span = (group.end_snapshot or 0, group.end_snapshot or 0) if ended else nothing
                named = () if at is None or ended else (at,)
                yield self._rows("removed", group.table_id, span, named, group.row_count, group.ranges)

    def _named(self, table_id: int, span: tuple[int, int], at: int | None) -> tuple[int, ...]:
        """Return the commit that gave a table its name, if it made rows visible under it: those that existed before, or moved since."""
        if at is None or (span[0] >= at and self.log.makers(table_id, *span)):
            return ()
        return (at,)

    def _rows(  # noqa: PLR0917 - one value
        self,
        change: RowChange,
        table_id: int,
        span: tuple[int, int],
        named: tuple[int, ...],
        row_count: int,
        ranges: tuple[ValueRange, ...],
        data_file_id: int | None = None,
    ) -> ChangedRows:
        first, last = span
        snapshots = self.log.makers(table_id, first, last, *named)
        # Those of the log ascend.
        ends = snapshots or tuple(sorted((*named, first, last) if first <= last else named))
        return ChangedRows(
            change=change,
            first_snapshot=ends[0],
            last_snapshot=ends[-1],
            snapshots=snapshots,
            row_count=row_count,
            ranges=ranges,
            data_file_id=data_file_id,
        )

    def _unknown(self, name: _Name) -> str | None:
        """Return the reason why the changes under a name are unknown: snapshots were expired that the answer needs."""
        log = self.log
        before_expired = log.before is None
        if before_expired and (log.unclear(log.after + 1, log.base.id) or any(map(log.lost_by, name.table_ids))):
            return f"snapshot {log.after} and later snapshots have expired: {_gaps(log)}"
        if before_expired and log.names_lost() and (name.before is None or name.before.begin_snapshot > log.after):
            return f"snapshot {log.after}, which contains the table of this name, has expired"
        for table_id in sorted(name.table_ids):
            if log.flush_hides_deletes(table_id):
                return "a commit deleted inlined rows and flushed the rest, so that the catalog has no trace of them"
            if log.expired and (table_id in self.registered or self.files.moved_unseen(table_id)):
                return f"commits have expired: {_gaps(log)}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """Rows of one file that were added or removed between the snapshots ``first`` and ``last``; none if first is above last."""

    change: RowChange
    table_id: int
    data_file_id: int
    first: int
    last: int
    row_count: int


class FileChanges:
    """Files of all tables that may hold changed rows.

    Attributes:
        files: Rows of ``ducklake_data_file`` by id.
    """

    def __init__(
        self,
        edges: Edges,
        log: ChangeLog,
        files: Sequence[DataFileRow],
        deletes: Sequence[Any],
        inlined: Sequence[InlinedDeletes],
        *,
        earlier_logs: Mapping[int, str],
        rewritten: Collection[int],
    ) -> None:
        self.files = {row.data_file_id: row for row in files}
        self._edges = edges
        self._log = log
        self._rewritten = rewritten
        self._earlier_logs = earlier_logs
        self._by_table: dict[int, list[DataFileRow]] = {}
        for row in files:
            self._by_table.setdefault(row.table_id, []).append(row)
        self._deletes: dict[int, list[Any]] = {}
        for row in deletes:
            self._deletes.setdefault(row.data_file_id, []).append(row)
        self._inlined: dict[int, list[InlinedDeletes]] = {}
        for found in inlined:
            self._inlined.setdefault(found.data_file_id, []).append(found)

    @classmethod
    def read(
        cls,
        reader: CatalogReader,
        edges: Edges,
        log: ChangeLog,
        inlined: Sequence[InlinedDeletes],
        *,
        tables: Collection[int] | None,
        moved: Collection[int],
        rewritten: Collection[int],
    ) -> FileChanges:
        """Read the files and their deletes in three statements.

        Args:
            reader: An open read transaction.
            edges: The range.
            log: The log of the range.
            tables: Tables to compare; None for all.
            inlined: Rows of files that were deleted through the catalog.
            moved: Tables whose files are all needed.
            rewritten: Tables that lost rows through the catalog; a rewrite of a later commit may have hidden which.
        """
        hit = {found.data_file_id for found in inlined}
        files = changed.changed_data_files(reader, edges, tables, moved=moved, hit=hit, rewritten=rewritten)
        deletes = changed.changed_delete_files(reader, edges)
        old = {_newest(row) for row in deletes if _newest(row) <= edges.after}
        return cls(edges, log, files, deletes, inlined, earlier_logs=changed.logs_of(reader, old), rewritten=rewritten)

    @property
    def table_ids(self) -> set[int]:
        """Return the ids of the files' tables."""
        return set(self._by_table)

    def of(self, table_id: int) -> tuple[list[DataFileRow], list[FileChange]]:
        """Return changes of a table that has its name at both ends.

        Returns:
            Files that came with the rows of one snapshot, ``begin_snapshot``, and lost none, as nearly all do; and what changed in others.
        """
        rewritten = bool(self._log.logged(table_id, ("rewrite_delete",), self._edges.after + 1, self._edges.until))
        after, inlined, deletes = self._edges.after, self._inlined, self._deletes
        added, others = [], []
        for row in self._by_table.get(table_id, ()):
            begin, number = row.begin_snapshot, row.data_file_id
            is_whole = row.end_snapshot is None and row.partial_max in (None, begin) and number not in inlined and number not in deletes
            if begin > after and is_whole and not rewritten:
                added.append(row)
            else:
                others += [*self._added(row), *self._removed(row), *self._deleted(row)]
        return added, others

    def all_before(self, table_id: int, at: int) -> Iterator[FileChange]:
        """Yield everything that a table had at the first end, as removed; ``at`` is the snapshot at which it lost the name."""
        for row in self._by_table.get(table_id, ()):
            if row.begin_snapshot <= self._edges.after and (row.end_snapshot is None or row.end_snapshot > self._edges.after):
                yield self._change("removed", row, self._edges.after + 1, at - 1)

    def all_now(self, table_id: int) -> Iterator[FileChange]:
        """Yield everything that a table has at the last end, as added; rows from before the range have no snapshots."""
        for row in self._by_table.get(table_id, ()):
            if row.end_snapshot is None or row.end_snapshot > self._edges.until:
                first, last = max(row.begin_snapshot, self._edges.after + 1), min(_newest(row), self._edges.until)
                yield self._change("added", row, first, last) if first <= last else self._change("added", row, 0, -1)

    def moved_unseen(self, table_id: int) -> bool:
        """Return whether an unknown commit made a file of old rows, so that the rows that it dropped are unknown."""
        made = (self._log.made_by(row.data_file_id) for row in self._by_table.get(table_id, ()) if self._holds_old_rows(row))
        return any(self._log.unclear(first, last) for first, last in made)

    def _holds_old_rows(self, row: Any) -> bool:
        return bool(row.data_file_id >= self._edges.next_file_id and _newest(row) <= self._edges.after)

    def _added(self, row: Any) -> Iterator[FileChange]:
        edges, log, table_id = self._edges, self._log, row.table_id
        if edges.holds(row.end_snapshot) and not log.only_rewrote(table_id, row.end_snapshot):
            return
        first, last = max(row.begin_snapshot, edges.after + 1), min(_newest(row), edges.until)
        if first > last:
            return
        # The file surely holds rows of its first and its last snapshot, unless a rewrite moved them; for the snapshots in between only
        # the log is evidence.
        if any(edges.holds(number) and not log.only_rewrote(table_id, number) for number in (row.begin_snapshot, _newest(row))):
            while log.only_rewrote(table_id, first):
                first += 1
            while log.only_rewrote(table_id, last):
                last -= 1
            yield self._change("added", row, first, last)
        elif (found := log.added(table_id, first, last)) is not None:
            yield self._change("added", row, *found)

    def _removed(self, row: Any) -> Iterator[FileChange]:
        edges, log = self._edges, self._log
        if not edges.holds(row.end_snapshot):
            # A later rewrite applied the inlined deletes and removed them from the catalog, so that the positions are unknown.
            first = max(row.begin_snapshot, edges.after) + 1
            if row.table_id in self._rewritten and row.end_snapshot is not None and first <= edges.until < row.end_snapshot:
                yield self._change("removed", row, first, edges.until)
            return
        if log.only_rewrote(row.table_id, row.end_snapshot):
            if log.deleted(row.table_id, edges.after + 1, row.end_snapshot - 1):
                yield self._change("removed", row, edges.after + 1, row.end_snapshot - 1)
        elif row.begin_snapshot <= edges.after or log.only_rewrote(row.table_id, row.begin_snapshot):
            yield self._change("removed", row, row.end_snapshot, row.end_snapshot)

    def _deleted(self, row: Any) -> Iterator[FileChange]:
        if self._edges.holds(row.end_snapshot) and not self._log.only_rewrote(row.table_id, row.end_snapshot):
            return
        for found in self._inlined.get(row.data_file_id, ()):
            yield self._change("removed", row, found.begin_snapshot, found.begin_snapshot, found.row_count)
        for deletes in self._deletes.get(row.data_file_id, ()):
            made = self._hides_more(deletes)
            if made is not None:
                yield self._change("removed", row, *made, deletes.delete_count)

    def _hides_more(self, deletes: Any) -> tuple[int, int] | None:
        """Return the first and last snapshot that may have deleted the rows of a new delete file; None when all were deleted before.

        DuckDB keeps the snapshot of its first attempt in the delete file of a commit that it had to repeat, so that a real delete
        may look like an older one. A flush, on the other hand, writes older deletes into new files. The cases, in order::

            id before the range, newest delete before it    nothing new
            id after the range                              deletes of the range, if the log has any
            newest delete in the range                      those of the commit that made the file, at the latest
            the log has a gap, or earlier deletes           anything since the start of the range
            inlined deletes in the same commit              that commit
            a flush, or inlined deletes before              nothing new: the deletes only moved into a file
            otherwise                                       a repeated commit: its own deletes
        """
        edges, log = self._edges, self._log
        if deletes.delete_file_id < edges.next_file_id and _newest(deletes) <= edges.after:
            return None
        begin = max(deletes.begin_snapshot, edges.after + 1)
        if deletes.delete_file_id >= log.snapshots[-1].next_file_id:
            # A commit after the range made the file; it replaces delete files of the range, or others.
            return (begin, edges.until) if log.deleted(deletes.table_id, begin, edges.until) else None
        first, last = log.made_by(deletes.delete_file_id)
        if edges.holds(_newest(deletes)) or not edges.holds(last):
            return begin, max(last, min(_newest(deletes), edges.until))
        if log.unclear(first, last) or log.deleted(deletes.table_id, edges.after + 1, first - 1):
            return edges.after + 1, last
        if log.has_entry(deletes.table_id, "inlined_delete", last):
            return last, last
        if log.has_entry(deletes.table_id, "inline_flush", last) or self._were_inlined(deletes):
            return None
        return last, last

    def _were_inlined(self, deletes: Any) -> bool:
        """Return whether the newest delete in the file was inlined: DuckDB logs a flush of only such deletes as a delete."""
        try:
            earlier = parse_changes(self._earlier_logs.get(_newest(deletes)))
        except CatalogCorruptError:
            return False
        return deletes.table_id in earlier.inlined_delete

    def _change(self, change: RowChange, row: Any, first: int, last: int, row_count: int | None = None) -> FileChange:
        return FileChange(
            change=change,
            table_id=row.table_id,
            data_file_id=row.data_file_id,
            first=first,
            last=last,
            row_count=row.record_count if row_count is None else row_count,
        )


def _newest(row: Any) -> int:
    """Return the last snapshot whose rows or deletes a file may hold."""
    return int(row.partial_max if row.partial_max is not None else row.begin_snapshot)


class ChangeLog:
    """The log of the snapshots after one and up to another.

    Every method about a range treats expired snapshots and unreadable logs as if they had made the change that the method searches for.

    Args:
        after: The snapshot before the range.
        before: Its row, None when it was expired.
        snapshots: Snapshots of the range that were not expired, ascending; at least one.
    """

    def __init__(self, after: int, before: Snapshot | None, snapshots: Sequence[Snapshot]) -> None:
        self.after = after
        self.before = before
        self.snapshots = tuple(snapshots)
        self.until = snapshots[-1].id
        self._ids = [snapshot.id for snapshot in snapshots]
        self._next_files = [snapshot.next_file_id for snapshot in snapshots]
        # Many commits have equal logs, and parsing is the costly part.
        logs = {text: _readable(text) for text in {snapshot.changes for snapshot in snapshots}}
        self._changes = {snapshot.id: logs[snapshot.changes] for snapshot in snapshots}
        self._unreadable = [number for number in self._ids if self._changes[number] is None]
        self._kinds: dict[str, dict[int, list[int]]] = {}
        self._row_changes: dict[int, list[int]] = {}
        self._index({text: _named_tables(changes) for text, changes in logs.items() if changes is not None})

    def _index(self, named: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """Note for each kind and table the snapshots that name it.

        Args:
            named: Kinds and tables by the log entry that names them.
        """
        for snapshot in self.snapshots:
            for kind, table_id in named.get(snapshot.changes, ()):
                self._kinds.setdefault(kind, {}).setdefault(table_id, []).append(snapshot.id)
                if kind in _OF_ROWS:
                    found = self._row_changes.setdefault(table_id, [])
                    if not found or found[-1] != snapshot.id:
                        found.append(snapshot.id)

    @property
    def base(self) -> Snapshot:
        """Return the earliest snapshot whose state the catalog still has: the one before the range, or the first one in it."""
        return self.before or self.snapshots[0]

    @cached_property
    def expired(self) -> tuple[tuple[int, int], ...]:
        """Return the first and last id of every gap."""
        edges = zip([self.after, *self._ids], self._ids, strict=False)
        return tuple((left + 1, right - 1) for left, right in edges if right > left + 1)

    @cached_property
    def is_complete(self) -> bool:
        """Return whether no snapshot of the range was expired and every log is readable."""
        return not self.expired and not self._unreadable

    def unclear(self, first: int, last: int) -> bool:
        """Return whether a snapshot from first to last was expired or has an unreadable log."""
        if self.is_complete and self.after < first and last <= self.until:
            return False
        inside = bisect_right(self._ids, last) - bisect_left(self._ids, first)
        return inside < last - first + 1 or bisect_left(self._unreadable, first) < bisect_right(self._unreadable, last)

    def named(self) -> set[int]:
        """Return the ids of all tables that the log names."""
        return {table_id for tables in self._kinds.values() for table_id in tables}

    def names(self, table_id: int) -> bool:
        """Return whether the log names a table."""
        return any(table_id in tables for tables in self._kinds.values())

    def logged(self, table_id: int, kinds: Sequence[str], first: int, last: int) -> list[int]:
        """Return snapshots from first to last that name the table under one of the kinds, ascending."""
        found: set[int] = set()
        for kind in kinds:
            ids = self._kinds[kind].get(table_id) if kind in self._kinds else None
            if ids:
                found.update(ids[bisect_left(ids, first) : bisect_right(ids, last)])
        return sorted(found)

    def added(self, table_id: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the first and last snapshot that may have added rows to the table, of those from first to last; None if none did."""
        if self.unclear(first, last):
            return first, last
        found = self.logged(table_id, _ADDING, first, last)
        return (found[0], found[-1]) if found else None

    def deleted(self, table_id: int, first: int, last: int) -> bool:
        """Return whether rows of the table may have been deleted from first to last.

        A flush that moves deletes into files counts too: DuckDB logs it like a delete, and this library logs a delete like a flush.
        """
        return first <= last and (self.unclear(first, last) or bool(self.logged(table_id, _DELETING, first, last)))

    def has_entry(self, table_id: int, kind: str, snapshot_id: int) -> bool:
        """Return whether the snapshot names the table under a kind."""
        ids = self._kinds.get(kind, {}).get(table_id, ())
        place = bisect_left(ids, snapshot_id)
        return place < len(ids) and ids[place] == snapshot_id

    def made_by(self, file_id: int) -> tuple[int, int]:
        """Return the first and last snapshot that can have made a data or delete file: the same one unless some between were expired."""
        place = min(bisect_right(self._next_files, file_id), len(self._ids) - 1)
        return (self._ids[place - 1] if place else self.after) + 1, self._ids[place]

    def only_rewrote(self, table_id: int, snapshot_id: int | None) -> bool:
        """Return whether the snapshot moved rows of the table to other files and did nothing else, and everything before it is known.

        DuckDB rejects transactions that compact and change rows at once.
        """
        if snapshot_id is None or not self.has_entry(table_id, "rewrite_delete", snapshot_id) or self.unclear(self.after + 1, snapshot_id):
            return False
        return not self.logged(table_id, (*_ADDING, *_DELETING), snapshot_id, snapshot_id)

    def flush_hides_deletes(self, table_id: int) -> bool:
        """Return whether a commit deleted inlined rows and flushed the rest at once, so that the catalog has no trace of those rows.

        A flush of this library keeps such rows, and its deletes are logged as flushes too, so only commits of other clients count. Expired
        commits may have done so too; the caller checks for them separately.
        """
        flushes = self.logged(table_id, ("inline_flush",), self.after + 1, self.until)
        both = (bisect_left(self._ids, number) for number in flushes if self.has_entry(table_id, "inlined_delete", number))
        # Only this library stores commit ids.
        return any(commit_id_of(self.snapshots[place].extra_info) is None for place in both)

    def may_hold_inlined_changes(self, table_id: int) -> bool:
        """Return whether the catalog may hold rows of the table that were added or deleted in the range."""
        kinds = (*_ADDING, *_DELETING, "inline_flush")
        return self.unclear(self.after + 1, self.until) or bool(self.logged(table_id, kinds, self.after + 1, self.until))

    def row_changes(self, table_id: int) -> Collection[int]:
        """Return the snapshots whose log states changed rows of the table; :meth:`makers` contains each of them."""
        return frozenset(self._row_changes.get(table_id, ()))

    def makers(self, table_id: int, first: int, last: int, *named: int) -> tuple[int, ...]:
        """Return the snapshots that may have changed rows of the table from first to last, and those named; none when that is unclear."""
        if first <= last and self.unclear(first, last):
            return ()
        if any(self.unclear(number, number) for number in named):
            return ()
        ids = self._row_changes.get(table_id, [])
        found = ids[bisect_left(ids, first) : bisect_right(ids, last)]
        return tuple(sorted({*found, *named})) if named else tuple(found)

    def without_rows(self, table_id: int) -> tuple[int, ...]:
        """Return the snapshots that name the table for columns, layout or files, but surely not for new rows or inlined deletes.

        A flush that moves deletes into files has the same entries as a delete of this library, so both are returned.
        """
        other = self.logged(table_id, _OTHER, self.after + 1, self.until)
        if not other:
            return ()
        rows = set(self.logged(table_id, (*_ADDING, "inlined_delete"), self.after + 1, self.until))
        deleting = set(self.logged(table_id, ("deleted_from_table",), self.after + 1, self.until))
        flushing = set(self.logged(table_id, ("inline_flush",), self.after + 1, self.until))
        return tuple(number for number in other if number not in rows and (number not in deleting or number in flushing))

    def lost_by(self, table_id: int) -> bool:
        """Return whether the first commit after an expired snapshot may have removed files without a trace in the catalog."""
        first = self.snapshots[0].id
        if self.before is not None:
            return False
        return self.unclear(self.after + 1, first) or bool(self.logged(table_id, ("deleted_from_table",), first, first))

    def names_lost(self) -> bool:
        """Return whether names may have meant other tables at an expired snapshot than at the first one after it."""
        first = self.snapshots[0].id
        if self.before is not None:
            return False
        changes = self._changes[first]
        return changes is None or self.unclear(self.after + 1, first) or bool(changes.dropped_table or changes.created_table)

    def answer(self) -> LakeChanges:
        """Return the range, without tables."""
        return LakeChanges(after=self.after, until=self.until, before=self.before, snapshots=self.snapshots, expired=self.expired)


def _readable(text: str) -> Changes | None:
    """Return the parsed log of a snapshot; None when it is empty or this library does not understand it."""
    try:
        changes = parse_changes(text)
    except CatalogCorruptError:
        return None
    return None if changes.unknown or not text else changes


def _named_tables(changes: Changes) -> list[tuple[str, int]]:
    return [(kind, table_id) for kind in (*_ADDING, *_DELETING, *_OTHER) for table_id in dict.fromkeys(getattr(changes, kind))]


class FileRanges:
    """Bounds and counts of wanted columns in data files, read in two statements.

    Args:
        reader: Catalog.
        files: Rows of ``ducklake_data_file``.
        known: Definitions of their tables.
        columns: Wanted columns by table id; None for a column that does not exist.
        with_floats: Whether columns of floats have bounds too, in files that surely have no NaN; False by default.
    """

    def __init__(
        self,
        reader: CatalogReader,
        files: Sequence[Any],
        known: Mapping[int, Definition],
        columns: Mapping[int, Sequence[Field | None]],
        *,
        with_floats: bool = False,
    ) -> None:
        self._with_floats = with_floats
        self._known = known
        self._columns = columns
        candidates = [row for row in files if any(columns.get(row.table_id, ()))]
        self._values = changed.partition_values(reader, [row for row in candidates if row.partition_id is not None])
        wanted = {field.id for row in candidates for field in columns[row.table_id] if field is not None}
        self._bounds = changed.file_bounds(reader, candidates, wanted)
        self._files = {row.data_file_id: row for row in files}

    def has_columns(self, table_id: int) -> bool:
        """Return whether bounds of a table's columns are wanted."""
        return bool(self._columns.get(table_id))

    def of(self, table_id: int, data_file_id: int) -> tuple[ValueRange, ...]:
        """Return the bounds in a file, one for each wanted column of its table; an unknown file has none."""
        fields = self._columns.get(table_id, ())
        if not fields:
            return ()
        row = self._files.get(data_file_id)
        if row is None or not any(fields):
            return tuple(ValueRange() for _ in fields)
        by_partition = self._by_partition(row, fields)
        return tuple(self._range(row, field, by_partition) if field is not None else ValueRange() for field in fields)

    def null_counts(self, table_id: int, data_file_id: int) -> tuple[int | None, ...]:
        """Return the number of NULLs in a file, one for each wanted column; None where the catalog does not have it."""
        return tuple(
            None if field is None else _number(getattr(self._bounds.get((data_file_id, field.id)), "null_count", None))
            for field in self._columns.get(table_id, ())
        )

    def _range(self, row: Any, field: Field, by_partition: Mapping[int, ColumnStatistics]) -> ValueRange:
        stored = self._bounds.get((row.data_file_id, field.id))
        known = None
        if stored is not None:
            known = ColumnStatistics(
                column_id=field.id,
                column_size_bytes=0,
                value_count=_number(stored.value_count),
                null_count=_number(stored.null_count),
                min_value=stored.min_value if isinstance(stored.min_value, str) else None,
                max_value=stored.max_value if isinstance(stored.max_value, str) else None,
                contains_nan=None if stored.contains_nan is None else bool(stored.contains_nan),
            )
        sources = {"statistics": known, "partition": by_partition.get(field.id)}
        return range_of(field, sources, row.record_count, with_floats=self._with_floats)

    def _by_partition(self, row: Any, fields: Sequence[Field | None]) -> Mapping[int, ColumnStatistics]:
        spec = self._known[row.table_id].specs.get(row.partition_id) if row.partition_id is not None else None
        values = self._values.get(row.data_file_id, {})
        if spec is None or sorted(values) != list(range(len(spec.fields))):
            return {}
        values_of_file = [values[index] for index in range(len(spec.fields))]
        if not all(text is None or isinstance(text, str) for text in values_of_file):
            return {}
        schema = Schema(columns=tuple(field for field in fields if field is not None))
        return partition_statistics(spec, values_of_file, schema, row.record_count)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
