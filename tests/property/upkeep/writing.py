"""Changes of ours: between maintenance, and in a transaction that is open while a verb runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import pyarrow as pa

from ducklake_core import DuckLake, Table
from ducklake_core.catalog.reading.running_writes import read_running_writes
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from tests.support.scans import counted


def change(lake: DuckLake, draw: Random) -> str:
    """A change to rows that are there; what was done."""
    tables = lake.tables()
    if not tables:
        return "nothing"
    table = lake.table(draw.choice(tables).table)
    column = draw.choice(table.schema.names)
    told, act = draw.choice(
        (
            ("delete", lambda: table.delete(_some_ids(table, draw))),
            ("update", lambda: table.update({column: "NULL"}, where=_some_ids(table, draw))),
            ("overwrite", lambda: table.overwrite(_rows(table, 20), where=_some_ids(table, draw))),
            ("append", lambda: table.append(_rows(table, draw.choice((3, 40))))),
        )
    )
    # Columns that take no NULL, or a type without a literal: what a commit says to that is no matter here.
    with suppress(DuckLakeError, pa.ArrowException):
        act()
    return f"{told} {table.name} {column}"


@contextmanager
def open_write(lake: DuckLake, draw: Random, done: Callable[[str], None]) -> Iterator[None]:
    """A transaction that has written files and says that it runs; it is committed at the end, when all of its rows must be there."""
    table = _table_with_rows(lake, draw)
    if table is None:
        yield
        return
    rows, before = _rows(table, 40), counted(table.scan().to_arrow())
    gone = _some_ids(table, draw) if draw.random() < 0.5 else ""
    deleted = counted(table.scan(where=gone).to_arrow()) if gone else Counter()
    stored = _stored(lake)
    with lake.transaction() as tx:
        try:
            tx.append(table.name, rows)
        except UnsupportedFeatureError:
            # Sorted by what Arrow cannot sort by.
            yield
            return
        if gone:
            tx.delete(table.name, gone)
        # A process that has loaded DuckDB does not say in SQLite that its writes run.
        if _stored(lake) > stored and lake.database.address.url.get_backend_name() != "sqlite":
            _wait_until_registered(lake)
        yield
    after = counted(lake.table(table.name).scan().to_arrow())
    right = before - deleted + counted(rows)
    assert after == right, f"rows of {table.name} after a write that ran meanwhile: {after - right} too many, {right - after} missing"
    done(f"ours meanwhile: append {len(rows)} rows to {table.name}, delete {gone[:40]}")


def _table_with_rows(lake: DuckLake, draw: Random) -> Table | None:
    tables = [info for info in lake.tables() if info.row_count]
    return lake.table(draw.choice(tables).table) if tables else None


def _rows(table: Table, most: int) -> pa.Table:
    return table.scan().to_arrow().slice(0, most)


def _some_ids(table: Table, draw: Random) -> str:
    """A condition that is true for a half, a fifth or a twentieth of the rows."""
    ids = sorted(table.scan(columns=["rowid"]).to_arrow()["rowid"].to_pylist())
    chosen = draw.sample(ids, len(ids) // draw.choice((2, 5, 20)))
    return f"rowid IN ({', '.join(map(str, chosen))})" if chosen else "rowid IS NULL"


def _stored(lake: DuckLake) -> int:
    """How many files are below the data path; rows that the catalog is to hold are in none, and nobody need know of them."""
    return sum(1 for _ in lake.storage.list(lake.info.data_path))


def _wait_until_registered(lake: DuckLake) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with lake.database.read() as connection:
            if read_running_writes(connection, lake.database.tables):
                return
        time.sleep(0.02)
