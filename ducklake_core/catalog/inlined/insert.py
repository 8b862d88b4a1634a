"""Rows into a physical table of inlined rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Executable, TableClause, bindparam, column, insert, select
from sqlalchemy.types import NullType

from ducklake_core.catalog.changes import InsertInlinedRows
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS
from ducklake_core.catalog.inlined.encoding import encoder
from ducklake_core.catalog.inlined.variants import stored_cell
from ducklake_core.errors import CatalogCorruptError

_BATCH_VALUES = 30_000
"""Parameters of one statement: SQLite takes 32,766, PostgreSQL 65,535."""


def insert_inlined_rows(statements: Statements, database: Database, change: InsertInlinedRows) -> None:
    """Insert the rows inside an open write transaction.

    Raises:
        CatalogCorruptError: The table does not have as many columns as the rows.
    """
    names = _stored_names(statements, database, change)

    def build() -> Executable:
        table = database.tables.inlined_data(change.table_name, names)
        # Parameters are numbered: a user's column may have any name.
        cells: list[ColumnElement[Any]] = [bindparam(f"p{number}", type_=NullType()) for number in range(len(table.c))]
        if database.abilities.inlined_as_is:
            own = zip(change.columns, cells[INLINED_SYSTEM_COLUMNS:], strict=True)
            cells[INLINED_SYSTEM_COLUMNS:] = [stored_cell(cell, column.type) for column, cell in own]
        return insert(table).values(dict(zip(table.c, cells, strict=True)))

    parameters = parameters_of(change, database)
    size = max(1, _BATCH_VALUES // (INLINED_SYSTEM_COLUMNS + len(names)))
    for start in range(0, len(parameters), size):
        statements.run(("inlined", change.table_name, tuple(names)), build, parameters[start : start + size])


def parameters_of(change: InsertInlinedRows, database: Database) -> list[dict[str, object]]:
    """The values of the rows as the database stores them, system columns first: ``p0``, ``p1`` and so on."""
    encoders = [encoder(column.type, database.abilities) for column in change.columns]
    names = [f"p{number}" for number in range(INLINED_SYSTEM_COLUMNS + len(encoders))]
    found: list[dict[str, object]] = []
    for row_id, row in zip(change.row_ids, change.rows.rows(), strict=True):
        cells = (encode(value) for encode, value in zip(encoders, row, strict=True))
        found.append(dict(zip(names, (row_id, change.begin_snapshot, None, *cells), strict=True)))
    return found


def _stored_names(statements: Statements, database: Database, change: InsertInlinedRows) -> Sequence[str]:
    """Names of the columns in the physical table.

    DuckDB leaves plain names unquoted, so that PostgreSQL folds them to lower case: only their order can be trusted.
    """
    names = [column.name for column in change.columns]
    if not database.abilities.folds_names or all(name == name.lower() for name in names):
        return names
    columns = TableClause("columns", *(column(name) for name in ("column_name", "table_schema", "table_name", "ordinal_position")))
    columns.schema = "information_schema"
    query = (
        select(columns.c.column_name)
        .where(columns.c.table_schema == database.tables.schema, columns.c.table_name == change.table_name)
        .order_by(columns.c.ordinal_position)
    )
    stored = [row.column_name for row in statements.ask(None, lambda: query)()][INLINED_SYSTEM_COLUMNS:]
    if len(stored) != len(names):
        raise CatalogCorruptError(
            f"{change.table_name} has {len(stored)} columns where {len(names)} are expected", inlined_table=change.table_name
        )
    return stored
