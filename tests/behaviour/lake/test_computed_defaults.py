"""Defaults that are expressions fill columns that a write lacks, on every way of writing."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines import duckdb_instance
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.spark_source import register
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "made": ("TIMESTAMPTZ", "now()"),
    "local": ("TIMESTAMP", "CURRENT_TIMESTAMP"),
    "stamp": ("TIMESTAMP", "current_localtimestamp()"),
    "day": ("DATE", "current_date"),
    "cast_day": ("DATE", "CAST(now() AS DATE)"),
    "clock": ("TIME", "current_time"),
    "id": ("UUID", "uuid()"),
    "text_id": ("VARCHAR", "gen_random_uuid()"),
    "sorted_id": ("UUID", "uuidv7()"),
    "chance": ("DOUBLE", "random()"),
    "total": ("INTEGER", "1 + 1"),
    "flag": ("BOOLEAN", "true"),
    "name": ("VARCHAR", "upper('a') || 'b'"),
    "since": ("DATE", "DATE '2020-01-02'"),
    "due": ("TIMESTAMPTZ", "now() + INTERVAL 2 DAY"),
    "year": ("VARCHAR", "strftime(now(), '%Y')"),
    "hash": ("VARCHAR", "md5('a')"),
}
CONSTANT = {"total": 2, "flag": True, "name": "Ab", "since": date(2020, 1, 2), "hash": "0cc175b9c0f1b6a831c399e269772661"}


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    """A lake whose table DuckDB made, with a default of every kind."""
    columns = ", ".join(f"{name} {kind} DEFAULT {sql}" for name, (kind, sql) in DEFAULTS.items())
    with attached(sqlite_address) as duck:
        duck.run(f"CREATE TABLE lake.t (k BIGINT, {columns})")
    return DuckLake.connect(sqlite_address.url)


def check_rows(rows: list[dict[str, object]], began: datetime) -> None:
    """Check values as DuckDB would have written them, for rows of one statement."""
    ended = datetime.now(UTC)
    for row in rows:
        assert began <= row["made"] <= ended  # type: ignore[operator]
        assert row["local"] == row["stamp"] == row["made"].astimezone().replace(tzinfo=None)  # type: ignore[attr-defined]
        assert row["day"] == row["cast_day"] == row["local"].date()  # type: ignore[attr-defined]
        assert row["clock"] == row["local"].time()  # type: ignore[attr-defined]
        assert (row["due"] - row["made"], row["year"]) == (timedelta(days=2), str(began.year))  # type: ignore[operator]
        assert {name: row[name] for name in CONSTANT} == CONSTANT
        assert [UUID(str(row[name])).version for name in ("id", "text_id", "sorted_id")] == [4, 4, 7]
        assert 0 <= row["chance"] < 1  # type: ignore[operator]
    assert len({row["made"] for row in rows}) == 1
    for name in ("id", "text_id", "sorted_id", "chance"):
        assert len({row[name] for row in rows}) == len(rows)


@pytest.mark.parametrize("inline", [True, False])
def test_rows_in_process(lake: DuckLake, inline: bool, sqlite_address: LakeAddress) -> None:
    began = datetime.now(UTC)
    lake.write("t", pa.table({"k": [1, 2, 3]}), inline=inline)
    check_rows(lake.table("t").to_arrow().to_pylist(), began)
    with attached(sqlite_address) as duck:
        reported = duck.rows("SELECT * EXCLUDE (made, due) FROM lake.t ORDER BY k")
    own = lake.table("t").to_arrow().drop_columns(["made", "due"]).sort_by("k").to_pylist()
    assert [tuple(map(str, row)) for row in reported] == [tuple(str(value) for value in row.values()) for row in own]


def test_rows_that_a_merge_inserts(lake: DuckLake) -> None:
    began = datetime.now(UTC)
    table = lake.table("t")
    source = pa.table({"k": [1, 2, 3]})
    table.merge(source, on="k").when_not_matched_insert({"k": "s.k"}).execute()
    check_rows(lake.table("t").to_arrow().to_pylist(), began)
    merged = (
        lake.table("t").merge(pa.table({"k": list(range(40))}), on="k").when_matched_update({"total": "5"}).when_not_matched_insert("all")
    )
    merged.execute()
    rows = lake.table("t").to_arrow().to_pylist()
    assert [row["total"] for row in rows if row["k"] in (1, 2, 3)] == [5, 5, 5]
    check_rows([row for row in rows if row["k"] not in (1, 2, 3)], began)


def test_a_transaction_has_one_time(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.append("t", pa.table({"k": [1]}))
        tx.append("t", pa.table({"k": [2]}), inline=False)
    assert len(set(lake.table("t").to_arrow().column("made").to_pylist())) == 1


def test_given_values_are_kept(lake: DuckLake) -> None:
    lake.write("t", pa.table({"k": [1], "MADE": [None], "total": [7]}))
    (row,) = lake.table("t").to_arrow().to_pylist()
    assert (row["made"], row["total"], row["flag"]) == (None, 7, True)


def test_sort_and_partition_keys_that_are_computed(lake: DuckLake) -> None:
    table = lake.table("t")
    table.set_partitioned_by(["day"])
    table.set_sorted_by(["id"])
    lake.write("t", pa.table({"k": list(range(100))}), inline=False)
    ids = [row["id"] for row in lake.table("t").to_arrow().to_pylist()]
    assert len(ids) == 100
    assert ids == sorted(ids)
    assert len(lake.table("t").list_files()) == 1


def test_defaults_that_cannot_be_evaluated_raise(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("u", {"k": "int64", "v": "varchar"})
    table.set_default("v", expression="md5(uuid()::VARCHAR)")
    with pytest.raises(UnsupportedFeatureError, match=r"column 'v' is missing in the data and its default .*uuid"):
        table.append(pa.table({"k": [1]}))
    table.append(pa.table({"k": [1], "v": ["x"]}))
    table.set_default("v", expression="md5('a')")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    # An instance that an earlier test created would be lent again.
    monkeypatch.setattr(duckdb_instance, "_instances", {})
    with pytest.raises(UnsupportedFeatureError, match=r"default md5\('a'\) cannot be evaluated: .*duckdb is not installed"):
        table.append(pa.table({"k": [1]}))


def test_spark(lake: DuckLake, sqlite_address: LakeAddress, spark: SparkSession, tmp_path: Path) -> None:
    began = datetime.now(UTC)
    lake.write("t", spark.range(3).withColumnRenamed("id", "k"))
    check_rows(lake.table("t").to_arrow().to_pylist(), began)
    source = spark.range(3, 6).withColumnRenamed("id", "k")
    lake.table("t").merge(source, on="k").when_not_matched_insert("all").execute()
    rows = [row for row in lake.table("t").to_arrow().to_pylist() if row["k"] >= 3]
    check_rows(rows, began)
    register(spark)
    options = {"catalogUrl": sqlite_address.url}
    spark.range(6, 9).withColumnRenamed("id", "k").write.format("ducklake").options(**options).mode("append").save("t")
    rows = [row for row in lake.table("t").to_arrow().to_pylist() if row["k"] >= 6]
    check_rows(rows, began)
