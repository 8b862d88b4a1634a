"""lake.sql in process over several tables: DuckDB knows how many rows they have, and what it learns from joins leaves out files."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import read
from ducklake_core.engines.duckdb import query as queries
from ducklake_core.engines.duckdb.query import Sources, Way, ways
from ducklake_core.transaction import Transaction
from tests.support.oracle import sqlite_lake

STEP = 10**10
"""Between keys, so that DuckDB does not take them for places in an array."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckLake]:
    address = sqlite_lake(tmp_path_factory.mktemp("joins"))
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for number in range(5):
        keys = [key * STEP for key in range(number * 1000, number * 1000 + 1000)]
        lake.write("big", pa.table({"k": pa.array(keys, pa.int64()), "other": range(1000), "s": [f"x{key}" for key in keys]}))
    lake.write("few", pa.table({"k": pa.array([key * STEP for key in (4500, 4600, 4700)], pa.int64())}))
    lake.write("other", pa.table({"other": range(20, 1000, 3)}))
    lake.write("third", pa.table({"s": [f"x{key * STEP}" for key in range(4000, 4990)]}))
    yield lake
    lake.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Columns of the files that were opened."""
    found: list[str] = []
    original = read.read_task

    def noted(task: object, shape: object, *args: object, **how: object) -> object:
        found.append(",".join(shape.read_schema.names))  # type: ignore[attr-defined]
        return original(task, shape, *args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(read, "read_task", noted)
    return found


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """The ways in which queries were begun."""
    found: list[Way] = []
    original = queries.prepare

    def noted(connection: object, strings: list[str], sources: Sources, failures: object, way: Way) -> list[str]:
        # The check of a new query has empty tables.
        if failures is not None:
            found.append(way)
        return original(connection, strings, sources, failures, way)  # type: ignore[arg-type]

    monkeypatch.setattr(queries, "prepare", noted)
    return found


TWO = [
    "SELECT count(*) FROM big JOIN few USING (k)",
    "SELECT count(*) FROM few JOIN big USING (k)",
    "SELECT count(*) FROM big WHERE k IN (FROM few)",
    "SELECT count(*) FROM (SELECT big.k FROM big JOIN few USING (k) UNION ALL SELECT 1 WHERE false)",
    "SELECT count(DISTINCT big.k) FROM big CROSS JOIN range(100) AS r(a) JOIN few USING (k)",
]


@pytest.mark.parametrize("query", TWO)
def test_a_join_leaves_out_files_of_the_larger_table(lake: DuckLake, query: str, opened: list[str]) -> None:
    assert [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()] == [(3,)]  # type: ignore[union-attr]
    assert opened == ["k"]


def test_filters_that_no_scan_takes_are_done_without(lake: DuckLake, tried: list[Way]) -> None:
    query = "SELECT count(*), min(s) FROM third JOIN big USING (s) JOIN other USING (other) JOIN few USING (k)"
    found = lake.sql(query).to_arrow().to_pylist()  # type: ignore[union-attr]
    assert [way.joins_filter for way in tried] == [True, False]
    assert sorted(count for count in tried[0].planned if count is not None) == [3, 327, 990, 5000]
    own = duckdb.connect()
    for name in ("big", "few", "other", "third"):
        own.register(name, lake.table(name).scan().to_arrow())
    assert [tuple(row.values()) for row in found] == own.execute(query).fetchall()


def test_a_stream_that_has_begun_is_not_begun_again(lake: DuckLake, tried: list[Way]) -> None:
    branch = "SELECT big.k, s FROM big JOIN few USING (k) JOIN other USING (other)"
    found = lake.sql(f"{branch} UNION ALL {branch} UNION ALL SELECT k, '' FROM few")  # type: ignore[union-attr]
    assert found.to_arrow().num_rows == 3 + 2 * lake.sql(branch).to_arrow().num_rows  # type: ignore[union-attr]
    assert tried[0].joins_filter is False


def test_types_and_order_are_those_of_the_table(lake: DuckLake) -> None:
    joined = lake.sql("SELECT big.*, few.k AS same FROM big LEFT JOIN few USING (k)").to_arrow()  # type: ignore[union-attr]
    assert joined.schema.types[:3] == lake.table("big").scan().to_arrow().schema.types
    assert lake.sql("SELECT k FROM big WHERE k NOT IN (FROM few) LIMIT 3").to_arrow().num_rows == 3  # type: ignore[union-attr]


def test_rows_of_a_transaction_and_of_the_catalog_count(lake: DuckLake, tried: list[Way]) -> None:
    def join(tx: Transaction) -> None:
        tx.append("few", pa.table({"k": pa.array([0], pa.int64())}))
        tx.sql("SELECT count(*) FROM big, few, other, big AT (VERSION => 1) AS before").to_arrow()  # type: ignore[union-attr]
        raise KeyError

    with pytest.raises(KeyError), lake.transaction() as tx:
        join(tx)
    assert sorted(count for count in tried[0].planned if count is not None) == [4, 327, 1000, 5000]


def test_one_table_needs_no_counts(lake: DuckLake, tried: list[Way]) -> None:
    lake.sql("SELECT s, count(*) FROM big GROUP BY s").to_arrow()  # type: ignore[union-attr]
    assert tried == [Way(planned=(None,))]


def test_row_counts_of_large_tables_are_scaled() -> None:
    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.format.types.schema import Schema

    def table(count: int) -> TableSource:
        return TableSource(schema_name="main", name=str(count), columns=Schema(columns=()), read=lambda *_: None, row_count=count)

    assert ways([""], [table(10**10), table(10**9), table(1)])[0].planned == (20_000_000, 2_000_000, 1)
    assert [way.planned for way in ways([""], [table(5), table(7)])] == [(1, 2), (None, None), (None, None)]
