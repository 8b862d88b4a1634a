"""Writers of PostgreSQL catalogs take turns: this library's among themselves, and those of other programs are let through."""

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

TURN_SECONDS = 10.0
"""How long a writer waits for those before it; then it goes without a turn, as DuckDB does."""
LEASE_SECONDS = 5.0
"""How long the server leaves a turn to a writer that says nothing, at first; it ends the session of one that was stopped or cut off."""
LONGEST_TURN_SECONDS = 300.0
"""How long a turn may last at first, whatever the writer says; servers before PostgreSQL 17 have no such limit."""
LOCK_SECONDS = 1.0
"""How long a writer that has its turn waits for rows that others have locked."""
PAUSE_SECONDS = 0.01
"""How long a writer that has its turn leaves the lake to other programs."""
GIVE_WAY_SECONDS, GIVE_WAY_TIMES = 0.005, 10
"""How long it then waits for a transaction of theirs that began meanwhile, and how often."""
_YOUNG_SECONDS = 0.25
"""An older transaction is not a commit that is about to end, but a reader's."""
_REMEMBER_SECONDS = 60.0
_PAUSED_UNTIL = "ducklake_core.paused_until"

_ACTIVITY = table(
    "pg_stat_activity",
    *(column(name) for name in ("datname", "application_name", "backend_type", "xact_start")),
    schema="pg_catalog",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How one attempt to commit gets its turn.

    Attributes:
        queued: Whether it waits for a turn; without one only the database's own constraints keep writers apart.
        leases: How many times the usual lease it gets.
    """

    queued: bool = True
    leases: int = 1

    def after(self, error: DuckLakeError, *, had_turn: bool) -> Turn:
        """That of the next attempt, after a failure.

        Args:
            error: The failure.
            had_turn: Whether it happened after the turn had come.
        """
        # Where the connection was lost the lease may have ended. An honest writer may need a longer one; a stopped one asks no more.
        lost = had_turn and classify(error) in ("unavailable", "outcome-unknown")
        return Turn(queued=had_turn or not waited_in_vain(error), leases=min(self.leases * 2, _MAX_LEASES) if lost else self.leases)


_MAX_LEASES = 32


class WriterQueue:
    """Makes the writers of one process take turns at a catalog, and leaves room for others who commit without taking turns."""

    def __init__(self) -> None:
        self._others_until = float("-inf")

    def expect_others(self) -> None:
        """Someone commits here who does not take turns: let them end what they began, for the next minute.

        DuckDB tries again ten times by itself, at ever longer intervals, and each time nobody else may commit between its
        first question and its last statement. Writers that take turns without a pause would hardly leave it such a moment.
        """
        self._others_until = time.monotonic() + _REMEMBER_SECONDS

    def take(self, statements: Statements, schema: str | None, turn: Turn) -> None:
        """Wait for one's turn, which lasts to the end of the transaction, and then for others, should there be any.

        From then on nothing is waited for longer than a moment, and the server ends the session when it hears nothing more.
        """
        limits = {
            "locks": _milliseconds(LOCK_SECONDS),
            "lease": _milliseconds(LEASE_SECONDS * turn.leases),
            "whole": _milliseconds(LONGEST_TURN_SECONDS * turn.leases),
        }
        if turn.queued:
            statements.run("turn", _take, {"patience": _milliseconds(TURN_SECONDS), "key": turn_key(schema), **limits})
        else:
            statements.run("lease", _limit, limits)
        if time.monotonic() < self._others_until:
            # From here to COMMIT nobody else can begin a commit that succeeds; they get as much time in which they can.
            statements.run("pause", _pause, {"pause": PAUSE_SECONDS})
            for _ in range(GIVE_WAY_TIMES):
                statements.run("give way", _give_way, {"pause": GIVE_WAY_SECONDS, "young": _YOUNG_SECONDS})


def turn_key(schema: str | None) -> int:
    """The advisory lock of those who commit to a catalog; the lock is the database's own, the key is its schema's."""
    name = f"ducklake-core commit {schema}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def _take() -> Executable:
    """Wait for the lock that one writer holds to the end of its transaction, though not for ever; then set the limits.

    PostgreSQL computes what is selected from left to right.
    """
    lock = func.pg_advisory_xact_lock(bindparam("key", type_=BigInteger))
    return select(_set("lock_timeout", "patience"), lock, *_limit().selected_columns)


def _limit() -> Select[Any]:
    """Limits of a turn. They are those of this transaction alone, so that it does not matter whose the session is afterwards."""
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
    """Sleep, and note when that was over: who begins later is not waited for."""
    over = func.set_config(_PAUSED_UNTIL, cast(func.clock_timestamp(), String), true())
    return select(func.pg_sleep(bindparam("pause", type_=Double)), over)


def _give_way() -> Executable:
    """Sleep for a moment if another program is in a transaction that began just before."""
    since = func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, bindparam("young", type_=Double))
    # A transaction goes on seeing this view as it was at first, unless it forgets that.
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
