"""Encrypted lakes on Spark: the same rows as DuckDB's, and no key in anything that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.behaviour.scan.test_encrypted import TO_FILES
from tests.behaviour.scan.test_read_oracle import ALL_TYPES, NULLS
from tests.spark.test_read import IN_MICROSECONDS, rows_of
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import assert_same_rows, open_lake

STATEMENTS = (
    "CALL lake.set_option('parquet_row_group_size', '2048')", "CREATE TABLE t (i BIGINT, v VARCHAR, l INTEGER[], p INTEGER)",
    "ALTER TABLE t SET PARTITIONED BY (p)", "INSERT INTO t SELECT i, 'v' || i % 500, [i, NULL], i % 2 FROM range(9000) r(i)",
    "DELETE FROM t WHERE i % 5 = 0", "UPDATE t SET v = 'new' WHERE i BETWEEN 100 AND 900",
    "INSERT INTO t SELECT i, NULL, NULL, 1 FROM range(9000, 9100) r(i)", "CALL ducklake_merge_adjacent_files('lake')",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("nearest_types")
def test_every_snapshot_and_type(lake_address: LakeAddress, spark: SparkSession) -> None:
    with attached(lake_address, TO_FILES) as duck:
        duck.run(*STATEMENTS, f"CREATE TABLE types ({ALL_TYPES})", f"INSERT INTO types VALUES {', '.join(IN_MICROSECONDS)}, {NULLS}")
    lake = open_lake(lake_address)
    planned = lake.scan("t").plan()
    assert {task.native_obstacle for task in planned.plan.tasks} == {"the file is encrypted"}
    keys = {task.file.encryption_key.base64_text for task in planned.plan.tasks if task.file.encryption_key}
    assert keys
    explained = lake.scan("t").to_spark(spark)._jdf.queryExecution().toString()
    assert not any(key in f"{planned}{planned!r}{explained}" for key in keys)
    with attached(lake_address) as duck:
        for version in lake.snapshots()[-4:]:
            assert_same_rows(duck, rows_of(lake.scan("t", version).to_spark(spark)), f"SELECT * FROM t AT (VERSION => {version})")
        assert_same_rows(duck, rows_of(lake.scan("types").to_spark(spark)), "SELECT * FROM types")
        filtered = lake.scan("t", where="p = 1 AND i % 7 = 0", columns=["rowid", "i"]).to_spark(spark)
        assert_same_rows(duck, rows_of(filtered), "SELECT rowid, i FROM t WHERE p = 1 AND i % 7 = 0")


def test_a_changed_file_is_an_error(sqlite_address: LakeAddress, spark: SparkSession, tmp_path: Path) -> None:
    with attached(sqlite_address, TO_FILES) as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(1000) r(i)")
    (path,) = tmp_path.rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    frame = open_lake(sqlite_address).scan("t").to_spark(spark)
    with pytest.raises(PySparkException, match=r"column 'i' in row group 0 of .* cannot be decrypted"):
        frame.collect()
