"""Columns of another type, and keys that come back: what was written before stays found, by DuckDB too."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

# Old and new type, old values, and one that DuckDB adds afterwards.
CHANGED = (
    ("BOOLEAN", "TINYINT", ("false", "true"), "5"),
    ("BOOLEAN", "JSON", ("false", "true"), "'0'"),
    ("FLOAT", "DOUBLE", ("0.1", "0.7"), "0.3"),
    ("INTEGER", "JSON", ("1", "5", "10"), "'3'"),
    ("DOUBLE", "JSON", ("1.5", "10.5", "3"), "'2.0'"),
    ("DATE", "JSON", ("DATE '2020-01-01'", "DATE '1969-01-01'"), "'1'"),
    ("DATE", "TIMESTAMP", ("DATE '2020-01-01'", "DATE '1969-01-01'"), "TIMESTAMP '1999-01-01 10:00:00'"),
    ("INTEGER", "BIGINT", ("1", "-5"), "99999999999"),
    ("DECIMAL(4,2)", "DECIMAL(18,3)", ("1.50", "-0.01"), "1000.001"),
)


@pytest.mark.parametrize("limit", spread([0, 100], 1))
def test_duckdb_finds_old_and_new_rows(lake: DuckLake, lake_address: LakeAddress, limit: int) -> None:
    lake.set_option("data_inlining_row_limit", limit)
    with attached(lake_address) as duck:
        duck.run("BEGIN", *(f"CREATE TABLE t{n} (c {old})" for n, (old, _, _, _) in enumerate(CHANGED)), "COMMIT")
        for n, (_, _, values, _) in enumerate(CHANGED):
            duck.run(*(f"INSERT INTO t{n} VALUES ({value})" for value in values))
    with lake.transaction() as tx:
        for n, (_, new, _, _) in enumerate(CHANGED):
            tx.set_column_type(f"t{n}", "c", new)
    _all_found(lake_address)
    with attached(lake_address) as duck:
        duck.run(*(f"INSERT INTO t{n} VALUES ({more})" for n, (_, _, _, more) in enumerate(CHANGED)))
    _all_found(lake_address)
    for n, (_, _, values, _) in enumerate(CHANGED):
        rows = lake.table(f"t{n}").scan().to_arrow()
        assert rows.num_rows == len(values) + 1
        lake.table(f"t{n}").append(rows)
    _all_found(lake_address, times=2)


def _all_found(address: LakeAddress, times: int = 1) -> None:
    with attached(address) as duck:
        for n, (_, new, _, _) in enumerate(CHANGED):
            values = [value for (value,) in duck.rows(f"SELECT DISTINCT c::VARCHAR FROM t{n}")]
            for value in values:
                assert duck.rows(f"SELECT count(*) FROM t{n} WHERE c = ?::{new}", [value]) == [(times,)], (CHANGED[n], value)
            least = min(values, key=lambda value: duck.rows(f"SELECT ?::{new}", [value])[0][0])
            assert duck.rows(f"SELECT count(*) FROM t{n} WHERE c >= ?::{new}", [least]) == [(times * len(values),)], CHANGED[n]


def test_bounds_that_hold_are_kept(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_table("t", {"a": "int32", "f": "float32"})
    table = small.table("t")
    table.append(pa.table({"a": pa.array(range(20), pa.int32()), "f": pa.array(range(20), pa.float32())}))
    table.set_column_type("a", "int64")
    table.set_column_type("f", "float64")
    dump = dump_catalog(sqlite_address)
    assert [(row["column_id"], row["min_value"]) for row in dump["table_column_stats"]] == [(1, "0")]
    assert [(row["column_id"], row["min_value"], row["value_count"]) for row in dump["file_column_stats"]] == [(1, "0", 20), (2, None, 20)]


def test_keys_that_come_back_are_those_of_before(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_table("t", {"a": "int32", "b": "int32"}, partition_by=["a"])
    small.set_option("data_inlining_row_limit", 0)
    with small.transaction() as tx:
        tx.set_partitioned_by("t", ["b"])
        tx.set_partitioned_by("t", ["a"])
        tx.append("t", pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([3, 4], pa.int32())}))
    dump = dump_catalog(sqlite_address)
    (spec,) = dump["partition_info"]
    assert {file["partition_id"] for file in dump["data_file"]} == {spec["partition_id"]}
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT b FROM t WHERE a = 2") == [(4,)]
