"""The types in which columns of a merge's source are compared, computed and stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, SchemaError
from tests.support.oracle import LakeAddress

COLUMNS = {"k": "int32", "x": "int32", "p": "decimal(9,2)", "y": "varchar", "z": "int64"}


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    made = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    made.create_table("t", COLUMNS)
    return made


def _insert(lake: DuckLake, source: Any, values: Any) -> list[dict[str, Any]]:
    lake.table("t").merge(source, on="k", missing_columns="null").when_not_matched_insert(values=values).execute()
    return lake.table("t").to_arrow().to_pylist()


@pytest.mark.parametrize("values", ["all", "named"])
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x", 7.5, "7.5 is not a whole number"),
        ("x", 2**40, "1099511627776 is not a value of type int32"),
        ("p", 0.125, "0.125 cannot be stored exactly as decimal(9,2)"),
    ],
)
def test_stored_values_are_not_rounded(lake: DuckLake, name: str, value: Any, reason: str, values: str) -> None:
    source = pa.table({"k": [1], name: [value]})
    with pytest.raises(SchemaError, match=re.escape(reason)):
        _insert(lake, source, "all" if values == "all" else {"k": "s.k", name: f"s.{name}"})
    assert lake.table("t").scan().count() == 0


@pytest.mark.parametrize(("value", "text"), [(7.0, "7.0"), (7.5, "7.5")])
def test_expressions_see_the_type_of_the_source(lake: DuckLake, value: float, text: str) -> None:
    """Expressions see the source's type, also where all values fit the table's column of the same name."""
    found = _insert(lake, pa.table({"k": [1], "x": [value]}), {"k": "s.k", "y": "s.x::varchar"})
    assert found[0]["y"] == text


def test_expressions_do_not_overflow_in_the_type_of_the_table(lake: DuckLake) -> None:
    assert _insert(lake, pa.table({"k": [1], "x": [2_000_000_000]}), {"k": "s.k", "z": "s.x * 2"})[0]["z"] == 4_000_000_000


def test_spark_sources(lake: DuckLake, spark: SparkSession) -> None:
    rows: Callable[..., Any] = spark.createDataFrame
    with pytest.raises(DuckLakeError, match=r"7\.5"):
        _insert(lake, rows([(1, 7.5)], "k int, x double"), "all")
    found = _insert(lake, rows([(1, 7.0)], "k int, x double"), {"k": "s.k", "x": "s.x"})
    assert found == [{"k": 1, "x": 7, "p": None, "y": None, "z": None}]
