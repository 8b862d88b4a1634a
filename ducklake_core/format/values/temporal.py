"""Dates, times and timestamps as strings in the form of DuckDB, and the time zone in which SQL reads them."""

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

from ducklake_core.errors import SchemaError, UsageError

INFINITE_DAYS = 2**31 - 1
INFINITE_UNITS = 2**63 - 1
SECONDS_PER_DAY = 86_400
_DATE = re.compile(r"(?P<y>\d{1,7})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?P<bc> \(BC\))?", re.ASCII)
_TIME = re.compile(r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2})(?:\.(?P<f>\d{1,9}))?)?", re.ASCII)
_ZONE = re.compile(r"(?:(?P<z>Z)|(?P<sign>[+-])(?P<h>\d{1,2})(?::?(?P<m>\d{2}))?(?::(?P<s>\d{2}))?)", re.ASCII)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# A context variable: threads and tasks of one process may work in different zones.
_CHOSEN: ContextVar[str | None] = ContextVar("ducklake_time_zone", default=None)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's
_CYCLE = 146_097 * 86_400 * 1_000_000
"""Microseconds of 400 years, after which the calendar repeats."""
_OFFSET = re.compile(r"(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>0?\d|1[0-8]):?(?P<minutes>[0-5]\d)?", re.ASCII)
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT", "Universal", "Etc/Universal"})


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return the year (0 is 1 BC), month and day of a number of days since 1970-01-01.

    >>> civil_from_days(0), civil_from_days(19737), civil_from_days(-719529)
    ((1970, 1, 1), (2024, 1, 15), (-1, 12, 31))
    """
    # Years are counted from 1 March, so that the leap day is the last of its year; 400 years have 146097 days.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; the inverse of :func:`civil_from_days`.

    >>> days_from_civil(2024, 1, 15), days_from_civil(-1, 12, 31)
    (19737, -719529)
    """
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def date_text(days: int) -> str:
    """Return the text of a date.

    >>> date_text(19737), date_text(INFINITE_DAYS), date_text(-735160)
    ('2024-01-15', 'infinity', '0044-03-15 (BC)')
    """
    if abs(days) == INFINITE_DAYS:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil_from_days(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} (BC)"


def time_text(units: int, digits: int = 6) -> str:
    """Return the text of a time of day counted in units of ``10**-digits`` seconds; trailing zeros of the fraction are left out.

    >>> time_text(36_000_500_000), time_text(86_400_000_000), time_text(1, digits=9)
    ('10:00:00.5', '24:00:00', '00:00:00.000000001')
    """
    seconds, fraction = divmod(units, 10**digits)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    end = f".{fraction:0{digits}d}".rstrip("0") if fraction else ""
    return f"{hour:02d}:{minute:02d}:{second:02d}{end}"


def timestamp_text(units: int, digits: int = 6, zone: str = "") -> str:
    """Return the text of a timestamp counted in units of ``10**-digits`` seconds since 1970-01-01, with ``zone`` behind it.

    >>> timestamp_text(1_705_314_600_500_000), timestamp_text(0, zone="+00"), timestamp_text(-63517788000000000)
    ('2024-01-15 10:30:00.5', '1970-01-01 00:00:00+00', '0044-03-15 (BC) 10:00:00')

    Args:
        units: The timestamp; infinities are +-(2**63 - 1).
        digits: Digits of a second that a unit has: 6 for microseconds, 9 for nanoseconds.
        zone: Text of the zone, such as ``+00``.
    """
    if abs(units) == INFINITE_UNITS:
        return "infinity" if units > 0 else "-infinity"
    days, rest = divmod(units, SECONDS_PER_DAY * 10**digits)
    return f"{date_text(days)} {time_text(rest, digits)}{zone}"


def parse_date(text: str) -> int:
    """Return the days since 1970-01-01 of a date's text.

    >>> parse_date("2024-01-15"), parse_date("0044-03-15 (BC)"), parse_date("-infinity")
    (19737, -735160, -2147483647)

    Raises:
        SchemaError: The text is not a date.
    """
    infinite = _infinity(text, INFINITE_DAYS)
    if infinite is not None:
        return infinite
    found = _DATE.fullmatch(text.strip())
    if not found:
        raise SchemaError(f"{text!r} is not a date")
    return _days(found, text)


def parse_time(text: str, digits: int = 6) -> int:
    """Return the units of ``10**-digits`` seconds since midnight of a time's text, 24:00:00 included.

    >>> parse_time("10:00:00.5"), parse_time("24:00:00")
    (36000500000, 86400000000)

    Raises:
        SchemaError: The text is not a time, or has more digits than fit.
    """
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise SchemaError(f"{text!r} is not a time")
    return _units(found, text, digits)


def parse_zoned_time(text: str) -> int:
    """Return the microseconds since midnight in UTC of a time with a zone; without one it is UTC.

    >>> parse_zoned_time("10:00:00+01"), parse_zoned_time("00:30:00+01"), parse_zoned_time("10:00:00")
    (32400000000, 84600000000, 36000000000)
    """
    text = text.strip()
    found = _TIME.match(text)
    if not found:
        raise SchemaError(f"{text!r} is not a time")
    offset = _offset(text[found.end() :], text)
    micros = _units(found, text, 6) - offset * 1_000_000
    # 24:00:00 stays. Other times wrap around midnight on the way to UTC.
    return micros if 0 <= micros <= SECONDS_PER_DAY * 1_000_000 else micros % (SECONDS_PER_DAY * 1_000_000)


def parse_timestamp(text: str, digits: int = 6) -> int:
    """Return the units of ``10**-digits`` seconds since 1970-01-01 of a timestamp's text; a zone is applied, a bare date is midnight.

    >>> parse_timestamp("2024-01-15 10:30:00.5"), parse_timestamp("1970-01-01T02:00:00+02:00"), parse_timestamp("infinity")
    (1705314600500000, 0, 9223372036854775807)

    Raises:
        SchemaError: The text is not a timestamp, or does not fit 64 bits of these units.
    """
    infinite = _infinity(text, INFINITE_UNITS)
    if infinite is not None:
        return infinite
    text = text.strip()
    date = _DATE.match(text)
    if not date:
        raise SchemaError(f"{text!r} is not a timestamp")
    per_second: int = 10**digits
    units = _days(date, text) * SECONDS_PER_DAY * per_second
    rest = text[date.end() :]
    if rest:
        time = _TIME.match(rest, 1)
        if rest[0] not in " T" or not time:
            raise SchemaError(f"{text!r} is not a timestamp")
        units += _units(time, text, digits) - _offset(rest[time.end() :].lstrip(" "), text) * per_second
    if abs(units) >= INFINITE_UNITS:
        raise SchemaError(f"timestamp {text!r} is out of range")
    return units


def _infinity(text: str, extreme: int) -> int | None:
    match text.strip().lower():
        case "infinity" | "inf" | "+infinity":
            return extreme
        case "-infinity" | "-inf":
            return -extreme
        case _:
            return None


def _days(found: re.Match[str], text: str) -> int:
    year, month, day = int(found["y"]), int(found["m"]), int(found["d"])
    year = 1 - year if found["bc"] else year
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + leap:
        raise SchemaError(f"{text!r} is not a day of the calendar")
    days = days_from_civil(year, month, day)
    if abs(days) >= INFINITE_DAYS:
        raise SchemaError(f"date {text!r} is out of range")
    return days


def _units(found: re.Match[str], text: str, digits: int) -> int:
    hour, minute, second = int(found["h"]), int(found["m"]), int(found["s"] or 0)
    fraction = (found["f"] or "").ljust(digits, "0")
    kept, lost = fraction[:digits], fraction[digits:]
    seconds = hour * 3600 + minute * 60 + second
    per_second: int = 10**digits
    units = seconds * per_second + int(kept or 0)
    if minute > 59 or second > 59 or units > SECONDS_PER_DAY * per_second or lost.strip("0"):
        raise SchemaError(f"{text!r} is not a time of day with up to {digits} digits of a second")
    return units


def _offset(zone: str, text: str) -> int:
    if not zone:
        return 0
    found = _ZONE.fullmatch(zone)
    if not found:
        raise SchemaError(f"{text!r} has a time zone that is not an offset from UTC")
    if found["z"]:
        return 0
    seconds = int(found["h"]) * 3600 + int(found["m"] or 0) * 60 + int(found["s"] or 0)
    return -seconds if found["sign"] == "-" else seconds


_FIRST, _LAST = -62_000_000_000_000_000, 253_000_000_000_000_000
"""Microseconds since 1970 that a ``datetime`` holds, with room for any offset."""


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
    # Around a jump of the clocks, the two folds have different offsets. The smaller one is that of the later of two instants with the
    # same clock time, and in a gap that from before the jump.
    first, second = (_zone_offset(shown.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    return wall - min(first, second)


def zoned(time: datetime, name: str | None = None) -> datetime:
    """Return the instant at which clocks of a zone show a time, as a datetime in UTC; see :func:`instant`.

    Args:
        time: The time that clocks show, without a zone.
        name: The zone, the effective one when None.
    """
    since = time - _EPOCH
    wall = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=instant(wall, name))


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
    # DuckDB drops the seconds of offsets, which zones had before standard time.
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
    return _zone_offset(shown.astimezone(zone))


def _zone_offset(moment: datetime) -> int:
    found = moment.utcoffset() or timedelta()
    return (found.days * 86_400 + found.seconds) * 1_000_000 + found.microseconds


def _within(units: int) -> int:
    """Return a moment that a ``datetime`` holds, at which clocks are set as at the moment given."""
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
        # POSIX offsets in TZ have the opposite sign; DuckDB ignores them.
        return name if is_named(name) else "UTC"
    name = os.path.realpath("/etc/localtime").rpartition("zoneinfo/")[2]
    if not is_named(name):
        listed = Path("/etc/timezone")
        name = listed.read_text("ascii", "replace").strip() if listed.is_file() else ""
    return name if name and is_named(name) else "UTC"
