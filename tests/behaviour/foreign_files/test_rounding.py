"""Files whose values do not fit the column exactly are read as DuckDB reads them, and filters find what is read."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.behaviour.foreign_files.added import add, numbered, put, register
from tests.behaviour.foreign_files.test_encodings import Case
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.scans import assert_same_rows, open_lake

FILES = "DATA_INLINING_ROW_LIMIT 0"
FINE = [1001, 1500, 1999, -1, -500, -1500, -1999, -2500, 500, 2500, 10**18 + 1, None]
INTEGERS = ("tinyint", "integer", "bigint", "hugeint")


def cases() -> Iterator[Case]:
    for zone in (None, "UTC"):
        for column in ("timestamp", "timestamptz", "date", "varchar"):
            yield Case(column, pa.array(FINE, pa.timestamp("ns", zone)))
        for column in ("timestamp_ms", "timestamp_s"):
            yield Case(column, pa.array(FINE, pa.timestamp("us", zone)))
    yield Case("time", pa.array(FINE, pa.timestamp("ns")))
    yield Case("timestamp_ms", pa.array(FINE, pa.timestamp("ns", "UTC")))
    yield Case("timestamp_s", pa.array([1001, 1500, -500, -1499, None], pa.timestamp("ms")))
    yield Case("time", pa.array([5001, 5500, 6999, None], pa.time64("ns")))
    yield Case("timestamp[]", pa.array([[1001, None], None, [-1]], pa.list_(pa.timestamp("ns"))))
    money = pa.array([Decimal("1.55"), Decimal("2.45"), Decimal("-1.55"), Decimal("2.50"), None], pa.decimal128(5, 2))
    for column in INTEGERS:
        yield Case(column, pa.array([1.5, 2.5, -1.5, -2.5, 0.49999, None]))
        yield Case(column, money)
        yield Case(column, pa.array(["1.5", " 7 ", "2.5", "-2.5", "1e2", None]))
    yield Case("boolean", money)
    yield Case("decimal(5,1)", pa.array([True, False, None]))
    yield Case("decimal(5,1)", pa.array([" 1.25 ", "-1.25"]))
    yield Case("decimal(5,1)", pa.array([1.25, -1.25, 0.5, None]))
    yield Case("float", pa.array([" 7 ", "0.1", None]))
    yield Case("float", pa.array([0.1, float("inf"), float("nan"), None]))
    yield Case("blob", pa.array(["a\\x00b", "plain", None]))


# DuckDB rejects these, as it has no counterpart, and so does this library.
REJECTED = [
    Case("integer", pa.array([1e300])),
    Case("integer", pa.array([float("nan")])),
    Case("tinyint", pa.array([300], pa.int64())),
    Case("integer", pa.array(["x"])),
    Case("utinyint", pa.array([-1.5])),
    Case("float", pa.array([1e300])),
    Case("decimal(5,1)", pa.array([1e10])),
]


def made(duck: Oracle, address: LakeAddress, every: list[Case], folder: Path) -> None:
    for number, case in enumerate(every):
        duck.run(f"CREATE TABLE t{number} (a {case.column})")
        register(address, f"t{number}", put(folder / f"{number}.parquet", numbered_everywhere(case.held)), len(case.held))


def numbered_everywhere(held: pa.Array) -> pa.Table:
    data = numbered(pa.table({"a": held}), a=1)
    if not pa.types.is_list(held.type):
        return data
    element = pa.field("element", held.type.value_type, metadata={"PARQUET:field_id": "2"})
    field = pa.field("a", pa.list_(element), metadata=data.schema.field(0).metadata)
    return pa.table([pa.ListArray.from_arrays(held.offsets, held.values, type=field.type, mask=held.is_null())], schema=pa.schema([field]))


def test_values_are_those_of_duckdb(lake_address: LakeAddress, tmp_path: Path) -> None:
    every = list(cases())
    with attached(lake_address, FILES) as duck:
        made(duck, lake_address, every, tmp_path)
    wrong = []
    lake = open_lake(lake_address)
    with attached(lake_address) as duck:
        for number, case in enumerate(every):
            try:
                assert_same_rows(duck, lake.scan(f"t{number}").to_arrow(), f"SELECT * FROM t{number}")
            except (AssertionError, DuckLakeError, duckdb.Error) as error:
                wrong.append(f"{case}: {str(error)[:300]}")
    assert wrong == []


def test_types_that_duckdb_rejects_raise(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        made(duck, sqlite_address, REJECTED, tmp_path)
    lake = open_lake(sqlite_address)
    with attached(sqlite_address) as duck:
        for number, case in enumerate(REJECTED):
            with pytest.raises(duckdb.Error):
                duck.rows(f"FROM t{number}")
            with pytest.raises(DuckLakeError) as caught:
                lake.scan(f"t{number}").to_arrow()
            assert all(part in str(caught.value) for part in (f"{number}.parquet", f"main.t{number}")), f"{case}: {caught.value}"


ADDED = [
    ("TIMESTAMP", pa.timestamp("ns"), [1001, 1999, -1, -1999]),
    ("TIMESTAMPTZ", pa.timestamp("ns", "UTC"), [1001, 1999, -1, -1999]),
    ("TIMESTAMP_MS", pa.timestamp("us"), [1500, 1499, -1500, -500, -499]),
    ("TIMESTAMP_S", pa.timestamp("us"), [1500000, 1499999, -1500000, -500000]),
    ("TIMESTAMP_S", pa.timestamp("ms"), [1500, -500, -1500]),
]


def test_filters_find_what_is_read(lake_address: LakeAddress, tmp_path: Path) -> None:
    """Bounds in the catalog and in footers are those of the finer values: no file is left out, or taken as a whole, by them."""
    tables: list[tuple[str, str]] = []
    with attached(lake_address, FILES) as duck:
        for column, held, values in ADDED:
            for value in values:
                name = f"t{len(tables)}"
                duck.run(f"CREATE TABLE {name} (a {column})")
                add(duck, name, put(tmp_path / f"{name}.parquet", pa.table({"a": pa.array([value], held)})))
                tables.append((name, str(duck.value(f"SELECT a::VARCHAR FROM {name}"))))
    lake = DuckLake.connect(lake_address.url)
    for name, text in tables:
        found = [lake.table(name).scan(where=f"a {sign} '{text}'").count() for sign in ("=", ">=", "<=", ">", "<", "<>")]
        assert found == [1, 1, 1, 0, 0, 0], (name, text)


def test_on_spark(sqlite_address: LakeAddress, tmp_path: Path, spark: Any) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a TIMESTAMP)")
        add(duck, "t", put(tmp_path / "f.parquet", pa.table({"a": pa.array(FINE, pa.timestamp("ns"))})))
        by_duckdb = {str(row[0]) for row in duck.rows("FROM t")}
    assert {str(row.a) for row in DuckLake.connect(sqlite_address.url).table("t").scan().to_spark(spark).collect()} == by_duckdb


def test_rows_are_changed_and_rewritten(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (i INTEGER, a TIMESTAMP)")
        data = pa.table({"i": pa.array(range(3), pa.int32()), "a": pa.array([1001, -1, None], pa.timestamp("ns"))})
        for name in ("f", "g"):
            add(duck, "t", put(tmp_path / f"{name}.parquet", data))
        before = sorted(duck.rows("SELECT i, a::VARCHAR FROM t"), key=str)
    table = DuckLake.connect(sqlite_address.url).table("t")
    table.update({"i": "i + 10"})
    DuckLake.connect(sqlite_address.url).merge_adjacent_files()
    with attached(sqlite_address) as duck:
        assert sorted(duck.rows("SELECT i - 10, a::VARCHAR FROM t"), key=str) == before


def test_writing_stays_strict(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", {"a": "timestamp"})
    with pytest.raises(DuckLakeError):
        lake.table("t").append(pa.table({"a": pa.array([1001], pa.timestamp("ns"))}))
