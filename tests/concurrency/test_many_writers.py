"""Many writers of one table at once, in processes of their own, DuckDB among them: nothing lost, nothing doubled, no writer gives up."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import bindparam, func, select

from ducklake_core import DuckLake
from ducklake_core.catalog.database import writer_queue as turns
from ducklake_core.catalog.database.failures import COMMIT_RETRIES
from ducklake_core.commit.committer import Committer
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import new_address, slow
from tests.unit.commit.handmade import HandmadeLake

SECONDS = float(os.environ.get("DUCKLAKE_APPEND_SECONDS", "300"))


def append_together(url: str, writers: range, rows: int, seconds: float, ready: Any, done: Any) -> None:
    """Writers of one process, each with a lake object and connections of its own."""
    tables = [DuckLake.connect(url).table("t") for _ in writers]
    ready.wait()
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=append, args=(table, writer, rows, until, done)) for table, writer in zip(tables, writers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def append(table: Any, writer: int, rows: int, until: float, done: Any) -> None:
    """One writer: so many rows, or rows until a time, each a commit of its own."""
    written = 0
    try:
        while written < rows if rows else time.monotonic() < until:
            table.append(pa.table({"writer": [writer], "number": [written]}))
            written += 1
        done.put((writer, written, None))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        done.put((writer, written, repr(error)))


def appended(address: LakeAddress, writers: int, *, processes: int = 0, rows: int = 0, seconds: float = 0) -> tuple[dict[int, int], int]:
    """Return the number of rows that each writer reports, and that of DuckDB; a writer that gives up is an error."""
    context = multiprocessing.get_context("spawn")
    processes = processes or writers
    ready, done = context.Barrier(processes + 1), context.Queue()
    shares = [range(number * writers // processes, (number + 1) * writers // processes) for number in range(processes)]
    running = [context.Process(target=append_together, args=(address.url, share, rows, seconds, ready, done)) for share in shares]
    for process in running:
        process.start()
    by_duckdb, failures, finished = 0, 0, threading.Event()

    def duck() -> None:
        nonlocal by_duckdb, failures
        while not finished.is_set():
            # In SQLite DuckDB does not try again by itself.
            try:
                with attached(address) as oracle:
                    # On PostgreSQL its ten retries are soon over when others commit every few milliseconds, its own kind included.
                    oracle.run("SET ducklake_max_retry_count = 1000", "SET ducklake_retry_wait_ms = 5", "SET ducklake_retry_backoff = 1.0")
                    oracle.run(f"INSERT INTO t VALUES (-1, {by_duckdb})")
                by_duckdb += 1
            except duckdb.Error:
                failures += 1
            time.sleep(0.05)

    ready.wait(timeout=240)
    duckdb_writer = threading.Thread(target=duck)
    duckdb_writer.start()
    found = [done.get(timeout=seconds + 240) for _ in range(writers)]
    finished.set()
    duckdb_writer.join()
    for process in running:
        process.join()
    assert [problem for _, _, problem in found if problem] == []
    return {writer: written for writer, written, _ in found}, by_duckdb


def check(lake: DuckLake, address: LakeAddress, by_library: dict[int, int], by_duckdb: int) -> None:
    """Every row once, row ids and snapshot ids without gaps, for us and for DuckDB."""
    expected = sorted((writer, number) for writer, count in {**by_library, -1: by_duckdb}.items() for number in range(count))
    rows = lake.table("t").scan(columns=["writer", "number", "rowid"]).to_arrow()
    assert sorted(zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True)) == expected
    assert sorted(rows["rowid"].to_pylist()) == list(range(len(expected)))
    assert [snapshot.id for snapshot in lake.snapshots()] == list(range(len(expected) + 2))
    with attached(address) as duck:
        assert sorted(duck.rows("SELECT writer, number FROM t")) == expected
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM t") == [(len(expected), len(expected))]


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.create_table("t", pa.schema([pa.field("writer", pa.int64()), pa.field("number", pa.int64())]))
    yield made
    made.close()


@pytest.fixture
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """SQLite and PostgreSQL: a DuckDB file belongs to one process at a time."""
    return new_address(request, getattr(request, "param", "postgresql"), tmp_path)


@pytest.mark.parametrize("lake_address", [slow("sqlite"), "postgresql"], indirect=True)
def test_three_processes_and_duckdb(lake: DuckLake, lake_address: LakeAddress) -> None:
    by_library, by_duckdb = appended(lake_address, 3, rows=15)
    assert by_library == dict.fromkeys(range(3), 15)
    check(lake, lake_address, by_library, by_duckdb)


@pytest.mark.slow
@pytest.mark.parametrize("lake_address", ["sqlite", "postgresql"], indirect=True)
def test_eight_processes_started_together(lake: DuckLake, lake_address: LakeAddress) -> None:
    by_library, by_duckdb = appended(lake_address, 8, rows=50)
    assert by_duckdb, "DuckDB was starved"
    check(lake, lake_address, by_library, by_duckdb)


@pytest.mark.slow
@pytest.mark.timeout(int(SECONDS) * 3 + 600)
def test_64_appenders(lake: DuckLake, lake_address: LakeAddress) -> None:
    by_library, by_duckdb = appended(lake_address, 64, processes=8, seconds=SECONDS)
    assert min(by_library.values()) > 0
    assert by_duckdb
    check(lake, lake_address, by_library, by_duckdb)


def test_a_turn_that_does_not_come(postgres: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that never ends keeps DuckDB from nothing, and other writers only for a while: they go without one then."""
    handmade = HandmadeLake(postgres.lake(tmp_path))
    Committer(handmade.database).commit(handmade.staged(handmade.create()))
    monkeypatch.setattr(turns, "LEASE_WAIT_SECONDS", 0.2)
    staged = handmade.staged(handmade.append(1))
    with handmade.database.write() as stopped:
        stopped.execute(select(func.pg_advisory_xact_lock(bindparam("key", turns.lease_key(handmade.database.tables.schema)))))
        with attached(handmade.address) as duck:
            duck.run("INSERT INTO t VALUES (2)")
        committed = Committer(handmade.database, attempts=replace(COMMIT_RETRIES, max_attempts=2).attempts()).commit(staged)
    assert (committed.snapshot.id, committed.attempts) == (3, 2)
    handmade.database.close()


def test_another_program_is_not_starved(postgres: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once DuckDB has committed, a writer in its turn waits and lets a transaction end that began just now, not for ever."""
    monkeypatch.setattr(turns, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", 4.0)
    monkeypatch.setattr(turns, "GIVE_WAY_TIMES", 1)
    monkeypatch.setattr(turns, "_YOUNG_SECONDS", 600.0)
    handmade = HandmadeLake(postgres.lake(tmp_path))
    committer = Committer(handmade.database)
    committer.commit(handmade.staged(handmade.create()))

    def seconds_next_to_another() -> float:
        staged = handmade.staged(handmade.append(1))
        with psycopg.connect(handmade.database.address.engine_url.set(drivername="postgresql").render_as_string()) as another:
            another.execute("SELECT 1")
            started = time.monotonic()
            committer.commit(staged)
            return time.monotonic() - started

    assert seconds_next_to_another() < 4.0
    before = handmade.staged(handmade.append(1))
    with attached(handmade.address) as duck:
        duck.run("INSERT INTO t VALUES (2)")
    committer.commit(before)
    assert seconds_next_to_another() > 4.0
    # A transaction that has been open for a while is none that is about to commit.
    monkeypatch.setattr(turns, "_YOUNG_SECONDS", 0.0)
    assert seconds_next_to_another() < 4.0
    handmade.database.close()
