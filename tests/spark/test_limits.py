"""Limits of scans and feeds in Spark: so many rows, and only the files that hold them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core.errors import UsageError
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress


def test_a_limit_returns_so_many_rows_of_few_files(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    for number in range(4):
        lake.write("t", pa.table({"i": range(number * 10, number * 10 + 10)}))
    table = lake.table("t")
    assert table.to_spark(spark).count() == 40
    limited = table.limit(12).to_spark(spark)
    assert limited.count() == 12
    assert len(limited.inputFiles()) == 2
    assert table.scan(where="i % 2 = 1", limit=7).to_spark(spark).count() == 7
    assert table.limit(0).to_spark(spark).count() == 0
    assert table.insertions(0).limit(5).to_spark(spark).count() == 5
    with pytest.raises(UsageError, match="Spark supports at most 2,147,483,647"):
        table.limit(2**31).to_spark(spark)
    lake.close()
