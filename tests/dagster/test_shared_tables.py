"""Two assets, one table: nothing of another asset is overwritten unless metadata says that they share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource, ducklake_metadata
from tests.dagster.test_io_manager import cause
from tests.support.oracle import LakeAddress

Run = Callable[..., dg.ExecuteInProcessResult]


def asset(key: list[str], value: int, partitions: dg.PartitionsDefinition[str] | None = None, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(key=key, partitions_def=partitions, metadata=ducklake_metadata(**metadata))
    def build(context) -> pa.Table:
        days = [date.fromisoformat(key) for key in context.partition_keys] if partitions else [date(2026, 1, 1)]
        return pa.table({"day": pa.array(days, pa.date32()), "n": [value] * len(days)})

    return build


def values(lake: DuckLakeResource, table: str) -> list[int]:
    return sorted(lake.connect().table(table).scan(["n"]).to_arrow()["n"].to_pylist())


@pytest.mark.takes_seconds
def test_assets_that_would_be_one_table_are_refused(run: Run, lake_resource: DuckLakeResource) -> None:
    a, b = asset(["a", "same"], 1), asset(["b", "same"], 2)
    schema = {"schema": "s"}
    run([a], io=schema)
    text = cause(run([b], io=schema, raise_on_error=False))
    assert "b/same would overwrite rows of table s.same that a/same wrote" in text
    assert "shared=True" in text
    assert values(lake_resource, "s.same") == [1]
    run([a], io=schema)
    run([b])
    assert values(lake_resource, "b.same") == [2]
    run([asset(["b", "same"], 2, shared=True)], io=schema)
    assert values(lake_resource, "s.same") == [2]


@pytest.mark.takes_seconds
def test_a_slice_is_refused_too_and_appends_and_upserts_are_not(run: Run, lake_resource: DuckLakeResource) -> None:
    days = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
    where = {"table": "t", "partition_expr": "day"}
    run([asset(["a"], 1, days, **where)], partition_key="2026-01-01")
    other = asset(["b"], 2, days, **where)
    assert "b would overwrite" in cause(run([other], partition_key="2026-01-02", raise_on_error=False))
    run([asset(["b"], 2, days, **where, write_mode="append")], partition_key="2026-01-02")
    run([asset(["c"], 3, days, **where, write_mode="upsert", upsert_keys="day")], partition_key="2026-01-02")
    assert values(lake_resource, "t") == [1, 3]
    assert "that c wrote" in cause(run([asset(["a"], 1, days, **where)], partition_key="2026-01-01", raise_on_error=False))


def test_the_last_asset_counts_whatever_others_did_since(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    run([asset(["a"], 1, table="t")])
    lake = lake_resource.connect()
    lake.set_comment("t", "by hand")
    lake.write("t", pa.table({"day": pa.array([None], pa.date32()), "n": [7]}))
    for number in range(3):
        lake.write("other", pa.table({"n": [number]}), author="dagster")
    assert "that a wrote" in cause(run([asset(["b"], 2, table="t")], raise_on_error=False))
    run([asset(["a"], 3, table="t")])
    lake.drop_table("t")
    run([asset(["b"], 2, table="t")])
    assert values(lake_resource, "t") == [2]
