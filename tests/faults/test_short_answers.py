"""A database that answers with fewer rows than there are never makes an operation delete what the lake needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogError, DuckLakeError
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress, sqlite_lake

NOW = timedelta(0)
ALL: dict[str, Any] = {"cleanup_all": True, "min_age": NOW}
OPERATIONS: dict[str, Callable[[DuckLake], object]] = {
    "orphans": lambda lake: lake.delete_orphaned_files(**ALL),
    "cleanup": lambda lake: lake.cleanup_old_files(**ALL),
    "expire": lambda lake: lake.expire_snapshots(older_than=NOW, min_age=NOW),
    "flush": lambda lake: lake.flush_inlined_data(),
    "checkpoint": lambda lake: lake.checkpoint(min_age=NOW),
}


@contextmanager
def short_answers(lake: DuckLake, table: str, most: int) -> Iterator[list[str]]:
    """Let queries of one metadata table give so many rows at most: those that were shortened."""
    engine = lake.database._current_engine()
    shortened: list[str] = []

    def limited(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> tuple[str, Any]:
        is_list = statement.startswith("SELECT") and f"FROM {table}" in statement.replace("main.", "") and "count(" not in statement
        if is_list:
            shortened.append(statement)
        return (f"SELECT * FROM ({statement}) LIMIT {most}" if is_list else statement), parameters

    event.listen(engine, "before_cursor_execute", limited, retval=True)
    try:
        yield shortened
    finally:
        event.remove(engine, "before_cursor_execute", limited)


def filled(address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for number in range(4):
        lake.write("files", pa.table({"n": [number]}), inline=False)
        lake.write("few", pa.table({"n": [number]}), inline=True)
    lake.write("old", pa.table({"n": [1, 2]}), inline=False)
    lake.drop_table("old")
    lake.holds.add("q1", snapshot=3)
    lake.holds.add("q2", snapshot=5)
    return lake


def rows(lake: DuckLake) -> list[list[int]]:
    return [sorted(lake.table(name).scan().to_arrow()["n"].to_pylist()) for name in ("files", "few")]


LEAN = {("expire", "snapshot"), ("expire", "data_file"), ("expire", "metadata"), ("flush", "inlined"), ("cleanup", "data_file")}
TABLES = (
    "data_file", "delete_file", "snapshot", "metadata", "table", "schema", "inlined_data_tables", "files_scheduled_for_deletion", "inlined",
)  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "table"),
    [
        pytest.param(operation, table, marks=() if (operation, table) in LEAN else pytest.mark.slow)
        for operation in OPERATIONS
        for table in TABLES
    ],
)
def test_short_answers_delete_nothing(tmp_path: Path, operation: str, table: str) -> None:
    lake = filled(sqlite_lake(tmp_path))
    if operation in ("cleanup", "orphans"):
        lake.expire_snapshots(older_than=NOW, min_age=NOW)
    expected = rows(lake)
    name = f"ducklake_inlined_data_{lake.table('few').state.id}" if table == "inlined" else f"ducklake_{table}"
    for most in (0, 1, 2, 3):
        with short_answers(lake, name, most), suppress(DuckLakeError):
            OPERATIONS[operation](lake)
        assert rows(lake) == expected
        assert lake.check(level="rows").is_sound
        assert {hold.snapshot_id for hold in lake.holds.list()} <= {snapshot.id for snapshot in lake.snapshots()}
    lake.close()


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_sweep_reports_a_short_list_of_files(tmp_path: Path, most: int) -> None:
    lake = filled(sqlite_lake(tmp_path))
    with (
        short_answers(lake, "ducklake_data_file", most) as shortened,
        pytest.raises(CatalogError, match="of 5 names of data files, so nothing"),
    ):
        lake.delete_orphaned_files(**ALL)
    assert shortened
    lake.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_select_limit_set_by_another_hook_deletes_nothing(mysql: MySQLServer, tmp_path: Path, operation: str) -> None:
    lake = filled(mysql.lake(tmp_path))
    expected = rows(lake)
    engine = lake.database._current_engine()

    def limit(connection: Any) -> None:
        connection.exec_driver_sql("SET SESSION sql_select_limit = 2")

    event.listen(engine, "begin", limit)
    with suppress(DuckLakeError):
        OPERATIONS[operation](lake)
    lake.close()
    with DuckLake.connect(mysql_url(lake)) as again:
        assert rows(again) == expected
        assert again.check(level="rows").is_sound


def mysql_url(lake: DuckLake) -> str:
    return lake.database.address.url.render_as_string(hide_password=False)
