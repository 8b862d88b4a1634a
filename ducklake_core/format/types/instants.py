"""Points in time in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from ducklake_core.errors import UsageError

BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""The ends of the calendar."""


def in_utc(time: datetime) -> datetime:
    """A point in time in UTC; the ends of the calendar for those that the calendar does not have there.

    Raises:
        UsageError: It has no zone.
    """
    if time.tzinfo is None or time.utcoffset() is None:
        raise UsageError(f"the time {time.isoformat()} has no zone; give an aware datetime, for instance with tzinfo=UTC")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return BEGINNING if time.year == BEGINNING.year else END
