"""A lake on local disk with files in an object store: only where the user allows it, and then like any other."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from tests.behaviour.foreign_files.added import numbered, register
from tests.support.oracle import LakeAddress, attached
from tests.support.s3 import S3Server


def test_files_in_an_object_store(
    lake_address: LakeAddress,
    s3: S3Server,
    spark: SparkSession,
) -> None:
    storage = s3.storage()
    path = f"s3://lake/{lake_address.backend}/with space %41#ü/x.parquet"
    data = numbered(pa.table({"a": pa.array([1, 2], pa.int32())}), a=1)
    with storage.open_output(path) as sink:
        pq.write_table(data, sink)
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (3)")
    number = register(lake_address, "t", path, 2, size=storage.size(path))
    options = storage.options.by_protocol
    strict = DuckLake.connect(lake_address.url, storage_options=options)
    with pytest.raises(UnsupportedFeatureError, match=rf"data file {number} of table main\.t .*another kind of store"):
        strict.table("t").scan().to_arrow()
    strict.close()
    lake = DuckLake.connect(lake_address.url, storage_options=options, allowed_paths=["s3://lake/"])
    scan = lake.table("t").scan()
    assert sorted(scan.to_arrow().column("a").to_pylist()) == [1, 2, 3]
    assert sorted(row.a for row in scan.to_spark(spark).collect()) == [1, 2, 3]
    new = pa.table({"a": pa.array([2], pa.int32())})
    lake.write("t", new, mode="upsert", on=["a"])
    assert sorted(lake.table("t").scan().to_arrow().column("a").to_pylist()) == [1, 2, 3]
    lake.close()
