"""How old something must be before a verb may touch it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from ducklake_core.errors import CatalogCorruptError, SchemaError, UsageError
from ducklake_core.format.interval_text import parse_interval

Age: TypeAlias = timedelta | datetime

AGE_FLOOR = timedelta(hours=1)
"""What is younger may be in use by a query or a write that is still running."""

_DAYS_PER_MONTH = 30


def threshold(older_than: Age, now: datetime) -> datetime:
    """The point in time before which things are old enough, in UTC.

    Raises:
        UsageError: A time without a zone, or a negative age.
    """
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            raise UsageError(f"older_than must not be negative, not {older_than}")
        return now - older_than
    if older_than.tzinfo is None:
        raise UsageError(f"the time {older_than.isoformat()} has no zone; give an aware datetime, for instance with tzinfo=UTC")
    return older_than.astimezone(UTC)


def check_floor(argument: str, limit: datetime, now: datetime, min_age: timedelta) -> None:
    """Refuse a threshold that is nearer than the floor.

    Raises:
        UsageError: It is.
    """
    if limit > now - min_age:
        raise UsageError(
            f"{argument} would take what is younger than {min_age}, which running queries and writes may still use; "
            "give a longer age, or a smaller min_age when you know that nothing runs"
        )


def age_option(options: Mapping[str, str], name: str) -> timedelta | None:
    """An option whose value is an interval text, None when it is not set. A month counts as 30 days.

    >>> age_option({"delete_older_than": "1 month 2 days 03:00:00"}, "delete_older_than")
    datetime.timedelta(days=32, seconds=10800)

    Raises:
        CatalogCorruptError: The stored value is not an interval.
    """
    text = options.get(name)
    if text is None:
        return None
    try:
        interval = parse_interval(_whole_units(text))
    except SchemaError as error:
        raise CatalogCorruptError(f"option {name} holds {text!r}, which is not an interval such as '7 days'", option=name) from error
    return timedelta(days=interval.months * _DAYS_PER_MONTH + interval.days, microseconds=interval.microseconds)


_SECONDS = {"week": 604_800, "hour": 3_600, "minute": 60, "second": 1}


def _whole_units(text: str) -> str:
    """Units that people write and that interval texts spell otherwise.

    >>> _whole_units("2 weeks 3 hours"), _whole_units("7 days")
    ('14 days 03:00:00', '7 days')
    """
    words = text.lower().split()
    rest: list[str] = []
    seconds = 0
    position = 0
    while position < len(words):
        unit = words[position + 1].rstrip("s") if position + 1 < len(words) else ""
        if unit in _SECONDS and words[position].isdecimal():
            seconds += int(words[position]) * _SECONDS[unit]
            position += 2
        else:
            rest.append(words[position])
            position += 1
    days, seconds = divmod(seconds, 86_400)
    if days:
        rest += [str(days), "days"]
    if seconds:
        rest.append(f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}")
    return " ".join(rest)
