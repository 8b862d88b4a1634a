"""Distinguish kinds of Spark sessions, hold session settings for a time, and make constant frames of the driver's rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.predicates import Predicate, sql_parts
from ducklake_core.format.expressions.sql import to_sql
from ducklake_core.format.types.text import shown
from ducklake_core.format.values.temporal import checked_zone, in_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


TIME_ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
_held: WeakKeyDictionary[SparkSession, dict[str, tuple[int, str | None]]] = WeakKeyDictionary()
"""The number of holders of each held setting, and the user's value, None if the user had set none."""
_lock = threading.Lock()

_NO_ROWS = pa.Table.from_batches([], schema=pa.schema([("id", pa.int64())]))


def _renew_lock() -> None:
    """Replace the lock in a forked child, because a thread of the parent may have held it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def users_setting(session: SparkSession, name: str) -> str | None:
    """Return the user's value of a setting, even while this library has replaced it; None if the user did not set it."""
    with _lock:
        return _users_setting(session, name)


def checked_session(session: Any) -> SparkSession:
    """Return a value that is a Spark session, classic or Connect.

    Raises:
        UsageError: It is not.
    """
    if not hasattr(session, "conf"):
        raise UsageError(f"spark must be a Spark session, not {shown(session)}. Make one with SparkSession.builder.getOrCreate()")
    found: SparkSession = session
    return found


def zone_of(session: SparkSession) -> str:
    """Return the time zone of a session.

    Raises:
        UsageError: Python does not know the zone.
    """
    zone = str(checked_session(session).conf.get(TIME_ZONE, "UTC"))
    try:
        return checked_zone(zone) or zone
    except UsageError as problem:
        raise UsageError(
            f"the setting {TIME_ZONE} of the Spark session is {zone!r}, which Python does not know. Set a name such as 'Europe/Berlin'",
            parameter=TIME_ZONE,
        ) from problem


@contextmanager
def in_session_zone(session: SparkSession | None) -> Iterator[None]:
    """Make the time zone of a session effective for the block; without a session the effective one stays."""
    with in_zone(None if session is None else zone_of(session)):
        yield


@contextmanager
def held_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these for the block; once the last of several threads leaves, restore the user's values.

    Threads share a session and its settings. The first holder remembers the user's value, and the last one restores it::

        thread A    |---- hold: remembers "64mb" ----|
        thread B              |---- hold: count 2 ---------|  restores "64mb"

    An error of the block is raised as it is, even if a lost session rejects the restored settings.
    """
    taken: list[str] = []
    try:
        for name, value in settings.items():
            _take(session, name, value)
            taken.append(name)
        yield
    except BaseException:
        with suppress(Exception):
            _release(session, taken)
        raise
    _release(session, taken)


@contextmanager
def ansi_sql(session: SparkSession) -> Iterator[None]:
    """Evaluate the expressions of frames that are made in the block by ANSI SQL, where an overflow is an error, as in DuckDB.

    Raises:
        UsageError: A session of Spark Connect, which reads expressions later, does not follow ANSI SQL.
    """
    if str(users_setting(session, ANSI) or session.conf.get(ANSI, "true")).lower() == "true":
        yield
        return
    if is_connect(session):
        raise UsageError(
            f"cannot evaluate SQL in a session of Spark Connect while {ANSI} is false, because an overflow would give wrong rows. Set "
            f"{ANSI} to true"
        )
    with held_settings(session, {ANSI: "true"}):
        yield


def filtered(frame: DataFrame, predicate: Predicate) -> DataFrame:
    """Return the rows that satisfy a predicate.

    Raises:
        UsageError: The predicate has SQL, and a session of Spark Connect does not follow ANSI SQL.
        UnsupportedFeatureError: Spark cannot express the predicate.
    """
    with ansi_sql(frame.sparkSession) if sql_parts(predicate) else nullcontext():
        return frame.filter(to_sql(predicate, "spark"))


def _take(session: SparkSession, name: str, value: str) -> None:
    with _lock:
        before = _users_setting(session, name)
        session.conf.set(name, value)
        held = _held.setdefault(session, {})
        count = held[name][0] if name in held else 0
        held[name] = (count + 1, before)


def _release(session: SparkSession, names: Iterable[str]) -> None:
    """Release settings; count all of them down before the first one is restored, because a stopped session rejects that."""
    with _lock:
        held, free = _held.get(session, {}), {}
        for name in names:
            count, before = held.pop(name)
            if count > 1:
                held[name] = (count - 1, before)
            else:
                free[name] = before
        for name, value in free.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


def _users_setting(session: SparkSession, name: str) -> str | None:
    held = _held.get(session, {})
    return held[name][1] if name in held else session.conf.get(name, None)


def local_frame(session: SparkSession, rows: pa.Table, schema: StructType | str | None = None) -> DataFrame:
    """Return the rows as a frame without changing the thread's active session.

    Creating a frame of constants makes its session the active one. Spark would then look up data sources of other sessions' frames there.

    Args:
        session: The session of the frame.
        rows: The rows.
        schema: Names and types in Spark; those of the rows when None (the default).
    """
    active = None if is_connect(session) else type(session).getActiveSession()
    try:
        return session.createDataFrame(rows) if schema is None else session.createDataFrame(rows, schema)
    finally:
        if active is not None and active is not session:
            make_active(active)


def make_active(session: SparkSession) -> None:
    """Make a session the active one of the thread, in which Spark looks up data sources by name."""
    session.createDataFrame(_NO_ROWS)


def is_connect(session: SparkSession) -> bool:
    """Return whether the session is a Spark Connect client, which has no Java process and may lack access to what executors reach."""
    return type(session).__module__.startswith("pyspark.sql.connect")
