"""DuckDB files as catalogs: one open handle a process, held only while a transaction runs.

DuckDB locks its file for the whole process that opened it: several processes may read at the same time, a writer is alone. So a
file is open from the begin of a transaction to its end and never in between, transactions that only read open it read-only, and
transactions of one process that overlap share what is open. Whoever comes too late waits a little.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_core.catalog.database.catalog_file import file_exists, forbidden
from ducklake_core.catalog.database.drivers import driver_module
from ducklake_core.errors import CatalogError, CatalogUnavailableError, NotALakeError

if TYPE_CHECKING:
    from types import ModuleType

    from duckdb import DuckDBPyConnection

ALIAS = "ducklake_catalog"
"""The name under which the file is attached; all statements name tables in full, so no name of a user can be mistaken for it."""

_MAGIC = b"DUCK"
_PAUSE_SECONDS = 0.03
_MOST_THREADS = 4


def duckdb_module() -> ModuleType:
    """The ``duckdb`` package.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    return driver_module("duckdb", "a catalog in a DuckDB file", "duckdb")


def create_database(path: str) -> None:
    """Create an empty DuckDB database, where no file is."""
    # DuckDB makes its files with the newest storage version, without which VARIANT columns cannot be stored.
    _attached(path, "STORAGE_VERSION 'latest'").close()


@dataclass(slots=True, kw_only=True)
class _OpenFile:
    """A file as this process has it open."""

    instance: DuckDBPyConnection
    is_writable: bool
    users: int = 0
    has_writer: bool = False


@dataclass(slots=True)
class _Process:
    """The open files of this process by path. One change at a time.

    Attributes:
        spare: An instance of DuckDB with no file, if there is one: to make it takes three times as long as to attach a file.
    """

    turn: threading.Condition = field(default_factory=threading.Condition)
    files: dict[str, _OpenFile] = field(default_factory=dict)
    spare: list[DuckDBPyConnection] = field(default_factory=list)


_process = _Process()
_abandoned: list[_Process] = []


def _forget_parent() -> None:
    """In a forked child the parent's instances have lost their threads: keep them from being used, and from being destroyed."""
    global _process  # noqa: PLW0603
    _abandoned.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_forget_parent)


class Lease:
    """The use of a file for one transaction. Writers of one process take turns; readers share.

    Args:
        path: Absolute path of the file.
        write: Whether the transaction may write.
        patience: Seconds to wait for others, in this process and in other ones.

    Raises:
        CatalogUnavailableError: The file is missing, or somebody else has it.
        NotALakeError: It is no DuckDB database, or a directory.
        CatalogError: This user may not open it.
    """

    def __init__(self, path: str, *, write: bool, patience: float) -> None:
        self._path = os.path.realpath(path)
        self._write = write
        self._process = _process
        self._file = self._wait(path, time.monotonic() + patience)
        self.connection: DuckDBPyConnection = self._file.instance.cursor()
        try:
            self.connection.execute("SET TimeZone = 'UTC'")
            self.connection.execute(f"USE {ALIAS}")
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Give the file up; the last user closes it, which also brings everything committed from the log into the file."""
        file = self._file
        with self._process.turn:
            self.connection.close()
            file.users -= 1
            file.has_writer = file.has_writer and not self._write
            if file.users == 0:
                del self._process.files[self._path]
                _close(file.instance)
            self._process.turn.notify_all()

    def _wait(self, shown: str, deadline: float) -> _OpenFile:
        while True:
            failure: CatalogUnavailableError
            with self._process.turn:
                file = self._process.files.get(self._path)
                if file is None:
                    try:
                        file = self._open(shown)
                    except CatalogUnavailableError as error:
                        if error.details["failure"] != "retry":
                            raise
                        failure = error
                if file is not None:
                    if not self._write or (file.is_writable and not file.has_writer):
                        file.users += 1
                        file.has_writer = file.has_writer or self._write
                        return file
                    failure = _busy(shown, "another transaction of this process is using it", "try again when that has ended")
                    self._process.turn.wait(_PAUSE_SECONDS)
            if time.monotonic() >= deadline:
                raise failure
            if file is None:
                time.sleep(_PAUSE_SECONDS)

    def _open(self, shown: str) -> _OpenFile:
        if not file_exists(self._path, shown):
            raise CatalogUnavailableError(f"there is no catalog file {shown}", failure="unavailable", path=shown)
        duckdb = duckdb_module()
        try:
            instance = _attached(self._path, "READ_WRITE" if self._write else "READ_ONLY")
        except duckdb.BinderException as error:
            raise _busy(
                shown, "another DuckDB connection of this process has it open", "DETACH it there, or use the lake from another process"
            ) from error
        except duckdb.IOException as error:
            raise _explained(self._path, shown, error, write=self._write) from error
        file = self._process.files[self._path] = _OpenFile(instance=instance, is_writable=self._write)
        return file


def _attached(path: str, option: str) -> DuckDBPyConnection:
    """A DuckDB instance of its own that has the file attached under :data:`ALIAS`."""
    instance = _instance()
    quoted = path.replace("'", "''")
    try:
        instance.execute(f"ATTACH '{quoted}' AS {ALIAS} ({option})")
    except BaseException:
        instance.close()
        raise
    return instance


def _instance() -> DuckDBPyConnection:
    with suppress(IndexError):
        return _process.spare.pop()
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    config: dict[str, Any] = {"threads": threads, "autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    made: DuckDBPyConnection = duckdb_module().connect(":memory:", config=config)
    return made


def _close(instance: DuckDBPyConnection) -> None:
    """Give up the file, and keep the instance for the next one."""
    duckdb = duckdb_module()
    try:
        instance.execute(f"DETACH {ALIAS}")
    except duckdb.Error:
        # A checkpoint that fails loses nothing: what is committed stays in the log beside the file.
        instance.close()
        return
    if _process.spare:
        instance.close()
    else:
        _process.spare.append(instance)


def _busy(shown: str, who: str, advice: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(f"the catalog file {shown} is locked: {who}; {advice}", failure="retry", path=shown)


def _explained(path: str, shown: str, error: Exception, *, write: bool) -> CatalogError:
    """Why DuckDB could not open the file, asked of the file itself. Called only while this process does not have it open."""
    if (reason := forbidden(path, shown, write=write)) is not None:
        return reason
    try:
        with Path(path).open("rb") as file:
            is_database = file.read(12)[8:] == _MAGIC
    except OSError as cause:
        return CatalogUnavailableError(f"cannot read the catalog file {shown}: {cause.strerror}", failure="unavailable", path=shown)
    if not is_database:
        return NotALakeError(f"the file {shown} is no DuckDB database, so it holds no DuckLake catalog", path=shown)
    text = " ".join(str(error).split())
    return _busy(
        shown,
        f"DuckDB lets one process write to a file, or several read it ({text})",
        "close or DETACH it there and try again, or keep the catalog in PostgreSQL, which many processes can use at the same time",
    )
