"""The public API: the effect of single calls on a lake, as DuckDB reads it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import (
    AlreadyExistsError,
    NotFoundError,
    SchemaError,
    UsageError,
)
from ducklake_core.staging import context
from tests.behaviour.lake.days import files_of, keys, rows
from tests.support.oracle import LakeAddress, attached


def test_first_write_creates_schema_and_table_and_rows_at_once(lake: DuckLake, lake_address: LakeAddress) -> None:
    done = lake.write('raw."we""ird, näme"', rows(0, 5), partition_by=["bucket(2, k)"], author="me", message="hi", extra_info={"run": 1})
    assert done.snapshot_id == 1
    assert done.snapshot.author == "me"
    with attached(lake_address) as duck:
        assert duck.value('SELECT count(*) FROM raw."we""ird, näme"') == 5
        (row,) = duck.rows("SELECT author, commit_message, commit_extra_info FROM ducklake_snapshots('lake') WHERE snapshot_id = 1")
        assert row[:2] == ("me", "hi")
        assert '"run": 1' in row[2]
    assert [info.table for info in lake.tables("raw")] == ['raw."we""ird, näme"']
    assert lake.table('raw."we""ird, näme"').info().partition_by == ("bucket(2, k)",)


def test_an_error_in_the_block_leaves_nothing(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.set_option("data_inlining_row_limit", 0)
    small.write("t", rows(0, 3))
    before = files_of(sqlite_address)

    def fail() -> None:
        with small.transaction() as tx:
            tx.append("t", rows(3, 5))
            tx.write("new", rows(3, 5))
            assert len(files_of(sqlite_address)) > len(before)
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        fail()
    assert files_of(sqlite_address) == before
    assert small.snapshot().id == 1


def test_cached_tables_follow_changes_of_duckdb(lake: DuckLake, lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "RECENT_SECONDS", 0.01)
    table = lake.create_table("t", rows(0, 0).schema)
    table.append(rows(0, 3))
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run("CALL lake.set_option('parquet_compression', 'zstd', table_name => 't')")
        time.sleep(0.02)
        before = files_of(lake_address)
        table.append(rows(3, 23))
        (newest,) = files_of(lake_address) - before
        assert pq.ParquetFile(newest).metadata.row_group(0).column(0).compression == "ZSTD"
        duck.run("DELETE FROM t WHERE k = 4")
        table.append(rows(6, 7))
        done = table.delete("k IN (4, 5)")
        assert done.rows_deleted == 1
        duck.run("ALTER TABLE t RENAME COLUMN s TO text")
        with pytest.raises(SchemaError, match="'s'"):
            table.append(rows(7, 8))
        duck.run("DROP TABLE t", "CREATE TABLE t (k BIGINT, day DATE, s VARCHAR)")
        lake.table("t").append(rows(8, 9))
        assert keys(duck) == [8]


def test_time_travel_and_history(lake: DuckLake) -> None:
    lake.write("t", rows(0, 3))
    lake.table("t").append(rows(3, 6))
    lake.write("u", rows(0, 1))
    assert [snapshot.id for snapshot in lake.table("t").snapshots()] == [1, 2]
    old = lake.table("t", at=1)
    assert old.scan(columns=["k"]).to_arrow().num_rows == 3
    assert lake.table("t", at=lake.snapshot(1).time).snapshot_id == 1
    with pytest.raises(UsageError, match="at snapshot 1"):
        old.append(rows(0, 1))
    with pytest.raises(NotFoundError, match="snapshot 0"):
        lake.table("t", at=0)
    with pytest.raises(NotFoundError):
        lake.table("t", at=datetime(2000, 1, 1, tzinfo=UTC))


def test_sizes_and_column_summaries_come_from_the_catalog(small: DuckLake) -> None:
    small.write("t", rows(0, 30), partition_by=["month(day)"], comment="flights")
    small.table("t").delete("k < 3")
    info = small.table_info("t")
    assert (info.row_count, info.file_count, info.deleted_row_count, info.partition_by) == (27, 1, 3, ("month(day)",))
    assert info.comment == "flights"
    summary = small.table("t").column_summaries()["k"]
    assert (summary.value_count, summary.null_count, summary.min_value, summary.max_value) == (30, 0, 0, 29)


def test_missing_and_existing_names_raise(small: DuckLake) -> None:
    small.write("t", rows(0, 3))
    with pytest.raises(NotFoundError, match=r"no table main\.x at snapshot 1"):
        small.table("x")
    with pytest.raises(NotFoundError, match=r"no table main\.x at snapshot 1"):
        small.write("x", rows(0, 1), create=False)
    with pytest.raises(AlreadyExistsError, match="T"):
        small.create_table("T", rows(0, 0))
    with pytest.raises(AlreadyExistsError):
        small.create_schema("MAIN")
    assert small.create_schema("main", if_not_exists=True) is None
    assert small.drop_table("x", if_exists=True) is None
    with pytest.raises(UsageError, match="contains t"):
        small.drop_schema("main")
    with pytest.raises(UsageError, match=r"pandas|list"):
        small.write("t", [1, 2])
    with pytest.raises(UsageError, match="where applies only to mode='overwrite'"):
        small.write("t", rows(0, 1), where="k = 0")
    assert not small.has_table("x.y")


def test_a_table_cannot_have_the_name_of_a_view(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE SCHEMA s", "CREATE VIEW s.v AS SELECT 1 AS one")
    with pytest.raises(AlreadyExistsError, match=r"view s\.V"):
        small.write("s.V", rows(0, 1))


def test_a_closed_transaction_raises(small: DuckLake) -> None:
    small.write("t", rows(0, 3))
    tx = small.transaction()
    with tx:
        tx.append("t", rows(3, 4))
        with pytest.raises(UsageError, match="no result"):
            tx.result  # noqa: B018
    assert small.table_info("t").row_count == 4
    with pytest.raises(UsageError, match="not open"):
        tx.append("t", rows(3, 4))


def test_commit_messages_can_be_required(small: DuckLake) -> None:
    small.set_option("require_commit_message", value=True)
    with pytest.raises(UsageError, match="require_commit_message"):
        small.write("t", rows(0, 1))
    small.write("t", rows(0, 1), message="because")
    assert small.options()["require_commit_message"] == "true"
    # As in DuckDB, a block may get its message at any time, and needs one only if it becomes a snapshot.
    with small.transaction() as tx:
        tx.append("t", rows(1, 2))
        tx.sql("CALL lake.set_commit_message('me', 'described')")
    with small.transaction() as tx:
        assert tx.table("t").scan().count() == 2
        tx.set_option("target_file_size", "1MB")
    tx = small.transaction().__enter__()
    tx.append("t", rows(2, 3), inline=False)
    with pytest.raises(UsageError, match="require_commit_message"):
        tx.__exit__(None, None, None)
    assert ([one.message for one in small.snapshots()[1:]], small.table("t").count()) == (["because", "described"], 2)
    assert not small.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files
