"""Streams are read once, and never as a whole where the operation allows it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from tests.behaviour.frames.kinds import Stream
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow

ROOT = Path(__file__).parents[3]
GROWTH = 150
"""Megabytes that a write may take, with a row group of the file that is open and what is on its way there; the stream has 380."""


@pytest.mark.parametrize("operation", ["append", slow("overwrite"), slow("create_table_as")])
def test_a_stream_is_written_with_flat_memory(operation: str, sqlite_address: LakeAddress) -> None:
    command = [sys.executable, "-m", "tests.behaviour.frames.flat_memory", sqlite_address.url, sqlite_address.data_path, operation]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < GROWTH
    first = 0 if operation != "append" else 100_000
    assert DuckLake.connect(sqlite_address.url).table("t").scan().count() == first + 60 * 262_144


def test_batches_read_to_decide_on_inlining_are_written(small: DuckLake) -> None:
    schema = pa.schema([("k", pa.int64())])
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            taken.append(number)
            yield pa.record_batch([pa.array([number])], schema=schema)

    small.write("t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert taken == list(range(100))
    assert sorted(small.table("t").scan().to_arrow().column("k").to_pylist()) == taken


@pytest.mark.parametrize("operation", ["append", "overwrite", "upsert", "merge", "create_table_as", "transaction"])
def test_a_stream_that_can_be_opened_once_is_enough(operation: str, small: DuckLake) -> None:
    small.create_table("t", {"k": "int64"})
    rows = Stream(pa.table({"k": [1, 2, 3]}))
    if operation == "merge":
        small.table("t").merge(rows, on="k").when_not_matched_insert("all").execute()
    elif operation == "create_table_as":
        small.create_table_as("t", rows, or_replace=True)
    elif operation == "transaction":
        with small.transaction() as tx:
            tx.write("t", rows)
    else:
        small.write("t", rows, mode=operation, on="k" if operation == "upsert" else ())  # type: ignore[arg-type]
    assert sorted(small.table("t").scan().to_arrow().column("k").to_pylist()) == [1, 2, 3]


def test_columns_are_taken_from_a_stream_without_reading_it(small: DuckLake) -> None:
    rows = pa.table({"k": [1, 2]}).to_reader()
    small.create_table("t", rows)
    small.table("t").append(rows)
    assert small.table("t").scan().to_arrow().column("k").to_pylist() == [1, 2]


def test_a_stream_that_breaks_leaves_nothing_behind(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_table("t", {"k": "int64"})
    schema = pa.schema([("k", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(5):
            yield pa.record_batch([pa.array(range(100_000))], schema=schema)
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        small.table("t").append(pa.RecordBatchReader.from_batches(schema, batches()))
    assert small.table("t").scan().count() == 0
    assert list(Path(sqlite_address.data_path).rglob("*.parquet")) == []


def test_lazy_frames_datasets_and_files_are_streamed(small: DuckLake, tmp_path: Path) -> None:
    rows = pa.table({"a": range(10), "b": [str(number) for number in range(10)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    dataset = pds.dataset(tmp_path / "rows.parquet")
    read: list[int] = []

    def noted(frame: pl.DataFrame) -> pl.DataFrame:
        read.append(frame.height)
        return frame

    lazy = pl.scan_parquet(tmp_path / "rows.parquet").map_batches(noted, streamable=True)
    small.create_table("t", lazy)
    assert read == [], "columns are known without running the query"
    table = small.table("t")
    for data in (lazy, dataset, dataset.scanner(filter=pds.field("a") < 5), pq.ParquetFile(tmp_path / "rows.parquet")):
        table.append(data)
    assert sum(read) == 10
    assert table.count() == 35
    assert table.upsert(lazy.with_columns(pl.lit("x").alias("b")).head(1), on="a").rows_deleted == 4
    assert small.write("huge", pl.LazyFrame({"n": [2**100]}, schema={"n": pl.Int128})).rows_added == 1
