"""Every cell that only catalogs of version 1.1 have, holding anything: right rows or an error of ours, reading and writing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.types.arrow_types import VARIANT_STORAGE
from tests.support.ducklakepy_lake import new_lake
from tests.support.oracle import LakeAddress, sqlite_lake

ROWS = sorted([*range(0, 60, 2), 100, 101, 102])
TABLES = ("t", "x.y.t", '"x.y".t', "v")
FILTERS: dict[str | None, Callable[[int], bool]] = {
    None: lambda _: True,
    "a = 4": lambda a: a == 4,
    "a >= 100": lambda a: a >= 100,
    "s >= 's100'": lambda a: f"s{a}" >= "s100",
    "a < 100 AND a > 3": lambda a: 3 < a < 100,
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """Four tables: a file with deletes of two snapshots in one vector and inlined rows; schemas in schemas; variants; a commented view."""
    address = sqlite_lake(tmp_path_factory.mktemp("cells"))
    lake = new_lake(address)
    for path in ("x", "x.y", '"x.y"'):
        lake.create_schema(path)
    lake.set_option("write_deletion_vectors", True)
    for name in TABLES[:3]:
        lake.create_table(name, {"a": "int64", "s": "varchar", "n": "null"})
        lake.write(name, _rows(range(60)))
        lake.set_option("data_inlining_row_limit", 0)
        lake.table(name).delete("a % 2 = 1 AND a < 30")
        lake.table(name).delete("a % 2 = 1")
        lake.unset_option("data_inlining_row_limit")
        lake.write(name, _rows(range(100, 103)))
    lake.create_table("v", {"a": "int64", "v": "variant"})
    schema = lake.table("v").scan().to_arrow().schema
    variants = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0c\x07"}, None], VARIANT_STORAGE)
    lake.write("v", pa.Table.from_arrays([pa.array([1, 2], pa.int64()), variants], schema=schema))
    lake.create_view("w", "SELECT a, s FROM t")
    lake.set_comment("w", "of a column", column="a")
    lake.close()
    return address


def _rows(numbers: range) -> pa.Table:
    columns = {"a": pa.array(numbers, pa.int64()), "s": [f"s{n}" for n in numbers], "n": pa.nulls(len(numbers))}
    return pa.table(columns)


_COUNTS = ("NULL", "0", "-1", "4611686018427387904", "'many'", "1.5", "x'00ff'", "1")
_FLAGS = ("NULL", "0", "1", "'maybe'", "-1", "7", "x'ff'", "0.5")
_TEXTS = ("NULL", "''", "7", "x'ff'")
_NUMBERS = ("NULL", "'x'", "-1", "x'00'", "1.5")
_SCHEMAS = "SELECT schema_id FROM ducklake_schema WHERE schema_name = "
_COPIED = ("view_column_tag", "table_column_stats", "file_column_stats", "inlined_data_tables", "metadata")


def _edits() -> Iterator[str]:
    for table in ("data_file", "delete_file"):
        yield from (f"UPDATE ducklake_{table} SET row_group_count = {value}" for value in _COUNTS)
    for table in ("file_column_stats", "table_column_stats"):
        for flag in ("min_is_exact", "max_is_exact"):
            yield from (f"UPDATE ducklake_{table} SET {flag} = {value}" for value in _FLAGS if value != "1")
    for value in (*_NUMBERS, "77", "schema_id", "0", f"({_SCHEMAS}'y')"):
        yield f"UPDATE ducklake_schema SET parent_schema_id = {value} WHERE schema_name = 'x'"
        yield f"UPDATE ducklake_schema SET parent_schema_id = {value} WHERE schema_name = 'y'"
    yield "UPDATE ducklake_schema SET end_snapshot = 9 WHERE schema_name = 'x'"
    yield "UPDATE ducklake_schema SET schema_name = NULL WHERE schema_name = 'y'"
    yield "UPDATE ducklake_schema SET schema_name = 'x.y' WHERE schema_name = 'y'"
    for column in ("view_id", "column_name", "begin_snapshot", "end_snapshot", "key", "value"):
        yield from (f"UPDATE ducklake_view_column_tag SET {column} = {value}" for value in (*_TEXTS, "-1", "99"))
    for table in _COPIED:
        yield f"INSERT INTO ducklake_{table} SELECT * FROM ducklake_{table}"
    for column in ("row_id", "begin_snapshot", "end_snapshot"):
        for value in ("'x'", "x'00'", "1.5", *(("NULL",) if column != "end_snapshot" else ())):
            yield f"UPDATE {{inlined}} SET _ducklake_{column} = {value}"
        yield f"ALTER TABLE {{inlined}} RENAME COLUMN _ducklake_{column} TO {column}"
    yield from ("ALTER TABLE {inlined} DROP COLUMN s", "ALTER TABLE {inlined} DROP COLUMN _ducklake_end_snapshot", "DROP TABLE {inlined}")
    yield from (f"UPDATE {{inlined}} SET n = {value}" for value in ("0", "'x'", "x''"))
    yield from ("DROP TABLE ducklake_view_column_tag", "ALTER TABLE ducklake_schema DROP COLUMN parent_schema_id")
    for table, column in (("data_file", "row_group_count"), ("file_column_stats", "min_is_exact"), ("table_column_stats", "max_is_exact")):
        yield f"ALTER TABLE ducklake_{table} DROP COLUMN {column}"
    for value in ("''", "'1.10'", "'1.1 '", "1.1", "x'312e31'"):
        yield f"UPDATE ducklake_metadata SET value = {value} WHERE key = 'version'"
    yield "INSERT INTO ducklake_metadata VALUES ('version', '1.0', NULL, NULL)"
    for column, values in {"footer_size": ("NULL", "0", "1", "99999999", "-5"), "delete_count": ("NULL", "0", "7", "-1")}.items():
        yield from (f"UPDATE ducklake_delete_file SET {column} = {value}" for value in values)
    yield from (f"UPDATE ducklake_delete_file SET partial_max = {value}" for value in ("NULL", "'x'", "99"))
    yield from (f"UPDATE ducklake_delete_file SET format = {value}" for value in ("'parquet'", "NULL", "'PUFFIN'", "'word'"))


EDITS = tuple(_edits())


@pytest.mark.some(4)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", EDITS)
def test_cells(edit: str, template: LakeAddress, tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    shutil.copy(template.url.removeprefix("sqlite:///"), address.url.removeprefix("sqlite:///"))
    shutil.copytree(template.data_path, address.data_path)
    engine = create_engine(address.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE ducklake_metadata SET value = '{address.data_path}' WHERE key = 'data_path'")
        owner = "SELECT table_id FROM ducklake_table WHERE table_name = 't' ORDER BY table_id LIMIT 1"
        query = f"SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = ({owner})"
        connection.exec_driver_sql(edit.format(inlined=connection.exec_driver_sql(query).scalar()))
    engine.dispose()
    try:
        lake = DuckLake.connect(address.url)
    except DuckLakeError:
        return
    answers = [_right(lambda n=name, w=where: _read(lake, n, w), _wanted(name, where)) for name in TABLES for where in FILTERS]
    answers += [_right(lambda n=name: lake.table(n).scan().count(), len(_wanted(name, None))) for name in TABLES]
    for asked in (
        lake.tables,
        lake.schemas,
        lake.views,
        lake.snapshots,
        lambda: lake.check(level="rows"),
        lambda: lake.view("w").column_comments,
    ):
        _right(asked)
    # What writes on it keeps to the same: it fails with an error of ours, or leaves the rows that it should.
    wrote = _right(lambda: lake.write("t", _rows(range(103, 104))) and None, None)
    _right(lambda: lake.create_schema("x.y.z") and None, None)
    _right(lambda: lake.flush_inlined_data() and None)
    _right(lambda: lake.drop_schema("x", cascade=True) and None)
    if wrote:
        _right(lambda: _read(lake, "t", None), [*_wanted("t", None), 103])
    lake.close()
    assert answers


def _wanted(name: str, where: str | None) -> list[int]:
    holds = FILTERS[where]
    return [a for a in ((1, 2) if name == "v" else ROWS) if holds(a)]


def _read(lake: DuckLake, name: str, where: str | None) -> list[int]:
    if name == "v" and where is not None and "s" in where:
        return _wanted(name, where)
    found = lake.table(name).scan(where=where).to_arrow()
    return sorted(found["a"].to_pylist())


_ANY = object()


def _right(ask: Callable[[], Any], wanted: object = _ANY) -> bool:
    """Whether it answers, which must then be right; another error than ours fails the test."""
    try:
        found = ask()
    except DuckLakeError:
        return False
    assert wanted is _ANY or found == wanted
    return True
