"""Wait until rows that a commit changes are free, without holding up anybody meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, literal, select, tuple_
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.changes import CatalogChange, DeleteRows, EndInlinedRows, RemoveInlinedRows, UpdateEach, UpdateRows
from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.failures import is_about_missing_table
from ducklake_core.catalog.writing.head import chunks
from ducklake_core.errors import CatalogError

ROWS_SECONDS = 30.0
"""How long rows that others have locked are waited for between two attempts."""
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


def wait_for_rows(database: Database, changes: Iterable[CatalogChange], sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until no other transaction has locked rows that these changes end or replace, or until ``ROWS_SECONDS`` are over.

    Whoever has a turn must not wait for others, because all writers wait for the turn: another program may hold a lock for minutes,
    as DuckDB does from a flush to the end of its transaction. So the rows are looked at again and again, in transactions that wait for
    nothing and end at once.

    Raises:
        CatalogUnavailableError: The database cannot be reached.
    """
    queries = list(_rows_to_lock(database, changes))
    until, pause = time.monotonic() + ROWS_SECONDS, _PAUSE
    while queries and time.monotonic() < until and not _all_free(database, queries):
        sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _all_free(database: Database, queries: Sequence[Select[Any]]) -> bool:
    try:
        with database.write() as connection:
            for query in queries:
                connection.execute(query)
    except CatalogError as error:
        if isinstance(error.__cause__, DBAPIError) and is_about_missing_table(error.__cause__):
            # Another writer flushed inlined rows and dropped their table: the next attempt plans without them.
            return True
        if classify(error) != "retry":
            raise
        return False
    return True


def _rows_to_lock(database: Database, changes: Iterable[CatalogChange]) -> Iterator[Select[Any]]:
    """Queries that lock the rows, or fail at once where they are locked."""
    tables = database.tables
    for change in changes:
        match change:
            case UpdateRows(table=name, where=where) | DeleteRows(table=name, where=where):
                yield from _matching(tables[name], where)
            case EndInlinedRows(table_name=name, row_ids=row_ids):
                yield from _matching(tables.inlined_data(name), {"row_id": row_ids, "end_snapshot": None})
            case RemoveInlinedRows(table_name=name, until=until):
                inlined = tables.inlined_data(name)
                yield _locking(inlined, [inlined.c.begin_snapshot <= until])
            case UpdateEach(table=name, key=key, rows=rows):
                columns = tuple_(*(tables[name].c[column] for column in key))
                for chunk in chunks(tuple(row[column] for column in key) for row in rows):
                    yield _locking(tables[name], [columns.in_(chunk)])
            case _:
                pass


def _matching(table: Table, where: Mapping[str, Any]) -> Iterator[Select[Any]]:
    single = [table.c[name].is_(None) if value is None else table.c[name] == value for name, value in where.items() if not _is_list(value)]
    lists = [(table.c[name], value) for name, value in where.items() if _is_list(value)]
    if not lists:
        yield _locking(table, single)
        return
    (column, values), *others = lists
    rest = [other.in_(value) for other, value in others]
    for chunk in chunks(values):
        yield _locking(table, [*single, *rest, column.in_(chunk)])


def _is_list(value: object) -> bool:
    return isinstance(value, tuple)


def _locking(table: Table, conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    return select(literal(1)).select_from(table).where(*conditions).with_for_update(nowait=True)
