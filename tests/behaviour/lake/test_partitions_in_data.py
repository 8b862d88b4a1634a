"""Overwrites replace only the partitions that the rows of a frame are in."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("c", pa.string()), ("day", pa.date32()), ("n", pa.int64())])


def frame(*rows: tuple[str | None, dt.date | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


JAN, FEB, LATER = dt.date(2020, 1, 5), dt.date(2020, 2, 5), dt.date(2021, 1, 5)
START = frame(("a'", JAN, 1), ("a'", FEB, 2), ("b", JAN, 3), (None, None, 4), ("b", LATER, 5))


def started(lake: DuckLake) -> None:
    lake.create_table("t", SCHEMA)
    # One row is of no partition's file, and few are in the catalog.
    lake.table("t").append(START.slice(0, 1), inline=False)
    lake.table("t").set_partitioned_by(["c", "month(day)"])
    lake.table("t").append(START.slice(1, 2), inline=False)
    lake.table("t").append(START.slice(3))


def test_only_partitions_of_the_rows_are_replaced(lake: DuckLake, lake_address: LakeAddress) -> None:
    started(lake)
    new = frame(("a'", JAN, 10), (None, None, 40), ("b", dt.date(1999, 1, 1), 50), ("z", None, 60))
    before = lake.snapshot().id
    done = lake.table("t").overwrite(new, partitions="in_data")
    assert lake.snapshot().id == before + 1
    assert (done.rows_added, done.rows_deleted) == (4, 4)
    wanted = [("a'", FEB, 2), ("a'", JAN, 10), ("b", dt.date(1999, 1, 1), 50), ("z", None, 60), (None, None, 40)]
    with attached(lake_address) as duck:
        assert sorted(map(repr, duck.rows("SELECT c, day, n FROM t"))) == sorted(map(repr, wanted))
    mine = [tuple(row.values()) for row in lake.table("t").scan().to_arrow().to_pylist()]
    assert sorted(map(repr, mine)) == sorted(map(repr, wanted))
    # No rows are no partitions: nothing is replaced.
    assert not lake.table("t").overwrite(new.slice(0, 0), partitions="in_data").committed
    assert lake.write("t", new.to_reader(), mode="overwrite", partitions="in_data").rows_deleted == 4


VALUES = {
    "varchar": ["", 'it\'s "x"', "NULL", "ü/=%", None],
    "double": [0.1, float("nan"), float("inf"), -0.0, 1e300, None],
    "float": [0.1, 16777216.0, None],
    "decimal(18,3)": [Decimal("1.500"), Decimal("-0.001"), None],
    "date": [dt.date(1, 1, 1), dt.date(2020, 2, 29), None],
    "timestamptz": [dt.datetime(2020, 1, 1, 12, 0, 0, 1, dt.UTC), None],
    "timestamp": [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - the type has no zone
        None,
    ],
    "boolean": [True, False, None],
    "blob": [b"\x00\xff'", b"a", None],
    "uuid": ["00000000-0000-0000-0000-00000000000a", None],
    "time": [dt.time(23, 59, 59, 1), None],
    "uint64": [2**64 - 1, 0, None],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_kind(kind: str, small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_table("t", {"k": kind, "n": "int64"}, partition_by=["k"])
    arrow = small.table("t").schema.to_arrow()
    values = VALUES[kind]
    if kind == "uuid":
        values = [None if value is None else bytes.fromhex(str(value).replace("-", "")) for value in values]
    storage = arrow.field("k").type
    column = pa.array(values, storage.storage_type if isinstance(storage, pa.BaseExtensionType) else storage)
    column = pa.ExtensionArray.from_storage(storage, column) if isinstance(storage, pa.BaseExtensionType) else column
    rows = pa.table([column, pa.array(range(len(values)), pa.int64())], schema=arrow)
    small.table("t").append(rows)
    for place in range(len(values)):
        one = rows.slice(place, 1)
        changed = one.set_column(1, "n", pa.array([place + 100], pa.int64()))
        done = small.table("t").overwrite(changed, partitions="in_data")
        assert (done.rows_added, done.rows_deleted) == (1, 1)
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT n FROM t ORDER BY n") == [(place + 100,) for place in range(len(values))]


def test_two_writers_of_different_partitions(lake: DuckLake, lake_address: LakeAddress) -> None:
    started(lake)
    first = lake.transaction().__enter__()
    first.overwrite("t", frame(("b", JAN, 30)), partitions="in_data", concurrent_appends="replace")
    lake.table("t").overwrite(frame(("a'", JAN, 10)), partitions="in_data")
    # Rows that were added to the partition concurrently are replaced too.
    lake.table("t").append(frame(("b", JAN, 31)))
    first.__exit__(None, None, None)
    with attached(lake_address) as duck:
        assert duck.rows("SELECT c, n FROM t ORDER BY ALL") == [("a'", 2), ("a'", 10), ("b", 30), (None, 4)]
    barrier = threading.Barrier(3)
    failures: list[BaseException] = []

    def replace(carrier: str) -> None:
        other = DuckLake.connect(lake.database.address.url.render_as_string(hide_password=False))
        try:
            barrier.wait(20)
            for number in range(3):
                other.table("t").overwrite(frame((carrier, FEB, number), (carrier, FEB, number + 10)), partitions="in_data")
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            other.close()

    threads = [threading.Thread(target=replace, args=(carrier,)) for carrier in ("a'", "x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    with attached(lake_address) as duck:
        found = duck.rows("SELECT c, list(n ORDER BY n) FROM t WHERE month(day) = 2 GROUP BY c ORDER BY c")
        assert found == [("a'", [2, 12]), ("x", [2, 12]), ("y", [2, 12])]


def test_unpartitioned_data_raises(small: DuckLake) -> None:
    small.create_table("t", SCHEMA)
    with pytest.raises(UsageError, match="no partition keys"):
        small.table("t").overwrite(START, partitions="in_data")
    with pytest.raises(UsageError, match="where or partitions"):
        small.table("t").overwrite(START, partitions="in_data", where="n = 1")
    with pytest.raises(UsageError, match="applies only to mode='overwrite'"):
        small.write("t", START, partitions="in_data")
    with pytest.raises(UsageError, match="'in_data' or a list"):
        small.table("t").overwrite(START, partitions="all")
    small.table("t").set_partitioned_by(["c"])
    with pytest.raises(UnsupportedFeatureError, match="inline"):
        small.table("t").overwrite(START, partitions="in_data", inline=True)
    assert small.table("t").scan().count() == 0


@pytest.mark.slow
def test_on_spark(small: DuckLake, sqlite_address: LakeAddress, spark: SparkSession) -> None:
    started(small)
    rows = spark.createDataFrame([("a'", JAN, 10), (None, None, 40), ("b", LATER, 50)], "c string, day date, n bigint")
    done = small.table("t").overwrite(rows, partitions="in_data")
    assert (done.rows_added, done.rows_deleted) == (3, 4)
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT c, n FROM t ORDER BY ALL") == [("a'", 2), ("a'", 10), ("b", 50), (None, 40)]
