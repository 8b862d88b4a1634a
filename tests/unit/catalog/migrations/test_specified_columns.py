"""Cells as catalog version 0.1 specified them are replaced by a constant number of statements."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, create_engine, event, insert, select

from ducklake_core.catalog.database.tables import metadata_tables
from ducklake_core.catalog.migrations.steps import ReplaceNanCount, replace_column
from ducklake_core.format.versions import V1_0


def test_counts_of_nan_are_replaced_at_once_for_all_files() -> None:
    engine = create_engine("sqlite://")
    tables = metadata_tables(None, V1_0)
    bounds = tables["file_column_stats"]
    specified = Table(bounds.name, MetaData(), *(Column(column.name, column.type) for column in bounds.c), Column("nan_count", BigInteger))
    rows = [
        {"data_file_id": file, "table_id": 1, "column_id": column, "contains_nan": None, "nan_count": (file + column) % 3}
        for file in range(900)
        for column in (1, 2)
    ]
    statements = _statements_of(engine)
    with engine.begin() as connection:
        specified.create(connection)
        connection.execute(insert(specified), rows)
        statements.clear()
        replace_column(connection, tables, {}, ReplaceNanCount())
        assert len(statements) < 10
        marked = set(map(tuple, connection.execute(select(bounds.c.data_file_id, bounds.c.column_id).where(bounds.c.contains_nan))))
    assert marked == {(row["data_file_id"], row["column_id"]) for row in rows if row["nan_count"]}
    engine.dispose()


def _statements_of(engine: Engine) -> list[str]:
    found: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: found.append(args[2]))
    return found
