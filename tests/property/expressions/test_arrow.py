"""Random typed expressions and conditions, and every function over every type, evaluated with Arrow and by DuckDB row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random

import duckdb
import pytest

from ducklake_core.engines.arrow import scalar_functions
from ducklake_core.format.expressions import parser
from ducklake_core.format.expressions.parser import COMPARISONS
from ducklake_core.format.expressions.predicates import FUNCTIONS
from ducklake_core.format.expressions.syntax import TYPE_NAMES
from tests.property.expressions import generator
from tests.property.expressions.edge_values import DUCKDB_TYPES, LEAVES
from tests.property.expressions.generator import Generator, Node, matrix
from tests.property.expressions.judge import (
    Prepared,
    Verdict,
    as_predicate,
    as_scalar,
    as_value_of,
    columns_to_set,
    connection,
    judge,
    minimised,
)
from tests.support.parameters import slow

SEEDS = range(4)
MANY_SEEDS = range(100, 124)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = connection()
    yield opened
    opened.close()


def _check(
    nodes: Iterable[Node], duck: duckdb.DuckDBPyConnection, prepare: Callable[[str], Prepared], seed: int, column: str = ""
) -> Counter[str]:
    """Judge each expression, as the value of a column if one is given, and show the smallest form of those that are wrong."""
    target, tally, wrong = DUCKDB_TYPES.get(column), Counter[str](), []

    def verdict(node: Node) -> Verdict:
        duckdb_sql = node.sql if target is None else f"CAST({node.sql} AS {target})"
        return judge(node.sql, duckdb_sql, duck, prepare, Random(seed))

    for node in nodes:
        found = verdict(node)
        tally[found.kind] += 1
        if found.is_wrong:
            small, found = minimised(node, verdict)
            wrong.append(
                f"seed {seed}{f', to column {column}' if column else ''}: {node.sql}\n    as {small.sql}: {found.kind}: {found.text}"
            )
    assert not wrong, "\n".join([f"{len(wrong)} of {tally.total()} expressions differ from DuckDB's", *wrong[:20]])
    return tally


def _proves_something(tally: Counter[str]) -> None:
    """Rejected expressions prove nothing: enough of the others must have values."""
    assert tally["equal"] > tally.total() / 10, tally


def test_nothing_that_is_evaluated_is_left_out() -> None:
    # Functions that return another value for each row cannot be compared.
    assert set(generator.CALLS) == FUNCTIONS - scalar_functions.FUNCTIONS
    assert {*parser.BINARY.values(), *parser.UNARY.values()} <= FUNCTIONS
    assert {operator for operator in COMPARISONS.values() if any(f" {operator} " in template for template, *_ in generator.EVERY)} == {
        *COMPARISONS.values()
    }
    types = {str(data_type) for data_type, _ in LEAVES.values()}
    assert set(TYPE_NAMES.values()) <= types


@pytest.mark.parametrize("seed", [*SEEDS, *(slow(seed) for seed in MANY_SEEDS)])
def test_random_expressions(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    made = Generator(Random(seed))
    _proves_something(_check([made.expression(draw) for draw in [1, 2, 3] * (25 if seed in SEEDS else 80)], duck, as_scalar, seed))


FOUND = {
    # A typed NULL is not computed with, so that the other operand is no error.
    "(d - i8) + TRY_CAST(NULL AS TINYINT)": as_scalar,
    "TRY_CAST(NULL AS DECIMAL(9,2)) - CAST(q AS DECIMAL(18,3))": as_scalar,
    "i // CAST(NULL AS INTEGER)": as_scalar,
    "ti + (NULL + 1)": as_scalar,
    # Every string of IN is read as the type of the other values.
    "'2024-01-31' NOT IN ('340282366920938463463374607431768211455', d, d)": as_predicate,
    "'2024-01-31' IN ('2024-01-30', d, e)": as_predicate,
    # Only strings have a prefix.
    "starts_with(CAST(b AS DOUBLE), '1e-2')": as_predicate,
    "starts_with(lower(s), 'a')": as_predicate,
    # Each row has an error of its own.
    "(7 * o) > h": as_predicate,
    "i IS DISTINCT FROM CAST(st.T AS UHUGEINT)": as_scalar,
    "CAST(ts AS TIMESTAMPTZ)": as_scalar,
}
"""Expressions that random tests found to differ."""


@pytest.mark.parametrize("sql", FOUND)
def test_expressions_that_once_differed(duck: duckdb.DuckDBPyConnection, sql: str) -> None:
    verdict = judge(sql, sql, duck, FOUND[sql], Random(1), failing=40)
    assert not verdict.is_wrong, verdict


@pytest.mark.parametrize("seed", [*SEEDS, *(slow(seed) for seed in MANY_SEEDS)])
def test_random_conditions(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    made = Generator(Random(seed))
    _proves_something(_check([made.condition(depth) for depth in [1, 2, 3] * (15 if seed in SEEDS else 60)], duck, as_predicate, seed))


@pytest.mark.parametrize("seed", [*SEEDS, *(slow(seed) for seed in MANY_SEEDS)])
def test_random_values_of_columns(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    draw = Random(seed)
    made, tally = Generator(draw), Counter[str]()
    for column in draw.sample(columns_to_set(), 3):
        kind = generator.class_of(column.name)
        tally += _check([made.of(kind, 2) for _ in range(12 if seed in SEEDS else 50)], duck, as_value_of(column), seed, column.name)
    _proves_something(tally)


@pytest.mark.parametrize("group", ["calls", "casts", "conditions", "calendar"])
def test_some_functions_over_some_types(duck: duckdb.DuckDBPyConnection, group: str) -> None:
    prepare = as_predicate if group in ("conditions", "calendar") else as_scalar
    nodes = [node for node in Random(7).sample(matrix((group,)), 60) if prepare is as_scalar or node.kind == "boolean"]
    if nodes:
        _proves_something(_check(nodes, duck, prepare, 7))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("group", ["calls", "casts", "conditions"])
@pytest.mark.timeout(1200)
def test_every_function_over_every_type(duck: duckdb.DuckDBPyConnection, group: str, part: int) -> None:
    _proves_something(_check(matrix((group,))[part::8], duck, as_scalar, part))
