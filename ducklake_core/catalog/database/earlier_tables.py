"""The metadata tables of an earlier catalog version in the shape of the newest, so that readers need not know of versions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Column, ColumnElement, FromClause, MetaData, String, Table, false, func, literal, null, select, union_all
from sqlalchemy import cast as sql_cast
from typing_extensions import override

from ducklake_core.catalog.database.earlier_rows import (
    NAN_COUNT,
    SCHEMA_SNAPSHOT,
    contains_nan,
    newest_snapshot,
    partition_column_id,
    schema_version_of,
    table_schema_versions,
)
from ducklake_core.catalog.database.tables import PREFIX, CatalogTables
from ducklake_core.catalog.database.versions import Layout
from ducklake_core.format.versions import format_version

PARTIAL_FILE_INFO = "partial_file_info"
"""Column of ``data_file`` before 0.4; the readers' table has it after all others."""

DEFAULTS: dict[tuple[str, str], str | bool] = {
    ("schema", "path"): "",
    ("schema", "path_is_relative"): True,
    ("table", "path"): "",
    ("table", "path_is_relative"): True,
    ("name_mapping", "is_partition"): False,
    ("column", "default_value_type"): "literal",
}
"""The values that stand for a column which rows of an earlier version lack; NULL for every other column."""


class EarlierTables(CatalogTables):
    """Reads like the tables of the newest version: columns and tables that are missing are filled in, by subqueries.

    Only for reading: :meth:`Database.write` refuses earlier versions.

    Attributes:
        layout: What is there.
        stored: The tables as they are, by their own names without prefix.
    """

    def __init__(self, schema: str | None, layout: Layout) -> None:
        super().__init__(schema)
        self.version = format_version(layout.version)
        self.layout = layout
        self.stored = stored_tables(schema, layout)
        # Readers use what every FROM element has, so that a subquery may stand where the newest version has a table.
        self._shown = {name: cast("Table", self._show(name)) for name in super().__iter__()}

    @override
    def __getitem__(self, name: str) -> Table:
        return self._shown[name]

    def _show(self, name: str) -> FromClause:
        current = super().__getitem__(name)
        stored_name = self.layout.stored_name(name)
        if stored_name is None:
            selects = [select(*(_missing(name, column) for column in current.c)).where(false())]
        else:
            stored = self.stored[stored_name]
            columns = [self._column(name, column, stored) for column in current.c]
            if name == "data_file" and PARTIAL_FILE_INFO in stored.c:
                columns.append(stored.c[PARTIAL_FILE_INFO].label(PARTIAL_FILE_INFO))
            selects = [select(*columns).select_from(stored)]
        if name == "schema_versions":
            known = [query for query in selects if self.layout.has(name, "table_id")]
            selects = [*known, table_schema_versions(self.stored)]
        return union_all(*selects).subquery(name) if len(selects) > 1 else selects[0].subquery(name)

    def _column(self, table: str, column: Column[Any], stored: Table) -> ColumnElement[Any]:
        own = stored.c.get(column.name)
        if (table, column.name) == ("data_file", "partial_max") and PARTIAL_FILE_INFO in stored.c:
            said = newest_snapshot(stored.c[PARTIAL_FILE_INFO])
            return (said if own is None else func.coalesce(own, said)).label(column.name)
        if (table, column.name) == ("partition_column", "column_id") and self.layout.version == "0.1":
            return partition_column_id(self.stored).label(column.name)
        if (table, column.name) == ("inlined_data_tables", "schema_version") and SCHEMA_SNAPSHOT in stored.c:
            return schema_version_of(self.stored).label(column.name)
        if (table, column.name) == ("file_column_stats", "contains_nan") and NAN_COUNT in stored.c:
            return contains_nan(stored).label(column.name)
        return _missing(table, column) if own is None else own.label(column.name)


def stored_tables(schema: str | None, layout: Layout) -> dict[str, Table]:
    """The metadata tables as they are, by their own names without prefix."""
    current = CatalogTables(schema)
    by_stored_name = {layout.stored_name(name): table for name, table in current.items()}
    metadata = MetaData(schema=schema)
    return {
        name: Table(PREFIX + name, metadata, *(Column(column, _type(by_stored_name.get(name), column)) for column in columns))
        for name, columns in layout.tables
    }


@lru_cache(maxsize=16)
def earlier_tables(schema: str | None, layout: Layout) -> EarlierTables:
    """The readers' tables of one layout in a database schema."""
    return EarlierTables(schema, layout)


def _type(current: Table | None, column: str) -> Any:
    return current.c[column].type if current is not None and column in current.c else String()


def _missing(table: str, column: Column[Any]) -> ColumnElement[Any]:
    default = DEFAULTS.get((table, column.name))
    return (sql_cast(null(), column.type) if default is None else literal(default, column.type)).label(column.name)
