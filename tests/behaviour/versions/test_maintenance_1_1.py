"""Maintenance of lakes of version 1.1, where leading columns of inlined rows have other names and bounds are marked exact or not."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.reading.bulk_reader import ManyTablesReader
from ducklake_core.catalog.reading.maintenance import StoredCounts, inlined_row_counts
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.storage.deletion_vectors import encode_container, read_container
from tests.support.ducklakepy_lake import new_lake
from tests.support.oracle import LakeAddress


def test_inlined_rows_are_counted_alike_for_one_table_and_for_many(lake_address: LakeAddress) -> None:
    """A column of the user may have the former name of a leading column, and does not count ended rows."""
    lake = new_lake(lake_address)
    lake.write("t", pa.table({"id": [1, 2, 3], "end_snapshot": pa.array([None, None, 7], pa.int64())}))
    lake.write("other", pa.table({"id": [1, 2]}))
    for name in ("t", "other"):
        lake.table(name).delete("id = 1")
    with lake.database.read() as connection:
        alone = CatalogReader(connection, lake.info, lake.database.tables)
        states = [alone.table("main", name, alone.latest_snapshot().id) for name in ("t", "other")]
        many = ManyTablesReader(connection, lake.info, lake.database.tables, [state.id for state in states])
        counts = [list(inlined_row_counts(reader, state).values()) for state in states for reader in (alone, many)]
    assert counts == [[StoredCounts(rows=3, ended=1)]] * 2 + [[StoredCounts(rows=2, ended=1)]] * 2
    lake.close()


def test_a_table_that_cannot_be_planned_stops_no_other(lake_address: LakeAddress) -> None:
    """On PostgreSQL its error spoils the transaction, so that each table is planned by itself."""
    lake = new_lake(lake_address)
    for name in ("broken", "kept"):
        lake.write(name, pa.table({"id": [1, 2]}))
    deleted = lake.database.tables.inlined_data(lake.table("broken").state.inlined_tables[0].name)
    with lake.database.write() as connection:
        connection.execute(DropTable(deleted))
    broken, kept = lake.flush_inlined_data().tables
    assert (broken.table, broken.failure is not None) == ("main.broken", True)
    assert (kept.table, kept.rows, kept.failure) == ("main.kept", 2, None)
    lake.close()


def test_repaired_bounds_of_a_table_are_not_called_exact(sqlite_address: LakeAddress) -> None:
    """They enclose bounds of files that need not be values of the column; DuckDB answers min() by exact ones."""
    lake = new_lake(sqlite_address)
    lake.write("t", pa.table({"s": ["b", "d"]}), inline=False)
    of_files, of_table = (lake.database.tables[name] for name in ("file_column_stats", "table_column_stats"))
    with lake.database.write() as connection:
        connection.execute(of_files.update().values(min_value="a", min_is_exact=False))
        connection.execute(of_table.update().values(min_value="b", min_is_exact=True))
    assert [finding.code for finding in lake.check(repair=True).findings] == ["table-bounds-narrow"]
    with lake.database.read() as connection:
        (row,) = connection.execute(of_table.select()).all()
    assert (row.min_value, row.max_value, row.min_is_exact, row.max_is_exact) == ("a", "d", None, None)
    lake.close()


def test_a_file_with_deletes_of_many_snapshots_is_read_vector_by_vector() -> None:
    """Each vector contains the positions of all earlier ones: all at once would take their number times the size of the last."""
    positions, snapshots = np.arange(40_000, dtype=np.int64), np.arange(40_000, dtype=np.int64) // 400
    content, _ = encode_container(positions, snapshots, "a.parquet")
    tracemalloc.start()
    held = read_container(content, "a.puffin")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held.snapshots is not None
    assert (held.positions == positions).all()
    assert (held.snapshots == snapshots).all()
    assert peak < 20 * positions.nbytes, "100 vectors of half as many positions on average"
