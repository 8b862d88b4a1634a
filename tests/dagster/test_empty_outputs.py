"""Outputs without rows: nothing is created by the first, and the slice is emptied by later ones, whatever columns they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource, materialize_together
from tests.dagster.test_io_manager import cause
from tests.support.parameters import slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.StaticPartitionsDefinition(["a", "b"])
EMPTY: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"d": [], "s": []}),
    "pandas without columns": pd.DataFrame,
    "pandas of a list": lambda: pd.DataFrame([]),
    "Arrow": lambda: pa.Table.from_pylist([]),
    "polars": pl.DataFrame,
    "lazy polars": lambda: pl.LazyFrame({"d": []}),
    "stream": lambda: pa.RecordBatchReader.from_batches(pa.schema([("zz", pa.string())]), []),
}
COLUMNS = dg.TableSchema(columns=[dg.TableColumn("d", "varchar"), dg.TableColumn("n", "int64")])
QUICK = [name if name in ("pandas", "stream") else slow(name) for name in EMPTY]


def asset(make: Callable[[], Any], **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name="things", partitions_def=DAYS, metadata={"partition_expr": "d", **metadata})
    def build() -> Any:
        """Described."""
        return make()

    return build


def facts(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node("things")
    return {key: value.value for key, value in event.metadata.items()}


def full() -> pa.Table:
    return pa.table({"d": ["a", "a"], "n": [1, 2]})


@pytest.mark.parametrize("name", QUICK)
def test_the_first_partition_creates_nothing_or_the_declared_columns(run: Run, lake_resource: DuckLakeResource, name: str) -> None:
    make = EMPTY[name]
    shown = facts(run([asset(make)], partition_key="a"))
    assert shown["ducklake/rows_added"] == shown["dagster/partition_row_count"] == 0
    layout = asset(make, sort_by=["n"], partition_by=["d"], audits={"positive": "n > 0"})
    merge = asset(make, write_mode="merge", merge_keys=["n"], delete_when="s.op = 'D'", when_not_matched_by_source="delete")
    for definition in (layout, merge, asset(make, write_mode="upsert", upsert_keys=["n"]), asset(make, schema_evolution="additive")):
        run([definition], partition_key="a")
    lake = lake_resource.connect()
    assert list(lake) == []
    shown = facts(run([asset(make, sort_by=["n"], partition_by=["d"], **{"dagster/column_schema": COLUMNS})], partition_key="a"))
    table = lake.table("things")
    assert [(column.name, str(column.type)) for column in table.schema] == [("d", "varchar"), ("n", "int64")]
    assert (table.info().partition_by, table.info().row_count, table.comment) == (("d",), 0, "Described.")
    assert shown["dagster/row_count"] == 0


@pytest.mark.parametrize("name", QUICK)
def test_later_partitions_empty_their_slice(run: Run, lake_resource: DuckLakeResource, name: str) -> None:
    make = EMPTY[name]
    run([asset(full)], partition_key="a")
    run([asset(lambda: pa.table({"d": ["b"], "n": [3]}))], partition_key="b")
    lake = lake_resource.connect()
    for how in ({"write_mode": "append"}, {"write_mode": "upsert", "upsert_keys": ["n"]}, {"write_mode": "merge", "merge_keys": ["n"]}):
        assert facts(run([asset(make, **how)], partition_key="a"))["ducklake/rows_deleted"] == 0
    assert facts(run([asset(make, audits={"positive": "n > 0"})], partition_key="a"))["ducklake/rows_deleted"] == 2
    assert lake.table("things").scan().to_arrow().to_pylist() == [{"d": "b", "n": 3}]
    merge = asset(make, write_mode="merge", merge_keys=["n"], delete_when="s.op = 'D'", when_not_matched_by_source="delete")
    assert facts(run([merge], partition_key="b"))["ducklake/rows_deleted"] == 1
    assert lake.table("things").schema.names == ("d", "n")


def test_columns_declared_with_foreign_types_create_nothing(run: Run, lake_resource: DuckLakeResource) -> None:
    strange = dg.TableSchema(columns=[dg.TableColumn("d", "object")])
    run([asset(pd.DataFrame, **{"dagster/column_schema": strange})], partition_key="a")
    assert list(lake_resource.connect()) == []


def test_several_assets_in_one_commit(run: Run, lake_resource: DuckLakeResource) -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("orders"), dg.AssetSpec("lines")])
    def sales(context) -> Any:  # type: ignore[no-untyped-def]
        yield from materialize_together(context, {"orders": pd.DataFrame({"x": []}), "lines": full()})

    run([sales])
    assert list(lake_resource.connect()) == ["main.lines"]


def test_an_input_of_what_was_never_created_names_the_remedy(run: Run) -> None:
    @dg.asset
    def reader(things: pa.Table) -> None:
        assert things is None

    @dg.asset
    def things() -> Any:
        return pd.DataFrame()

    with pytest.raises(dg.Failure, match="dagster/column_schema in its metadata declares the columns"):
        run([things, reader])


@pytest.mark.slow
def test_of_spark(run: Run, lake_resource: DuckLakeResource, spark: SparkSession) -> None:
    for ddl in ("", "d void", "zz string"):
        run([asset(lambda ddl=ddl: spark.createDataFrame([], ddl))], partition_key="a")
        assert list(lake_resource.connect()) == []
    run([asset(full)], partition_key="a")
    assert "lacks columns" in cause(
        run([asset(lambda: spark.createDataFrame([("a",)], "d string"))], partition_key="a", raise_on_error=False)
    )
    shown = facts(run([asset(lambda: spark.createDataFrame([], "zz string"))], partition_key="a"))
    assert shown["ducklake/rows_deleted"] == 2
