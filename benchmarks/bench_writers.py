"""Eight processes that append one row after another to one table on PostgreSQL, in a lake that DuckDB made, compared with DuckDB.

Run with ``python -m benchmarks.bench_writers``. All start together; rows go into the catalog, as is the default of both. A writer of
DuckDB that runs out of retries goes on with its next row, and the rows that failed are counted.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import start_server

WRITERS = 8
COMMITS = 50


@dataclass(frozen=True)
class Race:
    """Results of the writers of one side: commits, failures, seconds from the start of the first to the end of the last."""

    committed: int
    failed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Commits a second."""
        return self.committed / self.seconds


def append_core(address: LakeAddress, commits: int, ready: Any, done: Any) -> None:
    """One writer with this library."""
    lake = DuckLake.connect(address.url)
    lake.table("t")
    row = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})

    def append() -> None:
        lake.table("t").append(row)

    _write(append, DuckLakeError, commits, ready, done)


def append_duckdb(address: LakeAddress, commits: int, ready: Any, done: Any) -> None:
    """One writer with DuckDB."""
    import duckdb

    with attached(address) as duck:
        duck.rows("SELECT count(*) FROM t")
        _write(lambda: duck.run("INSERT INTO t VALUES (1, 'x')"), duckdb.Error, commits, ready, done)


def _write(append: Callable[[], None], error: type[Exception], commits: int, ready: Any, done: Any) -> None:
    failed = 0
    ready.wait()
    started = time.time()
    for _ in range(commits):
        try:
            append()
        except error:
            failed += 1
    done.put((failed, started, time.time()))


def race(writer: Callable[..., None], address: LakeAddress, writers: int = WRITERS, commits: int = COMMITS) -> Race:
    """Start the writers together and wait for them."""
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(writers), context.Queue()
    processes = [context.Process(target=writer, args=(address, commits, ready, done)) for _ in range(writers)]
    for process in processes:
        process.start()
    found = [done.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    failed = sum(failures for failures, _, _ in found)
    seconds = max(end for _, _, end in found) - min(start for _, start, _ in found)
    return Race(writers * commits - failed, failed, seconds)


def run(rounds: int = 3) -> None:
    """Measure in turns, and print a line a round and the medians as JSON."""
    server = start_server()
    results: dict[str, list[Race]] = {"ducklake_core": [], "DuckDB": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, writer in (("ducklake_core", append_core), ("DuckDB", append_duckdb)):
                address = server.lake(Path(folder) / f"{name}{number}")
                with attached(address) as duck:
                    duck.run("CREATE TABLE t (a INT, b VARCHAR)")
                found = race(writer, address)
                lake = DuckLake.connect(address.url)
                rows = lake.table("t").info().row_count
                assert rows == found.committed, (rows, found)
                lake.close()
                results[name].append(found)
                sys.stdout.write(f"{name}: {found.rate:.0f} commits/s, {found.failed} of {WRITERS * COMMITS} failed\n")
    print(json.dumps({"benchmark": "writers", **{name: sorted(race.rate for race in races) for name, races in results.items()}}))


if __name__ == "__main__":
    run()
