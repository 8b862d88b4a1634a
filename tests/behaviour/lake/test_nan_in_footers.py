"""NaN is greater than all numbers: no bound in a footer may exclude it from DuckDB's search."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached

NAN = float("nan")
ROWS = pa.table(
    {
        "n": [0, 1, 2, 3],
        "x": [1.0, NAN, None, -0.0],
        "y": pa.array([NAN, None, NAN, 2.5], pa.float32()),
        "s": [{"z": 0.5}, None, {"z": NAN}, {"z": None}],
        "l": [[1.0, NAN], [], None, [None, 2.0]],
    }
)
CONDITIONS = ("x > 5", "x = 'nan'", "x <= 1", "x = 0", "x IS NULL", "y >= 3", "y < 3", "s.z > 1", "list_max(l) > 5")


@pytest.mark.parametrize("encrypted", [False, True])
def test_duckdb_keeps_rows_with_nan(sqlite_address: LakeAddress, encrypted: bool) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, encrypted=encrypted)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("parquet_row_group_size", 2)
    lake.create_table("t", ROWS.schema).append(ROWS)
    summaries = lake.table("t").column_summaries()
    found = {name: (one.min_value, one.max_value, one.null_count) for name, one in summaries.items() if name != "n"}
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE by_duckdb AS SELECT * FROM t", "CREATE TEMP TABLE held AS SELECT * FROM t")
        for condition in CONDITIONS:
            wanted = duck.rows(f"SELECT n FROM held WHERE {condition} ORDER BY n")
            assert wanted, condition
            assert duck.rows(f"SELECT n FROM t WHERE {condition} ORDER BY n") == wanted, condition
        counts = "SELECT value_count, null_count FROM __ducklake_metadata_lake.ducklake_file_column_stats"
        both = [duck.rows(f"{counts} WHERE table_id = {number} ORDER BY column_id") for number in (1, 2)]
    assert both[0] == both[1]
    assert found["x"][:2] == (0.0, 1.0)
    assert (found["y"][:2], found["s.z"][:2]) == ((2.5, 2.5), (0.5, 0.5))


def test_nan_statistics_of_duckdb_are_those_of_the_last_row_group(sqlite_address: LakeAddress) -> None:
    """DuckDB's own statistics differ from the file, so the expected count is that of rows that it has read."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i AS n, if(i = 5, 'nan'::DOUBLE, i / 1e6) AS x FROM range(130000) r(i)")
        query = "SELECT contains_nan FROM __ducklake_metadata_lake.ducklake_file_column_stats WHERE column_id = 2"
        assert duck.value(query) in (0, False)
        duck.run("CREATE TEMP TABLE held AS SELECT * FROM t")
        assert duck.value("SELECT count(*) FROM held WHERE x > 5") == 1
    lake = DuckLake.connect(sqlite_address.url)
    table = lake.table("t")
    for condition in ("x > 5", "x = 'nan'", "NOT x < 5"):
        assert table.scan(where=condition).to_arrow().column("n").to_pylist() == [5], condition
        assert table.scan(where=condition).count() == 1
    table.delete("x < 5")
    assert table.refresh().scan().to_arrow().column("n").to_pylist() == [5]
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT n FROM t") == [(5,)]
