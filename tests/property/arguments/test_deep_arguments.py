"""Types, expressions and queries that are nested more deeply than Python's calls may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError, UsageError

NESTED = {"parentheses": "(" * 3000 + "k" + ")" * 3000, "calls": "abs(" * 3000 + "k" + ")" * 3000, "NOT": "NOT " * 3000 + "(k = 1)"}
TYPES = {"structs": "STRUCT(a " * 2000 + "INT" + ")" * 2000, "lists": "INT" + "[]" * 3000}


def _lists(depth: int) -> pa.DataType:
    found: pa.DataType = pa.int64()
    for _ in range(depth):
        found = pa.list_(found)
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DuckLake]:
    with DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/") as made:
        made.write("t", pa.table({"k": [1, 2]}))
        yield made


def test_deep_definitions_raise(lake: DuckLake) -> None:
    before = lake.snapshot()
    for text in NESTED.values():
        calls: tuple[Callable[[], object], ...] = (
            lambda text=text: lake.create_view("v", f"SELECT k FROM t WHERE {text} IS NOT NULL"),  # type: ignore[misc]
            lambda text=text: lake.create_macro("m", {"k": text}),  # type: ignore[misc]
            lambda text=text: lake.table("t").set_sorted_by([text]),  # type: ignore[misc]
            lambda text=text: lake.table("t").set_default("k", expression=text),  # type: ignore[misc]
        )
        for call in calls:
            with pytest.raises((UnsupportedFeatureError, UsageError), match="nested too deeply"):
                call()
    assert lake.snapshot() == before
    assert list(lake) == [table.table for table in lake.tables()] == list(lake.at(before.id))


def test_deep_queries_run_or_raise_as_duckdb_does(lake: DuckLake) -> None:
    assert lake.sql("SELECT " + "(" * 300 + "k" + ")" * 300 + " FROM t ORDER BY ALL").to_arrow().column(0).to_pylist() == [1, 2]
    with pytest.raises(UsageError, match="expression depth"):
        lake.sql(f"SELECT {NESTED['calls']} FROM t").to_arrow()


def test_deep_types_raise(lake: DuckLake) -> None:
    before = lake.snapshot()
    for text in (*TYPES.values(), _lists(101), _lists(3000)):
        calls: tuple[Callable[[], object], ...] = (
            lambda text=text: lake.create_table("x", {"a": text}),  # type: ignore[misc]
            lambda text=text: lake.table("t").add_column("z", text),  # type: ignore[misc]
            lambda text=text: lake.table("t").set_column_type("k", text),  # type: ignore[misc]
        )
        for call in calls:
            with pytest.raises(UnsupportedFeatureError, match="nested more than 100 levels deep"):
                call()
    with pytest.raises(UnsupportedFeatureError, match="'a' is nested more than 100 levels deep"):
        lake.write("x", pa.table({"a": pa.nulls(1, _lists(101))}))
    assert lake.snapshot() == before
    lake.create_table("deepest", {"a": _lists(100)})
    assert lake.table("deepest").schema.to_arrow().field("a").type.value_type.value_type == _lists(98)
