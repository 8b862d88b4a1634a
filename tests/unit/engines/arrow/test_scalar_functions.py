"""Scalar expressions that Arrow does not evaluate: the error names the reason."""

from __future__ import annotations

import duckdb
import pytest

from ducklake_core.engines.arrow.evaluate import assigned
from ducklake_core.errors import NotFoundError, SchemaError, UsageError
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


@pytest.mark.parametrize(
    "text",
    [
        "random()", "regexp_replace(s, 'a', 'b')", "list_value(i)", "ts + INTERVAL 1 DAY", "date_trunc('month', ts)", "greatest(i, 1)",
    ],
)  # fmt: skip
def test_expressions_for_engines_name_the_obstacle(text: str) -> None:
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
        ("k", "9223372036854775807 + i"), ("t", "i"), ("k", "'x'"), ("i", "d"), ("de", "1e12::DOUBLE"), ("f", "d * 1e300"),
        ("k", "CAST(s AS BIGINT)"),
    ],
)  # fmt: skip
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
