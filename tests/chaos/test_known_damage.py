"""Chaos runs tell damage by DuckDB from violations by the commit that did it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from ducklake_core import DuckLake
from tests.chaos.changes import TABLES, Insert, frame, generated_rows
from tests.chaos.duckdb_writer import DuckDBWriter
from tests.chaos.history import read_history
from tests.chaos.lake import Run, create_lake, read_with_duckdb, read_with_library
from tests.chaos.ledger import FlushBegan, FlushEnded, Intent, Ledger, Result, Success
from tests.chaos.reader import Observation, read_after_run, save_observation
from tests.chaos.verification import verify
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.support.postgres import PostgresServer, reject_drops


def _new_run(folder: Path, catalog: str, address: LakeAddress, database: str, writers: int) -> Run:
    """A run whose updates of savings go to files."""
    for name in ("ledger", "observations"):
        (folder / name).mkdir()
    run = Run(
        catalog=catalog,
        seed=1,
        seconds=0,
        writers=writers,
        duckdb_writers=1,
        operations=frozenset(),
        folder=folder,
        address=address,
        database=database,
    )
    create_lake(run, "create_lake")
    return run


@contextmanager
def _new_writer(run: Run) -> Iterator[DuckDBWriter]:
    writer = DuckDBWriter(run, "d0", 0)
    assert writer.connect()
    yield writer
    if writer.connection is not None:
        writer.connection.close()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    address = sqlite_lake(tmp_path)
    return _new_run(tmp_path, "sqlite", address, address.url.removeprefix("sqlite:///"), writers=0)


@pytest.fixture
def writer(run: Run) -> Iterator[DuckDBWriter]:
    with _new_writer(run) as writer:
        yield writer


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


def _flush_next_to_an_append(run: Run, writer: DuckDBWriter) -> None:
    """Inline deletes in a file of accounts, and flush them in a commit that DuckDB repeats."""
    for _ in range(3):
        _step(writer, "transfer")
    writer.weights = {"flush": 1.0}
    assert writer.begin()
    rows = generated_rows("w0.0.1", 100)
    with DuckLake.connect(run.address.url) as lake:
        ledger = Ledger(run.folder, "w0")
        ledger.append(Intent(operation="w0.0.1", kind="append_large", changes=[Insert("plain", rows)]))
        written = lake.write("plain", frame(rows), create=False, extra_info={"operation": "w0.0.1"})
        ledger.append(Success(operation="w0.0.1", seconds=0, result=Result(snapshot=written.snapshot_id, committed=True)))
    writer.commit()


@pytest.fixture
def run_on_postgres(tmp_path: Path, postgres: PostgresServer) -> Run:
    address = postgres.lake(tmp_path)
    return _new_run(tmp_path, "postgres", address, f"host={postgres.socket} user={postgres.user} dbname={_database(address)}", writers=1)


def _database(address: LakeAddress) -> str:
    return make_url(address.url).database or ""


def test_deletes_that_duckdb_doubles_are_traced_to_its_repeated_flush(run_on_postgres: Run) -> None:
    run = run_on_postgres
    with _new_writer(run) as writer:
        _flush_next_to_an_append(run, writer)
        restarted = DuckDBWriter(run, "d0", 1)
        assert restarted.end_flush()
        _observe(run, writer, "1")
        found = verify(run, [])
        assert found.violations == found.duckdb == []
        (damage,) = found.known
        assert "3 inlined deletes are in delete files as well after the flush d0.0.4" in damage


@pytest.mark.slow
def test_doubled_deletes_without_a_repeated_flush_are_a_violation(run_on_postgres: Run) -> None:
    run = run_on_postgres
    with _new_writer(run) as writer:
        for _ in range(3):
            _step(writer, "transfer")
        _step(writer, "flush")
        (flush,) = (entry for entry in writer.ledger.entries() if isinstance(entry, FlushBegan))
        assert writer.end_flush()
        assert verify(run, []).violations == []
        writer.ledger.append(FlushEnded(operation=flush.operation, base=flush.base, doubled=1))
        assert any("1 inlined deletes are in delete files as well" in violation for violation in verify(run, []).violations)


def test_files_that_duckdb_deletes_after_their_commit_are_traced_to_its_flush(run_on_postgres: Run, postgres: PostgresServer) -> None:
    run = run_on_postgres
    with _new_writer(run) as writer:
        _step(writer, "insert")
        ledger = Ledger(run.folder, "w0")
        with DuckLake.connect(run.address.url) as lake:
            for number, table in enumerate(TABLES):
                ledger.append(Intent(operation=f"w0.0.{number}", kind="add_column", changes=[]))
                lake.table(table).add_column("late", "int64", extra_info={"operation": f"w0.0.{number}"})
        reject_drops(postgres, run.address)
        _step(writer, "insert")
        _step(writer, "flush")
    read_after_run(run, "final_reader")
    found = verify(run, [])
    assert found.violations == []
    assert any("files after it had committed them" in damage for damage in found.known)
    Path(run.folder, "ledger", "d0").write_bytes(b"")
    assert any("files of the catalog are missing" in violation for violation in verify(run, []).violations)
