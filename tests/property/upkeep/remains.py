"""Which files and rows of the catalog a lake has, and no more than its snapshots need."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, select

from ducklake_core import DuckLake

_NAMED = ("data_file", "delete_file")
_DELETES = "ducklake_inlined_delete_"


def expired_files(lake: DuckLake) -> list[Any]:
    """Files that the catalog names and no snapshot that is left reads."""
    numbers = [snapshot.id for snapshot in lake.snapshots()]
    return [
        (row.path, row.begin_snapshot, row.end_snapshot)
        for row in _rows(lake, _NAMED)
        if row.end_snapshot is not None and not any(row.begin_snapshot <= number < row.end_snapshot for number in numbers)
    ]


def deletes_of_no_file(lake: DuckLake) -> set[tuple[int, int]]:
    """Tables and data files whose rows the catalog itself deletes, although it does not know the file."""
    known = {row.data_file_id for row in _rows(lake, ("data_file",))}
    found: set[tuple[int, int]] = set()
    with lake.database.read() as connection:
        for name in inspect(connection).get_table_names():
            if name.startswith(_DELETES):
                number = int(name.removeprefix(_DELETES))
                deleted = connection.execute(select(lake.database.tables.inlined_delete(number).c.file_id)).scalars()
                found |= {(number, file) for file in deleted if file not in known}
    return found


def named_files(lake: DuckLake) -> set[str]:
    """Names of the files that the catalog knows, without their directories: each is given to one file alone."""
    return _names(row.path for row in _rows(lake, _NAMED))


def scheduled_files(lake: DuckLake) -> set[str]:
    """Names of those that are to be deleted."""
    return _names(row.path for row in _rows(lake, ("files_scheduled_for_deletion",)))


def stored_files(folder: str) -> set[str]:
    """Names of the files below a local directory."""
    return {path.name for path in Path(folder).rglob("*") if path.is_file()}


def _rows(lake: DuckLake, kinds: Iterable[str]) -> list[Any]:
    with lake.database.read() as connection:
        return [row for kind in kinds for row in connection.execute(select(lake.database.tables[kind]))]


def _names(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths}
