"""A DuckDB file as catalog: how long it is open, and errors while another process has it open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import func, insert, select

from ducklake_core.catalog.database import sqlite_catalog, url
from ducklake_core.catalog.database.bootstrap import create_catalog, create_file, open_catalog
from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.errors import AlreadyExistsError, CatalogUnavailableError, NotALakeError, UnsupportedFeatureError

HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "main.ducklake"


@pytest.fixture
def database(file: Path) -> Database:
    """A new lake. The file has the name of a database schema, which must not matter."""
    made = Database(parse_catalog_url(f"ducklake:{file}"))
    create_catalog(made)
    return made


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_catalog, "READ_BUSY_SECONDS", 0.3)
    monkeypatch.setattr(sqlite_catalog, "WRITE_BUSY_SECONDS", 0.3)


def count(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(database.tables["snapshot"])).scalar_one())


def add(database: Database, number: int) -> None:
    with database.write() as connection:
        row = {
            "snapshot_id": number,
            "schema_version": 0,
            "next_catalog_id": 1,
            "next_file_id": 0,
            "snapshot_time": database.now(connection),
        }
        connection.execute(insert(database.tables["snapshot"]), row)


@contextmanager
def held(file: Path, mode: str) -> Iterator[int]:
    """The file is open in another process; gives its id."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        try:
            yield process.pid
        finally:
            process.communicate()


def test_the_data_path_is_next_to_the_file(database: Database, file: Path) -> None:
    assert open_catalog(database).data_path == f"{file}.files/"


def test_the_file_is_free_between_transactions(database: Database, file: Path) -> None:
    assert count(database) == 1
    add(database, 1)
    with held(file, "write"):
        pass
    assert sorted(path.name for path in file.parent.iterdir()) == ["main.ducklake"]
    with duckdb.connect(str(file)) as alone:
        assert alone.execute("SELECT count(*) FROM ducklake_snapshot").fetchone() == (2,)


def test_an_interrupted_statement_is_an_interruption(database: Database) -> None:
    """DuckDB would make an error of its own of it."""

    def fetch() -> None:
        with database.read() as connection:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            connection.exec_driver_sql("SELECT sum(range) FROM range(100000000000)")

    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert count(database) == 1


def test_an_instance_serves_many_transactions(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make one takes three times as long as to attach the file."""
    assert count(database) == 1

    def another(*_: object, **__: object) -> None:
        raise AssertionError("a second instance")

    monkeypatch.setattr(duckdb, "connect", another)
    add(database, 1)
    assert count(database) == 2


def test_a_writer_elsewhere_is_named(database: Database, file: Path) -> None:
    with held(file, "write") as process:
        for work in (lambda: count(database), lambda: add(database, 1)):
            start = time.monotonic()
            with pytest.raises(CatalogUnavailableError) as caught:
                work()
            assert time.monotonic() - start > 0.25
            assert classify(caught.value) == "retry"
            assert caught.value.retriable
            assert str(file) in caught.value.message
            assert f"PID {process}" in caught.value.message
            assert "PostgreSQL" in caught.value.message
    add(database, 1)
    assert count(database) == 2


def test_readers_elsewhere_only_stop_writers(database: Database, file: Path) -> None:
    with held(file, "read"):
        assert count(database) == 1
        with pytest.raises(CatalogUnavailableError, match="PID"):
            add(database, 1)
    add(database, 1)


def test_a_short_lock_is_waited_for(database: Database, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_catalog, "READ_BUSY_SECONDS", 240.0)
    found: list[int] = []
    with held(file, "write"):
        thread = threading.Thread(target=lambda: found.append(count(database)))
        thread.start()
        time.sleep(0.2)
        assert found == []
    thread.join(240)
    assert found == [1]


def test_duckdb_in_this_process_must_detach(database: Database, file: Path) -> None:
    with duckdb.connect() as other:
        other.execute(f"ATTACH '{file}' AS taken")
        for work in (lambda: count(database), lambda: add(database, 1)):
            with pytest.raises(CatalogUnavailableError, match=r"connection of this process.*DETACH"):
                work()
        other.execute("DETACH taken")
        assert count(database) == 1
        link = file.with_name("link.ducklake")
        link.symlink_to(file)
        same = Database(parse_catalog_url(f"ducklake:{link}"))
        with same.read(), database.read():
            assert count(same) == 1


def test_transactions_of_one_process_share_the_file(database: Database) -> None:
    numbers = range(1, 25)

    def commit(number: int) -> None:
        while True:
            try:
                return add(database, number)
            except CatalogUnavailableError as error:
                assert classify(error) == "retry"

    threads = [threading.Thread(target=commit, args=[number]) for number in numbers]
    readers = [threading.Thread(target=lambda: [count(database) for _ in range(10)]) for _ in range(3)]
    for thread in (*threads, *readers):
        thread.start()
    for thread in (*threads, *readers):
        thread.join(240)
    assert count(database) == 1 + len(numbers)


def test_a_reader_keeps_its_state_while_a_writer_commits(database: Database) -> None:
    query = select(func.count()).select_from(database.tables["snapshot"])
    with database.write() as writer:
        row = {"snapshot_id": 1, "schema_version": 0, "next_catalog_id": 1, "next_file_id": 0, "snapshot_time": database.now(writer)}
        writer.execute(insert(database.tables["snapshot"]), row)
        assert count(database) == 1
        with database.read() as reader:
            assert reader.execute(query).scalar_one() == 1
            writer.commit()
            assert reader.execute(query).scalar_one() == 1
    assert count(database) == 2


def test_commits_of_a_killed_process_stay(database: Database, file: Path) -> None:
    kill = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]); c.execute('INSERT INTO ducklake_snapshot VALUES (1, now(), 0, 1, 0)'); "
        "c.execute('BEGIN'); c.execute('INSERT INTO ducklake_snapshot VALUES (2, now(), 0, 1, 0)'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", kill, str(file)], check=False)
    assert file.with_name("main.ducklake.wal").exists()
    assert count(database) == 2
    add(database, 2)
    assert count(database) == 3
    assert not file.with_name("main.ducklake.wal").exists()


def test_files_of_other_formats_raise(tmp_path: Path, file: Path) -> None:
    database = Database(parse_catalog_url(f"duckdb:///{file}"))
    with pytest.raises(NotALakeError, match=r"no catalog file.*DuckLake\.create"):
        open_catalog(database)
    with pytest.raises(CatalogUnavailableError, match="no catalog file"), database.read():
        pass
    assert list(tmp_path.iterdir()) == []
    file.write_text("something else")
    with pytest.raises(NotALakeError, match="not a DuckDB database"):
        open_catalog(database)
    with pytest.raises(NotALakeError, match="not a DuckDB database"):
        create_catalog(database)
    assert file.read_text() == "something else"
    file.unlink()
    duckdb.connect(str(file)).close()
    with pytest.raises(NotALakeError, match="no DuckLake catalog"):
        open_catalog(database)


def test_creating_is_exclusive(database: Database, tmp_path: Path) -> None:
    with pytest.raises(AlreadyExistsError):
        create_catalog(database)
    with pytest.raises(FileExistsError):
        create_file(database)
    assert [path.name for path in tmp_path.iterdir()] == ["main.ducklake"]


def test_without_the_package_the_extra_is_named(file: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(url, "import_module", without)
    other = Database(parse_catalog_url(f"duckdb:///{file}"))
    with pytest.raises(UnsupportedFeatureError, match=r"ducklake-dagster\[duckdb\]"):
        count(other)


def test_a_forked_child_does_not_use_what_its_parent_has_open(database: Database) -> None:
    with database.read():
        child = os.fork()
        if child == 0:
            os._exit(0 if count(database) == 1 else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
