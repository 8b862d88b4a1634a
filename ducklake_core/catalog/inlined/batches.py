"""All rows of a table of inlined rows as they were stored, some at a time: fetched, or joined where the database is SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import true
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.inlined.rows import END_SNAPSHOT, EVERY_VERSION, JoinedForm, StoredForm
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.state import InlinedTable, TableState
from ducklake_core.format.types.schema import Schema

BATCH_ROWS = 16_384
"""Rows of a batch where rows are read some at a time; the Python objects of more than these make no use of the processor's cache."""


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
    joined = None if ordered else JoinedForm.of(reader, form, row_count)
    for part in _fetched_batches(reader, form, ordered=ordered) if joined is None else joined.batches(reader, true()):
        yield part if any_ended else part.append_column(END_SNAPSHOT, pa.nulls(part.num_rows, pa.int64()))


def _fetched_batches(reader: CatalogReader, form: StoredForm, *, ordered: bool) -> Generator[pa.Table, None, None]:
    # Elsewhere the driver itself asks for rows as they are wanted, and a buffer in between costs more than the rows.
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
    """The driver's rows where SQLAlchemy has nothing to do for them but to make rows of its own, which takes a fifth of the reading."""

    def fetch(size: int) -> Sequence[Any]:
        try:
            found: Sequence[Any] = cursor.fetchmany(size)
        except sqlite3.Error as error:
            raise DBAPIError(None, None, error) from error
        return found

    return fetch
