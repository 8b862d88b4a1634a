"""What the catalog knows about files that might be merged: schema versions, and the history of their deletes."""

from __future__ import annotations

from bisect import bisect_right

from sqlalchemy import select

from ducklake_core.catalog.reader import CatalogReader


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
    query = select(versions.c.begin_snapshot, versions.c.schema_version).where(versions.c.table_id == table_id)
    return SchemaVersions([(row.begin_snapshot, row.schema_version) for row in reader.connection.execute(query)])


def files_with_deletes(reader: CatalogReader, table_id: int) -> set[int]:
    """Ids of the table's data files that ever had a delete file, replaced and ended ones included."""
    deletes = reader.catalog["delete_file"]
    return set(reader.connection.execute(select(deletes.c.data_file_id).where(deletes.c.table_id == table_id).distinct()).scalars())
