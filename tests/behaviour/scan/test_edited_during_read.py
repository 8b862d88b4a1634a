"""Catalogs that change while a table is read: the exact rows of the snapshot that was opened, or an error that names table and file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlalchemy import event

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.read import read_plan
from ducklake_core.engines.spark.read import read_plan as read_on_spark
from ducklake_core.errors import NotFoundError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_postgresql
from tests.support.scans import STORAGE

pytestmark = on_postgresql

NOW = timedelta(0)
ROWS = pa.table({"a": pa.array(range(6), pa.int32()), "b": [f"b{i}" for i in range(6)]})


def new_lake(address: LakeAddress) -> DuckLake:
    """Two files, one of them with a delete file."""
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", ROWS.schema)
    lake.write("t", ROWS.slice(0, 3))
    lake.write("t", ROWS.slice(3))
    lake.table("t").delete("a = 4")
    return lake


REST = [0, 1, 2, 3, 5]


def forget(lake: DuckLake) -> None:
    lake.expire_snapshots(older_than=NOW, min_age=NOW)
    lake.cleanup_old_files(older_than=NOW, min_age=NOW)


def test_expired_between_opening_and_planning(lake_address: LakeAddress) -> None:
    lake = new_lake(lake_address)
    opened = lake.table("t")
    lake.write("t", ROWS.slice(0, 1), mode="overwrite")
    assert sorted(opened.scan().to_arrow().column("a").to_pylist()) == REST
    lake.expire_snapshots(older_than=NOW, min_age=NOW)
    reads: list[Callable[[], object]] = [
        opened.scan().to_arrow,
        opened.scan(where="a = 1").to_arrow,
        opened.scan().count,
        opened.scan().plan,
        opened.list_files,
        opened.column_summaries,
        opened.info,
    ]
    for read in reads:
        with pytest.raises(NotFoundError, match=rf"Snapshot {opened.snapshot_id}, .*main\.t.* expired"):
            read()
    with pytest.raises(NotFoundError, match="expired"):
        opened.deletions(opened.snapshot_id).to_arrow()
    assert opened.refresh().scan().to_arrow().num_rows == 1


def test_files_deleted_between_planning_and_reading(lake_address: LakeAddress, spark: SparkSession) -> None:
    lake = new_lake(lake_address)
    scan = lake.table("t").scan()
    plan, native = scan.plan().plan, scan.to_spark(spark)
    on_executors = read_on_spark(_not_native(plan), STORAGE, spark)
    lake.write("t", ROWS.slice(0, 1), mode="overwrite")
    forget(lake)
    with pytest.raises(NotFoundError, match=r"ducklake-.*\.parquet.* [tT]able main\.t .*snapshot"):
        list(read_plan(plan, STORAGE))
    # A session that rather loses rows than fails.
    for setting in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
        spark.conf.set(setting, "true")
    try:
        # Spark's own error for a missing file has no class in PySpark.
        with pytest.raises(Py4JJavaError, match=r"main/t/ducklake-"):
            native.collect()
        with pytest.raises(PySparkException, match=r"ducklake-.*\.parquet.* [tT]able main\.t "):
            on_executors.collect()
    finally:
        for setting in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
            spark.conf.unset(setting)


def _not_native(plan: Any) -> Any:
    from dataclasses import replace

    return replace(plan, tasks=tuple(replace(task, native_obstacle="with Arrow") for task in plan.tasks))


CHANGES: dict[str, Callable[[DuckLake], object]] = {
    "merge": lambda lake: lake.merge_adjacent_files(),
    "delete": lambda lake: lake.table("t").delete("a = 1"),
    "overwrite": lambda lake: lake.write("t", ROWS.slice(0, 1), mode="overwrite"),
    "rename column": lambda lake: lake.table("t").rename_column("b", "c"),
    "drop": lambda lake: lake.drop_table("t"),
    "expire": lambda lake: (lake.write("t", ROWS.slice(0, 1), mode="overwrite"), lake.expire_snapshots(older_than=NOW, min_age=NOW)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_between_two_statements_of_one_plan(lake_address: LakeAddress, name: str) -> None:
    """Another writer commits, or waits, after each statement: on SQLite a reader makes writers wait."""
    lake, other = new_lake(lake_address), DuckLake.connect(lake_address.url)
    scan = lake.table("t").scan(columns=["a", "rowid"], where="a >= 0 AND b <> 'z'")
    expected = scan.to_arrow().sort_by("a")
    statements = _statements(lake, scan.plan)
    assert statements > 3
    place = {"merge": 2, "delete": 1, "overwrite": statements - 1}.get(name, 3)
    with _after_statement(lake, place, lambda: CHANGES[name](other)):
        plan = scan.plan().plan
    found = pa.Table.from_batches(read_plan(plan, STORAGE)).sort_by("a")
    assert found.equals(expected)
    lake.close()
    other.close()


def _statements(lake: DuckLake, run: Callable[[], object]) -> int:
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    engine = lake._database._current_engine()
    event.listen(engine, "after_cursor_execute", counted)
    run()
    event.remove(engine, "after_cursor_execute", counted)
    return count


@contextmanager
def _after_statement(lake: DuckLake, number: int, change: Callable[[], object]) -> Iterator[None]:
    problems: list[BaseException] = []

    def committed() -> None:
        try:
            change()
        except BaseException as error:  # noqa: BLE001 - reported below
            problems.append(error)

    thread, seen = threading.Thread(target=committed), 0

    def interrupted(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            thread.start()
            thread.join(0.2 if not lake._database.abilities.concurrent_writers else None)

    engine = lake._database._current_engine()
    event.listen(engine, "after_cursor_execute", interrupted)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", interrupted)
        thread.join()
    assert problems == []


def test_flushed_and_altered_between_opening_and_planning(lake_address: LakeAddress) -> None:
    """Tables of inlined rows that the table had when it was opened may not be there any more."""
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1), (2)", "ALTER TABLE t ADD COLUMN b VARCHAR")
        duck.run("INSERT INTO t VALUES (3, 'x')", "DELETE FROM t WHERE a = 2")
    lake = DuckLake.connect(lake_address.url)
    opened = lake.table("t")
    expected = opened.scan(columns=["a", "b", "rowid"]).to_arrow().sort_by("a")
    assert expected.column("a").to_pylist() == [1, 3]
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run("CALL ducklake_flush_inlined_data('lake')", "ALTER TABLE t ADD COLUMN c INTEGER", "INSERT INTO t VALUES (4, 'y', 5)")
        duck.run("CALL ducklake_flush_inlined_data('lake')", "DELETE FROM t WHERE a = 1")
        assert opened.scan(columns=["a", "b", "rowid"]).to_arrow().sort_by("a").equals(expected)
        assert duck.rows(f"SELECT a, b, rowid FROM t AT (VERSION => {opened.snapshot_id}) ORDER BY a") == [
            tuple(row.values()) for row in expected.to_pylist()
        ]
