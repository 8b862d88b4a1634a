"""Rows of data files that are deleted through the catalog: a table of positions for each table of the lake, made on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import func, insert, select
from sqlalchemy.schema import CreateTable

from ducklake_core.catalog.changes import InlinePositions
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import inlined_delete_name

_BATCH_ROWS = 5_000


def insert_positions(statements: Statements, database: Database, change: InlinePositions) -> None:
    """Insert the positions inside an open write transaction."""
    target = database.tables.inlined_delete(change.table_id)
    # Nothing registers it, and any writer may have made it since the base: the database itself has to tell.
    statements.define(CreateTable(target, if_not_exists=True))
    rows = [(file_id, position) for file_id, positions in change.files for position in positions]
    for start in range(0, len(rows), _BATCH_ROWS):
        batch = [
            {"file_id": file_id, "row_id": position, "begin_snapshot": change.begin_snapshot}
            for file_id, position in rows[start : start + _BATCH_ROWS]
        ]
        statements.run(("positions", change.table_id), lambda: insert(target), batch)


def newest_deletes(statements: Statements, database: Database, table_id: int, file_ids: Sequence[int], after: int) -> Mapping[int, int]:
    """By data file, the newest snapshot after a given one that has deleted rows of it through the catalog, if there is one."""
    if not statements.has_table(inlined_delete_name(table_id), database.tables.schema):
        return {}
    deletes = database.tables.inlined_delete(table_id)
    query = (
        select(deletes.c.file_id, func.max(deletes.c.begin_snapshot).label("newest"))
        .where(deletes.c.begin_snapshot > after, deletes.c.file_id.in_(file_ids))
        .group_by(deletes.c.file_id)
    )
    return {row.file_id: row.newest for row in statements.ask(None, lambda: query)()}
