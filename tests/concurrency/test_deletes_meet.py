"""Two writers that delete the same row of a file that had deletes before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress


@pytest.mark.parametrize("others_delete_first", [True, False])
def test_a_row_that_another_writer_has_just_deleted(sqlite_address: LakeAddress, others_delete_first: bool) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"x": list(range(10))}))
    lake.table("t").delete("x = 0")
    with lake.transaction() as tx:
        if others_delete_first:
            lake.table("t").delete("x = 1")
        tx.delete("t", "x < 3")
        if not others_delete_first:
            lake.table("t").delete("x = 1")
    (written,) = tx.result.writes
    assert written.rows_deleted == 1
    assert sorted(lake.table("t").scan().to_arrow().column("x").to_pylist()) == list(range(3, 10))
    assert lake.table_info("t").row_count == 7
    before = lake.snapshots()[-2]
    assert sorted(lake.table("t", at=before.id).scan().to_arrow().column("x").to_pylist()) == list(range(2, 10))
