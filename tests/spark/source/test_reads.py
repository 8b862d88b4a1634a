"""Batch reads, planned and carried out as Spark does it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError
from tests.spark.source.processes import data_source, on_an_executor, planned, read, schema_of
from tests.support.oracle import LakeAddress, attached


def test_data_of_duckdb_is_read(lake_address: LakeAddress, tmp_path: Path) -> None:
    with attached(lake_address) as duck:
        duck.run(
            'CREATE TABLE t (a BIGINT, "it\'s, odd" VARCHAR, d DATE, f DOUBLE, h HUGEINT, ts TIMESTAMPTZ)',
            "INSERT INTO t SELECT i, 'x' || i, DATE '1969-12-30' + i::INT, 'nan', -i, '1960-01-01 00:00:00+00' FROM range(100) r(i)",
            "DELETE FROM t WHERE a % 10 = 3",
            "INSERT INTO t VALUES (1000, NULL, NULL, NULL, NULL, NULL)",
        )
        expected = duck.rows('SELECT a, "it\'s, odd", d, h::VARCHAR FROM t ORDER BY a')
    found = read(data_source(lake_address)).sort_by("a")
    assert [tuple(row.values()) for row in found.select(["a", "it's, odd", "d", "h"]).to_pylist()] == expected
    chosen = read(data_source(lake_address, where="a >= 50 AND d IS NOT NULL"), schema_of("rowid bigint, A bigint"))
    assert chosen.column_names == ["rowid", "A"]
    assert sorted(chosen.column("A").to_pylist()) == [a for a in range(50, 100) if a % 10 != 3]
    # Executors receive nothing of the catalog, and need nothing of it.
    function, partitions = planned(data_source(lake_address))
    shipped = dumps((function, partitions))
    assert b"sqlite" not in shipped
    assert b"postgres" not in shipped
    batches, loaded = on_an_executor(function, partitions[0], tmp_path)
    assert sum(batch.num_rows for batch in batches) > 0
    assert loaded == []


def test_a_frame_stays_at_the_snapshot_of_its_schema(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"a": [1]}))
    before = lake.snapshot()
    source = data_source(sqlite_address)
    columns = source.schema()
    lake.write("t", pa.table({"a": [2], "b": [3]}), schema_evolution="additive")
    assert read(source, columns).to_pydict() == {"a": [1]}
    assert read(data_source(sqlite_address, versionAsOf=str(before.id))).to_pydict() == {"a": [1]}
    lake.holds.add("month end", before.id)
    assert read(data_source(sqlite_address, versionAsOf="Month end")).to_pydict() == {"a": [1]}
    assert read(data_source(sqlite_address, timestampAsOf=before.time.isoformat())).to_pydict() == {"a": [1]}
    assert read(data_source(sqlite_address)).num_rows == 2


def test_invalid_reads_raise(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"a": pa.array([1], pa.int32())}))
    with pytest.raises(NotFoundError, match="nope"):
        data_source(sqlite_address, "nope").schema()
    with pytest.raises(NotFoundError, match="snapshot 99"):
        data_source(sqlite_address, versionAsOf="99").schema()
    with pytest.raises(SchemaError, match=r"'a' of main\.t cannot be read as bigint, only as int"):
        read(data_source(sqlite_address), schema_of("a bigint"))
    with pytest.raises(UnsupportedFeatureError, match="cannot be evaluated by Arrow"):
        read(data_source(sqlite_address, where="abs(a) = 1"))


def test_nothing_is_read_of_an_empty_table(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_table("t", pa.schema([("a", pa.int64())]))
    assert planned(data_source(sqlite_address))[1] == []
