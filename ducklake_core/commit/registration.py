"""Register long writes in the catalog, so that a sweep of orphaned files keeps files that are written but not yet committed.

The life of a write, in seconds since its first file::

    0 ......... 60 ................ 360 ............... end
    not stored  row inserted        row renewed every 300 s    row deleted

One thread per process serves all writes. A write that ends within the first minute never touches the catalog. A registration that fails
never fails the write: before the commit, the write checks the store for its files.
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
"""Seconds after which a write is registered. Most writes end earlier and never touch the catalog."""
RENEW_AFTER = 300.0
"""Seconds between two renewals of the row, far below the hour that a row is valid."""
CHECK_SECONDS = 20.0
"""Seconds between two checks for writes that are due."""
_END_SECONDS = 5.0
_log = logging.getLogger(__name__)


class WriteRegistration:
    """The uncommitted files of one transaction, from the first one until :meth:`end`.

    The thread holds registrations weakly: an abandoned one is not renewed and expires.

    Args:
        database: The catalog that receives the commit.
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
        """Record that files with a write id in their names may be written from now on."""
        self._write_ids.append(write_id)
        if len(self._write_ids) == 1:
            self._due = time.monotonic() + REGISTER_AFTER
            _running.add(self)

    def end(self) -> None:
        """Delete the stored rows, after the files were committed or deleted. Waits at most 5 seconds and never fails."""
        self._has_ended = True
        if not self._write_ids:
            return
        _running.discard(self)
        # The thread hangs in a catalog that does not answer. The stored rows expire after an hour, and a sweep then deletes them.
        if not self._lock.acquire(timeout=_END_SECONDS):
            return
        try:
            if self._may_be_stored:
                with self._database.write() as connection:
                    forget_running_writes(connection, self._database.tables, self._write_ids)
        except Exception as error:  # noqa: BLE001 - the write has ended, well or not, and its caller has to know how
            _log.info("A finished write could not be unregistered in %s: %s", self._database.address, _reason(error))
        finally:
            self._lock.release()

    def renew(self) -> None:
        """Insert or renew the rows when they are due. Never fails, and never waits for a concurrent :meth:`end`."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._has_ended and self._is_due() and _may_write_now(self._database):
                self._store(tuple(self._write_ids))
        except Exception as error:  # noqa: BLE001 - the thread renews the other writes, too
            # One warning only: every check tries again, for as long as the write takes.
            level = logging.DEBUG if self._has_failed else logging.WARNING
            _log.log(level, "A running write could not be registered in %s, but continues: %s", self._database.address, _reason(error))
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


def _may_write_now(database: Database) -> bool:
    """Return whether a background thread may write to the catalog at any moment.

    DuckDB contains a SQLite of its own. Two SQLite libraries in one process do not see each other's POSIX locks, so a write of one during
    a transaction of the other may corrupt the file. A caller who uses both in sequence cannot know about this thread.
    """
    return not (database.address.url.get_backend_name() == "sqlite" and "duckdb" in sys.modules)


def _reason(error: Exception) -> str:
    """Return the part of an error that is safe to log: messages of other libraries may contain secrets."""
    return str(error) if isinstance(error, DuckLakeError) else type(error).__name__


@contextmanager
def registered(database: Database, write_id: str) -> Iterator[None]:
    """Register a write for the duration of the block, in which its files are written and committed.

    Args:
        database: The catalog.
        write_id: Id that the names of the files contain.
    """
    registration = WriteRegistration(database)
    registration.add(write_id)
    try:
        yield
    finally:
        registration.end()


class _RunningWrites:
    """The writes of this process, and the thread that runs while there are any."""

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
                _log.info("Running writes are not registered: %s", error)

    def discard(self, write: WriteRegistration) -> None:
        with self._lock:
            self._writes.discard(write)

    def _run(self) -> None:
        while self._check_due():
            pass

    def _check_due(self) -> bool:
        """Wait, renew each write, and return whether there are any. Holds no reference to a write while it waits."""
        time.sleep(CHECK_SECONDS)
        with self._lock:
            writes = list(self._writes)
            # Decided under the lock: a write added after this point starts a new thread.
            self._has_thread = bool(writes)
        for write in writes:
            write.renew()
        return bool(writes)


_running = _RunningWrites()


def _forget_parent() -> None:
    """Start with an empty registry in a forked child, which has neither the thread nor the writes of its parent."""
    global _running  # noqa: PLW0603
    _running = _RunningWrites()


os.register_at_fork(after_in_child=_forget_parent)
