"""The index that the format does not ask for: made with a lake or later, and no concern of the reference's."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlalchemy as sa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached

with_indexes = pytest.mark.parametrize("every_lake_address", ["sqlite", "postgresql"], indirect=True)
INDEX = "ducklake_file_column_stats_by_column"


def _indexes(address: LakeAddress) -> set[str | None]:
    engine = sa.create_engine(address.url)
    try:
        return {index["name"] for index in sa.inspect(engine).get_indexes("ducklake_file_column_stats")}
    finally:
        engine.dispose()


@with_indexes
def test_a_new_lake_has_the_index_and_the_reference_writes_beside_it(lake_address: LakeAddress) -> None:
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    assert _indexes(lake_address) == {INDEX}
    lake.write("t", pa.table({"i": range(100)}))
    with attached(lake_address) as duck:
        duck.run("INSERT INTO t SELECT range + 100 FROM range(100)", "CALL ducklake_merge_adjacent_files('lake')")
        assert duck.rows("SELECT count(*), sum(i) FROM t WHERE i >= 50") == [(150, sum(range(50, 200)))]
    assert lake.table("t").scan(where="i >= 50").to_arrow().num_rows == 150


@with_indexes
def test_another_programs_lake_gets_it_when_asked(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (i INT)")
    lake = DuckLake.connect(lake_address.url)
    assert _indexes(lake_address) == set()
    assert lake.create_indexes() == lake.create_indexes() == (INDEX,)
    assert _indexes(lake_address) == {INDEX}


@with_indexes
def test_a_lake_can_be_made_without_it(lake_address: LakeAddress) -> None:
    DuckLake.create(lake_address.url, data_path=lake_address.data_path, indexes=False)
    assert _indexes(lake_address) == set()


@pytest.mark.parametrize("every_lake_address", ["duckdb"], indirect=True)
def test_where_an_index_is_of_no_use_there_is_none(lake_address: LakeAddress) -> None:
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    assert lake.create_indexes() == ()
    with attached(lake_address) as duck:
        assert duck.rows("SELECT index_name FROM duckdb_indexes() WHERE database_name LIKE '%metadata_lake'") == []
