"""Lakes whose files are in an S3 bucket: every verb on both engines, next to DuckDB on the same lake."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError
from tests.stores.work import Rows, change, found, maintain, numbered, table_of
from tests.support.oracle import LakeAddress
from tests.support.s3 import BUCKET, S3Server, attached_on_s3, s3_lake


def new_lake(address: LakeAddress, s3: S3Server, *, encrypted: bool = False) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path, storage_options=s3.options(), encrypted=encrypted)
    lake.set_option("data_inlining_row_limit", 0)
    return lake


def in_duckdb(address: LakeAddress, s3: S3Server) -> Rows:
    with attached_on_s3(address, s3) as duck:
        return {int(str(k)): str(v) for k, v in duck.rows("SELECT k, v FROM t")}


def test_in_process(sqlite_address: LakeAddress, s3: S3Server) -> None:
    address = s3_lake(sqlite_address, "in_process")
    lake = new_lake(address, s3)
    expected = change(lake, table_of, None)
    assert found(lake) == in_duckdb(address, s3) == expected
    maintain(lake, expected, None)
    assert in_duckdb(address, s3) == expected
    with attached_on_s3(address, s3, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("INSERT INTO t VALUES (40, 0, 'theirs')", "DELETE FROM t WHERE k = 0")
    expected = {**{k: v for k, v in expected.items() if k != 0}, 40: "theirs"}
    assert found(lake) == expected
    lake.table("t").delete(where="k = 1")
    assert in_duckdb(address, s3) == {k: v for k, v in expected.items() if k != 1}
    lake.close()


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_on_spark(sqlite_address: LakeAddress, s3: S3Server, spark: SparkSession, encrypted: bool, scheme: str) -> None:
    address = s3_lake(sqlite_address, f"on_spark_{encrypted}_{scheme}", scheme)
    lake = new_lake(address, s3, encrypted=encrypted)
    expected = change(lake, lambda rows: spark.createDataFrame(table_of(rows)), spark)
    assert found(lake) == found(lake, spark) == in_duckdb(address, s3) == expected
    maintain(lake, expected, spark)
    assert in_duckdb(address, s3) == expected
    lake.close()


@pytest.mark.slow
def test_adding_what_spark_wrote(sqlite_address: LakeAddress, s3: S3Server, spark: SparkSession, tmp_path: Path) -> None:
    """A whole output directory of Spark's own, with ``_SUCCESS`` and checksums, partitioned by a column."""
    address = s3_lake(sqlite_address, "adding")
    expected = numbered(0, 20)
    # Spark has no file system for S3 here.
    folder, written = f"s3://{BUCKET}/of_spark/", tmp_path / "of_spark"
    spark.createDataFrame(table_of(expected)).write.partitionBy("p").parquet(str(written))
    lake = new_lake(address, s3)
    filesystem, inside = lake.storage.filesystem(folder)
    filesystem.put(f"{written}/", inside, recursive=True)
    lake.create_table("t", table_of({}).schema)
    done = lake.add_data_files("t", folder)
    assert done.rows_added == 20
    assert found(lake) == in_duckdb(address, s3) == expected
    for again in (folder, folder.replace("s3://", "s3a://"), f"{folder}p=0/*.parquet"):
        with pytest.raises(AlreadyExistsError, match="already"):
            lake.add_data_files("t", again)
    lake.table("t").delete(where="k < 5")
    assert found(lake) == in_duckdb(address, s3) == {k: v for k, v in expected.items() if k >= 5}
    lake.close()
