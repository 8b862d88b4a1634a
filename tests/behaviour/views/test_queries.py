"""Whole queries return the rows of DuckDB, or raise an error with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from tests.behaviour.views.comparison import check
from tests.behaviour.views.queries import ORDERED, REJECTED, SETUP, TRANSLATED
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import slow


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeAddress]:
    address = sqlite_lake(tmp_path_factory.mktemp("queries"))
    rejected = {f"r_{name}" if name != "power" else name: sql for name, (sql, _) in REJECTED.items()}
    with attached(address) as duck:
        duck.run(*SETUP)
        for name, sql in {**TRANSLATED, **ORDERED, **rejected}.items():
            duck.run(f'CREATE VIEW "{name}" AS {sql}')
    return address


@pytest.mark.parametrize("part", [0, *(slow(part) for part in range(1, 8))])
def test_translated(address: LakeAddress, spark: SparkSession, part: int) -> None:
    lake = DuckLake.connect(address.url)
    with attached(address) as duck:
        for name in list(TRANSLATED)[part::8]:
            check(lake.view(name).to_spark(spark), duck, f'lake.main."{name}"')


def test_ordered(address: LakeAddress, spark: SparkSession) -> None:
    lake = DuckLake.connect(address.url)
    with attached(address) as duck:
        for name in ORDERED:
            check(lake.view(name).to_spark(spark), duck, f'lake.main."{name}"', ordered=True)


@pytest.mark.parametrize("name", list(REJECTED))
def test_unsupported_queries_raise(address: LakeAddress, spark: SparkSession, name: str) -> None:
    view = DuckLake.connect(address.url).view(name if name == "power" else f"r_{name}")
    with pytest.raises(UnsupportedFeatureError, match=f"cannot read view main.*({REJECTED[name][1]})"):
        view.to_spark(spark)
