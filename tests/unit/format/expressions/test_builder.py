"""Predicates from Python values equal those from SQL text."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import between, compare, is_null, literal, literal_of, one_of, to_sql
from ducklake_core.format.expressions.predicates import FALSE, Literal
from ducklake_core.format.types.data_types import TIMESTAMP, TIMESTAMP_NS
from tests.unit.format.expressions.samples import SCHEMA


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("day", date(2013, 2, 1), "day = DATE '2013-02-01'"),
        ("ts", datetime(2013, 2, 1, 1, 2, 3, 4), "ts = TIMESTAMP '2013-02-01 01:02:03.000004'"),  # noqa: DTZ001
        ("tz", datetime(1913, 2, 1, tzinfo=timezone(timedelta(hours=2))), "tz = TIMESTAMPTZ '1913-01-31 22:00:00+00'"),
        ("tz", datetime(2013, 2, 1, tzinfo=UTC), "tz = TIMESTAMPTZ '2013-02-01'"),
        ("dec", Decimal("1.50"), "dec = 1.50"),
        ("i32", 5, "i32 = 5"),
        ("i8", 300, "i8 = 300"),
        ("i32", np.int64(5), "i32 = 5"),
        ("f64", 0.1, "f64 = 0.1"),
        ("text", "it's", "text = 'it''s'"),
        ("flag", True, "flag = TRUE"),
        ("clock", time(10, 0, 0, 5), "clock = '10:00:00.000005'"),
        ("id", UUID(int=1), "id = '00000000-0000-0000-0000-000000000001'"),
        ('we"ird, näme', b"a\xff", '"we""ird, näme" = \'a\\xFF\''),
    ],
)
def test_values_are_those_of_sql_text(column: str, value: object, text: str) -> None:
    built = compare(SCHEMA, column, "=", value)
    for dialect in ("duckdb", "spark"):
        assert to_sql(built, dialect) == to_sql(bind(text, SCHEMA), dialect)  # type: ignore[arg-type]


def test_ranges_lists_and_nested_columns() -> None:
    assert to_sql(between(SCHEMA, "day", date(2013, 1, 1), date(2013, 2, 1)), "duckdb") == (
        "((\"day\" >= DATE '2013-01-01') AND (\"day\" < DATE '2013-02-01'))"
    )
    assert to_sql(one_of(SCHEMA, "i32", [1, 2]), "duckdb") == '("i32" IN (1, 2))'
    assert one_of(SCHEMA, "i32", []) == FALSE
    assert to_sql(is_null(SCHEMA, ("box", "t")), "duckdb") == '(("Box")."T" IS NULL)'


def test_incomparable_values_raise() -> None:
    with pytest.raises(UsageError, match="None cannot be compared"):
        compare(SCHEMA, "i32", "=", None)
    with pytest.raises(UsageError, match="int32"):
        compare(SCHEMA, "i32", "=", b"x")
    with pytest.raises(NotFoundError, match="nope"):
        compare(SCHEMA, "nope", "=", 1)


def test_times_of_pandas_keep_their_nanoseconds() -> None:
    moment = pd.Timestamp("1969-12-31 23:59:59.123456789")
    assert literal(moment, TIMESTAMP_NS) == literal_of(moment) == Literal(value=-876_543_211, type=TIMESTAMP_NS)
    assert literal(moment.floor("us"), TIMESTAMP_NS) == Literal(value=-876_544, type=TIMESTAMP)
    for value in (moment.tz_localize("UTC"), pd.NaT):
        with pytest.raises(UsageError, match="cannot be a constant"):
            literal_of(value)


def test_invalid_conditions_raise() -> None:
    with pytest.raises(UsageError, match="5 is not a condition"):
        bind(5, SCHEMA)  # type: ignore[arg-type]
