"""Options of every scope decide how files are written, as they decide for DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.errors import UsageError
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import spread
from tests.support.scans import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table(
    {
        "i": pa.array(range(50_000), pa.int64()),
        "s": [f"t{i % 40}" for i in range(50_000)],
        "d": [i / 3 for i in range(50_000)],
        "u": [f"text {i}" for i in range(50_000)],
    }
)


def footers(address: LakeAddress, name: str = "t") -> list[pq.FileMetaData]:
    files = sorted(Path(address.data_path).rglob(f"{name}/**/*.parquet"))
    return [pq.ParquetFile(file).metadata for file in files if "delete" not in file.name]


def row_groups(metadata: pq.FileMetaData) -> list[int]:
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def shape(metadata: pq.FileMetaData) -> tuple[set[str], list[set[str]]]:
    """Codecs, and per column the encodings of values; those of levels and dictionaries are left out."""
    chunks = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    values = [{_modern(e) for e in chunk.encodings} - {"RLE"} for chunk in chunks]
    return {chunk.compression for chunk in chunks}, [v - {"PLAIN"} if "DICTIONARY" in v else v for v in values]


def _modern(encoding: str) -> str:
    return "DICTIONARY" if "DICTIONARY" in encoding else encoding


@pytest.fixture
def by_duckdb(tmp_path: Path) -> LakeAddress:
    (tmp_path / "duckdb").mkdir()
    return sqlite_lake(tmp_path / "duckdb")


@pytest.mark.parametrize(
    "options",
    spread(
        [
            *({"parquet_compression": codec} for codec in ("uncompressed", "gzip", "zstd", "brotli", "lz4", "lz4_raw")),
            {"parquet_compression": "zstd", "parquet_compression_level": 19},
            {"parquet_version": 1},
            {"parquet_version": 2},
        ],
        3,
    ),
    ids=str,
)
def test_files_equal_those_of_duckdb(sqlite_address: LakeAddress, by_duckdb: LakeAddress, options: dict[str, Any]) -> None:
    lake = lake_of_files(sqlite_address)
    with attached(by_duckdb, "DATA_INLINING_ROW_LIMIT 0") as duck:
        for name, value in options.items():
            duck.run(f"CALL lake.set_option('{name}', '{value}')")
            lake.set_option(name, value)
        duck.connection.register("rows", ROWS)
        duck.run("CREATE TABLE t AS FROM rows")
        duck.connection.unregister("rows")
    lake.write("t", ROWS)
    (own,), (other,) = footers(sqlite_address), footers(by_duckdb)
    assert shape(own) == shape(other)
    assert (
        0.7 < lake.table_info("t").file_size_bytes / Path(by_duckdb.data_path).joinpath("main/t").iterdir().__next__().stat().st_size < 1.4
    )
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, ROWS, "FROM t")


def test_row_groups(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    lake.set_option("parquet_row_group_size", 9000)
    lake.write("t", ROWS.to_batches(max_chunksize=7000)[0].schema.empty_table())
    lake.table("t").append(pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches(max_chunksize=7000)))
    (metadata,) = footers(sqlite_address)
    assert row_groups(metadata) == [9000] * 5 + [5000]
    lake.set_option("parquet_row_group_size_bytes", "100KB")
    lake.write("small", ROWS)
    (metadata,) = footers(sqlite_address, "small")
    expected = 100_000 / (ROWS.nbytes / ROWS.num_rows)
    assert len(row_groups(metadata)) > 10
    assert all(0.9 * expected < rows <= expected for rows in row_groups(metadata)[:-1])


def test_one_large_table_becomes_files_of_the_target_size(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    lake.set_option("target_file_size", "200KB")
    done = lake.write("t", ROWS.combine_chunks())
    sizes = [file.file_size_bytes for file in lake.table("t").list_files()]
    assert done.files_added == len(sizes) > 3
    assert max(sizes) < 400_000
    with attached(sqlite_address) as duck:
        assert_same_rows(duck, ROWS, "FROM t")


def test_the_narrowest_scope_wins(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    lake.create_schema("other")
    for name in ("t", "u", "other.t", "other.u"):
        lake.create_table(name, ROWS.schema)
    lake.set_option("parquet_compression", "gzip")
    with attached(sqlite_address) as duck:
        duck.run(
            "CALL lake.set_option('parquet_compression', 'zstd', schema => 'other')",
            "CALL lake.set_option('parquet_compression', 'brotli', schema => 'other', table_name => 'u')",
        )
    for name, codec in (("t", "GZIP"), ("u", "GZIP"), ("other.t", "ZSTD"), ("other.u", "BROTLI")):
        lake.write(name, ROWS.slice(0, 100))
        (file,) = lake.table(name).list_files()
        assert pq.ParquetFile(file.path).metadata.row_group(0).column(0).compression == codec
    # A table that the same transaction creates has no options of its own, but its schema's.
    lake.write("other.fresh", ROWS.slice(0, 100))
    (file,) = lake.table("other.fresh").list_files()
    assert pq.ParquetFile(file.path).metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("codec", "level", "message"),
    [
        ("snappy", 5, "snappy has no levels"),
        ("lz4", 1, "no levels"),
        ("zstd", 30, "0 to 22"),
        ("gzip", 0, "1 to 9"),
        ("brotli", 12, "0 to 11"),
    ],
)
def test_a_level_that_the_codec_lacks(sqlite_address: LakeAddress, codec: str, level: int, message: str) -> None:
    lake = lake_of_files(sqlite_address)
    lake.write("t", ROWS.slice(0, 10))
    lake.set_option("parquet_compression", codec)
    lake.set_option("parquet_compression_level", level)
    with pytest.raises(UsageError, match=message):
        lake.table("t").append(ROWS)
    assert len(footers(sqlite_address)) == 1


def test_merged_files_follow_them_too(sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    for start in (0, 100):
        lake.write("t", ROWS.slice(start, 100))
    lake.set_option("parquet_compression", "zstd")
    lake.set_option("parquet_row_group_size", 60)
    lake.merge_adjacent_files()
    (file,) = lake.table("t").list_files()
    metadata = pq.ParquetFile(file.path).metadata
    assert row_groups(metadata) == [60, 60, 60, 20]
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_on_spark(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    lake = lake_of_files(sqlite_address)
    for name, value in {"parquet_compression": "zstd", "parquet_version": 2, "parquet_row_group_size": 100}.items():
        lake.set_option(name, value)
    frame = spark.range(0, 900, 1, 3).selectExpr("id AS k", "id % 2 AS p", "id / 7 AS d", "concat('unique ', id) AS s")
    done = lake.write("t", frame, partition_by=["p"])
    assert done.files_added == 2
    for metadata in footers(sqlite_address):
        assert row_groups(metadata) == [100, 100, 100, 100, 50]
        assert shape(metadata)[0] == {"ZSTD"}
    # Spark's own reader reads what version 2 brings along.
    assert {task.native_obstacle for task in lake.table("t").scan().plan().plan.tasks} == {None}
    assert lake.table("t").scan().to_spark(spark).selectExpr("sum(k)", "sum(d)", "count(distinct s)").collect()[0][::2] == (404550, 900)
    lake.set_option("per_thread_output", True)
    assert lake.table("t").append(frame).files_added == 6
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), sum(k), count(DISTINCT s) FROM t") == [(1800, 809100, 900)]
