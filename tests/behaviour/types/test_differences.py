"""Differences from DuckDB for changed types, where its answer is wrong or arbitrary; every test shows DuckDB's answer."""

from __future__ import annotations

import duckdb
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs


def own(address: LakeAddress) -> list[str]:
    return [str(value) for value in DuckLake.connect(address.url).table("t").scan().to_arrow().column("c").to_pylist()]


@on_all_catalogs
def test_an_inlined_boolean_that_became_an_integer(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (c BOOLEAN)", "INSERT INTO t VALUES (true), (false), (NULL)", "ALTER TABLE t ALTER c TYPE TINYINT")
        with pytest.raises(duckdb.Error, match="Could not convert string"):
            duck.rows("FROM t")
    assert own(lake_address) == ["1", "0", "None"]


def test_a_hugeint_that_became_a_decimal(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (c HUGEINT)", "INSERT INTO t VALUES (12345678901234567)", "ALTER TABLE t ALTER c TYPE DECIMAL(38,10)")
        assert duck.value("SELECT c::VARCHAR FROM t") == "12345678901234567.8152597504"
    assert own(sqlite_address) == ["12345678901234568.0000000000"]


@pytest.mark.parametrize("kind", ["TIME", "TIMETZ"])
def test_a_time_that_became_json(sqlite_address: LakeAddress, kind: str) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t (c {kind})", "INSERT INTO t VALUES ('10:00:00')", "ALTER TABLE t ALTER c TYPE JSON")
        assert "10:00:00" in str(duck.value("SELECT c::VARCHAR FROM t"))
    with pytest.raises(SchemaError, match=r"of table main\.t.*'c'.*zone"):
        own(sqlite_address)


@on_all_catalogs
@pytest.mark.parametrize("limit", [0, 10])
def test_a_timestamp_that_became_one_with_a_zone(lake_address: LakeAddress, limit: int) -> None:
    with attached(lake_address, f"DATA_INLINING_ROW_LIMIT {limit}") as duck:
        duck.run("CREATE TABLE t (c TIMESTAMP)", "INSERT INTO t VALUES ('2020-07-01 12:00:00')", "ALTER TABLE t ALTER c TYPE TIMESTAMPTZ")
        found = set()
        for zone in ("UTC", "America/New_York"):
            duck.run(f"SET TimeZone = '{zone}'")
            found.add(duck.value("SELECT epoch(c) FROM t"))
        assert found == {1593604800.0, 1593604800.0 + 4 * 3600}, "it depends on the session"
    assert own(lake_address) == ["2020-07-01 12:00:00+00:00"]
