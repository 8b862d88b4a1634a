"""Reads the change texts of a range of commits: which tables they name, and which of them were expired.

Files and rows decide whether rows changed (planning/lake_change_planner.py); the log does so only for rows of a merged file that are of
neither snapshot which the catalog names for it. It tells apart who changed them, and which files only hold what others held before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.changes import Changes, parse_changes
from ducklake_core.format.state import Snapshot
from ducklake_core.results import LakeChanges

_ADDING = ("inserted_into_table", "inlined_insert")
_DELETING = ("deleted_from_table", "inlined_delete")
_OF_ROWS = frozenset({*_ADDING, *_DELETING})
_OTHER = ("altered_table", "inline_flush", "merge_adjacent", "rewrite_delete")


class ChangeLog:
    """The log of the snapshots after one and up to another.

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
        # Many commits say the same.
        said = {text: _readable(text) for text in {snapshot.changes for snapshot in snapshots}}
        self._changes = {snapshot.id: said[snapshot.changes] for snapshot in snapshots}
        self._unreadable = [number for number in self._ids if self._changes[number] is None]
        self._kinds: dict[str, dict[int, list[int]]] = {}
        self._row_changes: dict[int, list[int]] = {}
        self._index({text: _named_tables(changes) for text, changes in said.items() if changes is not None})

    def _index(self, named: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """Note for each kind and table the snapshots that name it.

        Args:
            named: Kinds and tables by the text that names them.
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
        """The earliest snapshot of which the catalog still shows the state: the one before the range, or the first one in it."""
        return self.before or self.snapshots[0]

    @cached_property
    def expired(self) -> tuple[tuple[int, int], ...]:
        """First and last id of every gap."""
        edges = zip([self.after, *self._ids], self._ids, strict=False)
        return tuple((left + 1, right - 1) for left, right in edges if right > left + 1)

    @cached_property
    def _is_complete(self) -> bool:
        return not self.expired and not self._unreadable

    def unclear(self, first: int, last: int) -> bool:
        """Whether a snapshot from first to last was expired, or says nothing that can be read."""
        if self._is_complete and self.after < first and last <= self.until:
            return False
        inside = bisect_right(self._ids, last) - bisect_left(self._ids, first)
        return inside < last - first + 1 or bisect_left(self._unreadable, first) < bisect_right(self._unreadable, last)

    def named(self) -> set[int]:
        """Tables that the log names at all."""
        return {table_id for tables in self._kinds.values() for table_id in tables}

    def logged(self, table_id: int, kinds: Sequence[str], first: int, last: int) -> list[int]:
        """Snapshots from first to last that name the table under one of the kinds, ascending."""
        found: set[int] = set()
        for kind in kinds:
            ids = self._kinds[kind].get(table_id) if kind in self._kinds else None
            if ids:
                found.update(ids[bisect_left(ids, first) : bisect_right(ids, last)])
        return sorted(found)

    def added(self, table_id: int, first: int, last: int) -> tuple[int, int] | None:
        """First and last snapshot that may have added rows to the table, of those from first to last; None when there is none."""
        if self.unclear(first, last):
            return first, last
        found = self.logged(table_id, _ADDING, first, last)
        return (found[0], found[-1]) if found else None

    def deleted(self, table_id: int, first: int, last: int) -> bool:
        """Whether rows of the table may have been deleted from first to last. A flush logs a delete where it only moves deletes."""
        if first > last or self.unclear(first, last):
            return first <= last
        by_files = self.logged(table_id, ("deleted_from_table",), first, last)
        flushes = set(self.logged(table_id, ("inline_flush",), first, last))
        return bool(self.logged(table_id, ("inlined_delete",), first, last)) or not flushes.issuperset(by_files)

    def says(self, table_id: int, kind: str, snapshot_id: int) -> bool:
        """Whether the snapshot names the table under a kind."""
        ids = self._kinds.get(kind, {}).get(table_id, ())
        place = bisect_left(ids, snapshot_id)
        return place < len(ids) and ids[place] == snapshot_id

    def made_by(self, file_id: int) -> tuple[int, int]:
        """First and last snapshot that can have made a data or delete file: the same one unless some between were expired."""
        place = min(bisect_right(self._next_files, file_id), len(self._ids) - 1)
        return (self._ids[place - 1] if place else self.after) + 1, self._ids[place]

    def only_rewrote(self, table_id: int, snapshot_id: int | None) -> bool:
        """Whether the snapshot moved rows of the table to other files and did nothing else, and everything before it is known.

        DuckDB refuses transactions that compact and change rows at once.
        """
        if snapshot_id is None or not self.says(table_id, "rewrite_delete", snapshot_id) or self.unclear(self.after + 1, snapshot_id):
            return False
        return not self.logged(table_id, (*_ADDING, *_DELETING), snapshot_id, snapshot_id)

    def flush_hides_deletes(self, table_id: int) -> bool:
        """Whether a commit deleted inlined rows and flushed the rest at once, so that the catalog has no trace of those rows.

        A commit that nothing is known of may have done so.
        """
        flushes = self.logged(table_id, ("inline_flush",), self.after + 1, self.until)
        return any(self.says(table_id, "inlined_delete", number) for number in flushes)

    def may_hold_inlined_changes(self, table_id: int) -> bool:
        """Whether the catalog may hold rows of the table that were added or deleted in the range."""
        kinds = (*_ADDING, *_DELETING, "inline_flush")
        return self.unclear(self.after + 1, self.until) or bool(self.logged(table_id, kinds, self.after + 1, self.until))

    def row_changes(self, table_id: int) -> Collection[int]:
        """Snapshots that say they changed rows of the table: of each of them, :meth:`makers` knows that it did."""
        return frozenset(self._row_changes.get(table_id, ()))

    def makers(self, table_id: int, first: int, last: int, *named: int) -> tuple[int, ...]:
        """Snapshots that may have changed rows of the table from first to last, besides those named; none when that is unclear."""
        if first <= last and self.unclear(first, last):
            return ()
        if any(self.unclear(number, number) for number in named):
            return ()
        ids = self._row_changes.get(table_id, [])
        found = ids[bisect_left(ids, first) : bisect_right(ids, last)]
        return tuple(sorted({*found, *named})) if named else tuple(found)

    def without_rows(self, table_id: int) -> tuple[int, ...]:
        """Snapshots that name the table for columns, layout or files, and say nothing of its rows.

        A flush says that it deleted rows where it only moves deletes into a file.
        """
        other = self.logged(table_id, _OTHER, self.after + 1, self.until)
        if not other:
            return ()
        rows = set(self.logged(table_id, (*_ADDING, "inlined_delete"), self.after + 1, self.until))
        deleting = set(self.logged(table_id, ("deleted_from_table",), self.after + 1, self.until))
        flushing = set(self.logged(table_id, ("inline_flush",), self.after + 1, self.until))
        return tuple(number for number in other if number not in rows and (number not in deleting or number in flushing))

    def lost_by(self, table_id: int) -> bool:
        """Whether the first commit after an expired snapshot may have removed files of which the catalog has no trace any more."""
        first = self.snapshots[0].id
        if self.before is not None:
            return False
        return self.unclear(self.after + 1, first) or bool(self.logged(table_id, ("deleted_from_table",), first, first))

    def names_lost(self) -> bool:
        """Whether names may have stood for other tables at an expired snapshot than at the first one after it."""
        first = self.snapshots[0].id
        if self.before is not None:
            return False
        changes = self._changes[first]
        return changes is None or self.unclear(self.after + 1, first) or bool(changes.dropped_table or changes.created_table)

    def answer(self) -> LakeChanges:
        """The range, without tables."""
        return LakeChanges(after=self.after, until=self.until, before=self.before, snapshots=self.snapshots, expired=self.expired)


def _readable(text: str) -> Changes | None:
    """The parsed log of a snapshot; None when it says nothing, or something that this library does not understand."""
    try:
        changes = parse_changes(text)
    except CatalogCorruptError:
        return None
    return None if changes.unknown or not text else changes


def _named_tables(changes: Changes) -> list[tuple[str, int]]:
    return [(kind, table_id) for kind in (*_ADDING, *_DELETING, *_OTHER) for table_id in dict.fromkeys(getattr(changes, kind))]
