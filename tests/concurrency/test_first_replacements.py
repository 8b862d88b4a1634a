"""Two writers replace rows that are not there yet: the second one replaces those of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress

if TYPE_CHECKING:
    from ducklake_core.transaction import Transaction


def replace_rows(tx: Transaction, operation: str, value: int) -> None:
    rows = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([value], pa.int32())})
    match operation:
        case "all":
            tx.overwrite("t", rows, concurrent_appends="replace")
        case "where":
            tx.overwrite("t", rows, where="k = 1", concurrent_appends="replace")
        case "partitions":
            tx.overwrite("t", rows, partitions=[{"k": 1}], concurrent_appends="replace")
        case _:
            tx.upsert("t", rows, on=["k"])


@pytest.mark.parametrize("limit", [0, 10])
@pytest.mark.parametrize("operation", ["all", "where", "partitions", "upsert"])
def test_two_writers_replace_missing_rows(sqlite_address: LakeAddress, operation: str, limit: int) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("data_inlining_row_limit", limit)
    lake.create_table("t", pa.schema([("k", pa.int32()), ("v", pa.int32())]), partition_by=["k"])
    other = DuckLake.connect(sqlite_address.url)
    with lake.transaction() as tx:
        replace_rows(tx, operation, 1)
        with other.transaction() as first:
            replace_rows(first, operation, 2)
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"k": 1, "v": 1}]


def test_rows_that_were_appended_meanwhile_are_replaced_where_the_overwrite_allows_it(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", pa.schema([("k", pa.int32()), ("v", pa.int32())]))
    with lake.transaction() as tx:
        replace_rows(tx, "where", 1)
        DuckLake.connect(sqlite_address.url).table("t").append(
            pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array([8, 9], pa.int32())})
        )
    assert sorted(row["v"] for row in lake.table("t").scan().to_arrow().to_pylist()) == [1, 9]
