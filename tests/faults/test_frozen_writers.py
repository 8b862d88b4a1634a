"""A writer that stops or waits while it holds the writer lease on PostgreSQL: other clients continue in seconds."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database import writer_queue as leases
from ducklake_core.commit import committer
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

SOON, NEVER = 60.0, 3600.0
"""Seconds for an append on a machine with much else to do, and for one that waits for a stopped writer."""
# Stops itself within its commit: when it has read the head, or when it has sent all but COMMIT.
FROZEN = """
import os, signal, sys
import psycopg
import pyarrow as pa
from ducklake_core import DuckLake
from ducklake_core.catalog.database import writer_queue as leases
from ducklake_core.commit import committer
url, place = sys.argv[1:]
leases.LEASE_SECONDS, leases.MAX_LEASE_SECONDS = 1.0, 2.0
original, stopped = getattr(committer, place), []

def stops(*arguments):
    if place == "apply_changes":
        original(*arguments)
    if not stopped:
        stopped.append(True)
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return None if place == "apply_changes" else original(*arguments)

setattr(committer, place, stops)
lake = DuckLake.connect(url)
lake.table("t").append(pa.table({"i": [1]}))
lake.close()
print("done", flush=True)
"""


@pytest.fixture
def lake(address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(address.url, data_path=address.data_path)
    made.create_table("t", pa.schema([("i", pa.int64())]))
    made.create_table("u", pa.schema([("i", pa.int64())]))
    yield made
    made.close()


@contextmanager
def frozen(address: LakeAddress, step: str) -> Iterator[subprocess.Popen[str]]:
    """A writer that was stopped; it goes on when the block ends."""
    command = [sys.executable, "-c", FROZEN, address.url, step]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stops\n", process.communicate()[1]
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        output, errors = process.communicate(timeout=240)
    assert output == "done\n", errors


def seconds_of_append(lake: DuckLake, name: str, number: int) -> float:
    started = time.monotonic()
    lake.table(name).append(pa.table({"i": [number]}))
    return time.monotonic() - started


@pytest.mark.parametrize("step", spread(["resolve", "apply_changes"], 1))
def test_a_stopped_writer_loses_its_lease(lake: DuckLake, address: LakeAddress, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_WAIT_SECONDS", NEVER)
    with frozen(address, step):
        assert seconds_of_append(lake, "t", 2) < SOON
        with attached(address) as duck:
            duck.run("INSERT INTO t VALUES (3)")
        assert seconds_of_append(lake, "u", 4) < SOON
    assert sorted(lake.table("t").scan().to_arrow()["i"].to_pylist()) == [1, 2, 3]
    assert [snapshot.id for snapshot in lake.snapshots()] == list(range(lake.snapshot().id + 1))


def test_a_lease_that_no_server_ends(lake: DuckLake, address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older servers have no limit of a whole transaction: a waiting writer continues without a lease."""
    monkeypatch.setattr(leases, "LEASE_WAIT_SECONDS", 0.5)
    key = leases.lease_key("public")
    with psycopg.connect(lake.database.address.engine_url.set(drivername="postgresql").render_as_string()) as held:
        held.execute("SELECT pg_advisory_xact_lock(%s)", [key])
        assert [lake.table("t").append(pa.table({"i": [number]})).attempts for number in range(2)] == [2, 2]
    assert lake.table("t").scan().count() == 2


def test_a_writer_that_needs_longer_than_the_lease(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses its lease and gets longer ones, until one is long enough."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    original, calls = committer.resolve, []

    def slow(*arguments: object) -> object:
        calls.append(time.sleep(0.8))
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(committer, "resolve", slow)
    lake.table("t").append(pa.table({"i": [1]}))
    # The leases of 0.3 s and 0.6 s are too short for certain; how many more are, depends on the machine.
    assert 3 <= len(calls) <= 7
    assert lake.table("t").scan().to_arrow()["i"].to_pylist() == [1]


@pytest.mark.parametrize("ending", spread(["COMMIT", "ROLLBACK"], 1))
@pytest.mark.parametrize("change", spread(["update", "delete"], 1))
def test_rows_that_a_flush_has_locked(lake: DuckLake, address: LakeAddress, change: str, ending: str) -> None:
    """A change of rows in an open flush of DuckDB waits without a lease, and finds the flushed rows."""
    table = lake.table("t")
    table.append(pa.table({"i": [1, 2, 3]}))
    change_rows = (lambda: table.update({"i": 10}, where="i = 1")) if change == "update" else (lambda: table.delete("i = 1"))
    changing = threading.Thread(target=change_rows)
    with attached(address) as duck:
        duck.run("BEGIN", "CALL ducklake_flush_inlined_data('lake')")
        changing.start()
        time.sleep(0.3)
        # A flush that has to commit again, after other writers, would let the change through.
        others = [seconds_of_append(lake, "u", number) for number in range(5 if ending == "ROLLBACK" else 0)]
        time.sleep(0.7)
        assert changing.is_alive()
        duck.run(ending)
    changing.join(240)
    assert not changing.is_alive()
    assert max(others, default=0) < SOON
    assert sorted(lake.table("t").scan().to_arrow()["i"].to_pylist()) == ([2, 3, 10] if change == "update" else [2, 3])


UPKEEP: dict[str, tuple[str, Callable[[DuckLake], object]]] = {
    "option": ("UPDATE ducklake_metadata SET value = value", lambda lake: lake.set_option("target_file_size", "1MB")),
    "indexes": ("UPDATE ducklake_data_file SET path = path", lambda lake: lake.create_indexes()),
    "expiry": (
        "UPDATE ducklake_snapshot SET snapshot_id = snapshot_id WHERE snapshot_id < 2",
        lambda lake: lake.expire_snapshots(versions=[1], min_age="0 days"),
    ),
}


@pytest.mark.parametrize("upkeep", spread(UPKEEP, 2))
def test_waiting_maintenance_blocks_no_writer(lake: DuckLake, address: LakeAddress, upkeep: str) -> None:
    """A waiting lock request blocks later ones: it gives up soon, and tries again."""
    lake.set_option("target_file_size", "2MB")
    lake.table("t").append(pa.table({"i": [0]}), inline=False)
    statement, call = UPKEEP[upkeep]
    with psycopg.connect(lake.database.address.engine_url.set(drivername="postgresql").render_as_string()) as held:
        for (index,) in held.execute("SELECT indexname FROM pg_indexes WHERE indexname LIKE '%_by_%'").fetchall():
            held.execute(f'DROP INDEX "{index}"')
        held.commit()
        held.execute(statement)
        running = threading.Thread(target=call, args=(lake,))
        running.start()
        time.sleep(0.3)
        seconds = []
        for number in range(3):
            started = time.monotonic()
            lake.table("u").append(pa.table({"i": [number]}), inline=False)
            seconds.append(time.monotonic() - started)
        assert running.is_alive()
    running.join(240)
    assert not running.is_alive()
    assert max(seconds) < SOON
