"""A busy lake under nightly maintenance: what a day of small changes leaves in the catalog, and what a read costs, day after day.

Run with ``python -m benchmarks.bench_busy_lake``. Small tables get appends, updates, deletes and upserts in turn; now and then one gets a
column. Every night flushes, expires all but 20 snapshots, merges, rewrites and cleans up, with the defaults of each call. PostgreSQL has
fewer days. A line for machines has the numbers of the first and of the last day, and the bytes that maintenance wrote for each byte that
the changes wrote.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa

from ducklake_core import DuckLake
from ducklake_core.catalog.database.tables import inlined_owner
from tests.support.oracle import sqlite_lake
from tests.support.postgres import start_server

TABLES = int(os.environ.get("BENCH_TABLES", "12"))
DAYS = int(os.environ.get("BENCH_DAYS", "40"))
CHANGES = 30  # of a day
KEPT = 20  # snapshots
_ROWS = 1000  # of a table at first
_COUNTS = 5  # of each table, for the shortest time
_NOW = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Day:
    """A lake after a night.

    Attributes:
        data_files: Live data files; ``data_files_kept`` includes those that earlier snapshots need.
        delete_files: Live delete files.
        inlined_tables: Tables of inlined rows that the database has.
        count_ms: Milliseconds of processor time of a selective count.
        ingested: Bytes of the files that the changes of the day and the flush wrote.
        rewritten: Bytes that merging and rewriting wrote.
    """

    data_files: int
    data_files_kept: int
    delete_files: int
    inlined_tables: int
    count_ms: float
    ingested: int
    rewritten: int


def rows_of(keys: list[int], value: int) -> pa.Table:
    """Return rows with some keys."""
    return pa.table({"id": keys, "value": [value * 31 + key for key in keys], "name": [f"row {key} of {value}" for key in keys]})


class BusyLake:
    """A lake with small tables that change all day.

    Attributes:
        lake: The lake.
        names: Its tables.
    """

    def __init__(self, lake: DuckLake, tables: int, seed: int = 7) -> None:
        self.lake = lake
        self.names = [f"t{number}" for number in range(tables)]
        self._random = random.Random(seed)
        self._next = dict.fromkeys(self.names, _ROWS)
        self._day = 0
        for name in self.names:
            lake.write(name, rows_of(list(range(_ROWS)), 0))

    def day(self) -> None:
        """Make the changes of a day."""
        self._day += 1
        for number in range(CHANGES):
            name = self.names[(self._day * CHANGES + number) % len(self.names)]
            table, moment = self.lake.table(name), self._day * CHANGES + number
            first = self._random.randrange(self._next[name])
            match self._random.randrange(4):
                case 0:
                    count = self._random.choice((3, 40, 200))
                    table.append(rows_of(list(range(self._next[name], self._next[name] + count)), moment), missing_columns="null")
                    self._next[name] += count
                case 1:
                    table.update({"value": f"{moment}"}, where=f"id BETWEEN {first} AND {first + self._random.choice((2, 30))}")
                case 2:
                    table.delete(where=f"id BETWEEN {first} AND {first + self._random.choice((2, 30))}")
                case _:
                    table.upsert(rows_of(list(range(first, first + 50)), moment), on="id", missing_columns="null")
                    self._next[name] = max(self._next[name], first + 50)
        if self._day % 4 == 0:
            name = self.names[self._day // 4 % len(self.names)]
            self.lake.table(name).add_column(f"c{self._day}", "int32")

    def night(self) -> tuple[int, int]:
        """Run maintenance, and return the bytes that flushing wrote, and those that merging and rewriting wrote."""
        lake = self.lake
        flushed = lake.flush_inlined_data()
        lake.expire_snapshots(keep_last=KEPT, min_age=_NOW)
        merged = lake.merge_adjacent_files()
        rewritten = lake.rewrite_data_files()
        lake.cleanup_old_files(cleanup_all=True, min_age=_NOW)
        for result in (flushed, merged, rewritten):
            assert not result.failed_steps, result
        of_rewrites = sum(table.bytes_written for table in rewritten.tables)
        return sum(table.bytes_written for table in flushed.tables), sum(table.bytes_written for table in merged.tables) + of_rewrites

    def measured(self, ingested: int, rewritten: int) -> Day:
        """Count what the catalog has, and time a selective count of each table."""
        # Numbers that no call of the library returns.
        database = self.lake._database
        with database.read() as connection:

            def count(kind: str, *, live: bool) -> int:
                source = database.tables[kind]
                condition = source.c.end_snapshot.is_(None) if live else sa.true()
                return int(connection.execute(sa.select(sa.func.count()).select_from(source).where(condition)).scalar_one())

            names = sa.inspect(connection).get_table_names(schema=database.tables.schema)
            found = {
                "data_files": count("data_file", live=True),
                "data_files_kept": count("data_file", live=False),
                "delete_files": count("delete_file", live=True),
            }
        seconds = []
        for _ in range(_COUNTS):
            started = time.process_time()
            for name in self.names:
                self.lake.table(name).scan(where="value % 7 = 3").count()
            seconds.append((time.process_time() - started) / len(self.names))
        return Day(
            **found,
            inlined_tables=sum(inlined_owner(name) is not None for name in names),
            count_ms=1000 * min(seconds),
            ingested=ingested,
            rewritten=rewritten,
        )


def simulate(lake: DuckLake, folder: Path, tables: int, days: int) -> Iterator[Day]:
    """Yield the lake after each night.

    Args:
        lake: An empty lake.
        folder: Its data path.
        tables: Number of tables.
        days: Number of days.
    """
    busy = BusyLake(lake, tables)
    for _ in range(days):
        before = _bytes_in(folder)
        busy.day()
        ingested = _bytes_in(folder) - before
        flushed, rewritten = busy.night()
        yield busy.measured(ingested + flushed, rewritten)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.*"))


def report(backend: str, days: list[Day]) -> None:
    """Print a line for machines."""
    first, last = days[0], days[-1]
    found = {"benchmark": "busy_lake", "backend": backend, "size": f"{len(days)} days"}
    for name in ("data_files", "data_files_kept", "delete_files", "inlined_tables", "count_ms"):
        found |= {f"{name}, first day": getattr(first, name), f"{name}, last day": getattr(last, name)}
    found["bytes rewritten per byte ingested"] = sum(day.rewritten for day in days) / sum(day.ingested for day in days)
    print(json.dumps(found), flush=True)


def main() -> None:
    """Simulate on SQLite, and fewer days on PostgreSQL."""
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        with DuckLake.create(address.url, data_path=address.data_path) as lake:
            report("sqlite", list(simulate(lake, Path(address.data_path), TABLES, DAYS)))
    server = start_server()
    with tempfile.TemporaryDirectory() as folder:
        address = server.lake(Path(folder))
        with DuckLake.create(address.url, data_path=address.data_path) as lake:
            report("postgresql", list(simulate(lake, Path(address.data_path), TABLES, DAYS // 4)))


if __name__ == "__main__":
    main()
