"""Overwriting by partitions: exactly the rows whose keys have the values, wherever they are."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, UsageError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS = {"c": "varchar", "d": "date", "n": "int64"}
KEYS = ["c", "month(d)", "bucket(3, n)"]
SCHEMA = pa.schema([("c", pa.string()), ("d", pa.date32()), ("n", pa.int64())])
NAMES = ("ua", "a=b/c", "it's", "", None)


def rows(start: int, count: int) -> pa.Table:
    """Rows with dates before 1970, NULLs and names that do not go into paths as they are."""
    every = range(start, start + count)
    day = dt.date(1969, 11, 1)
    return pa.table(
        {
            "c": [NAMES[i % len(NAMES)] for i in every],
            "d": [None if i % 11 == 0 else day + dt.timedelta(days=7 * i) for i in every],
            "n": [None if i % 13 == 0 else i for i in every],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    """A table with files of three specs and inlined rows, of this library and of DuckDB."""
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", {**COLUMNS, "n": "int32"})
    table = lake.table("t")
    table.append(rows(0, 40).cast(pa.schema([*list(SCHEMA)[:2], ("n", pa.int32())])))
    table.set_partitioned_by(["bucket(3, n)", "c"])
    lake.table("t").append(rows(40, 40).cast(pa.schema([*list(SCHEMA)[:2], ("n", pa.int32())])))
    table.set_column_type("n", "int64")
    table.set_partitioned_by(KEYS)
    lake.table("t").append(rows(80, 60))
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.connection.register("more", rows(140, 60))
        duck.run("INSERT INTO t SELECT * FROM more", "DELETE FROM t WHERE n % 10 = 7")
        duck.connection.unregister("more")
    lake.set_option("data_inlining_row_limit", 100)
    lake.table("t").append(rows(200, 30))
    return lake


def by_partition(table: pa.Table) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by the values of their keys, by another way than the library's."""
    from ducklake_core.format.layout.transforms import bucket_of
    from ducklake_core.format.types.data_types import INT64

    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        bucket = None if row["n"] is None else bucket_of(row["n"], INT64, 3)
        found.setdefault((row["c"], row["d"] and row["d"].month, bucket), []).append(row)
    return found


def test_exactly_the_rows_of_the_partitions(lake: DuckLake, lake_address: LakeAddress) -> None:
    before = by_partition(lake.table("t").scan().to_arrow())
    chosen = [("ua", 11, 1), ("a=b/c", 2, 0), (None, None, 2), ("it's", 3, None), ("", 12, 2), ("ua", 5, 2)]
    assert len([key for key in chosen if key in before]) >= 3
    partitions = [dict(zip(KEYS, key, strict=True)) for key in chosen]
    new = pa.Table.from_pylist([{"c": "ua", "d": dt.date(2001, 11, 5), "n": n} for n in range(40)], schema=SCHEMA)
    new = pa.Table.from_pylist([row for key, found in by_partition(new).items() if key == ("ua", 11, 1) for row in found], schema=SCHEMA)
    assert new.num_rows
    result = lake.table("t").overwrite(new, partitions=partitions)
    assert result.rows_deleted == sum(len(before.get(key, ())) for key in chosen)
    assert result.files_removed  # those of the present keys, by their partition values alone
    wanted = [row for key, found in before.items() if key not in chosen for row in found] + new.to_pylist()
    assert sorted(map(repr, lake.table("t").scan().to_arrow().to_pylist())) == sorted(map(repr, wanted))
    with attached(lake_address) as duck:
        assert sorted(map(repr, duck.rows("FROM t"))) == sorted(repr(tuple(row.values())) for row in wanted)
    lake.close()


@pytest.mark.slow
def test_on_spark(lake: DuckLake, spark: SparkSession) -> None:
    """Rows are found by executors, which know no SQL for buckets."""
    before = by_partition(lake.table("t").scan().to_arrow())
    keys = [("ua", 11, 1), (None, None, 2)]
    found = [row for row in before[keys[0]] if row["n"] % 2]
    frame = spark.createDataFrame(found, "c string, d date, n bigint")
    partitions = [dict(zip(KEYS, key, strict=True)) for key in keys]
    with pytest.raises(UsageError, match="does not satisfy the condition of the overwrite"):
        lake.table("t").overwrite(frame.selectExpr("'it''s' AS c", "d", "n"), partitions=partitions)
    result = lake.table("t").overwrite(frame, partitions=partitions)
    assert (result.rows_added, result.rows_deleted) == (len(found), sum(len(before.get(key, ())) for key in keys))
    wanted = [row for key, rows in before.items() if key not in keys for row in rows] + found
    assert sorted(map(repr, lake.table("t").scan().to_arrow().to_pylist())) == sorted(map(repr, wanted))
    lake.close()


def test_one_key(small: DuckLake) -> None:
    small.set_option("data_inlining_row_limit", 0)
    small.create_table("t", COLUMNS, partition_by=["c"])
    small.table("t").append(rows(0, 50))
    fresh = pa.table({"c": ["ua", None], "d": [None, None], "n": [1, 2]}, schema=SCHEMA)
    result = small.write("t", fresh, mode="overwrite", partitions=[{"C": "ua"}, {"c": None}])
    assert (result.rows_deleted, result.files_removed, result.delete_files_added) == (20, 2, 0)
    with small.transaction() as tx:
        tx.overwrite("t", fresh.slice(0, 0), partitions=[{"c": name} for name in NAMES])
    assert small.table("t").scan().count() == 0


def test_keys_whose_columns_are_named_like_transforms(sqlite_address: LakeAddress) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        data = pa.table({"d": [dt.date(2024, 3, 1), dt.date(2024, 4, 1)], "month(d)": [7, 7]})
        lake.create_table("t", data, partition_by=["month(d)", '"month(d)"'])
        table = lake.table("t")
        table.append(data)
        with pytest.raises(UsageError, match='has no value for "month'):
            table.overwrite(data, partitions=[{"month(d)": 3}])
        table.overwrite(data.slice(0, 0), partitions=[{"month(d)": 3, '"month(d)"': 7}])
        assert lake.table("t").scan(["d"]).to_arrow()["d"].to_pylist() == [dt.date(2024, 4, 1)]


def test_invalid_partitions_raise(small: DuckLake) -> None:
    small.create_table("t", COLUMNS, partition_by=KEYS)
    small.create_table("plain", COLUMNS)
    table, data = small.table("t"), rows(0, 3)
    whole = {"c": "ua", "month(d)": 3, "bucket(3, n)": 0}
    cases: list[tuple[Any, type[Exception], str]] = [
        ([{"c": "ua", "month(d)": 3}], UsageError, r"has no value for bucket\(3, n\)"),
        ([{**whole, "year(d)": 2000}], UsageError, "is none of them"),
        ([{**whole, "bucket(4, n)": 2}], UsageError, "is none of them"),
        ([{**whole, "MONTH(D)": 2}], UsageError, "is there twice"),
        ([{**whole, "nope": 2}], NotFoundError, "nope"),
        ([{**whole, "month(d)": 13}], UsageError, "whole numbers from 1 to 12"),
        ([{**whole, "bucket(3, n)": 3}], UsageError, "whole numbers from 0 to 2"),
        ([{**whole, "month(d)": True}], UsageError, "whole numbers"),
        ([{**whole, "c": 5}], UsageError, "5"),
        ([], UsageError, "with one at least"),
        (whole, UsageError, "must be 'in_data' or a list"),
        ([whole], UsageError, "does not satisfy the condition of the overwrite"),
    ]
    for partitions, error, text in cases:
        with pytest.raises(error, match=text):
            table.overwrite(data, partitions=partitions)
    with pytest.raises(UsageError, match="where or partitions"):
        table.overwrite(data, where="c = 'ua'", partitions=[whole])
    with pytest.raises(UsageError, match="has no partition keys"):
        small.table("plain").overwrite(data, partitions=[whole])
    with pytest.raises(UsageError, match="applies only to mode='overwrite'"):
        small.write("t", data, partitions=[whole])
    assert small.snapshot().id == 2
