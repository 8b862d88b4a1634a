"""Checks of row ids that files count from a first one on: apart from each other at every snapshot, and below the next one of the table."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import inf

from ducklake_core.format.files.locations import printable
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts, is_live


def check_row_ids(facts: Facts, table: TableFacts, files: Iterable[CatalogRow]) -> None:
    """Row ids of files of a table that count them from ``row_id_start`` on."""
    every = [row for row in files if row.row_id_start is not None and row.record_count > 0]
    for one, other in overlapping(every):
        what = (
            f"data files {one.data_file_id} and {other.data_file_id} begin at row ids {one.row_id_start} and {other.row_id_start}, the "
            f"first has {one.record_count} rows"
        )
        facts.report("row-ids-overlap", what, table=table, path=printable(facts.path_of(other)), data_file_id=other.data_file_id)
    following = facts.next_row_id(table)
    live = [row for row in every if is_live(row, facts.newest)]
    beyond = [row for row in live if following is not None and _end(row) > following]
    for row in beyond:
        what = f"data file {row.data_file_id} ends at row id {_end(row) - 1}, the next one is {following}"
        facts.report("row-id-beyond-next", what, table=table, path=printable(facts.path_of(row)), data_file_id=row.data_file_id)


def overlapping(files: Iterable[CatalogRow]) -> Iterator[tuple[CatalogRow, CatalogRow]]:
    """Files that give some snapshot a row id which an earlier file gives it too: one such earlier file, and the file.

    Earlier is what begins at a lower row id. One pass in that order: merges leave as many files over the same row ids as there were merges,
    each for snapshots of its own, and no two of them are compared.
    """
    taken = _TakenIds()
    for other in sorted(files, key=lambda row: (row.row_id_start, row.data_file_id)):
        one = taken.add(other)
        if one is not None:
            yield one, other


class _TakenIds:
    """For each snapshot, the file among those added that goes furthest in row ids.

    Snapshots between which nothing changes are one stretch: it begins at ``_begins[n]``, ends where the next one begins, and has the file
    ``_files[n]``. Files are added in the order of their first row ids, so that one meets another where it begins before that one's end.
    """

    def __init__(self) -> None:
        self._begins: list[float] = [-inf, inf]
        self._files: list[CatalogRow | None] = [None, None]

    def add(self, row: CatalogRow) -> CatalogRow | None:
        """Take in a file; gives one whose ids it has too at some snapshot."""
        begin, end = row.begin_snapshot, inf if row.end_snapshot is None else row.end_snapshot
        if end <= begin:
            return None
        first, after = self._cut(begin), self._cut(end)
        met = [one if one is not None and row.row_id_start < _end(one) else None for one in self._files[first:after]]
        one = next((one for one in met if one is not None), None)
        if one is None:
            # Where everything is sound the stretches become one, so that each is looked at once.
            self._begins[first:after], self._files[first:after] = [begin], [row]
        else:
            self._files[first:after] = [row if other is None or _end(other) < _end(row) else other for other in met]
        return one

    def _cut(self, snapshot: float) -> int:
        """The place of the stretch that begins at a snapshot; what lies around it is cut in two there."""
        place = bisect_left(self._begins, snapshot)
        if self._begins[place] != snapshot:
            self._begins.insert(place, snapshot)
            self._files.insert(place, self._files[place - 1])
        return place


def _end(row: CatalogRow) -> int:
    """The row id after the last one of a file."""
    return int(row.row_id_start + row.record_count)
