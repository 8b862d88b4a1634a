"""Conditions beyond comparisons, in this process: DuckDB chooses the same rows by them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, col, lit
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
    "s ILIKE 'b'", "s NOT ILIKE 'A%'", "s || '\\_' ILIKE 'b\\_'", "s || '%' LIKE 'a!%' ESCAPE '!'",
    "s || '\\' ILIKE 'D\\\\' ESCAPE '\\'", "s ILIKE NULL", "s || '%' NOT LIKE 'a!%' ESCAPE '!'", "s || '%' NOT ILIKE 'b!%' ESCAPE '!'",
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


TIMES = pa.table(
    {
        "d": pa.array([0, -1, 20511, 20454, None, 2**31 - 1], pa.date32()),
        "ts": pa.array([0, -1, 1_772_163_296_000_001, 1_767_225_600_000_000, None, -62_135_596_800_000_000], pa.timestamp("us")),
        "ns": pa.array([0, -1, 1_772_163_296_000_000_001, 1_767_225_599_999_999_999, None, 5], pa.timestamp("ns")),
        "z": pa.array([0, -1, 1_772_163_296_000_001, 1_767_225_600_000_000, None, 1_774_756_800_000_000], pa.timestamp("us", "UTC")),
        "x": pa.array([1.0, float("nan"), float("inf"), float("-inf"), None, -0.0]),
        "n": pa.array([1, 2, 3, 4, None, 6], pa.int32()),
    }
)
OF_TIMES = (
    *(f"{part}({column}) = {number}" for column in ("d", "ts", "ns", "z") for part, number in (
        ("year", 2026), ("month", 1), ("day", 31), ("hour", 3), ("minute", 34), ("second", 59), ("quarter", 1), ("dayofweek", 4),
        ("isodow", 4), ("dayofyear", 58), ("week", 1)) if column != "d" or part not in ("hour", "minute", "second")),
    "month(ts) IN (1, 2) AND hour(z) > 1", "date_part('dow', ts) = 4", "extract(hour FROM ts) = 23", "month(ts) IS NULL",
    "NOT month(ts) = 1",
    "year(z) > 2025", "year(z) BETWEEN 1969 AND 1970", "hour(ts) + 1 = 1",
    "isnan(x)", "NOT isnan(x)", "isinf(x)", "isfinite(x)", "NOT isfinite(x)", "isfinite(d)", "isinf(d)", "isfinite(ts)",
    "isnan(x * 2)", "isfinite(n::DOUBLE)",
    "ts > now() - INTERVAL 1 DAY", "ts < current_date", "z < now()", "z >= today() - 5000", "d <= today() - 7", "d < now()::DATE",
    "ts > now()::TIMESTAMP - INTERVAL '400 years'", "z BETWEEN now() - INTERVAL 20 YEARS AND now()",
    "ts = TIMESTAMP '2025-12-31' + INTERVAL 1 DAY",
    "d = DATE '2025-11-30' + INTERVAL 3 MONTHS", "ts < date_trunc('month', now())", "d > date_trunc('year', today()) - INTERVAL 50 YEARS",
    "z = TIMESTAMPTZ '2026-03-28 05:00:00+01' + INTERVAL 1 DAY", "z = TIMESTAMPTZ '2026-03-28 05:00:00+01' + INTERVAL 24 HOUR",
)  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_parts_of_times_and_computed_constants(zone: str, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table_as("t", TIMES)
    lake.create_table("parts", TIMES.schema, partition_by=["month(ts)", "hour(ts)"])
    lake.table("parts").append(TIMES, inline=False)
    with attached(sqlite_address) as duck:
        duck.run(f"SET TimeZone = '{zone}'")
        for condition in OF_TIMES:
            wanted = sorted(duck.rows(f"SELECT rowid FROM t WHERE {condition}"))
            for table in ("t", "parts"):
                found = lake.table(table).scan(["rowid", "ts"], condition).to_arrow()
                assert found.num_rows == len(wanted), (condition, table)
    kept = lake.table("parts").scan(where="month(ts) = 2").explain()
    assert [file.kept for file in kept.files].count(True) == 1, "months are partitions"
    assert sum(file.kept for file in lake.table("parts").scan(where="hour(ts) IN (0, 7) AND month(ts) <> 12").explain().files) == 1


def test_values_of_updates_are_sql_or_constants(small: DuckLake) -> None:
    small.create_table("t", {"k": "int32", "name": "varchar", "other": "varchar", "at": "timestamp", "zoned": "timestamptz", "d": "date"})
    table = small.table("t")
    table.append([{"k": 1, "name": "now()", "other": "x"}], missing_columns="null")
    table.update({"at": "now()", "zoned": "current_timestamp", "d": "today() - 1", "name": lit("upper(other)"), "other": col("name")})
    (row,) = table.to_arrow().to_pylist()
    assert (row["name"], row["other"]) == ("upper(other)", "now()")
    assert datetime.now(UTC) - row["zoned"] < timedelta(minutes=5)
    table.update({"name": "upper(other)", "d": lit("2026-01-31"), "k": lit(None), "other": lit("it's")})
    (row,) = table.to_arrow().to_pylist()
    assert (row["name"], row["d"], row["k"], row["other"]) == ("NOW()", date(2026, 1, 31), None, "it's")
    merge = table.merge([{"d": date(2026, 1, 31), "name": "new"}], on="d")
    merge.when_matched_update({"name": col("s.name"), "other": lit("s.name")}).execute()
    (row,) = table.to_arrow().to_pylist()
    assert (row["name"], row["other"]) == ("new", "s.name")
