"""Transactions, failures and their classes, and connections that outlive servers, forks and pickles."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, event, func, insert, select, text

from ducklake_core.catalog.database import server_connections
from ducklake_core.catalog.database.bootstrap import create_catalog
from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.errors import CatalogError, CatalogUnavailableError
from tests.support.oracle import LakeAddress
from tests.unit.catalog.catalog_access import database_of


@pytest.fixture
def database(lake_address: LakeAddress) -> Database:
    """The database of a new lake."""
    made = database_of(lake_address)
    create_catalog(made, lake_address.data_path)
    return made


def snapshot_row(number: int) -> dict[str, object]:
    return {"snapshot_id": number, "snapshot_time": datetime.now(UTC), "schema_version": 0, "next_catalog_id": 1, "next_file_id": 0}


def count(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(database.tables["snapshot"])).scalar_one())


def test_write_commits_at_the_end_and_rolls_back_on_any_error(database: Database) -> None:
    snapshot = database.tables["snapshot"]
    with database.write() as connection:
        connection.execute(insert(snapshot), snapshot_row(1))
    assert count(database) == 2
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(database)
    assert count(database) == 2
    with database.write() as connection:
        connection.execute(text("CREATE TABLE other (a BIGINT)"))


def _write_and_fail(database: Database) -> None:
    with database.write() as connection:
        connection.execute(insert(database.tables["snapshot"]), snapshot_row(2))
        if not database.abilities.commits_at_ddl:
            connection.execute(text("CREATE TABLE other (a BIGINT)"))
        raise ZeroDivisionError


def test_ctrl_c_just_before_the_drivers_commit_leaves_no_transaction_behind(database: Database) -> None:
    def interrupt(_connection: Connection) -> None:
        raise KeyboardInterrupt

    assert count(database) == 1
    event.listen(database._current_engine(), "commit", interrupt)
    for work in (_write_a_snapshot, count):
        with pytest.raises(KeyboardInterrupt):
            work(database)
    event.remove(database._current_engine(), "commit", interrupt)
    assert count(database) == 1
    _write_a_snapshot(database)
    assert count(database) == 2


def _write_a_snapshot(database: Database) -> None:
    with database.write() as connection:
        connection.execute(insert(database.tables["snapshot"]), snapshot_row(1))


def test_values_are_alike_on_both_databases(database: Database) -> None:
    tables = database.tables
    at = datetime(2024, 7, 1, 22, 30, 0, 120000, tzinfo=timezone(timedelta(hours=9)))
    with database.write() as connection:
        connection.execute(insert(tables["snapshot"]), snapshot_row(1) | {"snapshot_time": at})
    with database.read() as connection:
        assert (
            connection.execute(select(tables["snapshot"].c.snapshot_time).where(tables["snapshot"].c.snapshot_id == 1)).scalar_one() == at
        )
        (schema,) = connection.execute(select(tables["schema"])).all()
        assert schema.path_is_relative is True
        assert len(schema.schema_uuid) == 36
        assert connection.execute(select(tables["schema"].c.schema_id).where(tables["schema"].c.path_is_relative)).scalar_one() == 0
        assert abs(database.now(connection) - datetime.now(UTC)) < timedelta(seconds=30)
    if database.abilities.timestamp_as_text:
        with database.read() as connection:
            stored = connection.execute(text("SELECT snapshot_time FROM ducklake_snapshot WHERE snapshot_id = 1")).scalar_one()
        assert stored == "2024-07-01 13:30:00.12+00"


def test_a_read_sees_one_state(database: Database) -> None:
    snapshot = database.tables["snapshot"]
    with database.read() as reader:
        query = select(func.count()).select_from(snapshot)
        assert reader.execute(query).scalar_one() == 1
        if database.abilities.concurrent_writers:
            with database.write() as connection:
                connection.execute(insert(snapshot), snapshot_row(1))
        else:
            with pytest.raises(CatalogUnavailableError) as caught, database.write() as connection:
                connection.execute(insert(snapshot), snapshot_row(1))
            assert classify(caught.value) == "retry"
        assert reader.execute(query).scalar_one() == 1


def test_a_taken_snapshot_id_is_to_be_retried(database: Database) -> None:
    with pytest.raises(CatalogUnavailableError) as caught, database.write() as connection:
        connection.execute(insert(database.tables["snapshot"]), snapshot_row(0))
    assert classify(caught.value) == "retry"
    assert caught.value.retriable
    assert classify(pickle.loads(pickle.dumps(caught.value))) == "retry"


def test_a_commit_that_loses_a_race_logs_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    snapshot = database.tables["snapshot"]

    def lose() -> None:
        with database.commit() as statements:
            statements.run(None, lambda: insert(snapshot), snapshot_row(0))
            answer = statements.fetch(None, lambda: select(snapshot.c.snapshot_id))
            statements.run(None, lambda: insert(snapshot), snapshot_row(1))
            answer()

    with pytest.raises(CatalogUnavailableError):
        lose()
    assert caplog.records == []
    with database.commit() as statements:
        statements.run(None, lambda: insert(snapshot), snapshot_row(1))
    with database.read() as reader:
        assert reader.execute(select(func.max(snapshot.c.snapshot_id))).scalar_one() == 1


def test_a_rejected_statement_is_fatal(database: Database) -> None:
    with pytest.raises(CatalogError) as caught, database.read() as connection:
        connection.execute(text("SELECT nothing FROM nowhere"))
    assert classify(caught.value) == "fatal"
    assert not caught.value.retriable
    assert classify(ValueError("no")) == "fatal"


def test_parameters_never_show_in_errors(database: Database) -> None:
    with pytest.raises(CatalogError) as caught, database.write() as connection:
        connection.execute(insert(database.tables["snapshot"]), snapshot_row(0) | {"next_file_id": 987654321})
    shown = [str(caught.value)]
    cause: BaseException | None = caught.value
    while cause is not None:
        shown.append(str(cause))
        cause = cause.__cause__
    assert "987654321" not in " ".join(shown)


def test_a_locked_sqlite_file_is_busy_soon_and_free_later(sqlite_address: LakeAddress) -> None:
    database = database_of(sqlite_address)
    create_catalog(database, sqlite_address.data_path)
    with database.write():
        start = time.monotonic()
        with pytest.raises(CatalogUnavailableError) as caught, database.write():
            pass
        assert classify(caught.value) == "retry"
        assert time.monotonic() - start > 0.5
    with database.write() as connection:
        connection.execute(insert(database.tables["snapshot"]), snapshot_row(1))
    assert count(database) == 2


def test_errors_of_a_file_name_no_server(tmp_path: Path) -> None:
    with (
        pytest.raises(CatalogUnavailableError, match="Check the path, its permissions, and its disk"),
        Database(parse_catalog_url(f"sqlite:{tmp_path}")).read(),
    ):
        pass


def test_unreachable_databases_are_unavailable_and_keep_the_secret(tmp_path: Path) -> None:
    for url in (f"sqlite:{tmp_path / 'none' / 'lake.sqlite'}", "postgresql://me:hush@127.0.0.1:1/lake"):
        with pytest.raises(CatalogUnavailableError) as caught, Database(parse_catalog_url(url)).read():
            pass
        assert classify(caught.value) == "unavailable"
        assert "hush" not in repr(caught.value) + str(caught.value.__cause__)
    assert list(tmp_path.iterdir()) == []


def end_other_sessions(postgres: Any, address: LakeAddress) -> None:
    name = address.url.split("@/")[1].split("?")[0]
    with psycopg.connect(f"host={postgres.socket} user={postgres.user} dbname=postgres", autocommit=True) as connection:
        # With a time limit the server waits until the session has ended.
        connection.execute("SELECT pg_terminate_backend(pid, 240000) FROM pg_stat_activity WHERE datname = %s", (name,))


def _write_interrupted(database: Database, interrupt: Callable[[], None], *, before: bool) -> None:
    """Write a row; the connection is lost before it is sent, or right before COMMIT."""
    with database.write() as connection:
        if before:
            interrupt()
        connection.execute(insert(database.tables["snapshot"]), snapshot_row(1))
        if not before:
            interrupt()


def test_a_pooled_connection_that_died_is_replaced(postgres: Any, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    database = database_of(address)
    create_catalog(database, address.data_path)
    for _ in range(3):
        assert count(database) == 1
        end_other_sessions(postgres, address)
    assert count(database) == 1
    database.close()
    assert count(database) == 1


def test_idle_connections_are_tested_before_use(postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = postgres.lake(tmp_path)
    database = database_of(address)
    create_catalog(database, address.data_path)
    monkeypatch.setattr(server_connections, "_PING_AFTER_IDLE_SECONDS", -1.0)
    for _ in range(3):
        assert count(database) == 1


def test_a_connection_lost_within_a_transaction_surely_failed(postgres: Any, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    database = database_of(address)
    create_catalog(database, address.data_path)
    with pytest.raises(CatalogUnavailableError) as caught:
        _write_interrupted(database, lambda: end_other_sessions(postgres, address), before=True)
    assert classify(caught.value) == "unavailable"
    assert count(database) == 1


def test_a_connection_lost_at_commit_has_an_unknown_outcome(postgres: Any, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    database = database_of(address)
    create_catalog(database, address.data_path)
    with pytest.raises(CatalogUnavailableError) as caught:
        _write_interrupted(database, lambda: end_other_sessions(postgres, address), before=False)
    assert classify(caught.value) == "outcome-unknown"
    assert count(database) == 1


def test_copies_work_and_the_original_stays_usable(database: Database) -> None:
    assert count(database) == 1
    copy: Database = pickle.loads(pickle.dumps(database))
    assert count(copy) == 1
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(count(database))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 8


def test_a_forked_child_opens_its_own_connections(database: Database) -> None:
    assert count(database) == 1
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(count(database)))
    child.start()
    assert results.get(timeout=240) == 1
    child.join(240)
    assert child.exitcode == 0
    assert count(database) == 1


def test_a_forgotten_database_closes_its_connections(database: Database, lake_address: LakeAddress) -> None:
    other = database_of(lake_address)
    assert count(other) == 1
    del other
    gc.collect()
    assert count(database) == 1


def test_a_fork_while_another_thread_opens_connections(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that holds the lock does not live on in the child."""
    database.close()
    opening, forked = threading.Event(), threading.Event()
    real = Database._new_engine

    def slowly(self: Database) -> object:
        opening.set()
        forked.wait(240)
        return real(self)

    monkeypatch.setattr(Database, "_new_engine", slowly)
    thread = threading.Thread(target=lambda: count(database))
    thread.start()
    opening.wait(240)
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def child_counts() -> None:
        monkeypatch.undo()
        results.put(count(database))

    child = context.Process(target=child_counts)
    child.start()
    try:
        assert results.get(timeout=240) == 1
    finally:
        forked.set()
        thread.join(240)
        child.kill()
        child.join(240)
    assert count(database) == 1
