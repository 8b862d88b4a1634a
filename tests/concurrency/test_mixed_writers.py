"""Everybody changes the same rows at once, DuckDB and maintenance among them: what was acknowledged happened once.

Each worker keeps a ledger of its committed changes. At the end the lake must be the sum of all ledgers.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, NotFoundError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import new_address

STEPS = int(os.environ.get("DUCKLAKE_MIXED_STEPS", "40"))
"""Changes by each worker: a run ends when they are done, however long a loaded machine takes for them."""
MAINTAINED = 8
"""Number of changes for each maintenance operation of a worker; three of each worker cover all operations."""
HANGS = 3 * 3600
COUNTERS = 6
NOW = timedelta(0)
OPERATIONS = ("merge", "rewrite", "cluster", "flush", "expire", "cleanup", "orphans", "checkpoint", "check")


class LibraryWorker:
    """Random changes by the library."""

    def __init__(self, url: str, number: int, seed: int) -> None:
        self.lake = DuckLake.connect(url)
        self.number = number
        self.random = random.Random(f"{seed}-{number}")
        self.made = 0
        self.mine: set[int] = set()
        self.ledger: Counter[tuple[str, int]] = Counter()
        self.operations: Counter[str] = Counter()
        self.conflicts = 0
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        changes = [self.append, self.append, self.delete, self.count, self.merge, self.transfer, self.upsert]
        operation = self.random.choice(changes) if self.steps % MAINTAINED else self.maintain
        try:
            operation()
        except CommitConflictError:
            self.conflicts += 1
        except NotFoundError as error:
            # On a loaded machine a change takes longer than the age at which another worker expires its snapshot.
            if "has expired" not in str(error):
                raise
            self.conflicts += 1

    def _new_keys(self) -> list[int]:
        # Some above the inlining limit of ten rows.
        keys = [self.number * 1_000_000 + self.made + i for i in range(self.random.choice([1, 3, 15]))]
        self.made += len(keys)
        return keys

    def append(self) -> None:
        keys = self._new_keys()
        self.lake.table("events").append(pa.table({"k": keys, "v": keys}))
        self.mine.update(keys)

    def upsert(self) -> None:
        old = self.random.sample(sorted(self.mine), min(len(self.mine), 2))
        keys = [*old, *self._new_keys()]
        self.lake.table("events").upsert(pa.table({"k": keys, "v": keys}), on=["k"])
        self.mine.update(keys)

    def delete(self) -> None:
        removed = self.random.sample(sorted(self.mine), min(len(self.mine), self.random.choice([1, 4, 20])))
        if removed:
            result = self.lake.table("events").delete(f"k IN ({', '.join(map(str, removed))})")
            assert result.rows_deleted == len(removed), (result, removed)
            self.mine.difference_update(removed)

    def count(self) -> None:
        key = self.random.randrange(COUNTERS)
        self.lake.table("counters").update({"n": "n + 1"}, where=f"k = {key}")
        self.ledger["counters", key] += 1

    def merge(self) -> None:
        key = self.random.randrange(COUNTERS)
        source = pa.table({"k": [key, 1000 + self.number], "n": [1, 1]})
        merge = self.lake.table("counters").merge(source, on=["k"])
        merge.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert().execute()
        self.ledger["counters", key] += 1
        self.ledger["counters", 1000 + self.number] += 1

    def transfer(self) -> None:
        key = self.random.randrange(COUNTERS)
        with self.lake.transaction() as tx:
            tx.update("counters", {"n": "n - 1"}, where=f"k = {key}")
            tx.update("others", {"n": "n + 1"}, where=f"k = {key}")
        self.ledger["counters", key] -= 1
        self.ledger["others", key] += 1

    def maintain(self) -> None:
        """Run a maintenance operation; it may skip what other writers change, and never does half of it."""
        table = self.random.choice(["events", "counters"])
        partial = self.random.random() < 0.5
        # In turn, and each worker from another one on, so that none is left out.
        operation = OPERATIONS[(2 * self.number + sum(self.operations.values())) % len(OPERATIONS)]
        self.operations[operation] += 1
        match operation:
            case "merge":
                self.lake.merge_adjacent_files(table, partial_progress=partial)
            case "rewrite":
                self.lake.rewrite_data_files(table, delete_threshold=0.0, partial_progress=partial)
            case "cluster":
                self.lake.rewrite_data_files("events", cluster_by=["v", "k"], partial_progress=partial)
            case "flush":
                self.lake.flush_inlined_data(table)
            case "expire":
                self.lake.expire_snapshots(older_than=timedelta(seconds=5), min_age=NOW)
            case "cleanup":
                self.lake.cleanup_old_files(older_than=timedelta(seconds=5), min_age=NOW)
            case "orphans":
                self._sweep()
            case "checkpoint":
                self.lake.checkpoint()
            case _:
                found = self.lake.check(level="rows")
                assert found.errors == (), found

    def _sweep(self) -> None:
        """Files that a writer left behind are deleted, and none that is being written."""
        folder = Path(self.lake.info.data_path) / "main" / "events"
        folder.mkdir(parents=True, exist_ok=True)
        left = folder / f"ducklake-0198c1f2-0000-7000-8000-{self.number:06x}{self.made:06x}.parquet"
        left.write_bytes(b"half a file")
        os.utime(left, (time.time() - 90_000, time.time() - 90_000))
        self.lake.delete_orphaned_files(older_than="1 day")
        assert not left.exists()


class DuckDBWorker:
    """Random changes of DuckDB; a failure is no acknowledgement."""

    def __init__(self, address: LakeAddress, number: int, seed: int) -> None:
        self.address = address
        self.number = number
        self.random = random.Random(f"{seed}-{number}")
        self.made = 0
        self.mine: set[int] = set()
        self.ledger: Counter[tuple[str, int]] = Counter()
        self.operations: Counter[str] = Counter()
        self.conflicts = 0

    def step(self) -> None:
        key = self.random.randrange(COUNTERS)
        new = self.number * 1_000_000 + self.made
        removed = self.random.choice(sorted(self.mine)) if self.mine else None
        operation = self.random.choice(["append", "append", "delete", "count", "flush", "merge"])
        self.made += 20
        keys = range(new, new + self.random.choice([2, 20]))
        try:
            with attached(self.address) as duck:
                duck.run("SET ducklake_max_retry_count = 100", "SET ducklake_retry_wait_ms = 5", "SET ducklake_retry_backoff = 1.0")
                match operation:
                    case "append":
                        duck.run(f"INSERT INTO events SELECT i, i FROM range({keys.start}, {keys.stop}) r(i)")
                        self.mine.update(keys)
                    case "delete" if removed is not None:
                        duck.run(f"DELETE FROM events WHERE k = {removed}")
                        self.mine.discard(removed)
                    case "count":
                        duck.run(f"UPDATE counters SET n = n + 1 WHERE k = {key}")
                        self.ledger["counters", key] += 1
                    case "flush":
                        duck.run("CALL ducklake_flush_inlined_data('lake')")
                    case _:
                        duck.run("CALL ducklake_merge_adjacent_files('lake')")
        except duckdb.Error:
            self.conflicts += 1
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Changes of one worker, and its error if it failed."""

    number: int
    mine: set[int]
    ledger: Counter[tuple[str, int]]
    operations: Counter[str]
    conflicts: int
    problem: str | None


def work(kind: type[LibraryWorker | DuckDBWorker], place: Any, number: int, seed: int, ready: Any, done: Any) -> None:
    """One process: so many random changes, then its report."""
    worker = kind(place, number, seed)
    ready.wait()
    problem = None
    try:
        for _ in range(STEPS):
            worker.step()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        problem = repr(error)
    done.put(
        Report(
            number=number, mine=worker.mine, ledger=worker.ledger, operations=worker.operations, conflicts=worker.conflicts, problem=problem
        )
    )


def run_all(address: LakeAddress, seed: int) -> list[Report]:
    """Run four processes of the library and one of DuckDB to their end."""
    context = multiprocessing.get_context("spawn")
    workers = [*((LibraryWorker, address.url, number) for number in range(1, 5)), (DuckDBWorker, address, 9)]
    ready, done = context.Barrier(len(workers)), context.Queue()
    running = [context.Process(target=work, args=(*worker, seed, ready, done)) for worker in workers]
    for process in running:
        process.start()
    found: list[Report] = []
    while len(found) < len(workers):
        with suppress(queue.Empty):
            found.append(done.get(timeout=10))
        assert all(process.exitcode in (None, 0) for process in running), "a worker died without a word"
    for process in running:
        process.join()
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def lake_address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    """A DuckDB file belongs to one process at a time."""
    return new_address(request, request.param, tmp_path)


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.write("events", pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}))
    for name in ("counters", "others"):
        made.write(name, pa.table({"k": range(COUNTERS), "n": [0] * COUNTERS}))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(HANGS)
@pytest.mark.parametrize("seed", range(1, 7))
def test_every_acknowledged_change_happened_once(lake: DuckLake, lake_address: LakeAddress, seed: int) -> None:
    found = run_all(lake_address, seed)
    assert [report.problem for report in found if report.problem] == []
    assert all(report.conflicts < STEPS for report in found), "a worker never got through"
    assert set(sum((report.operations for report in found), Counter())) == set(OPERATIONS)
    total: Counter[tuple[str, int]] = Counter()
    for report in found:
        for key, change in report.ledger.items():
            total[key] += change
    keys = sorted(key for report in found for key in report.mine)
    for name in ("counters", "others"):
        expected = sorted({**dict.fromkeys(range(COUNTERS), 0), **{key: n for (table, key), n in total.items() if table == name}}.items())
        rows = lake.table(name).scan().to_arrow()
        assert sorted(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True)) == expected
        with attached(lake_address) as duck:
            assert duck.rows(f"SELECT k, n FROM {name} ORDER BY k") == expected
    events = lake.table("events").scan(columns=["k", "v", "rowid"]).to_arrow()
    assert sorted(events["k"].to_pylist()) == keys
    assert events["k"].to_pylist() == events["v"].to_pylist()
    assert len(set(events["rowid"].to_pylist())) == len(keys)
    with attached(lake_address) as duck:
        assert [k for (k,) in duck.rows("SELECT k FROM events ORDER BY k")] == keys
    assert lake.checkpoint().failed_steps == ()
    sound = lake.check(level="rows")
    assert set(sound.by_code) <= {"orphaned-file", "table-bounds-unknown"}, str(sound)
    assert sorted(lake.table("events").scan(columns=["k"]).to_arrow()["k"].to_pylist()) == keys
