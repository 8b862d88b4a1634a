"""Types whose NULLs DuckDB does not count: pruning must not take its zeros for an answer."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


@pytest.mark.parametrize(("data_type", "text"), [("TIMETZ", "10:00:00+02"), ("INTERVAL", "1 day"), ("HUGEINT", "5"), ("UUID", "0" * 32)])
def test_rows_are_found_by_is_null(sqlite_address: LakeAddress, data_type: str, text: str) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t (i INTEGER, c {data_type})")
        for row in (f"(1, '{text}'), (2, NULL)", "(3, NULL)", f"(4, '{text}')"):
            duck.run(f"INSERT INTO t VALUES {row}")
    table = DuckLake.connect(sqlite_address.url).table("t")

    def found(where: str) -> list[int]:
        return sorted(table.scan(["i"], where=where).to_arrow().column("i").to_pylist())

    assert found("c IS NULL") == [2, 3]
    assert found("c IS NOT NULL") == [1, 4]
