"""NaN is one value, whatever its bits are: in comparisons, keys, joins, partitions, sets and statistics; -0.0 equals 0.0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

BITS = {
    "float64": np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0xFFF0000000000123], np.uint64).view(np.float64),
    "float32": np.array([0x7FC00000, 0xFFC00000, 0x7FC00001, 0xFF800123], np.uint32).view(np.float32),
}
QUERIES = (
    "SELECT i FROM t WHERE x IN ('nan'::double, 7)",
    "SELECT i FROM t WHERE x = 'nan'::double",
    "SELECT i FROM t WHERE x IN (0, 7)",
    "SELECT i FROM t WHERE x = 0.0",
    "SELECT i FROM t WHERE x > 1e300",
    "SELECT i FROM t WHERE x NOT IN ('nan'::double)",
    "SELECT i FROM t WHERE x BETWEEN 1 AND 'nan'::double",
    "SELECT i FROM t WHERE isnan(x)",
    "SELECT count(DISTINCT x), max(x), min(x) FROM t",
    "SELECT count(*) FROM (SELECT x FROM t UNION SELECT x FROM t)",
    "SELECT count(*) FROM (SELECT x FROM t WHERE i > 1 EXCEPT SELECT x FROM t WHERE i <= 1)",
    "SELECT count(*) FROM (SELECT x, count(*) FROM t GROUP BY x)",
    "SELECT a.i, b.i AS j FROM t a JOIN t b ON a.x = b.x",
    "SELECT i FROM t WHERE x IN (SELECT x FROM t WHERE i = 1)",
    "SELECT i, rank() OVER (ORDER BY x) FROM t",
)


def _frame(kind: str) -> pa.Table:
    nans = BITS[kind]
    plain = np.array([0.0, -0.0, 7.0, np.inf], nans.dtype)
    values = np.concatenate([nans, plain])
    return pa.table({"i": pa.array(range(len(values)), pa.int64()), "x": pa.array(values)})


@pytest.fixture(params=[(kind, inlined) for kind in BITS for inlined in (True, False)], ids=str)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> DuckLake:
    kind, inlined = request.param
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", _frame(kind), inline=inlined)
    return lake


def test_queries_answer_as_duckdb_does(lake: DuckLake, tmp_path: Path) -> None:
    own = {}
    for query in QUERIES:
        found = lake.sql(query)
        assert found is not None
        own[query] = sorted(repr(tuple(row.values())) for row in found.to_arrow().to_pylist())
    lake.close()
    with attached(sqlite_lake(tmp_path)) as duck:
        duck.run("USE lake")
        by_duckdb = {query: sorted(map(repr, duck.rows(query))) for query in QUERIES}
    assert {query: (own[query], by_duckdb[query]) for query in QUERIES if own[query] != by_duckdb[query]} == {}


def test_scans_and_deletes_find_every_nan(lake: DuckLake) -> None:
    table = lake.table("t")
    for where in ("x IN ('nan'::double, 7)", "x = 'nan'::double OR x = 7", "x >= 'nan'::double OR x = 7"):
        assert sorted(table.scan(["i"], where=where).to_arrow().column("i").to_pylist()) == [0, 1, 2, 3, 6], where
    table.delete("x IN ('nan'::double)")
    assert sorted(lake.table("t").scan(["i"]).to_arrow().column("i").to_pylist()) == [4, 5, 6, 7]


def test_zero_is_one_key_and_nan_is_one_key(lake: DuckLake) -> None:
    kind = lake.table("t").scan(["x"]).to_arrow().schema.field("x").type
    lake.table("t").upsert(pa.table({"i": [100, 101], "x": pa.array([np.nan, 0.0], kind)}), on="x")
    found = sorted(lake.table("t").scan(["i"]).to_arrow().column("i").to_pylist())
    assert found == [6, 7, 100, 101]


def test_a_merge_matches_every_nan(lake: DuckLake) -> None:
    kind = lake.table("t").scan(["x"]).to_arrow().schema.field("x").type
    lake.table("t").merge(pa.table({"x": pa.array([np.nan, -0.0], kind)}), on=["x"]).when_matched_delete().execute()
    assert sorted(lake.table("t").scan(["i"]).to_arrow().column("i").to_pylist()) == [6, 7]


def test_nan_is_one_partition(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("p", _frame("float64"), partition_by=["x"], inline=False)
    values = sorted(str(file.partition_values) for file in lake.table("p").list_files())
    assert len(values) == len(set(values)), values
    assert len([one for one in values if "nan" in one.lower()]) == 1
    assert sorted(lake.table("p").scan(["i"], where="x = 'nan'::double").to_arrow().column("i").to_pylist()) == [0, 1, 2, 3]
    lake.table("p").overwrite(pa.table({"i": [50], "x": [np.nan]}), partitions="in_data")
    assert sorted(lake.table("p").scan(["i"]).to_arrow().column("i").to_pylist()) == [4, 5, 6, 7, 50]
