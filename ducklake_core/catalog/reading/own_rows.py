"""Rows of ``ducklake_metadata`` that are no options but this library's own: holds and running writes.

DuckDB lists them among the options of a lake and leaves them alone. They are of global scope, because DuckDB cannot attach a lake that has
a scope which it does not know.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement

OWN_PREFIX = "ducklake_core."
"""What the keys of these rows begin with, and no option's."""


def is_option(metadata: Any) -> ColumnElement[bool]:
    """True for the rows of ``ducklake_metadata`` that are not this library's own."""
    return ~has_prefix(metadata, OWN_PREFIX)


def has_prefix(metadata: Any, prefix: str) -> ColumnElement[bool]:
    """True for the rows of ``ducklake_metadata`` whose key begins with a text."""
    found: ColumnElement[bool] = metadata.c.key.startswith(prefix, autoescape=True)
    return found


def parse_time(text: str) -> datetime:
    """A point in time of such a row, in UTC.

    Raises:
        ValueError: It is none, is beyond the calendar, or has no zone, so that it cannot be compared with others.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no zone")
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("beyond the calendar") from error
