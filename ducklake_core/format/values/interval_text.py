"""Intervals as values and as DuckDB's text (specification: Data Types)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ducklake_core.errors import SchemaError
from ducklake_core.format.values.calendar_text import time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Months, days and microseconds, which do not convert into each other; each may be negative."""

    months: int
    days: int
    microseconds: int


def interval_text(value: Interval) -> str:
    """Text of an interval.

    >>> interval_text(Interval(months=14, days=-2, microseconds=10_800_500_000))
    '1 year 2 months -2 days 03:00:00.5'
    >>> interval_text(Interval(months=-1, days=0, microseconds=-3_000_000)), interval_text(Interval(months=0, days=0, microseconds=0))
    ('-1 month -00:00:03', '00:00:00')
    """
    sign = -1 if value.months < 0 else 1
    years, months = (sign * part for part in divmod(abs(value.months), 12))
    counted = ((years, "year"), (months, "month"), (value.days, "day"))
    parts = [f"{count} {name}{'' if abs(count) == 1 else 's'}" for count, name in counted if count]
    if value.microseconds or not parts:
        parts.append(("-" if value.microseconds < 0 else "") + time_text(abs(value.microseconds)))
    return " ".join(parts)


_PART = re.compile(
    r"\s*(?:(?P<count>[+-]?\d+) (?P<unit>year|mon(?:th)?|day)s?"
    r"|(?P<sign>[+-]?)(?P<h>\d+):(?P<m>\d{2}):(?P<s>\d{2})(?:\.(?P<f>\d{1,6}))?)(?=\s|$)",
    re.ASCII,
)


def parse_interval(text: str) -> Interval:
    """The interval of a text as :func:`interval_text` makes it, or as PostgreSQL prints it (``1 mon``).

    >>> parse_interval("1 year 2 months -2 days 03:00:00.5")
    Interval(months=14, days=-2, microseconds=10800500000)

    Raises:
        SchemaError: The text is not such an interval.
    """
    months = days = microseconds = position = 0
    while position < len(text.rstrip()) or not position:
        found = _PART.match(text, position)
        if not found:
            raise SchemaError(f"{text!r} is not an interval")
        position = found.end()
        match found["unit"]:
            case "year":
                months += 12 * int(found["count"])
            case "month" | "mon":
                months += int(found["count"])
            case "day":
                days += int(found["count"])
            case _:
                size = (int(found["h"]) * 3600 + int(found["m"]) * 60 + int(found["s"])) * 1_000_000 + int((found["f"] or "").ljust(6, "0"))
                microseconds += -size if found["sign"] == "-" else size
    return Interval(months=months, days=days, microseconds=microseconds)
