"""Errors of executors keep their class, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError
from tests.support.oracle import LakeAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_missing_file(spark: SparkSession, small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.set_option("data_inlining_row_limit", 0)
    numbers = pa.table({"k": pa.array(range(20), pa.int64())})
    first = small.write("t", numbers).snapshot_id
    table = small.table("t")
    table.delete("k = 3")
    (file,) = table.refresh().list_files()
    Path(file.path).unlink()
    before = set(Path(sqlite_address.data_path).rglob("*.parquet"))
    for change in (
        lambda: table.delete("k > 5", spark=spark),
        lambda: table.delete("regexp_matches(CAST(k AS VARCHAR), '7$')", spark=spark),
        lambda: table.update({"k": "k + 1"}, where="k > 5", spark=spark),
        lambda: table.upsert(spark.createDataFrame(numbers.slice(0, 2)), on=["k"]),
        lambda: table.restore(first, spark=spark),
    ):
        with pytest.raises(NotFoundError, match=r"Table main\.t has this file at snapshot [12]"):
            change()
        assert set(Path(sqlite_address.data_path).rglob("*.parquet")) == before
