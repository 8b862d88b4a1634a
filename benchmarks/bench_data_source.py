"""``format("ducklake")`` next to ``DuckLake.write`` and ``scan().to_spark``, which need no Python data source; same frame, same files.

Run with ``python -m benchmarks.bench_data_source``. The baseline is a data source that only reads and writes Parquet files
with pyarrow. It shows what Spark's Python API takes by itself: a Python worker for each task, and every batch through a pipe.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks.bench_read import consume
from benchmarks.bench_write import frame
from benchmarks.harness import Result, compare, report
from benchmarks.lakes import new_lake
from ducklake_core import DuckLake
from ducklake_core.engines.spark.write import BYTES, UNLIMITED
from ducklake_core.spark_source import register
from tests.support.oracle import sqlite_lake

ONLY_WRITES, ONLY_READS = "Python data source that only writes Parquet", "Python data source that only reads Parquet"
ROWS = int(os.environ.get("BENCH_ROWS", "2000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))


class ParquetOnly(DataSource):
    """Reads the files of a folder, and writes files to it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "parquet_only"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the folder."""
        return FilesReader(self.options["path"])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer to the folder."""
        return FilesWriter(self.options["path"])


class FilesReader(DataSourceReader):
    """Yields the batches of the Parquet files of a folder, one file for each task."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files."""
        return [InputPartition(str(file)) for file in sorted(Path(self._folder).rglob("*.parquet"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a file."""
        import pyarrow.parquet as pq

        yield from pq.ParquetFile(partition.value).iter_batches()


class FilesWriter(DataSourceArrowWriter):
    """Writes the batches of each task to a Parquet file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the file of a task."""
        import pyarrow.parquet as pq

        first = next(iterator)
        with pq.ParquetWriter(f"{self._folder}/{uuid.uuid4()}.parquet", first.schema) as writer:
            for batch in itertools.chain([first], iterator):
                writer.write_batch(batch)
        return WriterCommitMessage()


def writing(session: SparkSession, lake: DuckLake, url: str) -> Result:
    """All rows appended to new tables, commit included."""
    df, numbers = frame(session, ROWS), itertools.count()

    def source(**settings: str) -> None:
        name = f"t{next(numbers)}"
        lake.create_table(name, df)
        before = {key: str(session.conf.get(key)) for key in settings}
        for key, value in settings.items():
            session.conf.set(key, value)
        df.write.format("ducklake").mode("append").option("catalogUrl", url).save(name)
        for key, value in before.items():
            session.conf.set(key, value)
        assert lake.table(name).info().file_count == 2

    def parquet_only() -> None:
        with tempfile.TemporaryDirectory() as folder:
            df.write.format("parquet_only").mode("append").save(folder)

    contenders = {
        'format("ducklake")': source,
        ONLY_WRITES: parquet_only,
        "the same, batches not weighed": lambda: source(**{BYTES: UNLIMITED}),
        "DuckLake.write": lambda: lake.write(f"t{next(numbers)}", df),
    }
    return compare(f"write {ROWS:,} rows", contenders, baseline=ONLY_WRITES, promised_ratio=1.2, rounds=ROUNDS)


def reading(session: SparkSession, lake: DuckLake, url: str) -> Result:
    """Every column of every row."""
    lake.write("read", frame(session, ROWS))
    schema = lake.table("read").to_spark(session).schema
    contenders = {
        'format("ducklake")': lambda: consume(session.read.format("ducklake").option("catalogUrl", url).load("read")),
        ONLY_READS: lambda: consume(session.read.format("parquet_only").schema(schema).load(f"{lake.info.data_path}main/read")),
        "scan().to_spark": lambda: consume(lake.table("read").scan().to_spark(session)),
    }
    return compare(f"read {ROWS:,} rows", contenders, baseline=ONLY_READS, promised_ratio=1.2, rounds=ROUNDS)


def run() -> list[Result]:
    """Both, alternating."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session()
    register(session)
    session.dataSource.register(ParquetOnly)
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        lake = new_lake(address)
        return [writing(session, lake, address.url), reading(session, lake, address.url)]


if __name__ == "__main__":
    report(*run())
