"""Which tables a transaction has shown to its user, and whether others have changed what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.errors import NotFoundError
from ducklake_core.format.changes import parse_changes
from ducklake_core.format.state import is_same_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ducklake_core.catalog.reading.reader import CatalogReader
    from ducklake_core.format.state import Snapshot, TableState

_OF_TABLES = ("dropped_table", "altered_table", "inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")
"""Kinds of changes that name a table, without those that only move its rows to other files."""


class ReadSet:
    """Tables of which rows were shown to the user of a transaction.

    The transaction can be carried out again on a newer snapshot when the same would have been seen there: then it is as if it had begun
    after the other commits. What it has staged itself follows from its calls and from the rows that were there.
    """

    def __init__(self) -> None:
        self._tables: dict[int, TableState] = {}

    def add(self, table: TableState) -> None:
        """Note a table, in its state before the transaction has changed it."""
        self._tables[table.id] = table

    def changed(self, reader: CatalogReader, base: Snapshot, newest: Snapshot) -> str | None:
        """The name of a table that was read, and that others have changed between two snapshots; None when there is none."""
        if not self._tables:
            return None
        found = reader.snapshots(after=base.id - 1, until=newest.id)
        # Nobody knows what a snapshot has changed that was expired, or whether ids mean what they did where the base is not there.
        is_known = bool(found) and is_same_snapshot(found[0], base) and len(found) == 1 + newest.id - base.id
        touched = _touched(found[1:]) if is_known else None
        changed = (table for table in self._tables.values() if self._is_changed(table, touched, reader, newest))
        return next((table.qualified_name for table in changed), None)

    @staticmethod
    def _is_changed(table: TableState, touched: frozenset[int] | None, reader: CatalogReader, newest: Snapshot) -> bool:
        try:
            if table.id < 0:
                # The transaction makes it: nobody else has rows in it, unless somebody has made one of that name as well.
                reader.table(table.schema_name, table.name, newest.id)
                return True
            now = reader.table_by_id(table.id, newest.id)
        except NotFoundError:
            return table.id >= 0
        # The changes of a rename have the new name alone.
        return (
            touched is None or now.uuid != table.uuid or table.id in touched or (now.schema_id, now.name) != (table.schema_id, table.name)
        )


def _touched(snapshots: Sequence[Snapshot]) -> frozenset[int] | None:
    """Ids of the tables with other rows or columns after some snapshots, None when it cannot be known."""
    found: set[int] = set()
    for snapshot in snapshots:
        changes = parse_changes(snapshot.changes)
        if changes.unknown:
            return None
        found.update(number for kind in _OF_TABLES for number in getattr(changes, kind))
    return frozenset(found)
