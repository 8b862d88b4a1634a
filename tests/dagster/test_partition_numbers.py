"""Each partition of a range run shows its own rows and bytes, whatever the table's layout is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import Schema
from ducklake_core.format.types.data_types import INT64, VARCHAR, DataType, Field
from ducklake_dagster import DuckLakeResource
from ducklake_dagster.assets.tables import asset_tables
from ducklake_dagster.partitions.predicates import slice_predicate
from ducklake_dagster.partitions.slices import TableSlice, partition_boxes
from ducklake_dagster.statistics.partitions import PartitionKeys, TouchedPartitions
from tests.support.parameters import slow

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", timezone="Europe/Berlin", end_date="2026-04-03")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})


def span(start: str, end: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}


def numbers_of(result: dg.ExecuteInProcessResult, *names: str) -> dict[str, tuple[Any, ...]]:
    found = {}
    for event in result.get_asset_materialization_events():
        metadata = event.materialization.metadata
        found[str(event.partition)] = tuple(metadata[name].value if name in metadata else None for name in names)
    return found


def daily(rows: dict[str, int], column: pa.DataType, **metadata: Any) -> dg.AssetsDefinition:
    """An asset with so many rows for each day."""

    @dg.asset(name="numbers", partitions_def=DAYS, metadata={"partition_expr": "at", **metadata})
    def build() -> pa.Table:
        days = [datetime.fromisoformat(day) for day, count in rows.items() for _ in range(count)]
        values = [day.date() for day in days] if pa.types.is_date(column) else days
        return pa.table({"at": pa.array(values, column), "n": pa.array(range(len(values)), pa.int64())})

    return build


ROWS = {"2026-03-30": 1, "2026-03-31": 200, "2026-04-01": 30}


@pytest.mark.parametrize(
    ("column", "layout", "with_bytes"),
    [
        (pa.date32(), "at", True),
        (pa.date32(), "month(at)", False),
        slow(pa.timestamp("us"), "day(at)", False),
        slow(pa.date32(), None, False),
    ],
)
def test_rows_and_bytes_of_each_day(
    run: Run, lake_resource: DuckLakeResource, column: pa.DataType, layout: str | None, with_bytes: bool
) -> None:
    keys = {"partition_by": [layout]} if layout else {}
    result = run([daily(ROWS, column, **keys)], tags=span("2026-03-29", "2026-04-01"))
    shown = numbers_of(result, "ducklake/rows_added", "dagster/partition_row_count", "ducklake/commit_rows_added", "ducklake/rows_deleted")
    expected = {"2026-03-29": 0, **ROWS}
    assert shown == {day: (count, count, 231, None) for day, count in expected.items()}
    size = numbers_of(result, "ducklake/bytes_added")
    total = lake_resource.connect().table_info("numbers").file_size_bytes
    if with_bytes:
        assert sum(one or 0 for (one,) in size.values()) == total
        assert size["2026-03-29"] == (0,)
    appended = run([daily(ROWS, column, **keys, write_mode="append")], tags=span("2026-03-30", "2026-04-01"))
    shown = numbers_of(appended, "ducklake/rows_added", "dagster/partition_row_count")
    assert shown == {day: (count, None) for day, count in ROWS.items()}


def test_two_dimensions_and_the_users_own_numbers(run: Run) -> None:
    metadata = {"partition_expr": {"day": "d", "region": "r"}, "partition_by": ["d", "r"]}

    @dg.asset(partitions_def=BOTH, metadata=metadata)
    def numbers(context) -> pa.Table:
        context.add_output_metadata({"dagster/partition_row_count": -1})
        points = [(date(2026, 3, 30), "eu"), (date(2026, 3, 31), "eu"), (date(2026, 3, 31), "eu")]
        return pa.table({"d": pa.array([day for day, _ in points], pa.date32()), "r": [region for _, region in points]})

    result = run([numbers], tags=span("2026-03-30|eu", "2026-03-31|us"))
    shown = numbers_of(result, "ducklake/rows_added", "dagster/partition_row_count")
    assert shown == {"2026-03-30|eu": (1, -1), "2026-03-31|eu": (2, -1), "2026-03-30|us": (0, -1), "2026-03-31|us": (0, -1)}


def test_a_single_partition_shows_its_commit(run: Run) -> None:
    result = run([daily({"2026-03-30": 7}, pa.date32())], partition_key="2026-03-30")
    shown = numbers_of(result, "ducklake/rows_added", "dagster/partition_row_count", "ducklake/commit_rows_added")
    assert shown == {"2026-03-30": (7, 7, None)}


def test_the_query_of_thousands_of_keys_is_short() -> None:
    keys = [f"{number:04}" for number in range(3000)]
    boxes = partition_boxes(dg.StaticPartitionsDefinition(keys), keys, "k", subject="things")
    predicate = slice_predicate(TableSlice(schema="main", table="things", boxes=boxes), lambda name: (name, "varchar"))
    assert predicate is not None
    assert len(predicate.to_sql()) > 20_000
    assert len(predicate.shown()) <= 1000


def test_each_schema_has_its_own_order_of_keys() -> None:
    definition = dg.StaticPartitionsDefinition(["9", "10"])
    (table,) = asset_tables([dg.AssetSpec("t", partitions_def=definition, metadata={"partition_expr": "k"})], None)
    keys = PartitionKeys(dg.DagsterInstance.ephemeral())

    def schema(kind: DataType) -> Schema:
        return Schema(columns=(Field(id=1, name="k", type=kind),))

    for _ in range(20):
        touched = TouchedPartitions(table, schema(INT64), keys)
        assert touched.problem is None
        # Python may give a new object the id of a deleted one.
        touched.use(schema(VARCHAR))
        assert touched.problem is not None
