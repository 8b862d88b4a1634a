"""A commit waits for rows that other transactions have locked, and for nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlalchemy.schema import DropTable

from ducklake_core import DuckLake
from ducklake_core.catalog.changes import EndInlinedRows
from ducklake_core.catalog.writing.writer import wait_for_rows
from tests.support.oracle import LakeAddress
from tests.unit.catalog.catalog_access import database_of


@pytest.mark.parametrize("lake_address", ["postgresql", "mysql"], indirect=True)
def test_a_dropped_table_of_inlined_rows_is_not_waited_for(lake_address: LakeAddress) -> None:
    """DuckDB's flush drops tables of inlined rows while other writers wait for its locks."""
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        lake.write("t", pa.table({"n": [1]}), inline=True)
        (inlined,) = lake.table("t").state.inlined_tables
    database = database_of(lake_address)
    with database.write() as connection:
        connection.execute(DropTable(database.tables.inlined_data(inlined.name)))
    pauses: list[float] = []
    wait_for_rows(database, [EndInlinedRows(table_name=inlined.name, row_ids=(0,), end_snapshot=2)], pauses.append)
    assert pauses == []
