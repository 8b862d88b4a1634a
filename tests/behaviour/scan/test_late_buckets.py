"""Files from before a table was partitioned by buckets, which DuckDB 1.5 leaves out of equalities and joins."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


@pytest.mark.parametrize(("where", "count", "by_duckdb"), [("k = 10", 1, 0), ("k IN (1, 2, 700)", 3, 0), ("k >= 10", 1090, 1090)])
def test_files_from_before(sqlite_address: LakeAddress, where: str, count: int, by_duckdb: int) -> None:
    with attached(sqlite_address) as duck:
        duck.run(
            "CREATE TABLE t (k INTEGER)",
            "INSERT INTO t FROM range(1000)",
            "ALTER TABLE t SET PARTITIONED BY (bucket(4, k))",
            "INSERT INTO t FROM range(1000, 1100)",
        )
        assert duck.value(f"SELECT count(*) FROM t WHERE {where}") == by_duckdb
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.table("t").scan(where=where).to_arrow().num_rows == count
    assert lake.sql(f"SELECT count(*) AS n, 1 AS one FROM t WHERE {where}").to_arrow().column("n").to_pylist() == [count]  # type: ignore[union-attr]
