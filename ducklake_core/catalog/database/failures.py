"""Classify database errors by SQLSTATE or driver code, and decide how often work on a catalog is retried.

Every error of a driver gets one of four classes::

    retry             the transaction failed; the same transaction may succeed at once (another writer won, a lock, a deadlock)
    unavailable       the transaction failed; the database cannot be reached, or has no resources
    outcome-unknown   the connection was lost at COMMIT: the transaction may have been committed
    fatal             everything else: repeating it is useless
"""

from __future__ import annotations

import math
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import quote, quote_plus

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ducklake_core.errors import CatalogError, CatalogUnavailableError, DuckLakeError, NotALakeError

Failure: TypeAlias = Literal["retry", "unavailable", "outcome-unknown", "fatal"]
# Unique violation, serialization failure, deadlock, lock not available, and two racing CREATEs of one object.
_RETRY_STATES = frozenset({"23505", "40001", "40P01", "55P03", "42P07", "42P06"})
# Shutdown, crash, start-up, a dropped database, a canceled statement, and sessions that a time limit ended.
_LOST_STATES = frozenset({"57P01", "57P02", "57P03", "57P05", "57014", "25P03", "25P04"})
# Connection exceptions, insufficient resources (connections, disk, memory), and system errors.
_LOST_CLASSES = ("08", "53", "58")
# Ids that another writer has taken, and a file that was replaced by another one since the transaction began.
_RETRY_EXTENDED_CODES = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_ROWID,
        sqlite3.SQLITE_READONLY_DBMOVED,
    }
)
_RETRY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_SCHEMA})
_LOST_CODES = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT})
# MySQL and MariaDB use too few SQLSTATEs to distinguish these errors, but each has a number.
BUSY_CODES = frozenset({1040, 1053, 1203, 1226, 3032})
"""The server has no free session, or none for this user, shuts down, or is in offline mode."""
# A duplicate key, a lock timeout, a deadlock, a table that exists already or was altered since the transaction began, a row that another
# transaction changed (MariaDB 11.6), and a conflict within a replication group.
_RETRY_MYSQL = frozenset({1020, 1050, 1062, 1205, 1213, 1412, 3101, 3572})
# Sessions ended by the server, an administrator or a time limit; a full disk; and errors of the driver: no answer or a broken connection.
_LOST_MYSQL = BUSY_CODES | frozenset(
    {0, 1021, 1047, 1077, 1079, 1114, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 1969}
    | {2002, 2003, 2006, 2013, 2014, 2027, 2055, 3024, 3169, 4031}
)
# A statement or a value is longer than the database accepts: two errors of the server, one of the driver.
TOO_LONG_IN_MYSQL = 1153
_TOO_LONG_MYSQL = frozenset({TOO_LONG_IN_MYSQL, 1301, 2020})
_NO_ENTRY_IN_MYSQL = frozenset({1044, 1045, 1698})
_RECOGNIZABLE = 6
"""Minimum length of a secret that is masked everywhere; shorter ones are masked only where a message marks them as passwords."""

READERS_SECONDS = 10.0
"""Maximum seconds for which a write to a SQLite file waits for open read transactions, in all of its attempts. DuckDB waits 5 seconds."""


_TOO_LONG_STATE, _TOO_LONG_IN_SQLITE = "54000", "SQLITE_TOOBIG"
_MISSING_TABLE, _MISSING_TABLE_OF_MYSQL = "42P01", 1146
_MISSING_DATABASE, _MISSING_DATABASE_OF_MYSQL = "3D000", 1049
_LOCK_NOT_AVAILABLE, _LOCKED_IN_MYSQL = "55P03", frozenset({1205, 3572})


def code_of_mysql(error: BaseException | None) -> int | None:
    """Return the number of an error of PyMySQL, 0 if it has none; None for errors of other drivers."""
    if error is None or not type(error).__module__.startswith("pymysql"):
        return None
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_about_missing_table(error: DBAPIError) -> bool:
    """Return whether a statement failed on a server because its table does not exist."""
    return getattr(error.orig, "sqlstate", None) == _MISSING_TABLE or code_of_mysql(error.orig) == _MISSING_TABLE_OF_MYSQL


def is_about_login(error: DuckLakeError) -> bool:
    """Return whether a server rejected the user, or the access of the user to the database."""
    return str(error.details.get("sqlstate", "")).startswith("28") or error.details.get("mysql_error") in _NO_ENTRY_IN_MYSQL


def is_about_missing_database(error: DuckLakeError) -> bool:
    """Return whether a server has no database of the name in the address."""
    return error.details.get("sqlstate") == _MISSING_DATABASE or error.details.get("mysql_error") == _MISSING_DATABASE_OF_MYSQL


def is_about_length(error: DuckLakeError) -> bool:
    """Return whether a statement or a value was longer than the database accepts."""
    details = error.details
    return (
        details.get("mysql_error") in _TOO_LONG_MYSQL
        or details.get("sqlite_error") == _TOO_LONG_IN_SQLITE
        or details.get("sqlstate") == _TOO_LONG_STATE
    )


def may_be_about_length(error: BaseException) -> bool:
    """Return whether a MySQL server may have closed the session because a statement was too long."""
    return code_of_mysql(error) in _LOST_MYSQL


def may_pass_by_itself(state: str) -> bool:
    """Return whether a server that rejects a session with this SQLSTATE may accept one later: it starts, or lacks resources."""
    return state in _LOST_STATES or state.startswith(_LOST_CLASSES)


def waited_in_vain(error: DuckLakeError) -> bool:
    """Return whether a wait for a lock timed out."""
    return error.details.get("sqlstate") == _LOCK_NOT_AVAILABLE or error.details.get("mysql_error") in _LOCKED_IN_MYSQL


def is_blocked_by_readers(error: BaseException | None) -> bool:
    """Return whether a COMMIT to a SQLite file failed because other connections have read transactions open."""
    return isinstance(error, DuckLakeError) and error.details.get("blocked_by") == "readers"


def classify(error: BaseException) -> Failure:
    """Return the class of an error of a driver, or of the CatalogError that wraps one; see the module.

    An error of a driver itself is never ``outcome-unknown``, because it does not show whether COMMIT was sent.
    """
    if isinstance(error, DuckLakeError):
        known = error.details.get("failure")
        return known if known in ("retry", "unavailable", "outcome-unknown") else "fatal"
    return _classify(error, at_commit=False)


def _classify(error: BaseException, *, at_commit: bool) -> Failure:
    if isinstance(error, PoolTimeoutError | DisconnectionError):
        return "unavailable"
    if not isinstance(error, DBAPIError):
        return "fatal"
    cause = error.orig
    code = getattr(cause, "sqlite_errorcode", None)
    lost: Failure = "outcome-unknown" if at_commit else "unavailable"
    if code is not None:
        if code in _RETRY_EXTENDED_CODES or code & 0xFF in _RETRY_CODES:
            return "retry"
        return lost if code & 0xFF in _LOST_CODES else "fatal"
    if (number := code_of_mysql(cause)) is not None:
        if number in _TOO_LONG_MYSQL:
            return "fatal"
        return "retry" if number in _RETRY_MYSQL else lost if number in _LOST_MYSQL or error.connection_invalidated else "fatal"
    if type(cause).__module__ == "_duckdb":
        return _of_duckdb(cause, lost)
    state = getattr(cause, "sqlstate", None)
    if state in _RETRY_STATES:
        return "retry"
    if state is None:
        # Without a SQLSTATE the server never answered: libpq itself reports a rejected or broken connection.
        return lost if error.connection_invalidated or isinstance(cause, _psycopg_operational()) else "fatal"
    return lost if state == "40003" or may_pass_by_itself(state) else "fatal"


def _of_duckdb(cause: BaseException | None, lost: Failure) -> Failure:
    """Classify an error of DuckDB, which has exception classes instead of codes."""
    import duckdb

    if isinstance(cause, duckdb.ConstraintException | duckdb.TransactionException):
        return "retry"
    return lost if isinstance(cause, duckdb.IOException | duckdb.FatalException | duckdb.InterruptException) else "fatal"


def _psycopg_operational() -> type[Exception]:
    import psycopg

    return psycopg.OperationalError


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Mask secrets in a message of a driver, also in the spellings of an address.

    Short secrets may be parts of words, so they are masked only where the message marks them as passwords.

    Args:
        text: The message.
        secrets: Secrets of the address.

    >>> without_secrets("no login for hush%20hush, password=a at a host", ["hush hush", "a", ""])
    'no login for ***, password=*** at a host'
    """
    spelled = {one for secret in secrets if secret for one in _spellings(secret)}
    for secret in sorted(spelled, key=len, reverse=True):
        if len(secret) >= _RECOGNIZABLE:
            text = text.replace(secret, "***")
        else:
            found = re.escape(secret)
            text = re.sub(
                rf"((?:password|passwd|pwd|secret|token)\s*[=:]\s*['\"]?){found}(?=['\"\s&;,)]|$)|(?<=:){found}(?=@)",
                r"\1***",
                text,
                flags=re.IGNORECASE,
            )
    return text


def _spellings(secret: str) -> tuple[str, ...]:
    """Return the spellings of a secret: plain, in the URL encodings in use (also SQLAlchemy's), and in connection strings."""
    escaped = secret.replace("\\", "\\\\")
    quoted = (escaped.replace("'", "\\'"), escaped.replace('"', '\\"'))
    return (secret, quote(secret), quote(secret, safe=""), quote(secret, safe=" +"), quote_plus(secret), *quoted)


def wrapped(error: SQLAlchemyError, where: str, secrets: Iterable[str], *, at_commit: bool = False) -> CatalogError:
    """Return the error that callers get instead of that of the driver; ``details["failure"]`` stores its class for :func:`classify`.

    Args:
        error: The error of SQLAlchemy or the driver.
        where: Address of the catalog, for the message.
        secrets: Secrets to mask in the message.
        at_commit: Whether COMMIT may have been sent; default False.
    """
    failure = _classify(error, at_commit=at_commit)
    cause = getattr(error, "orig", None) or error
    text = " ".join(without_secrets(str(cause), secrets).split())
    details = {
        "failure": failure,
        "sqlstate": getattr(cause, "sqlstate", None),
        "sqlite_error": getattr(cause, "sqlite_errorname", None),
        "mysql_error": code_of_mysql(cause),
    }
    code = getattr(cause, "sqlite_errorcode", None)
    # With the write lock held since BEGIN IMMEDIATE, only locks of readers can stop a COMMIT.
    if at_commit and code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
        details["blocked_by"] = "readers"
    match failure:
        case "retry" if "blocked_by" in details:
            return CatalogUnavailableError(
                f"Another connection has an open read transaction on the catalog {where}, and SQLite commits only without readers "
                f"({text}). "
                "End that transaction (in DuckDB: COMMIT or ROLLBACK, or read all rows of an open result), and try again",
                **details,
            )
        case "retry":
            return CatalogUnavailableError(f"The catalog {where} was busy with another writer ({text}). Try again", **details)
        case "unavailable" if details["sqlite_error"] is not None:
            advice = "Check the path, its permissions, and its disk"
            return CatalogUnavailableError(f"The catalog {where} cannot be read or written ({text}). {advice}", **details)
        case "unavailable":
            return CatalogUnavailableError(
                f"The catalog {where} cannot be reached ({text}). Check the address, and that the server runs", **details
            )
        case "outcome-unknown":
            return CatalogUnavailableError(f"The connection to the catalog {where} was lost during COMMIT ({text})", **details)
        case _ if code is not None and code & 0xFF == sqlite3.SQLITE_NOTADB:
            return NotALakeError(
                f"The file of {where} is not a SQLite database, so it holds no DuckLake catalog. Check the path, "
                "and write duckdb:/// in place of sqlite:/// for a DuckDB file",
                **details,
            )
        case _ if code is not None and code & 0xFF == sqlite3.SQLITE_READONLY:
            advice = "Give this user the right to write the file and its directory, or open the lake with read_only=True"
            return CatalogError(f"The catalog {where} cannot be written ({text}). {advice}", **details)
        case _:
            found = CatalogError(f"The catalog {where} rejected a statement ({text})", **details)
            if is_about_login(found):
                advice = "Check the user and the password in the address, and that this user may connect to the database"
                return CatalogError(f"The database server rejected the login to the catalog {where} ({text}). {advice}", **details)
            if is_about_missing_database(found):
                advice = "Create the database on the server, or correct the address"
                return CatalogError(f"The database of the catalog {where} does not exist ({text}). {advice}", **details)
            if is_about_length(found):
                return CatalogError(f"A statement or a value is longer than the catalog {where} accepts ({text})", **details)
            return found


@contextmanager
def closed_after_interrupted_commit(connection: Connection) -> Iterator[None]:
    """Close the connection of the driver after a commit that failed or was interrupted.

    SQLAlchemy considers the transaction ended then, although the driver's may still be open. In the pool, the connection would carry it
    into the next transaction.
    """
    try:
        yield
    except BaseException:
        if not connection.closed and not connection.in_transaction():
            connection.invalidate()
        raise


def interruption(error: AssertionError) -> BaseException:
    """Return the interrupt behind an assertion of SQLAlchemy, or the assertion if there is none.

    SQLAlchemy raises an assertion when Ctrl-C arrives before it has noted the end of a transaction.
    """
    cause = error.__context__
    return error if cause is None or isinstance(cause, Exception) else cause


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of how often work is attempted, and pauses between attempts that grow up to a maximum.

    Attributes:
        max_attempts: Maximum number of attempts, including the first one; None when only ``max_seconds`` limits them.
        max_seconds: Maximum time, in seconds, of failed attempts and pauses together: no attempt begins after it.
        first_pause: Seconds to wait after the first failure, before jitter.
        growth: Factor by which each pause is longer than the one before.
        max_pause: Maximum length of a pause in seconds.
        jitter: Random share of a pause, which keeps writers that collided from colliding again:
            with 0.5 half to all of the pause is waited, with 1 nothing to all of it.
    """

    max_attempts: int | None = None
    max_seconds: float = math.inf
    first_pause: float = 0.0
    growth: float = 1.0
    max_pause: float = 0.0
    jitter: float = 0.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after a number of failures in a row, 1 after the first."""
        whole = min(self.first_pause * self.growth ** (failures - 1), self.max_pause)
        return whole * random.uniform(1.0 - self.jitter, 1.0)  # noqa: S311

    def attempts(self, *, max_seconds: float | None = None, sleep: Callable[[float], object] = time.sleep) -> Attempts:
        """Begin to count attempts.

        Args:
            max_seconds: Overrides the limit of the policy; None, the default, keeps it.
            sleep: Waits for a number of seconds; an exception that it raises, such as Ctrl-C, ends the wait and the work.
        """
        return Attempts(self, self.max_seconds if max_seconds is None else max_seconds, sleep)


class Attempts:
    """Count the attempts of some work, and wait between them. Every loop that repeats failed work has this form::

        attempts = policy.attempts()
        while True:
            try:
                return work()
            except CatalogError as error:
                if classify(error) != "retry" or not attempts.again(error):
                    raise

    Loops inside each other share one object where the same failures end both, so that their limits do not multiply.

    Attributes:
        number: Number of the current attempt, from 1.
        total: Number of attempts since the first :meth:`begin`.
        waited: Seconds of all failed attempts and pauses.
    """

    def __init__(self, policy: RetryPolicy, max_seconds: float, sleep: Callable[[float], object]) -> None:
        self._policy = policy
        self._max_seconds = max_seconds
        self._sleep = sleep
        self._blocked = 0.0
        self._since = time.monotonic()
        self.number = 1
        self.total = 0
        self.waited = 0.0

    def begin(self) -> None:
        """Begin other work that the same limit of seconds holds for: attempts count from 1 again."""
        self.number, self._blocked, self._since = 1, 0.0, time.monotonic()
        self.total += 1

    def again(self, error: BaseException | None = None) -> bool:
        """Wait for the next attempt, after one that failed.

        Args:
            error: The error of the failed attempt. It waits for open read transactions of a SQLite file only ``READERS_SECONDS``.

        Returns:
            Whether there is a next attempt; without one it does not wait.
        """
        policy, pause = self._policy, self._policy.pause(self.number)
        is_blocked = is_blocked_by_readers(error)
        self._note_time(is_blocked=is_blocked)
        if policy.max_attempts is not None and self.number >= policy.max_attempts:
            return False
        if self.waited + pause > self._max_seconds or (is_blocked and self._blocked >= READERS_SECONDS):
            return False
        self._sleep(pause)
        self._note_time(is_blocked=is_blocked)
        self.number += 1
        self.total += 1
        return True

    def _note_time(self, *, is_blocked: bool) -> None:
        now = time.monotonic()
        self.waited += now - self._since
        self._blocked += now - self._since if is_blocked else 0.0
        self._since = now


COMMIT_RETRIES = RetryPolicy(max_attempts=25, max_seconds=300.0, first_pause=0.02, growth=1.5, max_pause=2.0, jitter=0.5)
"""Attempts of one commit: short transactions that lose against another writer, or cannot reach the database. All pauses together take at
most 30 seconds; the limit of seconds is for attempts that wait themselves, for a server that does not answer or for locked rows."""

REPLAN_RETRIES = RetryPolicy(max_attempts=60, first_pause=0.03, growth=1.5, max_pause=0.5, jitter=0.7)
"""Plans of one transaction, which finds its rows again after each conflict: that takes long by itself, so pauses stay short. All pauses
together take at most 30 seconds."""

MAINTENANCE_RETRIES = RetryPolicy(max_attempts=12, first_pause=0.05, growth=2.0, max_pause=2.0, jitter=1.0)
"""Transactions of maintenance operations and settings. All pauses together take at most 15 seconds."""


@dataclass(frozen=True, slots=True)
class CallRetries:
    """The attempts of one call of a user, which all of its transactions, plans and commits share.

    So a call waits for other writers and for the database at most six minutes: five in commits, half a minute between plans, and the
    last attempt. The work of the call, such as writing rows, is not limited.

    Attributes:
        commits: Attempts of commits.
        replans: Plans after conflicts.
    """

    commits: Attempts = field(default_factory=COMMIT_RETRIES.attempts)
    replans: Attempts = field(default_factory=REPLAN_RETRIES.attempts)
