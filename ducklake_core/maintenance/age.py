"""How old something must be before a verb may touch it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from ducklake_core.errors import UsageError
from ducklake_core.format.options import option_age
from ducklake_core.format.types.ages import parse_age
from ducklake_core.format.types.instants import BEGINNING, END, in_utc

Age: TypeAlias = timedelta | str | datetime

AGE_FLOOR = timedelta(hours=1)
"""The smallest age; a younger file may be in use by a query or a write that is still running."""


def threshold(older_than: Age, now: datetime) -> datetime:
    """The point in time before which things are old enough, in UTC.

    Raises:
        UsageError: A time without a zone, a negative age, or a text that is not a duration.
    """
    if isinstance(older_than, datetime):
        return in_utc(older_than)
    return before(now, older_than, "older_than")


def deletion_limit(older_than: Age | None, option: str, now: datetime, *, cleanup_all: bool, min_age: timedelta | str) -> datetime:
    """The point in time before which files may be deleted; the end of the calendar for all of them.

    Args:
        older_than: As the user says it.
        option: The option ``delete_older_than``, for when nothing is said.

    Raises:
        UsageError: It is nearer than the floor, or ``older_than`` is given beside ``cleanup_all``; the option is no age.
    """
    if not cleanup_all:
        limit = threshold(option_age("delete_older_than", option, now) if older_than is None else older_than, now)
        check_floor(option_text("delete_older_than", option) if older_than is None else "older_than", limit, now, min_age)
        return limit
    if older_than is not None:
        raise UsageError("give either older_than or cleanup_all", parameter="cleanup_all")
    check_floor("cleanup_all", now, now, min_age)
    return END


def before(now: datetime, age: timedelta | str, argument: str) -> datetime:
    """The point in time that is an age before another; the beginning of the calendar when that is before it.

    Raises:
        UsageError: A negative age, or a text that is not a duration.
    """
    span = parse_age(age, now) if isinstance(age, str) else age
    if span < timedelta(0):
        raise UsageError(f"{argument} must not be negative, not {span}", parameter=argument)
    try:
        return now - span
    except OverflowError:
        return BEGINNING


def check_floor(argument: str, limit: datetime, now: datetime, min_age: timedelta | str) -> None:
    """Refuse a threshold that is nearer than the floor.

    Args:
        argument: What the threshold is from, for the error.

    Raises:
        UsageError: It is, or the floor is no age.
    """
    if limit > before(now, min_age, "min_age"):
        raise UsageError(
            f"{argument} would take what is younger than {age_text(min_age)}, which running queries and writes may still use; "
            "give a longer age, or a smaller min_age when you know that nothing runs",
            parameter="min_age",
        )


def option_text(name: str, age: str) -> str:
    """An option of the lake with its age, for the error about an age that was not given with the call."""
    return f"the option {name} ({age})"


def age_text(age: timedelta | str) -> str:
    """An age as options are written.

    >>> age_text(timedelta(hours=1)), age_text(timedelta(days=2, seconds=90)), age_text(timedelta(0)), age_text("7d")
    ('1 hour', '2 days 1 minute 30 seconds', '0 seconds', '7d')
    """
    if isinstance(age, str):
        return age
    seconds = age.total_seconds()
    parts = []
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count, seconds = divmod(seconds, length)
        parts += [f"{count:.0f} {unit}{'s' if count > 1 else ''}"] if count else []
    parts += [f"{seconds:g} second{'' if seconds == 1 else 's'}"] if seconds or not parts else []
    return " ".join(parts)
