"""Apply catalog changes in order inside an open write transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, assert_never
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    bindparam,
    delete,
    insert,
    inspect,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable, DropTable

from ducklake_core.catalog.changes import (
    CatalogChange,
    CopyRows,
    CreateInlinedTable,
    DeleteOption,
    DeleteRows,
    EndInlinedRows,
    InlinedChange,
    InlinePositions,
    InsertInlinedRows,
    InsertRows,
    RemoveInlinedDeletes,
    RemoveInlinedRows,
    UnregisterInlinedTable,
    UpdateEach,
    UpdateRows,
)
from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.failures import RetryPolicy, is_about_missing_table
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import CatalogTables, inlined_deletes_owner, inlined_owner
from ducklake_core.catalog.inlined.ddl import physical_table
from ducklake_core.catalog.inlined.write import insert_inlined_rows, insert_positions
from ducklake_core.catalog.reading.integrity_scan import in_the_making, known_tables, newest_counters, registered_names
from ducklake_core.catalog.reading.options import same_option
from ducklake_core.catalog.reading.running_writes import OWN_PREFIX, WRITE_PREFIX, read_running_writes
from ducklake_core.catalog.writing.head import chunks, conditions_of
from ducklake_core.errors import CatalogError

# Rows of one executemany. Bounds the memory of the parameters of large commits.
_BATCH = 5000
_FEW = 16
_KEY = "key_"
_VALUE = "value_"
_NAMES = ("column_name", "view_name", "table_name", "macro_name", "key")

ROWS_RETRIES = RetryPolicy(max_seconds=30.0, first_pause=0.02, growth=1.5, max_pause=0.5, jitter=0.5)
"""Checks for rows that other transactions have locked, before a commit is attempted again."""

_SWEEP_KEY = f"{OWN_PREFIX}sweep"


def apply_changes(statements: Statements, database: Database, changes: Iterable[CatalogChange]) -> None:
    """Apply every change in the given order. After an error of the database the caller must roll back.

    Args:
        statements: Statements of the transaction.
        database: The catalog.
        changes: The changes.
    """
    tables = database.tables
    for change in changes:
        match change:
            case InsertRows(table=name, rows=rows):
                _insert(statements, tables[name], tables.fitting(name, rows))
            case UpdateRows(table=name) if name not in tables:
                # A metadata table that this format version does not have, so there are no rows to end.
                pass
            case UpdateRows(table=name, where=where, values=values):
                _update(statements, tables[name], where, tables.fitting(name, (values,))[0])
            case CopyRows(table=name, where=where, values=values):
                for condition in _conditions(tables[name], where):
                    _copy(statements, tables[name], condition, values)
            case UpdateEach(table=name, key=key, rows=rows):
                _update_each(statements, tables[name], key, tables.fitting(name, rows))
            case DeleteRows(table=name, where=where):
                _delete(statements, tables[name], where)
            case DeleteOption(key=key, scope=scope, scope_id=scope_id):
                _run(statements, delete(tables["metadata"]).where(same_option(tables, key, scope, scope_id)))
            case _:
                _change_inlined(statements, database, change)


def longest_value(changes: Iterable[CatalogChange]) -> str:
    """Describe the longest string or blob that changes store, for an error about a database that does not accept it."""
    size, what = max(_sizes(changes), default=(0, "a value"))
    return f"{what} has {size:,} bytes"


def _sizes(changes: Iterable[CatalogChange]) -> Iterator[tuple[int, str]]:
    for change in changes:
        match change:
            case InsertRows(table=table, rows=rows) | UpdateEach(table=table, rows=rows):
                yield from _sizes_in_rows(table, rows)
            case UpdateRows(table=table, values=values) | CopyRows(table=table, values=values):
                yield from _sizes_in_rows(table, (values,))
            case InsertInlinedRows(columns=columns, rows=inlined):
                for number, cells in enumerate(inlined.rows()):
                    for column, cell in zip(columns, cells, strict=True):
                        yield _bytes_of(cell), f"the value of column {column.name!r} in row {number}"
            case _:
                pass


def _sizes_in_rows(table: str, rows: Iterable[Mapping[str, object]]) -> Iterator[tuple[int, str]]:
    """Return the sizes of values with descriptions such as "sql of view 'v'"."""
    for row in rows:
        name = next((f" {row[key]!r}" for key in _NAMES if isinstance(row.get(key), str)), "")
        for key, value in row.items():
            if key not in _NAMES:
                yield _bytes_of(value), f"{key} of {table.replace('_', ' ')}{name}"


def _bytes_of(value: object) -> int:
    match value:
        case str():
            return len(value.encode(errors="replace"))
        case bytes() | bytearray():
            return len(value)
        case list() | tuple():
            return sum(map(_bytes_of, value))
        case dict():
            return sum(map(_bytes_of, value.values()))
        case _:
            return 0


def _change_inlined(statements: Statements, database: Database, change: InlinedChange) -> None:
    tables = database.tables
    match change:
        case EndInlinedRows(table_name=name, row_ids=row_ids, end_snapshot=end):
            inlined = tables.inlined_data(name)
            for condition in _conditions(inlined, {"row_id": row_ids, "end_snapshot": None}):
                _run(statements, update(inlined).where(*condition).values(end_snapshot=end))
        case CreateInlinedTable(table_name=name, columns=columns):
            statements.define(CreateTable(physical_table(tables, database.abilities, name, columns)), DropTable(tables.inlined_data(name)))
        case InsertInlinedRows():
            insert_inlined_rows(statements, database, change)
        case InlinePositions():
            insert_positions(statements, database, change)
        case RemoveInlinedRows(table_name=name, until=until, is_all=is_all):
            inlined = tables.inlined_data(name)
            # Databases in files empty a table at once if DELETE has no condition. On a server other writers may add rows meanwhile.
            empties = is_all and database.abilities.is_file
            _run(statements, delete(inlined) if empties else delete(inlined).where(*_flushed(inlined, until)))
        case RemoveInlinedDeletes(table_id=table_id, file_ids=file_ids, until=until):
            deletes = tables.inlined_delete(table_id)
            for condition in _conditions(deletes, {"file_id": file_ids}):
                _run(statements, delete(deletes).where(*condition, deletes.c.begin_snapshot <= until))
        case UnregisterInlinedTable():
            _unregister_empty(statements, database, change)
        case _:
            assert_never(change)


def _flushed(inlined: Table, until: int) -> list[ColumnElement[bool]]:
    """Return the conditions for the rows that :class:`RemoveInlinedRows` deletes."""
    return [inlined.c.begin_snapshot <= until, or_(inlined.c.end_snapshot.is_(None), inlined.c.end_snapshot <= until)]


def _unregister_empty(statements: Statements, database: Database, change: UnregisterInlinedTable) -> None:
    inlined = database.tables.inlined_data(change.table_name)
    if statements.fetch(None, lambda: select(literal(1)).select_from(inlined).limit(1))():
        return
    _delete(statements, database.tables["inlined_data_tables"], {"table_id": change.table_id, "table_name": change.table_name})


def _run(statements: Statements, statement: Executable) -> None:
    statements.run(None, lambda: statement)


def _copy(statements: Statements, table: Table, condition: Sequence[ColumnElement[bool]], values: Mapping[str, object]) -> None:
    cells = [literal(values[column.name], column.type).label(column.name) if column.name in values else column for column in table.c]
    _run(statements, insert(table).from_select(list(table.c), select(*cells).where(*condition)))


def _insert(statements: Statements, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    if not rows:
        return
    names = tuple(rows[0])

    def build() -> Executable:
        # The prefix is needed because SQLAlchemy reserves the names of columns that are being set.
        return insert(table).values({name: bindparam(_VALUE + name, type_=table.c[name].type) for name in names})

    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        statements.run(("insert", table.name, names), build, [{_VALUE + name: row[name] for name in names} for row in batch])


def _delete(statements: Statements, table: Table, where: Mapping[str, Any]) -> None:
    for condition in _conditions(table, where):
        _run(statements, delete(table).where(*condition))


def _update(statements: Statements, table: Table, where: Mapping[str, Any], values: Mapping[str, object]) -> None:
    if any(isinstance(value, tuple) for value in where.values()):
        for condition in _conditions(table, where):
            _run(statements, update(table).where(*condition).values(dict(values)))
        return
    shape = tuple((name, value is None) for name, value in where.items())

    def build() -> Executable:
        conditions = [table.c[name].is_(None) if is_null else table.c[name] == bindparam(_KEY + name) for name, is_null in shape]
        return update(table).where(*conditions).values({name: bindparam(_VALUE + name, type_=table.c[name].type) for name in values})

    keys = {_KEY + name: value for name, value in where.items() if value is not None}
    statements.run(("update", table.name, shape, tuple(values)), build, keys | {_VALUE + name: value for name, value in values.items()})


def _update_each(statements: Statements, table: Table, key: tuple[str, ...], rows: Sequence[Mapping[str, object]]) -> None:
    if not rows:
        return
    if len(rows) > _FEW and rows[0].keys() == set(table.c.keys()):
        # One DELETE and one INSERT for whole rows: without an index on the key, each UPDATE would scan the table.
        *same, last = key
        for first, group in groupby(rows, key=lambda row: tuple(row[name] for name in same)):
            _delete(statements, table, {**dict(zip(same, first, strict=True)), last: tuple(row[last] for row in group)})
        _insert(statements, table, rows)
        return
    values = [name for name in rows[0] if name not in key]

    def build() -> Executable:
        return (
            update(table)
            .where(*(table.c[name] == bindparam(_KEY + name) for name in key))
            .values({name: bindparam(_VALUE + name, type_=table.c[name].type) for name in values})
        )

    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        parameters = [{_KEY + k: row[k] for k in key} | {_VALUE + v: row[v] for v in values} for row in batch]
        statements.run(("update each", table.name, key, tuple(values)), build, parameters)


def _conditions(table: Table, where: Mapping[str, Any]) -> Iterator[list[ColumnElement[bool]]]:
    """Return the conditions of one statement after another: a long list of values is split over several."""
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
    for condition in conditions_of(table.c[name], values):
        yield [*single, *rest, condition]


def wait_for_rows(database: Database, changes: Iterable[CatalogChange], sleep: Callable[[float], object] = time.sleep) -> None:
    """Wait until no other transaction has locked rows that these changes end or replace, at most 30 seconds.

    The holder of the writer lease must not wait for locks, because all writers wait for the lease: another program may hold a lock for
    minutes, as DuckDB does from a flush to the end of its transaction. So this function polls without the lease, in transactions that
    fail at once if a row is locked.

    Args:
        database: The catalog.
        changes: Changes of the failed attempt.
        sleep: Waits for a number of seconds; default ``time.sleep``.

    Raises:
        CatalogUnavailableError: The database cannot be reached.
    """
    queries = list(_rows_to_lock(database, changes))
    attempts = ROWS_RETRIES.attempts(sleep=sleep)
    while queries and not _all_free(database, queries) and attempts.again():
        pass


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
    """Return queries that lock the rows, or fail at once if another transaction has locked them."""
    tables = database.tables
    for change in changes:
        match change:
            case UpdateRows(table=name, where=where) | DeleteRows(table=name, where=where):
                yield from (_locking(tables[name], condition) for condition in _conditions(tables[name], where))
            case EndInlinedRows(table_name=name, row_ids=row_ids):
                inlined = tables.inlined_data(name)
                yield from (_locking(inlined, condition) for condition in _conditions(inlined, {"row_id": row_ids, "end_snapshot": None}))
            case RemoveInlinedRows(table_name=name, until=until):
                inlined = tables.inlined_data(name)
                yield _locking(inlined, _flushed(inlined, until))
            case UpdateEach(table=name, key=key, rows=rows):
                columns = tuple_(*(tables[name].c[column] for column in key))
                for chunk in chunks(tuple(row[column] for column in key) for row in rows):
                    yield _locking(tables[name], [columns.in_(chunk)])
            case _:
                pass


def _locking(table: Table, conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    return select(literal(1)).select_from(table).where(*conditions).with_for_update(nowait=True)


def store_running_writes(connection: Connection, tables: CatalogTables, write_ids: Sequence[str], now: datetime) -> None:
    """Insert or renew the rows of running writes, one for each write id, with the current time."""
    forget_running_writes(connection, tables, write_ids)
    heard = now.astimezone(UTC).isoformat()
    rows = [{"key": WRITE_PREFIX + write_id, "value": heard, "scope": None, "scope_id": None} for write_id in write_ids]
    connection.execute(insert(tables["metadata"]), rows)


def forget_running_writes(connection: Connection, tables: CatalogTables, write_ids: Iterable[str]) -> None:
    """Delete the rows of writes that have ended."""
    metadata = tables["metadata"]
    for keys in chunks(WRITE_PREFIX + write_id for write_id in write_ids):
        connection.execute(delete(metadata).where(metadata.c.key.in_(keys)))


def forget_lost_writes(connection: Connection, tables: CatalogTables, now: datetime) -> None:
    """Delete the rows of writes that were killed; a row that was renewed meanwhile stays."""
    lost = [write.write_id for write in read_running_writes(connection, tables) if write.is_lost(now)]
    forget_running_writes(connection, tables, lost)


def drop_leftovers(connection: Connection, database: Database) -> None:
    """Drop unregistered tables of inlined rows after the COMMIT of the transaction, where DDL cannot be part of it."""
    tables = database.tables
    # Counters are read first: a commit that ends later and registers a table has higher counters, so its table is recognized and kept.
    counters = newest_counters(connection, tables)
    registered = registered_names(connection, tables)
    known = known_tables(connection, tables)
    left = []
    for name in inspect(connection).get_table_names(schema=tables.schema):
        owner = inlined_deletes_owner(name)
        if (inlined_owner(name) is not None and name not in registered) or (owner is not None and owner not in known):
            left.append(name)
    for name in sorted({*left} - in_the_making(left, counters)):
        database.definitions.drop(connection, DropTable(tables.inlined_data(name), if_exists=True))


def sweep_mark(tables: CatalogTables) -> Select[Any]:
    """Return the query for the mark of sweeps; there is no row before the first sweep."""
    metadata = tables["metadata"]
    return select(metadata.c.value).where(metadata.c.key == _SWEEP_KEY)


def change_sweep_mark(connection: Connection, tables: CatalogTables) -> None:
    """Replace the mark of sweeps, so that commits that add files of other writers notice the sweep."""
    metadata = tables["metadata"]
    connection.execute(delete(metadata).where(metadata.c.key == _SWEEP_KEY))
    connection.execute(insert(metadata), {"key": _SWEEP_KEY, "value": uuid4().hex, "scope": None, "scope_id": None})
