"""Appends in quick succession plan on the snapshot that was just seen: what others do in between still counts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs

pytestmark = on_all_catalogs

ROW = pa.table({"a": pa.array([1], pa.int32())})


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    created = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    created.create_table("t", ROW.schema)
    created.table("t").append(ROW)
    return created


def test_rows_and_columns_that_others_change_at_once(lake: DuckLake, lake_address: LakeAddress) -> None:
    table = lake.table("t")
    with attached(lake_address) as duck:
        table.append(ROW)
        duck.run("DELETE FROM t", "INSERT INTO t VALUES (7)")
        table.append(ROW)
        duck.run("ALTER TABLE t ADD COLUMN b INT DEFAULT 5")
        table.append(ROW)
        table.append(ROW.append_column("b", pa.array([6], pa.int32())))
        assert sorted(duck.rows("FROM t"), key=str) == [(1, 5), (1, 5), (1, 6), (7, 5)]
    assert [snapshot.id for snapshot in lake.snapshots()] == list(range(10))


def test_a_column_that_was_added_a_moment_ago(lake: DuckLake, lake_address: LakeAddress) -> None:
    table = lake.table("t")
    with attached(lake_address) as duck:
        table.append(ROW)
        duck.run("ALTER TABLE t ADD COLUMN b INT")
        table.append(ROW.append_column("b", pa.array([6], pa.int32())))
        assert sorted(duck.rows("FROM t"), key=str) == [(1, 6), (1, None), (1, None)]


def test_a_table_dropped_at_once(lake: DuckLake, lake_address: LakeAddress) -> None:
    table = lake.table("t")
    with attached(lake_address) as duck:
        table.append(ROW)
        duck.run("DROP TABLE t", "CREATE TABLE t (other VARCHAR)")
        with pytest.raises(SchemaError, match="'a'"):
            table.append(ROW)
        assert duck.rows("FROM t") == []


def test_own_options_hold_at_once(lake: DuckLake) -> None:
    lake.table("t").append(ROW)
    lake.set_option("require_commit_message", value=True)
    with pytest.raises(UsageError, match="commit message"):
        lake.table("t").append(ROW)
