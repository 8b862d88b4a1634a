"""Scalar expressions evaluated with Arrow: the values that DuckDB computes, or a refusal that names what is missing."""

from __future__ import annotations

import duckdb
import pytest

from ducklake_core.engines.arrow.evaluate import assigned
from ducklake_core.errors import DuckLakeError, NotFoundError, SchemaError, UsageError
from ducklake_core.format.expressions.parser import parse_expression
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema, parse_leaf_type

COLUMNS = {
    "i": ("int32", "INTEGER"), "k": ("int64", "BIGINT"), "t": ("int8", "TINYINT"), "f": ("float32", "REAL"), "d": ("float64", "DOUBLE"),
    "de": ("decimal(10,2)", "DECIMAL(10,2)"), "b": ("boolean", "BOOLEAN"), "s": ("varchar", "VARCHAR"), "dt": ("date", "DATE"),
    "ts": ("timestamp", "TIMESTAMP"),
}  # fmt: skip
ROWS = """
    (1, 10, 1, 1.5, 2.5, 1.25, true, 'ab', DATE '2020-02-29', TIMESTAMP '2020-02-29 12:34:56.789'),
    (-7, -3, -128, -0.1, -1e10, -9.99, false, ' Straße ', DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59.999999'),
    (0, 0, 0, 'nan', 'nan', 0.00, NULL, '', DATE '0001-01-01', TIMESTAMP '1970-01-01'),
    (2147483647, 9007199254740993, 127, 3.3e38, 0.1, 99999999.99, true, 'a%b''c', DATE '2262-04-12', TIMESTAMP '0044-03-15 10:00:00'),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (_, kind) in COLUMNS.items())})")
    connection.execute(f"INSERT INTO t VALUES {ROWS}")
    return connection


SCHEMA = Schema(columns=tuple(Field(id=n, name=name, type=parse_leaf_type(kind)) for n, (name, (kind, _)) in enumerate(COLUMNS.items(), 1)))

EXPRESSIONS = {
    "k": [
        "5",
        "NULL",
        "'17'",
        "i + 1",
        "k - i * 2",
        "-t",
        "abs(i)",
        "i // 2",
        "i % 3",
        "i // 0",
        "i % 0",
        "k // -3",
        "k % -3",
        "length(s)",
        "de",
        "2.5",
        "-2.5",
        "b",
        "CASE WHEN d > 0 THEN d END",
        "CAST(de AS INTEGER)",
        "TRY_CAST(s AS INTEGER)",
        "coalesce(t, k, 7)",
        "nullif(i, 0)",
        "CASE WHEN i > 0 THEN i ELSE 0 END",
        "CASE i WHEN 1 THEN 10 WHEN -7 THEN 20 END",
        "CASE WHEN i <> 0 THEN k // i ELSE -1 END",
        "CASE WHEN b THEN 1 WHEN NOT b THEN 2 ELSE 3 END",
        "if(i + 1 > k, 1, 2)",
        "CASE WHEN i IN (1, 0) OR s LIKE 'a%' THEN 1 ELSE 2 END",
        "CASE WHEN i IS NULL THEN 1 WHEN d IS NOT NULL THEN 2 END",
        "CASE WHEN i BETWEEN -8 AND k * 2 THEN 1 ELSE 2 END",
    ],
    "i": [
        "t * t",
    ],
    "d": [
        "i / 2",
        "de / 3",
        "i / 0",
        "f * 2",
        "f + d",
        "d * 0.1",
        "1.1",
        "'1e3'",
        "floor(d)",
        "ceil(f)",
        "k",
        "de",
        "coalesce(d, de)",
        "CAST('0.30' AS DECIMAL(5, 2))",
    ],
    "f": [
        "d",
        "f / 3",
        "f * 1.1 + 1",
        "i",
        "CASE WHEN i = 1 THEN f ELSE t END",
    ],
    "de": [
        "de + 1",
        "CASE WHEN i < 5 THEN de * 1.155 END",
        "CASE WHEN i < 5 THEN de / 3 END",
        "de - 0.005",
        "t",
        "1.005",
        "1.005::DOUBLE",
        "-de",
        "'3.999'",
        "coalesce(de, i)",
    ],
    "s": [
        "'it''s'",
        "s || '-' || i",
        "concat(s, '-', i)",
        "upper(s)",
        "lower(s)",
        "trim(s)",
        "ltrim(s)",
        "rtrim(s)",
        "replace(s, 'a', 'zz')",
        "substr(s, 2)",
        "substring(s, 2, 2)",
        "i",
        "d",
        "de",
        "b",
        "dt",
        "ts",
        "CASE WHEN b THEN 'yes' ELSE s END",
        "de * 2 || ''",
        "CAST(d AS VARCHAR) || s",
    ],
    "dt": [
        "dt + 1",
        "dt - i // 1000000",
        "'2024-01-31'",
        "DATE '1969-01-01'",
        "ts",
        "CASE WHEN b THEN '2000-01-01' ELSE dt END",
    ],
    "ts": [
        "dt",
        "'2024-01-31 10:00'",
        "coalesce(NULL, ts)",
        "CAST(CAST(ts AS DATE) AS TIMESTAMP)",
    ],
    "b": [
        "i > 0",
        "d > f",
        "d = d",
        "s = 'ab' AND NOT b",
        "b IS NULL OR i = 1",
        "'t'",
        "i",
        "dt < '1970-01-01'",
        "ts >= dt",
    ],
}


@pytest.mark.parametrize(("target", "text"), [(target, text) for target, computed in EXPRESSIONS.items() for text in computed])
def test_values_are_those_of_duckdb(duck: duckdb.DuckDBPyConnection, target: str, text: str) -> None:
    batch = duck.execute("SELECT * FROM t").to_arrow_table().combine_chunks().to_batches()[0]
    expression = parse_expression(text, SCHEMA)
    assert expression.scalar is not None, expression.obstacle
    column = SCHEMA.column(target)
    duck.execute("CREATE OR REPLACE TEMP TABLE u AS FROM t")
    try:
        duck.execute(f"UPDATE u SET {target} = {text}")
    except duckdb.Error:
        with pytest.raises(DuckLakeError):
            assigned(expression.scalar, column, batch)
        return
    expected = duck.execute(f"SELECT {target} FROM u").to_arrow_table().column(0).combine_chunks()
    found = assigned(expression.scalar, column, batch)
    assert found.type == expected.type
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert len(assigned(expression.scalar, column, batch.slice(0, 0))) == 0


@pytest.mark.parametrize(
    "text",
    [
        "random()",
        "regexp_replace(s, 'a', 'b')",
        "list_value(i)",
        "ts + INTERVAL 1 DAY",
        "date_trunc('month', ts)",
        "greatest(i, 1)",
        "now()",
    ],
)
def test_what_only_an_engine_evaluates_is_named(text: str) -> None:
    try:
        expression = parse_expression(text, SCHEMA)
    except UsageError:
        assert text == "random()"
        return
    assert expression.scalar is None
    assert expression.obstacle


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("k", "9223372036854775807 + i"),
        ("t", "i"),
        ("k", "'x'"),
        ("i", "d"),
        ("de", "1e12::DOUBLE"),
        ("f", "d * 1e300"),
        ("k", "CAST(s AS BIGINT)"),
    ],
)
def test_values_that_do_not_fit_are_errors(duck: duckdb.DuckDBPyConnection, target: str, text: str) -> None:
    batch = duck.execute("SELECT * FROM t").to_arrow_table().combine_chunks().to_batches()[0]
    expression = parse_expression(text, SCHEMA)
    assert expression.scalar is not None
    with pytest.raises((SchemaError, UsageError)):
        assigned(expression.scalar, SCHEMA.column(target), batch)


def test_missing_columns_raise() -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        parse_expression("nothing + 1", SCHEMA)
    with pytest.raises(UsageError, match="aggregate"):
        parse_expression("sum(i)", SCHEMA)
