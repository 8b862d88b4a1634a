"""Evaluation, SQL text and pruning of conditions, compared with DuckDB on the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import duckdb
import pytest

from ducklake_core.engines.arrow.evaluate import evaluate
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import domain_of, key_of
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import to_sql
from ducklake_core.format.expressions.predicates import ColumnReference, Comparison, Literal, as_filter, needs_sql
from ducklake_core.format.expressions.pruning import may_match, must_match
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.values.value_text import to_text
from tests.support.parameters import spread
from tests.unit.format.expressions.samples import SCHEMA, TYPES, load, quoted, table_of, value_of

ROWS = 6
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]
FLOAT_CONSTANTS = ["'nan'", "'inf'", "0.1", "CAST(0.1 AS DOUBLE)", "CAST(0.1 AS FLOAT)", "1", "1.5", "-0.0", "3e5", "16777217"]
PATTERNS = ["'a%'", "'é%'", "'%'", "'ab'", "'𝄞%'"]
FIXED = [
    "flag", "Box.n >= 1", "box.t = 'a'", "Box.T LIKE 'a%'", "Box IS NULL", "flag IS TRUE", "flag IS NOT FALSE", "NULL", "1 = 1.0",
]  # fmt: skip
FOREIGN = {
    "i8": ["1.5", "300", "-1e0", "'2'", "true", "-128.5"],
    "i32": ["1.5", "3000000000", "-3000000000.5", "2e0", "'7'"],
    "i64": ["99999999999999999999", "-0.5", "9007199254740992::DOUBLE"],
    "u8": ["-1", "255.5", "256"],
    "u64": ["-1", "18446744073709551616", "0.5"],
    "dec": ["1.505", "1", "99999999", "1e0", "'1.5'"],
    "day": ["'2024-01-01'", "TIMESTAMP '2024-01-01 12:00:00'", "TIMESTAMPTZ '2024-01-01 12:00:00+02'", "'infinity'", "'1969-12-31'"],
    "ts": ["DATE '2024-01-02'", "'2024-01-02'", "TIMESTAMPTZ '2024-01-02 02:00:00+02'", "'-infinity'"],
    "ts_s": ["TIMESTAMP '2024-01-02 00:00:00.5'", "'2024-01-02 00:00:00'"],
    "ts_ms": ["TIMESTAMP '2024-01-02 00:00:00.0005'", "DATE '2024-01-02'"],
    "ts_ns": ["DATE '2024-01-02'", "'2024-01-02 00:00:00.123456789'"],
    "tz": ["'2024-01-02 00:00:00+01'", "TIMESTAMP '2024-01-02'", "DATE '1970-01-01'"],
    'we"ird, näme': ["'\\xFFa'", "'a'"],
}
PAIRS = [
    ("i8", "u64"), ("i32", "dec"), ("i64", "f64"), ("i32", "f32"), ("f32", "f64"), ("dec", "dec38"), ("day", "ts"), ("ts", "tz"),
    ("ts_s", "ts_ms"), ("ts_ms", "ts"), ("text", "text"), ("u8", "i128"), ("flag", "i32"), ("day", "tz"), ("f32", "dec"), ("id", "id"),
    ("f64", "f64"),
]  # fmt: skip
CALENDAR = ["day", "ts", "ts_s", "ts_ms", "ts_ns"]
YEARS = ["2023", "2024", "2024.5", "1970", "1969", "-43", "0", "99999999999", "'2024'", "NULL", "-400000"]
POINTS = [
    "DATE '2024-01-01'", "'2024-01-02'", "TIMESTAMP '2024-01-01 12:00:00'", "DATE '1970-01-01'", "DATE '1969-12-29'", "'infinity'",
    "'-infinity'", "TIMESTAMP '2024-01-02 00:00:00'", "DATE '0044-03-15 (BC)'", "NULL",
]  # fmt: skip
CASTS = [
    ("i8", "BIGINT"), ("i32", "BIGINT"), ("i32", "DOUBLE"), ("i64", "DOUBLE"), ("u8", "INTEGER"), ("i8", "DECIMAL(9,2)"), ("i64", "FLOAT"),
    ("dec", "DECIMAL(18,4)"), ("dec", "DOUBLE"), ("f32", "DOUBLE"), ("i32", "HUGEINT"), ("i64", "TINYINT"), ("dec38", "FLOAT"),
]  # fmt: skip
NUMBERS = [
    "0", "1.5", "-2", "0.1", "300", "1e0", "16777217", "9007199254740993", "CAST(0.1 AS FLOAT)", "CAST(0.1 AS DOUBLE)", "'2'", "NULL",
]  # fmt: skip


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    # Its rewriting of date_trunc forgets NULLs and dates (see docs/reference/differences.md).
    connection.execute("SET disabled_optimizers = 'expression_rewriter'")
    yield connection
    connection.close()


def constant(name: str, draw: Random) -> str:
    """A constant of the column's type, written in SQL."""
    if TYPES[name][1] in ("FLOAT", "DOUBLE"):
        return draw.choice(FLOAT_CONSTANTS)
    column = ColumnReference(column_id=1, path=("x",), type=TYPES[name][0])
    wanted = Comparison(left=column, operator="=", right=Literal(value=value_of(name, draw), type=column.type))
    return to_sql(wanted, "duckdb").split(" = ", 1)[1][:-1]


def function(draw: Random) -> str:
    """A comparison with a function that grows with its column."""
    column, op = draw.choice(CALENDAR), draw.choice(OPERATORS)
    match draw.randint(0, 5):
        case 0 | 1:
            call, constants = draw.choice(["year({})", "extract(year FROM {})", "date_part('year', {})"]).format(column), YEARS
        case 2:
            call, constants = draw.choice(["CAST({} AS DATE)", "{}::DATE", "TRY_CAST({} AS DATE)"]).format(column), POINTS
        case 3 | 4:
            unit = draw.choice(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
            call, constants = f"date_trunc('{unit}', {column})", POINTS
        case _:
            name, target = draw.choice(
                [*CASTS, ("day", "TIMESTAMP"), ("ts_s", "TIMESTAMP"), ("ts_ms", "TIMESTAMP"), ("ts_s", "TIMESTAMP_MS")]
            )
            call, constants = f"CAST({name} AS {target})", NUMBERS if (name, target) in CASTS else POINTS
    match draw.randint(0, 5):
        case 0:
            return f"{call} IN ({', '.join(draw.choices(constants, k=2))})"
        case 1:
            return f"{call} BETWEEN {draw.choice(constants)} AND {draw.choice(constants)}"
        case 2:
            return f"{call} IS {draw.choice(['', 'NOT '])}NULL"
        case 3:
            return f"{draw.choice(constants)} {op} {call}"
        case _:
            return f"{call} {op} {draw.choice(constants)}"


def comparison(draw: Random) -> str:
    name = draw.choice(list(TYPES))
    column, maybe_not, op = quoted(name), draw.choice(["", "NOT "]), draw.choice(OPERATORS)
    other = draw.choice([constant(name, draw), *FOREIGN.get(name, [])])
    match draw.randint(0, 12):
        case 10 | 11 | 12:
            return function(draw)
        case 0:
            return f"{column} IS {maybe_not}NULL"
        case 1:
            return f"{column} {maybe_not}IN ({', '.join([constant(name, draw), other, *draw.choice([[], ['NULL']])])})"
        case 2:
            return f"{column} BETWEEN {other} AND {constant(name, draw)}"
        case 3:
            return f"text {maybe_not}LIKE {draw.choice(PATTERNS)}"
        case 4:
            left, right = draw.choice(PAIRS)
            return f"{left} {op} {right}"
        case 5:
            return draw.choice(FIXED)
        case 6:
            return f"{column} IS {maybe_not}DISTINCT FROM {constant(name, draw)}"
        case 7:
            return f"{other} {op} {column}"
        case _:
            return f"{column} {op} {other}"


def condition(draw: Random, depth: int = 2) -> str:
    match draw.randint(0, 4) if depth else 4:
        case 0 | 1:
            return f"(({condition(draw, depth - 1)}) {draw.choice(['AND', 'OR'])} ({condition(draw, depth - 1)}))"
        case 2:
            return f"(NOT ({condition(draw, depth - 1)}))"
        case _:
            return comparison(draw)


def _statistics(columns: dict[str, list[object]]) -> dict[int, ColumnStatistics]:
    """Return the statistics that a writer records of these rows."""
    return {field.id: _column_statistics(field, columns[field.name]) for field in SCHEMA if field.name in columns}


def _column_statistics(field: Field, values: list[object]) -> ColumnStatistics:
    known = [value for value in values if value is not None]
    ordered = [value for value in known if not (isinstance(value, float) and math.isnan(value))]
    domain = domain_of(field.type)
    assert domain is not None
    ordered.sort(key=lambda value: key_of(value, field.type, domain))
    return ColumnStatistics(
        column_id=field.id,
        column_size_bytes=1,
        value_count=len(known),
        null_count=len(values) - len(known),
        min_value=to_text(ordered[0], field.type) if ordered else None,
        max_value=to_text(ordered[-1], field.type) if ordered else None,
        contains_nan=len(ordered) < len(known) if field.type in FLOATS else None,
    )


@pytest.mark.parametrize("seed", spread(range(8), 4))
def test_outcomes_are_those_of_duckdb(seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    draw = Random(seed)
    compared = pruned = covered = 0
    for _ in range(5):
        columns = {name: [None if draw.random() < 0.2 else value_of(name, draw) for _ in range(ROWS)] for name in TYPES}
        table = table_of(columns)
        load(duck, columns, table)
        statistics = _statistics(columns)
        singles = [_statistics({name: values[i : i + 1] for name, values in columns.items()}) for i in range(ROWS)]
        for _ in range(40):
            sql = condition(draw)
            try:
                expected = [row[0] for row in duck.execute(f"SELECT ({sql})::BOOLEAN FROM t").fetchall()]
            except (duckdb.ConversionException, duckdb.OutOfRangeException):
                # DuckDB raises where a value exceeds the common type, such as an infinite date next to a timestamp_ns.
                continue
            predicate = bind(sql, SCHEMA)
            if needs_sql(predicate):
                # Such as a cast that loses digits.
                continue
            assert evaluate(predicate, table).to_pylist() == expected, (sql, predicate)
            assert [bool(v) for v in evaluate(as_filter(predicate), table).to_pylist()] == [v is True for v in expected], (sql, predicate)
            again = f"SELECT {to_sql(predicate, 'duckdb')} FROM t"
            assert [row[0] for row in duck.execute(again).fetchall()] == expected, again
            checks = [(statistics, ROWS, expected), *((single, 1, [expected[i]]) for i, single in enumerate(singles))]
            for known, count, outcomes in checks:
                may, must = may_match(predicate, known, count), must_match(predicate, known, count)
                assert may or True not in outcomes, (sql, predicate, known)
                assert not must or set(outcomes) == {True}, (sql, predicate, known)
                pruned, covered = pruned + (not may), covered + must
            compared += 1
    assert compared > 150
    assert pruned > 100
    assert covered > 100


def test_sql_that_needs_an_engine_raises() -> None:
    columns = {name: [value_of(name, Random(1))] for name in TYPES}
    predicate = bind("hash(i32) > 5", SCHEMA)
    with pytest.raises(UnsupportedFeatureError, match=r"HASH\(\"i32\"\) > 5.*or Spark"):
        evaluate(predicate, table_of(columns))
    assert may_match(predicate, {}, 1)
    assert not must_match(predicate, {}, 1)
