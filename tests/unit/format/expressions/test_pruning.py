"""Pruning never changes rows: with any predicate and any statistics, no file with a matching row is left out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ducklake_core.engines.arrow.evaluate import evaluate
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.predicates import as_filter
from ducklake_core.format.expressions.pruning import may_match, must_match
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.layout.transforms import partition_arrays, partition_may_match
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT32,
    TIMESTAMP,
    TIMESTAMP_NS,
    VARCHAR,
    Field,
    StructType,
)
from ducklake_core.format.types.schema import Schema, to_arrow_schema, with_ids
from ducklake_core.format.values.arrow_cast import from_values
from ducklake_core.format.values.value_text import to_text


def leaves_of(schema: Schema) -> list[tuple[tuple[str, ...], Field]]:
    """Columns without fields, and the fields of the others."""
    return [
        ((*((column.name,) if node is not column else ()), node.name), node) for column in schema for node in column.walk() if node.is_leaf
    ]


SCHEMA = with_ids(
    Schema(
        columns=(
            Field(name="n", type=INT32), Field(name="x", type=FLOAT64), Field(name="y", type=FLOAT32), Field(name="s", type=VARCHAR),
            Field(name="day", type=DATE), Field(name="ts", type=TIMESTAMP), Field(name="flag", type=BOOLEAN),
            Field(name="box", type=StructType(fields=(Field(name="a", type=INT32), Field(name="at", type=TIMESTAMP_NS)))),
        )
    )
)  # fmt: skip
_DAY = 86_400_000_000
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-3, 12),
    "x": st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, 2.0, -7.25]),
    "y": st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 2.0**-149, 0.10000000149011612, -7.25]),
    "s": st.sampled_from(["", "a", "ab", "abc", "b", "é", "\uffff", "a%"]),
    "day": st.one_of(st.integers(19_000, 19_070), st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31) + 1])),
    "ts": st.one_of(
        st.integers(19_000 * _DAY, 19_070 * _DAY), st.integers(-2 * _DAY, 2 * _DAY), st.sampled_from([2**63 - 1, -(2**63) + 1])
    ),
    "flag": st.booleans(),
    "box.a": st.integers(-3, 12),
    "box.at": st.one_of(st.integers(19_000 * _DAY, 19_070 * _DAY), st.integers(-_DAY, _DAY)).map(lambda us: us * 1000 + us % 1000),
}
_LEAVES = {".".join(path): leaf for path, leaf in leaves_of(SCHEMA)}
LITERALS: dict[str, tuple[str, ...]] = {
    "n": ("-3", "0", "4", "5.5", "12", "99999999999"),
    "x": ("0", "1.5", "-7.25", "'nan'::DOUBLE", "'infinity'::DOUBLE"),
    "y": ("0", "1e-45", "0.1::FLOAT", "0.1::DOUBLE", "'nan'::DOUBLE", "'infinity'::DOUBLE", "'-infinity'::DOUBLE"),
    "s": ("''", "'a'", "'ab'", "'b'", "'\uffff'"),
    "day": ("DATE '2022-01-08'", "DATE '2022-02-01'", "DATE '2022-02-20'"),
    "ts": ("TIMESTAMP '2022-01-08 00:00:00'", "TIMESTAMP '2022-02-01 12:00:00'"),
    "flag": ("true", "false"),
    "box.a": ("-3", "0", "4", "5.5", "12", "99999999999"),
    "box.at": ("TIMESTAMP '2022-01-08 00:00:00'", "'1970-01-01 00:00:00.0000001'", "DATE '1969-12-31'"),
}
_FUNCTIONS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (("year({})", "extract(year FROM {})"), ("day", "ts", "box.at"), ("2022", "1970", "1969", "2022.5", "NULL")),
    (
        ("CAST({} AS DATE)", *(f"date_trunc('{unit}', {{}})" for unit in ("year", "quarter", "month", "week", "day", "hour"))),
        ("day", "ts", "box.at"),
        ("DATE '2022-01-08'", "DATE '2022-02-01'", "'1970-01-01'", "'1969-12-31'", "'infinity'", "'-infinity'", "NULL"),
    ),
    (("CAST({} AS BIGINT)", "CAST({} AS DOUBLE)", "CAST({} AS DECIMAL(12,1))"), ("n", "box.a"), ("0", "4", "5.5", "12", "NULL")),
)
GARBAGE = ("", "x?", "1e", "2022-99-99", "0x", "NULL", "nan")


@st.composite
def atoms(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(LITERALS)))
    literal = st.sampled_from((*LITERALS[name], "NULL"))
    if draw(st.integers(0, 3)) == 0:
        calls, names, constants = draw(st.sampled_from(_FUNCTIONS))
        name, literal = draw(st.sampled_from(calls)).format(draw(st.sampled_from(names))), st.sampled_from(constants)
    match draw(st.integers(0, 6)):
        case 6 if name in ("n", "box.a"):
            start, step = draw(st.integers(-200, 10)), draw(st.integers(1, 7))
            return f"{name} IN ({', '.join(str(start + i * step) for i in range(150))})"
        case 0:
            return f"{name} IS NULL"
        case 1:
            return f"{name} IS NOT NULL"
        case 2:
            return f"{name} IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
        case 3 if name == "s":
            return f"s LIKE '{draw(st.sampled_from(['a', 'ab', 'é', 'b']))}%'"
        case 4:
            return f"{name} BETWEEN {draw(literal)} AND {draw(literal)}"
        case _:
            return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(literal)}"


CONDITIONS = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner), st.builds("({} AND {})".format, inner, inner), st.builds("({} OR {})".format, inner, inner)
    ),
    max_leaves=4,
)
ROWS = st.lists(st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in VALUES.items()}), min_size=1, max_size=5)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    for row in rows:
        inside = {name: row[f"box.{name}"] for name in ("a", "at")}
        row["box"] = None if set(inside.values()) == {None} else inside
    arrays = [from_values([row[column.name] for row in rows], column.type) for column in SCHEMA]
    return pa.table(arrays, schema=to_arrow_schema(SCHEMA))


def _matching(condition: str, table: pa.Table) -> int:
    (batch,) = table.combine_chunks().to_batches()
    predicate = bind(condition, SCHEMA)
    found = evaluate(predicate, batch).fill_null(False)
    assert found.equals(evaluate(as_filter(predicate), batch).fill_null(False))
    return sum(found.to_pylist())


@st.composite
def statistics(draw: st.DrawFn, rows: list[dict[str, Any]]) -> dict[int, ColumnStatistics]:
    """Draw statistics of rows: exact, wider bounds, partial, or invalid strings and counts."""
    found = {}
    for name, column in _LEAVES.items():
        if draw(st.integers(0, 5)) == 0:
            continue
        values = [row[name] for row in rows if row[name] is not None]
        sound = [value for value in values if not _is_nan(value)]
        wider = [draw(VALUES[name].filter(lambda value: not _is_nan(value))) for _ in range(draw(st.integers(0, 1)))]
        bounds = sorted((*sound, *wider)) if values else []
        low, high = (to_text(bounds[0], column.type), to_text(bounds[-1], column.type)) if bounds else (None, None)
        nulls = len(rows) - len(values)
        kind = draw(st.integers(0, 4))
        found[column.id] = ColumnStatistics(
            column_id=column.id,
            column_size_bytes=1,
            value_count=None if kind == 1 else draw(st.sampled_from([0, 77, -1])) if kind == 2 else len(values),
            null_count=None if kind == 1 else nulls,
            min_value=draw(st.sampled_from((None, *GARBAGE))) if kind == 3 and name != "s" else low,
            max_value=None if kind == 4 else high,
            contains_nan=draw(st.sampled_from([None, len(sound) < len(values)])) if column.type in FLOATS else None,
        )
    return found


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.data())
def test_statistics(data: st.DataObject) -> None:
    _check_statistics(data)


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)  # 50 s alone; 20,000 took more than a test may, on a busy machine
@given(st.data())
def test_statistics_for_long(data: st.DataObject) -> None:
    _check_statistics(data)


def _check_statistics(data: st.DataObject) -> None:
    rows, condition = data.draw(ROWS), data.draw(CONDITIONS)
    known = data.draw(statistics(rows))
    count = data.draw(st.sampled_from([len(rows)] * 4 + [0, 99]))
    matching = _matching(condition, _table(rows))
    whole = bind(condition, SCHEMA)
    for predicate in (whole, as_filter(whole)):
        assert may_match(predicate, known, count) or not matching
        assert not must_match(predicate, known, count) or matching == len(rows)


@pytest.mark.parametrize(("condition", "value"), [("y = 'infinity'::DOUBLE", math.inf), ("y = '-infinity'::DOUBLE", -math.inf)])
def test_files_of_nothing_but_infinity(condition: str, value: float) -> None:
    column, text = _LEAVES["y"], to_text(value, FLOAT32)
    known = ColumnStatistics(
        column_id=column.id, column_size_bytes=1, value_count=2, null_count=0, min_value=text, max_value=text, contains_nan=False
    )
    assert may_match(bind(condition, SCHEMA), {column.id: known}, 2)
    with_nan = replace(known, contains_nan=True)
    assert not must_match(bind(f"y > '{value}'::DOUBLE", SCHEMA), {column.id: with_nan}, 2)


KEYS = st.sampled_from(
    [
        ("identity", "n"), ("identity", "s"), ("identity", "x"), ("identity", "flag"), ("identity", "day"), ("year", "day"),
        ("month", "ts"), ("year", "ts"), ("day", "ts"), ("bucket", "n"), ("bucket", "s"), ("bucket", "day"),
    ]
)  # fmt: skip


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.data())
def test_partition_values(data: st.DataObject) -> None:
    """All rows of a partition of one row share its keys: the row itself must be found."""
    rows, condition = data.draw(ROWS), data.draw(CONDITIONS)
    row = rows[0]
    keys = data.draw(st.lists(KEYS, min_size=1, max_size=2, unique=True))
    ids = {column.name: column for column in SCHEMA}
    spec = PartitionSpec(
        id=1,
        fields=tuple(
            PartitionField(column_id=ids[name].id, column=name, transform=transform, buckets=4 if transform == "bucket" else None)
            for transform, name in keys
        ),
    )
    values = tuple(array.to_pylist()[0] for array in partition_arrays(spec, SCHEMA, _table([row]).combine_chunks().to_batches()[0]))
    matching = _matching(condition, _table([row]))
    assert partition_may_match(spec, values, bind(condition, SCHEMA), SCHEMA, 5) or not matching
