"""Connections to SQLite files that stay open: they hold nothing, and notice what became of the file."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import func, select, text

from ducklake_core.catalog.database import sqlite_catalog
from ducklake_core.catalog.database.bootstrap import create_catalog
from ducklake_core.catalog.database.connections import Database, classify
from ducklake_core.errors import CatalogError, CatalogUnavailableError
from tests.support.oracle import LakeAddress, attached
from tests.unit.catalog.catalog_access import database_of


@pytest.fixture
def database(sqlite_address: LakeAddress) -> Database:
    """The database of a new lake."""
    made = database_of(sqlite_address)
    create_catalog(made, sqlite_address.data_path)
    return made


@pytest.fixture
def file(database: Database) -> Path:
    """Its file."""
    return Path(str(database.address.url.database))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files, each as often as it is opened."""
    found: list[str] = []
    open_one = sqlite_catalog._opened

    def counting(path: str) -> sqlite_catalog.FileConnection:
        found.append(path)
        return open_one(path)

    monkeypatch.setattr(sqlite_catalog, "_opened", counting)
    return found


def schemas(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(database.tables["schema"])).scalar_one())


def add_schema(database: Database, number: int = 1001) -> None:
    values = {"schema_id": number, "begin_snapshot": 0, "schema_name": f"s{number}", "path": "", "path_is_relative": False}
    with database.write() as connection:
        connection.execute(database.tables["schema"].insert(), values)


def handles(file: Path) -> int:
    """Return the number of open handles of the file in this process."""
    return sum(os.path.realpath(opened.path).startswith(str(file)) for opened in psutil.Process().open_files())


def test_one_connection_for_many_transactions(database: Database, opened: list[str], file: Path) -> None:
    database.close()
    for number in range(3):
        add_schema(database, number + 1)
        assert schemas(database) == 2 + number
    assert opened == [str(file)]


def test_between_transactions_nothing_is_locked(database: Database, file: Path) -> None:
    add_schema(database)
    with database.read() as connection:
        # Rows that are not fetched.
        rows = connection.execute(select(database.tables["schema"]))
        assert rows.fetchone() is not None
    assert handles(file) == 1
    with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("COMMIT")
    with suppress(ZeroDivisionError), database.write() as connection:
        raise ZeroDivisionError
    with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
    assert rows is not None


def test_a_commit_that_readers_held_up_leaves_nothing_locked(database: Database, file: Path) -> None:
    add_schema(database)
    with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM ducklake_schema").fetchone() == (2,)
        with pytest.raises(CatalogUnavailableError) as caught:
            add_schema(database, 7)
        assert classify(caught.value) == "retry"
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("COMMIT")
    add_schema(database, 7)
    assert schemas(database) == 3


def test_changes_by_other_connections_show(database: Database, file: Path, sqlite_address: LakeAddress) -> None:
    assert schemas(database) == 1
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("CREATE TABLE later (a)")
        other.execute("INSERT INTO later VALUES (7)")
    with database.read() as connection:
        assert connection.execute(text("SELECT a FROM later")).scalar_one() == 7
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("ALTER TABLE later ADD COLUMN b DEFAULT 8")
    with database.read() as connection:
        assert connection.execute(text("SELECT * FROM later")).one() == (7, 8)
    with attached(sqlite_address) as duck:
        duck.run("CREATE SCHEMA other")
        assert schemas(database) == 2
        duck.run("CREATE SCHEMA another")
        assert schemas(database) == 3


def test_a_file_that_is_replaced(database: Database, file: Path, tmp_path: Path, opened: list[str]) -> None:
    backup, changed = tmp_path / "backup", tmp_path / "changed"
    shutil.copy(file, backup)
    add_schema(database)
    shutil.copy(file, changed)
    backup.replace(file)
    assert schemas(database) == 1
    assert handles(file) == 1
    file.unlink()
    with pytest.raises(CatalogUnavailableError) as caught:
        schemas(database)
    assert classify(caught.value) == "unavailable"
    assert not file.exists()
    assert handles(file) == 0
    shutil.copy(changed, file)
    assert schemas(database) == 2
    assert len(opened) == 4


def test_a_file_that_is_replaced_within_a_transaction(database: Database, file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "backup")
    with pytest.raises(CatalogUnavailableError) as caught:
        _write_after(database, lambda: (tmp_path / "backup").replace(file))
    assert classify(caught.value) == "retry"
    add_schema(database)
    assert schemas(database) == 2


def _write_after(database: Database, interrupt: Callable[[], object]) -> None:
    with database.write() as connection:
        interrupt()
        connection.execute(text("CREATE TABLE mine (a)"))


def test_a_file_that_is_overwritten(database: Database, file: Path, tmp_path: Path) -> None:
    """Overwritten in place by a backup and by garbage, while no writer is active."""
    shutil.copy(file, tmp_path / "backup")
    add_schema(database)
    shutil.copy(tmp_path / "backup", file)
    assert schemas(database) == 1
    file.write_bytes(b"rubbish" * 1000)
    with pytest.raises(CatalogError) as caught:
        schemas(database)
    assert caught.value.details["sqlite_error"] == "SQLITE_NOTADB"
    shutil.copy(tmp_path / "backup", file)
    assert schemas(database) == 1


def test_write_ahead_logs_are_left_alone(database: Database, file: Path, sqlite_address: LakeAddress, opened: list[str]) -> None:
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    assert schemas(database) == 1
    assert handles(file) == 0
    add_schema(database)
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name]
    with attached(sqlite_address) as duck:
        for number in range(2, 5):
            duck.run(f"CREATE SCHEMA by_duckdb{number}")
            add_schema(database, 100 + number)
    assert schemas(database) == 8
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    opened.clear()
    assert schemas(database) == schemas(database) == 8
    assert len(opened) == 1


def test_a_file_that_could_not_be_written(database: Database, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be writable the next time."""
    database.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert schemas(database) == schemas(database) == 1
    assert len(opened) == 2


def test_a_busy_file_is_waited_for_once(database: Database, file: Path) -> None:
    database.close()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CatalogUnavailableError) as caught:
            add_schema(database)
        assert classify(caught.value) == "retry"
    assert schemas(database) == 1


def test_closed_and_forgotten_databases_close_their_files(database: Database, file: Path, sqlite_address: LakeAddress) -> None:
    assert schemas(database) == 1
    assert handles(file) == 1
    with database.read():
        database.close()
        assert handles(file) == 1
    assert handles(file) == 0
    forgotten = database_of(sqlite_address)
    assert schemas(forgotten) == 1
    assert handles(file) == 1
    del forgotten
    gc.collect()
    assert handles(file) == 0


def test_threads(database: Database, file: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(5):
                while True:
                    try:
                        add_schema(database, 1 + 5 * number + step)
                        break
                    except CatalogUnavailableError:
                        continue
                schemas(database)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert schemas(database) == 31
    assert handles(file) <= 2
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_forked_child_leaves_its_parents_connection_alone(database: Database, file: Path) -> None:
    """It opens its own, and the locks of the parent outlive it."""
    assert schemas(database) == 1
    context = multiprocessing.get_context("fork")
    found = context.Queue()

    def child() -> None:
        found.put(schemas(database))
        add_schema(database, 7)
        found.put(handles(file))
        database.close()
        gc.collect()
        # The parent's handle, which the child must not close.
        found.put(handles(file))

    process = context.Process(target=child)
    process.start()
    process.join(240)
    assert process.exitcode == 0
    assert [found.get(timeout=240) for _ in range(3)] == [1, 2, 1]
    with database.write() as connection:
        second = context.Process(target=lambda: None)
        second.start()
        second.join(240)
        connection.execute(text("CREATE TABLE mine (a)"))
        taken = context.Process(target=_take_lock, args=(file, found))
        taken.start()
        taken.join(240)
        assert found.get(timeout=240) == "SQLITE_BUSY"
    assert schemas(database) == 2


def _take_lock(file: Path, answers: Any) -> None:
    # A process of its own: this one has no connection to the file but in its parent's memory.
    program = f"import sqlite3; sqlite3.connect({str(file)!r}, isolation_level=None, timeout=0).execute('BEGIN IMMEDIATE')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    answers.put("SQLITE_BUSY" if "database is locked" in done.stderr else done.stderr or "free")
