"""Indexes beyond the specification: created with a lake or later, and ignored by DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlalchemy as sa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached

with_indexes = pytest.mark.parametrize("lake_address", ["sqlite", "postgresql"], indirect=True)
INDEXES = {
    "ducklake_column_by_table", "ducklake_data_file_by_table", "ducklake_delete_file_by_table", "ducklake_file_column_stats_by_column",
    "ducklake_file_partition_value_by_table", "ducklake_inlined_data_tables_by_table", "ducklake_schema_versions_by_table",
    "ducklake_table_by_id", "ducklake_table_column_stats_by_table", "ducklake_table_stats_by_table",
}  # fmt: skip


def _indexes(address: LakeAddress) -> set[str | None]:
    engine = sa.create_engine(address.url)
    try:
        inspector = sa.inspect(engine)
        found = {index["name"] for table in inspector.get_table_names() for index in inspector.get_indexes(table)}
        return {name for name in found if name is not None and name.startswith("ducklake_")}
    finally:
        engine.dispose()


@with_indexes
def test_a_new_lake_has_the_indexes_and_duckdb_writes_to_it(lake_address: LakeAddress) -> None:
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    assert _indexes(lake_address) == INDEXES
    lake.write("t", pa.table({"i": range(100)}))
    with attached(lake_address) as duck:
        duck.run("INSERT INTO t SELECT range + 100 FROM range(100)", "CALL ducklake_merge_adjacent_files('lake')")
        duck.run("CREATE TABLE u (a INT)", "ALTER TABLE u SET PARTITIONED BY (a)", "INSERT INTO u SELECT range // 20 FROM range(60)")
        duck.run("DELETE FROM u WHERE a = 1", "ALTER TABLE u ADD COLUMN b INT", "DROP TABLE u")
        assert duck.rows("SELECT count(*), sum(i) FROM t WHERE i >= 50") == [(150, sum(range(50, 200)))]
    assert lake.table("t").scan(where="i >= 50").to_arrow().num_rows == 150


@with_indexes
def test_indexes_are_added_to_a_lake_of_duckdb(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (i INT)")
    lake = DuckLake.connect(lake_address.url)
    assert _indexes(lake_address) == set()
    assert set(lake.create_indexes()) == set(lake.create_indexes()) == INDEXES
    assert _indexes(lake_address) == INDEXES


@with_indexes
def test_a_lake_can_be_made_without_them(lake_address: LakeAddress) -> None:
    DuckLake.create(lake_address.url, data_path=lake_address.data_path, indexes=False)
    assert _indexes(lake_address) == set()


@pytest.mark.parametrize("lake_address", ["duckdb"], indirect=True)
def test_where_indexes_are_of_no_use_there_are_none(lake_address: LakeAddress) -> None:
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    assert lake.create_indexes() == ()
    with attached(lake_address) as duck:
        assert duck.rows("SELECT index_name FROM duckdb_indexes() WHERE database_name LIKE '%metadata_lake'") == []
