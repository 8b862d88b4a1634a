"""The time zone in which SQL reads timestamps that name none, and the arithmetic of zones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

from ducklake_core.errors import UsageError
from ducklake_core.format.values.calendar_text import INFINITE_UNITS, timestamp_text

_CHOSEN: ContextVar[str | None] = ContextVar("ducklake_time_zone", default=None)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's
_CYCLE = 146_097 * 86_400 * 1_000_000
"""Microseconds of 400 years, after which the calendar repeats."""
_FIRST, _LAST = -62_000_000_000_000_000, 253_000_000_000_000_000
"""Microseconds since 1970 that a ``datetime`` holds, with room for any offset."""
_OFFSET = re.compile(r"(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>0?\d|1[0-8]):?(?P<minutes>[0-5]\d)?", re.ASCII)
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT", "Universal", "Etc/Universal"})


def session_zone() -> str:
    """Return the name of the effective zone: that of the innermost :func:`in_zone`, else the machine's."""
    return _CHOSEN.get() or machine_zone()


def machine_zone() -> str:
    """Return the zone of the machine, as DuckDB's session finds it: ``TZ``, else ``/etc/localtime``; UTC when neither names one."""
    return _machine_zone(os.environ.get("TZ"))


@contextmanager
def in_zone(name: str | None) -> Iterator[None]:
    """Make a zone effective for the block; the effective one stays when it is None."""
    if name is None:
        yield
        return
    token = _CHOSEN.set(name)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def checked_zone(name: str | None) -> str | None:
    """Return the name, after a check that there is such a zone.

    Raises:
        UsageError: There is no such zone.
    """
    if name is not None and _found(name) is None:
        raise UsageError(f"timezone must be a name such as 'Europe/Berlin', not {name!r}", parameter="timezone")
    return name


def is_utc(name: str) -> bool:
    """Return whether a zone is UTC under one of its names."""
    return name in _UTC_NAMES


def instant(wall: int, name: str | None = None) -> int:
    """Return the instant at which clocks of a zone show a time, both in microseconds since 1970.

    A time that clocks show twice is the later instant; one that they skip is read with the offset before the jump. So does DuckDB.

    >>> wall = 1_772_937_000_000_000  # 2026-03-08 02:30, which New York skips
    >>> (instant(wall, "America/New_York") - wall) // 3_600_000_000
    5

    Args:
        wall: The time that clocks show; infinite times stay so.
        name: The zone, the effective one when None.
    """
    if abs(wall) >= INFINITE_UNITS:
        return wall
    zone = _zone(name or session_zone())
    if zone is UTC:
        return wall
    shown = _EPOCH + timedelta(microseconds=_within(wall))
    first, second = (_offset(shown.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return wall - min(first, second)


def wall_clock(moment: int, name: str | None = None) -> int:
    """Return the time that clocks of a zone show at an instant; the inverse of :func:`instant` where there is one."""
    return moment if abs(moment) >= INFINITE_UNITS else moment + _offset_at(moment, name or session_zone())


def zoned_text(moment: int, name: str | None = None) -> str:
    """Return the text of an instant as DuckDB casts it to VARCHAR.

    >>> zoned_text(0, "Asia/Kolkata"), zoned_text(0, "America/New_York"), zoned_text(0, "UTC")
    ('1970-01-01 05:30:00+05:30', '1969-12-31 19:00:00-05', '1970-01-01 00:00:00+00')
    """
    if abs(moment) >= INFINITE_UNITS:
        return timestamp_text(moment)
    offset = _offset_at(moment, name or session_zone())
    # DuckDB leaves the seconds of early offsets out.
    hours, minutes = divmod(abs(offset) // 60_000_000, 60)
    parts = [f"{hours:02d}", *([f"{minutes:02d}"] if minutes else [])]
    return timestamp_text(moment + offset, zone=("-" if offset < 0 else "+") + ":".join(parts))


def zone_info(name: str | None = None) -> tzinfo:
    """Return a zone, the effective one when None."""
    return _zone(name or session_zone())


def _offset_at(moment: int, name: str) -> int:
    zone = _zone(name)
    if zone is UTC:
        return 0
    shown = (_EPOCH + timedelta(microseconds=_within(moment))).replace(tzinfo=UTC)
    return _offset(shown.astimezone(zone))


def _offset(moment: datetime) -> int:
    found = moment.utcoffset() or timedelta()
    return (found.days * 86_400 + found.seconds) * 1_000_000 + found.microseconds


def _within(units: int) -> int:
    """A moment that a ``datetime`` holds, at which clocks are set as at the moment given."""
    if units > _LAST:
        return units - ((units - _LAST) // _CYCLE + 1) * _CYCLE
    # No zone has a rule for the years before 1.
    return max(units, _FIRST)


def _zone(name: str) -> tzinfo:
    return UTC if is_utc(name) else _found(name) or UTC


def is_named(name: str) -> bool:
    """Return whether a zone has a name in the time zone database, as DuckDB requires; offsets such as ``+05:00`` do not."""
    return is_utc(name) or _named(name) is not None


def _named(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None


@lru_cache(maxsize=256)
def _found(name: str) -> tzinfo | None:
    named = _named(name)
    if named is not None:
        return named
    found = _OFFSET.fullmatch(name)
    if found is None:
        return UTC if is_utc(name) else None
    offset = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
    return timezone(-offset if found["sign"] == "-" else offset)


@lru_cache(maxsize=16)
def _machine_zone(variable: str | None) -> str:
    if variable:
        name = variable.removeprefix(":")
        # An offset in TZ has the opposite sign in POSIX; DuckDB ignores it.
        return name if is_named(name) else "UTC"
    name = os.path.realpath("/etc/localtime").rpartition("zoneinfo/")[2]
    if not is_named(name):
        listed = Path("/etc/timezone")
        name = listed.read_text("ascii", "replace").strip() if listed.is_file() else ""
    return name if name and is_named(name) else "UTC"
