"""Every cell that only version 1.1 has, with any value: right rows or an error of the library, in reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.property.hostile_catalogs.cells import EDITS, INLINED, TABLES, TYPED_EDITS, Cell, Edit, build, rows
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

ROWS = sorted([*range(0, 60, 2), 100, 101, 102])
FILTERS: dict[str | None, Callable[[int], bool]] = {
    None: lambda _: True,
    "a = 4": lambda a: a == 4,
    "a >= 100": lambda a: a >= 100,
    "s >= 's100'": lambda a: f"s{a}" >= "s100",
    "a < 100 AND a > 3": lambda a: 3 < a < 100,
}
_ANY = object()
_TYPES = {
    "postgresql": "SELECT data_type FROM information_schema.columns WHERE table_name = '{}' AND column_name = '{}'",
    "duckdb": "SELECT data_type FROM duckdb_columns() WHERE (table_name, column_name) = ('{}', '{}')",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", spread(EDITS, 4), ids=str)
def test_cells_in_sqlite(edit: Edit, copies: Callable[..., DamagedLake]) -> None:
    _check("sqlite", edit, copies)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", spread(TYPED_EDITS, 2), ids=str)
def test_cells_in_postgresql(edit: Edit, copies: Callable[..., DamagedLake]) -> None:
    _check("postgresql", edit, copies)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", TYPED_EDITS, ids=str)
def test_cells_in_duckdb(edit: Edit, copies: Callable[..., DamagedLake]) -> None:
    _check("duckdb", edit, copies)


def test_values_of_other_types_are_put_into_columns_of_those() -> None:
    assert next(Cell("t", "c", "'many'").typed("bigint")).startswith("ALTER TABLE t ALTER COLUMN c TYPE text")
    assert [len(list(Cell("t", "c", value).typed("boolean"))) for value in ("NULL", "0", "7", "0.5", "'maybe'", "x'ff'")] == [
        1, 1, 2, 2, 2, 2,
    ]  # fmt: skip


def _check(kind: str, edit: Edit, copies: Callable[..., DamagedLake]) -> None:
    damaged = copies(kind, build)
    owner = "SELECT min(table_id) FROM ducklake_table WHERE table_name = 't'"
    inlined = damaged.value(f"SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = ({owner})")
    statements = [str(edit)]
    if isinstance(edit, Cell) and kind != "sqlite":
        declared = damaged.value(_TYPES[kind].format(edit.table.replace(INLINED, inlined), edit.column))
        statements = list(edit.typed(declared) if kind == "postgresql" else edit.in_duckdb(declared))
    damaged.edit(*(statement.replace(INLINED, inlined) for statement in statements))
    # What only helps to plan is not needed for a right answer.
    planned = isinstance(edit, Cell) and (
        edit.column == "row_group_count" or (edit.column.endswith("_is_exact") and edit.value in ("NULL", "0"))
    )
    _hold(damaged.address, reads=planned)


def _hold(address: LakeAddress, *, reads: bool) -> None:
    try:
        lake = DuckLake.connect(address.url)
    except DuckLakeError:
        assert not reads
        return
    answers = [_right(lambda n=name, w=where: _read(lake, n, w), _wanted(name, where)) for name in TABLES for where in FILTERS]
    answers += [_right(lambda n=name: lake.table(n).scan().count(), len(_wanted(name, None))) for name in TABLES]
    for tried in (
        lake.tables,
        lake.schemas,
        lake.views,
        lake.snapshots,
        lambda: lake.check(level="rows"),
        lambda: lake.view("w").column_comments,
    ):
        _right(tried)
    # The same holds for writes: they fail with an error of the library, or leave the right rows.
    wrote = _right(lambda: lake.write("t", rows(range(103, 104))) and None, None)
    _right(lambda: lake.create_schema("x.y.z") and None, None)
    _right(lambda: lake.flush_inlined_data() and None)
    _right(lambda: lake.drop_schema("x", cascade=True) and None)
    if wrote:
        _right(lambda: _read(lake, "t", None), [*_wanted("t", None), 103])
    lake.close()
    assert answers
    assert all(answers) or not reads


def _wanted(name: str, where: str | None) -> list[int]:
    holds = FILTERS[where]
    return [a for a in ((1, 2) if name == "v" else ROWS) if holds(a)]


def _read(lake: DuckLake, name: str, where: str | None) -> list[int]:
    if name == "v" and where is not None and "s" in where:
        return _wanted(name, where)
    found = lake.table(name).scan(where=where).to_arrow()
    return sorted(found["a"].to_pylist())


def _right(answer: Callable[[], Any], wanted: object = _ANY) -> bool:
    """Return True for an answer, which must be right, and False for an error of the library."""
    try:
        found = answer()
    except DuckLakeError:
        return False
    assert wanted is _ANY or found == wanted
    return True
