"""Assets on lakes of version 1.1. What is not of 1.1 alone is tested by all other files with ``--lake-version 1.1``."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from ducklakepy.expressions import col

from ducklake_core import DuckLake
from ducklake_dagster import (
    ColumnBounds,
    DeleteRatio,
    DuckLakeResource,
    LocalStorage,
    NullFraction,
    RowCount,
    SoundCatalog,
    SqliteCatalog,
    build_commit_sensor,
    build_lake_checks,
    build_maintenance_defs,
    ducklake_metadata,
    load_table_specs,
)
from tests.dagster.conftest import QUIET
from tests.support.ducklakepy_lake import faults, rows_of, second_implementation
from tests.support.oracle import LakeAddress

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("1969-12-30", end_date="1970-01-04")
DEPTH: Any = {"schema": "{key_prefix}"}
ORDERS = "sales.europe.orders"


@pytest.fixture
def lake_resource(sqlite_address: LakeAddress) -> DuckLakeResource:
    """A lake of version 1.1 that is made on first use."""
    path = sqlite_address.url.removeprefix("sqlite:///")
    storage = LocalStorage(data_path=sqlite_address.data_path)
    return DuckLakeResource(catalog=SqliteCatalog(path=path), storage=storage, create_if_missing=True, version="1.1")


@dg.asset(
    key=["sales", "europe", "orders"],
    partitions_def=DAYS,
    metadata=ducklake_metadata(partition_expr="day", partition_by=["epoch_day(day)"]),
)
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    day = date.fromisoformat(context.partition_key)
    return pa.table({"day": pa.array([day] * 30, pa.date32()), "row_id": pa.array([n + 100 * day.day for n in range(30)], pa.int64())})


@pytest.fixture
def filled(run: Run, lake_resource: DuckLakeResource) -> DuckLake:
    """Two partitions of orders."""
    for key in ("1969-12-31", "1970-01-01"):
        assert run([orders], partition_key=key, io=DEPTH).success
    return lake_resource.connect()


def test_the_version_of_a_lake_that_is_made(lake_resource: DuckLakeResource, tmp_path: Path) -> None:
    assert lake_resource.connect().info.version == "1.1"
    other: Any = {"catalog": SqliteCatalog(path=f"{tmp_path}/other.sqlite"), "storage": LocalStorage(data_path=f"{tmp_path}/other/")}
    assert DuckLakeResource(**other, create_if_missing=True).connect().info.version == "1.0"
    # One that is there keeps its own.
    assert DuckLakeResource(**other, create_if_missing=True, version="1.1").connect().info.version == "1.0"


def test_partitions_are_replaced(run: Run, filled: DuckLake, sqlite_address: LakeAddress) -> None:
    assert run([orders], partition_key="1969-12-31", io=DEPTH).success
    table = filled.table(ORDERS)
    assert (table.scan().count(), table.scan(where="day < DATE '1970-01-01'").count()) == (60, 30)
    assert sum(file.pruned_by is None for file in table.scan(where="day = DATE '1969-12-31'").explain().files) == 1
    with second_implementation(sqlite_address) as catalog:
        assert len(rows_of(catalog, ORDERS)) == 60
    assert faults(filled) == []


def test_upserts_and_new_columns(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    frames = [
        pa.table({"id": [1, 2], "end_snapshot": ["a", "b"]}),
        pa.table({"id": [2, 3], "end_snapshot": ["B", "c"], "note": [None, "new"]}),
    ]

    @dg.asset(key=["a", "b", "t"], metadata=ducklake_metadata(write_mode="upsert", upsert_keys=["id"], schema_evolution="additive"))
    def t() -> pa.Table:
        return frames.pop(0)

    for _ in range(2):
        assert run([t], io=DEPTH).success
    wanted = [(1, "a", None), (2, "B", None), (3, "c", "new")]
    with second_implementation(sqlite_address) as catalog:
        assert rows_of(catalog, "a.b.t") == wanted
    assert sorted(map(tuple, (row.values() for row in lake_resource.connect().table("a.b.t").scan().to_arrow().to_pylist()))) == wanted
    assert faults(lake_resource.connect()) == []


def test_key_prefixes_of_any_depth(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    lake = lake_resource.connect()

    @dg.asset(key=["sales", "europe", "orders"])
    def orders() -> pa.Table:
        return pa.table({"a": [1, 2, 3]})

    @dg.asset(key=["sales", "europe", "north", "totals"], ins={"rows": dg.AssetIn(["sales", "europe", "orders"])})
    def totals(rows: pa.Table) -> pa.Table:
        return pa.table({"n": [rows.num_rows]})

    @dg.asset(key=["dotted"], metadata={"schema": '"sales.europe"'})
    def dotted() -> pa.Table:
        return pa.table({"a": [7]})

    assert run([orders, totals, dotted], io=DEPTH).success
    wanted = {ORDERS: 3, "sales.europe.north.totals": 1, '"sales.europe".dotted': 1}
    assert {info.table: info.row_count for info in lake.tables()} == wanted
    with second_implementation(sqlite_address) as catalog:
        assert {name: len(rows_of(catalog, name)) for name in wanted} == wanted
    lake.create_view("sales.europe.v", "SELECT a FROM orders WHERE a > 1")
    specs = {spec.key.to_user_string(): spec for spec in load_table_specs(lake_resource)}
    assert set(specs) == {"sales/europe/orders", "sales/europe/north/totals", "sales.europe/dotted", "sales/europe/v"}
    assert [dep.asset_key.path for dep in specs["sales/europe/v"].deps] == [["sales", "europe", "orders"]]

    @dg.asset(ins={"rows": dg.AssetIn(["sales", "europe", "v"])}, metadata={"schema": "main"})
    def reads(rows: pa.Table) -> pa.Table:
        return rows

    # Specs carry the schema's path, so that a manager without a schema finds the table too.
    assert run([reads, *specs.values()], selection=[reads]).success
    assert lake.table("reads").scan().count() == 2


@pytest.mark.slow
def test_checks_of_tables_with_deletion_vectors(run: Run, filled: DuckLake) -> None:
    filled.set_option("data_inlining_row_limit", 0)
    filled.set_option("write_deletion_vectors", True)
    for row in (3100, 3101, 100):
        filled.table(ORDERS).delete(f"row_id = {row}")
    judged = [
        RowCount(minimum=57, maximum=57),
        NullFraction(limits={"row_id": 0.0}),
        DeleteRatio(maximum=0.01),
        SoundCatalog(),
        ColumnBounds(bounds={"row_id": (102, 3129)}),
    ]
    checks = build_lake_checks(assets=[orders], checks=judged, **DEPTH)
    found = run([orders, *checks], selection=dg.AssetSelection.checks(*checks)).get_asset_check_evaluations()
    assert {check.check_name: check.passed for check in found} == {
        "row_count": True,
        "null_fraction": True,
        "delete_ratio": False,
        "catalog": True,
        "bounds": False,
    }


def test_foreign_commits_become_events(
    filled: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    sensor, cursor = build_commit_sensor(assets=[orders], **DEPTH), None

    def tick() -> list[tuple[str, str | None]]:
        nonlocal cursor
        result = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake_resource}))
        cursor = result.cursor
        return [(event.asset_key.to_user_string(), event.partition) for event in result.asset_events]

    assert tick() == []
    rows = pa.table({"day": pa.array([date(1970, 1, 2)] * 20, pa.date32()), "row_id": pa.array(range(20), pa.int64())})
    with second_implementation(sqlite_address) as catalog:
        catalog.set_option("write_deletion_vectors", True)
        catalog.set_option("data_inlining_row_limit", 0)
        catalog.load_table(ORDERS).append(rows)
        catalog.load_table(ORDERS).delete(col("row_id") == 3100)
    assert tick() == [("sales/europe/orders", "1969-12-31"), ("sales/europe/orders", "1970-01-02")]
    with second_implementation(sqlite_address) as catalog:
        catalog.load_table(ORDERS).delete(col("row_id") == 3101)
    assert tick() == [("sales/europe/orders", "1969-12-31")]


def test_maintenance(filled: DuckLake, lake_resource: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress) -> None:
    filled.set_option("write_deletion_vectors", True)
    for start in (0, 5):
        filled.write("x.y.few", pa.table({"row_id": range(start, start + 5)}))
    filled.set_option("data_inlining_row_limit", 0)
    filled.table(ORDERS).delete("row_id % 2 = 0")
    (job,) = build_maintenance_defs(delete_threshold=0.2).jobs or ()
    now = {"older_than_days": 0.0, "min_age_hours": 0.0}
    ops = {name: {"config": now} for name in ("expire_snapshots", "cleanup_old_files", "delete_orphaned_files")}
    assert (
        dg.Definitions(jobs=[job], resources={"lake": lake_resource})
        .resolve_job_def(job.name)
        .execute_in_process(instance=instance, run_config={**QUIET, "ops": ops})
        .success
    )
    health = filled.health()
    assert (health.table(ORDERS).deleted_row_count, health.table("x.y.few").inlined_row_count) == (0, 0)
    with second_implementation(sqlite_address) as catalog:
        assert (len(rows_of(catalog, ORDERS)), len(rows_of(catalog, "x.y.few"))) == (30, 10)
    assert faults(filled) == []


def test_branches(run: Run, filled: DuckLake) -> None:
    assert run([orders], partition_key="1970-01-02", io={**DEPTH, "branch": "fix"}).success
    assert {info.table: info.row_count for info in filled.tables()} == {ORDERS: 60, "sales.europe__fix.orders": 30}

    @dg.asset(
        key=["sales", "europe", "least"],
        partitions_def=DAYS,
        ins={"rows": dg.AssetIn(["sales", "europe", "orders"])},
        metadata=ducklake_metadata(partition_expr="day"),
    )
    def least(rows: pa.Table) -> pa.Table:
        return rows.sort_by("row_id")[:1]

    for key in ("1969-12-31", "1970-01-02"):
        assert run([orders, least], selection=[least], partition_key=key, io={**DEPTH, "branch": "fix"}).success
    assert filled.table("sales.europe__fix.least").scan().to_arrow().sort_by("row_id")["row_id"].to_pylist() == [200, 3100]
