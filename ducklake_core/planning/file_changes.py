"""Which data files hold rows that changed between two snapshots, by the rows of the catalog's file tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_core.catalog import changed_files
from ducklake_core.catalog.changed_files import DataFileRow, Edges
from ducklake_core.catalog.changed_inlined import InlinedDeletes
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.changes import parse_changes
from ducklake_core.planning.change_log import ChangeLog
from ducklake_core.results import RowChange


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """Rows of one file that came or went between the snapshots ``first`` and ``last``; no snapshot when first is above last."""

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
        tables: Collection[int],
        moved: Collection[int],
        rewritten: Collection[int],
    ) -> FileChanges:
        """Ask the catalog, in three statements.

        Args:
            tables: Those in question.
            inlined: Rows of files that were deleted through the catalog.
            moved: Tables of which all files are wanted.
            rewritten: Tables that lost rows through the catalog; a rewrite of a later commit may have hidden which.
        """
        hit = {found.data_file_id for found in inlined}
        files = changed_files.changed_data_files(reader, edges, tables, moved=moved, hit=hit, rewritten=rewritten)
        deletes = changed_files.changed_delete_files(reader, edges)
        old = {_newest(row) for row in deletes if _newest(row) <= edges.after}
        return cls(edges, log, files, deletes, inlined, earlier_logs=changed_files.logs_of(reader, old), rewritten=rewritten)

    @property
    def table_ids(self) -> set[int]:
        """Tables of the files."""
        return set(self._by_table)

    def of(self, table_id: int) -> tuple[list[DataFileRow], list[FileChange]]:
        """Changes of a table that has its name at both ends.

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
        """Everything that a table had at the first end, as removed; ``at`` is when it lost the name."""
        for row in self._by_table.get(table_id, ()):
            if row.begin_snapshot <= self._edges.after and (row.end_snapshot is None or row.end_snapshot > self._edges.after):
                yield self._change("removed", row, self._edges.after + 1, at - 1)

    def all_now(self, table_id: int) -> Iterator[FileChange]:
        """Everything that a table has at the last end, as added; rows from before the range have no snapshots."""
        for row in self._by_table.get(table_id, ()):
            if row.end_snapshot is None or row.end_snapshot > self._edges.until:
                first, last = max(row.begin_snapshot, self._edges.after + 1), min(_newest(row), self._edges.until)
                yield self._change("added", row, first, last) if first <= last else self._change("added", row, 0, -1)

    def moved_unseen(self, table_id: int) -> bool:
        """Whether a file of old rows was made by a commit that is not known: which of the old rows it lacks cannot be told."""
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
        # A file holds rows of its first and its last snapshot, which a rewrite may have moved; of those in between only the log tells.
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
            # Deletes in the catalog go with the rewrite that applies them.
            if row.table_id in self._rewritten and row.end_snapshot is not None and row.end_snapshot > edges.until:
                yield self._change("removed", row, max(row.begin_snapshot, edges.after) + 1, edges.until)
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
        """First and last snapshot that may have deleted what a new delete file holds; None when all of it was deleted before.

        DuckDB keeps the snapshot of its first attempt in the delete file of a commit that it had to repeat, so that a real delete
        may look like one of the past; a flush, on the other hand, writes deletes of the past into new files.
        """
        edges, log = self._edges, self._log
        if deletes.delete_file_id < edges.next_file_id and _newest(deletes) <= edges.after:
            return None
        begin = max(deletes.begin_snapshot, edges.after + 1)
        if deletes.delete_file_id >= log.snapshots[-1].next_file_id:
            # Made after the range, in place of what was deleted in it, or of something else.
            return (begin, edges.until) if log.deleted(deletes.table_id, begin, edges.until) else None
        first, last = log.made_by(deletes.delete_file_id)
        if edges.holds(_newest(deletes)) or not edges.holds(last):
            return begin, max(last, min(_newest(deletes), edges.until))
        if log.unclear(first, last) or log.deleted(deletes.table_id, edges.after + 1, first - 1):
            return edges.after + 1, last
        if log.says(deletes.table_id, "inlined_delete", last):
            return last, last
        if log.says(deletes.table_id, "inline_flush", last) or self._were_inlined(deletes):
            return None
        return last, last

    def _were_inlined(self, deletes: Any) -> bool:
        """Whether the newest delete in the file was made through the catalog: DuckDB logs a flush of such deletes alone as a delete."""
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
    """The last snapshot of which a file says that it holds rows or deletes."""
    return int(row.partial_max if row.partial_max is not None else row.begin_snapshot)
