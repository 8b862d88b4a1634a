"""Alterations that follow writes in one transaction, with drops, restores, added files, executors and concurrent commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, NotFoundError, SchemaError, UsageError
from tests.behaviour.row_changes.altered import FILES_ONLY, NOT_OLDER, frame, read, rows_of
from tests.behaviour.row_changes.conftest import Twins
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@FILES_ONLY
def test_tables_that_are_dropped_and_renamed(twins: Twins, limit: int) -> None:
    """Staged rows and files of dropped tables are deleted; DuckDB commits rows of dropped tables, which are never cleaned up."""
    twins.both(f"CALL lake.set_option('data_inlining_row_limit', {limit})")
    for name in ("t", "u", "v"):
        twins.both(f"CREATE TABLE {name} (a INTEGER, b VARCHAR)", f"INSERT INTO {name} VALUES (1, 'b1'), (2, 'b2')")
    twins.both("CREATE SCHEMA s", "CREATE TABLE s.t (a INTEGER, b VARCHAR)")
    lake, before = twins.lake, twins.lake.snapshot()
    with lake.transaction() as tx:
        tx.append("t", frame(3))
        tx.delete("t", "a = 1")
        seen = tx.table("t")
        tx.drop_table("t")
        with pytest.raises(NotFoundError):
            seen.to_arrow()
        tx.update("u", {"b": "'x'"}, where="a = 1")
        tx.create_table("u", pa.schema([("x", pa.int64())]), or_replace=True)
        tx.append("u", pa.table({"x": [9]}))
        tx.append("v", frame(3))
        tx.rename_table("v", "w")
        tx.add_column("w", "n", "int32", default=5)
        tx.append("w", frame(4))
        tx.create_table("brief", frame().schema)
        tx.append("brief", frame(1))
        tx.drop_table("brief")
        tx.append("s.t", frame(1))
        tx.create_table("s.n", frame().schema)
        tx.append("s.n", frame(1))
        tx.drop_schema("s", cascade=True)
        tx.create_schema("r")
        tx.write("r.t", frame(1))
        tx.drop_schema("r", cascade=True)
        tx.drop_table("w")
    assert [table.table for table in lake.tables()] == ["main.u"]
    assert read(lake.table("u")) == rows_of(twins.own, "u") == ["(9,)"]
    assert not lake.delete_orphaned_files(older_than=NOT_OLDER, min_age=NOT_OLDER).files
    ended = [row for row in dump_catalog(twins.own.address).get("data_file", []) if row["end_snapshot"] is None]
    assert len(ended) == (0 if limit else 1)
    assert lake.snapshot().id == before.id + 1
    # The same as if nothing had been written before the drop.
    twins.by_duckdb.run(
        "BEGIN", "DROP TABLE t", "CREATE OR REPLACE TABLE u (x BIGINT)", "INSERT INTO u VALUES (9)", "DROP SCHEMA s CASCADE"
    )
    twins.by_duckdb.run("DROP TABLE v", "COMMIT")
    twins.same_catalog(apart_from={"files_scheduled_for_deletion": ()})
    with lake.transaction() as tx:
        tx.create_table("brief", frame().schema)
        tx.append("brief", frame(1))
        tx.drop_table("brief")
    assert tx.result.snapshot is None


def test_rows_that_the_catalog_can_no_longer_hold(twins: Twins) -> None:
    """A variant has no place in its database, and the names of a column may be reserved there: the rows go to files after all."""
    lake = twins.lake
    twins.own.run("CALL lake.set_option('data_inlining_row_limit', 10)", "CREATE TABLE t (a INTEGER, b VARCHAR)")
    twins.own.run("INSERT INTO t VALUES (1, 'b1'), (2, 'b2')")
    with lake.transaction() as tx:
        tx.append("t", frame(3, 4))
        tx.update("t", {"b": "'u'"}, where="a IN (1, 3)")
        scan = tx.table("t").scan()
        tx.rename_column("t", "a", "row_id")
        with pytest.raises(UsageError, match="Create the scan again"):
            scan.to_arrow()
        assert read(tx.table("t")) == ["(1, 'u')", "(2, 'b2')", "(3, 'u')", "(4, 'b4')"]
        tx.delete("t", "row_id = 4")
    assert read(lake.table("t")) == rows_of(twins.own) == ["(1, 'u')", "(2, 'b2')", "(3, 'u')"]
    assert twins.own.rows("SELECT rowid FROM t WHERE b = 'u' ORDER BY ALL")[0] == (0,)
    assert twins.own.value("SELECT count(DISTINCT rowid) FROM t") == 3
    assert not lake.delete_orphaned_files(older_than=NOT_OLDER, min_age=NOT_OLDER).files


@FILES_ONLY
def test_frames_restores_and_foreign_files(twins: Twins, limit: int) -> None:
    """Columns that come with a frame after rows were written, columns that come back, files that lack what was added since."""
    twins.both(f"CALL lake.set_option('data_inlining_row_limit', {limit})", "CREATE TABLE t (a INTEGER, b VARCHAR)")
    lake = twins.lake
    twins.own.run("INSERT INTO t VALUES (1, 'b1'), (2, 'b2')")
    foreign = f"{twins.own.address.data_path}foreign.parquet"
    twins.own.run(f"COPY (SELECT i::INTEGER AS a, 'f' AS b FROM range(500, 503) r(i)) TO '{foreign}'")
    then = lake.snapshot().id
    with lake.transaction() as tx:
        tx.append("t", frame(3))
        tx.add_data_files("t", foreign)
        tx.append("t", frame(4, n=1), schema_evolution="additive")
        tx.add_column("t", "z", "int32", default=7)
        tx.update("t", {"z": "8"}, where="a = 501")
        tx.delete("t", "a = 500")
        tx.set_column_type("t", "a", "int64")
        seen = read(tx.table("t"))
        values = [(1, "b1", None, 7), (2, "b2", None, 7), (3, "b3", None, 7), (4, "b4", 1, 7), (501, "f", None, 8), (502, "f", None, 7)]
        assert seen == sorted(map(repr, values))
    assert tx.result.writes[0].schema_changes
    assert read(lake.table("t")) == rows_of(twins.own) == seen
    assert twins.own.rows("SELECT a FROM t WHERE z = 8 OR n = 1 ORDER BY a") == [(4,), (501,)]
    with lake.transaction() as tx:
        tx.append("t", frame(6), missing_columns="null")
        tx.update("t", {"b": "'u'"}, where="a <= 2")
        tx.restore("t", at=then, columns="then")
        assert read(tx.table("t")) == ["(1, 'b1')", "(2, 'b2')"]
        tx.append("t", frame(5))
        tx.add_column("t", "q", "int32", default=3)
    assert read(lake.table("t")) == rows_of(twins.own) == ["(1, 'b1', 3)", "(2, 'b2', 3)", "(5, 'b5', 3)"]
    assert not lake.delete_orphaned_files(older_than=NOT_OLDER, min_age=NOT_OLDER).files


def test_concurrent_changes(twins: Twins) -> None:
    """All steps are carried out again, those that alter among them."""
    twins.own.run("CALL lake.set_option('data_inlining_row_limit', 10)", "CREATE TABLE t (a INTEGER, b VARCHAR)")
    twins.own.run("INSERT INTO t SELECT i, 'b' || i FROM range(20) r(i)")
    lake, other = twins.lake, DuckLake.connect(twins.own.address.url)

    def own(meanwhile: Callable[[], object]) -> None:
        with lake.transaction() as tx:
            tx.append("t", frame(100, 101))
            tx.delete("t", "a BETWEEN 5 AND 50")
            tx.add_column("t", "z", "int32", default=7)
            tx.update("t", {"z": "a"}, where="a IN (1, 101)")
            tx.set_not_null("t", "z")
            tx.append("t", frame(102))
            meanwhile()

    own(lambda: twins.own.run("INSERT INTO t VALUES (40, 'duckdb'), (60, 'duckdb')", "DELETE FROM t WHERE a = 1"))
    expected = sorted(map(repr, [(a, f"b{a}", 7) for a in (0, 2, 3, 4, 100, 102)] + [(101, "b101", 101), (60, "duckdb", 7)]))
    assert read(lake.table("t")) == rows_of(twins.own) == expected
    lake.table("t").drop_column("z")
    with pytest.raises(CommitConflictError):
        # The rows were written with a column that now would get another id.
        own(lambda: other.table("t").add_column("y", "int32"))
    files = len(list(lake.storage.list(twins.own.address.data_path)))
    tx = lake.transaction()
    tx.__enter__()
    tx.append("t", frame(200), missing_columns="null")
    tx.set_not_null("t", "b")
    twins.own.run("INSERT INTO t (a) VALUES (300)")
    with pytest.raises(SchemaError, match="has NULL"):
        tx.__exit__(None, None, None)
    with lake.transaction() as tx:
        tx.append("t", frame(400), missing_columns="null")
        tx.drop_table("t")
        other.write("t", frame(401), mode="append", missing_columns="null")
    with pytest.raises(NotFoundError):
        lake.table("t")
    assert not lake.delete_orphaned_files(older_than=NOT_OLDER, min_age=NOT_OLDER).files
    assert len(list(lake.storage.list(twins.own.address.data_path))) == files
    other.close()


@pytest.mark.slow
def test_on_spark(small: DuckLake, sqlite_address: LakeAddress, spark: SparkSession) -> None:
    small.write("t", frame(*range(30)))
    with small.transaction() as tx:
        tx.append("t", spark.range(100, 140).selectExpr("cast(id as int) a", "'s' b"))
        tx.append("t", frame(50, 51))
        tx.add_column("t", "z", "int32", default=7)
        tx.update("t", {"z": "a + 1"}, where="a IN (1, 51, 101)", spark=spark)
        tx.set_column_type("t", "z", "int64")
        tx.append("t", spark.range(200, 220).selectExpr("cast(id as int) a", "'s' b", "id z"))
        tx.delete("t", "z = 7 AND a BETWEEN 110 AND 120", spark=spark)
        tx.set_not_null("t", "z", spark=spark)
        tx.drop_column("t", "b")
        tx.add_column("t", "w", "varchar", default="w")
        tx.merge("t", spark.createDataFrame([(102, "m"), (900, "m")], "a int, w string"), on=["a"]).when_matched_update(
            {"w": "s.w"}
        ).when_not_matched_insert({"a": "s.a", "w": "s.w", "z": "0"}).execute()
        seen = sorted(repr(tuple(row)) for row in tx.table("t").to_spark(spark).collect())
        assert seen == read(tx.table("t"))
    assert len(seen) == 30 + 40 + 2 + 20 - 11 + 1
    with attached(sqlite_address) as duck:
        assert rows_of(duck) == seen == read(small.table("t"))
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM t") == [(len(seen), len(seen))]
    assert sorted(repr(tuple(row)) for row in small.table("t").scan().to_spark(spark).collect()) == seen
    small.merge_adjacent_files(spark=spark)
    assert sorted(repr(tuple(row)) for row in small.table("t").scan().to_spark(spark).collect()) == seen
    assert not small.delete_orphaned_files(older_than=NOT_OLDER, min_age=NOT_OLDER).files
