"""Assets on a lake of version 1.1, which is there before the first run."""

from collections.abc import Callable

import dagster as dg
import pyarrow as pa

from ducklake_core import DuckLake
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
