"""Name mappings of files that were added from elsewhere (specification: ducklake_column_mapping, ducklake_name_mapping)."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import and_, select

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError
from ducklake_core.format.files.name_mapping import NameMapping, NameMappingRow, build_mapping

BY_NAME = "map_by_name"
"""The one kind of mapping that there is."""


def name_mappings(reader: CatalogReader, ids: Iterable[int], table: str) -> tuple[NameMapping, ...]:
    """The mappings with these ids, in one statement whatever their number; none when there are no ids.

    Args:
        reader: An open read transaction.
        ids: ``mapping_id`` of data files.
        table: ``schema.table`` for messages.

    Raises:
        CatalogCorruptError: A mapping is missing.
        UnsupportedFeatureError: A mapping of another kind than by name.
    """
    wanted = set(ids)
    if not wanted:
        return ()
    mapping, name = reader.catalog["column_mapping"], reader.catalog["name_mapping"]
    query = (
        select(mapping.c.mapping_id, mapping.c.type, name.c.column_id, name.c.source_name, name.c.target_field_id)
        .add_columns(name.c.parent_column, name.c.is_partition)
        .select_from(mapping.outerjoin(name, and_(name.c.mapping_id == mapping.c.mapping_id)))
        .where(mapping.c.mapping_id.between(min(wanted), max(wanted)))
    )
    found: dict[int, list[NameMappingRow]] = {}
    for row in reader.connection.execute(query):
        if row.mapping_id not in wanted:
            continue
        if row.type != BY_NAME:
            message = f"table {table} has files whose columns are mapped by {row.type!r}; only {BY_NAME!r} is supported"
            raise UnsupportedFeatureError(message, table=table, mapping_id=row.mapping_id)
        rows = found.setdefault(row.mapping_id, [])
        if row.column_id is not None:
            rows.append(
                NameMappingRow(
                    number=row.column_id,
                    source_name=row.source_name,
                    field_id=row.target_field_id,
                    parent=row.parent_column,
                    in_path=bool(row.is_partition),
                )
            )
    missing = sorted(wanted - found.keys())
    if missing:
        raise CatalogCorruptError(f"files of table {table} name the column mappings {missing}, which do not exist", table=table)
    return tuple(build_mapping(number, rows) for number, rows in sorted(found.items()))
