"""Lakes in an object store: every operation on both engines, next to DuckDB on the same lake where it supports the store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError
from tests.behaviour.object_stores.work import Rows, change, found, maintain, numbered, table_of
from tests.support.object_stores import ObjectStore
from tests.support.oracle import LakeAddress


def in_duckdb(lake: DuckLake, address: LakeAddress, store: ObjectStore) -> Rows:
    """Rows of table ``t`` as DuckDB reads them, or another lake object where DuckDB does not support the store."""
    if store.know is None:
        other = DuckLake.connect(address.url, storage_options=store.options)
        rows = found(other)
        other.close()
        return rows
    with store.attached(address, "OVERRIDE_DATA_PATH true") as duck:
        return {int(str(k)): str(v) for k, v in duck.rows("SELECT k, v FROM t")}


def test_in_process(sqlite_address: LakeAddress, store: ObjectStore) -> None:
    address = store.lake(sqlite_address, "in_process")
    lake = store.create(address)
    expected = change(lake, table_of, None)
    assert found(lake) == in_duckdb(lake, address, store) == expected
    maintain(lake, expected, None)
    assert in_duckdb(lake, address, store) == expected
    if store.know is not None:
        with store.attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.run("INSERT INTO t VALUES (40, 0, 'duckdb')", "DELETE FROM t WHERE k = 0")
        expected = {**{k: v for k, v in expected.items() if k != 0}, 40: "duckdb"}
        assert found(lake) == expected
    lake.table("t").delete(where="k = 1")
    assert in_duckdb(lake, address, store) == {k: v for k, v in expected.items() if k != 1}
    lake.close()


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_on_spark(sqlite_address: LakeAddress, store: ObjectStore, spark: SparkSession, encrypted: bool) -> None:
    """In another spelling of the protocol where the lake is not encrypted."""
    address = store.lake(sqlite_address, f"on_spark_{encrypted}", store.schemes[0 if encrypted else 1])
    lake = store.create(address, encrypted=encrypted)
    expected = change(lake, lambda rows: spark.createDataFrame(table_of(rows)), spark)
    assert found(lake) == found(lake, spark) == expected
    maintain(lake, expected, spark)
    lake.close()
    # DuckDB does not know every spelling.
    address = store.lake(sqlite_address, f"on_spark_{encrypted}")
    lake = DuckLake.connect(address.url, data_path=address.data_path, override_data_path=True, storage_options=store.options)
    assert found(lake, spark) == in_duckdb(lake, address, store) == expected
    lake.close()


@pytest.mark.slow
def test_adding_what_spark_wrote(sqlite_address: LakeAddress, store: ObjectStore, spark: SparkSession, tmp_path: Path) -> None:
    """A whole output directory of Spark's own, with ``_SUCCESS`` and checksums, partitioned by a column."""
    address = store.lake(sqlite_address, "adding")
    expected = numbered(0, 20)
    # Spark has no file system for the store here.
    folder, written = f"{store.schemes[0]}://lake/of_spark/", tmp_path / "of_spark"
    spark.createDataFrame(table_of(expected)).write.partitionBy("p").parquet(str(written))
    lake = store.create(address)
    filesystem, inside = lake.storage.filesystem(folder)
    filesystem.put(f"{written}/", inside, recursive=True)
    lake.create_table("t", table_of({}).schema)
    done = lake.add_data_files("t", folder)
    assert done.rows_added == 20
    assert found(lake) == in_duckdb(lake, address, store) == expected
    for again in (folder, *(folder.replace(store.schemes[0], other, 1) for other in store.schemes), f"{folder}p=0/*.parquet"):
        with pytest.raises(AlreadyExistsError, match="already"):
            lake.add_data_files("t", again)
    lake.table("t").delete(where="k < 5")
    assert found(lake) == in_duckdb(lake, address, store) == {k: v for k, v in expected.items() if k >= 5}
    lake.close()


ODD = ["a b", "ä/ö", "50%", "#1", "?x=1", "a+b", "&", "c:\\d", "'q\"", "..", "%20", "\u00a0", "x" * 60]


@pytest.mark.slow
def test_odd_letters_in_paths(sqlite_address: LakeAddress, store: ObjectStore) -> None:
    """In values that become directories, and in names of files that are added."""
    address = store.lake(sqlite_address, "odd #ä%20")
    lake = store.create(address)
    data = pa.table({"p": ODD, "k": list(range(len(ODD)))})
    lake.create_table("t", data.schema, partition_by=["p"])
    lake.write("t", data)
    lake.table("t").delete(where="k = 0")
    expected = data.slice(1).to_pylist()
    path = f"{address.data_path}added/100% #1 ü+&'.parquet"
    with lake.storage.open_output(path) as sink:
        pq.write_table(data.slice(0, 1), sink)
    lake.create_table("u", data.schema)
    lake.add_data_files("u", path)
    lake.add_data_files("u", f"{address.data_path}added/", allow_duplicates=True)
    assert [lake.table("u").list_files()[n].path.endswith("/added/100% #1 ü+&'.parquet") for n in (0, 1)] == [True, True]

    def rows(table: str) -> list[dict[str, object]]:
        return lake.table(table).scan().to_arrow().sort_by("k").to_pylist()

    assert (rows("t"), rows("u")) == (expected, 2 * data.slice(0, 1).to_pylist())
    if store.know is not None:
        with store.attached(address) as duck:
            assert duck.rows("SELECT p, k FROM t ORDER BY k") == [(row["p"], row["k"]) for row in expected]
            assert duck.rows("SELECT p, k FROM u") == 2 * [("a b", 0)]
    lake.close()
