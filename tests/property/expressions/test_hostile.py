"""Any string in place of an expression is evaluated, or raises an error of this library."""

# ruff: noqa: E501 - lists of awkward values and forms

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from ducklake_core.engines.arrow.evaluate import assigned, evaluate, outcome
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import parse_expression
from tests.property.expressions.edge_values import SCHEMA, edge_batch
from tests.property.expressions.generator import EVERY, Generator
from tests.property.expressions.judge import columns_to_set
from tests.support.parameters import slow

TOKENS = [
    "(", ")", ",", "'", '"', "''", "'x'", "+", "-", "*", "/", "//", "%", "||", "=", "<>", "<", "!", "::", ".", ";", ":", "?", "$1", "[", "]", "{", "}", "@",
    "1", "0", "1e", "1.5", "1e400", "0x1F", "1_000", "9" * 40, ".5", "i", "s", "d", "st", "li", "nothing", "st.a", "st.a.b", "i.a", "li[1]", "TRUE", "NULL",
    "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "ILIKE", "ESCAPE", "DISTINCT FROM", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "TRY_CAST", "AS",
    "INT", "DECIMAL(50,2)", "DECIMAL(2,9)", "DECIMAL(x)", "VARCHAR(3)", "INTEGER[]", "STRUCT(a INT)", "DATE", "INTERVAL", "1 DAY", "abs", "trim", "concat",
    "substring", "replace", "coalesce", "date_trunc", "'month'", "extract", "year", "FROM", "SELECT", "*", "COLUMNS", "x -> x", "--", "/*", "\\", "\x00", "é",
]  # fmt: skip
STRINGS = [
    "", " ", ";", "i;", "i; j", "9" * 5000, "1." + "5" * 5000, "1e" + "9" * 50, "CAST(i AS DECIMAL(50, 2))", "CAST(i AS DECIMAL(2, 9))", "CAST(i AS DECIMAL(0, 0))",
    "CAST('x' AS DECIMAL(99))", "TRY_CAST(s AS DECIMAL(39, 0))", "CAST(s AS VARCHAR(3))", "CAST(i AS NOTHING)", "CAST(i AS INTEGER[])", "i::STRUCT(a INT)",
    "substring(s, 99999999999999999999)", "substring(s, 1, 99999999999999999999)", "s LIKE 'a' ESCAPE 'bb'", "abs()", "abs(i, i)", "trim(s, 'x')", "trim()",
    "replace(s)", "concat()", "coalesce()", "nullif(i)", "if(b)", "if(b, 1)", "CASE END", "CASE WHEN b THEN END", "year()", "date_trunc('century', d)",
    "date_trunc('month')", "date_trunc(s, d)", "i IN ()", "i IN (SELECT 1)", "i BETWEEN 1", "b IS UNKNOWN", "i IS TRUE", "s IS NOT DISTINCT FROM", "st = st", "li = li",
    "st + 1", "-st", "li || li", "st.nothing", "nothing", "i.a", "DATE 'x'", "TIMESTAMP '99999999-01-01'", "d + 99999999999999999999", "d + INTERVAL 1 MONTH",
    "'a' + 'b'", "i = 'x'", "d = 'x'", "id = 'x'", "x = '\\'", "ti = '25:00'", "iv = '1 day'", "js = '{'", "length(st)", "upper(i)", "NULL = NULL",
]  # fmt: skip


def _try(text: str) -> None:
    """Bind, check and evaluate a string in every way that public calls do."""
    batch = edge_batch()
    with suppress(DuckLakeError):
        expression = parse_expression(text, SCHEMA)
        if expression.scalar is not None:
            with suppress(DuckLakeError):
                outcome(expression.scalar, batch)
            for column in columns_to_set()[::7]:
                with suppress(DuckLakeError):
                    assigned(expression.scalar, column, batch)
    with suppress(DuckLakeError):
        evaluate(bind(text, SCHEMA), batch)


@pytest.mark.parametrize("text", STRINGS, ids=lambda text: text[:30] or "empty")
def test_odd_strings(text: str) -> None:
    _try(text)


@pytest.mark.parametrize("seed", [1, *(slow(seed) for seed in range(2, 8))])
def test_random_tokens(seed: int) -> None:
    draw = Random(seed)
    for _ in range(400):
        text = " ".join(draw.choices(TOKENS, k=draw.randint(1, 8)))
        try:
            _try(text)
        except Exception as problem:
            raise AssertionError(f"seed {seed}: {text!r}") from problem


@pytest.mark.parametrize("seed", [1, *(slow(seed) for seed in range(2, 8))])
def test_parts_of_any_type(seed: int) -> None:
    made = Generator(Random(seed), wild=0.8)
    for node in (made.expression(2) for _ in range(150)):
        try:
            _try(node.sql)
        except Exception as problem:
            raise AssertionError(f"seed {seed}: {node.sql}") from problem
    assert EVERY
