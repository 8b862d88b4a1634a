"""Long writes register in the catalog, and a deletion of orphans keeps their uncommitted files."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import insert, select

from ducklake_core import DuckLake
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.catalog.reading.running_writes import LOST_AFTER, read_running_writes
from ducklake_core.catalog.writing.writer import forget_running_writes, store_running_writes
from ducklake_core.commit import registration
from ducklake_core.errors import CatalogCorruptError, CatalogUnavailableError
from ducklake_core.format.files.paths import new_file_name, write_id
from ducklake_core.maintenance import orphans
from ducklake_core.maintenance.orphans import OrphansResult
from ducklake_core.maintenance.request import BudgetMeter
from ducklake_core.storage.unfinished import UnfinishedUpload
from tests.behaviour.maintenance.test_orphans import left_behind
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql
from tests.support.statements import noted_statements

EVERYTHING: dict[str, Any] = {"cleanup_all": True, "min_age": timedelta(0)}
ROWS = pa.table({"n": range(50)})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are registered as soon as their first file is begun."""
    for name in ("REGISTER_AFTER", "RENEW_AFTER", "CHECK_SECONDS"):
        monkeypatch.setattr(registration, name, 0.02)
    # DuckDB is loaded by other tests; none of these works with it while a write is running.
    monkeypatch.setattr(registration, "_may_write_now", lambda _: True)
    # A thread of an earlier test may wait longer.
    monkeypatch.setattr(registration, "_running", registration._RunningWrites())


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.set_option("data_inlining_row_limit", 0)
    made.write("t", ROWS)
    yield made
    made.close()


@pytest.fixture
def small(sqlite_address: LakeAddress) -> Iterator[DuckLake]:
    """The same where the catalog does not matter."""
    made = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    made.set_option("data_inlining_row_limit", 0)
    made.write("t", ROWS)
    yield made
    made.close()


def running(lake: DuckLake) -> dict[str, str]:
    with lake.database.read() as connection:
        return {one.write_id: str(one.heard) for one in read_running_writes(connection, lake.database.tables)}


def until(found: Callable[[], object]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + 20
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@on_postgresql
@pytest.mark.usefixtures("at_once")
def test_a_sweep_keeps_what_a_write_is_to_commit(lake: DuckLake, lake_address: LakeAddress) -> None:
    orphan = left_behind(Path(lake_address.data_path) / "main" / "t", new_file_name(write_id()))
    with lake.transaction() as tx:
        tx.append("t", ROWS)
        tx.delete("t", "n < 20")
        until(lambda: len(running(lake)) == 2)
        first = running(lake)
        until(lambda: min(running(lake).values()) > max(first.values()))
        plan = lake.delete_orphaned_files(**EVERYTHING, dry_run=True)
        done = lake.delete_orphaned_files(**EVERYTHING)
        for result in (plan, done):
            assert [Path(file.path).name for file in result.files] == [orphan.name]
            assert len(result.kept) >= 2
            assert all("a running write may commit it, last renewed" in file.reason for file in result.kept)
        # Nor does anybody find anything wrong.
        assert lake.check(level="rows").findings == ()
        assert not any("ducklake_core" in name for name in lake.options())
    assert running(lake) == {}
    assert lake.table("t").scan().count() == 60
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 60


@on_postgresql
def test_duckdb_is_not_disturbed(lake_address: LakeAddress) -> None:
    """Check the rows, without the thread: DuckDB has a SQLite of its own, and a DuckDB file is open in one process at a time."""
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        lake.write("t", ROWS)
        with lake.database.write() as connection:
            store_running_writes(connection, lake.database.tables, [write_id()], lake.database.now(connection))
        with attached(lake_address) as duck:
            duck.run("CALL lake.set_option('parquet_compression', 'zstd')", "CREATE TABLE u AS SELECT 1 AS a", "CHECKPOINT lake")
            assert duck.value("SELECT count(*) FROM t") == 50
        assert len(running(lake)) == 1
        assert lake.check(level="rows").findings == ()


def test_sqlite_is_not_written_to_next_to_duckdb(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTER_AFTER", "RENEW_AFTER", "CHECK_SECONDS"):
        monkeypatch.setattr(registration, name, 0.02)
    monkeypatch.setattr(registration, "_running", registration._RunningWrites())
    with small.transaction() as tx, monkeypatch.context() as patch:
        tx.append("t", ROWS)
        patch.setitem(sys.modules, "duckdb", sys)
        time.sleep(0.3)
        assert running(small) == {}
        patch.delitem(sys.modules, "duckdb")
        until(lambda: running(small))
    elsewhere = parse_catalog_url("postgresql+psycopg://u@h/d")
    monkeypatch.setitem(sys.modules, "duckdb", sys)
    assert registration._may_write_now(Database(elsewhere))
    assert not registration._may_write_now(small.database)


@pytest.mark.usefixtures("at_once")
def test_a_write_that_fails_is_forgotten(small: DuckLake) -> None:
    def fail() -> None:
        with small.transaction() as tx:
            tx.append("t", ROWS)
            until(lambda: running(small))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert running(small) == {}
    assert small.delete_orphaned_files(**EVERYTHING, dry_run=True).files == ()


@pytest.mark.usefixtures("at_once")
def test_an_abandoned_write_is_not_renewed(small: DuckLake) -> None:
    tx = small.transaction()
    tx.__enter__().append("t", ROWS)
    until(lambda: running(small))
    del tx
    gc.collect()
    until(lambda: not registration._running._has_thread)
    heard = running(small)
    time.sleep(0.2)
    assert running(small) == heard


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("operation", ["merge_adjacent_files", "rewrite_data_files", "flush_inlined_data"])
def test_maintenance_is_registered(small: DuckLake, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    small.table("t").append(ROWS)
    small.write("u", ROWS)
    small.table("u").delete("n < 49")
    small.set_option("data_inlining_row_limit", 10)
    small.table("t").append(ROWS.slice(0, 5))
    seen: list[dict[str, str]] = []
    commit = type(small.database).commit

    def observed(*arguments: Any) -> Any:
        until(lambda: running(small))
        seen.append(running(small))
        return commit(*arguments)

    monkeypatch.setattr(type(small.database), "commit", observed)
    result = getattr(small, operation)()
    assert not result.failed_steps
    assert seen
    assert running(small) == {}


def test_a_short_write_takes_no_statement(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "store_running_writes", lambda *_: pytest.fail("it was registered"))
    small.table("t").append(ROWS)
    small.table("t").delete("n = 3")
    assert running(small) == {}


@on_postgresql
def test_a_killed_write_expires(lake: DuckLake, lake_address: LakeAddress) -> None:
    killed, young = write_id(), write_id()
    folder = Path(lake_address.data_path) / "main" / "t"
    doomed, kept = left_behind(folder, new_file_name(killed)), left_behind(folder, new_file_name(young))
    with lake.database.write() as connection:
        now = lake.database.now(connection)
        store_running_writes(connection, lake.database.tables, [killed], now - LOST_AFTER)
        store_running_writes(connection, lake.database.tables, [young], now - LOST_AFTER + timedelta(minutes=5))
    assert [file.path for file in lake.delete_orphaned_files(dry_run=True).files] == [str(doomed)]
    assert set(running(lake)) == {killed, young}
    assert [file.path for file in lake.delete_orphaned_files().kept] == [str(kept)]
    assert set(running(lake)) == {young}
    assert (doomed.exists(), kept.exists()) == (False, True)


@pytest.mark.usefixtures("at_once")
def test_a_catalog_that_does_not_answer_ends_no_write(
    small: DuckLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unavailable(*_: object) -> None:
        raise CatalogUnavailableError("the catalog does not answer")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(registration, "store_running_writes", unavailable)
        with small.transaction() as tx:
            tx.append("t", ROWS)
            until(lambda: "could not be registered" in caplog.text)
    assert small.table("t").scan().count() == 100
    monkeypatch.setattr(registration, "forget_running_writes", unavailable)
    with small.transaction() as tx:
        tx.append("t", ROWS)
        until(lambda: running(small))
    assert small.table("t").scan().count() == 150
    # Its row stays until it is lost; its files are the catalog's.
    assert len(running(small)) == 1
    assert small.delete_orphaned_files(**EVERYTHING).kept == ()


@pytest.mark.usefixtures("at_once")
def test_a_failing_registration_stops_no_other(small: DuckLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[object] = []

    def fail(*_: object) -> None:
        failures.append(None)
        raise RuntimeError("password=geheim")

    with monkeypatch.context() as patch:
        patch.setattr(registration, "store_running_writes", fail)
        with small.transaction() as tx:
            tx.append("t", ROWS)
            until(lambda: len(failures) > 3)
        patch.setattr(registration, "forget_running_writes", fail)
        with small.transaction() as tx:
            tx.append("t", ROWS)
            until(lambda: len(failures) > 6)
    # Once for each write, however often it is tried.
    assert caplog.text.count("could not be registered") == 2
    assert "geheim" not in caplog.text
    with small.transaction() as tx:
        tx.append("t", ROWS)
        until(lambda: running(small))
    assert small.table("t").scan().count() == 200


def test_any_number_of_writes_is_a_fixed_number_of_statements(small: DuckLake) -> None:
    counts = []
    for number in (1, 200):
        write_ids = [write_id() for _ in range(number)]
        with small.database.write() as connection, noted_statements() as stored:
            store_running_writes(connection, small.database.tables, write_ids, small.database.now(connection))
        assert len(running(small)) == number
        with small.database.write() as connection, noted_statements() as forgotten:
            forget_running_writes(connection, small.database.tables, write_ids)
        assert running(small) == {}
        counts.append(len(stored) + len(forgotten))
    assert counts == [3, 3]


def test_a_sweep_reports_its_deletions_when_the_registration_cannot_be_removed(
    small: DuckLake, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed, killed, revived = write_id(), write_id(), write_id()
    left_behind(Path(sqlite_address.data_path) / "main" / "t", new_file_name(doomed))

    def store(write_ids: list[str], age: timedelta) -> None:
        with small.database.write() as connection:
            store_running_writes(connection, small.database.tables, write_ids, small.database.now(connection) - age)

    def unavailable(*_: object) -> None:
        raise CatalogUnavailableError("the catalog does not answer")

    store([killed, revived], LOST_AFTER)
    forget = orphans.forget_lost_writes
    with monkeypatch.context() as patch:
        patch.setattr(orphans, "forget_lost_writes", unavailable)
        assert len(small.delete_orphaned_files().files) == 1
    assert set(running(small)) == {killed, revived}

    def late(*arguments: Any) -> None:
        store_running_writes(arguments[0], arguments[1], [revived], arguments[2])
        forget(*arguments)

    # A laptop that slept is heard of again after the sweep has read the rows.
    monkeypatch.setattr(orphans, "forget_lost_writes", late)
    small.delete_orphaned_files()
    assert set(running(small)) == {revived}


def test_an_upload_of_a_write_that_is_registered_meanwhile_goes_on(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [write_id(), write_id()]
    uploads = [
        UnfinishedUpload(path=f"main/t/{new_file_name(one)}", upload_id=one, started=datetime(2026, 1, 1, tzinfo=UTC)) for one in ids
    ]
    aborted: list[str] = []
    monkeypatch.setattr(orphans, "_uploads", lambda *_, **__: (tuple(uploads), None))
    monkeypatch.setattr(orphans, "abort_upload", lambda _, upload: aborted.append(upload.upload_id))
    delete = orphans._delete

    def late(*arguments: Any) -> OrphansResult:
        with small.database.write() as connection:
            store_running_writes(connection, small.database.tables, ids[:1], small.database.now(connection))
        return delete(*arguments)

    monkeypatch.setattr(orphans, "_delete", late)
    done = small.delete_orphaned_files()
    assert aborted == ids[1:]
    assert (done.uploads, [file.path for file in done.kept]) == ((uploads[1],), [uploads[0].path])


@pytest.mark.usefixtures("at_once")
def test_a_forked_child_does_not_renew_writes_of_its_parent(small: DuckLake) -> None:
    with small.transaction() as tx:
        tx.append("t", ROWS)
        until(lambda: running(small))
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                os._exit(int(registration._running._has_thread or len(registration._running._writes) > 0))
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    assert running(small) == {}


@pytest.mark.parametrize("value", ["garbage", "2026-11-24T08:00:00", "", "0001-01-01T00:00:00+14:00"])
def test_a_row_that_cannot_be_read_ends_the_sweep(small: DuckLake, value: str) -> None:
    metadata = small.database.tables["metadata"]
    with small.database.write() as connection:
        connection.execute(insert(metadata).values(key=f"ducklake_core.write:{write_id()}", value=value))
        assert connection.execute(select(metadata.c.value)).all()
    with pytest.raises(CatalogCorruptError, match="Delete that row"):
        small.delete_orphaned_files()
    assert [finding.code for finding in small.check().findings] == ["running-write-invalid"]


def test_a_listing_that_uses_the_whole_deadline_still_deletes(
    small: DuckLake, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        left_behind(Path(sqlite_address.data_path) / "main" / "t", new_file_name(write_id()))
    monkeypatch.setattr(orphans, "_BATCH", 2)
    monkeypatch.setattr(BudgetMeter, "is_out_of_time", property(lambda _: True))
    for deleted, left in ((2, 3), (2, 1), (1, 0)):
        done = small.delete_orphaned_files(max_seconds=1)
        assert (len(done.files), sum(count for _, count in done.left)) == (deleted, left)
