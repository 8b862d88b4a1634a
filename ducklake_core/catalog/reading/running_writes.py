"""Running writes: whose files somebody is still to commit, as rows of ``ducklake_metadata`` (see :mod:`own_rows`).

A write that takes long says so every few minutes. Whoever deletes files that the catalog does not name keeps those of a write that was
heard of lately; a write that was killed is heard of no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.complete import complete_rows
from ducklake_core.catalog.reading.own_rows import OWN_PREFIX, has_prefix, parse_time
from ducklake_core.errors import CatalogCorruptError, UsageError
from ducklake_core.format.files.paths import mark_of_file, mark_of_write

WRITE_PREFIX = f"{OWN_PREFIX}write:"
LOST_AFTER = timedelta(hours=1)
"""Time after which a write that is not heard of counts as killed."""


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
