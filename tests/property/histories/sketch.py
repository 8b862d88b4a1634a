"""Tables, columns and types of the lake, as the oracle sees it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb
from duckdb.sqltypes import DuckDBPyType

from tests.support.oracle import Oracle, quoted


@dataclass(frozen=True)
class Column:
    name: str
    type: DuckDBPyType

    @property
    def sql(self) -> str:
        return quoted(self.name)

    @property
    def kind(self) -> str:
        """``integer``, ``decimal``, ``struct``, ... and ``json`` apart from ``varchar``."""
        return "json" if str(self.type) == "JSON" else self.type.id


@dataclass(frozen=True)
class TableSketch:
    """A table; ``key`` is the column by which conditions choose rows, where they are spans of one column only."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    written: str = ""
    key: str | None = None

    @property
    def sql(self) -> str:
        return self.written or f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def others(self) -> tuple[Column, ...]:
        """Columns but the key."""
        return tuple(column for column in self.columns if column.name != self.key)

    def of_kind(self, *kinds: str) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]


@dataclass(frozen=True)
class LakeSketch:
    tables: tuple[TableSketch, ...]
    schemas: tuple[str, ...]
    views: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        return {f"{table.schema}.{table.name}".lower() for table in self.tables} | {view.lower() for view in self.views}


def look(duck: Oracle) -> LakeSketch:
    """The lake within the oracle's present transaction."""
    columns = defaultdict(list)
    for schema, table, name, data_type in duck.rows(
        "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'lake' "
        "AND (schema_name, table_name) IN (SELECT (schema_name, table_name) FROM duckdb_tables() WHERE database_name = 'lake') "
        "ORDER BY schema_name, table_name, column_index"
    ):
        columns[str(schema), str(table)].append(Column(str(name), duckdb.sqltype(str(data_type))))
    schemas = duck.rows("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake' ORDER BY schema_name")
    views = duck.rows("SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE database_name = 'lake' AND NOT internal ORDER BY 1")
    return LakeSketch(
        tables=tuple(TableSketch(schema, name, tuple(found)) for (schema, name), found in sorted(columns.items())),
        schemas=tuple(str(name) for (name,) in schemas),
        views=tuple(str(name) for (name,) in views),
    )
