"""How old something must be before a verb may touch it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from ducklake_core.errors import UsageError
from ducklake_core.format.options import parse_age
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


def deletion_limit(older_than: Age | None, default: Age, now: datetime, *, cleanup_all: bool, min_age: timedelta | str) -> datetime:
    """The point in time before which files may be deleted; the end of the calendar for all of them.

    Args:
        older_than: As the user says it.
        default: The option ``delete_older_than``, for when nothing is said.

    Raises:
        UsageError: It is nearer than the floor, or ``older_than`` is given beside ``cleanup_all``.
    """
    if not cleanup_all:
        limit = threshold(default if older_than is None else older_than, now)
        check_floor("older_than", limit, now, min_age)
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
    span = parse_age(age) if isinstance(age, str) else age
    if span < timedelta(0):
        raise UsageError(f"{argument} must not be negative, not {span}", parameter=argument)
    try:
        return now - span
    except OverflowError:
        return BEGINNING


def check_floor(argument: str, limit: datetime, now: datetime, min_age: timedelta | str) -> None:
    """Refuse a threshold that is nearer than the floor.

    Raises:
        UsageError: It is, or the floor is no age.
    """
    if limit > before(now, min_age, "min_age"):
        raise UsageError(
            f"{argument} would take what is younger than {min_age}, which running queries and writes may still use; "
            "give a longer age, or a smaller min_age when you know that nothing runs"
        )
