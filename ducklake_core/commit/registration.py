"""Long writes tell the catalog that they are running, so that a sweep of orphaned files keeps what they are still to commit.

One thread of the process does so for all of its writes; a write that ends before it is old enough costs nothing but an entry of a set.
Whatever goes wrong with the rows, writes go on: before they commit they ask the store for their files.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.writing.writer import forget_running_writes, store_running_writes
from ducklake_core.errors import DuckLakeError

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTER_AFTER = 60.0
"""Seconds from which on a write is registered."""
RENEW_AFTER = 300.0
"""Seconds between two signs of life."""
LOOK_EVERY = 20.0
"""Seconds between two looks at which writes are due."""
_END_SECONDS = 5.0
_log = logging.getLogger(__name__)


class WriteRegistration:
    """The files of one transaction, from its first one on until :meth:`end`. One that nobody holds any more is renewed no more.

    Args:
        database: The catalog that they are to be committed to.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._write_ids: list[str] = []
        self._stored = 0
        self._may_be_stored = False
        self._has_failed = False
        self._has_ended = False
        self._due = 0.0
        self._lock = threading.Lock()

    def add(self, write_id: str) -> None:
        """Note that files whose names carry a write id may be written from now on."""
        self._write_ids.append(write_id)
        if len(self._write_ids) == 1:
            self._due = time.monotonic() + REGISTER_AFTER
            _running.add(self)

    def end(self) -> None:
        """The files are committed or deleted: forget what was stored of them. Waits some seconds at most, and never fails."""
        self._has_ended = True
        if not self._write_ids:
            return
        _running.discard(self)
        # A catalog that does not answer: what was stored counts for an hour, and a sweep removes it then.
        if not self._lock.acquire(timeout=_END_SECONDS):
            return
        try:
            if self._may_be_stored:
                with self._database.write() as connection:
                    forget_running_writes(connection, self._database.tables, self._write_ids)
        except Exception as error:  # noqa: BLE001 - the write has ended, well or not, and its caller has to know how
            _log.info("a write that has ended could not be unregistered in %s: %s", self._database.address, _reason(error))
        finally:
            self._lock.release()

    def tell(self) -> None:
        """Store a sign of life when one is due. Never fails, and waits for nobody who ends the write meanwhile."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._has_ended and self._is_due() and _may_write_beside(self._database):
                self._store(tuple(self._write_ids))
        except Exception as error:  # noqa: BLE001 - the thread tells of the other writes too
            # Said once: it is tried again at each look, for as long as the write takes.
            level = logging.DEBUG if self._has_failed else logging.WARNING
            _log.log(level, "a running write could not be registered in %s, and goes on: %s", self._database.address, _reason(error))
            self._has_failed = True
        finally:
            self._lock.release()

    def _is_due(self) -> bool:
        has_new = 0 < self._stored < len(self._write_ids)
        return has_new or time.monotonic() >= self._due

    def _store(self, write_ids: tuple[str, ...]) -> None:
        self._may_be_stored = True
        with self._database.write() as connection:
            store_running_writes(connection, self._database.tables, write_ids, self._database.now(connection))
        self._stored, self._due = len(write_ids), time.monotonic() + RENEW_AFTER


def _may_write_beside(database: Database) -> bool:
    """Whether a thread may write to a catalog at any moment, whatever else this process does.

    DuckDB brings a SQLite of its own, and two of them in one process do not see each other's locks: a write of one beside a
    transaction of the other may break the file. Whoever uses both one after the other knows nothing of this thread.
    """
    return not (database.address.url.get_backend_name() == "sqlite" and "duckdb" in sys.modules)


def _reason(error: Exception) -> str:
    """What may be logged of an error: the texts of others may hold secrets."""
    return str(error) if isinstance(error, DuckLakeError) else type(error).__name__


@contextmanager
def registered(database: Database, write_id: str) -> Iterator[None]:
    """Files whose names carry a write id are written and committed inside the block."""
    registration = WriteRegistration(database)
    registration.add(write_id)
    try:
        yield
    finally:
        registration.end()


class _RunningWrites:
    """The writes of this process, and the thread that is there as long as there are any."""

    def __init__(self) -> None:
        self._writes: weakref.WeakSet[WriteRegistration] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._has_thread = False

    def add(self, write: WriteRegistration) -> None:
        with self._lock:
            self._writes.add(write)
            if self._has_thread:
                return
            try:
                threading.Thread(target=self._run, name="ducklake-running-writes", daemon=True).start()
                self._has_thread = True
            except RuntimeError as error:
                _log.info("running writes are not registered: %s", error)

    def discard(self, write: WriteRegistration) -> None:
        with self._lock:
            self._writes.discard(write)

    def _run(self) -> None:
        while self._look():
            pass

    def _look(self) -> bool:
        """Wait, and have each write tell that it runs; whether there are any. Holds none of them while it waits."""
        time.sleep(LOOK_EVERY)
        with self._lock:
            writes = list(self._writes)
            self._has_thread = bool(writes)
        for write in writes:
            write.tell()
        return bool(writes)


_running = _RunningWrites()


def _forget_parent() -> None:
    """A forked child has neither the thread nor the writes of its parent."""
    global _running  # noqa: PLW0603
    _running = _RunningWrites()


os.register_at_fork(after_in_child=_forget_parent)
