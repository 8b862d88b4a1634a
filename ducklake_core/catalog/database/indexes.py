"""Indexes that the format does not ask for and DuckDB does not mind: no table pays for other tables, no column for others."""

from __future__ import annotations

from sqlalchemy import Connection, Index, MetaData, inspect
from sqlalchemy.schema import CreateIndex

from ducklake_core.catalog.database.tables import CatalogTables

_INDEXES = {
    "ducklake_file_column_stats_by_column": ("file_column_stats", ("table_id", "column_id", "data_file_id")),
    "ducklake_data_file_by_table": ("data_file", ("table_id", "data_file_id")),
    "ducklake_delete_file_by_table": ("delete_file", ("table_id", "data_file_id")),
    "ducklake_file_partition_value_by_table": ("file_partition_value", ("table_id", "data_file_id")),
    "ducklake_table_by_id": ("table", ("table_id",)),
    "ducklake_column_by_table": ("column", ("table_id",)),
    "ducklake_table_stats_by_table": ("table_stats", ("table_id",)),
    "ducklake_table_column_stats_by_table": ("table_column_stats", ("table_id", "column_id")),
    "ducklake_schema_versions_by_table": ("schema_versions", ("table_id",)),
    "ducklake_inlined_data_tables_by_table": ("inlined_data_tables", ("table_id",)),
}
"""Name, and the metadata table and columns that it is on."""
# MySQL has no CREATE INDEX IF NOT EXISTS.
_WITHOUT_IF = frozenset({"mysql", "mariadb"})


def create_indexes(connection: Connection, tables: CatalogTables) -> tuple[str, ...]:
    """Make the indexes that are missing; the names of all."""
    knows_if = connection.dialect.name not in _WITHOUT_IF
    for name, (table, columns) in _INDEXES.items():
        # A copy: an index belongs to its table for good, and other catalogs share the original.
        copy = tables[table].to_metadata(MetaData(schema=tables.schema))
        if knows_if or not any(index["name"] == name for index in inspect(connection).get_indexes(copy.name, schema=copy.schema)):
            connection.execute(CreateIndex(Index(name, *(copy.c[column] for column in columns)), if_not_exists=knows_if))
    return tuple(_INDEXES)
