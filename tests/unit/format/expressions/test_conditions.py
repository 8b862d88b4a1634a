"""Conditions that users build with ``col``: the same predicates as SQL text gives, and advice where Python would do something else."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ducklake_core import col
from ducklake_core.conditions import AnyOf, Not, matching_rows
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.expressions.conditions import Combinable, bind
from ducklake_core.format.expressions.parser import between, is_null, literal, literal_of, one_of, to_sql
from ducklake_core.format.expressions.predicates import FALSE, Literal
from ducklake_core.format.types.data_types import TIMESTAMP, TIMESTAMP_NS
from tests.unit.format.expressions.samples import SCHEMA

NAN = float("nan")
SAME = [
    (col("i32") > 5, "i32 > 5"),
    (col("i32") == np.int64(5), "i32 = 5"),
    (col("i8") == 300, "i8 = 300"),
    (col("I32") != 5, "i32 <> 5"),
    (col("i32") <= 5, "i32 <= 5"),
    (col("i32") < col("i8"), "i32 < i8"),
    (col("i32").isin([1, 2, 3]), "i32 IN (1, 2, 3)"),
    (col("i32").isin(()), "false"),
    (~col("i32").isin({7}), "NOT i32 IN (7)"),
    (col("i32").isin(np.array([1, 2])), "i32 IN (1, 2)"),
    (col("text").isin(pa.array(["a", "b"])), "text IN ('a', 'b')"),
    (col("i32").between(1, 5), "i32 BETWEEN 1 AND 5"),
    (col("text").is_null(), "text IS NULL"),
    (col("text").is_not_null(), "text IS NOT NULL"),
    (col("text").starts_with("a%_"), "starts_with(text, 'a%_')"),
    (col("flag"), "flag = true"),
    (~col("flag"), "NOT flag = true"),
    (col("flag") & (col("i32") > 5), "flag = true AND i32 > 5"),
    ((col("i32") > 5) & "i8 < 3", "i32 > 5 AND i8 < 3"),
    ("i8 < 3" | (col("i32") > 5), "i8 < 3 OR i32 > 5"),
    (~((col("i32") > 5) | (col("i8") < 3)), "NOT (i32 > 5 OR i8 < 3)"),
    (col("box.t") == "x", "box.t = 'x'"),
    (col(("box", "t")).is_null(), "box.t IS NULL"),
    (col('"we""ird, näme"') == b"a", '"we""ird, näme" = \'a\''),
    (col("f64") == NAN, "f64 = 'nan'::DOUBLE"),
    (col("f64") == np.float32(0.5), "f64 = 0.5::DOUBLE"),
    (col("day") >= date(2013, 2, 1), "day >= DATE '2013-02-01'"),
    (col("day") == np.datetime64("2013-02-01"), "day = DATE '2013-02-01'"),
    (col("day") == pa.scalar(date(2013, 2, 1)), "day = DATE '2013-02-01'"),
    (col("ts") < datetime(2013, 2, 1, 1, 2, 3, 4), "ts < TIMESTAMP '2013-02-01 01:02:03.000004'"),  # noqa: DTZ001
    (col("ts") < np.datetime64("2013-02-01T00:00:00.5"), "ts < TIMESTAMP '2013-02-01 00:00:00.5'"),
    (col("tz") < datetime(2013, 2, 1, tzinfo=UTC), "tz < TIMESTAMPTZ '2013-02-01 00:00:00+00'"),
    (col("tz") < datetime(1913, 2, 1, tzinfo=timezone(timedelta(hours=2))), "tz < TIMESTAMPTZ '1913-01-31 22:00:00+00'"),
    (col("dec") == Decimal("1.50"), "dec = 1.50"),
    (col("clock") == time(10, 0, 0, 5), "clock = '10:00:00.000005'"),
    (col("id") == UUID(int=1), "id = '00000000-0000-0000-0000-000000000001'"),
    (col("text") == "it's", "text = 'it''s'"),
]


@pytest.mark.parametrize(("built", "text"), SAME, ids=[text for _, text in SAME])
def test_a_built_condition_is_the_predicate_of_its_text(built: Any, text: str) -> None:
    expected = bind(text, SCHEMA)
    found = bind(built, SCHEMA)
    for dialect in ("duckdb", "spark"):
        assert to_sql(found, dialect) == to_sql(expected, dialect)  # type: ignore[arg-type]


@pytest.mark.parametrize("built", [built for built, _ in SAME], ids=[text for _, text in SAME])
def test_conditions_are_values(built: Any) -> None:
    again = pickle.loads(pickle.dumps(built))
    assert repr(again) == repr(built)
    assert hash(again) == hash(built) or "nan" in repr(built)
    assert "col(" in repr(built)
    names = {"col": col, "datetime": __import__("datetime"), "Decimal": Decimal, "UUID": UUID, "nan": float("nan"), "np": np}
    read_back = eval(repr(built), names)
    assert to_sql(bind(read_back, SCHEMA), "duckdb") == to_sql(bind(built, SCHEMA), "duckdb")


def test_conditions_are_equal_by_their_parts() -> None:
    one, other = (col("a") > 5) & (col("b") == "x"), (col("a") > 5) & (col("b") == "x")
    assert one == other
    assert len({one, other}) == 1
    assert one != (col("b") == "x") & (col("a") > 5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: (col("a") > 5) and (col("b") < 3), lambda: (col("a") > 5) or (col("b") < 3), lambda: not (col("a") > 5),
        lambda: not col("flag"), lambda: 1 < col("a") < 5, lambda: col("a") in [1, 2], lambda: bool(AnyOf(conditions=())),
    ],
)  # fmt: skip
def test_operators_that_python_evaluates_raise(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=r"write & for and, \| for or, ~ for not.*isin.*between"):
        wrong()


@pytest.mark.parametrize(
    "wrong", [lambda: col("a") > 5 & col("b"), lambda: col("a") & 5, lambda: True | (col("a") > 5), lambda: col("a") & None]
)
def test_missing_parentheses_are_named(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match="parentheses around each comparison"):
        wrong()


@pytest.mark.parametrize("missing", [None, pd.NaT, pd.NA, pa.scalar(None), np.datetime64("NaT")], ids=repr)
def test_null_on_the_right_raises_with_advice(missing: Any) -> None:
    for wrong in (lambda: col("s.a") == missing, lambda: col("s.a") != missing, lambda: col("s.a").isin([1, missing])):
        with pytest.raises(UsageError, match=r"col\('s.a'\).is_null\(\) or col\('s.a'\).is_not_null\(\)"):
            wrong()


@pytest.mark.parametrize(
    "several", [[1, 2], (1, 2), {1}, {"a": 1}, np.array([1, 2]), pa.array([1])], ids=lambda value: type(value).__name__
)
def test_several_values_are_no_value(several: Any) -> None:
    with pytest.raises(UsageError, match=r"several values: write col\('a'\).isin"):
        _ = col("a") == several


def test_other_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="isin needs a list of values, not 'ab'"):
        col("a").isin("ab")
    with pytest.raises(UsageError, match="isin needs a list of values, not 5"):
        col("a").isin(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="starts_with needs a string, not 5"):
        col("a").starts_with(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="which is a condition"):
        _ = col("a") == (col("b") > 5)
    for name in ("", "a.", 'a"b', 5, (), ("a", ""), None):
        with pytest.raises(UsageError, match="column"):
            col(name)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="nope"):
        bind(col("nope") > 5, SCHEMA)
    with pytest.raises(UsageError, match="int32"):
        bind(col("i32") > b"x", SCHEMA)
    with pytest.raises(UsageError, match="does not hold strings"):
        bind(col("i32").starts_with("x"), SCHEMA)
    with pytest.raises(UsageError, match="5 is not a condition"):
        bind(5, SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no exact form"):
        _ = col("ts") == np.datetime64("2013-02-01T00:00:00.000000001")


def test_long_chains_are_one_level_and_deep_ones_raise() -> None:
    chain: Combinable = col("i32") == 0
    for number in range(1, 2000):
        chain |= col("i32") == number
    assert to_sql(bind(chain, SCHEMA), "duckdb").startswith('("i32" IN (0, 1, 2')  # type: ignore[arg-type]
    deep: Combinable = col("i32") == 0
    for number in range(150):
        deep = (deep & (col("i8") > number)) | (col("i32") == number)
    with pytest.raises(UsageError, match="nested too deeply"):
        bind(deep, SCHEMA)  # type: ignore[arg-type]


def test_not_twice_is_the_condition_itself() -> None:
    condition = col("i32") > 5
    assert ~condition == Not(condition=condition)
    assert ~~condition is condition


def test_rows_of_an_arrow_table_are_found() -> None:
    data = pa.table({"a": [1, None, 3], "flag": [True, False, None]})
    assert matching_rows(data, (col("a") > 1) | col("flag")).to_pylist() == [{"a": 1, "flag": True}, {"a": 3, "flag": None}]
    assert matching_rows(data, col("flag")).num_rows == 1


def test_ranges_lists_and_nested_columns() -> None:
    assert to_sql(between(SCHEMA, "day", date(2013, 1, 1), date(2013, 2, 1)), "duckdb") == (
        "((\"day\" >= DATE '2013-01-01') AND (\"day\" < DATE '2013-02-01'))"
    )
    assert to_sql(one_of(SCHEMA, "i32", [1, 2]), "duckdb") == '("i32" IN (1, 2))'
    assert one_of(SCHEMA, "i32", []) == FALSE
    assert to_sql(is_null(SCHEMA, ("box", "t")), "duckdb") == '(("Box")."T" IS NULL)'


def test_times_of_pandas_keep_their_nanoseconds() -> None:
    moment = pd.Timestamp("1969-12-31 23:59:59.123456789")
    assert literal(moment, TIMESTAMP_NS) == literal_of(moment) == Literal(value=-876_543_211, type=TIMESTAMP_NS)
    assert literal(moment.floor("us"), TIMESTAMP_NS) == Literal(value=-876_544, type=TIMESTAMP)
    for value in (moment.tz_localize("UTC"), pd.NaT):
        with pytest.raises(UsageError, match="cannot be a constant"):
            literal_of(value)
