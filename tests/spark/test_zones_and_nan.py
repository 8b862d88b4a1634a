"""Time zones and NaN on Spark: what DuckDB answers in the zone of the session, and one NaN whatever its bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from tests.behaviour.sql.test_time_zones import DAY, ROWS, TABLE
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = (
    f"SELECT i FROM t WHERE {DAY}",
    f"SELECT min(i), max(i), count(*) FROM t WHERE {DAY}",
    "SELECT i FROM t WHERE made BETWEEN '2026-03-02' AND '2026-03-02 12:00:00'",
    "SELECT i FROM t WHERE made IN ('2026-03-02 00:00:00', '2026-11-01 01:30:00')",
    "SELECT i FROM t WHERE made < TIMESTAMP '2026-03-08 02:30:00'",
    "SELECT i FROM t WHERE made >= DATE '2026-03-02' AND NOT made >= DATE '2026-03-08'",
    "SELECT i FROM t WHERE made < '2026-03-02 05:00:00+00'",
)


@pytest.fixture
def in_kolkata(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield spark
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("inlined", [True, False])
def test_queries_use_the_zone_of_the_session(sqlite_address: LakeAddress, in_kolkata: SparkSession, inlined: bool) -> None:
    with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {1000 if inlined else 0}") as duck:
        duck.run("SET TimeZone = 'UTC'", "USE lake", TABLE, f"INSERT INTO t VALUES {ROWS}", "SET TimeZone = 'Asia/Kolkata'")
        by_duckdb = {query: sorted(map(repr, duck.rows(query))) for query in QUERIES}
        duck.run("SET TimeZone = 'UTC'")
    lake = DuckLake.connect(sqlite_address.url)
    by_spark = {}
    for query in QUERIES:
        found = lake.sql(query, spark=in_kolkata)
        assert found is not None
        by_spark[query] = sorted(repr(tuple(row)) for row in found.to_spark(in_kolkata).collect())
    assert {query: (by_spark[query], by_duckdb[query]) for query in QUERIES if by_spark[query] != by_duckdb[query]} == {}
    scan = lake.table("t").scan(["i"], where=DAY).to_spark(in_kolkata)
    assert sorted(repr(tuple(row)) for row in scan.collect()) == by_duckdb[QUERIES[0]]
    with pytest.raises(UsageError, match="time zone of the Spark session"):
        lake.sql(QUERIES[0], spark=in_kolkata, timezone="America/New_York")


@pytest.mark.parametrize("inlined", [True, False])
def test_row_changes_use_the_zone_of_the_session(sqlite_address: LakeAddress, in_kolkata: SparkSession, inlined: bool) -> None:
    changes = (
        f"DELETE FROM {{}} WHERE {DAY}",
        "UPDATE {} SET i = i + 1000 WHERE made >= DATE '2026-03-02' AND NOT made >= DATE '2026-03-08'",
        "UPDATE {} SET made = '2026-07-01 00:00:00' WHERE made IN ('2026-03-02 00:00:00', '2026-11-01 01:30:00')",
    )
    with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {1000 if inlined else 0}") as duck:
        duck.run("SET TimeZone = 'UTC'", "USE lake", TABLE, f"INSERT INTO t VALUES {ROWS}")
        for n in range(len(changes)):
            duck.run(*(f"CREATE TABLE {who}{n} AS FROM t" for who in ("a", "b", "c")))
        duck.run("SET TimeZone = 'Asia/Kolkata'", *(change.format(f"a{n}") for n, change in enumerate(changes)), "SET TimeZone = 'UTC'")
    lake = DuckLake.connect(sqlite_address.url)
    for n, change in enumerate(changes):
        lake.sql(change.format(f"b{n}"), spark=in_kolkata)
    lake.table("c0").delete(DAY, spark=in_kolkata)
    lake.table("c1").update({"i": "i + 1000"}, where=changes[1].split("WHERE ")[1], spark=in_kolkata)
    lake.table("c2").update({"made": "'2026-07-01 00:00:00'"}, where=changes[2].split("WHERE ")[1], spark=in_kolkata)
    with attached(sqlite_address) as duck:
        for n in range(len(changes)):
            by_duckdb = duck.rows(f"SELECT i, epoch_us(made) FROM lake.a{n} ORDER BY ALL")
            for who in ("b", "c"):
                assert duck.rows(f"SELECT i, epoch_us(made) FROM lake.{who}{n} ORDER BY ALL") == by_duckdb, (who, changes[n])


def test_every_nan_is_found_and_is_one_key(sqlite_address: LakeAddress, spark: SparkSession, tmp_path: Path) -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    values = pa.array(np.concatenate([nans, [0.0, -0.0, 7.0]]))
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"i": pa.array(range(6), pa.int64()), "x": values}), inline=False)
    for where, expected in (("x IN ('nan'::double, 7)", [0, 1, 2, 5]), ("x = 0.0", [3, 4]), ("x >= 7", [0, 1, 2, 5])):
        found = lake.table("t").scan(["i"], where=where).to_spark(spark).collect()
        assert sorted(row["i"] for row in found) == expected, where
    query = lake.sql("SELECT count(DISTINCT x) AS n FROM t", spark=spark)
    assert query is not None
    assert query.to_spark(spark).collect()[0]["n"] == 3
    lake.table("t").upsert(spark.createDataFrame([(100, float("nan")), (101, 0.0)], "i bigint, x double"), on="x")
    assert sorted(lake.table("t").scan(["i"]).to_arrow().column("i").to_pylist()) == [5, 100, 101]


@pytest.mark.slow
def test_patterns_mean_the_same_in_spark(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    values = ["a%b", "a\\b", "A_B", "a_b", "axb", None, "\\", "%", "\xc4B"]
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table_as("t", pa.table({"x": values}))
    patterns = (
        "LIKE 'a\\%b'", "LIKE '%\\%'", "LIKE '\\'", "ILIKE 'A_b'", "ILIKE 'a\\_b'", "NOT ILIKE '\xe4%'",
        "LIKE 'a\\_b' ESCAPE '\\'", "LIKE 'a!%b' ESCAPE '!'",
    )  # fmt: skip
    with attached(sqlite_address) as duck:
        for pattern in patterns:
            wanted = sorted(value for (value,) in duck.rows(f"SELECT x FROM t WHERE x {pattern}"))
            scan = lake.table("t").scan(where=f"x {pattern}")
            assert sorted(scan.to_arrow().column("x").to_pylist()) == wanted, pattern
            assert sorted(row.x for row in scan.to_spark(spark).collect()) == wanted, pattern
