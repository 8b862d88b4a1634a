"""Columns that version 0.1 had as it was specified: ``nan_count`` of bounds, and the snapshot of the schema of inlined rows.

The DuckDB of its time made neither, but other writers followed the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import BigInteger, ColumnClause, Connection, Table, column, select, true, update

from ducklake_core.catalog.database.earlier_rows import NAN_COUNT, SCHEMA_SNAPSHOT, schema_version_of
from ducklake_core.catalog.database.tables import PREFIX
from ducklake_core.catalog.database.versions import Layout
from ducklake_core.catalog.migrations.ddl import DropColumn


@dataclass(frozen=True, slots=True)
class ReplaceNanCount:
    """Bounds say whether there are NaN, no longer how many."""

    table: str

    def __str__(self) -> str:
        return f"replace {PREFIX}{self.table}.{NAN_COUNT} by contains_nan"


@dataclass(frozen=True, slots=True)
class ReplaceSchemaSnapshot:
    """Tables of inlined rows are of a schema version, no longer of a snapshot."""

    table: str

    def __str__(self) -> str:
        return f"replace {PREFIX}{self.table}.{SCHEMA_SNAPSHOT} by schema_version"


SpecifiedColumn: TypeAlias = ReplaceNanCount | ReplaceSchemaSnapshot


def replaced_columns(layout: Layout) -> Iterator[SpecifiedColumn]:
    """The steps for those of the columns that are there; after the tables have the names and columns of the wanted version."""
    former = layout.stored_name("file_column_stats")
    if former is not None and layout.has(former, NAN_COUNT):
        yield ReplaceNanCount("file_column_stats")
    if layout.has("inlined_data_tables", SCHEMA_SNAPSHOT):
        yield ReplaceSchemaSnapshot("inlined_data_tables")


def replace_column(connection: Connection, tables: Mapping[str, Table], stored: Mapping[str, Table], step: SpecifiedColumn) -> None:
    """Carry out one of the steps: DuckDB files cannot alter a table after its rows were changed in the same transaction."""
    table = tables[step.table]
    if isinstance(step, ReplaceNanCount):
        count: ColumnClause[int] = column(NAN_COUNT, BigInteger)
        own = (table.c.data_file_id, table.c.table_id, table.c.column_id)
        rows = connection.execute(select(*own).select_from(table).where(count > 0, table.c.contains_nan.is_not(true()))).all()
        connection.execute(DropColumn(table, NAN_COUNT))
        for row in rows:
            same = (mine == value for mine, value in zip(own, row, strict=True))
            connection.execute(update(table).where(*same).values(contains_nan=True))
        return
    registered = stored[step.table]
    found = connection.execute(select(registered.c.table_id, registered.c.table_name, schema_version_of(stored).label("version"))).all()
    connection.execute(DropColumn(table, SCHEMA_SNAPSHOT))
    for row in found:
        same_table = (table.c.table_id == row.table_id, table.c.table_name == row.table_name)
        connection.execute(update(table).where(*same_table).values(schema_version=row.version))
