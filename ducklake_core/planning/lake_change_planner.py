"""From two snapshots to the rows that may differ between them, in every table of a lake; no file is opened.

What is visible at both ends decides.  A file that is new may hold old rows: flushing, merging and rewriting put files in place of
others.  Merged and flushed files name the last snapshot of their rows (``partial_max``); a rewrite is known by the log of its commit.
Where the catalog has forgotten what was visible, the answer is that anything may have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ducklake_core.catalog import changed_files, changed_inlined
from ducklake_core.catalog.changed_files import Definition, Edges, NamedTable
from ducklake_core.catalog.changed_inlined import InlinedGroup
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import NotFoundError
from ducklake_core.format.expressions.value_range import ValueRange
from ducklake_core.format.state import TableListing
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import folded, join_name, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.change_log import ChangeLog
from ducklake_core.planning.file_changes import FileChange, FileChanges
from ducklake_core.planning.file_ranges import FileRanges
from ducklake_core.results import ChangedRows, ChangedTable, LakeChanges, RowChange

Wanted = Mapping[str, Sequence[str]]
_NO_COLUMNS = Schema(columns=())


def plan_lake_changes(
    reader: CatalogReader, after: int, until: int | None = None, *, tables: Wanted | None = None, most: int | None = None
) -> LakeChanges:
    """See :meth:`ducklake_core.lake.DuckLake.changed_tables`."""
    found = reader.snapshots(after=after - 1, until=until, most=None if most is None else most + 1)
    before = found.pop(0) if found and found[0].id == after else None
    found = found if most is None else found[:most]
    if until is not None and (not found or found[-1].id != until) and most is None and not (before and until == after):
        raise NotFoundError(f"there is no snapshot {until}: it was never committed, or it was expired", snapshot_id=until)
    if not found:
        return LakeChanges(after=after, until=after, before=before)
    log = ChangeLog(after, before, found)
    return replace(log.answer(), tables=tuple(_Comparison(reader, log, tables).tables()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """One name, the tables that had it at both ends, and the columns asked for."""

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
    """Asks the catalog once for everything, then answers name by name."""

    def __init__(self, reader: CatalogReader, log: ChangeLog, wanted: Wanted | None) -> None:
        self._reader = reader
        self._log = log
        self._names = _names(changed_files.named_tables(reader, log.base.id, log.until), log, wanted)
        self._edges = Edges(after=log.after, until=log.until, next_file_id=log.base.next_file_id)

    def tables(self) -> Iterator[ChangedTable]:
        names, log = self._names, self._log
        ids = {table_id for name in names for table_id in name.table_ids}
        moved = {table_id for name in names if not name.stays for table_id in name.table_ids}
        registered = changed_inlined.registered_tables(self._reader)
        inside = {table_id for table_id in ids if table_id in moved or log.may_hold_inlined_changes(table_id)}
        deletes = changed_inlined.changed_inlined_deletes(self._reader, self._edges, inside)
        deletes_at = {table_id for table_id in ids if log.logged(table_id, ("inlined_delete",), log.after + 1, log.until)}
        files = FileChanges.read(self._reader, self._edges, log, deletes, tables=ids, moved=moved, rewritten=deletes_at)
        touched = (files.table_ids | moved | inside | set(log.named())) & ids
        known = changed_files.definitions(self._reader, touched)
        columns = {name.name: self._columns(name, known) for name in names}
        by_table = _columns_by_table(names, columns)
        groups: dict[int, list[InlinedGroup]] = {}
        sources = {table_id: registered[table_id] for table_id in sorted(inside) if table_id in registered}
        for group in changed_inlined.changed_inlined_rows(self._reader, self._edges, sources, by_table, known, moved):
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
        forgotten = log.before is None or bool(log.expired)
        for name in names:
            if name.stays and not forgotten and not name.table_ids & touched:
                continue
            table = found.table(name)
            if table is not None:
                yield table

    def _columns(self, name: _Name, known: Mapping[int, Definition]) -> dict[int, tuple[Field | None, ...]]:
        """The wanted columns of the tables behind a name, by table id, each as it is at the end where the table has the name."""
        found: dict[int, tuple[Field | None, ...]] = {}
        if not name.columns:
            return found
        for named, snapshot_id in ((name.before, self._log.base.id), (name.now, self._log.until)):
            if named is not None and named.table_id in known:
                schema = known[named.table_id].schema_at(snapshot_id)
                found[named.table_id] = tuple(schema.find(column) for column in name.columns)
        return found

    def _listings(self, names: Sequence[_Name], touched: set[int]) -> dict[int, tuple[TableListing, int]]:
        """Listing and visible inlined rows less deleted ones, of tables with changes."""
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
        asked: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {key: (name, ()) for key, name in sorted(keys.items())}
        missing = False
    else:
        asked = {}
        for name, columns in wanted.items():
            key, shown = _parsed(name)
            asked[key] = (shown, tuple(columns))
        # A table that is nowhere may have been dropped by an expired commit.
        missing = log.names_lost()
    found = (_Name(name=name, before=before.get(key), now=now.get(key), columns=columns) for key, (name, columns) in asked.items())
    return [one for one in found if one.before or one.now or missing]


@lru_cache(maxsize=16_384)
def _parsed(name: str) -> tuple[tuple[str, str], str]:
    """Schema and table as they are compared, and the name as it is shown; whoever watches many tables asks for them again and again."""
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
    """The catalog's answers for all tables.

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
        """The change under a name, None when nothing changed."""
        log, now, before = self.log, name.now, name.before
        rows = tuple(self._in_place(now.table_id) if name.stays and now is not None else self._elsewhere(name))
        unknown = self._unknown(name)
        other = log.without_rows(now.table_id) if now is not None else ()
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
        """Changes of a table that has its name at both ends."""
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
        """All rows of the table that lost the name, and all of the one that got it."""
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
        """Changes of inlined rows; ``at`` is the snapshot at which the table lost or got its name."""
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
        """The commit that gave a table its name, if it made rows visible under it: those that were there before, or moved since."""
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
        """The reason why the changes under a name are unknown: snapshots were expired that the answer needs."""
        log = self.log
        before_expired = log.before is None
        if before_expired and (log.unclear(log.after + 1, log.base.id) or any(map(log.lost_by, name.table_ids))):
            return f"snapshot {log.after} and what came after it were expired: {_gaps(log)}"
        if before_expired and log.names_lost() and (name.before is None or name.before.begin_snapshot > log.after):
            return f"snapshot {log.after}, which tells what had this name, was expired"
        for table_id in sorted(name.table_ids):
            if log.flush_hides_deletes(table_id):
                return "a commit deleted inlined rows and flushed the others at once, so that the catalog has no trace of them"
            if log.expired and (table_id in self.registered or self.files.moved_unseen(table_id)):
                return f"commits were expired: {_gaps(log)}"
        return None
