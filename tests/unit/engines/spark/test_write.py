"""Frames written by Spark executors: the same rows, types and files as DuckDB would see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.spark.types import from_spark_schema, to_spark_type
from ducklake_core.engines.spark.write import write_frame
from ducklake_core.errors import SchemaError, StorageError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.files.paths import new_file_name
from ducklake_core.format.types.schema import with_ids
from tests.support.oracle import new_connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# One expression per Spark type that can be written, and what DuckDB shows for it in the file.
TYPES = {
    "1Y": ("int8", "1"),
    "2S": ("int16", "2"),
    "cast(3 as int)": ("int32", "3"),
    "4L": ("int64", "4"),
    "cast(1.5 as float)": ("float32", "1.5"),
    "2.5D": ("float64", "2.5"),
    "1.25BD": ("decimal(3,2)", "1.25"),
    "cast(12345678901234567890.5 as decimal(38,3))": ("decimal(38,3)", "12345678901234567890.500"),
    "'ä'": ("varchar", "ä"),
    "X'00FF'": ("blob", "\\x00\\xFF"),
    "true": ("boolean", "true"),
    "date'1969-12-31'": ("date", "1969-12-31"),
    "timestamp'2020-07-01 12:00:00.000001'": ("timestamptz", "2020-07-01 16:00:00.000001+00"),
    "timestamp_ntz'2020-07-01 12:00:00'": ("timestamp", "2020-07-01 12:00:00"),
    "time'12:34:56.5'": ("time", "12:34:56.5"),
    "interval '1 02:03:04.5' day to second": ("interval", "26:03:04.5"),
    "interval '1-2' year to month": ("interval", "1 year 2 months"),
    "make_interval(1, 2, 3, 4)": ("interval", "1 year 2 months 25 days"),
    "array(1, null)": ("list<int32>", "[1, NULL]"),
    "map('a', timestamp'2020-01-01 00:00:00')": ("map<varchar, timestamptz>", "{a='2020-01-01 05:00:00+00'}"),
    "named_struct('x', 1, 'y', array('z'))": ("struct<x: int32, y: list<varchar>>", "{'x': 1, 'y': [z]}"),
    "cast(null as void)": ("int32", None),
    "cast(null as map<string,int>)": ("map<varchar, int32>", None),
}


def state_of(df: DataFrame, folder: Path, **changes: object) -> WriteState:
    state = WriteState(table="main.t", directory=f"{folder}/", schema=with_ids(from_spark_schema(df.schema)))
    return replace(state, **changes)  # type: ignore[arg-type]


def spec(*keys: tuple[str, int, str, int | None]) -> PartitionSpec:
    return PartitionSpec(
        id=1,
        fields=tuple(PartitionField(column=c, column_id=i, transform=t, buckets=n) for c, i, t, n in keys),  # type: ignore[arg-type]
    )


def rows_of(files: tuple[WrittenFile, ...], folder: Path) -> list[dict[str, object]]:
    return [row for file in files for row in pq.ParquetFile(f"{folder}/{file.path}").read().to_pylist()]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_every_type_in_a_session_far_from_utc(spark: SparkSession, tmp_path: Path) -> None:
    far = spark.newSession()
    far.conf.set("spark.sql.session.timeZone", "America/New_York")
    df = far.sql("SELECT " + ", ".join(f"{text} AS c{i}" for i, text in enumerate(TYPES)))
    state = state_of(df, tmp_path)
    assert [str(column.type) for column in state.schema] == [kind for kind, _ in TYPES.values()]
    (file,) = write_frame(df, state)
    duck = new_connection()
    duck.execute("SET TimeZone = 'UTC'")
    kinds = {"interval": "INTERVAL"}
    columns = ", ".join(
        f"CAST(CAST(c{i} AS {kinds[kind]}) AS VARCHAR)" if kind in kinds else f"CAST(c{i} AS VARCHAR)"
        for i, (kind, _) in enumerate(TYPES.values())
    )
    (row,) = duck.execute(f"SELECT {columns} FROM read_parquet('{tmp_path}/{file.path}')").fetchall()
    duck.close()
    assert dict(zip(TYPES, row, strict=True)) == {text: shown for text, (_, shown) in TYPES.items()}


@pytest.mark.parametrize(
    ("expression", "named"),
    [("'a' COLLATE UTF8_LCASE", "collation"), ("array(interval '1' year)", "c.element"), ("named_struct('v', interval '1' year)", "c.v")],
)
def test_types_that_cannot_be_carried_are_named(spark: SparkSession, expression: str, named: str) -> None:
    df = spark.sql(f"SELECT {expression} AS c")
    with pytest.raises(UnsupportedFeatureError, match=named):
        from_spark_schema(df.schema)


def test_types_come_back_from_what_was_written(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT 1Y a, 2.5D b, array(named_struct('x', timestamp_ntz'2020-01-01 00:00:00')) c, map('k', 1.25BD) d, time'01:02:03' e"
    )
    found = {column.name: to_spark_type(column.type).simpleString() for column in from_spark_schema(df.schema)}
    assert found == {field.name: field.dataType.simpleString() for field in df.schema}


def test_rows_of_all_tasks_arrive_once(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 10_000, 1, 5).selectExpr("id", "id % 7 as k")
    files = write_frame(df, state_of(df, tmp_path))
    assert len(files) == 5
    assert sorted(row["id"] for row in rows_of(files, tmp_path)) == list(range(10_000))  # type: ignore[type-var]
    assert sorted(str(path.relative_to(tmp_path)) for path in files_in(tmp_path)) == sorted(file.path for file in files)
    assert {(s.column_id, s.null_count) for file in files for s in file.statistics} == {(1, 0), (2, 0)}


def test_rows_without_columns_raise(spark: SparkSession, tmp_path: Path) -> None:
    state = state_of(spark.range(1), tmp_path)
    with pytest.raises(SchemaError, match=r"main\.t.*rows but no columns"):
        write_frame(spark.range(3).select(), state)
    assert write_frame(spark.range(0).select(), state) == ()
    assert files_in(tmp_path) == []


def test_partitions_get_one_file_each_for_any_number_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 10_000, 1, 8).selectExpr("id", 'cast(id % 5 as string) as `we"ird, k.ä`', "timestamp_seconds(id * 10000) as ts")
    keys = spec(('we"ird, k.ä', 2, "identity", None), ("ts", 3, "year", None))
    files = write_frame(df, state_of(df, tmp_path, partition_spec=keys))
    values = [file.partition_values for file in files]
    assert len(values) == len(set(values)) == 5 * 4
    assert sorted(row["id"] for row in rows_of(files, tmp_path)) == list(range(10_000))  # type: ignore[type-var]
    scattered = write_frame(df, state_of(df, tmp_path / "s", partition_spec=keys, distribute=False))
    assert len(scattered) > len(files)
    assert sum(file.record_count for file in scattered) == 10_000


def test_calendar_parts_are_taken_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    far = spark.newSession()
    far.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    df = far.createDataFrame([(1,)], "n int").selectExpr("timestamp_seconds(1719864000) as ts")
    keys = spec(*((("ts", 1, part, None)) for part in ("year", "month", "day", "hour")))
    (file,) = write_frame(df, state_of(df, tmp_path, partition_spec=keys))
    assert file.partition_values == ("2024", "7", "1", "20")


def test_buckets_are_brought_together(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 1000, 1, 6).selectExpr("cast(id as int) as a", "id % 2 as b")
    files = write_frame(df, state_of(df, tmp_path, partition_spec=spec(("a", 1, "bucket", 4), ("b", 2, "identity", None))))
    assert sorted(file.partition_values for file in files) == [(str(n), str(b)) for n in range(4) for b in range(2)]
    assert sum(file.record_count for file in files) == 1000
    buckets = {row["a"]: file.partition_values[0] for file in files for row in rows_of((file,), tmp_path)}
    assert [buckets[n] for n in (1, 2, 3)] == ["0", "0", "3"]


def test_errors_of_executors_arrive_as_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 4).selectExpr("id", "if(id = 50, null, 'x') as s")
    state = state_of(df, tmp_path)
    strict = replace(
        state, schema=replace(state.schema, columns=(state.schema.columns[0], replace(state.schema.columns[1], nullable=False)))
    )
    with pytest.raises(SchemaError, match=r"main\.t.*'s' is NOT NULL"):
        write_frame(df, strict)
    # Two tasks fail, each in its first row that is wrong; either may be the first to fail.
    with pytest.raises(UsageError, match=r"id = (60|75)\b"):
        write_frame(df, replace(state, row_constraint=bind("id < 60", state.schema)))
    with pytest.raises(UnsupportedFeatureError, match="Install the same version"):
        write_frame(df, replace(state, version=99))
    assert files_in(tmp_path) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot create"):
        write_frame(df, replace(state, directory=f"{tmp_path}/file/"))


def test_a_frame_that_fails_leaves_nothing_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    stranger = tmp_path / new_file_name("0198c1f20000000000c0ffee")
    stranger.write_bytes(b"of another write")
    df = spark.range(0, 100, 1, 2).selectExpr("id", "if(id = 99, raise_error('the frame broke'), 1) as n")
    with pytest.raises(Exception, match="the frame broke"):
        write_frame(df, state_of(df, tmp_path))
    assert files_in(tmp_path) == [stranger]


def test_files_of_lost_attempts_are_swept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    df = spark.range(0, 10, 1, 1)
    state = state_of(df, tmp_path)
    lost = tmp_path / new_file_name(state.write_id)
    lost.write_bytes(b"half a file")
    monkeypatch.setattr("ducklake_core.engines.spark.work_units.speculates", lambda _: True)
    (file,) = write_frame(df, state)
    assert files_in(tmp_path) == [tmp_path / file.path]


def test_small_batches_make_the_same_file(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    df = session.range(0, 1000, 1, 1)
    (file,) = write_frame(df, state_of(df, tmp_path))
    parquet = pq.ParquetFile(f"{tmp_path}/{file.path}")
    assert (parquet.num_row_groups, parquet.metadata.num_rows) == (1, 1000)
    assert session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "7"
