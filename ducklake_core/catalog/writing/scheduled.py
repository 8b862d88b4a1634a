"""Files that are scheduled for deletion, and whether anything still names them (specification: ducklake_files_scheduled_for_deletion)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.complete import complete_rows
from ducklake_core.catalog.writing.head import chunks
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.files import paths
from ducklake_core.format.files.locations import file_key, spellings
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.instants import END

_NAMES = {
    "data_file": "names of data files",
    "delete_file": "names of delete files",
    "files_scheduled_for_deletion": "names of files that are scheduled for deletion",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFile:
    """One row of the schedule.

    Attributes:
        stored_path: Path as stored: relative to the data path, or absolute.
        path: Full path.
        scheduled: Since when nothing needs it, in UTC; the end of the calendar where the row does not say, as nobody knows how old it is.
    """

    stored_path: str
    is_relative: bool
    path: str
    scheduled: datetime


def scheduled_files(connection: Connection, tables: CatalogTables, info: LakeInfo) -> Iterator[ScheduledFile]:
    """The whole schedule, in no order. Times are for the caller to compare: where they are text, the database would compare letters."""
    schedule = tables["files_scheduled_for_deletion"]
    query = select(schedule.c.path, schedule.c.path_is_relative, schedule.c.schedule_start)
    for row in complete_rows(connection, query, "files that are scheduled for deletion"):
        is_relative = row.path_is_relative is not False
        yield ScheduledFile(
            stored_path=row.path,
            is_relative=is_relative,
            path=paths.join(info.data_path, row.path, is_relative),
            scheduled=row.schedule_start or END,
        )


def still_referenced(connection: Connection, tables: CatalogTables, info: LakeInfo, full_paths: Iterable[str]) -> set[str]:
    """Those of the full paths that a row of data_file or delete_file names, ended or not, in whatever spelling of the protocol.

    Asks for those paths alone. Paths with steps or doubled slashes are found by :func:`named_by_any_row`.
    """
    wanted = _by_key(full_paths)
    # A row stores its path relative to some directory above the file, or whole: every tail of the path is a candidate.
    tails = sorted({tail for paths_of in wanted.values() for path in paths_of for tail in (*_tails(path), *spellings(path))})
    found: set[str] = set()
    for name in ("data_file", "delete_file"):
        query = _paths_query(tables, name)
        for chunk in chunks(tails):
            for row in complete_rows(connection, query.where(tables[name].c.path.in_(chunk)), _NAMES[name]):
                found.update(wanted.get(file_key(_full(info, row)), ()))
    return found


def named_by_any_row(
    connection: Connection,
    tables: CatalogTables,
    info: LakeInfo,
    full_paths: Iterable[str],
    *,
    identity: Callable[[str], object | None] = lambda _path: None,
) -> set[str]:
    """As :func:`still_referenced`, but reads the names of all files, and so finds every spelling of a path.

    Args:
        identity: What is the same for all paths of one file, None where that is not known: directories may have several paths in a store,
            and letters of two cases may be one.
    """
    wanted = _by_key(full_paths)
    names: dict[str, list[str]] = {}
    for paths_of in wanted.values():
        for path in paths_of:
            names.setdefault(paths.file_name(path).casefold(), []).append(path)
    found: set[str] = set()
    for name in ("data_file", "delete_file") if wanted else ():
        for row in complete_rows(connection, _paths_query(tables, name), _NAMES[name]):
            alike = names.get(_file_name(row.path, name).casefold())
            if alike is None:
                continue
            full = _full(info, row)
            same = wanted.get(file_key(full), ())
            found.update(same)
            others = [path for path in alike if path not in same]
            if others and (one := identity(full)) is not None:
                found.update(path for path in others if identity(path) == one)
    return found


def named_elsewhere(
    connection: Connection, tables: CatalogTables, info: LakeInfo, files: Mapping[str, Mapping[int, str]], *, after: int | None = None
) -> set[str]:
    """Those of some files that another row of data_file or delete_file names too, ended or not: files that were added twice.

    Args:
        files: By metadata table, the full paths by id of the rows that do not count.
        after: A snapshot, so that rows which begin at it or before do not count either; None reads the names of all files.
    """
    wanted = _by_key(path for own in files.values() for path in own.values())
    names = {paths.file_name(path).casefold() for alike in wanted.values() for path in alike}
    found: set[str] = set()
    for name, own in files.items() if wanted else ():
        file = tables[name]
        number = file.c[f"{name}_id"]
        names_of = select(number, file.c.path) if after is None else select(number, file.c.path).where(file.c.begin_snapshot > after)
        rows = complete_rows(connection, names_of, _NAMES[name])
        others = (row for row in rows if row[0] not in own and isinstance(row.path, str))
        alike = [row[0] for row in others if paths.file_name(row.path).casefold() in names]
        for chunk in chunks(alike):
            for row in complete_rows(connection, _paths_query(tables, name).where(number.in_(chunk)), _NAMES[name]):
                found.update(wanted.get(file_key(_full(info, row)), ()))
    return found


def _by_key(full_paths: Iterable[str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for path in full_paths:
        wanted.setdefault(file_key(path), []).append(path)
    return wanted


def _full(info: LakeInfo, row: Any) -> str:
    base = paths.join(info.data_path, row.schema_path, row.schema_path_is_relative is not False)
    base = paths.join(base, row.table_path, row.table_path_is_relative is not False)
    return paths.join(base, row.path, row.path_is_relative is not False)


def every_file_name(connection: Connection, tables: CatalogTables) -> Iterator[str]:
    """The last part of every path that the catalog names: data files and delete files, ended or not, and the schedule."""
    for name, what in _NAMES.items():
        for (path,) in complete_rows(connection, select(tables[name].c.path), what):
            yield _file_name(path, name)
            # Paths of lakes on Windows, and those that carry parameters of the store.
            if "\\" in path or "?" in path:
                yield re.split(r"[/\\]", path.partition("?")[0])[-1]


def _file_name(path: object, name: str) -> str:
    if not isinstance(path, str):
        raise CatalogCorruptError(
            f"ducklake_{name} has a row whose path is {path!r}: which file it means is not known, so none counts as unneeded"
        )
    return paths.file_name(path)


def forget_scheduled(connection: Connection, tables: CatalogTables, files: Sequence[ScheduledFile]) -> None:
    """Remove every row of the schedule for these files."""
    schedule = tables["files_scheduled_for_deletion"]
    for is_relative in (True, False):
        stored = sorted({file.stored_path for file in files if file.is_relative == is_relative})
        flag = schedule.c.path_is_relative.is_(None) if is_relative else None
        matches = schedule.c.path_is_relative == is_relative
        for chunk in chunks(stored):
            connection.execute(delete(schedule).where(schedule.c.path.in_(chunk), matches if flag is None else matches | flag))


def _tails(path: str) -> Iterator[str]:
    """
    >>> list(_tails("s3://b/main/t/x.parquet"))
    ['s3://b/main/t/x.parquet', '/b/main/t/x.parquet', 'b/main/t/x.parquet', 'main/t/x.parquet', 't/x.parquet', 'x.parquet']
    """
    yield path
    yield from (path[position + 1 :] for position, letter in enumerate(path) if letter == "/")


def _paths_query(tables: CatalogTables, name: str) -> Select[Any]:
    file, table, schema = tables[name], tables["table"], tables["schema"]
    return (
        select(
            file.c.path,
            file.c.path_is_relative,
            table.c.path.label("table_path"),
            table.c.path_is_relative.label("table_path_is_relative"),
            schema.c.path.label("schema_path"),
            schema.c.path_is_relative.label("schema_path_is_relative"),
        )
        .select_from(file.outerjoin(table, table.c.table_id == file.c.table_id).outerjoin(schema, schema.c.schema_id == table.c.schema_id))
        .distinct()
    )
