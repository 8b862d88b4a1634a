"""A busy lake under nightly maintenance: size of the catalog and cost of a read, day after day.

Run with ``python -m benchmarks.bench_busy_lake``. Small tables get appends, updates, deletes and upserts in turn; now and then one gets a
column. Every night flushes, expires all but 20 snapshots, merges, rewrites and cleans up, with the defaults of each call.

On SQLite, 12 tables change for 40 days. On PostgreSQL, 60 tables change for 2 days, and a process of DuckDB changes the same tables all the
time, also in every other night. Each writer keeps a ledger of the rows that it committed, and after each night both engines must read
exactly these. ``BENCH_TABLES`` and ``BENCH_DAYS`` set other sizes for both, ``BENCH_CHANGES`` the library's changes of a table and day, and
``BENCH_BACKENDS`` the backends; the full form is ``BENCH_BACKENDS=postgresql BENCH_DAYS=30``. Each day prints a line. A line for machines
has the numbers of the first and of the last day, and the bytes that maintenance wrote for each byte that the changes wrote.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from ducklake_core import DuckLake
from ducklake_core.catalog.database.tables import inlined_owner
from ducklake_core.errors import CommitConflictError, CommitRetriesExhaustedError
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake
from tests.support.postgres import start_server

BACKENDS = os.environ.get("BENCH_BACKENDS", "sqlite postgresql").split()
TABLES = {"sqlite": 12, "postgresql": 60}
DAYS = {"sqlite": 40, "postgresql": 2}
CHANGES = float(os.environ.get("BENCH_CHANGES", "2.5"))  # of a table and day
KEPT = 20  # snapshots
_ROWS = 1000  # of a table at first
_COUNTS = 5  # of each table, for the shortest time
_NOW = timedelta(0)
_AGE = timedelta(seconds=10)  # of snapshots and files that maintenance removes while DuckDB may use them
_PAUSE = 0.1  # seconds between two changes of DuckDB
_FIRST_OF_DUCKDB = 1_000_000_000  # its keys; smaller ones are the library's
_ATTEMPTS = 100  # of a change of DuckDB
_CONDITION = "value % 7 = 3"

Rows = dict[str, dict[int, int]]
"""Values by id, of each table."""


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
        night_seconds: Seconds of the night's maintenance.
        longest_seconds: Longest time of one change of the library up to this day.
        conflicts: Changes of the library that raised a conflict up to this day.
        duckdb: Numbers of DuckDB's process up to this day, and whether it wrote at night.
    """

    data_files: int
    data_files_kept: int
    delete_files: int
    inlined_tables: int
    count_ms: float
    ingested: int
    rewritten: int
    night_seconds: float
    longest_seconds: float
    conflicts: int
    duckdb: DuckDBDay | None


@dataclass(frozen=True, kw_only=True)
class DuckDBDay:
    """Numbers of DuckDB's process.

    Attributes:
        at_night: DuckDB wrote during the night's maintenance.
        changes: Changes that it committed.
        retries: Attempts of a change that ended with a conflict.
        longest_seconds: Longest time of one change with its retries.
        count_ms: Milliseconds of processor time of a selective count.
    """

    at_night: bool
    changes: int
    retries: int
    longest_seconds: float
    count_ms: float


def rows_of(keys: list[int], value: int) -> pa.Table:
    """Return rows with some keys."""
    return pa.table({"id": keys, "value": [value * 31 + key for key in keys], "name": [f"row {key} of {value}" for key in keys]})


class BusyLake:
    """A lake with small tables that change all day.

    Attributes:
        lake: The lake.
        names: Its tables.
        ledger: Rows that the library committed.
        conflicts: Changes that raised a conflict.
        longest_seconds: Longest time of one change.
    """

    def __init__(self, lake: DuckLake, folder: Path, tables: int, age: timedelta = _NOW, seed: int = 7) -> None:
        self.lake = lake
        self.names = [f"t{number}" for number in range(tables)]
        self.ledger: Rows = {}
        self.conflicts = 0
        self.longest_seconds = 0.0
        self._folder = folder
        self._age = age
        self._random = random.Random(seed)
        self._next = dict.fromkeys(self.names, _ROWS)
        self._day = 0
        for name in self.names:
            rows = rows_of(list(range(_ROWS)), 0)
            lake.write(name, rows)
            self.ledger[name] = _values(rows)

    def day(self, changes: int) -> None:
        """Make the changes of a day."""
        self._day += 1
        for number in range(changes):
            moment = self._day * changes + number
            self._change(self.names[moment % len(self.names)], moment)
        if self._day % 4 == 0:
            name = self.names[self._day // 4 % len(self.names)]
            self._commit(lambda: self.lake.table(name).add_column(f"c{self._day}", "int32"))

    def _change(self, name: str, moment: int) -> None:
        table, ledger = self.lake.table(name), self.ledger[name]
        first = self._random.randrange(self._next[name])
        match self._random.randrange(4):
            case 0:
                count = self._random.choice((3, 40, 200))
                rows = rows_of(list(range(self._next[name], self._next[name] + count)), moment)
                if self._commit(lambda: table.append(rows, missing_columns="null")):
                    ledger |= _values(rows)
                    self._next[name] += count
            case 1:
                last = first + self._random.choice((2, 30))
                if self._commit(lambda: table.update({"value": f"{moment}"}, where=f"id BETWEEN {first} AND {last}")):
                    ledger |= {key: moment for key in range(first, last + 1) if key in ledger}
            case 2:
                last = first + self._random.choice((2, 30))
                if self._commit(lambda: table.delete(where=f"id BETWEEN {first} AND {last}")):
                    for key in range(first, last + 1):
                        ledger.pop(key, None)
            case _:
                rows = rows_of(list(range(first, first + 50)), moment)
                if self._commit(lambda: table.upsert(rows, on="id", missing_columns="null")):
                    ledger |= _values(rows)
                    self._next[name] = max(self._next[name], first + 50)

    def _commit(self, change: Callable[[], object]) -> bool:
        """Make a change, or count its conflict."""
        started = time.perf_counter()
        try:
            change()
        except (CommitConflictError, CommitRetriesExhaustedError):
            self.conflicts += 1
            return False
        finally:
            self.longest_seconds = max(self.longest_seconds, time.perf_counter() - started)
        return True

    def night(self) -> tuple[int, int]:
        """Run maintenance, and return the bytes that flushing and other writers wrote, and those that merging and rewriting wrote."""
        lake, before = self.lake, _bytes_in(self._folder)
        flushed = lake.flush_inlined_data()
        expired = lake.expire_snapshots(keep_last=KEPT, min_age=self._age)
        merged = lake.merge_adjacent_files()
        rewritten = lake.rewrite_data_files()
        written = _bytes_in(self._folder) - before
        cleaned = lake.cleanup_old_files(older_than=self._age, min_age=self._age)
        for result in (flushed, expired, merged, rewritten, cleaned):
            assert not result.failed_steps, result
        of_rewrites = sum(table.bytes_written for result in (merged, rewritten) for table in result.tables)
        return written - of_rewrites, of_rewrites

    def measured(self, ingested: int, rewritten: int, night_seconds: float, duck: DuckDBDay | None) -> Day:
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
                self.lake.table(name).scan(where=_CONDITION).count()
            seconds.append((time.process_time() - started) / len(self.names))
        return Day(
            **found,
            inlined_tables=sum(inlined_owner(name) is not None for name in names),
            count_ms=1000 * min(seconds),
            ingested=ingested,
            rewritten=rewritten,
            night_seconds=night_seconds,
            longest_seconds=self.longest_seconds,
            conflicts=self.conflicts,
            duckdb=duck,
        )

    def check(self, duck: Duck | None) -> None:
        """Compare the rows that this library and DuckDB read with the ledgers of all writers."""
        of_duck: Rows = {} if duck is None else duck.call("ledger")
        expected = {name: self.ledger[name] | of_duck.get(name, {}) for name in self.names}
        _assert_rows({name: self.lake.table(name).scan(columns=["id", "value"]).to_arrow() for name in self.names}, expected, "the library")
        if duck is not None:
            _assert_rows(duck.call("rows"), expected, "DuckDB")


def _values(rows: pa.Table) -> dict[int, int]:
    return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def _assert_rows(found: dict[str, pa.Table], expected: Rows, engine: str) -> None:
    for name, rows in found.items():
        read = sorted(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
        if read != sorted(expected[name].items()):
            twice = len(read) - len(dict(read))
            wrong = sorted(set(read) ^ set(expected[name].items()))
            raise AssertionError(
                f"{engine} reads other rows of {name} than were committed: {twice} twice, {len(wrong)} others: {wrong[:20]}"
            )


class DuckDBWriter:
    """Changes of a DuckDB connection, in the process of a job.

    Attributes:
        ledger: Rows that it committed.
    """

    def __init__(self, duck: Oracle, names: list[str], seed: int = 8) -> None:
        self.ledger: Rows = {name: {} for name in names}
        self._duck = duck
        self._random = random.Random(seed)
        self._next = dict.fromkeys(names, _FIRST_OF_DUCKDB)
        self._changes = self._retries = 0
        self._longest = 0.0

    def change(self) -> None:
        """Append, update or delete rows of a table; few rows are inlined."""
        name = self._random.choice(list(self.ledger))
        ledger, moment, end = self.ledger[name], self._changes, self._next[name]
        first = self._random.randrange(_FIRST_OF_DUCKDB, end) if end > _FIRST_OF_DUCKDB else end
        last = first + self._random.choice((2, 30))
        match self._random.randrange(4):
            case 0 | 1:
                keys = range(end, end + self._random.choice((3, 3, 40, 200)))
                self._commit(
                    f"INSERT INTO {name} (id, value, name) SELECT i, i + {moment}, 'row ' || i FROM range({keys.start}, {keys.stop}) r(i)"
                )
                ledger |= {key: key + moment for key in keys}
                self._next[name] = keys.stop
            case 2:
                self._commit(f"UPDATE {name} SET value = {moment} WHERE id BETWEEN {first} AND {last}")
                ledger |= {key: moment for key in range(first, last + 1) if key in ledger}
            case _:
                self._commit(f"DELETE FROM {name} WHERE id BETWEEN {first} AND {last}")
                for key in range(first, last + 1):
                    ledger.pop(key, None)

    def _commit(self, statement: str) -> None:
        started = time.perf_counter()
        for attempt in range(_ATTEMPTS):
            try:
                self._duck.run(statement)
                break
            except duckdb.Error as error:
                if "conflict" not in str(error).lower() or attempt + 1 == _ATTEMPTS:
                    raise
                self._retries += 1
        self._changes += 1
        self._longest = max(self._longest, time.perf_counter() - started)

    def rows(self) -> dict[str, pa.Table]:
        """Read all tables."""
        return {name: self._duck.arrow(f"SELECT id, value FROM {name}") for name in self.ledger}

    def day(self, *, at_night: bool) -> DuckDBDay:
        """Return the numbers up to now, and time a selective count of each table."""
        seconds = []
        for _ in range(_COUNTS):
            started = time.process_time()
            for name in self.ledger:
                self._duck.value(f"SELECT count(*) FROM {name} WHERE {_CONDITION}")
            seconds.append((time.process_time() - started) / len(self.ledger))
        return DuckDBDay(
            at_night=at_night,
            changes=self._changes,
            retries=self._retries,
            longest_seconds=self._longest,
            count_ms=1000 * min(seconds),
        )


def _duckdb_process(address: LakeAddress, names: list[str], calls: Connection) -> None:
    """Change tables from the call ``write`` until the next call; the call ``stop`` ends the process."""
    with attached(address) as duck:
        writer = DuckDBWriter(duck, names)
        writing = False
        while True:
            if writing and not calls.poll(_PAUSE):
                writer.change()
                continue
            call = calls.recv()
            writing = call == "write"
            match call:
                case "ledger":
                    calls.send(writer.ledger)
                case "rows":
                    calls.send(writer.rows())
                case "quiet night" | "night":
                    calls.send(writer.day(at_night=call == "night"))
                case "stop":
                    return
                case _:
                    calls.send(None)


@dataclass(frozen=True)
class Duck:
    """The process of DuckDB that changes the tables."""

    calls: Connection

    def call(self, name: str) -> Any:
        """Make a call and return its answer; every call but ``write`` ends the writing. A process that failed raises ``EOFError``."""
        self.calls.send(name)
        return self.calls.recv()


@contextmanager
def duckdb_process(address: LakeAddress, names: list[str]) -> Iterator[Duck]:
    """Start DuckDB in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_duckdb_process, args=(address, names, there), daemon=True)
    process.start()
    there.close()
    try:
        yield Duck(here)
        here.send("stop")
        process.join(60)
    finally:
        process.kill()


def simulate(
    lake: DuckLake, folder: Path, tables: int, days: int, changes: float = CHANGES, duckdb_at: LakeAddress | None = None
) -> Iterator[Day]:
    """Yield the lake after each night.

    Args:
        lake: An empty lake.
        folder: Its data path.
        tables: Number of tables.
        days: Number of days.
        changes: The library's changes of a table and day.
        duckdb_at: Address of the lake, for a process of DuckDB that changes the tables too. Default: the library is alone.
    """
    busy = BusyLake(lake, folder, tables, _NOW if duckdb_at is None else _AGE)
    with nullcontext() if duckdb_at is None else duckdb_process(duckdb_at, busy.names) as duck:
        for number in range(days):
            at_night = number % 2 == 1
            before = _bytes_in(folder)
            if duck is not None:
                duck.call("write")
            busy.day(int(changes * tables))
            if duck is not None and not at_night:
                duck.call("rest")
            ingested = _bytes_in(folder) - before
            started = time.perf_counter()
            written, rewritten = busy.night()
            seconds = time.perf_counter() - started
            of_duckdb: DuckDBDay | None = None if duck is None else duck.call("night" if at_night else "quiet night")
            busy.check(duck)
            yield busy.measured(ingested + written, rewritten, seconds, of_duckdb)
    checked = lake.check(level="rows")
    assert not checked.errors, str(checked)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.*"))


def report(backend: str, tables: int, days: list[Day]) -> None:
    """Print a line for machines."""
    first, last = days[0], days[-1]
    found: dict[str, object] = {"benchmark": "busy_lake", "backend": backend, "size": f"{tables} tables, {len(days)} days"}
    for name in ("data_files", "data_files_kept", "delete_files", "inlined_tables", "count_ms"):
        found |= {f"{name}, first day": getattr(first, name), f"{name}, last day": getattr(last, name)}
    found["bytes rewritten per byte ingested"] = sum(day.rewritten for day in days) / sum(day.ingested for day in days)
    found |= {"conflicts": last.conflicts, "longest change, s": last.longest_seconds}
    if first.duckdb is not None and last.duckdb is not None:
        found |= {"DuckDB count_ms, first day": first.duckdb.count_ms, "DuckDB count_ms, last day": last.duckdb.count_ms}
        found |= {"DuckDB changes": last.duckdb.changes, "DuckDB retries": last.duckdb.retries}
        found["DuckDB longest change, s"] = last.duckdb.longest_seconds
        for at_night, label in ((False, "night, s"), (True, "night with DuckDB writing, s")):
            nights = [day.night_seconds for day in days if day.duckdb is not None and day.duckdb.at_night == at_night]
            if nights:
                found[label] = median(nights)
    print(json.dumps(found), flush=True)


def run(address: LakeAddress, *, with_duckdb: bool) -> None:
    """Simulate on a new lake, and print each day and the report."""
    tables = int(os.environ.get("BENCH_TABLES", TABLES[address.backend]))
    count = int(os.environ.get("BENCH_DAYS", DAYS[address.backend]))
    days = []
    with DuckLake.create(address.url, data_path=address.data_path) as lake:
        for day in simulate(lake, Path(address.data_path), tables, count, duckdb_at=address if with_duckdb else None):
            days.append(day)
            print(f"{time.strftime('%H:%M:%S')} day {len(days)}: {json.dumps(asdict(day))}", flush=True)
    report(address.backend, tables, days)


def main() -> None:
    """Simulate with the library alone on SQLite, and next to DuckDB on PostgreSQL."""
    for backend in BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            if backend == "sqlite":
                run(sqlite_lake(Path(folder)), with_duckdb=False)
            else:
                run(start_server().lake(Path(folder)), with_duckdb=True)


if __name__ == "__main__":
    main()
