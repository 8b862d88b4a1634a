"""How old something must be before a verb may touch it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from ducklake_core.errors import UsageError

Age: TypeAlias = timedelta | datetime

AGE_FLOOR = timedelta(hours=1)
"""What is younger may be in use by a query or a write that is still running."""


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
