"""Read which writes are running: rows of ``ducklake_metadata`` that belong to this library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.completeness import complete_rows
from ducklake_core.errors import CatalogCorruptError, UsageError
from ducklake_core.format.files.paths import mark_of_file, mark_of_write

LOST_AFTER = timedelta(hours=1)
"""Time after which a write that is not heard of counts as killed."""

OWN_PREFIX = "ducklake_core."
"""What the keys of these rows begin with, and no option's."""

WRITE_PREFIX = f"{OWN_PREFIX}write:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWrite:
    """A write that was not committed yet when it was last heard of.

    Attributes:
        write_id: What the names of its files carry, see :func:`~ducklake_core.format.files.paths.write_id`.
        heard: When it was heard of, by the catalog's clock, in UTC.
    """

    write_id: str
    heard: datetime

    def is_lost(self, now: datetime) -> bool:
        """Whether it was not heard of for so long that nobody is to commit its files."""
        return self.heard <= now - LOST_AFTER


def read_running_writes(connection: Connection, tables: CatalogTables) -> list[RunningWrite]:
    """All of them, those that are lost included.

    Raises:
        CatalogCorruptError: A row that is none, so that nobody can tell which files it is about.
    """
    metadata = tables["metadata"]
    query = select(metadata.c.key, metadata.c.value).where(has_prefix(metadata, WRITE_PREFIX))
    return [parse_running_write(row.key, row.value) for row in complete_rows(connection, query, "running writes")]


def parse_running_write(key: str, text: str | None) -> RunningWrite:
    """The write that a row stands for.

    >>> parse_running_write("ducklake_core.write:0198c1f20000000000c0ffee", "2026-11-24T08:00:00+00:00").heard.hour
    8

    Raises:
        CatalogCorruptError: None.
    """
    write_id = key.removeprefix(WRITE_PREFIX)
    try:
        mark_of_write(write_id)
        heard = parse_time(text or "")
    except (UsageError, ValueError) as error:
        raise CatalogCorruptError(
            f"cannot read which files a running write is still to commit, so no orphan is deleted: the value of {key!r} in "
            f"ducklake_metadata is {text!r}. Delete that row",
            key=key,
        ) from error
    return RunningWrite(write_id=write_id, heard=heard)


class FilesOfWrites:
    """Tells by their names which files are those of some writes.

    Args:
        writes: The writes.
    """

    def __init__(self, writes: Iterable[RunningWrite]) -> None:
        self._by_mark = {mark_of_write(write.write_id): write for write in writes}

    def write_of(self, path: str) -> RunningWrite | None:
        """The write that a file is of, None when it is of none of them."""
        mark = mark_of_file(path)
        return None if mark is None else self._by_mark.get(mark)


def files_of_running_writes(connection: Connection, tables: CatalogTables, now: datetime) -> FilesOfWrites:
    """The files of writes that are not lost.

    Raises:
        CatalogCorruptError: A row cannot be read.
    """
    return FilesOfWrites(write for write in read_running_writes(connection, tables) if not write.is_lost(now))


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
