"""The SQL text for Spark: Spark must find the same outcomes as the Arrow evaluation, which is compared with DuckDB elsewhere."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.arrow.evaluate import evaluate
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import to_sql
from ducklake_core.format.expressions.predicates import needs_sql
from tests.unit.engines.arrow.test_evaluate import condition
from tests.unit.format.expressions.samples import SCHEMA, TYPES, table_of, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 12
AS_SPARK_HOLDS_THEM = {
    "u8": pa.int16(),
    "u64": pa.decimal128(20, 0),
    "ts_s": pa.timestamp("us"),
    "ts_ms": pa.timestamp("us"),
    "ts_ns": pa.timestamp("us"),
    "id": pa.string(),
}
NOT_IN_SPARK = ("i128", "clock")


def test_spark_finds_the_same_rows(spark: SparkSession) -> None:
    draw = Random(7)
    columns = {name: [None if draw.random() < 0.2 else value_of(name, draw) for _ in range(ROWS)] for name in TYPES}
    columns["ts_ns"] = [None if value is None else int(str(value)) // 1000 * 1000 for value in columns["ts_ns"]]
    # Spark raises on casts of an infinite date to a timestamp, and never returns other rows.
    columns["day"] = [None if value is None or abs(int(str(value))) == 2**31 - 1 else value for value in columns["day"]]
    table = table_of(columns)
    drawn: list[str] = []
    while len(drawn) < 150:
        text = condition(draw)
        if not any(name in text for name in (*NOT_IN_SPARK, "ts_ns")) and not needs_sql(bind(text, SCHEMA)):
            drawn.append(text)
    predicates = [bind(text, SCHEMA) for text in drawn]
    frame = spark.createDataFrame(_for_spark(table))
    rows = frame.selectExpr(*(f"{to_sql(predicate, 'spark')} AS p{i}" for i, predicate in enumerate(predicates))).collect()
    outcomes = 0
    for i, predicate in enumerate(predicates):
        expected = evaluate(predicate, table).to_pylist()
        assert [row[i] for row in rows] == expected, (drawn[i], to_sql(predicate, "spark"))
        outcomes += len(set(expected))
    assert outcomes > len(predicates)


def _for_spark(table: pa.Table) -> pa.Table:
    arrays, names = [], []
    for name in table.column_names:
        if name in NOT_IN_SPARK:
            continue
        column = table.column(name)
        if name == "id":
            column = pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())])
        arrays.append(column.cast(AS_SPARK_HOLDS_THEM[name]) if name in AS_SPARK_HOLDS_THEM else column)
        names.append(name)
    return pa.table(arrays, names=names)
