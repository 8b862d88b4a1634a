"""Planning without a catalog or a file: which way a file is read, and how files are dealt out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from ducklake_core.engines.spark.tasks import bin_pack, split_tasks
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile, DeleteFile, EncryptionKey
from ducklake_core.format.types.data_types import FLOAT64, INT32, INT64, TIME, VARCHAR, DecimalType, Field, ListType, StructType
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.native import ColumnVersion, ReadFeatures, misnamed, native_obstacle, trusts_bounds
from ducklake_core.planning.plan import FileTask

NAME = "ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"
FILE = DataFile(
    id=7, table_id=1, directory="/lake/main/t/", relative_path=NAME, record_count=10, file_size_bytes=100,
    footer_size=None, row_id_start=0, begin_snapshot=5,
)  # fmt: skip
DELETES = DeleteFile(
    id=1, data_file_id=7, path="d", format="parquet", delete_count=1, file_size_bytes=1, footer_size=None, begin_snapshot=6
)  # fmt: skip


def column(number: int, data_type: Any, **attributes: Any) -> Field:
    return Field(id=number, name=f"c{number}", type=data_type, **{"begin_snapshot": 1, **attributes})


def features(*columns: Field, history: dict[int, tuple[ColumnVersion, ...]] | None = None) -> ReadFeatures:
    return ReadFeatures(schema=Schema(columns=columns), history=history or {})


def version(begin: int, end: int | None, text: str, name: str = "c1") -> ColumnVersion:
    return ColumnVersion(begin_snapshot=begin, end_snapshot=end, type_text=text, name=name)


PLAIN = features(column(1, INT32))
RETYPED = {1: (version(1, 6, "int32"), version(6, None, "int64"))}


@pytest.mark.parametrize(
    ("file", "wanted", "snapshot_filter", "obstacle"),
    [
        (FILE, PLAIN, None, None),
        (replace(FILE, delete_files=(DELETES,)), PLAIN, None, None),
        (replace(FILE, inlined_deletes=(1,)), PLAIN, None, None),
        (replace(FILE, encryption_key=EncryptionKey("k")), PLAIN, None, "encrypted"),
        (FILE, PLAIN, 5, "later snapshots"),
        (replace(FILE, directory="s3://bucket/"), PLAIN, None, "local path"),
        (replace(FILE, directory="file:///lake/"), PLAIN, None, None),
        (replace(FILE, directory="/lake/[x]/"), PLAIN, None, "path"),
        (replace(FILE, relative_path="_a.parquet"), PLAIN, None, "path"),
        # Files of other writers may lack ids, which only opening them shows.
        (replace(FILE, relative_path="a.parquet"), PLAIN, None, "field ids"),
        (replace(FILE, directory=""), PLAIN, None, "field ids"),
        (replace(FILE, mapping_id=0), PLAIN, None, "by name"),
        (FILE, features(column(1, TIME)), None, "time"),
        (FILE, features(replace(column(1, INT32), name="_DuckLake_hash")), None, "has the name of a column"),
        (FILE, features(column(1, ListType(element=column(2, TIME)))), None, "time"),
        (FILE, features(column(1, DecimalType(precision=38, scale=2))), None, None),
        # Added later: NULL without a default, which Spark gives too.
        (FILE, features(column(1, INT32, begin_snapshot=6)), None, None),
        (FILE, features(column(1, INT32, begin_snapshot=6, initial_default="1")), None, "default"),
        # Of the same snapshot: their order is unknown.
        (FILE, features(column(1, INT32, begin_snapshot=5, initial_default="1")), None, "default"),
        (FILE, features(column(1, INT32, begin_snapshot=4, initial_default="1")), None, None),
        (FILE, features(column(1, INT64, begin_snapshot=6), history=RETYPED), None, "another type"),
        (replace(FILE, begin_snapshot=6), features(column(1, INT64, begin_snapshot=6), history=RETYPED), None, "another type"),
        (replace(FILE, begin_snapshot=7), features(column(1, INT64, begin_snapshot=6), history=RETYPED), None, None),
        # Rewritten files have a new date, but keep the columns of their sources.
        (replace(FILE, begin_snapshot=9, row_id_start=None), features(column(1, INT64, begin_snapshot=6), history=RETYPED), None, "type"),
        (replace(FILE, begin_snapshot=9, row_id_start=None), features(column(1, INT32, initial_default="1")), None, "default"),
        (replace(FILE, begin_snapshot=9, row_id_start=None), PLAIN, None, None),
        (FILE, features(column(1, StructType(fields=(column(2, VARCHAR, begin_snapshot=9, initial_default="x"),)))), None, "default"),
    ],
)
def test_way_of_a_file(file: DataFile, wanted: ReadFeatures, snapshot_filter: int | None, obstacle: str | None) -> None:
    found = native_obstacle(file, wanted, snapshot_filter)
    assert found is None if obstacle is None else found is not None and obstacle in found


def test_nan_keeps_spark_from_trusting_bounds() -> None:
    clean, dirty = (
        {1: ColumnStatistics(column_id=1, column_size_bytes=1, value_count=1, null_count=0, contains_nan=nan)} for nan in (False, True)
    )
    wanted = replace(features(column(1, FLOAT64), column(2, INT32)), may_hold_nan=frozenset({1}))
    assert trusts_bounds(FILE, clean, wanted)
    assert not trusts_bounds(FILE, dirty, wanted)
    assert not trusts_bounds(FILE, {}, wanted)
    assert trusts_bounds(FILE, {}, PLAIN)


@pytest.mark.parametrize(
    ("file", "trusted"),
    [
        (FILE, False),
        (replace(FILE, begin_snapshot=8), False),
        (replace(FILE, begin_snapshot=9), True),
        (replace(FILE, begin_snapshot=9, row_id_start=None), False),
    ],
)
def test_renamed_columns_keep_spark_from_trusting_bounds(file: DataFile, trusted: bool) -> None:
    history = {1: (version(1, 8, "int32", "former"), version(8, None, "int32", "c1")), 2: (version(1, None, "int32", "c2"),)}
    schema = Schema(columns=(column(1, INT32, begin_snapshot=8), column(2, INT32)))
    wanted = ReadFeatures(schema=schema, history=history, misnamed=misnamed(schema, history))
    assert trusts_bounds(file, {}, wanted) is trusted
    # Where only the other column is read, its name always meant the same.
    other = Schema(columns=schema.columns[1:])
    assert misnamed(other, history) == ()


def test_files_are_dealt_by_bytes() -> None:
    sizes = [1 << 30, *([1 << 20] * 40)]
    bundles = bin_pack([FileTask(file=replace(FILE, id=number, file_size_bytes=size)) for number, size in enumerate(sizes)])
    assert sorted(task.file.id for bundle in bundles for task in bundle) == list(range(41))
    assert [bundle for bundle in bundles if any(task.file.id == 0 for task in bundle)] == [bundles[0]]
    assert len(bundles[0]) == 1
    assert bin_pack([]) == []
    assert len(bin_pack([FileTask(file=FILE)])) == 1


def test_large_files_are_split_without_gap_or_overlap() -> None:
    parts = split_tasks([FileTask(file=replace(FILE, record_count=1001, file_size_bytes=300 << 20)), FileTask(file=replace(FILE, id=8))])
    assert parts[-1].rows is None
    ranges = [part.rows for part in parts[:-1] if part.rows]
    assert len(ranges) == 8
    assert ranges[0][0] == 0
    assert ranges[-1][1] > 10**15
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges))
    assert len(bin_pack(parts)) == 8


@pytest.mark.parametrize(("groups", "rows"), [(1, 122_880), (3, 245_761), (7, 7 * 122_880), (10, 9 * 122_880 + 1)])
def test_files_have_no_more_parts_than_row_groups(groups: int, rows: int) -> None:
    """Each part gets a row group, also when the last of them is shorter than the others."""
    file = replace(FILE, record_count=rows, file_size_bytes=1 << 30, row_group_count=groups)
    found = [part.rows or (0, rows) for part in split_tasks([FileTask(file=file)])]
    starts = range(0, rows, 122_880)
    assert [sum(first <= start < end for start in starts) for first, end in found] == [1] * groups
    assert len(split_tasks([FileTask(file=replace(file, row_group_count=None))])) == 16
