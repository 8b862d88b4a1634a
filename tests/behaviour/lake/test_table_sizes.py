"""Counts of rows at snapshots whose files were merged later: files that also hold rows of later snapshots count only what is visible."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


def _check(address: LakeAddress) -> int:
    """Sizes agree with the rows and with DuckDB at every snapshot; how many of them the catalog alone would get wrong."""
    lake = DuckLake.connect(address.url)
    wrong = 0
    with attached(address) as duck:
        for snapshot in lake.snapshots():
            if not any(info.table == "main.t" for info in lake.tables(at=snapshot.id)):
                continue
            (listed,) = lake.tables(at=snapshot.id)
            info, table = lake.table_info("t", at=snapshot.id), lake.table("t", at=snapshot.id)
            rows = table.scan().to_arrow().num_rows
            assert info.row_count == listed.row_count == table.info().row_count == table.scan().count() == rows
            assert duck.value(f"SELECT count(*) FROM t AT (VERSION => {snapshot.id})") == rows
            held = sum(file.record_count for file in table.list_files())
            wrong += held - info.deleted_row_count + info.inlined_row_count != rows
    lake.close()
    return wrong


def test_merged_by_ducklake_core(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", pa.table({"n": range(20)}))
    for start, count in ((20, 21), (41, 22)):
        lake.table("t").append(pa.table({"n": range(start, start + count)}))
    lake.merge_adjacent_files("t")
    lake.table("t").delete(where="n < 5")
    lake.close()
    assert _check(lake_address) == 2


def test_merged_by_duckdb(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i AS n FROM range(20) r(i)", "INSERT INTO t SELECT i FROM range(20, 41) r(i)")
        duck.run("INSERT INTO t SELECT i FROM range(41, 63) r(i)", "CALL ducklake_merge_adjacent_files('lake')")
        duck.run("DELETE FROM t WHERE n < 5", "DELETE FROM t WHERE n >= 60", "CALL ducklake_rewrite_data_files('lake')")
        duck.run("INSERT INTO t VALUES (100)", "DELETE FROM t WHERE n = 30")
    assert _check(sqlite_address) == 2
