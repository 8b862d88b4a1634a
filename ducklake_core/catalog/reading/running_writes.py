"""Read the registered running writes: rows of ``ducklake_metadata`` that belong to this library.

A sweep deletes files in the data path that the catalog does not name. Files of a running write are not named yet, so a long write
registers the id that its file names contain, and the sweep keeps such files::

    key                            value                      files that are kept
    ducklake_core.write:<id>       2026-11-24T08:00:00+00:00  main/orders/ducklake-<...id...>.parquet
"""

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
"""Time without a renewal after which a write counts as killed."""

OWN_PREFIX = "ducklake_core."
"""Prefix of the keys of this library's own rows. No option begins with it."""

WRITE_PREFIX = f"{OWN_PREFIX}write:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWrite:
    """A registered write that was not committed at its last renewal.

    Attributes:
        write_id: Id that the names of its files contain, see :func:`~ducklake_core.format.files.paths.write_id`.
        heard: Time of the last renewal, by the clock of the catalog, in UTC.
    """

    write_id: str
    heard: datetime

    def is_lost(self, now: datetime) -> bool:
        """Return whether its last renewal is so old that no process will commit its files."""
        return self.heard <= now - LOST_AFTER


def read_running_writes(connection: Connection, tables: CatalogTables) -> list[RunningWrite]:
    """Return all registered writes, including lost ones.

    Raises:
        CatalogCorruptError: A row cannot be read, so its files are unknown.
    """
    metadata = tables["metadata"]
    query = select(metadata.c.key, metadata.c.value).where(has_prefix(metadata, WRITE_PREFIX))
    return [parse_running_write(row.key, row.value) for row in complete_rows(connection, query, "running writes")]


def parse_running_write(key: str, text: str | None) -> RunningWrite:
    """Parse the row of a registered write.

    >>> parse_running_write("ducklake_core.write:0198c1f20000000000c0ffee", "2026-11-24T08:00:00+00:00").heard.hour
    8

    Raises:
        CatalogCorruptError: The key or the value is invalid.
    """
    write_id = key.removeprefix(WRITE_PREFIX)
    try:
        mark_of_write(write_id)
        heard = parse_time(text or "")
    except (UsageError, ValueError) as error:
        raise CatalogCorruptError(
            f"No orphaned file was deleted, because a running write cannot be read: the value of {key!r} in "
            f"ducklake_metadata is {text!r}. Delete that row",
            key=key,
        ) from error
    return RunningWrite(write_id=write_id, heard=heard)


class FilesOfWrites:
    """The files of some writes, recognized by their names.

    Args:
        writes: The writes.
    """

    def __init__(self, writes: Iterable[RunningWrite]) -> None:
        self._by_mark = {mark_of_write(write.write_id): write for write in writes}

    def write_of(self, path: str) -> RunningWrite | None:
        """Return the write of a file, None when it belongs to none of them."""
        mark = mark_of_file(path)
        return None if mark is None else self._by_mark.get(mark)


def files_of_running_writes(connection: Connection, tables: CatalogTables, now: datetime) -> FilesOfWrites:
    """Return the files of writes that are not lost.

    Raises:
        CatalogCorruptError: A row cannot be read.
    """
    return FilesOfWrites(write for write in read_running_writes(connection, tables) if not write.is_lost(now))


def is_option(metadata: Any) -> ColumnElement[bool]:
    """Return the condition that a row of ``ducklake_metadata`` is not this library's own."""
    return ~has_prefix(metadata, OWN_PREFIX)


def has_prefix(metadata: Any, prefix: str) -> ColumnElement[bool]:
    """Return the condition that the key of a row of ``ducklake_metadata`` begins with a prefix."""
    found: ColumnElement[bool] = metadata.c.key.startswith(prefix, autoescape=True)
    return found


def parse_time(text: str) -> datetime:
    """Parse the time of such a row, in UTC.

    Raises:
        ValueError: The text is not a time, is out of range, or has no zone.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no zone")
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("beyond the calendar") from error
