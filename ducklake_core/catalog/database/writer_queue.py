"""Let writers of a PostgreSQL catalog commit one after another, without starving writers of other programs.

Writers of this library queue for a lease, an advisory lock that its transaction holds to the end. DuckDB does not take the lease; it
commits optimistically and tries again after a conflict. When commits without a commit id were seen, the holder of the lease makes room::

    writer A   wait for lease | pause 10 ms | wait for young transactions of others | read head ... COMMIT
    writer B   wait for lease ........................................................................... | pause ...
    DuckDB                      BEGIN ... read ... INSERT ... COMMIT (succeeds: no commit of A or B in between)

Timeouts keep the queue moving: a silent holder loses its session after 5 seconds, and a writer that waits for 10 seconds goes without.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Double,
    Executable,
    Integer,
    Select,
    String,
    bindparam,
    case,
    cast,
    column,
    func,
    select,
    table,
    true,
)

from ducklake_core.catalog.database.failures import classify, waited_in_vain
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.errors import DuckLakeError

LEASE_WAIT_SECONDS = 10.0
"""Seconds for which a writer waits for the lease; then it commits without, as DuckDB does."""
LEASE_SECONDS = 5.0
"""Initial seconds after which the server ends the session of a silent holder, such as a stopped process or a lost client."""
MAX_LEASE_SECONDS = 300.0
"""Initial limit, in seconds, of the whole transaction of a holder; needs PostgreSQL 17."""
LOCK_SECONDS = 1.0
"""Seconds for which the holder waits for rows that other clients have locked."""
PAUSE_SECONDS = 0.01
"""Seconds for which the holder leaves the lake to other programs."""
GIVE_WAY_SECONDS, GIVE_WAY_TIMES = 0.005, 10
"""Seconds of one wait for a transaction of another program that began meanwhile, and maximum number of such waits."""
_YOUNG_SECONDS = 0.25
"""Age, in seconds, from which a transaction counts as a reader and not as a commit that is about to end."""
_REMEMBER_SECONDS = 60.0
_PAUSED_UNTIL = "ducklake_core.paused_until"

_ACTIVITY = table(
    "pg_stat_activity",
    *(column(name) for name in ("datname", "application_name", "backend_type", "xact_start")),
    schema="pg_catalog",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """The way in which one commit attempt gets the writer lease.

    Attributes:
        queued: Whether it waits for the lease; without one only the constraints of the database separate writers.
        leases: Factor by which the time limits of the lease are extended.
    """

    queued: bool = True
    leases: int = 1

    def after(self, error: DuckLakeError, *, had_lease: bool) -> LeaseRequest:
        """Return the turn of the next attempt after a failure.

        Args:
            error: The failure.
            had_lease: Whether the failed attempt had the lease.
        """
        # The connection may have been lost because the lease expired. A slow writer needs a longer one; a dead writer does not ask again.
        lost = had_lease and classify(error) in ("unavailable", "outcome-unknown")
        return LeaseRequest(
            queued=had_lease or not waited_in_vain(error), leases=min(self.leases * 2, _MAX_LEASES) if lost else self.leases
        )


_MAX_LEASES = 32


class WriterQueue:
    """The writer lease of one catalog for this process, with the memory of writers that do not take the lease."""

    def __init__(self) -> None:
        self._other_writers_until = float("-inf")

    def expect_other_writers(self) -> None:
        """Make room for writers that do not take the lease, for the next minute.

        DuckDB tries a commit ten times at increasing intervals, and each time fails if another commit ends between its first query and its
        last statement. Without a pause, a queue of writers would rarely leave it such a gap.
        """
        self._other_writers_until = time.monotonic() + _REMEMBER_SECONDS

    def take(self, statements: Statements, schema: str | None, lease: LeaseRequest) -> None:
        """Wait for the lease, which lasts to the end of the transaction, and then for other programs, if any commit here.

        Afterwards waits for locks are short, and the server ends the session of a silent holder.

        Args:
            statements: Statements of the transaction.
            schema: Database schema of the catalog.
            lease: The way to get the lease.
        """
        limits = {
            "locks": _milliseconds(LOCK_SECONDS),
            "lease": _milliseconds(LEASE_SECONDS * lease.leases),
            "whole": _milliseconds(MAX_LEASE_SECONDS * lease.leases),
        }
        if lease.queued:
            statements.run("take lease", _take, {"patience": _milliseconds(LEASE_WAIT_SECONDS), "key": lease_key(schema), **limits})
        else:
            statements.run("lease", _limit, limits)
        if time.monotonic() < self._other_writers_until:
            # From here to COMMIT no other program can begin a commit that succeeds, so it gets some time before.
            statements.run("pause", _pause, {"pause": PAUSE_SECONDS})
            for _ in range(GIVE_WAY_TIMES):
                statements.run("give way", _give_way, {"pause": GIVE_WAY_SECONDS, "young": _YOUNG_SECONDS})


def lease_key(schema: str | None) -> int:
    """Return the key of the advisory lock of a catalog. Locks belong to the database, so the key identifies the schema."""
    name = f"ducklake-core commit {schema}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def _take() -> Executable:
    """Return the query that limits the wait, waits for the lock, and then sets the limits of the lease.

    PostgreSQL evaluates the select list from left to right.
    """
    lock = func.pg_advisory_xact_lock(bindparam("key", type_=BigInteger))
    return select(_set("lock_timeout", "patience"), lock, *_limit().selected_columns)


def _limit() -> Select[Any]:
    """Return the query that sets the limits of a lease, for this transaction only, because a pooler may reuse the session."""
    has_whole = cast(func.current_setting("server_version_num"), Integer) >= _HAS_TRANSACTION_TIMEOUT
    return select(
        _set("lock_timeout", "locks"),
        _set("idle_in_transaction_session_timeout", "lease"),
        case((has_whole, _set("transaction_timeout", "whole"))),
    )


_HAS_TRANSACTION_TIMEOUT = 170_000


def _set(setting: str, name: str) -> ColumnElement[Any]:
    return func.set_config(setting, bindparam(name, type_=String), true())


def _pause() -> Executable:
    """Return the query that sleeps and stores the end of the pause: transactions that begin later are not waited for."""
    over = func.set_config(_PAUSED_UNTIL, cast(func.clock_timestamp(), String), true())
    return select(func.pg_sleep(bindparam("pause", type_=Double)), over)


def _give_way() -> Executable:
    """Return the query that sleeps briefly if another program is in a transaction that began just before."""
    since = func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, bindparam("young", type_=Double))
    # PostgreSQL caches this view for the whole transaction, unless the snapshot is cleared.
    return (
        select(func.pg_stat_clear_snapshot(), func.pg_sleep(bindparam("pause", type_=Double)))
        .select_from(_ACTIVITY)
        .where(
            _ACTIVITY.c.datname == func.current_database(),
            _ACTIVITY.c.application_name != func.current_setting("application_name"),
            _ACTIVITY.c.backend_type == "client backend",
            _ACTIVITY.c.xact_start > since,
            _ACTIVITY.c.xact_start <= cast(func.current_setting(_PAUSED_UNTIL), DateTime(timezone=True)),
        )
        .limit(1)
    )
