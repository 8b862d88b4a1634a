"""Statistics of other writers that are wrong: what a footer cannot prove is unknown in the catalog, and no filter loses rows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from thrift.Thrift import TType

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError
from ducklake_core.storage.encryption.compact import Struct
from tests.behaviour.foreign_files.added import check, put
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.parquet_bytes import COLUMN_ORDERS, NULL_COUNT, NUM_ROWS, change_footer, change_statistics, set_bounds
from tests.support.scans import open_lake

INT64_MAX = struct.pack("<q", 2**63 - 1)
MONEY = pa.array([Decimal(value) for value in ("1.00", "2.00", "24.00")], pa.decimal128(25, 2))
NUMBERS = pa.array([1, 2, 3], pa.int32())


@dataclass(frozen=True)
class Lie:
    """A column, a change of its statistics, and the bounds that the catalog has then."""

    column: pa.Array
    change: Callable[[Struct], None]
    expected: tuple[str | None, str | None] = (None, None)


def int32(low: int, high: int, *, old: bool = False) -> Callable[[Struct], None]:
    return set_bounds(struct.pack("<i", low), struct.pack("<i", high), old=old)


def int64(low: int, high: int, *, old: bool = False) -> Callable[[Struct], None]:
    return set_bounds(struct.pack("<q", low), struct.pack("<q", high), old=old)


LIES = {
    "deprecated bounds of decimals in bytes": Lie(MONEY, set_bounds(b"\x00" * 10 + b"\xc8", b"\x00" * 9 + b"\x09\x60", old=True)),
    "deprecated bounds of strings": Lie(pa.array(["a", "é", "z"]), set_bounds(b"\xc3\xa9", b"z", old=True)),
    "equal deprecated bounds of strings": Lie(pa.array(["a", "b", "c"]), set_bounds(b"c", b"c", old=True)),
    "deprecated bounds of numbers": Lie(NUMBERS, int32(1, 3, old=True), ("1", "3")),
    "unsigned compared as signed": Lie(pa.array([1, 2, 2**31 + 5], pa.uint32()), int32(-(2**31) + 5, 2)),
    "deprecated bounds of large unsigned numbers": Lie(pa.array([1, 2**63 + 1], pa.uint64()), int64(1, -(2**63) + 1, old=True)),
    "deprecated bounds of small unsigned numbers": Lie(pa.array([1, 3], pa.uint32()), int32(1, 3, old=True), ("1", "3")),
    "a sign in unsigned bytes": Lie(pa.array([1, 200], pa.uint8()), int32(-56, 1)),
    "beyond the bits of the type": Lie(pa.array([1, 2], pa.int8()), int32(1, 300)),
    "too many digits": Lie(pa.array([Decimal("1.5")], pa.decimal128(3, 1)), set_bounds(b"\x00\x00", b"\x27\x10")),
    "downwards": Lie(NUMBERS, int32(3, 1)),
    "no time of a day": Lie(pa.array([1, 2], pa.time64("us")), int64(0, 86_400_000_001)),
    "a date that is infinity": Lie(pa.array([1, 2], pa.date32()), int32(0, 2**31 - 1)),
    "nanoseconds that are infinity": Lie(pa.array([1, 2], pa.timestamp("ns")), set_bounds(struct.pack("<q", 1), INT64_MAX)),
    "milliseconds beyond the range": Lie(pa.array([1, 2], pa.timestamp("ms")), set_bounds(struct.pack("<q", 1), INT64_MAX[:-1] + b"\x7e")),
    "not UTF-8": Lie(pa.array(["a", "b"]), set_bounds(b"a", b"\xff\xff")),
    "NaN": Lie(pa.array([1.0, 2.0]), set_bounds(struct.pack("<d", float("nan")), struct.pack("<d", 2.0))),
    "a boolean of 7": Lie(pa.array([True, False]), set_bounds(b"\x00", b"\x07")),
}


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return lake_of_files(sqlite_address)


@pytest.mark.parametrize("name", LIES)
def test_bounds_that_prove_nothing_are_unknown(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path, name: str) -> None:
    lie = LIES[name]
    path = change_statistics(put(tmp_path / "f.parquet", pa.table({"a": lie.column})), lie.change)
    table = add(lake, path, lie.column.type)
    assert statistics(sqlite_address)[0][2:] == lie.expected
    rows = table.scan().to_arrow().column("a").to_pylist()
    assert len(rows) == len(lie.column)
    for value in rows:
        text = f"'{value}'" if not isinstance(value, bool | int | float) else str(value)
        assert table.scan(where=f"a = {text}").to_arrow().num_rows == 1, text
    assert lake.check(level="rows").findings == ()


def add(lake: DuckLake, path: Path, *types: pa.DataType) -> Any:
    lake.create_table("t", pa.schema([(name, data_type) for name, data_type in zip("abc", types, strict=False)]))
    lake.add_data_files("t", path)
    return lake.table("t")


def statistics(address: LakeAddress) -> list[tuple[Any, ...]]:
    query = (
        "SELECT value_count, null_count, min_value, max_value FROM __ducklake_metadata_lake.ducklake_file_column_stats ORDER BY column_id"
    )
    with attached(address) as duck:
        return duck.rows(query)


def test_row_groups_are_skipped_by_bounds_that_can_be_trusted(lake: DuckLake, tmp_path: Path) -> None:
    path = put(tmp_path / "f.parquet", pa.table({"a": MONEY}), row_group_size=1)
    change_statistics(path, set_bounds(b"\x00" * 11, b"\x00" * 11, old=True))
    table = add(lake, path, MONEY.type)
    assert table.scan(where="a = 24.00").to_arrow().num_rows == 1


def test_bounds_in_another_order_than_the_type_s(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path) -> None:
    def change(tree: Struct) -> None:
        for order in tree.structs(COLUMN_ORDERS):
            order.clear()
            order[7] = (TType.STRUCT, Struct())

    add(lake, change_footer(put(tmp_path / "f.parquet", pa.table({"a": NUMBERS})), change), pa.int32())
    assert statistics(sqlite_address) == [(3, 0, None, None)]


@pytest.mark.parametrize("bounds", [(b"\x01", b"\x03"), (b"", b"")])
@pytest.mark.parametrize("old", [True, False])
def test_bounds_of_another_length_are_damage(lake: DuckLake, tmp_path: Path, old: bool, bounds: tuple[bytes, bytes]) -> None:
    path = change_statistics(put(tmp_path / "f.parquet", pa.table({"a": NUMBERS})), set_bounds(*bounds, old=old))
    with pytest.raises(CorruptFileError, match=r"f\.parquet.*bounds of column 'a' are not values of type INT32"):
        add(lake, path, pa.int32())


@pytest.mark.parametrize("count", [-1, 4, 2**40])
def test_null_counts_that_cannot_be(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path, count: int) -> None:
    data = pa.table({"a": NUMBERS, "b": pa.array([[1], [2], [3]], pa.list_(pa.int64()))})
    path = put(tmp_path / "f.parquet", data)
    for column in (0, 1):
        change_statistics(path, lambda statistics: statistics.update({NULL_COUNT: (TType.I64, count)}), column)
    table = add(lake, path, *data.schema.types)
    assert [found[:2] for found in statistics(sqlite_address)] == [(None, None)] * 2
    assert table.scan(where="a IS NULL").to_arrow().num_rows == 0
    assert lake.check(level="rows").findings == ()
    with attached(sqlite_address) as duck:
        check(duck, open_lake(sqlite_address))


@pytest.mark.parametrize("count", [0, 2, 2**40])
def test_rows_are_counted_by_row_groups(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path, count: int) -> None:
    path = put(tmp_path / "f.parquet", pa.table({"a": NUMBERS}), row_group_size=2)
    change_footer(path, lambda tree: tree.update({NUM_ROWS: (TType.I64, count)}))
    table = add(lake, path, pa.int32())
    assert table.scan().to_arrow().num_rows == len(NUMBERS)
    with attached(sqlite_address) as duck:
        check(duck, open_lake(sqlite_address))
        assert duck.value("SELECT count(*) FROM t") == 3
    assert lake.check(level="rows").findings == ()
    table.delete("a = 2")
    assert lake.table("t").scan().to_arrow().column("a").to_pylist() == [1, 3]
