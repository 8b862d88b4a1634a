"""Reader that reads whole snapshots with both engines, during the run and after it."""

from __future__ import annotations

import pickle
import random
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, NotFoundError
from tests.chaos.changes import TABLES
from tests.chaos.lake import FIRST_SNAPSHOT, Run, TableRead, duckdb_connection, query, read_with_duckdb, read_with_library
from tests.chaos.ledger import Ledger, ReadFailure

_SECONDS_BETWEEN_READS = 2.5
_FINAL_READS = 11


@dataclass(frozen=True, slots=True)
class Observation:
    """Rows that both engines read at a snapshot. ``duckdb`` is empty if DuckDB could not read."""

    snapshot: int
    is_newest: bool
    library: dict[str, TableRead]
    duckdb: dict[str, TableRead]


def read_observations(run: Run) -> list[Observation]:
    """Return all observations of a run."""
    return [pickle.loads(path.read_bytes()) for path in sorted((run.folder / "observations").iterdir())]


def read_during_run(run: Run, name: str) -> None:
    """Read the newest snapshot or a random one every few seconds until the run ends."""
    choose, ledger = random.Random(f"{run.seed}/{name}"), Ledger(run.folder, name)
    lake, connection, number = None, None, 0
    while not run.ended:
        wake = time.time() + _SECONDS_BETWEEN_READS
        while time.time() < wake and not run.ended:
            time.sleep(0.1)
        snapshot = None
        try:
            lake = lake or DuckLake.connect(run.address.url)
            snapshots = _readable(lake)
            snapshot = snapshots[-1] if choose.random() < 0.6 else choose.choice(snapshots)
            read = {table: read_with_library(lake, table, snapshot) for table in TABLES}
        except DuckLakeError as error:
            ledger.append(_failure(run, "library", snapshot, error))
            continue
        lake.close()
        read_by_duckdb: dict[str, TableRead] = {}
        try:
            connection = connection or duckdb_connection(run, read_only=True)
            read_by_duckdb = {table: read_with_duckdb(connection, table, snapshot) for table in TABLES}
        except duckdb.Error as error:
            ledger.append(_failure(run, "DuckDB", snapshot, error))
            connection = None
        number += 1
        save_observation(run, f"{name}-{number:06}", Observation(snapshot, snapshot == snapshots[-1], read, read_by_duckdb))


def read_after_run(run: Run, name: str) -> None:
    """Read the newest snapshot and some random ones. Errors of the library but missing files end the process, which is a violation."""
    ledger = Ledger(run.folder, name)
    lake = DuckLake.connect(run.address.url)
    *older, newest = _readable(lake)
    chosen = [newest, *random.Random(run.seed).sample(older, min(_FINAL_READS - 1, len(older)))]
    read = {}
    for snapshot in chosen:
        try:
            read[snapshot] = {table: read_with_library(lake, table, snapshot) for table in TABLES}
        except NotFoundError as error:
            ledger.append(_failure(run, "library", snapshot, error))
    lake.close()
    connection = duckdb_connection(run, read_only=True)
    for snapshot, by_table in read.items():
        read_by_duckdb: dict[str, TableRead] = {}
        try:
            read_by_duckdb = {table: read_with_duckdb(connection, table, snapshot) for table in TABLES}
        except duckdb.Error as error:
            ledger.append(_failure(run, "DuckDB", snapshot, error))
        save_observation(run, f"{name}-{snapshot:06}", Observation(snapshot, snapshot == newest, by_table, read_by_duckdb))


def _readable(lake: DuckLake) -> list[int]:
    return [snapshot.id for snapshot in lake.snapshots() if snapshot.id >= FIRST_SNAPSHOT]


def save_observation(run: Run, name: str, observation: Observation) -> None:
    """Store an observation."""
    path = Path(run.folder, "observations", name)
    path.with_name(f".{name}").write_bytes(pickle.dumps(observation))
    path.with_name(f".{name}").rename(path)


def _failure(run: Run, engine: str, snapshot: int | None, error: Exception) -> ReadFailure:
    retained = None
    if snapshot is not None:
        with suppress(psycopg.Error, sqlite3.Error):
            retained = bool(query(run, f"SELECT 1 FROM ducklake_snapshot WHERE snapshot_id = {snapshot}"))
    return ReadFailure(engine=engine, snapshot=snapshot, error=type(error).__name__, message=str(error)[:500], retained=retained)
