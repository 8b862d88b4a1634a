"""Calls between two statements of an operation, and a memory of the rows and changes that each snapshot shows."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError
from tests.support.oracle import Oracle, quoted

PATIENCE = 10.0
"""Seconds after which a call counts as waiting for locks of the operation, though the database does not report it."""
_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}

Rows = Counter[tuple[object, ...]]
IsDue = Callable[[int, str], bool]


class _Statements:
    """Statements of the thread that made this, and something that is called once, before the first of them that is due."""

    def __init__(self, is_due: IsDue, call: Callable[[], None]) -> None:
        self._is_due, self._call = is_due, call
        self._thread = threading.get_ident()
        self.sent: list[str] = []
        self.called_before: str | None = None

    def note(self, statement: str, before_call: Callable[[], None] = lambda: None) -> None:
        if threading.get_ident() == self._thread:
            self.sent.append(statement)
            if self.called_before is None and self._is_due(len(self.sent) - 1, statement):
                self.called_before = " ".join(statement.split())
                before_call()
                self._call()


@contextmanager
def before_statement(is_due: IsDue, call: Callable[[], None]) -> Iterator[_Statements]:
    """Call it before a statement of this thread, through SQLAlchemy or a pipeline of psycopg; COMMIT is one too.

    Args:
        is_due: Returns True for the statement, given its index (from 0) and its SQL text.
    """
    statements, execute = _Statements(is_due, call), psycopg.Cursor.execute

    def note_cursor(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.note(statement)

    def note_commit(_connection: Any) -> None:
        statements.note("COMMIT")

    def note_pipeline(cursor: Any, query: Any, *arguments: Any, **how: Any) -> Any:
        if cursor.connection.pgconn.pipeline_status:
            # Those before it have been carried out by then, as they are without a pipeline.
            statements.note(str(query), cursor.connection._pipeline.sync)
        return execute(cursor, query, *arguments, **how)

    event.listen(Engine, "before_cursor_execute", note_cursor)
    event.listen(Engine, "commit", note_commit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", note_pipeline)
        try:
            yield statements
        finally:
            event.remove(Engine, "before_cursor_execute", note_cursor)
            event.remove(Engine, "commit", note_commit)


class Other:
    """Does something in a thread, which is waited for at first, unless it waits for locks of this thread."""

    def __init__(self, lake: DuckLake, act: Callable[[], None]) -> None:
        self._lake, self._act = lake, act
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until = time.monotonic() + PATIENCE
        while self._thread.is_alive() and time.monotonic() < until and not self._waits():
            self._thread.join(0.1)

    def _waits(self) -> bool:
        with self._lake.database.read() as connection:
            return bool(connection.exec_driver_sql(_WAITING[connection.dialect.name]).scalar_one())

    def end(self) -> None:
        """Wait until it has ended, and raise what it failed of."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._failure = error


@dataclass(frozen=True)
class Look:
    """Rows of each table at a snapshot with their row ids, and the change feed of that snapshot, None where it has none."""

    rows: dict[str, Rows]
    feed: dict[str, Rows] | None


def look(lake: DuckLake, snapshot_id: int) -> Look:
    """Read all tables of a snapshot.

    Raises:
        NotFoundError: It was expired.
    """
    tables = [lake.table(info.table, at=snapshot_id) for info in lake.tables(at=snapshot_id)]
    rows = {table.name: _counted(table.scan(columns=["rowid", *table.schema.names])) for table in tables}
    feed: dict[str, Rows] | None = None
    with suppress(NotFoundError):
        feed = {table.name: _counted(table.changes(snapshot_id, snapshot_id)) for table in tables}
    return Look(rows, feed)


def _counted(read: Any) -> Rows:
    return Counter(tuple(row.values()) for row in read.to_arrow().to_pylist())


class Memory:
    """Rows and changes of each snapshot when it was first read."""

    def __init__(self) -> None:
        self._seen: dict[int, Look] = {}

    def note(self, lake: DuckLake) -> None:
        """Read new snapshots; those that were expired meanwhile are skipped."""
        for snapshot in lake.snapshots():
            if snapshot.id not in self._seen and snapshot.id > 0:
                with suppress(NotFoundError):
                    self._seen[snapshot.id] = look(lake, snapshot.id)

    def check(self, lake: DuckLake, oracle: Oracle | None = None) -> None:
        """Assert that every remaining snapshot shows the same rows and changes, and that new ones changed no row."""
        left = [snapshot.id for snapshot in lake.snapshots() if snapshot.id > 0]
        assert {hold.snapshot_id for hold in lake.holds.list()} <= set(left), "a held snapshot has expired"
        now = {number: look(lake, number) for number in left}
        for number, shows in now.items():
            before = now.get(number - 1)
            if then := self._seen.get(number):
                assert shows.rows == then.rows, f"snapshot {number} shows other rows"
                # Which files ended at a snapshot is known as long as the one before it is there.
                if before is not None and then.feed is not None:
                    assert shows.feed == then.feed, f"snapshot {number} reports other changes"
            elif before is not None:
                assert shows.rows == before.rows, f"snapshot {number} of the operation changed rows"
                assert shows.feed is not None
                assert not any(shows.feed.values()), f"snapshot {number} of the operation has changes"
            if oracle is not None:
                assert {name: _by_duckdb(oracle, name, number) for name in shows.rows} == shows.rows, f"DuckDB at snapshot {number}"


def _by_duckdb(oracle: Oracle, name: str, snapshot_id: int) -> Rows:
    schema, _, table = name.rpartition(".")
    return Counter(oracle.rows(f"SELECT rowid, * FROM {schema}.{quoted(table)} AT (VERSION => {snapshot_id})"))
