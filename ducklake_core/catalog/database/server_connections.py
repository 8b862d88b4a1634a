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
from ducklake_core.catalog.database.writer_queue import Turn

UNKNOWN_SECONDS = 5.0
"""How long a server that refuses a session is asked again, before it has ever given one: the password may be wrong."""
KNOWN_SECONDS = 20.0
"""The same for a server that has given one before."""
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
    """An engine whose sessions are opened with patience, and looked at before they are used again.

    Args:
        url: Of the database.
        pool_size: Sessions that are kept open.
        defaults: What the driver is told unless the address says otherwise.
        may_pass: Whether the reason why the server refuses a session, by the driver's error, may pass: then it is asked again.
        file_number: Of the socket of a driver's connection; None when that is closed.
        ping: Asks the server whether a session is still there; raises when not.
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
    """Return whether PostgreSQL may accept a session later, and note the SQLSTATE of its refusal on the driver's error.

    A server at its connection limit (SQLSTATE 53300), or one that is starting (57P03), says so before there is a session, and so does one
    that rejects a password (28P01) or has no such database (3D000). libpq keeps that SQLSTATE to itself, so it is read from a trace of a
    second attempt. Where the trace does not contain it, every refusal of a server that answers is taken for one that may pass.
    """
    import psycopg

    if not isinstance(error, psycopg.OperationalError) or error.pgconn is None:
        return False
    if error.pgconn.needs_password:
        error.sqlstate = _INVALID_LOGIN
        return False
    if not _answers(error.pgconn):
        return False
    state = _refusal(error.pgconn)
    if state is None:
        return True
    error.sqlstate = state
    return may_pass_by_itself(state)


def _answers(refused: Any) -> bool:
    """Return whether the server that refused a session is there."""
    from psycopg import pq

    return pq.PGconn.ping(_address_of(refused)) in (pq.Ping.OK, pq.Ping.REJECT)


def _refusal(refused: Any) -> str | None:
    """Return the SQLSTATE with which the server refuses a session; None when it accepts this one, or the trace does not contain it."""
    from psycopg import pq

    if not hasattr(os, "memfd_create"):
        return None
    # In memory: the trace contains what proves the password.
    file = os.memfd_create("ducklake-refusal")
    try:
        connection = pq.PGconn.connect_start(_address_of(refused))
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


def _address_of(refused: Any) -> bytes:
    # Of an address that takes connections and closes them at once, libpq's ping waits for an answer as long as it may.
    words = [option.keyword + b"=" + _quoted(option.val) for option in refused.info if option.val and option.keyword != b"connect_timeout"]
    return b" ".join((*words, b"connect_timeout=2"))


def _quoted(value: bytes) -> bytes:
    return b"'" + value.replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"


def _note_idle(_connection: Any, record: pool.ConnectionPoolEntry) -> None:
    """When a connection goes back to its pool."""
    record.info["idle_since"] = time.monotonic()


def _has_news(file_number: int) -> bool:
    """Whether there is something to read from the socket of a connection that was asked nothing."""
    waiting = select.poll()
    waiting.register(file_number, select.POLLIN)
    return bool(waiting.poll(0))


def _checked(
    file_number: Callable[[Any], int | None], ping: Callable[[Any], object]
) -> Callable[[Any, pool.ConnectionPoolEntry, Any], None]:
    """Replaces a dead pooled connection, without a round trip in the usual case.

    An idle connection has nothing to say: when its socket is readable, the server has closed it or said why it will.
    Only after a long idle time, when something between may have dropped it silently, the server is asked.
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
    """The driver's own connection from the pool; one that was lost does not go back to it."""
    with closing(engine.raw_connection()) as pooled:
        raw: Any = pooled.driver_connection
        try:
            yield raw
        finally:
            if raw.closed:
                pooled.invalidate()


@contextmanager
def in_pipeline(raw: Any) -> Iterator[tuple[Any, Any]]:
    """A connection of psycopg in pipeline mode, and its pipeline, where BEGIN and COMMIT are ours: its own BEGIN waits for an answer.

    One that was interrupted, or cannot leave the mode, is closed: what the driver holds of it need not be what the server got. The
    interruption leaves the block, and not what the driver makes of it.
    """
    import psycopg

    raw.autocommit = True
    is_sound = False
    try:
        with raw.pipeline() as pipeline:
            try:
                yield raw, pipeline
            except BaseException:
                # The answers of skipped statements are taken here: the driver would log them as errors that it ignores.
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


def ask_alone(raw: Any, statement: CompiledStatement, parameters: Mapping[str, object]) -> list[Any]:
    """The rows of one query, without a pipeline and without BEGIN and COMMIT: a statement by itself is a transaction."""
    import psycopg

    raw.autocommit = True
    try:
        cursor = raw.cursor()
        cursor.execute(statement.text, statement.bound(parameters))
        return [statement.row_type(*row) for row in cursor.fetchall()]
    finally:
        if not raw.closed and raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            # Somebody interrupted the waiting for the answer.
            raw.close()
        if not raw.closed:
            raw.autocommit = False


def _interruption(error: BaseException) -> BaseException | None:
    """What interrupted the driver, such as Ctrl-C, before an error of its own, which says that it was busy or has lost an answer."""
    before = error.__context__
    while before is not None and isinstance(before, Exception):
        before = before.__context__
    return before


def has_pipelines() -> bool:
    """Whether libpq is new enough for them."""
    import psycopg

    return psycopg.capabilities.has_pipeline()


class Access(Protocol):
    """One kind of database."""

    @property
    def is_pipelined(self) -> bool:
        """Whether statements go through psycopg's pipeline mode."""

    @property
    def read_options(self) -> Mapping[str, Any]:
        """SQLAlchemy's execution options of transactions that only read, and see one state in all of their statements."""

    @property
    def write_options(self) -> Mapping[str, Any]:
        """Those of transactions that write."""

    def engine(self, address: CatalogAddress, *, pool_size: int, connect_timeout: int) -> Engine:
        """A new engine; its connections are made when they are needed."""

    def limit_waits(self, connection: Connection, seconds: float) -> None:
        """Let a transaction wait so long for the locks of others."""

    def keep_commits_out(self, connection: Connection, tables: CatalogTables) -> None:
        """Block commits until the transaction ends, after waiting for commits that have begun."""

    def take_turn(self, statements: Statements, tables: CatalogTables, turn: Turn) -> None:
        """Wait for the turn of a commit whose statements go one after another."""

    def clock(self) -> ColumnElement[Any]:
        """The database's clock as a part of a statement."""
