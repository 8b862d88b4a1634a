"""All rows of a table of inlined rows as they were stored, some at a time: fetched, or joined where the database is SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Column, ColumnElement, and_, func, select, true
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.inlined.joined_cells import integer_columns, joined_cells, row_place
from ducklake_core.catalog.inlined.rows import END_SNAPSHOT, EVERY_VERSION, ChosenInlined, StoredForm
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.collector import paused_collector
from ducklake_core.format.state import InlinedTable, TableState
from ducklake_core.format.types.schema import Schema

BATCH_ROWS = 16_384
"""Rows of a batch where rows are read some at a time; the Python objects of more than these make no use of the processor's cache."""

JOINED_ROWS, JOINED_FROM = 65_536, 10_000
"""Rows of a batch whose cells SQLite joins, and rows of a table from which that is faster, as making the statement takes milliseconds."""


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
    """All rows of one physical table as they were stored, ended ones too, some at a time.

    Args:
        stored: The columns that it has.
        row_count: About how many rows there are.
        ordered: Whether the rows come by row id and snapshot, and not as the database finds them.
        any_ended: Whether any row may have ended; where it is known that none has, nobody has to ask each.

    Yields:
        Its columns in their logical Arrow types, then ``rowid``, ``snapshot_id`` and ``end_snapshot`` (NULL for live rows), all int64.

    Raises:
        UnsupportedFeatureError: A value that cannot be read.
        CatalogCorruptError: A row id or a snapshot that is no number.
        CatalogUnavailableError: Another writer flushed the table meanwhile; read again in a new transaction.
    """
    form = StoredForm.of(reader, table, source, stored, stored, with_end=any_ended)
    may_join = form.abilities.has_untyped_cells and not ordered and row_count >= JOINED_FROM
    joined = _JoinedForm.of(reader, form) if may_join else None
    for part in _fetched_batches(reader, form, ordered=ordered) if joined is None else joined.batches(reader):
        yield part if any_ended else part.append_column(END_SNAPSHOT, pa.nulls(part.num_rows, pa.int64()))


def _fetched_batches(reader: CatalogReader, form: StoredForm, *, ordered: bool) -> Generator[pa.Table, None, None]:
    # Elsewhere the driver itself asks for rows as they are wanted, and a buffer in between costs more than the rows.
    streamed = {"yield_per": BATCH_ROWS} if reader.connection.dialect.supports_server_side_cursors else {}
    with form.fetch(reader, EVERY_VERSION, ordered=ordered, **streamed) as found:
        fetch = _plain_rows(found.cursor) if form.abilities.has_untyped_cells else found.fetchmany
        while True:
            with paused_collector():
                rows = fetch(BATCH_ROWS)
                part = form.table_of(rows) if rows else None
            if part is None:
                return
            yield part


def _plain_rows(cursor: Any) -> Callable[[int], Sequence[Any]]:
    """The driver's rows where SQLAlchemy has nothing to do for them but to make rows of its own, which takes a fifth of the reading."""

    def fetch(size: int) -> Sequence[Any]:
        try:
            found: Sequence[Any] = cursor.fetchmany(size)
        except sqlite3.Error as error:
            raise DBAPIError(None, None, error) from error
        return found

    return fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class _JoinedForm:
    """How rows of an SQLite table come whose cells are joined in the database.

    Attributes:
        columns: The columns, in the order in which the form wants them.
        integers: Which of them have integers.
        place: SQLite's number of a row.
    """

    form: StoredForm
    columns: tuple[Column[Any], ...]
    integers: tuple[bool, ...]
    place: ColumnElement[int]

    @classmethod
    def of(cls, reader: CatalogReader, form: StoredForm) -> _JoinedForm | None:
        """None where cells have to be fetched one by one."""
        source = form.physical
        place, integers = row_place(source), integer_columns(reader.connection, source)
        if place is None or integers is None:
            return None
        ends = [source.c.end_snapshot] if form.with_end else []
        columns = (source.c.row_id, source.c.begin_snapshot, *ends, *form.own)
        return cls(form=form, columns=columns, integers=tuple(integers[column.name] for column in columns), place=place)

    def batches(self, reader: CatalogReader) -> Generator[pa.Table, None, None]:
        """All rows, some at a time, as the database finds them."""
        source, after = self.form.physical, true()
        while True:
            some = select(self.place.label("place")).select_from(source).where(after).order_by(self.place).limit(JOINED_ROWS).subquery()
            last = reader.connection.execute(select(func.max(some.c.place))).scalar()
            if last is None:
                return
            part = self._part(reader, and_(after, self.place <= last))
            yield part
            after = self.place > last

    def _part(self, reader: CatalogReader, condition: ColumnElement[bool]) -> pa.Table:
        joined = joined_cells(reader.connection, self.columns, self.integers, condition)
        if joined is not None:
            return self.form.table_of_columns(joined, len(joined[0]))
        with paused_collector():
            chosen = ChosenInlined(condition=lambda _source: condition)
            return self.form.table_of(self.form.fetch(reader, chosen, ordered=False).all())
