"""Rows deleted by their virtual columns, in files and in the catalog, as DuckDB deletes them."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import assert_same_rows


@pytest.mark.parametrize(
    ("where", "deleted"),
    [
        ("rowid IN (5, 22)", 2),
        ("rowid = 11 OR a = 3", 2),
        ("snapshot_id = 3", 10),
        ("file_row_number = 0 AND snapshot_id < 4", 2),
        ("rowid > 99", 0),
    ],
)
def test_deletes(lake_address: LakeAddress, where: str, deleted: int) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run("CREATE TABLE t (a INTEGER)")
        duck.run(*(f"INSERT INTO t SELECT * FROM range({first}, {last})" for first, last in ((0, 10), (10, 20), (20, 23))))
        duck.run("UPDATE t SET a = 1000 WHERE a = 4")
        wanted = duck.arrow(f"SELECT rowid, a FROM t WHERE NOT ({where})")
        result = DuckLake.connect(lake_address.url).table("t").delete(where=where)
        assert result.rows_deleted == deleted == 23 - wanted.num_rows
    with attached(lake_address) as duck:
        assert_same_rows(duck, wanted, "SELECT rowid, a FROM t")
