"""Merging on executors gives the very files that merging in this process gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ducklake_core.lake import DuckLake
from tests.behaviour.maintenance.lakes import FILES_ONLY, readings
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_groups_run_on_executors(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, b VARCHAR)",
            "ALTER TABLE t SET PARTITIONED BY (b)",
            *(f"INSERT INTO t SELECT range, 'p' || range % 3 FROM range({n}, {n + 20})" for n in range(0, 60, 20)),
        )
    before = readings(sqlite_address)
    lost = next(path for path in sorted(Path(sqlite_address.data_path).rglob("*.parquet")) if "b=p1" in str(path))
    content = lost.read_bytes()
    lost.unlink()
    lake = DuckLake.connect(sqlite_address.url)
    result = lake.merge_adjacent_files("t", spark=spark)
    lost.write_bytes(content)
    assert result.files_created == 2
    assert len(result.failures) == 1
    assert "not-found" in result.failures[0]
    assert lake.merge_adjacent_files("t", spark=spark).files_created == 1
    after = readings(sqlite_address)
    assert {key: rows for key, rows in after.items() if key in before} == before
    lake.close()
