"""Columns that version 0.1 had as it was specified: ``nan_count`` of bounds, and the snapshot of the schema of inlined rows.

The DuckDB of its time made neither, but other writers followed the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from sqlalchemy import BigInteger, ColumnClause, Connection, Table, column, select, true, update

from ducklake_core.catalog.database.earlier_rows import NAN_COUNT, SCHEMA_SNAPSHOT, schema_version_of
from ducklake_core.catalog.database.tables import PREFIX
from ducklake_core.catalog.database.versions import Layout
from ducklake_core.catalog.migrations.ddl import DropColumn
from ducklake_core.catalog.writing.head import conditions_of

_BOUNDS, _INLINED = "file_column_stats", "inlined_data_tables"


@dataclass(frozen=True, slots=True)
class ReplaceNanCount:
    """Bounds say whether there are NaN, no longer how many."""

    def __str__(self) -> str:
        return f"replace {PREFIX}{_BOUNDS}.{NAN_COUNT} by contains_nan"


@dataclass(frozen=True, slots=True)
class ReplaceSchemaSnapshot:
    """Tables of inlined rows are of a schema version, no longer of a snapshot."""

    def __str__(self) -> str:
        return f"replace {PREFIX}{_INLINED}.{SCHEMA_SNAPSHOT} by schema_version"


SpecifiedColumn: TypeAlias = ReplaceNanCount | ReplaceSchemaSnapshot


def replaced_columns(layout: Layout) -> Iterator[SpecifiedColumn]:
    """The steps for those of the columns that are there; after the tables have the names and columns of the wanted version."""
    former = layout.stored_name(_BOUNDS)
    if former is not None and layout.has(former, NAN_COUNT):
        yield ReplaceNanCount()
    if layout.has(_INLINED, SCHEMA_SNAPSHOT):
        yield ReplaceSchemaSnapshot()


def replace_column(connection: Connection, tables: Mapping[str, Table], stored: Mapping[str, Table], step: SpecifiedColumn) -> None:
    """Carry out one of the steps: DuckDB files cannot alter a table after its rows were changed in the same transaction."""
    match step:
        case ReplaceNanCount():
            _replace_nan_count(connection, tables[_BOUNDS])
        case ReplaceSchemaSnapshot():
            _replace_schema_snapshot(connection, tables[_INLINED], stored)
        case _:
            assert_never(step)


def _replace_nan_count(connection: Connection, bounds: Table) -> None:
    count: ColumnClause[int] = column(NAN_COUNT, BigInteger)
    names = select(bounds.c.table_id, bounds.c.column_id, bounds.c.data_file_id)
    files: dict[tuple[int, int], list[int]] = defaultdict(list)
    for table_id, column_id, file_id in connection.execute(names.where(count > 0, bounds.c.contains_nan.is_not(true()))):
        files[table_id, column_id].append(file_id)
    connection.execute(DropColumn(bounds, NAN_COUNT))
    for (table_id, column_id), ids in files.items():
        same = (bounds.c.table_id == table_id, bounds.c.column_id == column_id)
        for some in conditions_of(bounds.c.data_file_id, ids):
            connection.execute(update(bounds).where(*same, some).values(contains_nan=True))


def _replace_schema_snapshot(connection: Connection, table: Table, stored: Mapping[str, Table]) -> None:
    registered = stored[_INLINED]
    found = connection.execute(select(registered.c.table_id, registered.c.table_name, schema_version_of(stored).label("version"))).all()
    connection.execute(DropColumn(table, SCHEMA_SNAPSHOT))
    for row in found:
        same = (table.c.table_id == row.table_id, table.c.table_name == row.table_name)
        connection.execute(update(table).where(*same).values(schema_version=row.version))
