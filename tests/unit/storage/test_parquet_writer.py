"""Data files: options, types, statistics, and the row groups that batches are gathered in."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import write_table
from ducklake_core.errors import StorageError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.options import Options
from ducklake_core.format.types.data_types import BLOB, INT64, Field
from ducklake_core.format.types.schema import Schema, from_arrow_schema, with_ids
from ducklake_core.format.values.value_text import to_text
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_files import read_footer
from ducklake_core.storage.parquet_writer import FileWriter
from tests.support.oracle import LakeAddress, attached, new_connection
from tests.support.parameters import spread

# Every column: Arrow values, DuckDB type. NULL in one row, and a nested NULL and empty parent where there is one.
COLUMNS: dict[str, tuple[pa.Array, str]] = {
    "bool": (pa.array([True, None, False]), "BOOLEAN"),
    "i8": (pa.array([-128, None, 127], pa.int8()), "TINYINT"),
    "i16": (pa.array([-5, None, 7], pa.int16()), "SMALLINT"),
    "i32": (pa.array([1, None, -7], pa.int32()), "INTEGER"),
    "i64": (pa.array([2**62, None, -(2**62)], pa.int64()), "BIGINT"),
    "u8": (pa.array([200, None, 3], pa.uint8()), "UTINYINT"),
    "u16": (pa.array([60000, None, 3], pa.uint16()), "USMALLINT"),
    "u32": (pa.array([2**32 - 1, None, 3], pa.uint32()), "UINTEGER"),
    "u64": (pa.array([2**64 - 1, None, 3], pa.uint64()), "UBIGINT"),
    "f32": (pa.array([0.1, None, -2.5], pa.float32()), "FLOAT"),
    "f64": (pa.array([1e300, math.nan, 1e-5], pa.float64()), "DOUBLE"),
    "inf": (pa.array([math.inf, None, -math.inf], pa.float64()), "DOUBLE"),
    "d9": (pa.array([Decimal("-1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)), "DECIMAL(9,2)"),
    "d18": (pa.array([Decimal("-1.50"), None, Decimal("12345678901.25")], pa.decimal128(18, 2)), "DECIMAL(18,2)"),
    "d38": (pa.array([Decimal("-1.50"), None, Decimal(10**30)], pa.decimal128(38, 2)), "DECIMAL(38,2)"),
    "day": (pa.array([date(1969, 12, 31), None, date(2024, 2, 29)]), "DATE"),
    "tm": (pa.array([time(1, 2, 3, 500000), None, time(23, 59, 59)], pa.time64("us")), "TIME"),
    "ts": (pa.array([-82_677_000_000, None, 1_704_067_200_000_005], pa.timestamp("us")), "TIMESTAMP"),
    "ts_ms": (pa.array([-1500, None, 10**12 + 1], pa.timestamp("ms")), "TIMESTAMP_MS"),
    "ts_s": (pa.array([-1, None, 10**9], pa.timestamp("s")), "TIMESTAMP_S"),
    "ts_ns": (pa.array([-1, None, 10**18 + 1], pa.timestamp("ns")), "TIMESTAMP_NS"),
    "tstz": (pa.array([-1, None, 10**15], pa.timestamp("us", "Asia/Tokyo")), "TIMESTAMPTZ"),
    "s": (pa.array(["ä", None, "a" * 300]), "VARCHAR"),
    "huge_s": (pa.array(["b" * 5000, None, "a"]), "VARCHAR"),
    "b": (pa.array([b"\x00\xff", None, b"abc"]), "BLOB"),
    "id": (pa.array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2**127).bytes], pa.binary(16)).cast(pa.uuid()), "UUID"),
    "l": (pa.array([[1, None], [], [3]], pa.list_(pa.int32())), "INTEGER[]"),
    "lf": (pa.array([[1.5, math.nan], None, [2.5]], pa.list_(pa.float64())), "DOUBLE[]"),
    "st": (pa.array([{"x": 1, "y": "p"}, None, {"x": None, "y": "q"}]), "STRUCT(x BIGINT, y VARCHAR)"),
    "m": (pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float64())), "MAP(VARCHAR, DOUBLE)"),
    "deep": (pa.array([[{"a": [1]}, None], [], None], pa.list_(pa.struct([("a", pa.list_(pa.int64()))]))), "STRUCT(a BIGINT[])[]"),
}
TABLE = pa.table({name: values for name, (values, _) in COLUMNS.items()})


def state_of(table: pa.Table, folder: Path, **changes: object) -> WriteState:
    state = WriteState(table="main.t", directory=f"{folder}/", schema=with_ids(from_arrow_schema(table.schema)))
    return replace(state, **changes)  # type: ignore[arg-type]


def by_partition(files: tuple[WrittenFile, ...]) -> dict[tuple[str | None, ...], int]:
    counts: dict[tuple[str | None, ...], int] = {}
    for file in files:
        counts[file.partition_values] = counts.get(file.partition_values, 0) + file.record_count
    return counts


def key(column: str, transform: str = "identity", column_id: int = 1, buckets: int | None = None) -> PartitionField:
    return PartitionField(column_id=column_id, column=column, transform=transform, buckets=buckets)  # type: ignore[arg-type]


def test_statistics_are_those_of_duckdb(tmp_path: Path, sqlite_address: LakeAddress) -> None:
    (by_library,) = write_table(TABLE, state_of(TABLE, tmp_path / "written"))
    leaves = {leaf.id: leaf for leaf in state_of(TABLE, tmp_path).schema.leaves()}
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (" + ", ".join(f'"{name}" {kind}' for name, (_, kind) in COLUMNS.items()) + ")")
        duck.connection.register("source", TABLE)
        duck.run("INSERT INTO t SELECT * FROM source")
        by_duckdb = duck.rows(
            "SELECT column_id, value_count, null_count, min_value, max_value, contains_nan "
            "FROM __ducklake_metadata_lake.ducklake_file_column_stats ORDER BY column_id"
        )
    mine = [(s.column_id, s.value_count, s.null_count, s.min_value, s.max_value, s.contains_nan) for s in by_library.statistics]
    assert len(mine) == len(leaves)
    for library_row, duckdb_row in zip(mine, by_duckdb, strict=True):
        same_nan = duckdb_row[5] is None or bool(duckdb_row[5]) == library_row[5]
        assert library_row[:5] == duckdb_row[:5], leaves[library_row[0]]
        assert same_nan, leaves[library_row[0]]


def test_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    state = state_of(TABLE, tmp_path)
    (file,) = write_table(TABLE, state)
    footer = read_footer(Storage(), f"{tmp_path}/{file.path}")
    assert (file.record_count, file.file_size_bytes, file.footer_size) == (footer.record_count, footer.file_size_bytes, footer.footer_size)
    assert sum(s.column_size_bytes for s in file.statistics) < file.file_size_bytes
    assert file.path[-20:-8] == state.write_id[12:]


def test_bounds_over_several_row_groups(tmp_path: Path) -> None:
    table = pa.table({
        "i": pa.array([5, 1, 9, 3], pa.uint64()), "s": ["m" * 5000, "b", "z", "a" * 5000], "f": [1.0, 2.0, math.nan, 0.5],
        "n": pa.array([None, None, None, 1], pa.int32()), "t": ["x" * 300, "y", "c", "d"],
    })  # fmt: skip
    (file,) = write_table(table, state_of(table, tmp_path, options=Options(parquet_row_group_size=2)))
    assert pq.ParquetFile(f"{tmp_path}/{file.path}").num_row_groups == 2
    i, s, f, n, t = file.statistics
    assert (i.min_value, i.max_value) == ("1", "9")
    assert (s.min_value, s.max_value, s.exact_min) == ("a" * 256, "z", "a" * 5000)
    assert (f.min_value, f.max_value, f.contains_nan) == ("0.5", "2.0", True)
    assert (n.value_count, n.null_count, n.min_value) == (1, 3, "1")
    assert (t.min_value, t.max_value) == ("c", "y")


def test_nan_below_null_and_in_other_slices_does_not_count(tmp_path: Path) -> None:
    floats = pa.map_(pa.string(), pa.float64())
    whole = pa.array([[("a", math.nan)], [("b", 1.0)], [("c", math.nan)]], floats)
    table = pa.table({"m": pa.chunked_array([whole.slice(1, 1)])})
    (file,) = write_table(table, state_of(table, tmp_path))
    assert [s.contains_nan for s in file.statistics] == [None, False]


@pytest.mark.parametrize("compression", spread(["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw"], 3))
@pytest.mark.parametrize("version", [1, 2])
def test_options_reach_the_file(tmp_path: Path, compression: str, version: int) -> None:
    options = Options(parquet_compression=compression, parquet_version=version)  # type: ignore[arg-type]
    (file,) = write_table(TABLE, state_of(TABLE, tmp_path, options=options))
    duck = new_connection()
    path = f"{tmp_path}/{file.path}"
    codecs = {row[0] for row in duck.execute(f"SELECT DISTINCT compression FROM parquet_metadata('{path}')").fetchall()}
    assert codecs == {{"lz4": "LZ4_RAW"}.get(compression, compression.upper())}
    assert duck.execute(f"SELECT count(*), count(i32) FROM read_parquet('{path}')").fetchall() == [(3, 2)]
    duck.close()


def test_files_roll_at_the_target_size(tmp_path: Path) -> None:
    table = pa.table({"i": pa.array(range(400_000)), "s": [f"value {i * 7919 % 1000003}" for i in range(400_000)]})
    batches = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=10_000))
    files = write_table(batches, state_of(table, tmp_path, options=Options(target_file_size=1_000_000)))
    assert len(files) > 3
    assert sum(file.record_count for file in files) == 400_000
    assert all(500_000 < file.file_size_bytes < 2_000_000 for file in files[:-1])
    assert len({file.path for file in files}) == len(files)


def test_partitions_are_split_and_named(tmp_path: Path) -> None:
    table = pa.table({
        "c": ["UA", "A/A", None, "UA", ""],
        "ts": pa.array([0, 10**15, None, 1, -1], pa.timestamp("us", "UTC")),
        "n": pa.array([1, 2, 3, 4, 5]),
    })  # fmt: skip
    spec = PartitionSpec(id=1, fields=(key("c"), key("ts", "year", 2)))
    state = state_of(table, tmp_path, partition_spec=spec)
    files = write_table(table, state)
    assert by_partition(files) == {("UA", "1970"): 2, ("A/A", "2001"): 1, (None, None): 1, ("", "1969"): 1}
    assert {file.path.rpartition("/")[0] for file in files} == {
        "c=UA/year=1970", "c=A%2FA/year=2001", "c=__HIVE_DEFAULT_PARTITION__/year=__HIVE_DEFAULT_PARTITION__", "c=/year=1969",
    }  # fmt: skip
    read = pa.concat_tables(pq.ParquetFile(f"{tmp_path}/{file.path}").read() for file in files)
    assert sorted(read.column("n").to_pylist()) == [1, 2, 3, 4, 5]
    flat = write_table(table, replace(state, directory=f"{tmp_path}/flat/", options=Options(hive_file_pattern=False)))
    assert all("/" not in file.path for file in flat)


def test_many_partitions_stay_within_the_limit_of_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ducklake_core.engines.arrow.writer.MAX_OPEN_FILES", 3)
    table = pa.table({"k": pa.array([i % 10 for i in range(1000)]), "v": pa.array(range(1000))})
    files = write_table(table, state_of(table, tmp_path, partition_spec=PartitionSpec(id=1, fields=(key("k"),))))
    assert by_partition(files) == {(str(k),): 100 for k in range(10)}


def test_little_memory_flushes_instead_of_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ducklake_core.engines.arrow.writer.GATHERED_BYTES", 1000)
    table = pa.table({"k": pa.array([i % 4 for i in range(4000)]), "v": pa.array(range(4000))})
    files = write_table(table, state_of(table, tmp_path, partition_spec=PartitionSpec(id=1, fields=(key("k"),))))
    assert by_partition(files) == {(str(k),): 1000 for k in range(4)}


def test_a_broken_promise_names_the_row_and_leaves_nothing(tmp_path: Path) -> None:
    table = pa.table({"carrier": ["UA", "UA", "AA"], "n": [1, 2, 3]})
    state = state_of(table, tmp_path)
    promised = replace(state, row_constraint=bind("carrier = 'UA'", state.schema))
    with pytest.raises(UsageError, match=r"main\.t.*carrier = 'AA'"):
        write_table(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1)), promised)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    (file,) = write_table(table.slice(0, 2), promised)
    assert file.record_count == 2
    with pytest.raises(UsageError, match="carrier = None"):
        write_table(pa.table({"carrier": pa.array([None], pa.string()), "n": [1]}), promised)


def test_failure_in_the_middle_deletes_finished_files(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "v": pa.array([1, 2])})

    def batches() -> object:
        yield from table.to_batches(max_chunksize=1)
        raise RuntimeError("the source broke")

    state = state_of(table, tmp_path, partition_spec=PartitionSpec(id=1, fields=(key("k"),)), options=Options(target_file_size=1))
    with pytest.raises(RuntimeError, match="the source broke"):
        write_table(pa.RecordBatchReader.from_batches(table.schema, batches()), state)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_unwritable_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot create"):
        write_table(TABLE, state_of(TABLE, tmp_path / "file"))


def test_another_version_of_the_library_raises(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="Install the same version"):
        write_table(TABLE, state_of(TABLE, tmp_path, version=99))


def test_unpartitioned_rows_keep_their_order(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array(range(300_000))})
    (file,) = write_table(table, state_of(table, tmp_path, options=Options(parquet_row_group_size=70_000)))
    assert pq.ParquetFile(f"{tmp_path}/{file.path}").read().column("v").to_pylist() == list(range(300_000))


def test_system_columns_have_no_statistics(tmp_path: Path) -> None:
    from ducklake_core.format.files.data_files import ROW_ID_COLUMN, ROW_ID_FIELD_ID

    table = pa.table({"a": pa.array([1, 2], pa.int32()), ROW_ID_COLUMN: pa.array([7, 9], pa.int64())})
    schema = Schema(
        columns=(
            Field(id=1, name="a", type=from_arrow_schema(table.schema).columns[0].type),
            Field(id=ROW_ID_FIELD_ID, name=ROW_ID_COLUMN, type=INT64),
        )
    )
    (file,) = write_table(table, state_of(table, tmp_path, schema=schema))
    assert file.row_ids_embedded
    assert [s.column_id for s in file.statistics] == [1]


SCHEMA = pa.schema({"s": pa.string(), "b": pa.binary(), "l": pa.list_(pa.string()), "o": pa.struct({"x": pa.string()})})
LONG = 5000


def text(dice: random.Random) -> str | None:
    letter = dice.choice("aäbyz€")
    return dice.choices([None, letter * LONG, letter, ""], [2, 1, 5, 1])[0]


def batches(dice: random.Random) -> Iterator[pa.RecordBatch]:
    for _ in range(dice.randint(1, 6)):
        rows = [text(dice) for _ in range(dice.randint(1, 3))]
        columns = [
            pa.array(rows),
            pa.array([None if one is None else one.encode() for one in rows], pa.binary()),
            pa.array([dice.choice([None, [], [one], [one, text(dice)]]) for one in rows], pa.list_(pa.string())),
            pa.array([dice.choice([None, {"x": one}]) for one in rows], pa.struct({"x": pa.string()})),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_are_those_of_all_batches(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    given = list(batches(dice))
    options = Options(parquet_row_group_size=dice.choice([2, 4, 100]))
    writer = FileWriter(Storage(), f"{tmp_path}/", "f.parquet", with_ids(from_arrow_schema(SCHEMA)), options=options)
    for batch in given:
        writer.write(batch)
    file = writer.close()
    rows = pa.Table.from_batches(given).to_pydict()
    leaves: list[list[Any]] = [
        [one for one in rows["s"] if one is not None],
        [one for one in rows["b"] if one is not None],
        [one for many in rows["l"] for one in many or () if one is not None],
        [one["x"] for one in rows["o"] if one is not None and one["x"] is not None],
    ]
    for values, found in zip(leaves, file.statistics, strict=True):
        assert found.value_count == len(values)
        cut = found.exact_min is not None
        known = (found.exact_min, found.exact_max) if cut else (found.min_value, found.max_value)
        least, greatest = (min(values), max(values)) if values else (None, None)
        assert known == ((to_text(least, BLOB), to_text(greatest, BLOB)) if isinstance(least, bytes) else (least, greatest))
