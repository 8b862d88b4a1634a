"""Upserts read only the files that may hold one of their keys, and find the rows that DuckDB finds, whatever the type of the key."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import positions
from ducklake_core.engines.spark import positions as spark_positions
from ducklake_core.errors import UsageError
from tests.support.oracle import LakeAddress, Oracle, attached

FILES, ROWS = 4, 10
NAN = float("nan")
# Type of the column, its value in row ``range``, keys of the upsert, and how many of the four files may hold one of them.
KEYS: dict[str, tuple[str, pa.Array[Any], int]] = {
    "INTEGER": ("range", pa.array([12, 15, 99], pa.int32()), 1),
    "UBIGINT": ("range", pa.array([12, 35], pa.uint64()), 2),
    "HUGEINT": ("range", pa.array([Decimal(12), Decimal(13)], pa.decimal128(38, 0)), FILES),
    "DECIMAL(9,2)": ("range / 4", pa.array([Decimal("3.25"), Decimal("-1.00")], pa.decimal128(9, 2)), 1),
    "DOUBLE": ("CASE range WHEN 1 THEN 'nan'::DOUBLE WHEN 22 THEN -0.0 ELSE range END", pa.array([NAN, 0.0, 15.0]), FILES),
    "VARCHAR": ("'é' || printf('%03d', range)", pa.array(["é015", "z", "é"]), 1),
    "DATE": ("DATE '1969-12-20' + range::INTEGER", pa.array([3, -30], pa.date32()), 1),
    "TIMESTAMP": ("TIMESTAMP '1969-12-31' + to_hours(range)", pa.array([-3_600_000_000, 1], pa.timestamp("us")), 1),
    "TIMESTAMPTZ": ("TIMESTAMPTZ '1969-12-31 00:00:00+00' + to_hours(range)", pa.array([-3_600_000_000], pa.timestamp("us", "UTC")), 1),
    "TIMETZ": ("('00:' || printf('%02d', range) || ':00+00')::TIMETZ", pa.array([15 * 60_000_000], pa.time64("us")), FILES),
    "TIME": ("TIME '00:00' + to_minutes(range)", pa.array([15 * 60_000_000], pa.time64("us")), 1),
    "UUID": (
        "('00000000-0000-0000-0000-0000000000' || printf('%02x', range))::UUID",
        pa.array([UUID(int=15).bytes, UUID(int=99).bytes], pa.uuid()),
        1,
    ),
    "BOOLEAN": ("range < 10", pa.array([True]), 1),
    "BLOB": ("('x' || printf('%03d', range))::BLOB", pa.array([b"x015", b"x"]), 1),
}
ON_SPARK = ("INTEGER", "DECIMAL(9,2)", "DOUBLE", "VARCHAR", "DATE")


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ids of the files in which rows were sought in this process."""
    found: list[int] = []
    original = positions.delete_in_file

    def noted(task: Any, *args: Any, **options: Any) -> Any:
        found.append(task.file.id)
        return original(task, *args, **options)

    monkeypatch.setattr(positions, "delete_in_file", noted)
    return found


def make(duck: Oracle, kind: str, *names: str) -> None:
    for name in names:
        duck.run(f"CREATE TABLE {name} (n INTEGER, k {kind})")
        for number in range(FILES):
            chosen = f"range({number * ROWS}, {(number + 1) * ROWS})"
            duck.run(f"INSERT INTO {name} SELECT range, {KEYS[kind][0]} FROM {chosen}")


def upserted(address: LakeAddress, kind: str, upsert: Callable[[DuckLake, pa.Table], object]) -> None:
    """Compare an upsert of this library with DuckDB's DELETE and INSERT of the same rows in another table."""
    rows = pa.table({"n": pa.array([-1] * len(KEYS[kind][1]), pa.int32()), "k": KEYS[kind][1]})
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        make(duck, kind, "upserted", "expected")
    lake = DuckLake.connect(address.url)
    upsert(lake, rows)
    lake.close()
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.connection.register("source", rows)
        duck.run(f"DELETE FROM expected WHERE k IN (SELECT k::{kind} FROM source)", "INSERT INTO expected FROM source")
        found, expected = (duck.rows(f"SELECT n, k::VARCHAR FROM {name} ORDER BY ALL") for name in ("upserted", "expected"))
        assert found == expected
        assert len(expected) < FILES * ROWS + len(rows)


@pytest.mark.parametrize("kind", KEYS)
def test_files_without_a_key_are_not_read(
    sqlite_address: LakeAddress, kind: str, searched: list[int], pruned_by_the_database: None
) -> None:
    upserted(sqlite_address, kind, lambda lake, rows: lake.table("upserted").upsert(rows, on=["K"]))
    assert len(searched) == KEYS[kind][2]


@pytest.mark.parametrize("on", [["k"], ["n", "k"]], ids=["one column", "two columns"])
def test_many_keys_are_sought_between_the_least_and_the_greatest(
    sqlite_address: LakeAddress, on: list[str], searched: list[int], pruned_by_the_database: None
) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        make(duck, "INTEGER", "t")
        keys = pa.array(range(15, 200), pa.int32())
        lake = DuckLake.connect(sqlite_address.url)
        lake.table("t").upsert(pa.table({"n": keys, "k": keys}), on=on)
        lake.close()
        assert len(searched) == FILES - 1
        assert duck.rows("SELECT k FROM t ORDER BY k") == [(key,) for key in range(200)]


@pytest.mark.parametrize("limit", [None, 0], ids=["few keys", "many keys"])
@pytest.mark.parametrize("kind", ON_SPARK)
def test_on_spark(sqlite_address: LakeAddress, kind: str, limit: int | None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit is not None:
        monkeypatch.setattr(spark_positions, "_MAX_KEYS", limit)
    upserted(sqlite_address, kind, lambda lake, rows: lake.table("upserted").upsert(spark.createDataFrame(rows), on=["K"]))


def test_repeated_keys_of_a_spark_frame(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address) as duck:
        make(duck, "INTEGER", "t")
    table = DuckLake.connect(sqlite_address.url).table("t")
    with pytest.raises(UsageError, match=r"key \(k = 7\) occurs more than once"):
        table.upsert(spark.createDataFrame([(1, 7), (2, 7)], "n int, k int"), on=["k"])
    with pytest.raises(UsageError, match="key column 'k' is NULL in 1 row"):
        table.upsert(spark.createDataFrame([(1, 7), (2, None)], "n int, k int"), on=["k"])
    assert table.scan().count() == FILES * ROWS
