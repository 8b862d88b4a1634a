"""Assets on a lake of version 1.1, which is there before the first run."""

from collections.abc import Callable

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_dagster import DuckLakeResource, load_table_specs
from tests.support.ducklakepy_lake import rows_of, second_implementation
from tests.support.oracle import LakeAddress


def test_partitions_of_an_asset(run: Callable[..., dg.ExecuteInProcessResult], sqlite_address: LakeAddress) -> None:
    DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, version="1.1").close()

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["x", "y"]), metadata={"partition_expr": "part"})
    def numbers(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"part": [context.partition_key] * 20, "row_id": list(range(20))})

    for key in ("x", "y", "x"):
        assert run([numbers], partition_key=key).success
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.info.version == "1.1"
    (table,) = lake.tables()
    assert lake.table(table.table).scan().count() == 40
    with second_implementation(sqlite_address) as catalog:
        assert len(rows_of(catalog, table.table)) == 40


@pytest.mark.takes_seconds
def test_key_prefixes_of_any_depth(
    run: Callable[..., dg.ExecuteInProcessResult], lake_resource: DuckLakeResource, sqlite_address: LakeAddress
) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, version="1.1")

    @dg.asset(key=["sales", "europe", "orders"])
    def orders() -> pa.Table:
        return pa.table({"a": [1, 2, 3]})

    @dg.asset(key=["sales", "europe", "north", "totals"], ins={"rows": dg.AssetIn(["sales", "europe", "orders"])})
    def totals(rows: pa.Table) -> pa.Table:
        return pa.table({"n": [rows.num_rows]})

    @dg.asset(key=["dotted"], metadata={"schema": '"sales.europe"'})
    def dotted() -> pa.Table:
        return pa.table({"a": [7]})

    assert run([orders, totals, dotted], io={"schema": "{key_prefix}"}).success
    wanted = {"sales.europe.orders": 3, "sales.europe.north.totals": 1, '"sales.europe".dotted': 1}
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
