"""SQL text to predicates: bound parts, parts that stay SQL, errors, and the SQL for Spark."""

from __future__ import annotations

import pytest

from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import to_sql
from ducklake_core.format.expressions.predicates import Not, SqlExpression, StartsWith, references
from ducklake_core.format.expressions.pruning import columns
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    INT32,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    Field,
    ListType,
    StructType,
)
from ducklake_core.format.types.schema import Schema, with_ids

SCHEMA = with_ids(
    Schema(
        columns=(
            Field(name="a", type=INT32),
            Field(name="S", type=StructType(fields=(Field(name="x", type=VARCHAR), Field(name="ok", type=BOOLEAN)))),
            Field(name='we"ird, näme', type=DATE),
            Field(name="f", type=FLOAT32),
            Field(name="ts", type=TIMESTAMP),
            Field(name="tz", type=TIMESTAMPTZ),
            Field(name="tags", type=ListType(element=Field(name="element", type=INT32))),
            Field(name="iv", type=INTERVAL),
        )
    )
)


@pytest.mark.parametrize(
    ("condition", "duckdb", "spark"),
    [
        ("A between -1 and 2.5", '(("a" >= -1) AND ("a" <= 2))', "((`a` >= -1) AND (`a` <= 2))"),
        ("s['X'] = 'it''s'", "((\"S\").\"x\" = 'it''s')", "(`S`.`x` = CAST(X'69742773' AS STRING))"),
        ("s.ok and not S.OK", '(("S")."ok" AND (NOT ("S")."ok"))', "(`S`.`ok` AND (NOT `S`.`ok`))"),
        ('"we""ird, näme" >= \'2020-01-01\'', '("we""ird, näme" >= DATE \'2020-01-01\')', "(`we\"ird, näme` >= DATE '2020-01-01')"),
        ("f > 'nan'", "(\"f\" > CAST('NaN' AS REAL))", "(`f` > CAST('NaN' AS FLOAT))"),
        (
            "ts < timestamp '2020-01-01 00:00:01'",
            "(\"ts\" < CAST('2020-01-01 00:00:01.000000' AS TIMESTAMP))",
            "(`ts` < TIMESTAMP_NTZ '2020-01-01 00:00:01.000000')",
        ),
        (
            "tz = '2020-01-01 00:00:00+01'",
            "(\"tz\" = CAST('2019-12-31 23:00:00.000000+00' AS TIMESTAMPTZ))",
            "(`tz` = TIMESTAMP '2019-12-31 23:00:00.000000+00:00')",
        ),
        ("a < 3e9", "(CAST(\"a\" AS DOUBLE) < CAST('3000000000.0' AS DOUBLE))", "(CAST(`a` AS DOUBLE) < CAST('3000000000.0' AS DOUBLE))"),
        ("a = 3000000000", '("a" IS NULL AND CAST(NULL AS BOOLEAN))', "(`a` IS NULL AND CAST(NULL AS BOOLEAN))"),
        ("a // 2 = 1", '("a" // 2 = 1)', "(`a` DIV 2 = 1)"),
        ("lower(s.x) = 'a'", '(LOWER("S"."x") = \'a\')', "(LOWER(`S`.`x`) = 'a')"),
        ("s.x LIKE 'a%'", 'starts_with(("S")."x", \'a\')', "startswith(`S`.`x`, 'a')"),
        ("1 = 1 AND a IS NOT NULL", '(NOT ("a" IS NULL))', "(NOT (`a` IS NULL))"),
        ("tags IS NULL", '("tags" IS NULL)', "(`tags` IS NULL)"),
    ],
)
def test_conditions_in_both_dialects(condition: str, duckdb: str, spark: str) -> None:
    predicate = bind(condition, SCHEMA)
    assert to_sql(predicate, "duckdb") == duckdb
    assert to_sql(predicate, "spark") == spark
    assert bind(predicate, SCHEMA) is predicate


@pytest.mark.parametrize(
    ("condition", "error", "words"),
    [
        ("a = 1; DROP TABLE t", UsageError, "must be one SQL condition"), ("", UsageError, "the condition is empty"),
        ("SELECT 1", UsageError, "subquery"),
        ("a IN (SELECT 1)", UsageError, "subquery"), ("EXISTS (SELECT 1)", UsageError, "subquery"), ("sum(a) > 1", UsageError, "aggregate"),
        ("row_number() OVER () = 1", UsageError, "window|aggregate"), ("random() < 0.5", UsageError, "random"),
        ("a = ?", UsageError, "placeholder"), ("DROP TABLE t", UsageError, "not a SQL condition"), ("a = 1 AND", UsageError, "cannot read"),
        ("a", UsageError, "not a condition"), ("5", UsageError, "not a condition"), ("a = 'x'", UsageError, "int32"),
        ("ts = '2020-02-30'", UsageError, "timestamp"), ("nope = 1", NotFoundError, "the columns are: a, S"),
        ("lower(nope) = 'a'", NotFoundError, "nope"), ("s.y = 1", NotFoundError, "its fields are: x, ok"),
        ("a.b = 1", NotFoundError, "no field 'b'"),
    ],
)  # fmt: skip
def test_invalid_conditions_raise(condition: str, error: type[DuckLakeError], words: str) -> None:
    with pytest.raises(error, match=words):
        bind(condition, SCHEMA)


def test_other_sql_stays_sql_and_knows_its_columns() -> None:
    predicate = bind("a % 2 = 0 AND iv > INTERVAL 1 DAY AND s.x LIKE '%b'", SCHEMA)
    assert columns(predicate) == {1, 3, 11}
    assert {c.path for c in references(predicate)} == {("a",), ("iv",), ("S", "x")}
    assert isinstance(bind("a BETWEEN SYMMETRIC 2 AND 1", SCHEMA), SqlExpression)


def test_not_like_is_the_opposite_of_like() -> None:
    found = bind("s.x NOT LIKE 'a%'", SCHEMA)
    assert isinstance(found, Not)
    assert isinstance(found.operand, StartsWith)


def test_a_predicate_of_another_table_raises() -> None:
    predicate = bind("a = 1", SCHEMA)
    other = with_ids(Schema(columns=(Field(name="b", type=INT32), Field(name="a", type=INT32))))
    with pytest.raises(NotFoundError, match="build it again"):
        bind(predicate, other)


def test_a_backslash_in_like_is_an_ordinary_character_in_spark() -> None:
    assert to_sql(bind("s.x LIKE 'a\\_%b'", SCHEMA), "spark").endswith(r"LIKE CAST(X'615C5F2562' AS STRING) ESCAPE '\001')")
    assert "ESCAPE" not in to_sql(bind("s.x LIKE 'a_%b'", SCHEMA), "spark")
