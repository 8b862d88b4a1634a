"""Many partition values in any order: one file for each as long as it fits the target size, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import StorageError
from ducklake_core.storage.spill import SpillFile, SpillLimits
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow
from tests.support.scans import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, VALUES = 12_000, 60
WRITER = "ducklake_core.engines.arrow.writer"
LIMITS = SpillLimits(memory_bytes=20_000, block_bytes=1000)


def rows(count: int = ROWS, values: int = VALUES) -> pa.Table:
    """Values of the key follow each other in a circle."""
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "p": pa.array([None if i % values == 7 else i % values for i in range(count)], pa.int32()),
            "at": pa.array([i % values * 31 * 86_400_000_000 for i in range(count)], pa.timestamp("us")),
            "s": pa.array([None if i % 11 == 0 else f"name-{i % 97}" for i in range(count)]),
        }
    )


def as_stream(data: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=1000))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a writer in proportion to the rows of these tests: its steps hold every value, and it has to spill."""
    monkeypatch.setattr(f"{WRITER}.MAX_OPEN_FILES", 5)
    monkeypatch.setattr(f"{WRITER}._GATHERED_ROWS", 500)
    monkeypatch.setattr(f"{WRITER}.PARTITIONED_ROWS", LIMITS)


@pytest.fixture
def spilled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each batch that went to the disk."""
    found: list[int] = []
    append = SpillFile.append

    def noted(self: SpillFile, batch: pa.RecordBatch) -> Any:
        found.append(batch.nbytes)
        return append(self, batch)

    monkeypatch.setattr(SpillFile, "append", noted)
    return found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(
    ("keys", "files"),
    [(["p"], VALUES), slow(["bucket(40, id)"], 40), (["month(at)", "year(at)"], VALUES), slow(["p", "bucket(2, p)"], VALUES)],
)
def test_one_file_for_each_value(sqlite_address: LakeAddress, keys: list[str], files: int, encrypted: bool, spilled: list[int]) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, encrypted=encrypted)
    data = rows()
    lake.create_table("t", data.schema, partition_by=keys)
    written = lake.write("t", as_stream(data))
    assert spilled, "the test has to spill"
    assert written.files_added == files
    assert written.rows_added == ROWS
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, data, "FROM t")
        # By the statistics of each file and its row groups.
        for key in (0, 3, VALUES - 1):
            assert duck.value(f"SELECT sum(id) FROM t WHERE p = {key}") == sum(range(key, ROWS, VALUES))
        assert duck.rows(f"SELECT p, s FROM t WHERE id = {ROWS - 1}") == [(VALUES - 1, f"name-{(ROWS - 1) % 97}")]
        assert duck.value("SELECT count(*) FROM t WHERE p IS NULL") == ROWS // VALUES


@pytest.mark.usefixtures("small")
def test_rows_of_a_value_keep_their_order(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", rows(2).schema, partition_by=["p"])
    lake.write("t", as_stream(rows()))
    for file in lake.table("t").list_files():
        ids = pq.ParquetFile(file.path).read(columns=["id"]).column("id").to_pylist()
        assert ids == sorted(ids)
        assert len(ids) == ROWS // VALUES


@pytest.mark.usefixtures("small")
def test_files_of_a_value_are_rolled_by_size(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    data = rows(200_000, 20)
    lake.create_table("t", data.schema, partition_by=["p"])
    lake.set_option("target_file_size", 30_000, table="t")
    lake.write("t", data)
    files = lake.table("t").list_files()
    assert all(file.file_size_bytes < 60_000 for file in files)
    counts = Counter(tuple(file.path.rpartition("/")[0:1]) for file in files)
    assert len(counts) == 20
    assert all(count > 1 for count in counts.values())
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, data, "FROM t")


@pytest.mark.usefixtures("small")
def test_sorted_partitions(sqlite_address: LakeAddress, spilled: list[int]) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    data = rows()
    lake.create_table("t", data.schema, partition_by=["p"])
    with attached(sqlite_address) as duck:
        duck.run("ALTER TABLE t SET SORTED BY (s DESC NULLS LAST, id)")
    assert DuckLake.connect(sqlite_address.url).write("t", as_stream(data)).files_added == VALUES
    assert spilled
    for file in lake.table("t").list_files():
        found = pq.read_table(file.path, columns=["s", "id"]).to_pylist()
        assert found == sorted(sorted(found, key=lambda row: row["id"]), key=lambda row: row["s"] or "", reverse=True)
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, data, "FROM t")


@pytest.mark.usefixtures("small")
def test_a_full_disk_makes_more_files(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    append = SpillFile.append

    def full(self: SpillFile, batch: pa.RecordBatch) -> Any:
        nonlocal calls
        calls += 1
        if calls % 30 == 0:
            raise StorageError("No space left on device")
        return append(self, batch)

    monkeypatch.setattr(SpillFile, "append", full)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", rows(2).schema, partition_by=["p"])
    assert VALUES < lake.write("t", as_stream(rows())).files_added <= VALUES * calls // 30 + VALUES
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, rows(), "FROM t")


@pytest.mark.usefixtures("small")
def test_the_disk_is_used_up_to_a_limit(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{WRITER}.PARTITIONED_ROWS", replace(LIMITS, disk_bytes=60_000))
    most = 0
    append = SpillFile.append

    def noted(self: SpillFile, batch: pa.RecordBatch) -> Any:
        nonlocal most
        place = append(self, batch)
        most = max(most, self.bytes)
        return place

    monkeypatch.setattr(SpillFile, "append", noted)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", rows(2).schema, partition_by=["p"])
    assert VALUES < lake.write("t", as_stream(rows())).files_added < VALUES * 8
    assert 60_000 < most < 120_000
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, rows(), "FROM t")


@pytest.mark.usefixtures("small")
def test_rows_in_the_order_of_partitions(sqlite_address: LakeAddress, spilled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{WRITER}.IDLE_STEPS", 1)
    # Small files that get no rows for a while are closed early, and rows that come late share a file with them.
    data = pa.concat_tables([rows().sort_by("p"), rows(VALUES)])
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", data.schema, partition_by=["p"])
    assert lake.write("t", as_stream(data)).files_added == VALUES
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, data, "FROM t")


def test_large_partitions_one_after_the_other_are_not_spilled(
    sqlite_address: LakeAddress, spilled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{WRITER}.MAX_OPEN_FILES", 2)
    monkeypatch.setattr(f"{WRITER}.IDLE_STEPS", 1)
    monkeypatch.setattr(f"{WRITER}.GATHERED_BYTES", 10_000)
    monkeypatch.setattr(f"{WRITER}._GATHERED_ROWS", 500)
    monkeypatch.setattr(f"{WRITER}.PARTITIONED_ROWS", SpillLimits(memory_bytes=40_000))
    data = rows(60_000, 20).sort_by("p")
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", data.schema, partition_by=["p"])
    lake.set_option("target_file_size", 100_000, table="t")
    lake.write("t", as_stream(data))
    assert sum(spilled) < data.nbytes / 2
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, data, "FROM t")


def test_few_rows_of_a_value_do_not_keep_all_others_in_memory(sqlite_address: LakeAddress) -> None:
    """A slice of a batch keeps the whole batch: one rare value must not keep everything."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    batch = pa.record_batch({"p": pa.array([0] * 65_535 + [1], pa.int32()), "v": pa.array(np.random.default_rng(1).random(65_536))})
    lake.create_table("t", batch.schema, partition_by=["p"])
    lake.set_option("parquet_row_group_size", 65_536, table="t")
    before, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(100):
            most = max(most, pa.total_allocated_bytes() - before)
            yield batch.take(pa.array(range(batch.num_rows)))

    assert lake.write("t", pa.RecordBatchReader.from_batches(batch.schema, batches())).files_added == 2
    assert most < batch.nbytes * 20


@pytest.mark.parametrize("together", [True, False])
def test_spark(spark: SparkSession, sqlite_address: LakeAddress, together: bool) -> None:
    """One file for each value and task, whether values are brought together first or not."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    frame = spark.range(0, 60_000, 1, 2).selectExpr("id", "cast(id % 600 as int) as p", "concat('name-', id % 97) as s")
    lake.create_table("t", frame.limit(0).toArrow().schema, partition_by=["p"])
    lake.set_option("per_thread_output", not together, table="t")
    written = lake.write("t", frame)
    assert written.rows_added == 60_000
    assert written.files_added == 1200 if not together else 600 <= written.files_added <= 1200
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT id), sum(id), count(DISTINCT p) FROM t") == [
            (60_000, 60_000, sum(range(60_000)), 600)
        ]
        assert duck.rows("SELECT min(id), max(id), count(*) FROM t WHERE p = 599") == [(599, 59_999, 100)]


@pytest.mark.usefixtures("small")
def test_rows_of_every_type_are_spilled(sqlite_address: LakeAddress, spilled: list[int]) -> None:
    wide = (
        "SELECT i % 60 AS p, i::HUGEINT * 1000000000000 AS h, uuid() AS u, {'a': i, 'b': [i::VARCHAR, NULL]} AS s, MAP {i: 'x'} AS m, "
        "CASE WHEN i % 3 > 0 THEN [i, NULL] END AS l, i::UTINYINT AS t, TIME '01:02:03' AS at, i::DECIMAL(30, 3) AS d, 'x'::BLOB AS b, "
        "TIMESTAMPTZ '2020-01-01 00:00:00+00' AS z, INTERVAL 1 DAY AS v, TIMESTAMP_NS '2020-01-01 00:00:00.123456789' AS n, i::FLOAT AS f, "
        "'{\"k\": 1}'::JSON AS j FROM range(240) r(i)"
    )
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE source AS {wide}", "CREATE TABLE t AS FROM source LIMIT 0", "ALTER TABLE t SET PARTITIONED BY (p)")
    lake = DuckLake.connect(sqlite_address.url)
    data = lake.table("source").scan().to_arrow()
    data = pa.concat_tables([data] * 20)
    assert lake.write("t", as_stream(data)).files_added == 60
    assert spilled
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*) FROM t") == [(4800,)]
        assert duck.rows("SELECT DISTINCT * FROM t EXCEPT FROM source") == []
        assert duck.rows("FROM source EXCEPT FROM t") == []
