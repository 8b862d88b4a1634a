"""The queries of TPC-DS over a lake that DuckDB wrote and changed: DuckDB's answers in process and, where its syntax allows, on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from math import isclose
from typing import TYPE_CHECKING

import pytest
from duckdb_extensions import import_extension

from ducklake_core import DuckLake
from ducklake_core.engines import duckdb_instance as instance
from tests.support.oracle import attached, sqlite_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[object, ...]
Answers = tuple[DuckLake, dict[int, str], Callable[[int], list[Row]]]
# The limit of time holds for the lake too, which the first test makes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """The lake, the text of each query, and what DuckDB answers to one."""
    address = sqlite_lake(tmp_path_factory.mktemp("tpcds"))
    with attached(address) as duck:
        own = duck.connection
        import_extension("tpcds", con=own)
        own.execute("LOAD tpcds")
        own.execute("CALL dsdgen(sf=0.01, catalog='memory')")
        for (name,) in own.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory'").fetchall():
            own.execute(f"CREATE TABLE lake.{name} AS FROM memory.{name}")
            own.execute(f"DROP TABLE memory.{name}")
        duck.run(
            "DELETE FROM store_sales WHERE ss_ticket_number % 17 = 0",
            "UPDATE item SET i_current_price = i_current_price + 1, i_item_desc = i_item_desc || '!' WHERE i_item_sk % 13 = 0",
            "ALTER TABLE web_sales SET PARTITIONED BY (bucket(4, ws_item_sk))",
            "INSERT INTO web_sales SELECT * REPLACE (ws_order_number + 100000 AS ws_order_number) FROM web_sales WHERE ws_item_sk % 7 = 0",
            "ALTER TABLE customer ADD COLUMN c_note VARCHAR DEFAULT 'none'",
        )
        # DuckDB would leave out files from before the table was partitioned by buckets (docs/reference/differences.md).
        duck.run("SET disabled_optimizers = 'join_filter_pushdown'")
        strings = dict(own.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
        with closing(DuckLake.connect(address.url)) as lake:
            yield lake, strings, lambda number: duck.rows(strings[number])


def assert_alike(found: list[Row], expected: list[Row]) -> None:
    """The same rows, in any order that ORDER BY allows; floats, whose last digits depend on the order of rows, nearly so."""
    assert len(found) == len(expected)
    for one, other in zip(sorted(found, key=_key), sorted(expected, key=_key), strict=True):
        assert len(one) == len(other)
        for mine, by_duckdb in zip(one, other, strict=True):
            if isinstance(mine, float | Decimal) and isinstance(by_duckdb, float | Decimal):
                assert isclose(mine, by_duckdb, rel_tol=1e-9, abs_tol=1e-9), (one, other)
            else:
                assert mine == by_duckdb, (one, other)


def _key(row: Row) -> tuple[str, ...]:
    return tuple(f"{float(value):.6g}" if isinstance(value, float | Decimal) else str(value) for value in row)


@pytest.mark.parametrize("number", range(1, 100))
def test_in_process(tpcds: Answers, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Joined in an order that DuckDB chooses without row counts, 64 and 72 make billions of rows.
    monkeypatch.setitem(instance._SETTINGS, "memory_limit", "1GB")
    lake, strings, answer = tpcds
    found = lake.sql(strings[number]).to_arrow()  # type: ignore[union-attr]
    assert_alike([tuple(column[place].as_py() for column in found.columns) for place in range(found.num_rows)], answer(number))


@pytest.mark.parametrize("number", range(1, 100))
def test_on_spark(tpcds: Answers, number: int, spark: SparkSession) -> None:
    lake, strings, answer = tpcds
    found = lake.sql(strings[number], spark=spark).to_arrow()  # type: ignore[union-attr]
    assert_alike([tuple(column[place].as_py() for column in found.columns) for place in range(found.num_rows)], answer(number))
