"""Every expression that is translated gives the names, types and values of DuckDB, on awkward data and on none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.behaviour.views.comparison import check
from tests.behaviour.views.expressions import AGGREGATED, EXPRESSIONS, ROWS, TABLE
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import spread


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeAddress]:
    """A lake with the table, an empty one, and a view of all expressions of each subject on each."""
    place: Path = tmp_path_factory.mktemp("expressions")
    address = sqlite_lake(place)
    with attached(address) as duck:
        duck.run(*TABLE, *(f"INSERT INTO t VALUES {row}" for row in ROWS[:4]), *(f"INSERT INTO t VALUES {row}" for row in ROWS[4:]))
        duck.run(TABLE[0].replace("TABLE t", "TABLE none"))
        for source in ("t", "none"):
            for subject, expressions in EXPRESSIONS.items():
                listed = ", ".join(f"{text} AS x{number}" for number, text in enumerate(expressions))
                duck.run(f"CREATE VIEW {subject}_{source} AS SELECT k, {listed} FROM {source} AS t")
            listed = ", ".join(f"{text} AS x{number}" for number, text in enumerate(AGGREGATED))
            duck.run(f"CREATE VIEW all_{source} AS SELECT {listed} FROM {source} AS t")
            duck.run(f"CREATE VIEW grouped_{source} AS SELECT k % 3 AS key, {listed} FROM {source} AS t GROUP BY k % 3")
    return address


@pytest.mark.parametrize("subject", spread([*EXPRESSIONS, "all", "grouped"], 3))
def test_values(address: LakeAddress, spark: SparkSession, subject: str) -> None:
    lake = DuckLake.connect(address.url)
    with attached(address) as duck:
        check(lake.view(f"{subject}_t").to_spark(spark), duck, f"lake.main.{subject}_t")


def test_no_rows(address: LakeAddress, spark: SparkSession) -> None:
    lake = DuckLake.connect(address.url)
    with attached(address) as duck:
        check(lake.view("all_none").to_spark(spark), duck, "lake.main.all_none")
        check(lake.view("grouped_none").to_spark(spark), duck, "lake.main.grouped_none")
        check(lake.view("strings_none").to_spark(spark), duck, "lake.main.strings_none")
