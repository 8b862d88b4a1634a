"""How sessions of a database server are opened: with patience where it has no room, and without prepared statements behind a pooler."""

from __future__ import annotations

import random
import time
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import Dialect

UNKNOWN_SECONDS = 5.0
"""How long a server that refuses a session is asked again, before it has ever given one: the password may be wrong."""
KNOWN_SECONDS = 20.0
"""The same for a server that has given one before."""
_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def open_patiently(engine: Engine) -> None:
    """Make an engine of psycopg's dialect ask again while the server refuses new sessions.

    A server at its connection limit (SQLSTATE 53300), or one that is starting (57P03), says so before there is a session, where the
    driver does not tell why. So every refusal of a server that answers at all is taken for one that may pass.
    """
    state = _Sessions()
    event.listen(engine, "do_connect", state.open)
    event.listen(engine, "connect", _prepare_nothing_behind_a_pooler)


class _Sessions:
    def __init__(self) -> None:
        self._are_known = False

    def open(self, dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        import psycopg

        until, pause = time.monotonic() + (KNOWN_SECONDS if self._are_known else UNKNOWN_SECONDS), _PAUSE
        while True:
            try:
                connection = dialect.connect(*arguments, **options)
            except psycopg.OperationalError as error:
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311
                if time.monotonic() + wait > until or not _answers(error):
                    raise
                time.sleep(wait)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._are_known = True
                return connection


def _answers(error: Any) -> bool:
    """Whether the server that refused a session is there, and may accept one later."""
    from psycopg import pq

    refused = error.pgconn
    if refused is None or refused.needs_password:
        return False
    # Of an address that takes connections and closes them at once, libpq's ping waits for an answer as long as it may.
    words = [option.keyword + b"=" + _quoted(option.val) for option in refused.info if option.val and option.keyword != b"connect_timeout"]
    words.append(b"connect_timeout=2")
    return pq.PGconn.ping(b" ".join(words)) in (pq.Ping.OK, pq.Ping.REJECT)


def _quoted(value: bytes) -> bytes:
    return b"'" + value.replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"


def _prepare_nothing_behind_a_pooler(connection: Any, _record: object) -> None:
    """Statements are prepared in a session, and a pooler may give each transaction another one.

    It is known by the process that it names for the session, which is not the one that answers.
    """
    connection.autocommit = True
    (process,) = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    connection.autocommit = False
    if process != connection.info.backend_pid:
        connection.prepare_threshold = None
