"""Conditions beyond comparisons, in this process: DuckDB chooses the same rows by them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from tests.support.oracle import LakeAddress, attached

ROWS = pa.table(
    {
        "k": pa.array([1, 2, 3, 4, 5, 6, None], pa.int64()),
        "s": ["a", "B", "c", "D", "e", "F", None],
        "x": pa.array([0.5, 1.5, None, float("nan"), -2.0, 3.0, 1.0]),
        "n": pa.array([{"y": value} for value in range(7)]),
        "d": pa.array([0, -1, 365, 20000, None, 1, 2], pa.date32()),
    }
)
CONDITIONS = (
    "k % 3 = 0", "upper(s) = 'B'", "k * 2 > 7 AND x < 3", "abs(x) > 1", "n.y + 1 = 3", "coalesce(k, 0) = 0", "length(s) = 1 OR k IS NULL",
    "CASE WHEN k > 3 THEN true ELSE false END", "s || 'x' = 'ax'", "k + 1 IN (2, 3, NULL)", "NOT (k + 1 IN (2, 3))", "(k % 2 = 0) IS NULL",
    "NOT (k % 3 = 0)", "d + 1 = DATE '1970-01-02'", "k / 2 = 1.5", "k - 1 BETWEEN 1 AND 2", "if(k > 3, s, 'q') = 'q'",
    "CAST(k AS VARCHAR) = '3'",
    "rowid % 2 = 0", "lower(s) IN ('a', 'b')", "s < upper(s)", "k % 0 = 1", "(k = 3) = true",
)  # fmt: skip


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    """Tables with the rows in a file (``t0``), and in the catalog (``t100``)."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    for limit in (0, 100):
        lake.set_option("data_inlining_row_limit", limit)
        lake.create_table_as(f"t{limit}", ROWS)
    lake.set_option("data_inlining_row_limit", 0)
    return lake


def test_the_same_rows(lake: DuckLake, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        for condition in CONDITIONS:
            wanted = sorted(duck.rows(f"SELECT rowid FROM t0 WHERE {condition}"))
            for table in ("t0", "t100"):
                found = lake.table(table).scan(columns=["rowid"], where=condition).to_arrow()
                assert sorted((row,) for row in found.column("rowid").to_pylist()) == wanted, (table, condition)
    for table in ("t0", "t100"):
        assert lake.table(table).delete("k % 3 = 0").rows_deleted == 2
        assert lake.table(table).delete("upper(s) = 'B' OR rowid % 5 = 4").rows_deleted == 2
        with pytest.raises(UsageError, match="k = 1 does not satisfy the condition of the overwrite"):
            lake.table(table).overwrite(ROWS.slice(0, 1), where="k % 2 = 0")
        assert lake.table(table).overwrite(ROWS.slice(1, 1), where="k % 2 = 0").rows_deleted == 1
    with attached(lake_address) as duck:
        for table in ("t0", "t100"):
            assert duck.rows(f"SELECT k FROM {table} ORDER BY k") == [(1,), (2,), (None,)], table


def test_unsupported_conditions_raise(small: DuckLake) -> None:
    small.create_table_as("t", ROWS)
    table = small.table("t")
    with pytest.raises(UnsupportedFeatureError, match="Arrow cannot evaluate"):
        table.delete("md5(s) = 'x'")
    with pytest.raises(SchemaError, match="out of the range"):
        table.delete("CAST(x AS INTEGER) = 2")
    assert small.snapshot().id == 1
