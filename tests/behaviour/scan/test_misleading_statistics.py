"""Statistics and partitions that mislead a reader: no row is lost."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached


def test_a_column_whose_name_is_the_path_of_another(small: DuckLake) -> None:
    struct = pa.array([{"b": number + 1000} for number in range(10)], pa.struct([("b", pa.int64())]))
    small.write("t", pa.table({"a.b": pa.array(range(10), pa.int64()), "a": struct}))
    scan = small.table("t").scan(where='"a.b" = 5')
    assert scan.to_arrow().column("a.b").to_pylist() == [5]


def test_files_from_before_the_table_had_buckets(sqlite_address: LakeAddress) -> None:
    """DuckDB 1.5 leaves these files out of equalities and joins."""
    cases = {"k = 10": (1, 0), "k IN (1, 2, 700)": (3, 0), "k >= 10": (1090, 1090)}
    with attached(sqlite_address) as duck:
        duck.run(
            "CREATE TABLE t (k INTEGER)",
            "INSERT INTO t FROM range(1000)",
            "ALTER TABLE t SET PARTITIONED BY (bucket(4, k))",
            "INSERT INTO t FROM range(1000, 1100)",
        )
        assert {where: duck.value(f"SELECT count(*) FROM t WHERE {where}") for where in cases} == {
            where: by_duckdb for where, (_, by_duckdb) in cases.items()
        }
    lake = DuckLake.connect(sqlite_address.url)
    for where, (count, _) in cases.items():
        assert lake.table("t").scan(where=where).to_arrow().num_rows == count
        assert lake.sql(f"SELECT count(*) AS n, 1 AS one FROM t WHERE {where}").to_arrow().column("n").to_pylist() == [count]


def test_types_whose_nulls_duckdb_does_not_count(sqlite_address: LakeAddress) -> None:
    types = {"TIMETZ": "10:00:00+02", "INTERVAL": "1 day", "HUGEINT": "5", "UUID": "0" * 32}
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        for data_type, text in types.items():
            duck.run(f"CREATE TABLE {data_type}_ (i INTEGER, c {data_type})")
            for row in (f"(1, '{text}'), (2, NULL)", "(3, NULL)", f"(4, '{text}')"):
                duck.run(f"INSERT INTO {data_type}_ VALUES {row}")
    lake = DuckLake.connect(sqlite_address.url)
    for data_type in types:
        for where, expected in (("c IS NULL", [2, 3]), ("c IS NOT NULL", [1, 4])):
            found = lake.table(f"{data_type}_").scan(["i"], where=where).to_arrow().column("i").to_pylist()
            assert sorted(found) == expected, (data_type, where)
