"""Scalar macros of the lake in conditions and values are expanded as by DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from tests.support.oracle import LakeAddress, attached

MACROS = (
    "CREATE MACRO late(x) AS x > 5, (x, y INTEGER) AS x > y",
    "CREATE MACRO past(x, least INTEGER := 2) AS x > least",
    "CREATE MACRO very(x) AS late(x, y := 7) AND NOT late(x, 8)",
    "CREATE MACRO plus(a, b) AS a + b",
    "CREATE MACRO loud(word) AS upper(word) || '!'",
)
SIMPLE = ("late(k)", "NOT late(k, 3)", "very(k) OR k = 1", "late(k, y := 8)", "past(k)", "past(k, 4)", "past(k, least := 7) AND s = 'a'")
CONDITIONS = (*SIMPLE, "LATE(plus(k, 2))", "plus(k, 1) * 2 = 6", "loud(s) = 'A!'")


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t AS SELECT range AS k, chr(97 + (range % 2)::INTEGER) AS s FROM range(10)", *MACROS)
    return DuckLake.connect(sqlite_address.url)


def test_conditions(lake: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        expected = {text: {k for (k,) in duck.rows(f"SELECT k FROM t WHERE {text}")} for text in CONDITIONS}
    for text in SIMPLE:
        assert set(lake.table("t").scan(where=text).to_arrow()["k"].to_pylist()) == expected[text], text
    for text in CONDITIONS:
        found = lake.sql(f"SELECT k, 1 AS one FROM t WHERE {text}").to_arrow()  # type: ignore[union-attr]
        assert set(found["k"].to_pylist()) == expected[text], text


def test_changes_of_rows(lake: DuckLake) -> None:
    lake.table("t").delete("late(k, 8)")
    lake.table("t").update({"k": "plus(k, 100)", "s": "loud(s)"}, where="very(k) OR plus(k, 1) = 1")
    rows = {(row["k"], row["s"]) for row in lake.table("t").to_arrow().to_pylist()}
    assert {(108, "A!"), (100, "A!")} <= rows
    assert len(rows) == 9


def test_calls_without_a_matching_definition_raise(lake: DuckLake) -> None:
    for call in ("late()", "late(k, 1, 2)", "late(z := 1)"):
        with pytest.raises(UsageError, match=r"no definition of the macro can take the arguments of LATE"):
            lake.table("t").scan(where=call).to_arrow()
    lake.create_macro("both", {"x": "x > 1", "x, y := 1": "x > y"})
    with pytest.raises(UsageError, match="several definitions of the macro can take"):
        lake.table("t").scan(where="both(k)").to_arrow()
    with pytest.raises(UnsupportedFeatureError, match="NOPE"):
        lake.table("t").scan(where="nope(k)").to_arrow()


def test_many_calls_in_one_condition(lake: DuckLake) -> None:
    """Depth is limited, and not how often macros are called side by side."""
    where = " OR ".join(f"(late(k, {n}) AND NOT late(k, {n}))" for n in range(30))
    assert lake.table("t").scan(where=f"{where} OR late(k, 7)").to_arrow()["k"].to_pylist() == [8, 9]


def test_a_macro_that_calls_itself(small: DuckLake) -> None:
    small.write("t", pa.table({"k": [1]}))
    small.create_macro("again", {"x": "again(x + 1)"})
    small.create_macro("doubled", {"x": "doubled(x) + doubled(x) + doubled(x)"})
    for call in ("again(k)", "doubled(k)"):
        with pytest.raises(UnsupportedFeatureError, match="call themselves"):
            small.table("t").scan(where=call).to_arrow()
