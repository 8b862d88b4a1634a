"""Reads what compaction decides by: schema versions of files, and the history of their deletes."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, select

from ducklake_core.catalog.reading.file_queries import is_in
from ducklake_core.catalog.reading.file_rows import Streams, data_file_of, delete_file_of
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.table_rows import Among, this_table
from ducklake_core.catalog.reading.visibility import committed_at
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.files.data_files import DeleteFile
from ducklake_core.format.files.delete_history import DeleteHistory
from ducklake_core.format.state import TableState
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import build_schema

CLUSTERED_KEY = "clustered_by"
"""In ``commit_extra_info`` of a rewrite: ids of the columns that it clustered files by."""


class SchemaVersions:
    """The schema versions that a table's columns had, by the snapshots from which they held.

    >>> versions = SchemaVersions([(1, 1), (7, 3)])
    >>> versions.at(0), versions.at(6), versions.at(7)
    (None, 1, 3)
    """

    def __init__(self, versions: list[tuple[int, int]]) -> None:
        self._versions = sorted(versions)

    def at(self, snapshot_id: int) -> int | None:
        """The schema version of the table at a snapshot; None before the first one known."""
        position = bisect_right(self._versions, (snapshot_id, 2**63))
        return self._versions[position - 1][1] if position else None


def schema_versions(reader: CatalogReader, table_id: int) -> SchemaVersions:
    """The schema versions of a table."""
    versions = reader.catalog["schema_versions"]
    query = select(versions.c.table_id, versions.c.begin_snapshot, versions.c.schema_version)
    rows = reader.rows_of_table(("schema versions",), lambda among: query.where(among(versions.c.table_id)), table_id)
    return SchemaVersions([(row.begin_snapshot, row.schema_version) for row in rows])


def schema_at(reader: CatalogReader, table: TableState, snapshot_id: int) -> Schema:
    """The columns that a table had at an earlier snapshot."""
    rows = (row for row, end in reader.column_history(table.id) if row.begin_snapshot <= snapshot_id and (end is None or end > snapshot_id))
    return build_schema(dict.fromkeys(rows))


def files_with_deletes(reader: CatalogReader, table_id: int) -> set[int]:
    """Ids of the table's data files that ever had a delete file, replaced and ended ones included."""
    deletes = reader.catalog["delete_file"]
    query = select(deletes.c.table_id, deletes.c.data_file_id).distinct()
    rows = reader.rows_of_table(("files with deletes",), lambda among: query.where(among(deletes.c.table_id)), table_id)
    return {row.data_file_id for row in rows}


def clustered_snapshots(reader: CatalogReader, snapshot_ids: Collection[int], column_ids: Sequence[int]) -> frozenset[int]:
    """Those of some snapshots whose commits say that they clustered files by some columns."""
    changes = reader.catalog["snapshot_changes"]
    query = select(changes.c.snapshot_id, changes.c.commit_extra_info).where(is_in(changes.c.snapshot_id, sorted(snapshot_ids)))
    rows = reader.connection.execute(query).all()
    return frozenset(row.snapshot_id for row in rows if row.commit_extra_info and _clusters(row.commit_extra_info, list(column_ids)))


def _clusters(extra_info: str, column_ids: list[int]) -> bool:
    try:
        said = json.loads(extra_info)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get(CLUSTERED_KEY) == column_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCounts:
    """How many rows one physical table of inlined rows has, and how many of them have ended."""

    rows: int
    ended: int


def inlined_row_counts(reader: CatalogReader, table: TableState) -> dict[str, StoredCounts]:
    """The rows of each registered table of inlined rows, by its name."""
    names = [item.name for item in table.inlined_tables]
    counted = zip(names, reader.stored_inlined_counts(table), strict=True)
    return {name: StoredCounts(rows=int(row.n), ended=int(row.ended)) for name, row in counted}


def inlined_deletes_of(reader: CatalogReader, table: TableState) -> dict[int, list[tuple[int, int]]]:
    """(position, snapshot) of all rows that the catalog deletes, by the id of the data file, whether or not it is there.

    Raises:
        CatalogCorruptError: One of the numbers is none.
    """
    if not table.has_inlined_deletes:
        return {}

    def positions(table_id: int, _name: str) -> Select[Any]:
        source = reader.catalog.inlined_delete(table_id)
        return select(this_table(table_id), source.c.file_id, source.c.row_id, source.c.begin_snapshot)

    found: dict[int, list[tuple[int, int]]] = {}
    for row in reader.rows_of_inlined(("deletes", "every"), positions, table):
        file_id, position, snapshot = row.file_id, row.row_id, row.begin_snapshot
        if not all(isinstance(number, int) for number in (file_id, position, snapshot)):
            raise CatalogCorruptError(
                f"table {table.qualified_name} has a row deleted through the catalog whose file, position or snapshot is no number",
                table=table.qualified_name,
            )
        found.setdefault(file_id, []).append((position, snapshot))
    return found


def delete_histories(
    reader: CatalogReader, table: TableState, file_ids: Collection[int], inlined: dict[int, list[tuple[int, int]]]
) -> list[DeleteHistory]:
    """The histories of some data files of a table, as far as the catalog still knows the files, by id.

    Args:
        inlined: Of :func:`inlined_deletes_of`.
    """
    if not file_ids:
        return []
    ids, wanted = sorted(file_ids), frozenset(file_ids)

    def of_files(source: Table, *more: ColumnElement[Any]) -> Callable[[Among], Select[Any]]:
        # Rows that are read for many tables at once are those of all of their files.
        every = select(source, *more)
        some = every if reader.holds_many else every.where(is_in(source.c.data_file_id, ids))
        return lambda among: some.where(among(source.c.table_id))

    file, deletes = reader.catalog["data_file"], reader.catalog["delete_file"]
    of_file: dict[int, list[DeleteFile]] = {}
    every_deletes = of_files(deletes, committed_at(reader.catalog, deletes))
    for row in sorted(reader.rows_of_table(("every delete file",), every_deletes, table.id), key=lambda row: row.delete_file_id):
        of_file.setdefault(row.data_file_id, []).append(delete_file_of(row, table, reader.info.encrypted))
    rows = reader.rows_of_table(("every data file",), of_files(file), table.id)
    files = [data_file_of(row, table, Streams({}), reader.info.encrypted) for row in rows if row.data_file_id in wanted]
    return [
        DeleteHistory(file=replace(one, delete_files=tuple(of_file.get(one.id, ()))), inlined=tuple(sorted(inlined.get(one.id, []))))
        for one in sorted(files, key=lambda one: one.id)
    ]
