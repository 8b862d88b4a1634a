"""A lake as Spark reads it, on both of its paths, against the oracle: many tables and snapshots in one Spark job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.spark.scan_schema import TYPES_CONF
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.sql import to_sql
from tests.property.histories.comparison import at_snapshot, differences, register, remember, tables_at
from tests.property.histories.conditions import condition
from tests.property.histories.play import Lake
from tests.property.histories.sketch import Column, TableSketch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark has no nanoseconds; reading a value that needs them is an error (docs: types), which is tested where types are.
_NOT_IN_SPARK = ("timestamp_ns",)
_FRAMES_PER_JOB = 24
_TAG = "$tag"


@dataclass(frozen=True)
class Reading:
    """A frame, and the oracle's query for the same rows."""

    table: TableSketch
    snapshot: int
    how: str
    frame: DataFrame
    query: str


def compare_on_spark(lake: Lake, spark: SparkSession, seed: int, earlier: int | None = None) -> int:
    """Every table at every snapshot: rows with row ids, natively, and under conditions in the scan and on its frame.

    Args:
        earlier: Only at the newest snapshot and so many others.
    """
    # The oracle would see strings and longs in place of times as other values.
    spark.conf.set(TYPES_CONF, "nearest")
    try:
        draw, compared = Random(seed), 0
        snapshots = [snapshot.id for snapshot in lake.library.snapshots()]
        if earlier is not None:
            snapshots = sorted({snapshots[-1], *draw.sample(snapshots[len(snapshots) // 3 :], earlier)})
        alike: dict[str, list[Reading]] = {}
        for snapshot in snapshots:
            for table in tables_at(lake.duck, snapshot):
                compared += 1
                for reading in _readings(lake, spark, table, snapshot, draw):
                    alike.setdefault(repr(reading.frame.schema), []).append(reading)
        for readings in alike.values():
            for start in range(0, len(readings), _FRAMES_PER_JOB):
                _check(lake, readings[start : start + _FRAMES_PER_JOB])
        return compared
    finally:
        spark.conf.unset(TYPES_CONF)


def _readings(lake: Lake, spark: SparkSession, table: TableSketch, snapshot: int, draw: Random) -> Iterator[Reading]:
    source = f'(SELECT *, rowid AS "$rowid" FROM {table.sql}{at_snapshot(snapshot)})'
    columns = [c for c in _columns(lake, source)[:-1] if c.kind not in _NOT_IN_SPARK]
    if not columns:
        return
    names = [column.name for column in columns]
    opened = lake.library.table(table.sql, at=snapshot)
    listed = ", ".join(column.sql for column in columns)
    native = opened.scan(columns=names).to_spark(spark)
    with_ids = opened.scan(columns=[*names, "rowid"]).to_spark(spark)
    yield Reading(table, snapshot, "with row ids", with_ids, f'SELECT {listed}, "$rowid" FROM {source}')
    yield Reading(table, snapshot, "natively", native, f"SELECT {listed} FROM {source}")
    where = condition(draw, TableSketch(table.schema, table.name, tuple(columns)))
    # Out of reach of the lake's statistics, which DuckDB believes too much.
    query = f"WITH kept AS MATERIALIZED (SELECT * FROM {source}) SELECT {listed} FROM kept WHERE {where}"
    try:
        yield Reading(table, snapshot, f"WHERE {where}", opened.scan(columns=names, where=where).to_spark(spark), query)
        later = native.filter(to_sql(bind(where, opened.schema), "spark"))
        yield Reading(table, snapshot, f"later WHERE {where}", later, query)
    except UnsupportedFeatureError:
        return


def _columns(lake: Lake, source: str) -> list[Column]:
    return [Column(column[0], column[1]) for column in lake.duck.connection.execute(f"SELECT * FROM {source} LIMIT 0").description]


def _check(lake: Lake, readings: list[Reading]) -> None:
    from pyspark.sql import functions as sf

    frames = [reading.frame.withColumn(_TAG, sf.lit(number)) for number, reading in enumerate(readings)]
    found: pa.Table = reduce(lambda left, right: left.unionAll(right), frames).toArrow()
    for number, reading in enumerate(readings):
        library = found.filter(pc.equal(found.column(found.num_columns - 1), number))
        library = library.select(list(range(found.num_columns - 1)))
        wanted = remember(lake.duck, "expected", reading.query)
        register(lake.duck, "spark_rows", library.rename_columns([column.name for column in wanted]))
        try:
            assert differences(lake.duck, "spark_rows", "expected") == [], (
                f"rows of Spark of {reading.table.sql} at {reading.snapshot} {reading.how}"
            )
        finally:
            lake.duck.connection.unregister("spark_rows")
