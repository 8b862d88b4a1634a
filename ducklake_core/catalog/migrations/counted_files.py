"""Data files whose rows the catalog of an earlier version counts by snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from ducklake_core.catalog.database.earlier_tables import PARTIAL_FILE_INFO
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import parse_row_counts
from ducklake_core.format.state import LakeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedFile:
    """One of them.

    Attributes:
        path: Full path.
        has_visible_history: Whether there are snapshots that must see only some of its rows.
    """

    id: int
    path: str
    has_visible_history: bool


def counted_files(connection: Connection, tables: CatalogTables, info: LakeInfo) -> list[CountedFile]:
    """All of them, of dropped tables too, by id."""
    file, table, schema, snapshot = (tables[name] for name in ("data_file", "table", "schema", "snapshot"))
    if PARTIAL_FILE_INFO not in file.c:
        return []
    oldest = select(func.min(snapshot.c.snapshot_id)).scalar_subquery()
    query = (
        select(
            file.c.data_file_id,
            file.c.path,
            file.c.path_is_relative,
            file.c[PARTIAL_FILE_INFO],
            table.c.path.label("table_path"),
            table.c.path_is_relative.label("table_path_is_relative"),
            schema.c.path.label("schema_path"),
            schema.c.path_is_relative.label("schema_path_is_relative"),
            oldest.label("oldest"),
        )
        .select_from(file.join(table, table.c.table_id == file.c.table_id).join(schema, schema.c.schema_id == table.c.schema_id))
        .where(file.c[PARTIAL_FILE_INFO].is_not(None))
        .order_by(file.c.data_file_id)
    )
    found: dict[int, CountedFile] = {}
    for row in connection.execute(query):
        counts = parse_row_counts(row.partial_file_info)
        if counts:
            base = paths.join(info.data_path, row.schema_path, row.schema_path_is_relative is not False)
            base = paths.join(base, row.table_path, row.table_path_is_relative is not False)
            path = paths.join(base, row.path, row.path_is_relative is not False)
            # A renamed table has several rows, all of the same directory.
            found[row.data_file_id] = CountedFile(id=row.data_file_id, path=path, has_visible_history=counts[-1][0] > row.oldest)
    return list(found.values())
