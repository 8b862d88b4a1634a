"""Writers of PostgreSQL catalogs take turns: this library's among themselves, and those of other programs are let through."""

from __future__ import annotations

import hashlib
import time

from sqlalchemy import BigInteger, DateTime, Double, Executable, String, bindparam, cast, column, func, select, table, true

from ducklake_core.catalog.statements import Statements

TURN_SECONDS = 30.0
"""How long a writer waits for those before it before it counts as an attempt that failed."""
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


class Turns:
    """What one process knows of those who commit to a catalog without taking turns."""

    def __init__(self) -> None:
        self._others_until = float("-inf")

    def expect_others(self) -> None:
        """Someone commits here who does not take turns: let them end what they began, for the next minute.

        The reference tries again ten times by itself, at ever longer intervals, and each time nobody else may commit between its
        first question and its last statement. Writers that take turns without a pause would hardly leave it such a moment.
        """
        self._others_until = time.monotonic() + _REMEMBER_SECONDS

    def take(self, statements: Statements, schema: str | None) -> None:
        """Wait for one's turn, which lasts to the end of the transaction, and then for others, should there be any."""
        statements.run("turn", _take, {"patience": f"{TURN_SECONDS * 1000:.0f}ms", "key": turn_key(schema)})
        if time.monotonic() < self._others_until:
            # From here to COMMIT nobody else can begin a commit that succeeds; they get as much time in which they can.
            statements.run("pause", _pause, {"pause": PAUSE_SECONDS})
            for _ in range(GIVE_WAY_TIMES):
                statements.run("give way", _give_way, {"pause": GIVE_WAY_SECONDS, "young": _YOUNG_SECONDS})


def turn_key(schema: str | None) -> int:
    """The advisory lock of those who commit to a catalog; the lock is the database's own, the key is its schema's."""
    name = f"ducklake-core commit {schema}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def _take() -> Executable:
    """Wait for the lock that one writer holds to the end of its transaction, though not for ever: it may have been stopped."""
    patience = func.set_config("lock_timeout", bindparam("patience", type_=String), true())
    return select(patience, func.pg_advisory_xact_lock(bindparam("key", type_=BigInteger)))


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
