"""Files that are called like the lake's own but lack field ids: Spark's reader would give NULL for their columns without a word."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ducklake_core.engines.spark import native_read
from ducklake_core.engines.spark.native_read import READER_CONF
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from tests.behaviour.foreign_files.added import numbered, put, register
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import assert_same_rows, open_lake

OWN = "ducklake-0198c1f2-0000-7000-8000-{:012d}.parquet"
IGNORE_CONF = "spark.sql.parquet.fieldId.read.ignoreMissing"


@pytest.mark.slow
def test_spark_raises_or_reads_with_arrow(sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", None]})
    nested = pa.table({"a": pa.array([1], pa.int32()), "l": pa.array([[1, 2]], pa.list_(pa.int32()))})
    held = {
        "none": rows,
        "some": numbered(rows, a=1),
        "inside": nested.cast(pa.schema([f.with_metadata({"PARQUET:field_id": str(n)}) for n, f in enumerate(nested.schema, 1)])),
    }
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        for name in held:
            duck.run(f'CREATE TABLE "{name}" (a INTEGER, {"l INTEGER[]" if name == "inside" else "b VARCHAR"})')
            duck.run(f'INSERT INTO "{name}" VALUES (7, {"[8]" if name == "inside" else repr("y")})')
    for number, (name, data) in enumerate(held.items()):
        path = put(Path(sqlite_address.data_path) / "main" / name / OWN.format(number), data)
        register(sqlite_address, name, path.name, data.num_rows, is_relative=True, size=path.stat().st_size)
    lake = open_lake(sqlite_address)
    spark.conf.set(IGNORE_CONF, "true")
    try:
        for name in held:
            scan = lake.scan(name)
            assert all(task.native for task in scan.plan().plan.tasks)
            message = rf"{OWN.format(list(held).index(name))} of table main\.{name} has no field id"
            with pytest.raises(UnsupportedFeatureError, match=message):
                scan.to_spark(spark)
            with monkeypatch.context() as many:
                many.setattr(native_read, "MAX_FILES_ON_DRIVER", 0)
                # The first rows alone would come from the other file.
                for read in (scan.to_spark(spark).collect, lambda scan=scan: scan.to_spark(spark).take(1)):
                    with pytest.raises(PySparkException, match=message):
                        read()
        with attached(sqlite_address) as duck:
            spark.conf.set(READER_CONF, "arrow")
            for name in held:
                assert_same_rows(duck, lake.scan(name).to_arrow(), f'SELECT * FROM "{name}"')
                assert_same_rows(duck, lake.scan(name).to_spark(spark).toArrow(), f'SELECT * FROM "{name}"')
        spark.conf.set(READER_CONF, "jvm")
        with pytest.raises(UsageError, match="'native' or 'arrow'"):
            lake.scan("some").to_spark(spark)
    finally:
        spark.conf.unset(IGNORE_CONF)
        spark.conf.unset(READER_CONF)
