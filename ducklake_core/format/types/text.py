"""Strings for people: values in error messages, spans of time, points in time."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any
from uuid import UUID

from ducklake_core.errors import UsageError

_DAYS_OF_A_PART = 30
"""Days of a fraction of a month, as DuckDB counts them."""
_UNITS = {
    "microsecond": "us usec usecs usecond useconds microsecond microseconds",
    "millisecond": "ms msec msecs millisecond milliseconds",
    "second": "s sec secs second seconds",
    "minute": "m min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days dayofmonth",
    "week": "w week weeks weekofyear",
    "month": "mon mons month months",
    "quarter": "quarter quarters",
    "year": "y yr yrs year years",
    "decade": "dec decs decade decades",
    "century": "c cent century centuries",
    "millennium": "mil mils millennium millennia millenium",
}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1_200, "millennium": 12_000}
_PART = re.compile(
    r"\s*(?:(?P<sign>-?)(?P<hours>\d{1,18}):(?P<minutes>[0-5]?\d)(?::(?P<seconds>[0-5]?\d(?:\.\d{0,18})?))?(?=\s|$)"
    r"|(?P<number>-?\d{1,18}(?:\.\d{0,18})?)\s*(?P<unit>[a-z]+))",
    re.ASCII,
)
_SECONDS_ALONE = re.compile(r"\d{1,18}(?:\.\d{0,18})?", re.ASCII)

_LONGEST = 120
_READABLE = (date, time, timedelta, Decimal, UUID)
"""Values whose string form is shorter than their Python expression and as clear."""
_LONGEST_LINE = 200
_MAX_ITEMS = 5


def parse_age(text: str, now: datetime | None = None) -> timedelta:
    """Return the length of a DuckDB interval that ends at ``now``. Months and years follow the calendar.

    >>> parse_age("2 days"), parse_age("1w 12:00:00"), parse_age("90 mins")
    (datetime.timedelta(days=2), datetime.timedelta(days=7, seconds=43200), datetime.timedelta(seconds=5400))
    >>> parse_age("1 month", datetime(2026, 3, 31, tzinfo=UTC)), parse_age("1 year", datetime(2026, 3, 31, tzinfo=UTC))
    (datetime.timedelta(days=31), datetime.timedelta(days=365))

    Args:
        text: Numbers with units, times such as ``12:00:00``, or a number of seconds alone. ``INTERVAL '...'`` around it means nothing.
        now: End of the interval. Default: the current time.

    Raises:
        UsageError: The string is not an interval, or the interval is negative.
    """
    months, rest = _months_and_rest(text)
    end = datetime.now(UTC) if now is None else now
    try:
        # Months come off the end first, because their length depends on where they lie; days and times follow.
        span = end - (_months_before(end, months) - rest)
    except OverflowError:
        # Before the calendar begins, months count as 30 days.
        return _too_long_to_count(months, rest, text)
    if span < timedelta(0):
        raise UsageError(f"{text!r} is a negative age")
    return span


def bare_age(text: str) -> str:
    """Return a span of time without ``INTERVAL '...'`` around it, which DuckDB does not read in an option.

    >>> bare_age("INTERVAL '7 Days'"), bare_age("7 days")
    ('7 Days', '7 days')
    """
    stripped = text.strip()
    return (stripped[len("interval ") :] if stripped.lower().startswith("interval ") else stripped).replace("'", "").strip()


def _months_and_rest(text: str) -> tuple[int, timedelta]:
    folded = bare_age(text).lower().removeprefix("@").strip()
    if _SECONDS_ALONE.fullmatch(folded):
        folded += " seconds"
    ago = folded.endswith("ago")
    folded = folded.removesuffix("ago").rstrip()
    months, micros, position = 0, 0, 0
    while position < len(folded) or not position:
        found = _PART.match(folded, position)
        unit = found and _UNIT_OF.get(found["unit"] or "second")
        if not found or not unit:
            raise UsageError(f"{text[:100]!r} is not an age such as '2 days'")
        more_months, more_micros = _part(found, unit)
        months, micros = months + more_months, micros + more_micros
        position = found.end()
    try:
        rest = timedelta(microseconds=micros)
    except OverflowError:
        raise _too_long(text) from None
    return (-months, -rest) if ago else (months, rest)


def _part(found: re.Match[str], unit: str) -> tuple[int, int]:
    """Return the months and microseconds of a number with its unit, or of a time of day."""
    if found["number"] is None:
        return 0, _time_of_day(found)
    number = _number(found["number"])
    if unit in _MONTHS:
        number *= _MONTHS[unit]
        months = int(number)
        # DuckDB drops fractions of a month that longer units leave.
        days = int((number - months) * _DAYS_OF_A_PART) if unit in ("month", "quarter") else 0
        return months, days * _MICROSECONDS["day"]
    if unit == "microsecond":
        return 0, int(number + (Fraction(1, 2) if number > 0 else Fraction(-1, 2)))
    return 0, int(number * _MICROSECONDS[unit])


def _number(text: str) -> Fraction:
    """Return a number as DuckDB reads it in an interval: six digits of its fraction count."""
    whole, _, fraction = text.partition(".")
    return Fraction(f"{whole}.{fraction[:6]}0")


def _time_of_day(found: re.Match[str]) -> int:
    seconds = int(found["hours"]) * 3600 + int(found["minutes"]) * 60 + _number(found["seconds"] or "0")
    return int((-seconds if found["sign"] else seconds) * _MICROSECONDS["second"])


def _months_before(time: datetime, months: int) -> datetime:
    """Return the same day and time so many months earlier, or the last day of a month that is shorter."""
    year, month = divmod(time.year * 12 + time.month - 1 - months, 12)
    if not BEGINNING.year <= year <= 9999:
        raise OverflowError
    # As in DuckDB, a month before 31 March is the last day of February.
    return time.replace(year=year, month=month + 1, day=min(time.day, calendar.monthrange(year, month + 1)[1]))


def _too_long_to_count(months: int, rest: timedelta, text: str) -> timedelta:
    try:
        span = timedelta(days=months * _DAYS_OF_A_PART) + rest
    except OverflowError:
        raise _too_long(text) from None
    if span < timedelta(0):
        raise UsageError(f"{text!r} is a negative age")
    return span


def _too_long(text: str) -> UsageError:
    return UsageError(f"{text[:100]!r} is longer than the longest age, 2.7 million years")


def shown(value: object) -> str:
    """Return a value for a message, however long its text is, and even when it has none.

    >>> shown("a"), shown(date(2026, 1, 31)), shown(10**5000)
    ("'a'", '2026-01-31', 'a value of type int')
    """
    try:
        text = str(value) if isinstance(value, _READABLE) else repr(value)
    except Exception:  # noqa: BLE001 - a number of too many digits, or an object of anybody's class
        return f"a value of type {type(value).__qualname__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def parse_failure(problem: Exception) -> str:
    """Return in one line why sqlglot cannot parse SQL, without the names of its classes and its positions, which count added text.

    >>> import sqlglot
    >>> def failure(sql):
    ...     try:
    ...         sqlglot.parse(sql, read="duckdb")
    ...     except Exception as problem:
    ...         return parse_failure(problem)
    >>> failure("SELECT a ="), failure("SELECT (a"), failure("SELECT a b c"), failure("SELECT * FROM")
    ("a part is missing after '='", "')' is missing after 'a'", "syntax error near 'c'", "a table name is missing after 'FROM'")
    >>> failure("SELECT 'a")
    'a quote, comment or parameter is not complete'
    """
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    first = next(iter(getattr(problem, "errors", ())), None)
    if first is None:
        # The tokenizer has no position, and repeats the text.
        return "a quote, comment or parameter is not complete"
    description, near = str(first["description"]), repr(one_line(str(first["highlight"])))
    if description.startswith("Required keyword"):
        return f"a part is missing after {near}"
    if found := re.match(r"Expect(?:ed|ing) (\W+|[A-Z]+\b|table name)", description):
        missing = found[1] if found[1].isalpha() else "a table name" if found[1] == "table name" else repr(found[1].strip())
        return f"{missing} is missing after {near}"
    return f"syntax error near {near}"


def short_repr(value: Any) -> str:
    """Return a dataclass value by those of its fields that have other values than by default; of many items only how many there are.

    A class whose values are long takes it as its ``__repr__``. Fields that are kept out of reprs stay out of it.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Found:
    ...     name: str
    ...     count: int = 0
    ...     files: tuple[str, ...] = ()
    >>> short_repr(Found("t")), short_repr(Found("t", 3, ("a",) * 10))
    ("Found(name='t')", "Found(name='t', count=3, files=<10 items>)")
    """
    attributes = (f"{one.name}={_item(getattr(value, one.name))}" for one in fields(value) if one.repr and not _is_default(value, one))
    return f"{type(value).__name__}({', '.join(attributes)})"


def _is_default(value: Any, one: Field[Any]) -> bool:
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    return default is not MISSING and bool(getattr(value, one.name) == default)


def _item(value: object) -> str:
    if isinstance(value, tuple | list | dict | frozenset | set) and len(value) > _MAX_ITEMS:
        return f"<{len(value):,} items>"
    return repr(value)


def one_line(text: str) -> str:
    """Return a string of a user or of the catalog in one line, shortened for a message.

    >>> one_line("a  b\\n\\x1b[31mc"), len(one_line("x" * 1000))
    ('a  b\\\\n\\\\x1b[31mc', 203)
    """
    return visible(text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}...")


def visible(text: str) -> str:
    """Return a whole text without what would end its line or steer a terminal: names and paths may hold anything.

    >>> visible("a\\tb"), visible("é")
    ('a\\\\tb', 'é')
    """
    return text if text.isprintable() else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def counted(count: int, noun: str) -> str:
    """Return a number of things with separators and the singular or plural of a regular noun.

    >>> counted(1, "file"), counted(1234, "inlined row"), counted(2, "query"), counted(2, "day")
    ('1 file', '1,234 inlined rows', '2 queries', '2 days')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeou" else f"{count:,} {noun}s"


def similar(name: str, candidates: Iterable[str]) -> str:
    """Return the names most like one that does not exist, as a question; empty when none is.

    >>> similar("Flihgts", ["flights", "planes"]), similar("x", ["flights"])
    ("did you mean 'flights'?", '')
    """
    found = nearest(name, candidates)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


def nearest(name: str, candidates: Iterable[str]) -> list[str]:
    """Return at most three of the names, those most like one, the nearest first."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    return [by_folded[one] for one in get_close_matches(name.casefold(), by_folded, n=3)]


def similar_in_brackets(name: str, candidates: Iterable[str]) -> str:
    """Return the question of :func:`similar` in parentheses after a space, to follow the name.

    >>> similar_in_brackets("dely", ["delay"])
    " (did you mean 'delay'?)"
    """
    found = similar(name, candidates)
    return f" ({found})" if found else ""


def similar_or_all(name: str, candidates: Iterable[str], listed: str) -> str:
    """Return the question of :func:`similar_in_brackets`, or the list of all names if none is similar, to follow the name.

    >>> similar_or_all("dely", ["delay"], "; the columns are:"), similar_or_all("x", ["delay", "day"], "; the columns are:")
    (" (did you mean 'delay'?)", '; the columns are: delay, day')
    """
    known = list(candidates)
    return similar_in_brackets(name, known) or f"{listed} {', '.join(known)}"


BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""The ends of the calendar."""


def in_utc(time: datetime) -> datetime:
    """Return a point in time in UTC; the ends of the calendar for those that the calendar does not have there.

    Raises:
        UsageError: It has no zone.
    """
    if time.tzinfo is None or time.utcoffset() is None:
        raise UsageError(f"the time {time.isoformat()} has no zone. Pass an aware datetime, for example with tzinfo=UTC")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return BEGINNING if time.year == BEGINNING.year else END
