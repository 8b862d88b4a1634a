"""Streams: the parts that Spark calls on the driver, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from tests.spark.source.processes import data_source, passed_on, read_function, schema_of, write_function
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress

COLUMNS = schema_of("a bigint, b string")
pytestmark = pytest.mark.usefixtures("notes")


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64()), "b": pa.array([f"r{value}" for value in values], pa.string())})


def micro_batch(address: LakeAddress, number: int, table: pa.Table, *, overwrite: bool = False, **options: str) -> None:
    """Plan, write and commit one micro-batch, each with a sink of its own as Spark does."""
    planned = data_source(address, **options).streamWriter(COLUMNS, overwrite)
    message = passed_on(write_function(planned))(table.to_batches())
    data_source(address, **options).streamWriter(COLUMNS, overwrite).commit([passed_on(message)], number)


def checkpoint(folder: Path, query: str) -> str:
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": query}))
    return str(folder)


def read(reader: Any, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    function = read_function(data_source_of(reader), reader)
    batches = [batch for part in reader.partitions(start, end) for batch in passed_on(function)(passed_on(part))]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def data_source_of(reader: Any) -> Any:
    """Return a source without its options."""
    source = data_source(LakeAddress("sqlite:///", "", "", "sqlite"))
    source.options = type(source.options)()
    return source


def stream(address: LakeAddress, **options: str) -> Any:
    source = data_source(address, **options)
    columns = source.schema()
    return passed_on(source).streamReader(columns)


def test_a_micro_batch_that_is_run_again_is_committed_once(lake_address: LakeAddress, tmp_path: Path, notes: Path) -> None:
    lake = lake_of_files(lake_address)
    lake.create_table("t", rows().schema)
    first = {"checkpointLocation": checkpoint(tmp_path / "first", "11-aa")}
    micro_batch(lake_address, 0, rows(1, 2), **first)
    micro_batch(lake_address, 1, rows(3), **first)
    snapshot, files = lake.snapshot(), sorted(Path(lake_address.data_path).rglob("*.parquet"))
    assert json.loads(snapshot.extra_info or "")["batch_id"] == 1
    # Killed after the commit and before Spark noted it: the batch is planned and written once more.
    micro_batch(lake_address, 1, rows(3), **first)
    assert lake.snapshot().id == snapshot.id
    assert sorted(Path(lake_address.data_path).rglob("*.parquet")) == files
    assert list(notes.iterdir()) == []
    # Another checkpoint counts its own batches.
    micro_batch(lake_address, 1, rows(4), checkpointLocation=checkpoint(tmp_path / "second", "22-bb"))
    assert sorted(lake.table("t").scan().to_arrow().column("a").to_pylist()) == [1, 2, 3, 4]
    # Nothing came: no snapshot.
    newest = lake.snapshot().id
    micro_batch(lake_address, 2, rows(), **first)
    assert lake.snapshot().id == newest
    # Output mode complete.
    micro_batch(lake_address, 3, rows(9), overwrite=True, **first)
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"a": 9, "b": "r9"}]


def test_a_sink_without_an_identity_raises(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    lake_of_files(sqlite_address).create_table("t", rows().schema)
    with pytest.raises(UsageError, match="needs option checkpointLocation"):
        data_source(sqlite_address).streamWriter(COLUMNS, False)
    with pytest.raises(UsageError, match="Set option streamId"):
        data_source(sqlite_address, checkpointLocation=str(tmp_path / "nowhere")).streamWriter(COLUMNS, False)
    micro_batch(sqlite_address, 0, rows(1), streamId="mine", checkpointLocation=str(tmp_path / "nowhere"))


def test_an_aborted_micro_batch_leaves_no_file_and_a_committed_one_all(sqlite_address: LakeAddress) -> None:
    lake_of_files(sqlite_address).create_table("t", rows().schema)
    sink = data_source(sqlite_address, streamId="s").streamWriter(COLUMNS, False)
    message = passed_on(write_function(sink))(rows(1).to_batches())
    data_source(sqlite_address, streamId="s").streamWriter(COLUMNS, False).abort([None, message], 0)
    assert not list(Path(sqlite_address.data_path).rglob("*.parquet"))
    sink = data_source(sqlite_address, streamId="s").streamWriter(COLUMNS, False)
    message = passed_on(write_function(sink))(rows(1).to_batches())
    for end in ("commit", "abort"):
        getattr(data_source(sqlite_address, streamId="s").streamWriter(COLUMNS, False), end)([message], 0)
    assert len(list(Path(sqlite_address.data_path).rglob("*.parquet"))) == 1


def test_insertions_come_once_from_offset_to_offset(lake_address: LakeAddress) -> None:
    lake = lake_of_files(lake_address)
    lake.write("t", rows(1, 2))
    reader = stream(lake_address)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []
    assert sorted(row["a"] for row in read(reader, start, end)) == [1, 2]
    lake.write("t", rows(3))
    lake.write("other", rows(7))
    lake.table("t").delete("a = 1")
    lake.set_option("data_inlining_row_limit", 10)
    lake.write("t", rows(4))
    further = reader.latestOffset(end, ReadAllAvailable())
    assert further["snapshot"] == lake.snapshot().id
    assert sorted(row["a"] for row in read(reader, end, further)) == [3, 4]
    # The same range again, by a restarted reader, gives the same.
    assert sorted(row["a"] for row in read(stream(lake_address), end, further)) == [3, 4]
    assert stream(lake_address, startingVersion="latest").initialOffset() == further
    assert stream(lake_address, startingVersion=str(further["snapshot"])).initialOffset()["snapshot"] == further["snapshot"] - 1
    reader.stop()


def test_changes_know_updates(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    lake.write("t", rows(*range(50)))
    reader = stream(sqlite_address, feed="changes", startingVersion="latest")
    start = reader.initialOffset()
    lake.table("t").upsert(pa.table({"a": [7, 100], "b": ["new", "more"]}), on=["a"])
    lake.table("t").delete("a = 8")
    lake.write("t", rows(200))
    expected = lake.table("t").changes(start["snapshot"] + 1).to_arrow().to_pylist()
    found = read(reader, start, reader.latestOffset(start, ReadAllAvailable()))

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.values())

    assert sorted(found, key=key) == sorted(expected, key=key)
    assert {row["change_type"] for row in found} >= {"insert", "delete"}


def test_micro_batches_are_limited_and_available_now_ends(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    for value in range(5):
        lake.write("t", rows(value))
    reader = stream(sqlite_address, maxSnapshotsPerTrigger="2")
    limit = reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    lake.write("t", rows(99))
    offset, seen = reader.initialOffset(), []
    while (further := reader.latestOffset(offset, limit)) != offset:
        seen.append(sorted(row["a"] for row in read(reader, offset, further)))
        offset = further
    assert [value for batch in seen for value in batch] == [0, 1, 2, 3, 4]
    assert max(len(batch) for batch in seen) == 2
    # Spark before 4.2 calls it so.
    with pytest.raises(UnsupportedFeatureError, match="maxSnapshotsPerTrigger needs Spark 4"):
        reader.latestOffset()
    assert stream(sqlite_address).latestOffset()["snapshot"] == lake.snapshot().id


def test_missing_snapshots_and_tables_raise(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    for value in range(4):
        lake.write("t", rows(value))
    reader = stream(sqlite_address)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    lake.expire_snapshots(versions=[2], min_age="0 days")
    with pytest.raises(NotFoundError, match=r"snapshot 2 has expired. Begin at snapshot 3"):
        reader.partitions(start, end)
    lake.drop_table("t")
    lake.write("t", rows(1))
    after = reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(NotFoundError, match="the stream of t cannot continue"):
        reader.partitions(end, after)


def test_a_table_that_changes_under_a_stream(sqlite_address: LakeAddress) -> None:
    lake: DuckLake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"a": pa.array([1], pa.int32())}))
    reader = stream(sqlite_address)
    start = reader.initialOffset()
    lake.write("t", pa.table({"a": pa.array([2], pa.int32()), "c": [1]}), schema_evolution="additive")
    # A new column is not read.
    middle = reader.latestOffset(start, ReadAllAvailable())
    assert sorted(row["a"] for row in read(reader, start, middle)) == [1, 2]
    lake.write("t", pa.table({"a": pa.array([2**40])}), schema_evolution="additive")
    with pytest.raises(SchemaError, match="start the stream with a new checkpoint location"):
        reader.partitions(middle, reader.latestOffset(middle, ReadAllAvailable()))
