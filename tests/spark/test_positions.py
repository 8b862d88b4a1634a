"""Row-level changes with Spark: the rows that DuckDB would delete, found and hidden on executors."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from ducklake_core.engines.arrow.positions import DeleteTarget, Deletions
from ducklake_core.engines.arrow.positions import find_positions as find_with_arrow
from ducklake_core.engines.spark.positions import find_key_positions, find_positions
from ducklake_core.errors import UsageError
from ducklake_core.format.files.paths import new_delete_file_name
from ducklake_core.planning.plan import ScanPlan
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import STORAGE, OpenLake, open_lake


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> OpenLake:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, g VARCHAR, u UUID)",
            "INSERT INTO t SELECT i, 'g' || i % 5, ('b8888f6d-9c7f-4026-b8e2-' || lpad(i::VARCHAR, 12, '0'))::UUID FROM range(100) r(i)",
            "INSERT INTO t SELECT i, NULL, NULL FROM range(100, 200) r(i)",
            "INSERT INTO t SELECT i, 'other', NULL FROM range(200, 300) r(i)",
            "DELETE FROM t WHERE a < 50 AND a % 2 = 0",
            "DELETE FROM t WHERE a IN (51, 53)",
            "INSERT INTO t VALUES (1000, 'g1', NULL), (1001, 'g2', NULL)",
        )
    return open_lake(sqlite_address)


def target(lake: OpenLake, plan: ScanPlan) -> DeleteTarget:
    directory = plan.tasks[0].file.path.rpartition("/")[0] + "/"
    return DeleteTarget(
        directory=directory, data_path=lake.info.data_path, write_id="0198c1f20000000000c0ffee", assumed_snapshot=plan.snapshot_id + 1
    )


def rows_left(lake: OpenLake, plan: ScanPlan, found: Deletions) -> set[int]:
    """Values of ``a`` that remain: what is visible now, less what the deletions hide."""
    everything = lake.scan("t", columns=["a", "filename", "file_row_number", "rowid"]).to_arrow().to_pylist()
    path_of = {task.file.id: task.file.path for task in plan.tasks}
    ended = {path_of[file.data_file_id] for file in found.ended}
    inlined = {(name, row_id) for name, ids in found.inlined for row_id in ids}
    hidden = set()
    for staged in found.delete_files:
        directory = plan.tasks[0].file.path.rpartition("/")[0]
        hidden |= set(duckdb.sql(f"SELECT file_path, pos FROM '{directory}/{staged.path}'").fetchall())
    return {
        row["a"]
        for row in everything
        if row["filename"] not in ended
        and (row["filename"], row["file_row_number"]) not in hidden
        and (row["filename"], row["rowid"]) not in inlined
    }


@pytest.mark.parametrize(
    ("condition", "deleted_rows"),
    [
        ("g = 'g1' OR a BETWEEN 190 AND 220", {*range(1, 100, 5), *range(190, 221), 1000}),
        ("a % 3 = 0", {*range(0, 300, 3)}),
        ("a < 250", set(range(250))),
    ],
)
def test_spark_hides_what_matches(lake: OpenLake, spark: SparkSession, condition: str, deleted_rows: set[int]) -> None:
    plan = lake.scan("t", columns=["a"], where=condition).plan().plan
    before = {row["a"] for row in lake.scan("t", columns=["a"]).to_arrow().to_pylist()}
    found = find_positions(plan, target(lake, plan), STORAGE, spark)
    assert rows_left(lake, plan, found) == before - deleted_rows
    assert found.row_count == len(before & deleted_rows)
    if "%" not in condition:
        local = find_with_arrow(plan, target(lake, plan), STORAGE)
        assert [(file.data_file_id, file.delete_count, file.new_count) for file in found.delete_files] == [
            (file.data_file_id, file.delete_count, file.new_count) for file in local.delete_files
        ]
        assert (found.ended, found.inlined) == (local.ended, local.inlined)


def test_spark_hides_rows_by_key(lake: OpenLake, spark: SparkSession) -> None:
    plan = lake.scan("t", columns=["a", "g"]).plan().plan
    rows = [(1000, "g1", 1), (5, "g0", 2), (6, "g1", 3), (7, "g2", 4), (150, "x", 5), (9999, "y", 6)]
    data = spark.createDataFrame(rows, "a long, g string, n int")
    found = find_key_positions(plan, target(lake, plan), STORAGE, data, ["a", "g"])
    before = {row["a"] for row in lake.scan("t", columns=["a"]).to_arrow().to_pylist()}
    assert before - rows_left(lake, plan, found) == {1000, 5, 7}
    assert found.row_count == 3


def test_uuid_keys_match_in_any_spelling(lake: OpenLake, spark: SparkSession) -> None:
    plan = lake.scan("t", columns=["u"]).plan().plan
    data = spark.createDataFrame([("B8888F6D-9C7F-4026-B8E2-000000000077",)], "u string")
    found = find_key_positions(plan, target(lake, plan), STORAGE, data, ["u"])
    before = {row["a"] for row in lake.scan("t", columns=["a"]).to_arrow().to_pylist()}
    assert before - rows_left(lake, plan, found) == {77}


@pytest.mark.parametrize(
    ("rows", "message"),
    [([(1, "a"), (None, "b")], "'a' is NULL in 1 row "), ([(1, "a"), (1, "a")], "key .a = 1, g = 'a'. occurs more than once")],
)
def test_null_and_duplicate_keys_raise(lake: OpenLake, spark: SparkSession, rows: list[tuple[object, ...]], message: str) -> None:
    plan = lake.scan("t", columns=["a", "g"]).plan().plan
    with pytest.raises(UsageError, match=message):
        find_key_positions(plan, target(lake, plan), STORAGE, spark.createDataFrame(rows, "a int, g string"), ["a", "g"])


def delete_files_in(plan: ScanPlan) -> set[str]:
    return {path.name for path in Path(plan.tasks[0].file.path).parent.glob("*-delete.parquet")}


@pytest.mark.parametrize("by_key", [False, True])
def test_files_of_lost_attempts_are_swept(lake: OpenLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, by_key: bool) -> None:
    plan = lake.scan("t", columns=["a"], where=None if by_key else "a BETWEEN 55 AND 60").plan().plan
    where = target(lake, plan)
    before = delete_files_in(plan)
    lost, of_another = new_delete_file_name(where.write_id), new_delete_file_name("0198c1f20000000000decade")
    for name in (lost, of_another):
        Path(where.directory, name).write_bytes(b"half a file")
    monkeypatch.setattr("ducklake_core.engines.spark.work_units.speculates", lambda _: True)
    if by_key:
        found = find_key_positions(plan, where, STORAGE, spark.sql("SELECT 57 AS a"), ["a"])
    else:
        found = find_positions(plan, where, STORAGE, spark)
    assert len(found.delete_files) == 1
    assert delete_files_in(plan) == {*before, of_another, *(file.path for file in found.delete_files)}
