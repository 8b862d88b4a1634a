"""Create isolated DuckDB instances, and let signals interrupt their queries."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.data_types import INT128, INTERVAL, TIME_NS, TIMETZ, UINT128
from ducklake_core.format.values.temporal import is_utc, session_zone
from ducklake_core.storage.waiting import INTERRUPT_SECONDS, result_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


INEXACT_IN_ARROW = (INT128, UINT128, INTERVAL, TIMETZ, TIME_NS)
"""Types whose values DuckDB changes when it exports them to Arrow; they are exported as strings."""
_SETTINGS = {"enable_external_access": "false", "autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}

Result = TypeVar("Result")
_scratch = threading.RLock()
_instances: dict[tuple[int, bool], DuckDBPyConnection] = {}
"""Shared instances by process and whether they may open files. A forked process has none of the threads of its parent's instances: it needs
its own, and must not close the others, so they stay here."""


def _renew_lock() -> None:
    global _scratch  # noqa: PLW0603 - another thread may have held it at the fork
    _scratch = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def new_instance(zone: str | None = None, *, files: bool = False) -> DuckDBPyConnection:
    """Return a new in-memory instance that opens no file and loads no extension.

    Args:
        zone: Its time zone, the effective one when None.
        files: Whether it may open files of this machine. Default: False.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
    """
    connection: DuckDBPyConnection = require_duckdb().connect(
        ":memory:", config={**_SETTINGS, "enable_external_access": str(files).lower()}
    )
    _set_zone(connection, zone or session_zone())
    return connection


def shared_connection(zone: str | None = None) -> DuckDBPyConnection:
    """Lend a connection to an instance that is created once per process, for short queries over registered data that create no objects.

    Args:
        zone: Its time zone, the effective one when None.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
    """
    return _lent(zone or session_zone(), files=False)


@contextmanager
def scratch_connection(*, files: bool = False) -> Iterator[DuckDBPyConnection]:
    """Lend a connection to an instance that is created once per process, for short statements that may create tables and schemas.

    They run in one transaction, so that everything that they create is removed at the end, and no statement runs after one that failed.
    One thread uses it at a time.

    Args:
        files: Whether it may open files of this machine. Default: False.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
    """
    duckdb = require_duckdb()
    with _scratch, _lent(session_zone(), files=files) as connection:
        connection.begin()
        try:
            yield connection
        finally:
            # After an internal error, DuckDB takes no statement any more.
            with suppress(duckdb.FatalException):
                connection.rollback()


def _lent(zone: str, *, files: bool) -> DuckDBPyConnection:
    duckdb, key = require_duckdb(), (os.getpid(), files)
    for _ in range(2):
        if key not in _instances:
            _instances[key] = new_instance(files=files)
        connection = _instances[key].cursor()
        try:
            _set_zone(connection, zone)
        except duckdb.FatalException:
            # An internal error of DuckDB in an earlier statement has made the instance unusable.
            _instances.pop(key, None)
        else:
            return connection
    raise AssertionError


def variant_of(text: str) -> str:
    """Return SQL that makes a variant of a struct of two binaries, which is Arrow's form of it."""
    return f"variant_bytes_to_variant(({text}).metadata || ({text}).value)"


def _set_zone(connection: DuckDBPyConnection, zone: str) -> None:
    import duckdb

    try:
        connection.execute(f"SET TimeZone = '{zone.replace(chr(39), chr(39) * 2)}'")
    except duckdb.FatalException:
        raise
    except duckdb.Error as problem:
        # Without its icu extension, DuckDB has no time zones and no casts that need them.
        if not is_utc(zone):
            connection.close()
            message = f"DuckDB does not know time zone {zone}: {str(problem).splitlines()[0]}. Install duckdb-extension-icu, or use 'UTC'"
            raise UnsupportedFeatureError(message, parameter="timezone") from problem


def is_installed() -> bool:
    """Return whether the optional package is installed."""
    try:
        import_module("duckdb")
    except ImportError:
        return False
    return True


def require_duckdb(otherwise: str | None = None) -> ModuleType:
    """Import the optional package.

    Args:
        otherwise: Beginning of the error message: the feature that needs DuckDB, and an alternative without it. None for no alternative.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    try:
        return import_module("duckdb")
    except ImportError as error:
        missing = "the package duckdb is not installed. Run pip install 'ducklake-dagster[duckdb]'"
        message = missing if otherwise is None else f"{otherwise}, or pip install 'ducklake-dagster[duckdb]'"
        raise UnsupportedFeatureError(message, package="duckdb") from error


def run_interruptibly(connection: DuckDBPyConnection, work: Callable[[], Result]) -> Result:
    """Run work on a connection, and interrupt it when a signal handler raises an exception.

    Only the main thread receives signals; in another thread the work runs as it is.

    Args:
        connection: Connection that the work uses. Interrupt-safe use requires that nothing else uses it meanwhile.
        work: Function that runs queries on the connection.

    Returns:
        The result of the work.

    Raises:
        BaseException: What the signal handler raised, or what the work raised.
    """
    # Python runs signal handlers only between bytecodes of the main thread, which a running query would block. So the query runs on a
    # helper thread, in the context of the caller (its time zone), and the main thread waits in an interruptible call.
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="ducklake-duckdb") as pool:
        future = pool.submit(copy_context().run, work)
        try:
            return result_of(future)
        finally:
            _end(connection, future)


def _end(connection: DuckDBPyConnection, future: Future[Result]) -> None:
    # Work of several queries may begin the next one after an interruption, so that one is not enough.
    while not future.done():
        connection.interrupt()
        wait([future], timeout=INTERRUPT_SECONDS)


_KIND = re.compile(r"\A(?!INTERNAL)[A-Z]\w*(?: \w+){0,3} Error: ")
"""Kind of an error, with which DuckDB's messages begin, such as "Binder Error: "."""
_OUT_OF_RANGE = re.compile(r"Type \w+ with value (.*?) can't be cast because the value is out of range for the destination type (\w+)")
_SOURCE_COLUMN = re.compile(r"(.*) when casting from source column (.+?)", re.DOTALL)
_NAME_OF_TYPE = re.compile(r"'[^']*'|\b(?:U?INT(?:8|16|32|64|128)|BOOL|FLOAT|DOUBLE)\b")


def line_of(problem: BaseException) -> str:
    """Return DuckDB's message without its kind and the position in the SQL text, and how to let SQL read files."""
    line = _KIND.sub("", lines_of(problem)[0], count=1)
    line = _OUT_OF_RANGE.sub(r"\1 is out of range for type \2", line)
    if "onver" in line or "out of range" in line:
        # In SQL, INT8 is BIGINT. In lower case, these names of stored types are types of columns.
        line = _NAME_OF_TYPE.sub(_type_in_message, line)
    line = re.sub(r"\b(STRING|INTEGER)_LITERAL\b", lambda found: "VARCHAR" if found[1] == "STRING" else "INTEGER", line)
    if found := _SOURCE_COLUMN.fullmatch(line):
        line = f"column {found[2]!r}: {found[1]}"
    return f"{line}. Pass files=True to let SQL read files" if "file system operations are disabled" in line else line


def _type_in_message(found: re.Match[str]) -> str:
    if found[0].startswith("'"):
        # A value.
        return found[0]
    return "boolean" if found[0] == "BOOL" else found[0].lower()


def lines_of(problem: BaseException) -> list[str]:
    """Return the lines of a message; at least one."""
    return str(problem).strip().splitlines() or [type(problem).__name__]
