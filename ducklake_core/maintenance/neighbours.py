"""Small files that lie next to files that are rewritten, and join them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from ducklake_core.catalog.reading.compaction import SchemaVersions
from ducklake_core.format.files.data_files import DataFile

RowKey: TypeAlias = tuple[int, bool, int, int]
_Kind: TypeAlias = tuple[int | None, int | None, tuple[tuple[int, str | None], ...]]


def row_order(file: DataFile) -> RowKey:
    """Sorts files as DuckDB's compaction does: by the snapshot that added them, then by row id."""
    return (file.begin_snapshot, file.row_id_start is None, file.row_id_start or 0, file.id)


def file_kind(file: DataFile, versions: SchemaVersions) -> _Kind:
    """What files must share to be adjacent: schema version, partition spec and partition values."""
    return (versions.at(file.begin_snapshot), file.partition_id, tuple(sorted(file.partition_values)))


class Neighbours:
    """The files of a table in the order of their rows, kind by kind; each joins once.

    Args:
        files: All live files.
        joinable: Ids of those that may join others.
        versions: Schema versions of the table.
    """

    def __init__(self, files: Sequence[DataFile], joinable: Collection[int], versions: SchemaVersions) -> None:
        self._rows: dict[_Kind, list[DataFile]] = {}
        self._places: dict[int, tuple[_Kind, int]] = {}
        self._joinable = set(joinable)
        for file in sorted(files, key=row_order):
            kind = file_kind(file, versions)
            row = self._rows.setdefault(kind, [])
            self._places[file.id] = (kind, len(row))
            row.append(file)

    def join(self, files: Sequence[DataFile], room: float) -> list[DataFile]:
        """The files that lie directly before or after some files, or after one that joins, as long as there is room.

        Args:
            files: Files that are rewritten.
            room: Bytes that may join them.
        """
        found: list[DataFile] = []
        known = {file.id for file in files}
        for file in files:
            kind, place = self._places[file.id]
            for step in (1, -1):
                at = place + step
                while 0 <= at < len(self._rows[kind]):
                    other = self._rows[kind][at]
                    at += step
                    if other.id in known:
                        continue
                    if other.id not in self._joinable or other.file_size_bytes > room:
                        break
                    room -= other.file_size_bytes
                    self._joinable.remove(other.id)
                    known.add(other.id)
                    found.append(other)
        return found
