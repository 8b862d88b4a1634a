"""Columns called like the columns that inlined tables, data files and scans have of their own."""

from __future__ import annotations

import pytest

from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import on_all_catalogs
from tests.support.scans import assert_same_rows, open_lake

pytestmark = on_all_catalogs


NAMES = (
    *("row_id", "begin_snapshot", "end_snapshot", "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"),
    *("rowid", "snapshot_id", "filename", "file_row_number", "inlined_table", "metadata", "value"),
)
INLINED_NAMES = ("rowid", "snapshot_id", "filename", "file_row_number", "inlined_table", "Row_Ids", "index", "nothing", "returning")


def compare(duck: Oracle, address: LakeAddress) -> None:
    lake = open_lake(address)
    for version in lake.snapshots()[1:]:
        scan = lake.scan("t", version)
        query = f"SELECT * FROM t AT (VERSION => {version})"
        assert_same_rows(duck, scan.to_arrow(), query)


def columns(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}" INTEGER' for name in names)


@pytest.mark.parametrize(("names", "limit"), [(NAMES, 0), (INLINED_NAMES, 10)], ids=["in files", "inlined"])
def test_reserved_names(lake_address: LakeAddress, names: tuple[str, ...], limit: int) -> None:
    with attached(lake_address, f"DATA_INLINING_ROW_LIMIT {limit}") as duck:
        duck.run(f"CREATE TABLE t ({columns(names)})")
        for start in (0, 100):
            rows = ", ".join(f"({', '.join(str(start + row * len(names) + n) for n in range(len(names)))})" for row in range(5))
            duck.run(f"INSERT INTO t VALUES {rows}")
        duck.run(f'UPDATE t SET "{names[1]}" = -1 WHERE "{names[0]}" < 10', f'DELETE FROM t WHERE "{names[0]}" > 130')
        compare(duck, lake_address)


def test_columns_that_get_a_reserved_name(lake_address: LakeAddress) -> None:
    """Rows that were inlined before stay where they are."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run("CREATE TABLE t (a INTEGER, b VARCHAR)", "INSERT INTO t VALUES (1, 'x'), (2, NULL)")
        duck.run("CALL ducklake_set_option('lake', 'data_inlining_row_limit', 0, table_name => 't')")
        duck.run("ALTER TABLE t RENAME COLUMN a TO row_id", "INSERT INTO t VALUES (3, 'later')")
        duck.run("ALTER TABLE t ADD COLUMN begin_snapshot DATE", "INSERT INTO t VALUES (4, 'last', '2024-01-01')")
        compare(duck, lake_address)
