"""Locations of files: absolute and relative at every level, under odd names, in other stores, and never outside of the allowed ones."""

from __future__ import annotations

import pickle
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files.paths import check_location
from tests.behaviour.foreign_files.added import add, change, check, numbered, put, register
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import assert_same_rows, open_lake

FILES = "DATA_INLINING_ROW_LIMIT 0"
DATA = numbered(pa.table({"a": pa.array([1, 2], pa.int32())}), a=1)


@pytest.mark.parametrize(
    ("path", "data_path", "allowed", "fine"),
    [
        ("/lake/main/t/x", "/lake/", (), True),
        ("/elsewhere/x", "/lake/", (), True),
        ("file:///elsewhere/x", "/lake/", (), True),
        ("/lake/main/../other/x", "/lake/", (), True),
        ("/lake/main/..x/x", "/lake/", (), True),
        ("/lake/../etc/x", "/lake/", (), False),
        ("/lake/../lakes/x", "/lake/", (), False),
        ("/lake/../etc/x", "/lake/", ("/etc",), True),
        ("/lake/../etc/x", "/lake/", ("/etcetera/",), False),
        ("/lake/a/..\\..\\x", "/lake/", (), True),
        ("../data/main/x", "../data/", (), True),
        ("../data/../x", "../data/", (), False),
        ("../elsewhere/x", "lake/", (), False),
        ("s3://b/x", "/lake/", (), False),
        ("s3://b/x", "/lake/", ("s3://b",), True),
        ("s3a://b/in/x", "/lake/", ("s3://b/in/",), True),
        ("s3://b/inner/x", "/lake/", ("s3://b/in",), False),
        ("s3://b/in/../x", "/lake/", ("s3://b/in",), False),
        ("s3a://other/x", "s3://b/", (), True),
        ("s3://b/../x", "s3://b/", (), False),
        ("/etc/passwd", "s3://b/", (), False),
        ("simplecache::s3://b/x", "s3://b/", (), False),
        ("http://inside/x", "https://b/", (), False),
        ("https://inside/x", "https://b/", (), False),
        ("https://B/y/x", "https://b/", (), True),
    ],
)
def test_rule(path: str, data_path: str, allowed: tuple[str, ...], fine: bool) -> None:
    if fine:
        check_location(path, data_path, allowed, what="data file 7")
        return
    with pytest.raises(UnsupportedFeatureError, match=r"data file 7.*allowed_paths"):
        check_location(path, data_path, allowed, what="data file 7")


def test_errors_hide_credentials() -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_location("s3://me:hush@b/x", "/lake/", what="data file 7")
    assert "hush" not in repr(caught.value) + str(caught.value) + str(caught.value.details)


def test_files_beyond_the_lake_raise_until_allowed(lake_address: LakeAddress, tmp_path: Path) -> None:
    outside = put(tmp_path / "outside" / "x.parquet", DATA)
    inside = put(Path(lake_address.data_path) / "main" / "u" / "x.parquet", DATA)
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "CREATE TABLE s (a INTEGER)", "INSERT INTO s VALUES (3)", "CREATE TABLE w (a INTEGER)")
    # The operating system takes a step up only from a directory that exists.
    (Path(lake_address.data_path) / "main" / "t").mkdir()
    register(lake_address, "t", "../u/x.parquet", 2, is_relative=True, size=inside.stat().st_size)
    with attached(lake_address) as duck:
        check(duck, open_lake(lake_address))
    number = register(lake_address, "t", "../../../outside/x.parquet", 2, is_relative=True, size=outside.stat().st_size)
    change(lake_address, "UPDATE ducklake_table SET path = '../../elsewhere/' WHERE table_name = 'w'")
    lake = DuckLake.connect(lake_address.url)
    feed = lake.table("t").insertions(1)
    for read in (lake.table("t").scan().to_arrow, lake.table("t").scan(where="a = 1").plan, feed.to_arrow):
        with pytest.raises(UnsupportedFeatureError, match=rf"data file {number} of table main\.t.*leaves the data path"):
            read()
    with pytest.raises(UnsupportedFeatureError, match=r"table main\.w"):
        lake.write("w", DATA)
    assert not (tmp_path / "elsewhere").exists()
    assert lake.table("s").scan().to_arrow().num_rows == 1
    with pytest.raises(UnsupportedFeatureError, match=r"main\.t"):
        lake.write("t", DATA, mode="overwrite")
    lake.close()
    allowing = DuckLake.connect(lake_address.url, allowed_paths=[str(tmp_path / "outside"), str(tmp_path / "elsewhere")])
    assert pickle.loads(pickle.dumps(allowing)).info.allowed_paths
    assert allowing.table("t").scan().to_arrow().column("a").to_pylist() == [1, 2, 1, 2]
    allowing.write("w", DATA)
    allowing.close()
    with attached(lake_address) as duck:
        assert duck.rows("SELECT a FROM w ORDER BY a") == [(1,), (2,)]
    assert len(DuckLake.connect(lake_address.url, allowed_paths=str(tmp_path)).info.allowed_paths) == 1, "one text is one place"
    with pytest.raises(UsageError):
        DuckLake.connect(lake_address.url, allowed_paths=[""])


def test_cleanup_and_merge_leave_what_is_out_of_reach(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    outside = put(tmp_path / "outside" / "x.parquet", DATA)
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER)")
    step = f"{sqlite_address.data_path}../outside/x.parquet"
    for _ in range(2):
        register(sqlite_address, "t", step, 2, size=outside.stat().st_size)
    scheduling = "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (99, :path, 0, :since)"
    change(sqlite_address, scheduling, path=f"{step}x", since="2020-01-01 00:00:00+00")
    Path(f"{outside}x").write_bytes(b"precious")
    lake = DuckLake.connect(sqlite_address.url)
    assert "outside the data path" in str(lake.merge_adjacent_files("t"))
    result = lake.cleanup_old_files(older_than=timedelta(days=1))
    assert [file.reason for file in result.kept] == ["it is outside the data path, and not below allowed_paths"]
    assert Path(f"{outside}x").exists()
    lake.close()


def test_nothing_is_written_to_a_table_directory_out_of_reach(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER)", *["INSERT INTO t SELECT range FROM range(9)"] * 3, "DELETE FROM t WHERE a > 0 AND rowid > 17"
        )
    elsewhere = tmp_path / "elsewhere"
    (Path(sqlite_address.data_path) / "main" / "t").rename(elsewhere)
    change(sqlite_address, "UPDATE ducklake_table SET path = '../../elsewhere/' WHERE table_name = 't'")
    change(sqlite_address, "UPDATE ducklake_data_file SET path = :place || path, path_is_relative = 0", place=f"{elsewhere}/")
    before = sorted(elsewhere.iterdir())
    lake = DuckLake.connect(sqlite_address.url)
    for result in (lake.merge_adjacent_files("t"), lake.rewrite_data_files("t", delete_threshold=0)):
        assert {step.outcome for step in result.steps} == {"skipped"}
        assert "not below allowed_paths" in str(result)
    assert sorted(elsewhere.iterdir()) == before
    lake.close()


@pytest.mark.slow
def test_every_level_relative_and_absolute(lake_address: LakeAddress, tmp_path: Path, spark: SparkSession) -> None:
    """Schemas and tables moved by hand, as tools that copy lakes do; renames keep the directories."""
    files = Path(lake_address.data_path)
    with attached(lake_address, FILES) as duck:
        for number in range(4):
            duck.run(
                f"CREATE SCHEMA s{number}",
                f"CREATE TABLE s{number}.t AS SELECT range::INTEGER AS a, 'v' || range AS b FROM range(20)",
                f"DELETE FROM s{number}.t WHERE a = 7",
                f"ALTER TABLE s{number}.t RENAME TO renamed",
                f"INSERT INTO s{number}.renamed VALUES (99, 'after')",
            )
    moved = tmp_path / "moved #1 %41 ä"
    shutil.move(files / "s1", moved / "schema")
    shutil.move(files / "s2" / "t", moved / "table [x]")
    moving = "UPDATE ducklake_schema SET path = :path, path_is_relative = false WHERE schema_name = 's1'"
    change(lake_address, moving, path=f"{moved}/schema/")
    moving = (
        "UPDATE ducklake_table SET path = :path, path_is_relative = false WHERE table_name = 'renamed' "
        "AND schema_id = (SELECT schema_id FROM ducklake_schema WHERE schema_name = 's2')"
    )
    change(lake_address, moving, path=f"{moved}/table [x]/")
    for task in DuckLake.connect(lake_address.url).table("s3.renamed").scan().plan().plan.tasks:
        target = moved / "files" / Path(task.file.path).name
        target.parent.mkdir(exist_ok=True)
        shutil.move(task.file.path, target)
        moving = "UPDATE ducklake_data_file SET path = :path, path_is_relative = false WHERE data_file_id = :id"
        change(lake_address, moving, path=str(target), id=task.file.id)
    with attached(lake_address) as duck:
        lake = DuckLake.connect(lake_address.url)
        for number in range(4):
            name = f"s{number}.renamed"
            scan = lake.table(name).scan(columns=["a", "b", "rowid", "filename"])
            query = f"SELECT a, b, rowid, filename FROM {name}"
            assert_same_rows(duck, scan.to_arrow(), query)
            assert_same_rows(duck, scan.to_spark(spark).toArrow(), query)
            assert_same_rows(duck, lake.table(name).scan().to_spark(spark).toArrow(), f"SELECT * FROM {name}")
        lake.close()


ODD = [
    "plain",
    "with space",
    "per%41cent",
    "ünï",
    "ha#sh",
    "qu?estion",
    "st*r",
    "br[a]cket{s}",
    "semi;colon",
    "co,mma",
    "pl+us",
    "_hidden",
    ".dot",
    "a:b",
]


def test_odd_names(sqlite_address: LakeAddress, tmp_path: Path, spark: SparkSession) -> None:
    """Every character in directories and in file names, on the native path as well where the file has a lake's own name."""
    own = "ducklake-0198c1f2-0000-7000-8000-{:012d}.parquet"
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER)")
    for number, odd in enumerate(ODD):
        data = numbered(pa.table({"a": pa.array([number], pa.int32())}), a=1)
        folder = Path(sqlite_address.data_path) / "main" / "t"
        path = put(folder / odd / own.format(number), data)
        register(sqlite_address, "t", str(path.relative_to(folder)), 1, is_relative=True, size=path.stat().st_size)
        path = put(tmp_path / "outside" / f"{odd}.parquet", data)
        register(sqlite_address, "t", str(path), 1)
    lake = open_lake(sqlite_address)
    expected = sorted([*range(len(ODD))] * 2)
    assert sorted(lake.scan("t").to_arrow().column("a").to_pylist()) == expected
    assert sorted(lake.scan("t").to_spark(spark).toArrow().column("a").to_pylist()) == expected
    native = [task.file.path for task in lake.scan("t").plan().plan.tasks if task.native]
    assert len(native) > len(ODD) / 2


def test_added_files_with_odd_names(lake_address: LakeAddress, tmp_path: Path) -> None:
    data = pa.table({"a": pa.array([1], pa.int32())})
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER)")
        for odd in ("with space", "per%41cent", "ünï", "ha#sh", "semi;colon", "qu'ote"):
            add(duck, "t", put(tmp_path / odd / f"{odd}.parquet", data))
        add(duck, "t", put(Path(lake_address.data_path) / "main" / "t" / "in side.parquet", data))
        duck.run("ALTER TABLE t RENAME TO u", "DELETE FROM u WHERE filename LIKE '%space%'", "ALTER TABLE u RENAME TO t")
    with attached(lake_address) as duck:
        check(duck, open_lake(lake_address))
