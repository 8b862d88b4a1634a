"""Open and pool sessions of database servers, and run transactions on them."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, Protocol

from sqlalchemy import URL, ColumnElement, Connection, Engine, create_engine, event, pool
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DisconnectionError

from ducklake_core.catalog.database.failures import RetryPolicy, may_pass_by_itself
from ducklake_core.catalog.database.statements import CompiledStatement, Statements, shared_statements
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import CatalogAddress
from ducklake_core.catalog.database.writer_queue import LeaseRequest

UNKNOWN_SECONDS = 5.0
"""Seconds for which opening the first session is retried. Short, because the address or the password may be wrong."""
KNOWN_SECONDS = 20.0
"""Seconds for which opening a session is retried after the server has accepted one before."""
_PING_AFTER_IDLE_SECONDS = 30.0
_PROBE_SECONDS = 2.0
_MAX_TRACE_BYTES = 1 << 20
_INVALID_LOGIN = "28P01"


_SESSION_RETRIES = RetryPolicy(first_pause=0.05, growth=2.0, max_pause=2.0, jitter=0.5)


def server_engine(
    url: URL,
    *,
    pool_size: int,
    defaults: Mapping[str, Any],
    may_pass: Callable[[Exception], bool],
    file_number: Callable[[Any], int | None],
    ping: Callable[[Any], object],
    **own: Any,
) -> Engine:
    """Create an engine that retries to open sessions and checks them before they are reused.

    Args:
        url: URL of the database.
        pool_size: Number of sessions that are kept open.
        defaults: Arguments of the driver, unless the address contains them.
        may_pass: Returns whether the server may accept a session later, by the error of the driver.
        file_number: Returns the file number of the socket of a connection; None if it is closed.
        ping: Checks a session with a round trip; raises an error if it is dead.
        own: Further arguments of :func:`sqlalchemy.create_engine`.
    """
    engine = create_engine(
        url,
        pool_size=pool_size,
        pool_use_lifo=True,
        hide_parameters=True,
        execution_options=shared_statements(),
        connect_args={key: value for key, value in defaults.items() if key not in url.query},
        **own,
    )
    event.listen(engine, "do_connect", _Sessions(may_pass).open)
    event.listen(engine, "checkin", _note_idle)
    event.listen(engine, "checkout", _checked(file_number, ping))
    return engine


class _Sessions:
    def __init__(self, may_pass: Callable[[Exception], bool]) -> None:
        self._may_pass = may_pass
        self._are_known = False

    def open(self, dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        attempts = _SESSION_RETRIES.attempts(max_seconds=KNOWN_SECONDS if self._are_known else UNKNOWN_SECONDS)
        while True:
            try:
                connection = dialect.connect(*arguments, **options)
            except Exception as error:
                if not self._may_pass(error) or not attempts.again(error):
                    raise
            else:
                self._are_known = True
                return connection


def may_pass(error: Exception) -> bool:
    """Return whether PostgreSQL may accept a session later, and set the SQLSTATE of the rejection on the error of the driver.

    A server reports that it is at its connection limit (SQLSTATE 53300), that it is starting (57P03), that the password is wrong (28P01)
    or that the database is missing (3D000) before a session exists. libpq does not expose that SQLSTATE, so it is read from a trace of a
    second attempt. Without it, every rejection of a server that answers counts as temporary.
    """
    import psycopg

    if not isinstance(error, psycopg.OperationalError) or error.pgconn is None:
        return False
    if error.pgconn.needs_password:
        error.sqlstate = _INVALID_LOGIN
        return False
    if not _answers(error.pgconn):
        return False
    state = _rejection(error.pgconn)
    if state is None:
        return True
    error.sqlstate = state
    return may_pass_by_itself(state)


def _answers(rejected: Any) -> bool:
    """Return whether the server that rejected a session answers at all."""
    from psycopg import pq

    return pq.PGconn.ping(_address_of(rejected)) in (pq.Ping.OK, pq.Ping.REJECT)


def _rejection(rejected: Any) -> str | None:
    """Return the SQLSTATE with which the server rejects a session; None if it accepts this one, or the trace lacks it."""
    from psycopg import pq

    if not hasattr(os, "memfd_create"):
        return None
    # In memory, never on disk: the trace contains the proof of the password.
    file = os.memfd_create("ducklake-rejection")
    try:
        connection = pq.PGconn.connect_start(_address_of(rejected))
        try:
            connection.trace(file)
            _finish_connecting(connection)
            connection.untrace()
        finally:
            connection.finish()
        found = re.findall(rb'ErrorResponse\t.* C "([0-9A-Z]{5})" M ', os.pread(file, _MAX_TRACE_BYTES, 0))
    finally:
        os.close(file)
    return found[-1].decode() if found else None


def _finish_connecting(connection: Any) -> None:
    from psycopg import pq

    until = time.monotonic() + _PROBE_SECONDS
    while connection.socket >= 0 and (status := connection.connect_poll()) not in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
        waiting = select.poll()
        waiting.register(connection.socket, select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT)
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
            return


def _address_of(rejected: Any) -> bytes:
    # A timeout of its own: if an address accepts connections and closes them at once, libpq's ping waits for the whole timeout.
    words = [option.keyword + b"=" + _quoted(option.val) for option in rejected.info if option.val and option.keyword != b"connect_timeout"]
    return b" ".join((*words, b"connect_timeout=2"))


def _quoted(value: bytes) -> bytes:
    return b"'" + value.replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"


def _note_idle(_connection: Any, record: pool.ConnectionPoolEntry) -> None:
    """Note the time at which a connection returns to its pool."""
    record.info["idle_since"] = time.monotonic()


def _has_news(file_number: int) -> bool:
    """Return whether the socket of an idle connection has data to read."""
    waiting = select.poll()
    waiting.register(file_number, select.POLLIN)
    return bool(waiting.poll(0))


def _checked(
    file_number: Callable[[Any], int | None], ping: Callable[[Any], object]
) -> Callable[[Any, pool.ConnectionPoolEntry, Any], None]:
    """Return a function that replaces dead pooled connections, usually without a round trip.

    The socket of an idle connection is readable only if the server has closed the connection or sent its last error. After a long idle
    time a firewall may have dropped the connection silently, so the server is pinged then.

    Args:
        file_number: See :func:`server_engine`.
        ping: See :func:`server_engine`.
    """

    def check(connection: Any, record: pool.ConnectionPoolEntry, _proxy: Any) -> None:
        if (since := record.info.get("idle_since")) is None:
            return
        socket = file_number(connection)
        if socket is None or _has_news(socket):
            raise DisconnectionError("the server closed this pooled connection")
        if time.monotonic() - since > _PING_AFTER_IDLE_SECONDS:
            try:
                ping(connection)
            except Exception as error:
                raise DisconnectionError("this pooled connection is dead") from error

    return check


@contextmanager
def raw_connection(engine: Engine) -> Iterator[Any]:
    """Borrow a connection of the driver from the pool; a lost one does not return to it."""
    with closing(engine.raw_connection()) as pooled:
        raw: Any = pooled.driver_connection
        try:
            yield raw
        finally:
            if raw.closed:
                pooled.invalidate()


@contextmanager
def in_pipeline(raw: Any) -> Iterator[tuple[Any, Any]]:
    """Put a psycopg connection into pipeline mode and return it with its pipeline.

    The caller sends BEGIN and COMMIT itself, because psycopg would wait for the answer of BEGIN. A connection that was interrupted, or
    cannot leave the mode, is closed: the state of the driver may differ from that of the server. An interrupt such as Ctrl-C leaves the
    block as it is, not as the error that the driver makes of it.
    """
    import psycopg

    raw.autocommit = True
    is_sound = False
    try:
        with raw.pipeline() as pipeline:
            try:
                yield raw, pipeline
            except BaseException:
                # Consume the answers of skipped statements here. The driver would log each of them as an ignored error.
                with suppress(psycopg.Error):
                    pipeline.sync()
                raise
        is_sound = True
    except Exception as error:
        if (interruption := _interruption(error)) is not None:
            raise interruption from None
        is_sound = True
        raise
    finally:
        if not raw.closed and not (is_sound and raw.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF):
            raw.close()
        if not raw.closed:
            if raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raw.rollback()
            raw.autocommit = False


def fetch_alone(raw: Any, statement: CompiledStatement, parameters: Mapping[str, object]) -> list[Any]:
    """Return the rows of one query without a pipeline, BEGIN and COMMIT: a single statement is a transaction of its own.

    Args:
        raw: A psycopg connection.
        statement: The query.
        parameters: Its parameters.
    """
    import psycopg

    raw.autocommit = True
    try:
        cursor = raw.cursor()
        cursor.execute(statement.text, statement.bound(parameters))
        return [statement.row_type(*row) for row in cursor.fetchall()]
    finally:
        if not raw.closed and raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            # The wait for the answer was interrupted; a late answer would be taken for that of the next statement.
            raw.close()
        if not raw.closed:
            raw.autocommit = False


def _interruption(error: BaseException) -> BaseException | None:
    """Return the interrupt, such as Ctrl-C, behind an error of the driver about a busy connection or a lost answer; None for none."""
    before = error.__context__
    while before is not None and isinstance(before, Exception):
        before = before.__context__
    return before


def has_pipelines() -> bool:
    """Return whether libpq supports pipelines (since PostgreSQL 14)."""
    import psycopg

    return psycopg.capabilities.has_pipeline()


class Access(Protocol):
    """The operations that differ between kinds of databases."""

    @property
    def is_pipelined(self) -> bool:
        """Return whether statements go through the pipeline mode of psycopg."""

    @property
    def read_options(self) -> Mapping[str, Any]:
        """Return the execution options of read-only transactions, whose statements all see the same state."""

    @property
    def write_options(self) -> Mapping[str, Any]:
        """Return the execution options of write transactions."""

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """Create an engine; its connections are opened on demand."""

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Limit the seconds for which a transaction waits for locks of other clients."""

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Wait for running commits, and block new ones until the transaction ends."""

    def take_lease(self, statements: Statements, tables: CatalogTables, lease: LeaseRequest) -> None:
        """Wait for the writer lease, for a commit without a pipeline."""

    def copy_file(self, connection: Connection, path: str) -> None:
        """Copy the file of the database, as an open transaction sees it, to a path without a file."""

    def clock(self) -> ColumnElement[Any]:
        """Return the clock of the database as a part of a statement."""
