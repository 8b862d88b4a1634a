"""Read transactions that stay open on a SQLite catalog: a commit waits for a while, and then names the cause."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core.catalog.database import failures
from ducklake_core.errors import CommitRetriesExhaustedError, DuckLakeError
from ducklake_core.lake import DuckLake
from tests.support.oracle import LakeAddress

_ROWS = pa.table({"a": [2]})
_CAUSE = "Another connection has an open read transaction on the catalog"
_DUCKDB = """
import sys
from tests.support.oracle import new_connection
duck = new_connection()
duck.execute(f"ATTACH '{sys.argv[1]}' AS lake")
print(duck.execute("BEGIN; SELECT a FROM lake.t").fetchall(), flush=True)
sys.stdin.readline()
duck.execute("COMMIT")
print(duck.execute("SELECT count(*) FROM lake.t").fetchone()[0])
"""


@pytest.fixture
def lake(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckLake]:
    """A lake whose writes wait 2 seconds for readers."""
    monkeypatch.setattr(failures, "READERS_SECONDS", 2.0)
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.write("t", pa.table({"a": [1]}))
        yield lake


@pytest.fixture
def reader(lake: DuckLake) -> Iterator[sqlite3.Connection]:
    """A connection in a read transaction."""
    connection = sqlite3.connect(str(lake.database.address.url.database), isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM ducklake_snapshot").fetchall()
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "write",
    [
        lambda lake: lake.table("t").append(_ROWS),
        lambda lake: lake.create_table("u", _ROWS.schema),
        lambda lake: lake.set_option("target_file_size", "1 MB"),
        lambda lake: lake.holds.add("h"),
    ],
    ids=["append", "create", "option", "hold"],
)
def test_a_write_names_the_open_read_transaction(lake: DuckLake, reader: sqlite3.Connection, write: Callable[[DuckLake], object]) -> None:
    before, began = lake.snapshot().id, time.monotonic()
    with pytest.raises(CommitRetriesExhaustedError, match=_CAUSE) as raised:
        write(lake)
    assert 2 <= time.monotonic() - began < 6
    assert raised.value.retriable
    assert "other writers" not in str(raised.value)
    reader.execute("COMMIT")
    assert lake.snapshot().id == before
    write(lake)


def test_a_reader_that_ends_in_time_stops_nothing(lake: DuckLake, reader: sqlite3.Connection) -> None:
    ending = threading.Timer(1.2, lambda: reader.execute("COMMIT"))
    ending.start()
    lake.table("t").append(_ROWS)
    ending.join()
    assert lake.table("t").scan().count() == 2


def test_the_lock_of_another_writer_is_not_called_a_reader(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = failures.RetryPolicy(max_attempts=2, first_pause=0.01, max_pause=0.01)
    with sqlite3.connect(str(lake.database.address.url.database), isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("ducklake_core.maintenance.groups.MAINTENANCE_RETRIES", policy)
        with pytest.raises(DuckLakeError, match="busy with another writer"):
            lake.set_option("target_file_size", "1 MB")
        writer.execute("ROLLBACK")


def test_a_transaction_of_duckdb_that_only_reads(lake: DuckLake, sqlite_address: LakeAddress) -> None:
    command = [sys.executable, "-c", _DUCKDB, sqlite_address.attach]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as duck:
        assert duck.stdout is not None
        assert duck.stdin is not None
        assert duck.stdout.readline() == "[(1,)]\n"
        with pytest.raises(CommitRetriesExhaustedError, match=r"in DuckDB: COMMIT or ROLLBACK"):
            lake.table("t").append(_ROWS)
        # Other readers get in.
        assert lake.table("t").scan().count() == 1
        duck.stdin.write("\n")
        duck.stdin.flush()
        assert duck.stdout.read() == "1\n"
    lake.table("t").append(_ROWS)
    assert lake.table("t").scan().count() == 2
