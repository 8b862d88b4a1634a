"""Every cell that only catalogs of version 1.1 have, holding anything: right rows or an error of ours, reading and writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.property.hostile_catalogs.cells import EDITS, INLINED, TABLES, TYPED_EDITS, Cell, Edit, build, rows
from tests.property.hostile_catalogs.spoiled import SpoiledLake, file_copy, sqlite_copy
from tests.support.oracle import LakeAddress, file_lake, sqlite_lake
from tests.support.parameters import spread
from tests.support.postgres import PostgresServer

ROWS = sorted([*range(0, 60, 2), 100, 101, 102])
FILTERS: dict[str | None, Callable[[int], bool]] = {
    None: lambda _: True,
    "a = 4": lambda a: a == 4,
    "a >= 100": lambda a: a >= 100,
    "s >= 's100'": lambda a: f"s{a}" >= "s100",
    "a < 100 AND a > 3": lambda a: 3 < a < 100,
}
_ANY = object()
_OWNER = "SELECT min(table_id) FROM ducklake_table WHERE table_name = 't'"
_TYPE = "SELECT data_type FROM information_schema.columns WHERE table_schema = 'public' AND table_name = '{}' AND column_name = '{}'"
_TYPE_IN_DUCKDB = "SELECT data_type FROM duckdb_columns() WHERE table_name = '{}' AND column_name = '{}'"


@pytest.fixture(scope="module")
def in_sqlite(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """The untouched lake, its catalog in SQLite."""
    return build(sqlite_lake(tmp_path_factory.mktemp("cells")))


@pytest.fixture(scope="module")
def in_postgresql(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> LakeAddress:
    """The untouched lake, its catalog in PostgreSQL."""
    return build(postgres.lake(tmp_path_factory.mktemp("cells-postgres"), keep=True))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", spread(EDITS, 4), ids=str)
def test_cells_in_sqlite(edit: Edit, in_sqlite: LakeAddress, tmp_path: Path) -> None:
    lake = sqlite_copy(in_sqlite, tmp_path)
    lake.edit(str(edit).replace(INLINED, _inlined(lake)))
    _check(lake.address)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", spread(TYPED_EDITS, 4), ids=str)
def test_cells_in_postgresql(edit: Edit, in_postgresql: LakeAddress, postgres: PostgresServer, tmp_path: Path) -> None:
    lake = SpoiledLake(postgres.lake(tmp_path, template=in_postgresql)).moved_from(in_postgresql)
    inlined = _inlined(lake)
    statements = (
        [edit] if isinstance(edit, str) else edit.typed(lake.value(_TYPE.format(edit.table.replace(INLINED, inlined), edit.column)))
    )
    lake.edit(*(statement.replace(INLINED, inlined) for statement in statements))
    _check(lake.address)


@pytest.fixture(scope="module")
def in_duckdb(tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """The untouched lake, its catalog in a DuckDB file."""
    return build(file_lake("duckdb", tmp_path_factory.mktemp("cells-duckdb")))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", TYPED_EDITS, ids=str)
def test_cells_in_duckdb(edit: Edit, in_duckdb: LakeAddress, tmp_path: Path) -> None:
    lake = file_copy(in_duckdb, file_lake("duckdb", tmp_path))
    inlined = _inlined(lake)
    statements = (
        [edit]
        if isinstance(edit, str)
        else edit.in_duckdb(lake.value(_TYPE_IN_DUCKDB.format(edit.table.replace(INLINED, inlined), edit.column)))
    )
    lake.edit(*(statement.replace(INLINED, inlined) for statement in statements))
    _check(lake.address)


def test_values_of_other_types_are_put_into_columns_of_those() -> None:
    assert next(Cell("t", "c", "'many'").typed("bigint")).startswith("ALTER TABLE t ALTER COLUMN c TYPE text")
    assert [len(list(Cell("t", "c", value).typed("boolean"))) for value in ("NULL", "0", "7", "0.5", "'maybe'", "x'ff'")] == [
        1,
        1,
        2,
        2,
        2,
        2,
    ]


def _inlined(lake: SpoiledLake) -> str:
    name: str = lake.value(f"SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = ({_OWNER})")
    return name


def _check(address: LakeAddress) -> None:
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
    wrote = _right(lambda: lake.write("t", rows(range(103, 104))) and None, None)
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


def _right(ask: Callable[[], Any], wanted: object = _ANY) -> bool:
    """Whether it answers, which must then be right; another error than ours fails the test."""
    try:
        found = ask()
    except DuckLakeError:
        return False
    assert wanted is _ANY or found == wanted
    return True
