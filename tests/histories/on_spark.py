"""A lake as Spark reads it, on both of its paths, against the oracle."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.spark.scan_schema import TYPES_CONF
from tests.histories.comparison import at_snapshot, differences, register, remember, tables_at
from tests.histories.conditions import condition
from tests.histories.play import Lake
from tests.histories.sketch import TableSketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark has no nanoseconds; reading a value that needs them is an error (docs: types), which is tested where types are.
_NOT_IN_SPARK = ("timestamp_ns",)


def compare_on_spark(lake: Lake, spark: SparkSession, seed: int, earlier: int = 2) -> int:
    """Every table at the newest and some earlier snapshots: rows with row ids, rows natively, rows under a condition."""
    # Texts and longs in place of times would be other values to the oracle; the exact types are tested where types are.
    spark.conf.set(TYPES_CONF, "nearest")
    try:
        return _compare_tables(lake, spark, seed, earlier)
    finally:
        spark.conf.unset(TYPES_CONF)


def _compare_tables(lake: Lake, spark: SparkSession, seed: int, earlier: int) -> int:
    draw, compared = Random(seed), 0
    snapshots = [snapshot.id for snapshot in lake.ours.snapshots()]
    chosen = {snapshots[-1], *draw.sample(snapshots[len(snapshots) // 3 :], earlier)}
    for snapshot in sorted(chosen):
        for table in tables_at(lake.duck, snapshot):
            try:
                _compare(lake, spark, table, snapshot, draw)
            except Exception as error:
                error.add_note(f"Spark, {table.sql} at {snapshot}")
                raise
            compared += 1
    return compared


def _compare(lake: Lake, spark: SparkSession, table: TableSketch, snapshot: int, draw: Random) -> None:
    source = f"{table.sql}{at_snapshot(snapshot)}"
    columns = [c for c in remember(lake.duck, "theirs", f'SELECT *, rowid AS "$rowid" FROM {source}')[:-1] if c.kind not in _NOT_IN_SPARK]
    if not columns:
        return
    names = [column.name for column in columns]
    opened = lake.ours.table(table.sql, at=snapshot)
    where = condition(draw, TableSketch(table.schema, table.name, tuple(columns)))
    listed = ", ".join(column.sql for column in columns)
    _same(lake, opened.scan(columns=[*names, "rowid"]).to_spark(spark).toArrow(), f'SELECT {listed}, "$rowid" FROM theirs', "with row ids")
    _same(lake, opened.scan(columns=names).to_spark(spark).toArrow(), f"SELECT {listed} FROM theirs", "natively")
    try:
        frame = opened.scan(columns=names, where=where).to_spark(spark)
    except UnsupportedFeatureError:
        return
    _same(lake, frame.toArrow(), f"SELECT {listed} FROM theirs WHERE {where}", f"WHERE {where}")


def _same(lake: Lake, ours: pa.Table, query: str, how: str) -> None:
    wanted = remember(lake.duck, "expected", query)
    register(lake.duck, "spark_rows", ours.rename_columns([column.name for column in wanted]))
    try:
        assert differences(lake.duck, "spark_rows", "expected") == [], f"rows of Spark {how}"
    finally:
        lake.duck.connection.unregister("spark_rows")
