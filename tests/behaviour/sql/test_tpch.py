"""The queries of TPC-H over a lake that DuckDB wrote and changed: DuckDB's answers in process and on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from duckdb_extensions import import_extension

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from tests.support.oracle import attached, sqlite_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = (3, 6, 13, 16, 22)
ON_SPARK_EVERY_TIME = (6, 22)
NOT_ON_SPARK = {11: "where Spark would round"}


Answers = tuple[DuckLake, dict[int, str], dict[int, list[tuple[object, ...]]]]


def numbers(every_time: tuple[int, ...]) -> list[object]:
    return [pytest.param(number, marks=[] if number in every_time else [pytest.mark.slow]) for number in range(1, 23)]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """The lake, and text and answer of each query."""
    address = sqlite_lake(tmp_path_factory.mktemp("tpch"))
    with attached(address) as duck:
        own = duck.connection
        import_extension("tpch", con=own)
        own.execute("LOAD tpch")
        own.execute("CALL dbgen(sf=0.01, catalog='memory')")
        for (name,) in own.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory'").fetchall():
            own.execute(f"CREATE TABLE lake.{name} AS FROM memory.{name}")
            own.execute(f"DROP TABLE memory.{name}")
        duck.run(
            "DELETE FROM lineitem WHERE l_orderkey % 17 = 0",
            "UPDATE orders SET o_totalprice = o_totalprice + 1, o_comment = o_comment || '!' WHERE o_orderkey % 13 = 0",
            "ALTER TABLE lineitem SET PARTITIONED BY (year(l_shipdate))",
            "INSERT INTO lineitem SELECT * REPLACE (l_linenumber + 10 AS l_linenumber) FROM lineitem WHERE l_orderkey % 7 = 0",
        )
        strings = dict(own.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
        answers = {number: own.execute(text).fetchall() for number, text in strings.items()}
    lake = DuckLake.connect(address.url)
    yield lake, strings, answers
    lake.close()


def rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Averages are floats, whose last digits depend on the order of rows."""
    return [tuple(round(float(value), 6) if isinstance(value, float | Decimal) else value for value in row) for row in rows]


@pytest.mark.parametrize("number", numbers(EVERY_TIME))
def test_in_process(tpch: Answers, number: int) -> None:
    lake, strings, answers = tpch
    found = lake.sql(strings[number]).to_arrow()
    assert rounded([tuple(row.values()) for row in found.to_pylist()]) == rounded(answers[number])


@pytest.mark.parametrize("number", numbers(ON_SPARK_EVERY_TIME))
def test_on_spark(tpch: Answers, number: int, spark: SparkSession) -> None:
    lake, strings, answers = tpch
    if number in NOT_ON_SPARK:
        with pytest.raises(UnsupportedFeatureError, match=NOT_ON_SPARK[number]):
            lake.sql(strings[number], spark=spark).to_arrow()
        return
    found = lake.sql(strings[number], spark=spark).to_arrow()
    assert rounded([tuple(row.values()) for row in found.to_pylist()]) == rounded(answers[number])
