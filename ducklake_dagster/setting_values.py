"""Values of settings: numbers and spans of time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel


def refuse_unknown_fields(kind: type[BaseModel], given: Iterable[str]) -> None:
    """Refuse fields that a configuration does not have, which Dagster passes over.

    Raises:
        UsageError: There is one.
    """
    shown = {field.alias or name for name, field in kind.model_fields.items()}
    unknown = sorted(set(given) - shown - set(kind.model_fields))
    if unknown:
        near = get_close_matches(unknown[0], shown, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(f"{kind.__name__} has no {', '.join(unknown)}{hint}; it has {', '.join(sorted(shown))}", parameter=unknown[0])


def is_number(value: object) -> bool:
    """Whether it is a number that others can be compared with, which NaN is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - NaN differs from itself


def is_count(value: object) -> bool:
    """Whether it is a whole number from 1 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def refuse_no_text(what: str, value: object) -> None:
    """Refuse what is no text, or has nothing in it.

    Raises:
        UsageError: It is one of these.
    """
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} must be a text, not {value!r}", parameter=what)


def age_of(value: timedelta | str, name: str = "max_age") -> timedelta:
    """A timedelta, or a text such as ``"26 hours"``.

    Args:
        value: One of them.
        name: The setting, for the message.

    Raises:
        UsageError: It is neither.
    """
    if isinstance(value, timedelta):
        return value
    from ducklake_core import parse_age

    try:
        return parse_age(value)
    except (UsageError, TypeError, AttributeError):
        raise UsageError(f"{name} must be a timedelta or a text such as '7 days', not {value!r}", parameter=name) from None


def shown_age(age: timedelta) -> str:
    """An age for people.

    >>> shown_age(timedelta(hours=26, minutes=3)), shown_age(timedelta(seconds=90))
    ('1.1 days', '1.5 minutes')
    """
    seconds = age.total_seconds()
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
