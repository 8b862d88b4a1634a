"""``partition_expr``: the column that partition keys are about, or the day, month or other unit that its values lie in.

``CAST(at AS DATE)`` of rows of a day is that day, so that the rows of daily partitions are those with ``at`` in the partition's window:
every filter, on files and in engines, is one on the column itself. That holds if windows begin and end where units do, which is checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, TypeAlias, get_args

from ducklake_core.errors import UsageError

Unit: TypeAlias = Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second"]

_NAME = r'("(?:[^"]|"")+"|[^\W\d]\w*)'
_CAST = re.compile(rf"(?:TRY_)?CAST\s*\(\s*{_NAME}\s+AS\s+DATE\s*\)|{_NAME}\s*::\s*DATE|DATE\s*\(\s*{_NAME}\s*\)", re.IGNORECASE)
_TRUNCATED = re.compile(rf"DATE_TRUNC\s*\(\s*'(\w+)'\s*,\s*{_NAME}\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpression:
    """A column, or the unit of time that its values lie in.

    Attributes:
        column: Name of the column.
        unit: None for the column itself.
        text: As it was written.
    """

    column: str
    unit: Unit | None = None
    text: str = ""


def parse_partition_expression(text: str) -> PartitionExpression:
    """Read a ``partition_expr``; whatever is none of the expressions is the name of a column.

    >>> parse_partition_expression("CAST(at AS DATE)").unit, parse_partition_expression('date_trunc(\\'month\\', "My At")').column
    ('day', 'My At')
    >>> parse_partition_expression("day")
    PartitionExpression(column='day', unit=None, text='day')

    Raises:
        UsageError: A call of something else, or a unit that there is not.
    """
    stripped = text.strip()
    if (match := _CAST.fullmatch(stripped)) is not None:
        column = next(name for name in match.groups() if name is not None)
        return PartitionExpression(column=_plain(column), unit="day", text=text)
    if (match := _TRUNCATED.fullmatch(stripped)) is not None:
        unit = match[1].lower()
        for known in get_args(Unit):
            if known == unit:
                return PartitionExpression(column=_plain(match[2]), unit=known, text=text)
        raise UsageError(f"partition_expr {text!r}: there is no unit {unit!r}; the units are {', '.join(get_args(Unit))}")
    if re.fullmatch(r"\w+\s*\(.*\)|.*::.*", stripped, re.DOTALL):
        raise UsageError(
            f"partition_expr {text!r} is no expression that files and engines can be filtered by: give the name of a column, "
            "CAST(column AS DATE) or date_trunc('month', column)"
        )
    return PartitionExpression(column=text, text=text)


def is_start(moment: datetime, unit: Unit) -> bool:
    """Whether a unit begins at a wall time.

    >>> is_start(datetime(2026, 3, 1), "month"), is_start(datetime(2026, 3, 1, 6), "day"), is_start(datetime(2026, 3, 2), "week")
    (True, False, True)
    """
    return truncated(moment, unit) == moment.replace(tzinfo=None, fold=0)


def truncated(moment: datetime, unit: Unit) -> datetime:
    """The start of the unit that a wall time lies in."""
    wall = moment.replace(tzinfo=None, fold=0)
    match unit:
        case "year":
            return datetime(wall.year, 1, 1)  # noqa: DTZ001 - wall time
        case "quarter":
            return datetime(wall.year, wall.month - (wall.month - 1) % 3, 1)  # noqa: DTZ001 - wall time
        case "month":
            return datetime(wall.year, wall.month, 1)  # noqa: DTZ001 - wall time
        case "week":
            return datetime.combine(wall.date() - timedelta(days=wall.weekday()), datetime.min.time())
        case "day":
            return datetime.combine(wall.date(), datetime.min.time())
        case "hour":
            return wall.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return wall.replace(second=0, microsecond=0)
        case "second":
            return wall.replace(microsecond=0)


def day_of(key: str) -> date:
    """A static or dynamic key of a day.

    Raises:
        ValueError: It is none.
    """
    return date.fromisoformat(key)


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
