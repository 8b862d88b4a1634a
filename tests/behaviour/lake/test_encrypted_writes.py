"""Encrypted lakes of ducklake_core: DuckDB reads and writes them, catalog rows equal its own, and no key is ever shown."""

from __future__ import annotations

import errno
import logging
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import CommitError, DuckLakeError, StorageError
from ducklake_core.format.files.data_files import EncryptionKey
from ducklake_core.format.options import Options
from ducklake_core.format.types.data_types import INT64, VARCHAR, Field
from ducklake_core.format.types.schema import Schema, with_ids
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_files import open_parquet
from ducklake_core.storage.parquet_writer import FileWriter
from tests.behaviour.lake.test_same_catalog import STEPS
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.scans import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table(
    {
        "k": pa.array(range(3000), pa.int64()),
        "s": pa.array([None if i % 7 == 0 else f"text {i % 90}" for i in range(3000)]),
        "f": pa.array([float("nan") if i == 3 else i / 4 for i in range(3000)]),
        "l": pa.array([None if i % 5 == 0 else [{"x": i, "y": None}] * (i % 3) for i in range(3000)]),
    }
)


def keys_of(lake: DuckLake, name: str = "t") -> list[str]:
    """Every key of a table's live files, in base64."""
    found = lake.table(name).list_files()
    keys = [file.encryption_key for file in found] + [delete.encryption_key for file in found for delete in file.delete_files]
    return [key.base64_text for key in keys if key is not None]


def create(address: LakeAddress) -> DuckLake:
    return DuckLake.create(address.url, data_path=address.data_path, encrypted=True)


def all_encrypted(address: LakeAddress) -> int:
    """Return the number of files. All must be encrypted."""
    files = list(Path(address.data_path).rglob("*.parquet"))
    for file in files:
        assert file.read_bytes()[:4] == file.read_bytes()[-4:] == b"PARE", file
    return len(files)


def check_every_snapshot(address: LakeAddress, lake: DuckLake, name: str = "t") -> None:
    with attached(address) as duck:
        for snapshot in lake.snapshots()[1:]:
            own = lake.table(name, at=snapshot.id).scan().to_arrow()
            assert_same_rows(duck, own, f"SELECT * FROM {name} AT (VERSION => {snapshot.id})")


def test_duckdb_and_ducklake_core_write_alternately(lake_address: LakeAddress) -> None:
    lake = create(lake_address)
    lake.set_option("parquet_row_group_size", 700)
    lake.write("t", ROWS)
    table = lake.table("t")
    table.delete("s = 'text 3' OR k BETWEEN 2000 AND 2500")
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("DELETE FROM t WHERE k % 5 = 0", "INSERT INTO t SELECT k + 10000, 'duckdb', NULL, NULL FROM range(50) r(k)")
    table.delete("k < 70 AND s IS NULL")  # a cumulative file that replaces DuckDB's
    table.upsert(ROWS.slice(0, 30), on=["k"])
    table.overwrite(ROWS.slice(100, 100), where="k >= 100 AND k < 200")
    check_every_snapshot(lake_address, lake)
    assert all_encrypted(lake_address) >= 7
    keys = keys_of(lake)
    assert len(set(keys)) >= 5
    assert all(len(key) == 24 for key in keys)


@pytest.mark.parametrize("name", ["append twice", "delete rows", "partitioned", "overwrite some"])
def test_the_catalog_equals_that_of_duckdb(tmp_path: Path, name: str) -> None:
    (tmp_path / "duckdb").mkdir()
    (tmp_path / "own").mkdir()
    by_duckdb, own = sqlite_lake(tmp_path / "duckdb"), sqlite_lake(tmp_path / "own")
    steps_of_duckdb, own_steps = STEPS[name]()
    with attached(by_duckdb, "ENCRYPTED") as duck:
        duck.run("CALL lake.set_option('data_inlining_row_limit', 0)")
        steps_of_duckdb(duck)
    lake = create(own)
    lake.set_option("data_inlining_row_limit", 0)
    own_steps(lake)
    expected = dump_catalog(by_duckdb)
    found = dump_catalog(own, expected)
    assert set(found) == set(expected)
    for table in ("metadata", "data_file", "delete_file", "file_partition_value", "files_scheduled_for_deletion"):
        assert found.get(table) == expected.get(table), table
    assert all(row["encryption_key"] == "24 characters" for row in found["data_file"])


def test_filters_that_find_nothing(sqlite_address: LakeAddress) -> None:
    """DuckDB cannot skip a whole column of several encrypted pages."""
    lake = create(sqlite_address)
    count = 50_000
    rows = {"k": range(count), "s": ["ab"[n % 2] * (n % 5) for n in range(count)], "f": [float(n % 7) for n in range(count)]}
    lake.write("t", pa.table(rows))
    for delete in (None, "k % 2 = 0"):
        if delete is not None:
            lake.table("t").delete(delete)
        with attached(sqlite_address) as duck:
            for where in ("s = 'ba'", "f = 0.5", "s > 'aaaa' AND s < 'b'", "f = 0.5 AND k > 40000", "s = 'bbb'"):
                assert_same_rows(duck, lake.table("t").scan(where=where).to_arrow(), f"SELECT * FROM t WHERE {where}")


def test_maintenance(lake_address: LakeAddress) -> None:
    lake = create(lake_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", ROWS.slice(0, 100), partition_by=["bucket(2, k)"])
    for start in range(100, 300, 100):
        lake.table("t").append(ROWS.slice(start, 100))
    merged = lake.merge_adjacent_files()
    assert (merged.files_merged, merged.files_created, merged.failures) == (6, 2, ())
    check_every_snapshot(lake_address, lake)
    lake.table("t").append(ROWS.slice(300, 100))
    with attached(lake_address) as duck:
        duck.run("CALL ducklake_merge_adjacent_files('lake')")
    lake.table("t").delete("k < 10")
    lake.expire_snapshots(older_than=timedelta(0), min_age=timedelta(0))
    before = all_encrypted(lake_address)
    cleaned = lake.cleanup_old_files(older_than=timedelta(0), min_age=timedelta(0))
    assert not cleaned.failed
    assert all_encrypted(lake_address) == before - len(cleaned.files) == 4
    with attached(lake_address) as duck:
        assert_same_rows(duck, lake.table("t").scan().to_arrow(), "FROM t")
        assert duck.value("SELECT count(*) FROM t") == 390


def test_a_delete_file_written_again_for_a_later_snapshot(sqlite_address: LakeAddress) -> None:
    lake = create(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", ROWS)
    lake.table("t").delete("k = 0")
    with lake.transaction() as tx:
        tx.delete("t", "k < 30")
        lake.write("other", ROWS)
    check_every_snapshot(sqlite_address, lake)
    assert all_encrypted(sqlite_address) == 4  # of both tables, and both delete files: the first is scheduled for deletion


def test_a_plain_file_is_never_committed(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = create(sqlite_address)
    lake.write("t", ROWS)
    monkeypatch.setattr("ducklake_core.staging.staged_table.WriteState", lambda **state: WriteState(**state | {"encrypted": False}))
    with pytest.raises(CommitError, match="is not encrypted, but the lake is"):
        lake.table("t").append(ROWS)
    assert all_encrypted(sqlite_address) == 1


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("after", [0, 2])
def test_a_full_disk(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, after: int, *, encrypted: bool) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, encrypted=encrypted)
    lake.set_option("parquet_row_group_size", 500)
    lake.write("t", ROWS)
    written = 0
    write_table = pq.ParquetWriter.write_table

    def full(self: pq.ParquetWriter, *arguments: Any, **options: Any) -> None:
        nonlocal written
        written += 1
        if written > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_table(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageError, match="No space left"):
        lake.table("t").append(ROWS)
    monkeypatch.undo()
    assert len(list(Path(sqlite_address.data_path).rglob("*.parquet"))) == 1
    lake.table("t").append(ROWS)
    assert lake.table("t").scan().count() == 6000


def test_encryption_keys_are_never_shown(
    sqlite_address: LakeAddress, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    random = EncryptionKey.random

    def noted() -> EncryptionKey:
        made.append(random().base64_text)
        return EncryptionKey(made[-1])

    monkeypatch.setattr(EncryptionKey, "random", noted)
    caplog.set_level(logging.DEBUG)
    lake = create(sqlite_address)
    shown = [repr(lake.write("t", ROWS)), repr(lake.table("t").delete("k < 19"))]
    # The catalog rejects the row that holds the key.
    with lake.database.write() as connection:
        connection.exec_driver_sql("CREATE TRIGGER reject BEFORE INSERT ON ducklake_data_file BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(DuckLakeError) as raised:
        lake.table("t").append(ROWS)
    assert len(made) == 3
    waiting: list[BaseException | None] = [raised.value]
    seen: set[int] = set()
    while waiting:
        error = waiting.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            shown.append(f"{error!r}{error}{vars(error) if isinstance(error, DuckLakeError) else ''}")
            waiting += [error.__cause__, error.__context__]
    text = "".join(shown) + caplog.text
    assert not [key for key in made if key in text]
    assert all_encrypted(sqlite_address) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_row_groups_leave_memory_as_they_are_full(tmp_path: Path, version: int) -> None:
    schema = with_ids(Schema(columns=(Field(id=0, name="i", type=INT64), Field(id=0, name="s", type=VARCHAR))))
    options = Options(parquet_row_group_size=1000, parquet_version=version, parquet_compression="zstd")
    writer = FileWriter(Storage(), f"{tmp_path}/", "f.parquet", schema, options, encrypted=True)
    batch = cast_to(pa.record_batch({"i": list(range(10_000)), "s": [f"text {i}" for i in range(10_000)]}), schema)
    sizes = []
    for start in range(0, 10_000, 1000):
        writer.write(batch.slice(start, 1000))
        writer.flush()
        writer._wait()
        assert writer._encrypting is not None
        assert not writer._encrypting._pending
        sizes.append(writer.estimated_size)
    assert sizes == sorted(sizes)
    written = writer.close()
    assert written.encryption_key is not None
    with open_parquet(Storage(), f"{tmp_path}/f.parquet", written.encryption_key) as source:
        file = pq.ParquetFile(source)
        assert file.metadata.num_row_groups == 10
        assert file.read().column("i").to_pylist() == list(range(10_000))
    assert written.file_size_bytes == (tmp_path / "f.parquet").stat().st_size
    assert sum(column.column_size_bytes for column in written.statistics) < written.file_size_bytes


def test_spark_writes(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = create(sqlite_address)
    frame = spark.range(0, 900).selectExpr("id AS k", "concat('v', id % 50) AS s", "id % 3 AS p")
    shown = [repr(lake.write("t", frame, partition_by=["p"]))]
    shown.append(repr(lake.table("t").upsert(frame.where("k % 10 = 0").selectExpr("k", "'new' AS s", "p"), on=["k"])))
    shown.append(repr(lake.table("t").overwrite(frame.where("k < 30"), where="k < 50")))
    shown.append(repr(lake.merge_adjacent_files(spark=spark)))
    read = lake.table("t").scan().to_spark(spark)
    shown.append(read._jdf.queryExecution().toString())  # type: ignore[operator]
    keys = keys_of(lake)
    assert len(keys) == len(set(keys)) >= 6
    assert not [key for key in keys if key in "".join(shown)]
    check_every_snapshot(sqlite_address, lake)
    all_encrypted(sqlite_address)
    # Directories would show partition values that the files hide.
    assert {file.parent.name for file in Path(sqlite_address.data_path).rglob("*.parquet")} == {"t"}
