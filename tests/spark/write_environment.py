"""A program of its own that writes a frame in one Spark environment and checks what it wrote; run by test_write_environments.

Usage: ``python -m tests.spark.write_environment master|sc://address directory``
"""

from __future__ import annotations

import os
import resource
import sys

import pytest

ROWS = 600_000


def main(environment: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.engines.spark.types import from_spark_schema
    from ducklake_core.engines.spark.write import write_frame
    from ducklake_core.errors import UsageError
    from ducklake_core.format.expressions.conditions import bind
    from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
    from ducklake_core.format.options import Options
    from ducklake_core.format.types.schema import with_ids

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "America/New_York")
    builder = (
        builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g")
    )
    if environment.startswith("sc://"):
        session = SparkSession.builder.remote(environment).config("spark.sql.session.timeZone", "America/New_York").getOrCreate()
    else:
        builder = builder.master(environment).config("spark.executorEnv.PYTHONPATH", os.getcwd()).config("spark.executor.memory", "512m")
        session = builder.config("spark.driver.maxResultSize", "1m").getOrCreate()

    df = session.range(0, ROWS, 1, 4).selectExpr(
        "id", "concat('some text that does not compress away ', sha2(cast(id as string), 256)) as text", "timestamp_seconds(id * 100) as ts"
    )
    state = WriteState(table="main.t", directory=f"{directory}/plain/", schema=with_ids(from_spark_schema(df.schema)), options=Options())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    files = write_frame(df, state)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert sum(file.record_count for file in files) == ROWS, files
    assert sum(file.file_size_bytes for file in files) > 24_000_000, files
    # 60 MB of rows passed; the driver's Python saw four small reports.
    assert grown < 30, f"the driver grew by {grown} MB"
    assert {file.statistics[2].min_value for file in files} >= {"1970-01-01 00:00:00+00"}, files

    keys = (
        PartitionField(column_id=3, column="ts", transform="month"),
        PartitionField(column_id=1, column="id", transform="bucket", buckets=2),
    )
    small = df.filter("id < 60000")
    parts = write_frame(
        small, WriteState(table="main.t", directory=f"{directory}/p/", schema=state.schema, partition_spec=PartitionSpec(fields=keys))
    )
    assert sorted(file.partition_values for file in parts) == [(m, b) for m in ("1", "2", "3") for b in ("0", "1")], parts
    assert sum(file.record_count for file in parts) == 60_000

    broken = WriteState(table="main.t", directory=f"{directory}/x/", schema=state.schema, row_constraint=bind("id < 50", state.schema))
    with pytest.raises(UsageError, match="id = "):
        write_frame(small, broken)
    left = [name for _, _, names in os.walk(f"{directory}/x") for name in names]
    assert left == [], left
    if environment.startswith("sc://"):
        assert type(df).__module__.startswith("pyspark.sql.connect"), type(df)
    session.stop()
    print("WRITTEN AND CHECKED")


if __name__ == "__main__":
    main(*sys.argv[1:])
