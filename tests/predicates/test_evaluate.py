"""Evaluation, SQL text and pruning against DuckDB: the same rows, the same conditions, the same outcomes."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ducklake_core.arrow.evaluate import evaluate
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.comparison import domain_of, key_of
from ducklake_core.format.files import ColumnStatistics
from ducklake_core.format.predicate_parser import parse_predicate, to_sql
from ducklake_core.format.predicates import ColumnReference, Comparison, Literal
from ducklake_core.format.pruning import may_match, must_match
from ducklake_core.format.types import FLOATS, Field
from ducklake_core.format.value_text import to_text
from tests.predicates.samples import SCHEMA, TYPES, load, quoted, table_of, values_of

ROWS = 6
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


@st.composite
def rows(draw: st.DrawFn) -> dict[str, list[object]]:
    return {name: draw(st.lists(st.one_of(st.none(), values_of(name)), min_size=ROWS, max_size=ROWS)) for name in TYPES}


@st.composite
def literal_text(draw: st.DrawFn, name: str) -> str:
    """A constant of the column's type, written in SQL."""
    if TYPES[name][1] in ("FLOAT", "DOUBLE"):
        return draw(
            st.sampled_from(["'nan'", "'inf'", "0.1", "CAST(0.1 AS DOUBLE)", "CAST(0.1 AS FLOAT)", "1", "1.5", "-0.0", "3e5", "16777217"])
        )
    column = ColumnReference(column_id=1, path=("x",), type=TYPES[name][0])
    wanted = Comparison(left=column, operator="=", right=Literal(value=draw(values_of(name)), type=column.type))
    return to_sql(wanted, "duckdb").split(" = ", 1)[1][:-1]


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
    "text": ["'a' || 'b'"],
    'we"ird, näme': ["'\\xFFa'", "'a'"],
}
PAIRS = [
    ("i8", "u64"), ("i32", "dec"), ("i64", "f64"), ("i32", "f32"), ("f32", "f64"), ("dec", "dec38"), ("day", "ts"), ("ts", "tz"), ("ts_s", "ts_ms"),
    ("ts_ms", "ts"), ("text", "text"), ("u8", "i128"), ("flag", "i32"), ("day", "tz"), ("f32", "dec"), ("id", "id"), ("f64", "f64"),
]  # fmt: skip


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(TYPES)))
    constant = st.one_of(literal_text(name), st.sampled_from(FOREIGN.get(name, ["NULL"])))
    column, kind = quoted(name), draw(st.integers(0, 7))
    if kind == 0:
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == 1:
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({draw(literal_text(name))}, {draw(constant)}{draw(st.sampled_from(['', ', NULL']))})"
    if kind == 2:
        return f"{column} BETWEEN {draw(constant)} AND {draw(constant)}"
    if kind == 3:
        return f"text {draw(st.sampled_from(['', 'NOT ']))}LIKE {draw(st.sampled_from(chr(39) + p + chr(39) for p in ('a%', 'é%', '%', 'ab', '𝄞%')))}"
    if kind == 4:
        left, right = draw(st.sampled_from(PAIRS))
        return f"{left} {draw(st.sampled_from(OPERATORS))} {right}"
    if kind == 5:
        return draw(
            st.sampled_from(
                [
                    "flag",
                    "Box.n >= 1",
                    "box.t = 'a'",
                    "Box.T LIKE 'a%'",
                    "Box IS NULL",
                    "flag IS TRUE",
                    "flag IS NOT FALSE",
                    "NULL",
                    "1 = 1.0",
                ]
            )
        )
    if kind == 6:
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}DISTINCT FROM {draw(literal_text(name))}"
    sides = [column, draw(constant)]
    return f" {draw(st.sampled_from(OPERATORS))} ".join(sides if draw(st.booleans()) else sides[::-1])


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"(({p[0]}) {p[1]} ({p[2]}))"),
        inner.map(lambda c: f"(NOT ({c}))"),
    ),
    max_leaves=4,
)


def _statistics(columns: dict[str, list[object]]) -> dict[int, ColumnStatistics]:
    """What a writer records of these rows."""
    return {field.id: _column_statistics(field, columns[field.name]) for field in SCHEMA if field.name in columns}


def _column_statistics(field: Field, values: list[object]) -> ColumnStatistics:
    known = [value for value in values if value is not None]
    ordered = [value for value in known if value == value]
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


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), columns=rows())
def test_same_outcomes_as_the_reference(data: st.DataObject, columns: dict[str, list[object]], duck: duckdb.DuckDBPyConnection) -> None:
    table = table_of(columns)
    load(duck, columns, table)
    for _ in range(12):
        sql = data.draw(conditions)
        try:
            expected = [row[0] for row in duck.execute(f"SELECT ({sql})::BOOLEAN FROM t").fetchall()]
        except (duckdb.ConversionException, duckdb.OutOfRangeException):
            # The reference gives up where a value leaves its common type, such as an infinite date beside a timestamp_ns.
            continue
        predicate = parse_predicate(sql, SCHEMA)
        try:
            found = evaluate(predicate, table).to_pylist()
        except UnsupportedFeatureError:
            assert "||" in sql
            continue
        assert found == expected, (sql, predicate)
        again = f"SELECT {to_sql(predicate, 'duckdb')} FROM t"
        assert [row[0] for row in duck.execute(again).fetchall()] == expected, again
        statistics = _statistics(columns)
        assert may_match(predicate, statistics, ROWS) or True not in expected, (sql, predicate)
        assert not must_match(predicate, statistics, ROWS) or set(expected) == {True}, (sql, predicate)
        for i in range(ROWS):
            single = _statistics({name: values[i : i + 1] for name, values in columns.items()})
            assert may_match(predicate, single, 1) or expected[i] is not True, (sql, predicate, i)
            assert not must_match(predicate, single, 1) or expected[i] is True, (sql, predicate, i)
