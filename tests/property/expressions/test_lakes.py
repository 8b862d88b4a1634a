"""Random expressions through the public calls: what ``update`` writes and ``scan(where=...)`` finds is what DuckDB does."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from tests.property.expressions.edge_values import DUCKDB_TYPES, load
from tests.property.expressions.generator import Generator, class_of
from tests.property.expressions.judge import columns_to_set, expected
from tests.support.oracle import Oracle, attached, sqlite_lake
from tests.support.parameters import slow

pytestmark = pytest.mark.usefixtures("pruned_by_the_database")

SKIPPED = ("iv", "ts_s", "ts_ms", "h", "uh")
"""Columns that hold values which DuckDB cannot write into files, or not exactly."""


@pytest.fixture(scope="module")
def duck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    address = sqlite_lake(tmp_path_factory.mktemp("lakes"))
    with attached(address) as duck:
        duck.run("SET TimeZone = 'UTC'", "PRAGMA disable_optimizer")
        load(duck.connection, "memory.t")
        duck.run(*(f"ALTER TABLE memory.t DROP {name}" for name in SKIPPED), "CREATE TABLE lake.t AS FROM memory.t")
        yield duck
        duck.run("PRAGMA enable_optimizer", "DROP TABLE memory.t")


def _mentions_skipped(sql: str) -> bool:
    return any(name in sql.replace("(", " ").replace(")", " ").replace(",", " ").split() for name in SKIPPED)


@pytest.mark.parametrize("seed", [3, *(slow(seed) for seed in range(300, 306))])
def test_updates(duck: Oracle, seed: int) -> None:
    draw = Random(seed)
    made, table, done = Generator(draw), DuckLake.connect(duck.address.url).table("t"), 0
    for column in draw.sample([field for field in columns_to_set() if field.name not in SKIPPED], 12):
        sql = made.of(class_of(column.name), 2).sql
        target = DUCKDB_TYPES[column.name]
        wanted_cells = expected(f"CAST({sql} AS {target})", duck.connection, "lake.t")
        if _mentions_skipped(sql) or not wanted_cells.cells or len(wanted_cells.failing) == len(wanted_cells.cells):
            continue
        failing = f'"row" NOT IN ({", ".join(map(str, wanted_cells.failing))})' if wanted_cells.failing else "TRUE"
        before = duck.rows(f'SELECT CAST("{column.name}" AS VARCHAR) FROM lake.t ORDER BY "row"')
        try:
            table.update({column.name: sql}, where=failing)
        except UnsupportedFeatureError:
            assert duck.rows(f'SELECT CAST("{column.name}" AS VARCHAR) FROM lake.t ORDER BY "row"') == before, sql
            continue
        done += 1
        wanted = [
            own[0] if row in wanted_cells.failing else text for row, (own, text) in enumerate(zip(before, wanted_cells.cells, strict=True))
        ]
        found = [row[0] for row in duck.rows(f'SELECT CAST("{column.name}" AS VARCHAR) FROM lake.t ORDER BY "row"')]
        wrong = [(row, own, text) for row, (own, text) in enumerate(zip(found, wanted, strict=True)) if own != text]
        assert not wrong, (seed, column.name, sql, wrong[:5])
    assert done >= 3


@pytest.mark.parametrize("seed", [4, *(slow(seed) for seed in range(400, 406))])
def test_scans(duck: Oracle, seed: int) -> None:
    made, table, done = Generator(Random(seed)), DuckLake.connect(duck.address.url).table("t"), 0
    for depth in [1, 2] * 15:
        sql = made.condition(depth).sql
        wanted_cells = expected(sql, duck.connection, "lake.t")
        if _mentions_skipped(sql) or not wanted_cells.cells or wanted_cells.failing:
            continue
        try:
            rows = sorted(table.scan(columns=["row"], where=sql).to_arrow().column("row").to_pylist())
        except (UnsupportedFeatureError, UsageError):
            # Also a constant that cannot be read, wherever it stands.
            continue
        done += 1
        assert rows == [row for row, text in enumerate(wanted_cells.cells) if text == "true"], (seed, sql)
    assert done >= 5
