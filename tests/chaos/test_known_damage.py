"""Chaos runs tell damage by DuckDB from violations by the commit that did it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.chaos.changes import TABLES
from tests.chaos.duckdb_writer import DuckDBWriter
from tests.chaos.history import read_history
from tests.chaos.lake import Run, create_lake, read_with_duckdb, read_with_library
from tests.chaos.reader import Observation, save_observation
from tests.chaos.verification import verify
from tests.support.oracle import sqlite_lake


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose updates of savings go to files."""
    for name in ("ledger", "observations"):
        (tmp_path / name).mkdir()
    address = sqlite_lake(tmp_path)
    database = address.url.removeprefix("sqlite:///")
    run = Run(
        catalog="sqlite",
        seed=1,
        seconds=0,
        writers=0,
        duckdb_writers=1,
        operations=frozenset(),
        folder=tmp_path,
        address=address,
        database=database,
    )
    create_lake(run, "create_lake")
    return run


@pytest.fixture
def writer(run: Run) -> Iterator[DuckDBWriter]:
    writer = DuckDBWriter(run, "d0", 0)
    assert writer.connect()
    yield writer
    if writer.connection is not None:
        writer.connection.close()


def _step(writer: DuckDBWriter, kind: str) -> None:
    writer.weights = {kind: 1.0}
    assert writer.begin()
    writer.commit()


def _observe(run: Run, writer: DuckDBWriter, name: str) -> None:
    assert writer.connection is not None
    with DuckLake.connect(run.address.url) as lake:
        snapshot = lake.snapshot().id
        read = {table: read_with_library(lake, table, snapshot) for table in TABLES}
    read_by_duckdb = {table: read_with_duckdb(writer.connection, table, snapshot) for table in TABLES}
    save_observation(run, name, Observation(snapshot, True, read, read_by_duckdb))


def _update_and_merge(run: Run, writer: DuckDBWriter) -> None:
    for _ in range(3):
        _step(writer, "transfer")
    _observe(run, writer, "1")
    _step(writer, "merge_files")
    _observe(run, writer, "2")


def test_row_ids_that_duckdb_changes_are_traced_to_its_merge(run: Run, writer: DuckDBWriter) -> None:
    _update_and_merge(run, writer)
    found = verify(run, [])
    assert found.violations == []
    (damage,) = found.known
    assert "table savings: 3 row ids changed" in damage


def test_row_ids_that_no_merge_of_duckdb_changed_are_a_violation(run: Run, writer: DuckDBWriter) -> None:
    _update_and_merge(run, writer)
    ledger = run.folder / "ledger" / "d0"
    lines = ledger.read_bytes().splitlines(keepends=True)
    assert any(read_history(run).merged_row_ids.values())
    # Without the entry of the merge nothing explains the changed row ids.
    ledger.write_bytes(b"".join(lines[:-2]))
    assert not any(read_history(run).merged_row_ids.values())
    assert any("table savings: 3 row ids changed" in violation for violation in verify(run, []).violations)


def test_killed_writers_note_the_merge_when_they_start_again(run: Run, writer: DuckDBWriter) -> None:
    _update_and_merge(run, writer)
    ledger = run.folder / "ledger" / "d0"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-2]))
    restarted = DuckDBWriter(run, "d0", 1)
    assert restarted.connect()
    _step(restarted, "insert")
    assert restarted.connection is not None
    restarted.connection.close()
    found = verify(run, [])
    assert found.violations == []
    assert len(found.known) == 1
