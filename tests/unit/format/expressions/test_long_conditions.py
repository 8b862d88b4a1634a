"""Conditions with many parts, and deep ones: the same outcome as in DuckDB, or an error that names the limit; never an exhausted stack."""

from __future__ import annotations

import pickle
import time
from decimal import Decimal
from functools import reduce
from random import Random

import duckdb
import pyarrow as pa
import pytest

from ducklake_core.conditions import AllOf, AnyOf, InIntervals, OneOf, col, matching_rows
from ducklake_core.engines.arrow.evaluate import evaluate
from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import to_sql
from ducklake_core.format.expressions.predicates import And, InList, InRanges, Not, Or, Predicate, as_filter, references, terms
from ducklake_core.format.expressions.pruning import may_match, must_match
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.types.data_types import FLOAT64, INT32, INT64, TIMESTAMP, VARCHAR, DecimalType, Field
from ducklake_core.format.types.schema import Schema
from tests.support.parameters import spread

SCHEMA = Schema(
    columns=(
        Field(id=1, name="a", type=INT32),
        Field(id=2, name="k", type=INT64),
        Field(id=3, name="ts", type=TIMESTAMP),
        Field(id=4, name="s", type=VARCHAR),
        Field(id=5, name="f", type=FLOAT64),
        Field(id=6, name="d", type=DecimalType(precision=6, scale=2)),
    )
)
TERMS = 6000
PARTS = 5000
CHAINS = {
    "or of values": " OR ".join(f"k = {n}" for n in range(TERMS)),
    "and of values": " AND ".join(f"k <> {2 * n}" for n in range(TERMS)),
    "and of bounds": " AND ".join(f"k < {n + 7}" for n in range(TERMS)),
    "or of ranges": " OR ".join(f"(k >= {2 * n} AND k < {2 * n + 1})" for n in range(TERMS)),
    "list": f"k IN ({', '.join(str(n) for n in range(100_000))})",
    "or of branches": " OR ".join(f"(k = {n} AND a > {n % 9})" for n in range(PARTS // 2)),
    "or of prefixes": " OR ".join(f"s LIKE 'p{n}%'" for n in range(1000)),
    "parentheses": "(" * 30 + "k = 1" + ")" * 30,
    "loop": "(" * 30 + "k = 1" + " OR k = 2)" * 30,
    "ladder": "(k = 1 AND (a = 2 OR " * 15 + "k = 3" + "))" * 15,
    "functions": " OR ".join(f"abs(k) = {n}" for n in range(200)),
    "nested functions": "abs(" * 30 + "k" + ")" * 30 + " = 1",
    "nested cases": "CASE WHEN a = 1 THEN " * 30 + "1" + " END" * 30 + " = 1",
    "chain in a case": f"CASE WHEN {' OR '.join(f'k = {n}' for n in range(300))} THEN a = 1 ELSE a = 2 END",
    "sum": "k + " * 97 + "1 = 1",
}


def rows(random: Random, count: int) -> pa.Table:
    """Few different values, NULLs and NaN among them."""

    def column(values: list[object], data_type: pa.DataType) -> pa.Array:
        return pa.array([None if random.random() < 0.1 else random.choice(values) for _ in range(count)], data_type)

    return pa.table(
        {
            "a": column(list(range(30)), pa.int32()),
            "k": column(list(range(30)), pa.int64()),
            "ts": column([n * 1_000_000 for n in range(30)], pa.timestamp("us")),
            "s": column(list("abcdefgh"), pa.string()),
            "f": column([0.0, -0.0, 1.5, 2.0, float("nan"), float("inf"), float("-inf")], pa.float64()),
            "d": column([Decimal(n) / 10 for n in range(300)], pa.decimal128(6, 2)),
        }
    )


def term(random: Random) -> str:
    column, operator = random.choice("aktsfd"), random.choice(["=", "=", "=", "<>", "<", "<=", ">", ">="])
    match column:
        case "t":
            return f"ts {operator} TIMESTAMP '1970-01-01 00:00:{random.randrange(30):02}'"
        case "s":
            return f"s {operator} '{random.choice('abcdefgh')}'"
        case "f":
            return f"f {operator} {random.choice(['0', '1.5', chr(39) + 'nan' + chr(39) + '::DOUBLE', '2'])}"
        case "d":
            return f"d {operator} {random.randrange(300) / 10}"
    return random.choice(
        [
            f"{column} BETWEEN {random.randrange(15)} AND {random.randrange(30)}",
            f"{column} IN ({random.randrange(30)}, {random.randrange(30)}, {random.choice(['NULL', '4'])})",
            f"{column} {operator} {random.randrange(30)}",
            f"{column} {operator} {random.randrange(30)}",
        ]
    )


def nested(random: Random, depth: int) -> str:
    if not depth:
        return term(random)
    if random.random() < 0.15:
        return f"NOT ({nested(random, depth - 1)})"
    return "(" + random.choice([" OR ", " AND "]).join(nested(random, depth - 1) for _ in range(random.choice([2, 3, 12]))) + ")"


def branches(random: Random) -> str:
    keyed = [f"({random.choice('ak')} = {random.randrange(30)} AND {term(random)})" for _ in range(40)]
    return random.choice(["", "NOT "]) + f"({' OR '.join(keyed)})"


def ranges(random: Random) -> str:
    column = random.choice("adf")
    found = [
        f"({column} {random.choice(['>', '>='])} {low} AND {column} {random.choice(['<', '<='])} {low + random.choice([0, 1, 2])})"
        for low in random.sample(range(30), 12)
    ]
    return " OR ".join([*found, random.choice([f"{column} > 27", f"{column} < 1 OR {column} <> 5", f"{column} = 3"])])


@pytest.mark.parametrize("seed", spread(range(90), 12))
def test_outcomes_are_those_of_duckdb(seed: int) -> None:
    random = Random(seed)
    t = rows(random, 60)
    kind = (lambda random: nested(random, random.choice([1, 2, 3])), branches, ranges)[seed % 3]
    condition = kind(random)
    with duckdb.connect() as connection:
        connection.register("t", t)

        def queries(text: str) -> list[bool | None]:
            return [row[0] for row in connection.execute(f"SELECT {text} FROM t").fetchall()]

        expected = queries(condition)
        predicate = bind(condition, SCHEMA)
        assert evaluate(predicate, t).to_pylist() == expected, condition
        assert queries(to_sql(predicate, "duckdb")) == expected, condition
    kept = [bool(outcome) for outcome in evaluate(as_filter(predicate), t).to_pylist()]
    assert kept == [bool(outcome) for outcome in expected], condition
    for part in (t.slice(start, 3) for start in range(0, 60, 3)):
        matching = sum(evaluate(predicate, part).fill_null(False).to_pylist())
        for where in (predicate, as_filter(predicate)):
            assert may_match(where, known(part), 3) or not matching, condition
            assert not must_match(where, known(part), 3) or matching == 3, condition


def known(part: pa.Table) -> dict[int, ColumnStatistics]:
    """Exact statistics of the two columns of whole numbers."""
    found = {}
    for name, column_id in (("a", 1), ("k", 2)):
        values = [value for value in part[name].to_pylist() if value is not None]
        found[column_id] = ColumnStatistics(
            column_id=column_id,
            column_size_bytes=1,
            value_count=len(values),
            null_count=len(part) - len(values),
            min_value=str(min(values)) if values else None,
            max_value=str(max(values)) if values else None,
        )
    return found


@pytest.mark.parametrize("name", spread(CHAINS, 2))
def test_long_conditions_are_planned_and_travel(name: str) -> None:
    started = time.process_time()
    predicate = as_filter(bind(CHAINS[name], SCHEMA))
    assert references(predicate)
    assert to_sql(predicate, "duckdb")
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    statistics = known(rows(Random(0), 3))
    for _ in range(10):
        may_match(predicate, statistics, 3)
    # Far above what it takes, far below what anything quadratic takes.
    assert time.process_time() - started < 60


def test_chains_become_lists_and_ranges() -> None:
    def chain(connector: str, part: str) -> Predicate:
        return bind(connector.join(part.format(n, n + 1, 2 * n, 2 * n + 1) for n in range(500)), SCHEMA)

    values = chain(" OR ", "k = {0}")
    assert isinstance(values, InList)
    assert len(values.values) == 500
    without = chain(" AND ", "k <> {2}")
    assert isinstance(without, Not)
    assert isinstance(without.operand, InList)
    spans = chain(" OR ", "(k >= {2} AND k < {3})")
    assert isinstance(spans, InRanges)
    assert len(spans.ranges) == 500
    assert to_sql(chain(" AND ", "k < {1}"), "duckdb") == '("k" < 1)'
    assert to_sql(chain(" OR ", "(k >= {0} AND k < {1})"), "duckdb") == '(("k" >= 0) AND ("k" < 500))'


@pytest.mark.parametrize(
    "condition",
    [
        "(1 + " * 200 + "k" + ")" * 200 + " = 1", "(" * 31 + "k = 1" + ")" * 31, "(" * 200 + "k = 1" + " OR k = 2)" * 200,
        "NOT " * 3000 + "k = 1", "abs(" * 60 + "k" + ")" * 60 + " = 1", "k + " * 5000 + "1 = 1",
        "(a = 1 AND (k = 2 OR " * 200 + "a = 3" + "))" * 200, "CASE WHEN a = 1 THEN " * 200 + "1" + " END" * 200 + " = 1",
        "[" * 2000 + "1" + "]" * 2000 + " = k", "k" + "::BIGINT" * 2000 + " = 1", "- " * 3000 + "k = 1",
    ],
)  # fmt: skip
def test_deep_conditions_raise(condition: str) -> None:
    with pytest.raises(UsageError, match=r"nested too deeply: at most 30 .* 100 operators .* IN"):
        bind(condition, SCHEMA)


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"(k = {n} AND a = {n % 9})" for n in range(PARTS // 2 + 1)),
        " OR ".join(f"s LIKE 'p{n}%'" for n in range(PARTS + 1)),
        " AND ".join(f"(k <> {n} OR a <> {n % 9})" for n in range(PARTS // 2 + 1)),
    ],
)
def test_conditions_of_too_many_parts_raise(condition: str) -> None:
    with pytest.raises(UsageError, match=r"has [\d,]+ parts.* at most 5,000 are supported.*IN \(\.\.\.\).*merge"):
        bind(condition, SCHEMA)


def test_conditions_built_in_python_have_the_same_limits() -> None:
    any_key = reduce(lambda left, right: left | right, [(col("k") == n) & (col("a") == n % 9) for n in range(PARTS // 2)])
    assert isinstance(bind(any_key, SCHEMA), Or)
    with pytest.raises(UsageError, match="has 5,001 parts"):
        bind(any_key | col("s").is_null(), SCHEMA)
    ladder = reduce(lambda inner, n: (col("k") == n) & ((col("a") == n) | inner), range(45), col("s").is_null())
    deep = bind(ladder, SCHEMA)
    assert isinstance(deep, And)
    assert pickle.loads(pickle.dumps(deep)) == deep
    assert evaluate(as_filter(deep), rows(Random(1), 50)).to_pylist().count(True) == 0
    assert to_sql(deep, "duckdb").count("AND") == 45
    assert not may_match(deep, known(rows(Random(1), 3)), 3)
    with pytest.raises(UsageError, match="nested too deeply"):
        bind(reduce(lambda inner, n: (col("k") == n) & ((col("a") == n) | inner), range(1000), col("s").is_null()), SCHEMA)
    flat = reduce(lambda left, right: left | right, [col("k") == n for n in range(5000)])
    assert bind(flat, SCHEMA) == bind(col("k").isin(range(5000)), SCHEMA)


def test_connectors_are_cut_where_duckdb_cuts_them() -> None:
    same = [
        ("a = 1 OR a BETWEEN 2 AND 3 AND k = 4 OR NOT a = 5 AND k = 6",
         "(a = 1) OR ((a BETWEEN 2 AND 3) AND (k = 4)) OR ((NOT (a = 5)) AND k = 6)"),
        ("((((a))) + ((1))) = 2 OR a IS NOT DISTINCT FROM 3 AND k = 1", "(a + 1 = 2) OR ((a IS NOT DISTINCT FROM 3) AND (k = 1))"),
        ("CASE WHEN a = 1 OR k = 1 THEN true ELSE a = 3 AND k = 3 END OR a = 7",
         "(CASE WHEN (a = 1 OR k = 1) THEN true ELSE (a = 3 AND k = 3) END) OR a = 7"),
        ("NOT NOT (a = 1 OR k = 2) AND NOT NOT NOT k = 3", "(a = 1 OR k = 2) AND NOT (k = 3)"),
        ("s = 'x OR y' OR s = 'a) AND (b' OR s = 'c'", "s IN ('x OR y', 'a) AND (b', 'c')"),
        ("a IN ((1)) OR (a, k) = (2, 3) OR a NOT IN (1, 2, 3) AND k = 5 -- the end",
         "(a = 1) OR (a = 2 AND k = 3) OR (a NOT IN (1, 2, 3) AND k = 5)"),
    ]  # fmt: skip
    t = rows(Random(5), 300)
    with duckdb.connect() as connection:
        connection.register("t", t)
        for condition, spelt_out in same:
            expected = connection.execute(f"SELECT {spelt_out} FROM t").fetchall()
            assert connection.execute(f"SELECT {condition}\n FROM t").fetchall() == expected
            sql = to_sql(bind(condition, SCHEMA), "duckdb")
            assert connection.execute(f"SELECT {sql} FROM t").fetchall() == expected, sql


def test_conditions_by_values() -> None:
    t = rows(Random(7), 400)
    both = AllOf(
        conditions=(InIntervals(column="K", intervals=((3, 9), (9, 12), (20, 21))), OneOf(column="a", values=(1, 2, 3)), "s <> 'a'")
    )
    either = AnyOf(conditions=(both, OneOf(column="a", values=())))
    text = "((k >= 3 AND k < 12) OR k = 20) AND a IN (1, 2, 3) AND s <> 'a'"
    with duckdb.connect() as connection:
        connection.register("t", t)
        expected = connection.execute(f"SELECT a, k, s FROM t WHERE {text}").to_arrow_table()
    assert expected.num_rows
    assert matching_rows(t, either).select(["a", "k", "s"]).to_pylist() == expected.to_pylist()
    assert terms(bind(either, SCHEMA)) < 10
    with pytest.raises(UsageError, match=r"cannot be (compared|read)"):
        bind(OneOf(column="k", values=("x",)), SCHEMA)
