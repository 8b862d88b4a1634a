"""Carry out catalog changes, in order, inside an open write transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

from sqlalchemy import ColumnElement, Connection, Table, bindparam, delete, insert, update
from sqlalchemy.schema import CreateTable

from ducklake_core.catalog.changes import (
    CatalogChange,
    CreateInlinedTable,
    DeleteRows,
    EndInlinedRows,
    InsertRows,
    UpdateEach,
    UpdateRows,
)
from ducklake_core.catalog.database import Database
from ducklake_core.catalog.head import chunks
from ducklake_core.catalog.inlined_ddl import physical_table

_BATCH = 5000
_KEY = "key_"


def apply_changes(connection: Connection, database: Database, changes: Iterable[CatalogChange]) -> None:
    """Execute every change in the order given; an error of the database leaves the transaction to be rolled back."""
    tables = database.tables
    for change in changes:
        match change:
            case InsertRows(table=name, rows=rows):
                _insert(connection, tables[name], rows)
            case UpdateRows(table=name, where=where, values=values):
                for condition in _conditions(tables[name], where):
                    connection.execute(update(tables[name]).where(*condition).values(dict(values)))
            case UpdateEach(table=name, key=key, rows=rows):
                _update_each(connection, tables[name], key, rows)
            case DeleteRows(table=name, where=where):
                for condition in _conditions(tables[name], where):
                    connection.execute(delete(tables[name]).where(*condition))
            case EndInlinedRows(table_name=name, row_ids=row_ids, end_snapshot=end):
                inlined = tables.inlined_data(name)
                for condition in _conditions(inlined, {"row_id": row_ids, "end_snapshot": None}):
                    connection.execute(update(inlined).where(*condition).values(end_snapshot=end))
            case CreateInlinedTable(table_name=name, columns=columns):
                connection.execute(CreateTable(physical_table(tables.schema, database.abilities, name, columns)))
            case _:
                assert_never(change)


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    if len(rows) == 1:
        # A list of one would go through the driver's path for many, which costs a round trip more.
        connection.execute(insert(table), dict(rows[0]))
        return
    for start in range(0, len(rows), _BATCH):
        connection.execute(insert(table), [dict(row) for row in rows[start : start + _BATCH]])


def _update_each(connection: Connection, table: Table, key: tuple[str, ...], rows: Sequence[Mapping[str, object]]) -> None:
    if not rows:
        return
    values = [name for name in rows[0] if name not in key]
    # A bound parameter may not carry the name of a column that is being set.
    statement = (
        update(table)
        .where(*(table.c[name] == bindparam(_KEY + name) for name in key))
        .values({name: bindparam("value_" + name, type_=table.c[name].type) for name in values})
    )
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        connection.execute(statement, [{_KEY + k: row[k] for k in key} | {"value_" + v: row[v] for v in values} for row in batch])


def _conditions(table: Table, where: Mapping[str, Any]) -> Iterator[list[ColumnElement[bool]]]:
    """The conditions of one statement after another: a long list of values is spread over several."""
    single = [
        table.c[name].is_(None) if value is None else table.c[name] == value
        for name, value in where.items()
        if not isinstance(value, tuple)
    ]
    lists = [(name, value) for name, value in where.items() if isinstance(value, tuple)]
    if not lists:
        yield single
        return
    (name, values), *others = lists
    rest = [table.c[other].in_(value) for other, value in others]
    for chunk in chunks(values):
        yield [*single, *rest, table.c[name].in_(chunk)]
