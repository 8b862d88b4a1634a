"""Changes, file names, paths and options: inverses over generated values, and errors."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID as PythonUUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ducklake_core.errors import CatalogCorruptError, UsageError
from ducklake_core.format.changes import Changes, QualifiedName, encode_changes, parse_changes
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.files.paths import (  # fmt: skip
    has_writers_name,
    is_inside,
    is_of_write,
    join,
    new_delete_file_name,
    new_file_name,
    partition_directory,
    relative_to,
    uuid7,
    write_id,
)
from ducklake_core.format.options import Options, normalize_option, parse_memory_size
from ducklake_core.format.types.names import dotted
from ducklake_core.format.types.text import parse_age

IDS = st.lists(st.integers(0, 99), max_size=3, unique=True).map(sorted).map(tuple)
# Names contain no NUL.
PARTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
SCHEMAS = st.lists(PARTS, min_size=1, max_size=3).map(dotted)
NAMES = st.builds(QualifiedName, schema=SCHEMAS, name=PARTS)


@given(IDS, IDS, NAMES, SCHEMAS)
def test_changes_come_back_from_their_text(dropped: tuple[int, ...], inserted: tuple[int, ...], name: QualifiedName, schema: str) -> None:
    changes = Changes(
        dropped_table=dropped, created_schema=(schema,), created_table=(name,), created_view=(name,), inserted_into_table=inserted
    )
    assert parse_changes(encode_changes(changes)) == changes


def test_old_spellings_and_nothing_at_all_are_read() -> None:
    assert parse_changes(None) == parse_changes("") == Changes()
    assert parse_changes("COMPACTED_TABLE:1, flushed_inlined:2") == Changes(merge_adjacent=(1,), inline_flush=(2,))
    assert encode_changes(Changes(unknown=("x:1",))) == ""


@pytest.mark.parametrize(
    "text", ["inserted_into_table", "inserted_into_table:x", 'created_table:"a"', 'created_table:"a"."b', "created_schema:a", "a:1,,b:2"]
)
def test_malformed_changes_raise(text: str) -> None:
    with pytest.raises(CatalogCorruptError):
        parse_changes(text)


def test_file_names_carry_the_mark_of_their_write() -> None:
    mark = write_id()
    names = [new_file_name(mark) for _ in range(50)] + [new_delete_file_name(mark)]
    assert len(set(names)) == 51
    assert all(is_of_write(f"a/b/{name}", mark) for name in names)
    assert not any(is_of_write(name, write_id()) for name in names)
    assert names[-1].endswith(f"{mark[12:]}-delete.parquet")
    with pytest.raises(UsageError):
        new_file_name("../../..")


def test_files_older_than_a_write_are_not_of_it() -> None:
    mark = write_id()
    later = f"{int(mark[:12], 16) + 5:012x}{mark[12:]}"
    assert not is_of_write(new_file_name(mark).replace(mark[:8], "0198c1f2"), mark)
    # A writer whose clock is behind names its files as if they were made when the write began.
    behind = [new_file_name(f"{int(mark[:12], 16) + 3_600_000:012x}{mark[12:]}") for _ in range(500)]
    assert len(set(behind)) == 500
    assert all(is_of_write(name, f"{int(mark[:12], 16) + 3_600_000:012x}{mark[12:]}") for name in behind)
    assert all(is_of_write(name, later) for name in behind)


def test_marks_of_earlier_versions_are_not_taken_for_a_write_s() -> None:
    mark = write_id()
    old = f"ducklake-{mark[:8]}-{mark[8:12]}-7fff-8000-0000{mark[-8:]}.parquet"
    assert has_writers_name(old)
    assert not is_of_write(old, mark)


def test_no_two_names_of_a_write_are_equal() -> None:
    mark = write_id()
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: new_file_name(mark), range(20_000)))
    assert len(set(names)) == 20_000


def test_uuids_are_version_7_and_sort_by_time() -> None:
    made = [uuid7() for _ in range(100)]
    assert {PythonUUID(text).version for text in made} == {7}
    assert {PythonUUID(text).variant for text in made} == {"specified in RFC 4122"}
    assert abs((PythonUUID(made[0]).int >> 80) / 1000 - dt.datetime.now(dt.UTC).timestamp()) < 60
    assert [text[:15] for text in made] == sorted(text[:15] for text in made)


def test_paths_join_by_level() -> None:
    assert join(join(join("d/", "main/"), "t/"), "x.parquet") == "d/main/t/x.parquet"
    assert join("s3://b", "x/") == "s3://b/x/"
    assert join("d/", "") == "d/"


@pytest.mark.parametrize(
    "path", ["/data/../x", "/data/a/../../x", "/data2/x", "/data", "/data/a//x", "/data/..", "/data/./x", "/data/a\\..\\x"]
)
def test_paths_outside_are_outside(path: str) -> None:
    assert not is_inside("/data/", path)
    assert relative_to("/data/", path) == (path, False)


@pytest.mark.parametrize("base", ["/data/", "/data", "s3://b/data/"])
def test_paths_inside_are_relative(base: str) -> None:
    path = join(base, "main/t/year=2013/x.parquet")
    assert relative_to(base, path) == ("main/t/year=2013/x.parquet", True)


def test_directories_that_would_clash_are_left_out() -> None:
    fields = (
        PartitionField(column_id=1, column="year", transform="identity"),
        PartitionField(column_id=2, column="year_a", transform="identity"),
        PartitionField(column_id=3, column="a", transform="year"),
    )
    assert partition_directory(PartitionSpec(fields=fields), ("1", "2", "3")) == ""


def test_options_from_strings() -> None:
    values = {"TARGET_FILE_SIZE": "2", "version": "1.0", "auto_compact": "false"}
    assert Options.from_mapping(values) == Options(target_file_size=2, auto_compact=False)
    assert Options.from_mapping({}) == Options()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nope", "1"), ("parquet_compression", "lzo"), ("parquet_version", "3"), ("parquet_row_group_size", "0"),
        ("target_file_size", "-1"), ("target_file_size", "10 parsecs"), ("target_file_size", "0"), ("data_inlining_row_limit", "-1"),
        ("rewrite_delete_threshold", "1.5"), ("auto_compact", "maybe"), ("delete_older_than", "soon"), ("delete_older_than", ""),
        ("expire_older_than", "3 fortnights"), ("rewrite_delete_threshold", "nan"),
    ],
)  # fmt: skip
def test_options_out_of_bounds_raise(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        normalize_option(name, value)


def test_sizes_and_ages() -> None:
    assert [parse_memory_size(text) for text in ("1", "1kb", "1 KiB", "0.5MB", "2GiB")] == [1, 1000, 1024, 500_000, 2**31]
    assert parse_age("1 month 2 days 01:00:30", dt.datetime(2026, 5, 31, tzinfo=dt.UTC)) == dt.timedelta(days=33, hours=1, seconds=30)
    assert parse_age("INTERVAL '36 hours'") == dt.timedelta(hours=36)
