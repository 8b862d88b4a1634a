"""Read inlined rows (specification: Data Inlining).

A physical table stores rows with the columns of one schema version; a read may want the columns of another::

    registered tables   inlined_data_4_2 (a, b)    inlined_data_4_5 (a, c)       one for each change of columns
    StoredForm          columns common with the wanted ones, matched by id
    result              a, c: values of a, default of c                          wanted columns, then rowid and snapshot_id

Live rows have no end snapshot, so the condition on begin and end snapshot selects the rows of any snapshot.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from sqlalchemy import Column, ColumnElement, CursorResult, Select, String, Table, and_, cast, func, literal_column, select, true
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.failures import is_about_missing_table
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS
from ducklake_core.catalog.inlined.cells import (
    cells_array,
    declared_types,
    found_array,
    integer_columns,
    is_plain,
    joined_cells,
    plain_cell,
    row_index,
)
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import live_or_unknown
from ducklake_core.errors import CatalogCorruptError, CatalogUnavailableError, CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.state import InlinedTable, TableState
from ducklake_core.format.types.data_types import VARIANT, Field
from ducklake_core.format.types.schema import ArrowArray, ColumnRow, Schema, build_schema, to_arrow_schema, type_text
from ducklake_core.format.values.arrow_cast import constant_array

ROW_ID = "rowid"
SNAPSHOT_ID = "snapshot_id"
TABLE_NAME = "inlined_table"
END_SNAPSHOT = "end_snapshot"

BATCH_ROWS = 16_384
"""Rows of a batch. The Python objects of larger batches do not fit into the cache of the processor."""


JOINED_ROWS, JOINED_FROM = 65_536, 10_000
"""Rows of a batch whose cells SQLite joins, and rows of a table from which joining is faster: compiling its statement takes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenInlined:
    """A selection of inlined rows.

    Attributes:
        condition: Returns the condition on a physical table of inlined rows.
        snapshot: Column that becomes ``snapshot_id`` of the result.
    """

    condition: Callable[[Table], ColumnElement[bool]]
    snapshot: Literal["begin_snapshot", "end_snapshot"] = "begin_snapshot"


EVERY_VERSION = ChosenInlined(condition=lambda _source: true())
"""All rows, including ended ones."""


def inlined_rows(
    reader: CatalogReader, table: TableState, read_schema: Schema, *, with_table: bool = False, chosen: ChosenInlined | None = None
) -> pa.Table | None:
    """Return rows from all registered tables of inlined rows, None when there are none.

    Args:
        reader: Reader of the catalog.
        table: State of the table.
        read_schema: Columns of the result, by their ids; rows that lack a column get its ``initial_default``.
        with_table: Whether to append a column ``inlined_table`` with the physical table of the row; default False.
        chosen: The rows to read; None, the default, for those visible at ``table.snapshot_id``.

    Returns:
        The columns of ``read_schema`` in their logical Arrow types, then ``rowid`` and ``snapshot_id`` (the snapshot that
        added the row, unless ``chosen`` is set), both int64.

    Raises:
        UnsupportedFeatureError: A value cannot be read.
        CatalogUnavailableError: Another writer flushed a table meanwhile; read again in a new transaction.
    """
    sources = _still_there(reader, table)
    if not sources:
        return None
    versions = TableVersions.read(reader, table.id)
    any_cell = abilities_of(reader.connection.dialect).has_untyped_cells
    chosen = chosen or ChosenInlined(condition=lambda source: live_or_unknown(source, table.snapshot_id, any_cell=any_cell))
    parts = [_read(reader, table, source, versions.schema_at(source.schema_version), read_schema, chosen) for source in sources]
    found = [(source, part) for source, part in zip(sources, parts, strict=True) if part is not None]
    if not found:
        return None
    if with_table:
        found = [(source, part.append_column(TABLE_NAME, pa.repeat(source.name, part.num_rows))) for source, part in found]
    return pa.concat_tables([part for _, part in found])


def _still_there(reader: CatalogReader, table: TableState) -> list[InlinedTable]:
    """Return the tables that are still registered: a flush may have unregistered tables of former columns since the state was read."""
    if not table.inlined_tables:
        return []
    registered = reader.catalog["inlined_data_tables"]
    names = reader.connection.execute(select(registered.c.table_name).where(registered.c.table_id == table.id)).scalars().all()
    return [source for source in table.inlined_tables if source.name in names]


class TableVersions:
    """The columns of a table at each of its schema versions.

    Every change of columns inserts a row into ducklake_schema_versions, which survives the expiry of its snapshot. The schema version
    belongs to the whole lake, so versions without a row for this table are changes of other objects.
    """

    def __init__(self, table_id: int, versions: Sequence[tuple[int, int]], history: Sequence[tuple[ColumnRow, int | None]]) -> None:
        """Store the versions of one table.

        Args:
            table_id: The table.
            versions: Pairs of schema version and begin snapshot.
            history: Rows of columns with their end snapshots, see ``CatalogReader.column_history``.
        """
        self._snapshots = versions
        self._history = history
        self._table_id = table_id

    @classmethod
    def read(cls, reader: CatalogReader, table_id: int) -> TableVersions:
        """Read the versions of one table, in two statements."""
        versions = reader.catalog["schema_versions"]
        query = select(versions.c.schema_version, versions.c.begin_snapshot).where(versions.c.table_id == table_id)
        found = [(row.schema_version, row.begin_snapshot) for row in reader.connection.execute(query)]
        if any(None in one for one in found):
            raise CatalogCorruptError(
                f"A schema version of table {table_id} has no number or no snapshot. Run lake.check()", table_id=table_id
            )
        return cls(table_id, found, reader.column_history(table_id))

    def schema_at(self, schema_version: int) -> Schema:
        """Return the columns of a table of inlined rows with a schema version.

        Raises:
            CatalogCorruptError: The table had no columns then.
        """
        schema = self.schema_of(self.snapshot_of(schema_version))
        if not schema.columns:
            raise CatalogCorruptError(
                f"Table {self._table_id} had no columns at schema version {schema_version}. Run lake.check()", table_id=self._table_id
            )
        return schema

    def snapshot_of(self, schema_version: int) -> int:
        """Return the snapshot since which the table has had the columns of a schema version."""
        begun = [snapshot for version, snapshot in self._snapshots if version <= schema_version]
        return max(begun) if begun else min((row.begin_snapshot for row, _ in self._history), default=0)

    def schema_of(self, snapshot_id: int) -> Schema:
        """Return the columns of the table at a snapshot; the same object for snapshots with the same columns."""
        live = (row for row, end in self._history if row.begin_snapshot <= snapshot_id and (end is None or end > snapshot_id))
        return _schema_of(tuple(live))


@lru_cache(maxsize=4096)
def _schema_of(rows: tuple[ColumnRow, ...]) -> Schema:
    """Return the columns of rows, built once: a sensor that watches 1,000 tables needs them in every tick."""
    return build_schema(rows)


def _read(
    reader: CatalogReader, table: TableState, source: InlinedTable, stored: Schema, wanted: Schema, chosen: ChosenInlined
) -> pa.Table | None:
    """Return the rows of one physical table, None when there are none."""
    form = StoredForm.of(reader, table, source, stored, wanted)
    joined = JoinedForm.of(reader, form, _highest_position(reader, source)) if chosen.snapshot == "begin_snapshot" else None
    if joined is not None:
        parts = list(joined.batches(reader, chosen.condition(form.physical)))
        return _sorted_by_id(pa.concat_tables(parts)) if parts else None
    rows = form.fetch(reader, chosen).all()
    return form.table_of(rows) if rows else None


def _highest_position(reader: CatalogReader, source: InlinedTable) -> int:
    """Return SQLite's highest row number, an estimate of the row count that needs no scan; 0 for other databases."""
    if not abilities_of(reader.connection.dialect).has_untyped_cells:
        return 0
    name = reader.connection.dialect.identifier_preparer.quote(source.name)
    try:
        highest = reader.connection.exec_driver_sql(f"SELECT max(_rowid_) FROM {name}").scalar()  # noqa: S608
    except DBAPIError:
        return 0
    return highest if isinstance(highest, int) else 0


def _sorted_by_id(rows: pa.Table) -> pa.Table:
    """Return the rows sorted by row id and snapshot. They nearly always are already."""
    row_ids = rows[ROW_ID].to_numpy()
    return rows if bool((np.diff(row_ids) > 0).all()) else rows.sort_by([(ROW_ID, "ascending"), (SNAPSHOT_ID, "ascending")])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """The columns of a physical table and the columns of the result.

    Attributes:
        physical: The table, with the columns that it shares with the result.
        columns: The shared columns, as they are stored.
        wanted: Columns of the result.
        with_end: Whether to add the snapshot that ended a row.
    """

    table: TableState
    source: InlinedTable
    physical: Table
    columns: tuple[Field, ...]
    wanted: Schema
    abilities: Abilities
    with_end: bool

    @classmethod
    def of(
        cls, reader: CatalogReader, table: TableState, source: InlinedTable, stored: Schema, wanted: Schema, *, with_end: bool = False
    ) -> StoredForm:
        """Return the form of one table of inlined rows.

        Args:
            reader: Reader of the catalog.
            table: State of the table.
            source: The table of inlined rows.
            stored: Columns that it stores.
            wanted: Columns of the result.
            with_end: Whether to add the snapshot that ended a row; default False.
        """
        by_id = {column.id: column for column in stored}
        columns = tuple(by_id[column.id] for column in wanted if column.id in by_id)
        names = _stored_names(reader, source, stored)
        return cls(
            table=table,
            source=source,
            physical=reader.catalog.inlined_data(source.name, (names[column.id] for column in columns)),
            columns=columns,
            wanted=wanted,
            abilities=abilities_of(reader.connection.dialect),
            with_end=with_end,
        )

    def fetch(self, reader: CatalogReader, chosen: ChosenInlined, *, ordered: bool = True, **options: Any) -> CursorResult[Any]:
        """Execute the query for the rows: system columns first, then the user's columns.

        Args:
            reader: Reader of the catalog.
            chosen: The rows to read.
            ordered: Whether to sort by row id and snapshot; default True.
            options: Execution options of SQLAlchemy.
        """
        source = self.physical
        ends = [source.c.end_snapshot.label("ended_at")] if self.with_end else []
        cells = [_cell(stored, column, self.abilities) for stored, column in zip(self.own, self.columns, strict=True)]
        columns: list[ColumnElement[Any]] = [source.c.row_id, source.c[chosen.snapshot], *ends, *cells]
        query = select(*columns).where(chosen.condition(source))
        if ordered:
            query = query.order_by(source.c.row_id, source.c.begin_snapshot)
        return _execute(reader, query, source.name, **options)

    @property
    def own(self) -> list[Column[Any]]:
        """Return the user's columns, by position: a name may differ from that of a system column only by case."""
        return list(self.physical.c)[INLINED_SYSTEM_COLUMNS:]

    def table_of(self, rows: Sequence[Any]) -> pa.Table:
        """Convert fetched rows to an Arrow table."""
        return self.table_of_columns(list(zip(*rows, strict=True)), len(rows))

    def table_of_columns(self, columns: Sequence[Sequence[Any] | ArrowArray], num_rows: int) -> pa.Table:
        """Convert the stored cells of each column to an Arrow table with ``num_rows`` rows."""
        row_ids, snapshots, *cells = columns
        system = {ROW_ID: _numbers(row_ids), SNAPSHOT_ID: _numbers(snapshots)}
        if self.with_end:
            ends, *cells = cells
            system[END_SNAPSHOT] = _numbers(ends, nullable=True)
        if any(numbers is None for numbers in system.values()):
            raise CatalogCorruptError(
                f"{self.source.name}, inlined rows of {self.table.qualified_name}, has a row_id or begin_snapshot that is no number",
                table=self.table.qualified_name,
                inlined_table=self.source.name,
            )
        stored = {column.id: (column, values) for column, values in zip(self.columns, cells, strict=True)}
        arrays = [
            self._array(column, *stored[column.id]) if column.id in stored else constant_array(column.initial_default, column, num_rows)
            for column in self.wanted
        ]
        schema = pa.schema([*to_arrow_schema(self.wanted), *(pa.field(name, pa.int64()) for name in system)])
        return pa.Table.from_arrays([*arrays, *system.values()], schema=schema)

    def _array(self, column: Field, old: Field, cells: Sequence[Any] | ArrowArray) -> ArrowArray:
        try:
            return cells_array(cells, old, column, self.abilities)
        except (SchemaError, CorruptFileError, pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
            reason = error.message if isinstance(error, SchemaError | CorruptFileError) else error
            raise UnsupportedFeatureError(
                f"column {column.name!r} of {self.table.qualified_name} has an inlined value in {self.source.name} that cannot be read "
                f"({reason}). Flush the inlined rows with DuckDB, or delete them",
                table=self.table.qualified_name,
                column=column.name,
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedForm:
    """A read of a SQLite table whose cells the database joins, see :func:`~ducklake_core.catalog.inlined.cells.joined_cells`.

    Attributes:
        columns: The columns, in the order of the form.
        integers: Whether each of them contains integers.
        place: SQLite's row number.
    """

    form: StoredForm
    columns: tuple[Column[Any], ...]
    integers: tuple[bool, ...]
    place: ColumnElement[int]

    @classmethod
    def of(cls, reader: CatalogReader, form: StoredForm, row_count: int) -> JoinedForm | None:
        """Return the joined read; None if cells must be fetched: few rows, another database, or a column that may have other cells."""
        if not form.abilities.has_untyped_cells or row_count < JOINED_FROM:
            return None
        source = form.physical
        ends = [source.c.end_snapshot] if form.with_end else []
        columns = (source.c.row_id, source.c.begin_snapshot, *ends, *form.own)
        declared = declared_types(reader.connection, source.name)
        place, integers = row_index(declared), integer_columns(declared, columns)
        return None if place is None or integers is None else cls(form=form, columns=columns, integers=integers, place=place)

    def batches(self, reader: CatalogReader, condition: ColumnElement[bool]) -> Generator[pa.Table, None, None]:
        """Yield the rows that match a condition in batches, in the order of their row numbers."""
        source, after = self.form.physical, true()
        while True:
            some = select(self.place.label("place")).select_from(source).where(after).order_by(self.place).limit(JOINED_ROWS).subquery()
            last = reader.connection.execute(select(func.max(some.c.place))).scalar()
            if last is None:
                return
            part = self._part(reader, and_(after, self.place <= last, condition))
            if part is not None:
                yield part
            after = self.place > last

    def _part(self, reader: CatalogReader, condition: ColumnElement[bool]) -> pa.Table | None:
        joined = joined_cells(reader.connection, self.columns, self.integers, condition)
        if joined is not None:
            return self.form.table_of_columns(joined, len(joined[0])) if joined else None
        rows = self.form.fetch(reader, ChosenInlined(condition=lambda _source: condition), ordered=False).all()
        return self.form.table_of(rows) if rows else None


def _numbers(cells: Sequence[Any] | ArrowArray, *, nullable: bool = False) -> ArrowArray | None:
    """Return cells as an int64 array; None if a cell is not an integer."""
    try:
        found = found_array(cells, integers=not nullable)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return None
    if pa.types.is_null(found.type):
        found = found.cast(pa.int64())
    return found if pa.types.is_int64(found.type) and (nullable or not found.null_count) else None


def _stored_names(reader: CatalogReader, source: InlinedTable, stored: Schema) -> dict[int, str]:
    """Return the names of the columns in the physical table, by column id.

    DuckDB does not quote plain names, so PostgreSQL folds them to lower case: only the order of columns is reliable.
    """
    names = {column.id: column.name for column in stored}
    if not abilities_of(reader.connection.dialect).folds_names or all(name == name.lower() for name in names.values()):
        return names
    everything: Select[Any] = select(literal_column("*")).select_from(reader.catalog.inlined_data(source.name)).limit(0)
    found = list(_execute(reader, everything, source.name).keys())[INLINED_SYSTEM_COLUMNS:]
    if len(found) != len(names):
        raise CatalogCorruptError(
            f"The catalog table {source.name} has {len(found)} columns, but {len(names)} are expected. Run lake.check()",
            inlined_table=source.name,
        )
    return dict(zip(names, found, strict=True))


def _execute(reader: CatalogReader, query: Select[Any], table_name: str, **options: Any) -> CursorResult[Any]:
    try:
        return reader.connection.execute(query, execution_options=options)
    except DBAPIError as error:
        if not is_about_missing_table(error):
            raise
        message = f"Another writer has flushed the inlined rows in {table_name} during this read. Read again"
        raise CatalogUnavailableError(message, failure="retry", inlined_table=table_name) from error


def _cell(stored: Column[Any], column: Field, abilities: Abilities) -> ColumnElement[Any]:
    kind = type_text(column.type).partition("(")[0]
    if abilities.inlined_as_is and not is_plain(column.type):
        plain = plain_cell(stored, column.type)
        return plain if column.type == VARIANT else cast(plain, String)
    return cast(stored, String) if kind in abilities.inlined_cast_to_text else stored


def stored_batches(
    reader: CatalogReader,
    table: TableState,
    source: InlinedTable,
    stored: Schema,
    *,
    row_count: int,
    ordered: bool = True,
    any_ended: bool = True,
) -> Generator[pa.Table, None, None]:
    """Yield all rows of one physical table as they are stored, including ended ones, in batches.

    Args:
        reader: Reader of the catalog.
        table: State of the table.
        source: The physical table.
        stored: Its columns.
        row_count: Approximate number of rows.
        ordered: Whether to sort by row id and snapshot; default True.
        any_ended: Whether any row may have ended; False saves reading the end snapshots. Default True.

    Yields:
        Its columns in their logical Arrow types, then ``rowid``, ``snapshot_id`` and ``end_snapshot`` (NULL for live rows), all int64.

    Raises:
        UnsupportedFeatureError: A value cannot be read.
        CatalogCorruptError: A row id or a snapshot is not a number.
        CatalogUnavailableError: Another writer flushed the table meanwhile; read again in a new transaction.
    """
    form = StoredForm.of(reader, table, source, stored, stored, with_end=any_ended)
    joined = None if ordered else JoinedForm.of(reader, form, row_count)
    for part in _fetched_batches(reader, form, ordered=ordered) if joined is None else joined.batches(reader, true()):
        yield part if any_ended else part.append_column(END_SNAPSHOT, pa.nulls(part.num_rows, pa.int64()))


def _fetched_batches(reader: CatalogReader, form: StoredForm, *, ordered: bool) -> Generator[pa.Table, None, None]:
    # Other drivers fetch rows on demand anyway, and the buffer of SQLAlchemy would cost more than the rows.
    streamed = {"yield_per": BATCH_ROWS} if reader.connection.dialect.supports_server_side_cursors else {}
    with form.fetch(reader, EVERY_VERSION, ordered=ordered, **streamed) as found:
        fetch = _plain_rows(found.cursor) if form.abilities.has_untyped_cells else found.fetchmany
        while True:
            rows = fetch(BATCH_ROWS)
            part = form.table_of(rows) if rows else None
            if part is None:
                return
            yield part


def _plain_rows(cursor: Any) -> Callable[[int], Sequence[Any]]:
    """Return a function that fetches rows of the driver directly, because creating rows of SQLAlchemy takes a fifth of the read."""

    def fetch(size: int) -> Sequence[Any]:
        try:
            found: Sequence[Any] = cursor.fetchmany(size)
        except sqlite3.Error as error:
            raise DBAPIError(None, None, error) from error
        return found

    return fetch
