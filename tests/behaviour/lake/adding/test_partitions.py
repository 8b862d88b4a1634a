"""Added files and the partition keys of their table."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core.errors import (
    UsageError,
)
from tests.behaviour.foreign_files.added import check_everywhere, put
from tests.behaviour.lake.adding.samples import prepared
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import open_lake

PARTITION_FILES = {
    "constant": (
        pa.table({"g": pa.array([4, 4], pa.int32()), "d": pa.array([dt.date(2020, 2, 1), dt.date(2020, 2, 28)])}),
        ["4", "2020", "2"],
    ),
    "null": (pa.table({"g": pa.array([None, None], pa.int32()), "d": pa.array([dt.date(1969, 12, 31)] * 2)}), [None, "1969", "12"]),
}


@pytest.mark.parametrize("name", PARTITION_FILES)
def test_partition_values_from_statistics(sqlite_address: LakeAddress, folder: Path, name: str) -> None:
    data, values = PARTITION_FILES[name]
    lake = prepared(sqlite_address, "CREATE TABLE t (g INTEGER, d DATE)", "ALTER TABLE t SET PARTITIONED BY (g, year(d), month(d))")
    lake.add_data_files("t", put(folder / "f.parquet", data))
    (file,) = lake.table("t").list_files()
    assert [value for _, value in sorted(file.partition_values)] == values
    lake.table("t").append(data)
    own = lake.table("t").list_files()[-1]
    assert own.partition_values == file.partition_values
    with attached(sqlite_address) as duck:
        check_everywhere(duck, open_lake(sqlite_address))


def test_buckets_are_computed_never_believed(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = prepared(sqlite_address, "CREATE TABLE t (g INTEGER, a INTEGER)", "ALTER TABLE t SET PARTITIONED BY (bucket(4, g))")
    data = pa.table({"a": pa.array([1], pa.int32())})
    with pytest.raises(UsageError, match=r"partition key bucket\(4, g\)"):
        lake.add_data_files(
            "t",
            put(
                folder / "bucket=3" / "f.parquet", data.append_column("g", pa.array([None], pa.int32())).slice(0, 1), write_statistics=False
            ),
        )
    for number in range(6):
        put(folder / f"g={number}" / "f.parquet", data)
    lake.add_data_files("t", str(folder / "g=*" / "*.parquet"))
    lake.table("t").append(pa.table({"g": pa.array(range(6), pa.int32()), "a": pa.array(range(6), pa.int32())}))
    with attached(sqlite_address) as duck:
        for number in range(6):
            assert duck.value(f"SELECT count(*) FROM t WHERE g = {number}") == 2
            assert lake.table("t").scan(where=f"g = {number}").to_arrow().num_rows == 2


def test_rows_of_several_partitions_in_one_file(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = prepared(sqlite_address, "CREATE TABLE t (d DATE)", "ALTER TABLE t SET PARTITIONED BY (year(d))")
    path = put(folder / "f.parquet", pa.table({"d": pa.array([dt.date(2020, 1, 1), dt.date(2021, 1, 1)])}))
    with pytest.raises(UsageError, match="several partitions"):
        lake.add_data_files("t", path)
    unknown = put(folder / "g.parquet", pa.table({"d": pa.array([dt.date(2020, 1, 1)])}), write_statistics=False)
    with pytest.raises(UsageError, match=r"partition key year\(d\)"):
        lake.add_data_files("t", unknown)
