"""Describe the changes of snapshots with the names of schemas, tables, views and macros.

``changes_made`` holds ids. The catalog keeps every definition, with the snapshots that it was visible at, until the last of them expires::

    altered_table:1   at snapshot 7   table 1 visible at [3, -) as main.orders   ->  altered table main.orders
    dropped_table:1   at snapshot 9   table 1 visible at [3, 9) as main.orders   ->  dropped table main.orders
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.changes import QualifiedName, parse_changes
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.names import join_name

_WORDS = {
    "created_schema": ("created schema", "schema"),
    "created_table": ("created table", "table"),
    "created_view": ("created view", "view"),
    "created_scalar_macro": ("created macro", "macro"),
    "created_table_macro": ("created table macro", "macro"),
    "altered_table": ("altered table", "table"),
    "altered_view": ("altered view", "view"),
    "inserted_into_table": ("inserted into", "table"),
    "inlined_insert": ("inserted into", "table"),
    "deleted_from_table": ("deleted from", "table"),
    "inlined_delete": ("deleted from", "table"),
    "inline_flush": ("flushed inlined rows of", "table"),
    "merge_adjacent": ("merged files of", "table"),
    "rewrite_delete": ("rewrote files of", "table"),
    "dropped_table": ("dropped table", "table"),
    "dropped_view": ("dropped view", "view"),
    "dropped_scalar_macro": ("dropped macro", "macro"),
    "dropped_table_macro": ("dropped table macro", "macro"),
    "dropped_schema": ("dropped schema", "schema"),
}


def named_changes(reader: CatalogReader, snapshots: Iterable[Snapshot]) -> list[list[str]]:
    """Return the changes of each snapshot in words, such as ``altered table main.orders``. Takes four queries for any number of snapshots.

    An object whose definition has expired is described by its id: ``dropped table 53``.
    """
    names = _Names(reader)
    return [names.described(snapshot) for snapshot in snapshots]


@dataclass(frozen=True, slots=True)
class _Version:
    """A definition of an object, visible from ``begin`` (inclusive) to ``end`` (exclusive)."""

    name: str
    begin: int
    end: int | None


class _Names:
    """The names that objects of each kind had, by id, and the former names of renamed tables by snapshot and new name."""

    def __init__(self, reader: CatalogReader) -> None:
        self._versions: dict[str, dict[int, list[_Version]]] = {"schema": {}, "table": {}, "view": {}, "macro": {}}
        paths: dict[int, str] = {}
        for row in reader.connection.execute(select(reader.catalog.schemas)):
            paths[row.schema_id] = row.schema_name
            self._add("schema", row.schema_id, row.schema_name, row.begin_snapshot, row.end_snapshot)
        for kind in ("table", "view", "macro"):
            source = reader.catalog[kind]
            columns = (source.c[f"{kind}_id"], source.c.schema_id, source.c[f"{kind}_name"], source.c.begin_snapshot, source.c.end_snapshot)
            for number, schema_id, name, begin, end in reader.connection.execute(select(*columns)):
                self._add(kind, number, join_name(paths[schema_id], name) if schema_id in paths else str(name), begin, end)
        self._renamed: dict[tuple[int, str], str] = {}
        for versions in self._versions["table"].values():
            for old in versions:
                for new in versions:
                    if old.end == new.begin and old.name != new.name:
                        self._renamed[new.begin, new.name] = old.name

    def _add(self, kind: str, number: int, name: str, begin: object, end: object) -> None:
        # SQLite stores values of any type in damaged catalogs.
        if isinstance(begin, int) and isinstance(end, int | None):
            self._versions[kind].setdefault(number, []).append(_Version(name, begin, end))

    def described(self, snapshot: Snapshot) -> list[str]:
        """Return a phrase for each change, each once: an insert of files and of inlined rows is one insert."""
        try:
            changes = parse_changes(snapshot.changes)
        except CatalogCorruptError:
            return [snapshot.changes]
        found: dict[str, None] = {}
        for field, (words, kind) in _WORDS.items():
            for value in getattr(changes, field):
                name = self._name(kind, value, snapshot.id, is_dropped=field.startswith("dropped_"))
                old = self._renamed.get((snapshot.id, name)) if field == "created_table" else None
                found[f"renamed table {old} to {name}" if old else f"{words} {name}"] = None
        return [*found, *changes.unknown]

    def _name(self, kind: str, value: int | str | QualifiedName, snapshot_id: int, *, is_dropped: bool) -> str:
        if isinstance(value, QualifiedName):
            return join_name(value.schema, value.name)
        if isinstance(value, str):
            return value
        for version in self._versions[kind].get(value, ()):
            is_there = version.begin <= snapshot_id and (version.end is None or version.end > snapshot_id)
            if version.end == snapshot_id if is_dropped else is_there:
                return version.name
        return str(value)
