"""Spark's own reader with deletes and virtual columns: several row groups and splits, odd directories, every form of deletes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ducklake_core.engines.spark import native_read
from ducklake_core.engines.spark.native_read import deleted_bits
from ducklake_core.engines.spark.read import read_plan
from ducklake_core.engines.spark.session import held_settings
from ducklake_core.errors import NotFoundError
from ducklake_core.format.files.data_files import DataFile, DeleteFile
from ducklake_core.planning import native
from ducklake_core.storage import delete_files
from ducklake_core.storage.delete_files import DeletedPositions
from ducklake_core.storage.filesystems import Storage
from tests.behaviour.scan.test_deletes_oracle import HISTORIES
from tests.behaviour.scan.test_virtual_columns import CONDITIONS, HISTORY
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import slow, spread
from tests.support.scans import STORAGE, OpenLake, assert_same_rows, open_lake

VIRTUAL = "rowid, snapshot_id, filename, file_row_number"


def check(duck: Oracle, lake: OpenLake, spark: SparkSession, version: int, first: str) -> None:
    source = f"t AT (VERSION => {version})"
    assert_same_rows(duck, lake.scan("t", version).to_spark(spark).toArrow(), f"SELECT * FROM {source}")
    scan = lake.scan("t", version, columns=[first, *VIRTUAL.split(", ")])
    assert_same_rows(duck, scan.to_spark(spark).toArrow(), f"SELECT {first}, {VIRTUAL} FROM {source}")


@pytest.mark.parametrize("name", spread(HISTORIES, 1))
def test_every_form_of_deletes(sqlite_address: LakeAddress, spark: SparkSession, name: str) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run(*HISTORIES[name])
    with attached(sqlite_address) as duck:
        lake = open_lake(sqlite_address)
        ways: set[str | None] = set()
        for version in lake.snapshots()[:2:-6]:
            ways |= {task.native_obstacle for task in lake.scan("t", version).plan().plan.tasks}
            check(duck, lake, spark, version, "i")
        assert ways <= {None, "the file holds rows of later snapshots"}


@pytest.mark.slow
def test_virtual_columns(lake_address: LakeAddress, spark: SparkSession) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run(*HISTORY[:11])
        lake = open_lake(lake_address)
        check(duck, lake, spark, lake.snapshots()[-1], "a")
        duck.run(*HISTORY[11:])
        lake = open_lake(lake_address)
        check(duck, lake, spark, lake.snapshots()[-1], "a")
        for condition in [*CONDITIONS[::3], "rowid % 3 = 0", "upper(filename) LIKE '%A%' AND a > 100"]:
            scan = lake.scan("t", where=condition, columns=["b", "rowid"])
            assert_same_rows(duck, scan.to_spark(spark).toArrow(), f"SELECT b, rowid FROM t WHERE {condition}")
        pairs = lake.scan("t", columns=["file_index", "filename"]).to_spark(spark).distinct().collect()
        assert {(int(row[0]), row[1]) for row in pairs} == {
            (row["file_index"], row["filename"]) for row in lake.scan("t", columns=["file_index", "filename"]).to_arrow().to_pylist()
        }


@pytest.fixture
def small_splits(spark: SparkSession) -> Iterator[None]:
    """Files are cut into many splits, and pages are skipped by their statistics."""
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    spark.conf.set(name, "20000")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("small_splits")
@pytest.mark.slow
def test_positions_are_exact_in_every_row_group_and_split(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CALL lake.set_option('parquet_row_group_size', '2048')")
        duck.run("CREATE TABLE t AS SELECT i, 'value ' || i AS v, i % 100 AS g FROM range(60000) r(i)")
        duck.run("DELETE FROM t WHERE hash(i) % 5 = 0 OR i BETWEEN 20000 AND 30000", "DELETE FROM t WHERE g = 7")
        lake = open_lake(sqlite_address)
        (task,) = lake.scan("t").plan().plan.tasks
        assert task.native
        frame = lake.scan("t").to_spark(spark)
        assert frame.rdd.getNumPartitions() > 4
        assert_same_rows(duck, frame.toArrow(), "SELECT * FROM t")
        for condition in ("i > 59000", "i IN (5, 2048, 2049, 40961)", "i BETWEEN 12000 AND 12010 OR rowid = 50000", "g = 3 AND i > 31000"):
            scan = lake.scan("t", where=condition, columns=["rowid", "i", "v"])
            assert_same_rows(duck, scan.to_spark(spark).toArrow(), f"SELECT rowid, i, v FROM t WHERE {condition}")
            assert scan.to_spark(spark).count() == duck.value(f"SELECT count(*) FROM t WHERE {condition}")


WAYS = {"constants": (native_read, "MAX_NAMES", 4096), "join": (native_read, "MAX_NAMES", 0), "executors": (native_read, "MAX_FILES", 0)}


@pytest.mark.parametrize("way", spread(WAYS, 1))
def test_every_way_to_leave_rows_out(sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    module, name, value = WAYS[way]
    monkeypatch.setattr(module, name, value)
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run("CREATE TABLE t AS SELECT i, i % 100 AS g, i % 4 AS p FROM range(0) r(i)", "ALTER TABLE t SET PARTITIONED BY (p)")
        duck.run("INSERT INTO t SELECT i, i % 100, i % 4 FROM range(20000) r(i)", "DELETE FROM t WHERE hash(i) % 50 = 0 AND p < 3")
        duck.run("DELETE FROM t WHERE i = 8", "UPDATE t SET g = 1000 WHERE i = 5")
        duck.run("INSERT INTO t SELECT i, 7, i % 4 FROM range(20000, 25000) r(i)")
        lake = open_lake(sqlite_address)
        assert {task.native_obstacle for task in lake.scan("t").plan().plan.tasks} == {None}
        plan = str(lake.scan("t").to_spark(spark)._jdf.queryExecution().toString())
        assert {word for word in ("Subquery", "Join", "MapInArrow", "file_name") if word in plan} == {
            "constants": {"Subquery", "file_name"},
            "join": {"Join", "file_name"},
            "executors": {"Join", "MapInArrow", "file_name"},
        }[way]
        for condition in ("true", "g = 7 AND i > 15000", "i IN (4, 5, 8)"):
            scan = lake.scan("t", where=condition)
            assert_same_rows(duck, scan.to_spark(spark).toArrow(), f"SELECT * FROM t WHERE {condition}")
        assert scan.to_spark(spark).count() == duck.value(f"SELECT count(*) FROM t WHERE {condition}")


def test_rows_of_the_only_file_with_deletes(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    """As a DELETE and UPDATEs leave a table. Spark would repeat a semi join, sorts and all, for each side of a union."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i, i % 7 AS g FROM range(20000) r(i)", "DELETE FROM t WHERE hash(i) % 50 = 0")
        duck.run("UPDATE t SET g = -1 WHERE hash(i) % 50 = 1", "INSERT INTO t SELECT i, -2 FROM range(200) r(i)")
        lake = open_lake(sqlite_address)
        frame = lake.scan("t").to_spark(spark)
        assert_same_rows(duck, frame.toArrow(), "SELECT * FROM t")
        for condition in ("g = -1", "i < 300", "g = -2 AND i > 100"):
            assert frame.where(condition).count() == duck.value(f"SELECT count(*) FROM t WHERE {condition}")
        joined = frame.join(spark.range(100).hint("merge"), frame.i == sf.col("id"), "leftsemi")
        assert str(joined._jdf.queryExecution().optimizedPlan().toString()).count("Join LeftSemi") == 1
        assert joined.count() == duck.value("SELECT count(*) FROM t WHERE i < 100")


@pytest.mark.parametrize("vectorized", ["true", slow("false")])
def test_rows_of_one_file(sqlite_address: LakeAddress, spark: SparkSession, vectorized: str) -> None:
    settings = {"spark.sql.parquet.enableVectorizedReader": vectorized, "spark.sql.files.maxPartitionBytes": "20000"}
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck, held_settings(spark, settings):
        duck.run("CALL lake.set_option('parquet_row_group_size', '2048')")
        duck.run("CREATE TABLE t AS SELECT i, nullif(i % 7, 3) AS g, {'a': i, 'b': [i]} AS s FROM range(20000) r(i)")
        # Neither the first nor the last rows are deleted, nor all bits of any word.
        duck.run("DELETE FROM t WHERE i BETWEEN 5000 AND 15000 AND hash(i) % 3 = 0", "DELETE FROM t WHERE i IN (6399, 6400, 6463, 6464)")
        duck.run("ALTER TABLE t RENAME COLUMN g TO h")
        lake = open_lake(sqlite_address)
        frame = lake.scan("t").to_spark(spark)
        plan = str(frame._jdf.queryExecution().toString())
        assert "Subquery" in plan
        assert "file_name" not in plan
        assert_same_rows(duck, frame.toArrow(), "SELECT * FROM t")
        for condition in ("i > 14990", "s.a < 5010 AND h = 1", "i IN (4999, 5000, 6399, 6465)"):
            assert frame.where(condition).count() == duck.value(f"SELECT count(*) FROM t WHERE {condition}")
            assert lake.scan("t", where=condition).to_spark(spark).count() == duck.value(f"SELECT count(*) FROM t WHERE {condition}")
        assert frame.count() == duck.value("SELECT count(*) FROM t")


def test_rows_without_positions_stop_the_query(sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)", "DELETE FROM t WHERE i < 10")
    monkeypatch.setattr(native_read, "ROW_INDEX", "_not_what_spark_fills")
    with pytest.raises(PySparkException, match="did not return the position of a row"):
        open_lake(sqlite_address).scan("t").to_spark(spark).count()


def test_a_column_of_the_name_that_spark_fills(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i, -i AS _tmp_metadata_row_index FROM range(100) r(i)", "DELETE FROM t WHERE i < 10")
        assert_same_rows(duck, open_lake(sqlite_address).scan("t").to_spark(spark).toArrow(), "SELECT * FROM t")
        # The file still has it.
        duck.run("ALTER TABLE t DROP COLUMN _tmp_metadata_row_index")
        assert_same_rows(duck, open_lake(sqlite_address).scan("t").to_spark(spark).toArrow(), "SELECT * FROM t")


def test_delete_files_are_read_once(sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)", "DELETE FROM t WHERE i < 10")
        assert open_lake(sqlite_address).scan("t").to_spark(spark).count() == 90
        with monkeypatch.context() as patch:
            patch.setattr(delete_files, "read_deletes_of", lambda *_: pytest.fail("read again"))
            assert open_lake(sqlite_address).scan("t").to_spark(spark).count() == 90
            assert open_lake(sqlite_address).scan("t").count() == open_lake(sqlite_address).scan("t").to_arrow().num_rows == 90
        duck.run("DELETE FROM t WHERE i >= 95")
        assert open_lake(sqlite_address).scan("t").to_spark(spark).count() == open_lake(sqlite_address).scan("t").count() == 85


def test_kept_delete_files_are_bounded(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_files, "_FILE_POSITIONS", 0)
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)", *["INSERT INTO t FROM range(100)"] * 4)
        duck.run("DELETE FROM t WHERE i % 10 = 0")
        files = [task.file for task in open_lake(sqlite_address).scan("t").plan().plan.tasks]
    recent = delete_files.RecentDeleteFiles(40)
    found = [recent.read(STORAGE, file.delete_files[0], file) for file in files]
    assert [recent.recall(STORAGE, file.delete_files[0], file) for file in files] == [None, *found[1:]]
    assert recent.read(STORAGE, files[1].delete_files[0], files[1]) is found[1]
    small = delete_files.RecentDeleteFiles(39)
    assert len(small.read(STORAGE, files[0].delete_files[0], files[0]).positions) == 10
    assert small.recall(STORAGE, files[0].delete_files[0], files[0]) is None


def test_cached_deletes_may_be_evicted_during_reads(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each delete file is read once all the same."""
    monkeypatch.setattr(delete_files, "_FILE_POSITIONS", 0)
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)", *["INSERT INTO t FROM range(100)"] * 7)
        duck.run("DELETE FROM t WHERE i % 10 = 0")
        tasks = open_lake(sqlite_address).scan("t").plan().plan.tasks
    monkeypatch.setattr(native_read, "process_memory", memory := delete_files.RecentDeleteFiles(40))
    for task in tasks[:4]:
        memory.read(STORAGE, task.file.delete_files[0], task.file)
    opened: list[str] = []
    read = delete_files.read_deletes_of

    def counted(storage: Storage, delete_file: DeleteFile, file: DataFile) -> DeletedPositions:
        opened.append(delete_file.path)
        return read(storage, delete_file, file)

    monkeypatch.setattr(delete_files, "read_deletes_of", counted)
    found = native_read.read_here(tasks, 9, STORAGE)
    assert found is not None
    assert [len(positions) for positions in found] == [10] * 8
    assert sorted(opened) == sorted(task.file.delete_files[0].path for task in tasks[4:])


def test_paths_that_spark_spells_otherwise(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "a b%20c+d&e;f=g'h~#é日😀\u00a0\u2003^|\"<>`(@),!"
    folder.mkdir()
    address = LakeAddress(f"sqlite:///{tmp_path / 'c.sqlite'}", f"ducklake:sqlite:{tmp_path / 'c.sqlite'}", "", "sqlite")
    with attached(replace(address, data_path=str(folder).replace("'", "''") + "/"), "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (i INTEGER, p VARCHAR)", "ALTER TABLE t SET PARTITIONED BY (p)")
        duck.run("INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN 'x/y z' WHEN 1 THEN 'ü:?' END FROM range(60) r(i)")
        duck.run("DELETE FROM t WHERE i % 2 = 0")
        lake = open_lake(address)
        assert [task.native_obstacle for task in lake.scan("t").plan().plan.tasks] == [None] * 3
        check(duck, lake, spark, lake.snapshots()[-1], "i")


@pytest.mark.parametrize("files_with_deletes", [1, 2])
def test_a_file_under_an_unknown_name_stops_the_query(
    sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, files_with_deletes: int
) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)", "INSERT INTO t FROM range(5, 15)")
        duck.run(f"DELETE FROM t WHERE i < {5 * files_with_deletes}")
    plan = open_lake(sqlite_address).scan("t").plan().plan
    for module in (native_read, native_read):
        monkeypatch.setattr(module, "file_name", lambda path: "elsewhere")
    for frame in (read_plan(plan, STORAGE, spark), read_plan(replace(plan, virtual=("rowid",)), STORAGE, spark)):
        with pytest.raises(PySparkException, match="a name that is not in the plan"):
            frame.count()


def test_a_missing_file_raises(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)")
    scan = open_lake(sqlite_address).scan("t")
    frame = scan.to_spark(spark)
    (task,) = scan.plan().plan.tasks
    Path(task.file.path).unlink()
    with pytest.raises(NotFoundError, match=f"{Path(task.file.path).name} does not exist. Maintenance may have cleaned it up"):
        scan.to_spark(spark)
    # What was planned before fails with Spark's own error.
    with pytest.raises(Exception, match=f"{Path(task.file.path).name}. File does not exist"):
        frame.count()


def test_deleted_positions_in_the_driver_are_bounded(
    sqlite_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(5000) r(i)", "INSERT INTO t SELECT i FROM range(5000, 10000) r(i)")
        duck.run("DELETE FROM t WHERE i % 3 = 0")
        monkeypatch.setattr("ducklake_core.planning.planner.MAX_DELETED_BYTES", 1000)
        lake = open_lake(sqlite_address)
        assert [task.native_obstacle for task in lake.scan("t").plan().plan.tasks] == [None, "the table has very many deleted rows"]
        assert_same_rows(duck, lake.scan("t").to_spark(spark).toArrow(), "SELECT * FROM t")


def test_files_of_one_name_are_not_mixed_up(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(10) r(i)", "DELETE FROM t WHERE i = 5")
    with closing(sqlite3.connect(sqlite_address.url.removeprefix("sqlite:///"))) as catalog, catalog:
        names = [row[1] for row in catalog.execute("PRAGMA table_info(ducklake_data_file)")]
        columns = ", ".join("99" if name == "data_file_id" else name for name in names)
        catalog.execute(f"INSERT INTO ducklake_data_file SELECT {columns} FROM ducklake_data_file")
    scan = open_lake(sqlite_address).scan("t")
    assert [task.native_obstacle for task in scan.plan().plan.tasks] == ["the table has another file of the same name"] * 2
    assert sorted(row.i for row in scan.to_spark(spark).collect()) == sorted([*range(10), *(i for i in range(10) if i != 5)])


@pytest.mark.parametrize("positions", [[0], [63, 64, 4095, 4096], [5, 50_000], list(range(10_000))])
def test_bits_are_where_spark_reads_them(positions: list[int]) -> None:
    pieces = deleted_bits(np.array(positions))
    assert pieces is not None
    found = []
    for number, words in enumerate(pieces):
        for index, word in enumerate([] if words is None else words.tolist()):
            found += [number * native.DELETED_BITS + index * 64 + bit for bit in range(64) if word >> bit & 1]
    assert found == positions


def test_constants_do_not_count_as_part_of_rows(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    # Spark broadcasts what it thinks small: a filter with a correlated subquery keeps it from putting columns in their place.
    query = "SELECT k FROM {s} WHERE v > (SELECT 0.5 * sum(q) FROM {b} WHERE {b}.k = {s}.k)"
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE TABLE s AS SELECT i AS k, i AS v FROM range(500) r(i)",
            "INSERT INTO s SELECT i, i FROM range(500, 900) r(i)",
            "CREATE TABLE b AS SELECT i % 900 AS k, i % 7 AS q FROM range(2000) r(i)",
            "DELETE FROM s WHERE k % 90 = 0",
        )
        lake = open_lake(sqlite_address)
        for name in ("s", "b"):
            lake.scan(name).to_spark(spark).createOrReplaceTempView(f"of_rows_{name}")
        frame = spark.sql(query.format(s="of_rows_s", b="of_rows_b"))
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
        assert "_ducklake_anywhere" in plan
        assert " AS _ducklake_anywhere" not in plan
        assert_same_rows(duck, frame.toArrow(), query.format(s="s", b="b"))
