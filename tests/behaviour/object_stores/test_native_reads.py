"""Spark's own reader for files on an object store, where the session has a file system for it.

There is no jar for S3 here: Hadoop's view of other file systems is mounted under the scheme, over the directory that the S3 server serves.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ducklake_core.engines.spark.scan_schema import SCHEMES_CONF, parse_schemes
from ducklake_core.errors import UsageError
from tests.behaviour.object_stores.work import change, found, table_of
from tests.support.object_stores import s3_store
from tests.support.oracle import LakeAddress
from tests.support.s3 import BUCKET, S3Server


@pytest.fixture
def mounted(spark: SparkSession, s3: S3Server) -> SparkSession:
    """A session that sees the bucket."""
    session = spark.newSession()
    session.conf.set("fs.s3a.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    session.conf.set(f"fs.viewfs.mounttable.{BUCKET}.linkFallback", (s3.root / BUCKET).as_uri())
    session.conf.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    return session


@pytest.mark.slow
def test_both_ways_give_the_same_rows(sqlite_address: LakeAddress, s3: S3Server, mounted: SparkSession) -> None:
    store = s3_store(s3)
    lake = store.create(store.lake(sqlite_address, "native"))
    expected = change(lake, table_of, None)
    scan = lake.table("t").scan(columns=["k", "v", "rowid", "filename", "file_row_number"])

    def rows() -> tuple[list[tuple[object, ...]], str]:
        frame = scan.to_spark(mounted)
        return sorted(map(tuple, frame.collect())), frame._jdf.queryExecution().toString()

    arrow, plan = rows()
    assert "FileScan parquet" not in plan
    mounted.conf.set(SCHEMES_CONF, "s3a")
    native, plan = rows()
    assert "FileScan parquet" in plan
    assert native == arrow
    assert found(lake, mounted) == expected
    lake.table("t").refresh().update({"v": "'again'"}, where="k = 1", spark=mounted)
    assert found(lake, mounted) == {**expected, 1: "again"}
    lake.close()


@pytest.mark.parametrize("text", ["s3=", "=", "s3 a", "s3:gs", "s3=a=b"])
def test_settings_that_mean_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="s3=s3a"):
        parse_schemes(text)
